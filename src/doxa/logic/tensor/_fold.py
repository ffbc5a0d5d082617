"""Folding the frames of quantifiers: all instances at once, or as a contraction, without a frame of all of them.

For example, sum_{x,y,z} (Q(x,z) R(z,y) (1 - P(x,y)))^p = sum_{x,y} (1 - P(x,y))^p (Q^p R^p)(x,y), a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from itertools import product
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa._cache import Cache
from doxa.logic.syntax._tree import And, Expr, Or
from doxa.logic.tensor._algebra import Accumulator, Algebra, Powers, State
from doxa.logic.tensor._block import Block, Frame, Open, Own, Reducer, Scope
from doxa.logic.tensor._execute import cuts
from doxa.logic.tensor._pools import Axis, Ref, ravel, spread, union
from doxa.logic.tensor._trees import Trees

Factor = tuple[Expr, bool]
"""A formula, and whether its truth is meant or its falsity, 1 minus that."""


Factors = dict[tuple[Axis, ...], list[Factor]]
"""What a quantified formula is a product of: factors over the same axes together."""


def multiplied(sides: tuple[bool, ...], frame: Frame, *values: Tensor) -> Tensor:
    return reduce(torch.mul, [v if side else 1 - v for v, side in zip(values, sides, strict=True)])


def factorize(
    powers: Powers | None, body: Expr, block: Block, scope: Scope, algebra: Algebra, trees: Trees, stack: int
) -> Factors | None:
    """The factors of a quantified formula, if multiplying them saves anything; ``stack`` formulas are too many."""
    if powers is None:
        return None
    absorbed = {gone: into.list for into in block.lists for gone in into.places}
    inside = {*[own.axis for own in block.own], *absorbed.values()}
    if not inside.issuperset(absorbed):
        return None  # a list that is folded back onto outer axes

    def axes_of(node: Expr) -> tuple[Axis, ...]:
        axes = union([ref.axes for ref in scope.meant(trees.names(node)).values()])
        while any(a in absorbed for a in axes):
            axes = union([tuple([absorbed.get(a, a) for a in axes])])
        return axes

    leaves: list[Factor] = []
    todo = [(body, powers.of_truth)]
    while todo:
        node, side = todo.pop()
        below = algebra.factors(node, side)
        # Very many formulas are better evaluated as one stack.
        if below is None or (isinstance(node, And | Or) and len(below) >= stack):
            leaves.append((node, side))
        else:
            todo += reversed(below)
    groups: Factors = {}
    for node, side in leaves:
        groups.setdefault(axes_of(node), []).append((node, side))
    return None if leaves[0][0] is body else groups  # which is no product


def contractible(factors: Factors, powers: Powers) -> bool:
    """Does contracting the factors save more than multiplying them, and can it be done?"""
    alone = len(factors) == 1 and (powers.scaled or len(next(iter(factors.values()))) == 1)
    # einsum has so many letters for axes
    return powers.contracts and not alone and len(union(factors)) <= len(ascii_letters)


class Finishing(Reducer):
    """Folds of instances; what an accumulator finishes can be left to those who have more of the same to finish."""

    accumulator: Accumulator
    open = False

    def leave_open(self) -> Accumulator | None:
        self.open = True
        return self.accumulator

    def finished(self, state: State, count: int | Tensor) -> Any:
        return Open(state, count) if self.open else self.accumulator.finish(state, count)


class Fold(Finishing):
    """Fold the axes that a block introduced: its variables', and its lists', the latter back onto outer axes."""

    def __init__(self, block: Block, body: Ref, accumulator: Accumulator, *, lifted: bool = False) -> None:
        self.accumulator = accumulator
        self.lifted = lifted
        """Are the values of the body states already?"""
        self.spreads = not accumulator.idempotent
        self.body = body
        self.folded = list(block.axes)
        """Axes to fold away."""
        self.segments: list[tuple[Axis, list[tuple[Axis, Ref]]]] = []
        """List axes to fold onto outer axes, with the positions on these."""
        inside = {*[own.axis for own in block.own], *[absorbed.list for absorbed in block.lists]}
        outer = [a for a in union([tuple(absorbed.places) for absorbed in block.lists]) if a not in inside]
        for axis in block.axes:
            back = [(a, block.current(block.position(a))) for a in outer]
            back = [(a, ref) for a, ref in back if ref.axes == (axis,)]
            if back:
                self.folded.remove(axis)
                self.segments.append((axis, back))
        segmented = {axis for axis, _ in self.segments}
        self.rest = tuple([a for a in body.axes if a not in self.folded and a not in segmented])
        self.axes = union([self.rest, *[tuple([a for a, _ in back]) for _, back in self.segments]])
        self.refs = (body, *[ref for _, back in self.segments for _, ref in back])
        self.absent = [a for a in self.folded if a not in body.axes]
        self.dims = tuple([d for d, a in enumerate(body.axes) if a in self.folded])

    def tile(self, frame: Frame) -> Any:
        accumulator, sizes = self.accumulator, frame.sizes
        x = frame.regs[self.body.slot]
        axes, dims = self.body.axes, self.dims
        if self.absent or self.segments:
            # An axis that the body does not mention matters when its length does: how often, or whether at all.
            missing = [a for a in self.absent if not accumulator.idempotent or sizes[a] == 0]
            missing += [a for a, _ in self.segments if a not in axes]
            if missing:
                full = union([axes, tuple(missing)])
                x = spread(x, axes, full, sizes)
                axes, dims = full, tuple([d for d, a in enumerate(full) if a in self.folded])
        state = accumulator.fold((x,) if self.lifted else accumulator.lift(x), dims)
        left = [a for a in axes if a not in self.folded]
        count: Any = prod([sizes[a] for a in self.folded]) if accumulator.counts else 1
        for axis, back in self.segments:
            dim = left.index(axis)
            lengths = [sizes[a] for a, _ in back]
            ids, size = ravel([frame.regs[ref.slot] for _, ref in back], lengths), prod(lengths)
            state = accumulator.segments(state, dim, ids, size)
            if accumulator.counts:
                shape = [-1 if d == dim else 1 for d in range(len(left))]
                count = torch.bincount(ids, minlength=size).view(shape) * count
        return state, count, left

    def merge(self, a: Any, b: Any) -> Any:
        return self.accumulator.merge(a[0], b[0]), a[1] + b[1], a[2]

    def finish(self, frame: Frame, total: Any) -> Any:
        state, count, left = total
        return self.onto(frame, left, self.finished(state, count))

    def leave_open(self) -> Accumulator | None:
        return None if self.segments else super().leave_open()

    def onto(self, frame: Frame, left: list[Axis], value: Any) -> Any:
        """A value over the axes that are left, with those of lists back on the outer ones; others stay behind."""
        if not self.segments:
            return value
        shape: list[int] = []
        axes: list[Axis] = []
        onto = dict(self.segments)
        for axis in left:
            back = [a for a, _ in onto[axis]] if axis in onto else [axis]
            axes += back
            shape += [frame.sizes[a] for a in back]
        value = value.reshape([*shape, *value.shape[len(left) :]])
        order = sorted(range(len(axes)), key=lambda d: axes[d].order)
        behind = range(len(axes), value.ndim)
        return value.permute(*order, *behind) if order != list(range(len(axes))) else value


class Pair(NamedTuple):
    """One step: the product of two factors, summed over the axes that no other factor mentions; or one such sum."""

    first: int
    second: int | None
    multiply: Callable[..., Tensor]
    elements: int


class Contract(Finishing):
    """Fold all axes of a block by contracting factors, a pair at a time."""

    cuts = True

    def __init__(self, block: Block, refs: list[Ref], accumulator: Accumulator, powers: Powers) -> None:
        self.refs = tuple(refs)
        self.accumulator = accumulator
        self.powers = powers
        self.folded = block.axes
        self.all = union([r.axes for r in refs])
        self.axes = tuple([a for a in self.all if a not in self.folded])
        self.absent = [a for a in self.folded if a not in self.all]
        self._dims = [tuple([d for d, a in enumerate(r.axes) if a in self.folded]) for r in refs]
        # The length of a guard's list may be another one in every batch.
        self._paths: Cache[tuple[int, ...], list[Pair]] = Cache(64)

    def path(self, sizes: dict[Axis, int]) -> list[Pair]:
        key = tuple([sizes[a] for a in self.all]) if len(self.refs) > 1 else ()
        return self._paths.find(key, lambda: _path([r.axes for r in self.refs], self.axes, sizes))

    def elements(self, sizes: dict[Axis, int]) -> int:
        return max([prod([sizes[a] for a in r.axes]) for r in self.refs] + [p.elements for p in self.path(sizes)])

    def tiles(self, block: Block, sizes: dict[Axis, int], chunk: int) -> list[dict[Own, slice]] | None:
        lengths = {own: sizes[own.axis] for own in block.own if own.axis in self.all}
        while lengths and self.elements(sizes | {own.axis: n for own, n in lengths.items()}) > chunk:
            longest = max(lengths, key=lambda own: lengths[own])
            if lengths[longest] <= 1:
                break
            lengths[longest] = (lengths[longest] + 1) // 2
        pieces = [cuts(sizes[own.axis], max(1, n)) for own, n in lengths.items()]
        boxes = [dict(zip(lengths, box, strict=True)) for box in product(*pieces)]
        return boxes if len(boxes) > 1 else None

    def tile(self, frame: Frame) -> Any:
        sizes = frame.sizes
        values: list[Tensor | None] = []
        scales = []
        for ref, dims in zip(self.refs, self._dims, strict=True):
            power, scale = self.powers.lift(frame.regs[ref.slot], dims)
            values.append(power)
            if scale is not None:
                kept = tuple([a for a in ref.axes if a not in self.folded])
                scales.append(scale.reshape([sizes[a] if a in kept else 1 for a in self.axes]))
        with _without_autocast(frame.run.device.type):
            for pair in self.path(sizes):
                first = values[pair.first]
                assert first is not None
                if pair.second is None:
                    values[pair.first] = pair.multiply(first)
                else:
                    values[pair.first] = pair.multiply(first, values[pair.second])
                    values[pair.second] = None
        total = next(v for v in values if v is not None)
        for axis in self.absent:
            total = total * sizes[axis]
        count = prod([sizes[a] for a in self.folded]) if self.accumulator.counts else 1
        return self.powers.state(total, scales), count

    def merge(self, a: Any, b: Any) -> Any:
        return self.accumulator.merge(a[0], b[0]), a[1] + b[1]

    def finish(self, frame: Frame, total: Any) -> Any:
        return self.finished(*total)

    def note(self, sizes: dict[Axis, int]) -> str:
        if len(self.refs) == 1:
            return ""
        factors = " · ".join([f"({', '.join([a.label for a in r.axes])})" for r in self.refs])
        return f", contracted as {factors} in tensors of at most {self.elements(sizes)} elements"


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    """Matrix products in full precision."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _path(factors: list[tuple[Axis, ...]], kept: tuple[Axis, ...], sizes: dict[Axis, int]) -> list[Pair]:
    """Contract, again and again, what costs least: two factors, or one that can be summed by itself."""
    left: dict[int, tuple[Axis, ...]] = dict(enumerate(factors))
    path: list[Pair] = []

    def size(axes: tuple[Axis, ...]) -> int:
        return prod([sizes[a] for a in axes])

    def result(chosen: tuple[int, ...]) -> tuple[Axis, ...]:
        needed = {a for i, axes in left.items() if i not in chosen for a in axes}.union(kept)
        return tuple([a for a in union([left[i] for i in chosen]) if a in needed])

    def step(chosen: tuple[int, ...]) -> None:
        out = result(chosen)
        multiply = _multiplication([left[i] for i in chosen], out)
        path.append(Pair(chosen[0], chosen[1] if len(chosen) > 1 else None, multiply, size(out)))
        for i in chosen[1:]:
            del left[i]
        left[chosen[0]] = out

    for i in list(left):
        if result((i,)) != left[i]:
            step((i,))
    while len(left) > 1:
        pairs = [(i, j) for i in left for j in left if i < j]
        step(min(pairs, key=lambda p: (size(result(p)), size(union([left[i] for i in p])))))
    return path


def _multiplication(factors: list[tuple[Axis, ...]], out: tuple[Axis, ...]) -> Callable[..., Tensor]:
    """The product of one or two factors, summed over all axes but ``out``; the common cases without einsum."""
    dims = tuple([d for d, a in enumerate(factors[0]) if a not in out])
    if len(factors) == 1:
        return lambda x: x.sum(dims)
    one, two = factors
    if one == two:
        return (lambda x, y: (x * y).sum(dims)) if dims else torch.mul
    if len(one) == len(two) == len(out) == 2 and len(union(factors)) == 3 and not {*one}.intersection(two, out):
        # A matrix product: the factor with the first axis of the result comes first, its shared axis last.
        swap = out[0] not in one
        rows, columns = (two, one) if swap else (one, two)
        turn_rows, turn_columns = rows[0] != out[0], columns[1] != out[1]

        def product_of(x: Tensor, y: Tensor) -> Tensor:
            x, y = (y, x) if swap else (x, y)
            return torch.mm(x.t() if turn_rows else x, y.t() if turn_columns else y)

        return product_of
    letters = dict(zip(union(factors), ascii_letters, strict=False))
    equation = ",".join(["".join([letters[a] for a in axes]) for axes in factors])
    equation += "->" + "".join([letters[a] for a in out])
    return lambda x, y: torch.einsum(equation, x, y)
