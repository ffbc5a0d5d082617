"""Aggregates as tensors: numbers where everything is certain, else how true each value of the aggregate is.

Where networks are true and false to a degree, an aggregate is a chain over the choices, as in `doxa.logic.unfold`, with
the ∧ and ∨ of the logic for the product and the sum of probabilities. After one more choice the state is s to the
degree

    ∨_{s' joined with v is s} state(s') ∧ choice(v).

The aggregate is then a variable that ranges over its values, as the value of a neural function is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.bind._bindings import has_values
from doxa.logic.syntax._binders import Aggregate
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Number, postorder
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL, Accumulator, Algebra, Monoid, State
from doxa.logic.tensor._block import Absorbed, Block, Frame, Reducer, Scope
from doxa.logic.tensor._fold import Fold
from doxa.logic.tensor._frame import frame
from doxa.logic.tensor._infinite import Extreme, Total, extended, infinity, refuse
from doxa.logic.tensor._names import Names
from doxa.logic.tensor._pools import NUMBER, TRUTH, Ref, spread, union
from doxa.logic.tensor._terms import as_number
from doxa.logic.tensor._trees import draw_first


class Values(NamedTuple):
    """How true each value is: the values ``(V,)``; truths ``(*axes, V)``; and where each is an object, its place."""

    values: Tensor
    truths: Tensor
    objects: Tensor | None = None


class Aggregates(Names):
    """Compiles aggregates; what else a compiler does is for those who inherit from this."""

    @abstractmethod
    def close(self, block: Block, reducer: Reducer, parent: Block) -> Ref:
        """Seal a block and make it a step of the one around it."""

    @abstractmethod
    def bind(self, pairs: Sequence[tuple[str, Expr]], scope: Scope, algebra: Algebra) -> Task:
        """Bind names to values, drawn where they are: the scope inside, and the weights of what is drawn."""

    @abstractmethod
    def is_drawn(self, term: Expr) -> bool:
        """Is the value of this term not certain by itself, whatever its arguments?"""

    def is_soft(self, node: Aggregate) -> bool:
        """Does a network decide something in it?"""
        calls = [n for n in postorder(node) if isinstance(n, Call)]
        return any(self.batch.meaning(c.name).returns not in ("bool", "value") for c in calls)

    # -- certain values ---------------------------------------------------------------------------------------------

    def aggregate(self, node: Aggregate, scope: Scope, algebra: Algebra) -> Task:
        """The number, object or truth that an aggregate is where networks say what they think most likely."""
        block = Block(scope.block, node.kind)
        inner = Scope(scope, block)
        yield frame(self, block, inner, [(node.groups, node.guard)])
        body = self._number(node, block, (yield self.compile(node.body, inner, CLASSICAL)))
        places = [block.positions(block.position(axis)) for axis in block.axes]
        if node.kind in ("argmin", "argmax"):
            variable = self.name(node.names[0], inner)
            args = [body, block.positions(variable), *places]
            each = block.broadcast(("choices",), _pairs, args)
            fold = Fold(block, each, Chosen(node))
            return self.close(block, fold, scope.block).read_as(variable.type)
        each = block.broadcast(("choices",), _everywhere, [body, *places])
        if node.kind == "all_different":
            found = self.close(block, Fold(block, each, Different()), scope.block)

            def truth(frame: Frame, x: Tensor) -> Tensor:
                return algebra.atom(x, "bool", frame.run.dtype(algebra))

            return scope.block.emit(("certain", id(algebra)), truth, [found], found.axes)
        total: Accumulator = Extreme(greatest=node.kind == "max")
        if node.kind in ("sum", "count"):
            total = Total(node) if self.trees.extremes else Monoid("sum")
        return self.close(block, Fold(block, each, total), scope.block).read_as(NUMBER)

    def _number(self, node: Aggregate, block: Block, ref: Ref) -> Ref:
        """The body of an aggregate; for ``all_different`` its place among the values or objects that there are."""
        if node.kind == "all_different" and isinstance(ref.type, _pools.Finite | _pools.Object):
            return block.positions(ref)
        return as_number(block, ref, self.batch)

    # -- to a degree ------------------------------------------------------------------------------------------------

    def drawn_aggregate(self, name: str, node: Aggregate, scope: Scope, algebra: Algebra) -> Task:
        """The aggregate as a variable over its values: the scope that binds it, and how true each of them is."""
        block = scope.block
        found, kind = yield self._values(node, scope, algebra)
        axis = self.axis(name)

        def make(frame: Frame, values: Values) -> Tensor:
            frame.sizes[axis] = len(values.values)
            return values.values

        made = block.emit(("values", axis), make, [found], (axis,), NUMBER)
        block.lists.append(Absorbed(axis, made, {}))
        axes = union([found.axes, (axis,)])
        inner = Scope(scope, block)
        if kind is None:
            inner.names[name] = made
        else:
            objects = block.emit(("objects", axis), lambda frame, v, at: v.objects, [found, made], axes, kind)
            inner.names[name] = objects
        weights = block.emit(("truths", axis, id(algebra)), lambda frame, v, at: v.truths, [found, made], axes, TRUTH)
        return inner, weights

    def soft_difference(self, node: Aggregate, scope: Scope, algebra: Algebra) -> Task:
        """How true it is that all values differ: that of no pair both have some value."""
        found, _ = yield self._values(node, scope, algebra)
        return scope.block.emit(("different", id(algebra)), lambda frame, v: v.truths[..., 0], [found], found.axes)

    def _values(self, node: Aggregate, scope: Scope, algebra: Algebra) -> Task:
        """A value of the block that is :class:`Values`; and what kind of objects it speaks of, if it does."""
        block = Block(scope.block, node.kind)
        inner = Scope(scope, block)
        certain, soft = self._guards(node)
        yield frame(self, block, inner, [(node.groups, certain)])
        each = yield self._distribution(node, soft, inner, algebra)
        places = [block.position(axis) for axis in block.axes]
        axes = union([each.axes, block.axes])
        kind = None
        extra: list[Ref] = []
        if node.kind in ("argmin", "argmax"):
            variable = self.name(node.names[0], inner)
            kind, extra = variable.type, [block.positions(variable)]

        def everywhere(frame: Frame, values: Values, *args: Any) -> Values:
            truths = spread(values.truths, each.axes, axes, frame.sizes)
            objects = [spread(torch.as_tensor(a), r.axes, axes, frame.sizes) for a, r in zip(args, extra, strict=False)]
            return values._replace(truths=truths, objects=objects[0] if objects else None)

        full = block.emit(("everywhere",), everywhere, [each, *extra, *places], axes)
        return self.close(block, SoftFold(block, full, node, algebra), scope.block), kind

    def _guards(self, node: Aggregate) -> tuple[Expr | None, Expr | None]:
        """What is certain in a guard, and the rest."""
        guard = node.guard
        parts = [] if guard is None else list(guard.children) if isinstance(guard, And) else [guard]
        sides: dict[bool, list[Expr]] = {True: [], False: []}
        for part in parts:
            calls = [n for n in postorder(part) if isinstance(n, Call)]
            fine = all(self.batch.meaning(c.name).returns in ("bool", "value") for c in calls)
            sides[fine].append(part)
        certain, soft = [None if not s else And(*s) if len(s) > 1 else s[0] for s in (sides[True], sides[False])]
        return certain, soft

    def _distribution(self, node: Aggregate, guard: Expr | None, scope: Scope, algebra: Algebra) -> Task:
        """For each choice, how true each value of the body is, and last that the guard does not let it through."""
        block = Block(scope.block, "choice")
        both = Compare("=", node.body, Number(0))
        pairs, remains = draw_first(both if guard is None else And(guard, both), self.is_drawn, self.numbers)
        self._draw(pairs)
        inner, weights = yield self.bind(pairs, Scope(scope, block), algebra)
        inner.possible = self.possible_draws(weights, inner, algebra)
        equation = remains if guard is None else remains.children[-1]
        body = self._number(node, block, (yield self.compile(equation.children[0], inner, CLASSICAL)))
        soft: list[Ref] = []
        if guard is not None:
            parts = remains.children[:-1]
            soft = [(yield self.truth(parts[0] if len(parts) == 1 else And(*parts), inner, algebra))]
        return self.close(block, Distribution(block, body, weights, soft, algebra), scope.block)

    def possible_draws(self, weights: Sequence[Ref], scope: Scope, algebra: Algebra) -> Ref | None:
        """Where what is drawn may be so; None where nobody asks, since nothing is infinite."""
        outer = self.possible(scope)
        if not weights or not self.trees.extremes:
            return outer

        def possible(frame: Frame, *truths: Tensor) -> Tensor:
            known = truths[len(weights) :]
            return CLASSICAL.and_([*[is_possible(t, algebra) for t in truths[: len(weights)]], *known])

        return scope.block.broadcast(
            ("possible draws", id(algebra)), possible, [*weights, *([] if outer is None else [outer])]
        )

    @abstractmethod
    def possible(self, scope: Scope) -> Ref | None:
        """The values of drawn variables that may be, in a scope where that is asked for."""

    @abstractmethod
    def _draw(self, draws: list[tuple[str, Expr]]) -> None:
        """Know the names of what is drawn."""


def _everywhere(frame: Frame, body: Any, *places: Tensor) -> Tensor:
    value = torch.as_tensor(body, device=frame.run.device)
    shapes = [value.shape, *[p.shape for p in places]]
    return value.expand(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _pairs(frame: Frame, body: Any, objects: Any, *places: Tensor) -> Tensor:
    both = [_everywhere(frame, x, *places, torch.as_tensor(y)) for x, y in ((body, objects), (objects, body))]
    return torch.stack([x.double() for x in both], -1)


# --- folds of numbers -----------------------------------------------------------------------------------------------


class Collected:
    """All choices side by side: tensors ``(*axes, choices, *behind)``, filled up where there are fewer."""

    idempotent = False
    counts = False
    behind = 0

    def fill(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """What stands where there is no choice."""
        return x.new_full(tuple(shape), float("nan"))

    def lift(self, x: Any) -> State:
        return (x.double(),)

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        return (self._folded(state[0], dims, self.behind),)

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        return (self._segmented(state[0], dim, ids, size, self.behind, self.fill),)

    def merge(self, a: State, b: State) -> State:
        return (torch.cat([a[0], b[0]], -1 - self.behind),)

    @staticmethod
    def _folded(x: Tensor, dims: tuple[int, ...], behind: int) -> Tensor:
        axes = x.ndim - behind
        rest = [d for d in range(axes) if d not in dims]
        turned = x.permute(*rest, *dims, *range(axes, x.ndim))
        return turned.reshape([*[x.shape[d] for d in rest], prod([x.shape[d] for d in dims]), *x.shape[axes:]])

    @staticmethod
    def _segmented(
        x: Tensor, dim: int, ids: Tensor, size: int, behind: int, fill: Callable[[Tensor, Sequence[int]], Tensor]
    ) -> Tensor:
        ids, order = ids.sort(stable=True)
        place = torch.arange(len(ids), device=ids.device) - torch.searchsorted(ids, ids)
        longest = int(place.max()) + 1 if len(ids) else 0
        rows = x.index_select(dim, order).movedim(dim, 0)
        padded = fill(rows, (size, longest, *rows.shape[1:])).index_put((ids, place), rows)
        at = padded.ndim - behind - 2
        return padded.movedim(1, at).flatten(at, at + 1).movedim(0, dim)


class Different(Collected):
    """Whether no two numbers are equal."""

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        ordered = state[0].sort(-1).values  # what is no choice is last, and differs from itself
        return (ordered[..., 1:] != ordered[..., :-1]).all(-1)


class Chosen(Collected):
    """The object of the first least or greatest number, from pairs of a number and an object."""

    behind = 1

    def __init__(self, node: Aggregate) -> None:
        self.node = node

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        number, objects = state[0].unbind(-1)
        missing = number.isnan()
        nothing = missing.all(-1)
        if has_values(nothing) and bool(nothing.any()):
            raise nothing_to_choose(self.node)
        greatest = self.node.kind == "argmax"
        number = number.masked_fill(missing, float("-inf") if greatest else float("inf"))
        best = number.amax(-1, keepdim=True) if greatest else number.amin(-1, keepdim=True)
        places = torch.arange(number.shape[-1], device=number.device)
        first = torch.where((number == best) & ~missing, places, number.shape[-1]).amin(-1, keepdim=True)
        return objects.gather(-1, first).squeeze(-1).long()


def nothing_to_choose(node: Aggregate) -> KnowledgeError:
    """The error for the place of an extreme of nothing."""
    return KnowledgeError(
        f"{node}: there is nothing to choose from in some instance; keep it away from there with a guard, as in "
        f"'where (exists {node.names[0]} ...)'"
    )


# --- folds of truth values ------------------------------------------------------------------------------------------


def _truth(value: bool, like: Tensor, algebra: Algebra) -> Tensor:
    return algebra.atom(torch.tensor(value, device=like.device), "bool", like.dtype)


def is_possible(x: Tensor, algebra: Algebra) -> Tensor:
    """What is truer than false."""
    true = _truth(True, x, algebra)
    return x > torch.maximum(_truth(False, x, algebra), algebra.and_([true, algebra.not_(true)]))


def _some(x: Tensor, dim: int, algebra: Algebra) -> Tensor:
    """The disjunction along an axis."""
    if x.shape[dim] == 1:
        return x.squeeze(dim)
    fold = algebra.connective("or")
    return fold.finish(fold.fold(fold.lift(x), (dim % x.ndim,)), x.shape[dim])


class Distribution(Reducer):
    """For each choice :class:`Values`: how true each value of the body is, and last that there is none."""

    spreads = True
    whole = True

    def __init__(self, block: Block, body: Ref, weights: list[Ref], guards: list[Ref], algebra: Algebra) -> None:
        self.refs = (body, *weights, *guards)
        self.guarded, self.algebra = bool(guards), algebra
        self.own = block.axes
        self.all = union([union([ref.axes for ref in self.refs]), self.own])
        self.axes = tuple([a for a in self.all if a not in self.own])

    def tile(self, frame: Frame) -> Values:
        algebra, dtype = self.algebra, frame.run.dtype(self.algebra)
        order = [self.all.index(a) for a in (*self.axes, *[a for a in self.all if a in self.own])]
        shape = [frame.sizes[a] for a in self.axes]
        shape.append(prod([frame.sizes[a] for a in self.own]))

        def flat(ref: Ref) -> Tensor:
            value = torch.as_tensor(frame.regs[ref.slot], device=frame.run.device)
            return spread(value, ref.axes, self.all, frame.sizes).permute(order).reshape(shape)

        body, *rest = [flat(ref) for ref in self.refs]
        certain = algebra.atom(torch.ones_like(body, dtype=torch.bool), "bool", dtype)
        weights, guards = (rest[:-1], rest[-1:]) if self.guarded else (rest, [])
        weight = certain if not weights else weights[0] if len(weights) == 1 else algebra.and_(weights)
        false = _truth(False, weight, algebra)
        inside = algebra.and_([weight, guards[0]]) if guards else weight
        outside = algebra.and_([weight, algebra.not_(guards[0])]) if guards else false.expand(weight.shape)
        values = torch.unique(body)
        here = torch.where(body.unsqueeze(-1) == values, inside.unsqueeze(-1), false)
        truths = torch.cat([_some(here, -2, algebra), _some(outside, -1, algebra).unsqueeze(-1)], -1)
        return Values(values, truths)

    def merge(self, a: Values, b: Values) -> Values:
        values = torch.unique(torch.cat([a.values, b.values]))
        both = [on_values(x, values, _truth(False, x.truths, self.algebra)) for x in (a, b)]
        return Values(values, self.algebra.or_(both))


def on_values(found: Values, values: Tensor, false: Tensor) -> Tensor:
    """The truths of more values, sorted, than were found; what is last stays last."""
    at = torch.searchsorted(values, found.values)
    wider = false.expand(*found.truths.shape[:-1], len(values)).index_copy(
        found.truths.ndim - 1, at, found.truths[..., :-1]
    )
    return torch.cat([wider, found.truths[..., -1:]], -1)


class SoftChoices(Collected):
    """The distributions of all choices side by side, with the values they speak of and the objects they belong to."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra

    def lift(self, x: Any) -> State:
        objects = torch.zeros(x.truths.shape[:-1], dtype=torch.int64) if x.objects is None else x.objects
        return x.truths, objects, x.values

    def fill(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        nothing = torch.zeros(x.shape[-1], dtype=torch.bool, device=x.device)
        nothing[-1] = True
        return self.algebra.atom(nothing, "bool", x.dtype).expand(tuple(shape))

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        truths, objects, values = state
        return self._folded(truths, dims, 1), self._folded(objects, dims, 0), values

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        truths, objects, values = state
        spread_objects = self._segmented(objects, dim, ids, size, 0, lambda x, shape: x.new_zeros(tuple(shape)))
        return self._segmented(truths, dim, ids, size, 1, self.fill), spread_objects, values

    def merge(self, a: State, b: State) -> State:
        values = torch.unique(torch.cat([a[2], b[2]]))
        false = _truth(False, a[0], self.algebra)
        both = [on_values(Values(x[2], x[0]), values, false) for x in (a, b)]
        return torch.cat(both, -2), torch.cat([a[1], b[1]], -1), values

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        raise NotImplementedError  # SoftFold does it


class SoftFold(Fold):
    """From distributions of choices to :class:`Values` of the aggregate."""

    whole = True

    def __init__(self, block: Block, body: Ref, node: Aggregate, algebra: Algebra) -> None:
        super().__init__(block, body, SoftChoices(algebra))
        self.node, self.algebra = node, algebra

    def finish(self, frame: Frame, total: Any) -> Any:
        (truths, objects, values), _, left = total
        if self.node.kind == "all_different":
            return Values(values[:0], self.onto(frame, left, _all_differ(truths, self.algebra).unsqueeze(-1)))
        found, state = chain(self.node, values, truths, self.algebra)
        if self.node.kind not in ("argmin", "argmax"):
            return Values(found, self.onto(frame, left, state))
        nothing = is_possible(truths[..., -1], self.algebra).all(-1)  # nothing passes its guard for certain
        if not objects.shape[-1] or (has_values(nothing) and bool(nothing.any())):
            raise nothing_to_choose(self.node)
        return Values(found, self.onto(frame, left, state), self.onto(frame, left, objects))


def _all_differ(truths: Tensor, algebra: Algebra) -> Tensor:
    there = truths[..., :-1]  # (*axes, choices, values)
    count = there.shape[-2]
    first, second = torch.triu_indices(count, count, 1, device=truths.device)
    if not len(first) or not there.shape[-1]:
        return _truth(True, truths, algebra).expand(truths.shape[:-2])
    clash = _some(algebra.and_([there[..., first, :], there[..., second, :]]), -1, algebra)
    fold = algebra.connective("and")
    return fold.finish(fold.fold(fold.lift(algebra.not_(clash)), (clash.ndim - 1,)), len(first))


def chain(node: Aggregate, values: Tensor, truths: Tensor, algebra: Algebra) -> tuple[Tensor, Tensor]:
    """The values of an aggregate, and how true each is, from the distributions of choices ``(*axes, n, V + 1)``."""
    kind = node.kind
    true, false = (_truth(v, truths, algebra) for v in (True, False))
    batch, choices = truths.shape[:-2], truths.unbind(-2)
    if kind in ("sum", "count"):
        sums, state = values.new_zeros(1), true.expand(*batch, 1)
        for choice in choices:
            more, wrong = extended("+", sums.unsqueeze(1), values, values.device)
            if has_values(wrong) and bool(wrong.any()):
                both = is_possible(state, algebra).unsqueeze(-1) & is_possible(choice[..., :-1], algebra).unsqueeze(-2)
                refuse(node, both & wrong)
            table = torch.cat([more, sums.unsqueeze(1)], 1)  # without it, the sum stays
            sums, codes = torch.unique(table, return_inverse=True)
            state = _joined(state, choice, codes, len(sums), false, algebra)
        return sums, state
    count, greatest = len(values), kind in ("max", "argmax")
    order = torch.arange(count, device=values.device) if greatest else torch.arange(count, device=values.device).flip(0)
    rank = torch.cat([order, order.new_full((1,), -1)])  # of the values, and of nothing
    if kind in ("min", "max"):
        state = torch.cat([false.expand(*batch, count), true.expand(*batch, 1)], -1)
        codes = torch.where(rank.unsqueeze(1) >= rank, torch.arange(count + 1).unsqueeze(1), torch.arange(count + 1))
        for choice in choices:
            state = _joined(state, choice, codes.to(values.device), count + 1, false, algebra)
        infinite = infinity(values)
        return torch.cat([values, values.new_full((1,), -infinite if greatest else infinite)]), state
    # Where it is: states are pairs of a value and a choice, and nothing, which comes first.
    state, ranks = true.expand(*batch, 1), order.new_full((1,), -1)
    for choice in choices:
        size = len(ranks)
        taken = torch.arange(size, size + count, device=values.device)
        better = order.unsqueeze(0) > ranks.unsqueeze(1)
        stays = torch.arange(size, device=values.device).unsqueeze(1)
        codes = torch.cat([torch.where(better, taken, stays), stays], 1)
        state = _joined(state, choice, codes, size + count, false, algebra)
        ranks = torch.cat([ranks, order])
    places = state[..., 1:].reshape(*batch, len(choices), count)
    return torch.arange(len(choices), device=values.device), _some(places, -1, algebra)


def _joined(state: Tensor, choice: Tensor, codes: Tensor, size: int, false: Tensor, algebra: Algebra) -> Tensor:
    """The next state: for each of ``size`` values the disjunction of the pairs that lead to it."""
    pairs = algebra.and_([state.unsqueeze(-1), choice.unsqueeze(-2)]).flatten(-2)
    target, order = codes.reshape(-1).sort(stable=True)
    counts = target.bincount(minlength=size)
    most = max(int(counts.max()), 1)
    position = torch.arange(len(target), device=codes.device) - (counts.cumsum(0) - counts)[target]
    index = torch.full((most, size), len(target), device=codes.device).index_put((position, target), order)
    padded = torch.cat([pairs, false.expand(*pairs.shape[:-1], 1)], -1)
    return _some(padded[..., index.reshape(-1)].reshape(*pairs.shape[:-1], most, size), -2, algebra)
