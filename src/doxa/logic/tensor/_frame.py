"""The frame of a block: its variables along axes, inside the structures of rows, and behind guards.

A guard replaces axes by one *list* axis with their positions; a ragged domain (``x in s.objects``) does the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._joint import refuse
from doxa.logic.bind._meanings import Named, Table
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Iff, Implies, Name, Not, Number, Or, Truth, Xor, postorder
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL, Algebra
from doxa.logic.tensor._atoms import Last
from doxa.logic.tensor._block import Absorbed, Block, Frame, Result, Scope
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._pools import NUMBER, Axis, Pool, Ref, Sparse, Type, unravel
from doxa.logic.tensor._run import Source
from doxa.logic.tensor._run_data import Needs
from doxa.logic.tensor._terms import as_truth, constant, known_constant
from doxa.logic.tensor._trees import Trees

Parts = Iterable[tuple[Iterable[Group], Expr | None]]
"""Groups of variables, each followed by a guard or not."""


class Names(ABC):
    """What the compiler knows of names: variables in scope, constants, and the axes that variables run along."""

    def __init__(self, batch: Batch, formulas: Sequence[Expr], *, stack: int) -> None:
        self.batch = batch
        if named := batch.interpretation.shared_in(*formulas):
            refuse("a formula as a tensor, for Fuzzy() or satisfaction,", named)
        self.trees = Trees(batch, formulas)
        self.needs = Needs()
        self.stack = stack
        self._orders = count()
        self.numbers = count()
        self._written: dict[Expr, Expr] = {}

    def axis(self, label: str) -> Axis:
        return Axis(label, next(self._orders))

    def name(self, name: str, scope: Scope) -> Ref:
        home = scope.find(name)
        if home is not None:
            return self.fetch(home.names[name], home.block, scope.block)
        found = constant(scope.block, self.batch, name)
        if found is None:
            raise KnowledgeError(f"unknown name {name!r}: it is neither bound nor declared")
        match found.type:
            case _pools.Object(pool=_pools.Sort(sort=sort)) if sort in self.batch.given:
                self.needs.constants.add(name)
        return found

    def fetch(self, ref: Ref, origin: Block, target: Block) -> Ref:
        chain: list[Block] = []
        block: Block = target
        while block is not origin:
            chain.append(block)
            assert block.parent is not None
            block = block.parent
        ref = origin.current(ref)
        for inner in reversed(chain):
            ref = inner.current(inner.capture(ref))
        return ref

    @abstractmethod
    def compile(self, root: Expr, scope: Scope, algebra: Algebra) -> Task:
        """The value of a tree in a scope."""

    def truth(self, formula: Expr, scope: Scope, algebra: Algebra) -> Task:
        ref = yield self.compile(formula, scope, algebra)
        return as_truth(formula, scope.block, ref, self.batch, algebra)


def frame(compiler: Names, block: Block, inner: Scope, parts: Parts) -> Task:
    for groups, guard in parts:
        for group in groups:
            if group.domain is None or (isinstance(group.domain, Name) and not inner.binds(group.domain.name)):
                pool, kind = pool_of(compiler, group)
                for name in group.names:
                    inner.names[name] = block.variable(compiler.axis(name), pool, kind)
            else:
                yield _inside(compiler, group, group.domain, block, inner)
        if guard is not None:
            for conjunct in _conjuncts(compiler, guard):
                yield _guard(compiler, conjunct, block, inner)
                block.guards.append((conjunct, inner.meant(compiler.trees.names(conjunct))))
    block.label += " " + ", ".join([o.axis.label for o in block.own])


def pool_of(compiler: Names, group: Group) -> tuple[Pool, Type]:
    """What the variables of a group range over: the objects of a sort, or rows."""
    sample = None if group.sample is None else (group.sample, next(compiler.numbers))
    if group.sort is not None:
        return pool_of_sort(compiler, group.sort, sample)
    assert isinstance(group.domain, Name)
    rows = _pools.Rows(group.domain.name, sample)
    compiler.batch.row_set(rows.name)
    return rows, rows


def pool_of_sort(compiler: Names, name: str, sample: tuple[int, int] | None = None) -> tuple[Pool, Type]:
    sort = compiler.batch.signature.sorts.get(name)
    if sort is None or (sort.is_integer and sort.values is None):
        raise KnowledgeError(f"variables cannot range over {name!r}; it is not a sort with objects")
    if sort.values is not None:
        if sample is not None:
            raise KnowledgeError(f"sample draws from the objects of an open sort, and {name} is finite")
        return _pools.Finite(sort), _pools.Finite(sort)
    compiler.batch.objects(name)
    return _pools.Sort(name, sample), _pools.Object(name, _pools.Sort(name, sample))


def _inside(compiler: Names, group: Group, domain: Expr, block: Block, scope: Scope) -> Task:
    """Variables that range over a sequence in a field: an axis if all are equally long, else a list."""
    if group.sample is not None:
        raise KnowledgeError(f"sample draws from a sort or from rows, not from {domain}")
    base = yield compiler.compile(domain, scope, CLASSICAL)
    pool = base.type
    if not isinstance(pool, _pools.Column):
        raise KnowledgeError(f"variables cannot range over {domain}; after 'in' stand rows or a field of a row")
    column = compiler.batch.column(pool.rows.name, pool.field)
    if column.lengths is None and column.values.ndim <= pool.level:
        raise KnowledgeError(f"variables cannot range over {domain}: its field holds one value per row")
    if column.lengths is not None:
        block.ragged.append((base, pool, len(group.names)))

    def within(frame: Frame, rows: Any, places: Any) -> Any:
        return rows * frame.run.column(pool.rows, pool.field).values.shape[pool.level] + places

    for name in group.names:
        base = block.current(base)
        if column.lengths is not None:
            scope.names[name] = _ragged(block, base, pool, compiler.axis(name))
            continue
        place = block.variable(compiler.axis(name), _pools.Places(pool.rows, pool.field, pool.level), NUMBER)
        ref = block.broadcast(("within", pool), within, [block.positions(base), block.positions(place)], NUMBER)
        scope.names[name] = ref.read_as(_pools.Column(pool.rows, pool.field, pool.level + 1))


def _ragged(block: Block, base: Ref, pool: _pools.Column, axis: Axis) -> Ref:
    """One entry per object of the structures at ``base``; the new variable."""

    def make(frame: Frame, rows: Tensor) -> tuple[Tensor, ...]:
        column = frame.run.column(pool.rows, pool.field)
        assert column.lengths is not None and column.starts is not None
        flat = rows.reshape(-1)
        lengths = column.lengths[flat]
        where = torch.repeat_interleave(lengths)
        first = lengths.cumsum(0) - lengths
        element = column.starts[flat][where] + torch.arange(len(where), device=rows.device) - first[where]
        frame.sizes[axis] = len(where)
        return (element, *unravel(where, list(rows.shape)))

    made = block.emit(("ragged", axis), make, [block.positions(base)], (axis,))
    element = block.emit(("element", axis), _part(0), [made], (axis,), pool)
    _absorb(block, axis, base.axes, made, first=1)
    return element


def _absorb(block: Block, axis: Axis, axes: tuple[Axis, ...], made: Ref, first: int = 0) -> None:
    places = {
        gone: block.emit(("place", axis, gone), _part(number), [made], (axis,))
        for number, gone in enumerate(axes, first)
    }
    block.lists.append(Absorbed(axis, made, places))


def _part(number: int) -> Callable[..., Any]:
    return lambda frame, parts: parts[number]


# --- guards -------------------------------------------------------------------------------------------------------


def _conjuncts(compiler: Names, guard: Expr) -> list[Expr]:
    """A guard in pieces to apply one after the other: a later one sees only what the earlier ones let through."""
    if not isinstance(guard, And):
        return [guard]
    pieces: list[list[Expr]] = []
    for child in guard.children:
        known = compiler.trees.look(child)
        if pieces and known.total and known.names == compiler.trees.names(pieces[-1][0]):
            pieces[-1].append(child)
        else:
            pieces.append([child])
    return [And(*p) for p in pieces]


def _guard(compiler: Names, guard: Expr, block: Block, scope: Scope) -> Task:
    test = Block(block, "guard")
    test.seal(Result((yield compiler.truth(guard, Scope(scope, test), CLASSICAL))))
    inputs = [ref for ref, _ in test.inputs]
    axis = compiler.axis(f"[{guard}]" if compiler.trees.look(guard).size < 30 else "[guard]")
    # A guard that does not depend on any variable keeps or drops an axis as a whole.
    spread = None if test.reducer.axes else next((o.axis for o in block.own if o.axis in block.axes), None)
    axes = test.reducer.axes if spread is None else (spread,)
    # The same guard elsewhere is the same list, if its values stand for the same axes in the same order.
    along = tuple([tuple([a in ref.axes for ref in inputs]) for a in test.reducer.axes])
    key = (guard, tuple([(ref.type, ref.dense) for ref in inputs]), along)
    relation = _relation(compiler, guard, scope)
    fixed = _fixed(compiler, guard, scope) if spread is None else None
    last = Last()

    def make(frame: Frame, *values: Any) -> Task:
        run, values, found = frame.run, values[: len(inputs)], None
        meanings = [run.batch.meaning(name) for name in fixed or ()]
        tensors = [m.tensor for m in meanings if isinstance(m, Table)]
        if frame.whole and spread is None:
            found = run.find_list(key, values)
        if found is None and fixed is not None:
            found = last.find((run.device, values), tensors)
        if found is None:
            tuples = None if relation is None else run.table(relation[0], CLASSICAL)
            if relation is not None and isinstance(tuples, Sparse):
                found = _tuples(frame, tuples, relation[1], axes)
            else:
                truth = yield run_block(test, run, values, frame.sizes)
                sizes = [frame.sizes[a] for a in axes]
                found = unravel(truth.expand(sizes).reshape(-1).nonzero().squeeze(1), sizes)
            if frame.whole and fixed is not None:
                last.keep((run.device, values), tensors, found)
            if frame.whole and spread is None:
                run.keep_list(key, values, found)
        frame.sizes[axis] = len(found[0])
        return found

    # The position makes the list follow the axis from tile to tile.
    args = inputs if spread is None else [*inputs, block.position(spread)]
    _absorb(block, axis, axes, block.emit(("list", axis), make, args, (axis,), suspends=True))


def _tuples(frame: Frame, table: Sparse, variables: list[Ref], axes: tuple[Axis, ...]) -> tuple[Tensor, ...]:
    """The tuples of a relation that lie in this tile, as places along the axes of their variables."""
    places = unravel(table.keys, table.shape)
    runs = [frame.regs[v.slot] for v in variables]
    inside = torch.ones_like(table.keys, dtype=torch.bool)
    for place, run in zip(places, runs, strict=True):
        inside &= (place >= run.start) & (place < run.stop)
    at = inside.nonzero().squeeze(1)
    by_axis = {
        v.axes[0]: place.index_select(0, at) - run.start for v, place, run in zip(variables, places, runs, strict=True)
    }
    return tuple([by_axis[a] for a in axes])


def _relation(compiler: Names, guard: Expr, scope: Scope) -> tuple[Source, list[Ref]] | None:
    """A guard that is a listed relation of different variables, each along its own axis: its tuples are the list."""
    if not isinstance(guard, Call) or not guard.children or guard.name not in compiler.batch.signature.predicates:
        return None
    if not isinstance(compiler.batch.meaning(guard.name), Named):
        return None
    if not all(isinstance(arg, Name) and scope.binds(arg.name) for arg in guard.children):
        return None
    variables = [compiler.name(arg.name, scope) for arg in guard.children if isinstance(arg, Name)]
    pools: list[Pool] = []
    for ref in variables:
        match ref.type:
            case _pools.Object(pool=_pools.Sort(sample=None) as pool) | (_pools.Finite() as pool) if ref.dense:
                pools.append(pool)
    if len(pools) < len(variables) or len({v.axes for v in variables}) < len(variables):
        return None
    return Source(guard.name, tuple(pools), "truth"), variables


def _fixed(compiler: Names, guard: Expr, scope: Scope) -> list[str] | None:
    """The tensors in a guard of nothing but connectives, comparisons and tensors; while they stay, so does its list."""
    found: dict[str, None] = {}
    for node in postorder(guard):
        match node:
            case Not() | And() | Or() | Implies() | Iff() | Xor() | Compare() | Number() | Truth():
                continue
            case Name() if _is_plain(compiler, node.name, scope):
                continue
            case Call() if node.name in compiler.batch.signature.predicates and (
                isinstance(compiler.batch.interpretation.meaning(node.name), Table)
            ):
                found[node.name] = None
            case _:
                return None
    return list(found)


def _is_plain(compiler: Names, name: str, scope: Scope) -> bool:
    """A variable that runs through the objects of a sort or the values of a finite one, or a constant among these."""
    if not scope.binds(name):
        return known_constant(compiler.batch, name) is not None
    ref = compiler.name(name, scope)
    match ref.type:
        case _pools.Object(pool=_pools.Sort(sample=None)) | _pools.Finite():
            return ref.dense
    return False
