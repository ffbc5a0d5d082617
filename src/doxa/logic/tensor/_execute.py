"""Running blocks: in one go, or in tiles and pieces that the backward pass runs again, so that the chunk bounds memory.

Nothing here recurses: a block is a generator that yields those of the blocks inside it, and :func:`drive` runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from doxa.errors import ConfigError
from doxa.logic.syntax._node import Task, drive
from doxa.logic.tensor._algebra import Accumulator, Algebra, State
from doxa.logic.tensor._block import Block, Frame, Open, Own, Places, Result, Split, Step, length_of
from doxa.logic.tensor._pools import Axis, Pool, Ref, Type, spread
from doxa.logic.tensor._run import Run

MOST_RECOMPUTED = 16
"""At most this many nested blocks are computed again in the backward pass; each takes a part of Python's stack."""


def _recomputed(run: Run, make: Callable[[], Task]) -> Task:
    """Part of the work, of which nothing is kept: the backward pass computes it again."""
    if not run.checkpoint or not torch.is_grad_enabled() or run.recomputing == MOST_RECOMPUTED:
        return (yield make())

    def work() -> Any:
        run.recomputing += 1
        try:
            return drive(make())
        finally:
            run.recomputing -= 1

    return checkpoint(work, use_reentrant=False)


def run_block(block: Block, run: Run, values: Sequence[Any], outer: dict[Axis, int]) -> Task:
    """Run a sealed block on the values of its inputs; ``outer`` holds the lengths of their axes."""
    sizes: dict[Axis, int] = {}
    total = 1
    for axis in block.outer:
        sizes[axis] = length = outer[axis]
        total *= length
    for own in block.own:
        sizes[own.axis] = length = run.size(own.pool)
        if own.costs:
            total *= length
    tiles = None
    if total > run.chunk or block.ragged:
        weights, factor = _ragged_weights(block, run, values)
        outside = factor * prod([_total(weights.get(a, sizes[a])) for a in block.outer])
        cuttable = [a for a in block.outer if a in block.reducer.axes and sizes[a] > 1 and not block.reducer.whole]
        if outside > run.chunk and cuttable:
            # Cut the longest outer axis into pieces and put their results side by side.
            longest = max(cuttable, key=lambda a: sizes[a])
            count = weights.get(longest, sizes[longest])
            pieces = []
            for piece in cuts(count, max(1, run.chunk * _total(count) // max(1, outside))):
                inside = {**sizes, longest: piece.stop - piece.start}
                cut = [_cut(value, ref, longest, piece) for value, (ref, _) in zip(values, block.inputs, strict=True)]
                pieces.append((yield _recomputed(run, partial(run_block, block, run, cut, inside))))
            return block.reducer.beside(pieces, block.reducer.axes.index(longest))
        if block.reducer.cuts and not block.lists:
            tiles = block.reducer.tiles(block, sizes, run.chunk)
        else:
            costly = [own for own in block.own if own.costs]
            boxes = _tiles([weights.get(own.axis, sizes[own.axis]) for own in costly], run.chunk // max(1, outside))
            tiles = [dict(zip(costly, box, strict=True)) for box in boxes]
    frame = _framed(block, run, values, sizes, whole=tiles is None or len(tiles) == 1)
    if frame.whole:
        found = yield from _run_steps(block, block.steps, frame, None)
    else:
        found = yield from _run_steps(block, block.invariant, frame, tiles)
    if run.trace is not None:
        axes = [(o.axis.label, run.size(o.pool)) for o in block.own]
        axes += [(a.list.label, frame.sizes.get(a.list, 0)) for a in block.lists]
        count = (len(tiles) if tiles else 1) * frame.pieces
        run.trace.block(block.label, axes, count, block.reducer.note(frame.sizes))
    return block.reducer.finish(frame, found)


def run_at_once(block: Block, run: Run, values: Sequence[Any], outer: dict[Axis, int]) -> Any:
    """Run a sealed block without tiles and tasks, which ``torch.compile`` cannot follow."""
    sizes = {axis: outer[axis] for axis in block.outer} | {own.axis: run.size(own.pool) for own in block.own}
    frame = _framed(block, run, values, sizes, whole=True)
    regs = frame.regs
    for step in block.steps:
        args = [regs[a] for a in step.args]
        if step.inner is not None:
            regs[step.out] = run_at_once(step.inner, run, args, sizes)
        elif step.suspends:
            raise ConfigError(
                f"{block.label}: a guard depends on the content of data, so torch.compile cannot follow it; compile "
                "the networks alone, or give the plan compile=True, which leaves such formulas out"
            )
        else:
            regs[step.out] = step.fn(frame, *args)
    return block.reducer.finish(frame, block.reducer.tile(frame))


def _framed(block: Block, run: Run, values: Sequence[Any], sizes: dict[Axis, int], *, whole: bool) -> Frame:
    """A frame before anything has run: with the values from outside, and the places along its own axes."""
    regs = block.blank.copy()
    for slot, value in zip(block.input_slots, values, strict=True):
        regs[slot] = value
    for own in block.own:
        regs[own.slot] = slice(0, sizes[own.axis])
    frame = Frame(run, sizes, regs, whole)
    _fill_positions(block, frame)
    return frame


def _run_steps(block: Block, steps: list[Step], frame: Frame, tiles: list[dict[Own, slice]] | None) -> Task:
    """Run steps, then reduce the frame, or the tiles of it; from a list in pieces on, for each of these."""
    regs = frame.regs
    for number, step in enumerate(steps):
        value = step.fn(frame, *[regs[a] for a in step.args])
        value = (yield value) if step.suspends else value
        if isinstance(value, Split):
            return (yield from _run_pieces(block, steps[number:], frame, value, tiles))
        regs[step.out] = value
        for slot in step.frees:
            regs[slot] = None
    if tiles is None:
        return block.reducer.tile(frame)
    return (yield from _run_tiles(block, frame, tiles))


def _run_pieces(
    block: Block, steps: list[Step], frame: Frame, split: Split, tiles: list[dict[Own, slice]] | None
) -> Task:
    """Go on with each piece of a list in turn."""
    found: Any = None
    listed = Counter[Axis]()
    count = 0
    for count, piece in enumerate(split.pieces(), 1):

        def go_on(piece: Callable[[], Places] = piece) -> Task:
            # A frame of its own: the backward pass may have to run this piece again.
            own = Frame(frame.run, dict(frame.sizes), list(frame.regs), False)
            own.regs[steps[0].out] = value = piece()
            own.sizes[split.axis] = length_of(value)
            part = yield from _run_steps(block, steps[1:], own, tiles)
            listed.update({a.list: own.sizes.get(a.list, 0) for a in block.lists if a.list not in frame.sizes})
            return part

        part = yield _recomputed(frame.run, go_on)
        found = part if count == 1 else block.reducer.merge(found, part)
    frame.sizes.update(listed)  # for the report
    frame.pieces *= count
    return found


def _run_tile(block: Block, frame: Frame, tile: dict[Own, slice]) -> Task:
    for own, places in tile.items():
        frame.regs[own.slot] = places
        frame.sizes[own.axis] = places.stop - places.start
    _fill_positions(block, frame)
    return (yield from _run_steps(block, block.varying, frame, None))


def _run_tiles(block: Block, frame: Frame, tiles: list[dict[Own, slice]]) -> Task:
    found: Any = None
    listed = Counter[Axis]()
    for number, tile in enumerate(tiles):
        # A frame of its own: the backward pass may have to run this tile again.
        own = Frame(frame.run, dict(frame.sizes), list(frame.regs), False)
        part = yield _recomputed(frame.run, partial(_run_tile, block, own, tile))
        found = part if number == 0 else block.reducer.merge(found, part)
        listed.update({a.list: own.sizes[a.list] for a in block.lists if a.list not in frame.sizes})
    frame.sizes.update(listed)  # for the report
    return found


def _fill_positions(block: Block, frame: Frame) -> None:
    for axis, ref in block.ranges.items():
        if axis in frame.sizes:
            frame.regs[ref.slot] = slice(0, frame.sizes[axis])


def _total(count: int | Tensor) -> int:
    return count if isinstance(count, int) else int(count.sum())


def _cut(value: Any, ref: Ref, axis: Axis, piece: slice) -> Any:
    if axis not in ref.axes:
        return value
    if ref.dense:
        return slice(value.start + piece.start, value.start + piece.stop)
    return value.narrow(ref.axes.index(axis), piece.start, piece.stop - piece.start)


def _ragged_weights(block: Block, run: Run, values: Sequence[Any]) -> tuple[dict[Axis, Tensor], int]:
    """For each axis along which structures lie, how many instances each structure has; and a factor for the rest."""
    weights: dict[Axis, Tensor] = {}
    factor = 1
    own = {o.slot: o for o in block.own}
    given = {inside.slot: value for (_, inside), value in zip(block.inputs, values, strict=True)}
    for base, column, copies in block.ragged:
        lengths = run.lengths(column)
        if len(base.axes) == 1 and (base.slot in own or base.slot in given):
            places = given.get(base.slot)
            if places is not None:
                lengths = lengths[places] if isinstance(places, slice) else lengths[places.cpu()]
            weight = lengths.clamp(min=1) ** copies
            axis = base.axes[0]
            weights[axis] = weights[axis] * weight if axis in weights else weight
        else:
            factor *= max(1, int(lengths.max()) if len(lengths) else 1) ** copies
    return weights, factor


def _tiles(counts: Sequence[int | Tensor], budget: int) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most ``budget`` elements that cover axes, given by lengths or by weights of their places."""
    inner = 1
    cut: list[list[slice]] = []
    for count in reversed(counts):
        total = _total(count)
        length = count if isinstance(count, int) else len(count)
        if inner * total <= budget or length <= 1:
            cut.append([slice(0, length)])
        else:
            cut.append(cuts(count, max(1, budget // inner)))
        inner = inner * total if inner * total <= budget else max(inner, budget)
    return product(*reversed(cut))


def cuts(count: int | Tensor, budget: int) -> list[slice]:
    """Runs of consecutive places of at most ``budget`` weight each, or of one place."""
    if isinstance(count, int):
        return [slice(a, min(a + budget, count)) for a in range(0, count, budget)] or [slice(0, 0)]
    ends = count.cumsum(0).tolist()
    pieces, start, before = [], 0, 0
    for place, end in enumerate(ends):
        if end - before > budget and place > start:
            pieces.append(slice(start, place))
            start, before = place, ends[place - 1]
    pieces.append(slice(start, len(ends)))
    return pieces


class Tail(NamedTuple):
    """What becomes of the folded instances of a formula, entry by entry."""

    accumulator: Accumulator
    algebra: Algebra
    is_log: bool

    def value(self, state: State, count: int | Tensor) -> Tensor:
        return self.algebra.result(self.accumulator.finish(state, count), self.is_log)


class Root:
    """A compiled formula, or a stack of formulas: a block whose free variables come from outside."""

    tail: Tail | None = None
    """What is left to do with its value, when that is :class:`Open`."""

    def __init__(self, names: list[str], members: list[int]) -> None:
        self.names = names
        self.members = members
        self.block = Block(None, "formula")
        self.variables: list[tuple[Axis, Pool]] = []

    def variable(self, axis: Axis, pool: Pool, kind: Type) -> Ref:
        ref = Ref(self.block.slot(), (axis,), kind, dense=True)
        self.block.inputs.append((ref, ref))
        self.variables.append((axis, pool))
        return ref

    def seal(self, ref: Ref, algebra: Algebra, is_log: bool) -> None:
        """Finish building; what is done last, with a quantifier that the formula begins with, is left open."""
        made = next((step for step in self.block.steps if step.out == ref.slot), None)
        last = None if made is None or made.inner is None else made.inner.reducer.leave_open()
        if last is not None:
            self.tail = Tail(last, algebra, is_log)
        else:
            ref = self.block.emit(("result",), lambda frame, x: algebra.result(x, is_log), [ref], ref.axes)
        self.block.seal(Result(ref))

    def value(self, run: Run) -> Any:
        return self.closed(self.opened(run))

    def closed(self, value: Any) -> Any:
        return self.tail.value(*value) if self.tail is not None and isinstance(value, Open) else value

    def opened(self, run: Run) -> Any:
        """The value, or what the tail takes."""
        sizes = {axis: run.size(pool) for axis, pool in self.variables}
        places = [slice(0, sizes[axis]) for axis, _ in self.variables]
        if torch.compiler.is_compiling():
            value = run_at_once(self.block, run, places, sizes)
        else:
            value = drive(run_block(self.block, run, places, sizes))
        if not self.variables or not isinstance(value, Tensor | Open):
            return value
        of, onto = self.block.reducer.axes, tuple([axis for axis, _ in self.variables])
        if isinstance(value, Open):
            return Open(tuple([spread(x, of, onto, sizes) for x in value.state]), value.instances)
        return spread(value, of, onto, sizes)


def side_by_side(opened: Sequence[tuple[Root, Any]]) -> tuple[list[int], Tensor]:
    """The values of many formulas, and which formula each is of; what they all end with is done once."""
    groups: dict[Any, list[tuple[Root, Tensor]]] = {}
    tails: dict[Any, tuple[Tail, int]] = {}
    for root, value in opened:
        key: Any = root
        if root.tail is not None and isinstance(value, Open):
            (first, *more), count = value
            if not more and first.ndim == len(root.variables) and isinstance(count, int):
                value, key = first, (id(root.tail.accumulator), root.tail.is_log, count)
                tails[key] = root.tail, count
            else:
                value = root.closed(value)
        groups.setdefault(key, []).append((root, value.reshape(-1)))
    parts: list[Tensor] = []
    for key, members in groups.items():
        part = members[0][1] if len(members) == 1 else torch.cat([value for _, value in members])
        tail, count = tails.get(key, (None, 0))
        parts.append(part if tail is None else tail.value((part,), count))
    numbers = [n for members in groups.values() for root, _ in members for n in root.members]
    return numbers, parts[0] if len(parts) == 1 else torch.cat(parts)
