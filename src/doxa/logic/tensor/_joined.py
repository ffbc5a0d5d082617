"""The known relations of a guard as one join, whose list takes the place of the axes of their variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.logic.bind._join import PIECE, Atom, Join, Test
from doxa.logic.bind._meanings import Named, Table
from doxa.logic.bind._tuples import Tuples
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._tree import And, Call, Expr
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL
from doxa.logic.tensor._atoms import Last
from doxa.logic.tensor._block import Block, Frame, Places, Result, Scope, Split, length_of
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._lists import absorb, fixed_by
from doxa.logic.tensor._names import Names
from doxa.logic.tensor._pools import Axis, Pool, Ref, union
from doxa.logic.tensor._run import Run

SMALL = PIECE // 4
"""Beside chunks of this size and more, lists may be as long as a piece: only what is made of them comes in chunks."""


@dataclass(frozen=True)
class Related:
    """A listed relation of columns, or its negation."""

    call: Call
    pools: tuple[Pool, ...]
    args: list[Ref]
    negated: bool

    @property
    def variables(self) -> list[Ref]:
        return [ref for ref in self.args if ref.const is None]


class _Test(NamedTuple):
    """A condition as a block over columns of its variables: the axis of these, and their names in the join."""

    block: Block
    along: Axis
    names: tuple[str, ...]
    label: str


@dataclass
class Joined:
    """The join of what is known in a guard."""

    compiler: Names
    block: Block
    scope: Scope
    inputs: list[Ref] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    """The name in the join of the value in a slot."""

    def build(self, conjuncts: list[tuple[Expr, Related | None]]) -> Task:
        compiler, block = self.compiler, self.block
        relations = [r for _, r in conjuncts if r is not None]
        for related in relations:
            for ref, term in zip(related.args, related.call.children, strict=True):
                self._column(ref, str(term))
        tests: list[_Test] = []
        for conjunct, related_ in conjuncts:
            if related_ is None:
                tests.append((yield self._test(conjunct)))
        guard = And(*[conjunct for conjunct, _ in conjuncts])
        axis = compiler.axis(f"[{guard}]" if compiler.trees.look(guard).size < 30 else "[guard]")
        axes = union([ref.axes for ref in self.inputs])
        along = tuple([tuple([a in ref.axes for ref in self.inputs]) for a in axes])
        key = ("join", guard, tuple([(ref.type, ref.dense) for ref in self.inputs]), along)
        stays = [fixed_by(compiler, conjunct, self.scope) for conjunct, _ in conjuncts]
        names = None if any(f is None for f in stays) else [n for f in stays for n in f or ()]
        named = [r for r in relations if isinstance(compiler.batch.meaning(r.call.name), Named)]
        how = _Plan(axis, axes, self.inputs, self.labels, relations, tests)
        last = Last()

        def make(frame: Frame, *values: Any) -> Task:
            yield from ()
            run = frame.run
            asked = how.asked(block)
            known = (*key, asked)
            found: tuple[Places, str] | None = run.find_list(known, values) if frame.whole else None
            fixed: Any = None
            tensors: list[Tensor] = []
            if found is None and names is not None:
                meanings = [run.batch.meaning(name) for name in names]
                tensors = [m.tensor for m in meanings if isinstance(m, Table)]
                fixed = (run.device, values, [how.tuples(run, r) for r in named])
                found = last.find(fixed, tensors)
            budget = max(1, run.chunk // _others(block, frame, axis))
            longest = PIECE if run.chunk >= SMALL else min(budget, PIECE)
            if found is None:
                join = how.join(run, values)
                lists = how.whole(join, values, longest, asked)
                if lists is None:
                    return _Pieces(axis, how, join, values, min(budget, PIECE), run, asked)
                found = lists, str(join)
                if frame.whole and fixed is not None:
                    last.keep(fixed, tensors, found)
                if frame.whole:
                    run.keep_list(known, values, found)
            if run.trace is not None:
                run.trace.join(found[1])
            frame.sizes[axis] = length = length_of(found[0])
            if length > budget:
                del frame.sizes[axis]
                return _Slices(axis, found[0], budget)
            return found[0]

        own = {o.axis for o in block.own}
        block.joined.update([a for a in axes if a in own])
        absorb(block, axis, axes, block.emit(("list", axis), make, self.inputs, (axis,), suspends=True))

    def _column(self, ref: Ref, label: str) -> None:
        if ref.const is None and ref.slot not in self.labels:
            self.inputs.append(ref)
            taken = self.labels.values()
            label = label if label.isprintable() else f"#{ref.slot}"
            self.labels[ref.slot] = f"{label}#{ref.slot}" if label in taken else label

    def _test(self, conjunct: Expr) -> Task:
        test = Block(self.block, "guard")
        inner = Scope(self.scope, test)
        along = self.compiler.axis("tuples")
        names = []
        for name in sorted(n for n in self.compiler.trees.names(conjunct) if self.scope.binds(n)):
            ref = self.compiler.name(name, self.scope)
            self._column(ref, name)
            names.append(self.labels[ref.slot])
            inner.names[name] = Ref(test.slot(), (along,), ref.type)
            test.inputs.append((inner.names[name], inner.names[name]))
        test.seal(Result((yield self.compiler.truth(conjunct, inner, CLASSICAL))))
        return _Test(test, along, tuple(names), str(conjunct))


def _others(block: Block, frame: Frame, axis: Axis) -> int:
    """How many instances there are for each entry of a list: the product of the axes beside it."""
    gone = {a for absorbed in block.lists for a in absorbed.places}
    gone |= {own.axis for own in block.own if not own.costs}
    return max(1, prod([size for a, size in frame.sizes.items() if a not in gone and a is not axis]))


@dataclass(frozen=True)
class _Plan:
    """How a join is made from the values of its columns."""

    axis: Axis
    axes: tuple[Axis, ...]
    inputs: list[Ref]
    labels: dict[int, str]
    relations: list[Related]
    tests: list[_Test]
    _asked: list[tuple[Axis, ...]] = field(default_factory=list)

    def tuples(self, run: Run, related: Related) -> Tuples:
        return run.tuples(related.call.name, related.pools)

    def join(self, run: Run, values: Sequence[Any]) -> Join:
        atoms = []
        for related in self.relations:
            columns = [self.labels[r.slot] if r.const is None else int(r.const) for r in related.args]
            atoms.append(Atom(self.tuples(run, related), tuple(columns), related.call.name, related.negated))
        listed = {name for atom in atoms if not atom.negated for name in atom.names}
        for axis in self.axes:
            atoms += self._places(run, axis, values, listed)
        tests = [Test(t.names, partial(_passes, t.block, t.along, run), t.label) for t in self.tests]
        return Join(atoms, tests, device=run.device)

    def _places(self, run: Run, axis: Axis, values: Sequence[Any], listed: set[str]) -> list[Atom]:
        """What relates the columns along an axis to the places on it; nothing if the only column is these places."""
        own = [(ref, value) for ref, value in zip(self.inputs, values, strict=True) if ref.axes == (axis,)]
        (ref, value) = own[0]
        if len(own) == 1 and ref.dense:
            name = self.labels[ref.slot]
            if name in listed and value.start == 0 and value.stop == _size(run, ref):
                return []
            places = torch.arange(value.start, value.stop, device=run.device)
            return [Atom(Tuples((places,), len(places)), (name,), axis.label)]
        columns = [torch.arange(v.start, v.stop, device=run.device) if isinstance(v, slice) else v for _, v in own]
        places = torch.arange(len(columns[0]), device=run.device)
        names = (_place(axis), *[self.labels[r.slot] for r, _ in own])
        return [Atom(Tuples((places, *columns), len(places)), names, axis.label)]

    def asked(self, block: Block) -> tuple[Axis, ...]:
        """The axes whose places anything depends on; at least one, which says how many entries there are."""
        if not self._asked:
            places = next(absorbed.places for absorbed in block.lists if absorbed.list is self.axis)
            self._asked.append(tuple([a for a in self.axes if places[a].slot in block.live]) or self.axes[:1])
        return self._asked[0]

    def whole(self, join: Join, values: Sequence[Any], longest: int, asked: tuple[Axis, ...]) -> Places | None:
        """The list as places along the axes; None if it is longer than that, and should come in pieces."""
        if join.expected > 2 * longest:
            return None
        first = next(join.pieces(longest, self.names(asked)), None)
        if first is None:
            return self.nothing(join)
        return self.lists(first.columns, values, asked) if first.last else None

    def nothing(self, join: Join) -> Places:
        return (torch.zeros(0, dtype=torch.int64, device=join.device),) * len(self.axes)

    def names(self, asked: tuple[Axis, ...]) -> list[str]:
        """The columns of a join that give the places along axes."""
        return [self._only(a) or _place(a) for a in asked]

    def _only(self, axis: Axis) -> str:
        """The only column along an axis, if it runs through the places on it."""
        own = [ref for ref in self.inputs if ref.axes == (axis,)]
        return self.labels[own[0].slot] if len(own) == 1 and own[0].dense else ""

    def lists(self, columns: dict[str, Tensor], values: Sequence[Any], asked: tuple[Axis, ...]) -> Places:
        found: list[Tensor | None] = []
        for axis in self.axes:
            if axis not in asked:
                found.append(None)
            elif not self._only(axis):
                found.append(columns[_place(axis)])
            else:
                run = next(v for r, v in zip(self.inputs, values, strict=True) if r.axes == (axis,))
                column = columns[self._only(axis)]
                found.append(column - run.start if run.start else column)
        return tuple(found)


def _place(axis: Axis) -> str:
    return f"@{axis.order}"


def _size(run: Run, ref: Ref) -> int:
    match ref.type:
        case _pools.Object(pool=pool):
            return run.size(pool)
        case _pools.Finite() | _pools.Rows() as pool:
            return run.size(pool)
    return -1


def _passes(block: Block, along: Axis, run: Run, *columns: Tensor) -> Tensor:
    count = len(columns[0]) if columns else 1
    found: Tensor = drive(run_block(block, run, columns, {along: count}))
    return found


class _Slices(Split):
    """A list in pieces of a size."""

    def __init__(self, axis: Axis, lists: Places, size: int) -> None:
        self.axis, self.lists, self.size = axis, lists, size

    def pieces(self) -> Iterator[Callable[[], Places]]:
        for start in range(0, length_of(self.lists), self.size):
            yield partial(self._from, start)

    def _from(self, start: int) -> Places:
        return tuple([None if c is None else c[start : start + self.size] for c in self.lists])


class _Pieces(Split):
    """A list that is never there as a whole: each piece of the join is made when it is needed, and again."""

    def __init__(
        self,
        axis: Axis,
        plan: _Plan,
        join: Join,
        values: Sequence[Any],
        size: int,
        run: Run,
        asked: tuple[Axis, ...],
    ) -> None:
        self.axis, self.plan, self.join, self.values, self.size, self.run = axis, plan, join, values, size, run
        self.asked, self.names = asked, plan.names(asked)

    def pieces(self) -> Iterator[Callable[[], Places]]:
        found = False
        for piece in self.join.pieces(self.size, self.names):
            found = True
            yield partial(self._lists, [piece.columns], piece.path)
        if not found:
            yield partial(self.plan.nothing, self.join)
        if self.run.trace is not None:
            self.run.trace.join(str(self.join))

    def _lists(self, once: list[dict[str, Tensor]], path: tuple[tuple[int, int], ...]) -> Places:
        """The piece: as it was found, the first time, and made anew for the backward pass."""
        columns = once.pop() if once else self.join.piece(path, self.names).columns
        return self.plan.lists(columns, self.values, self.asked)
