"""The frame of a block: its variables along axes, inside the structures of rows, and behind guards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import count
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Named, Table
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Iff, Implies, Name, Not, Number, Or, Truth, Xor
from doxa.logic.syntax._walk import postorder
from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._block import Block, Frame, Result, Scope
from doxa.logic.tensor._classical import CLASSICAL
from doxa.logic.tensor._free import Free
from doxa.logic.tensor._lists import guard_list, ragged_list
from doxa.logic.tensor._lookup import align, positions
from doxa.logic.tensor._pools import Needs
from doxa.logic.tensor._run import Source
from doxa.logic.tensor._stack import Shapes
from doxa.logic.tensor._task import Task
from doxa.logic.tensor._terms import as_truth, constant, known_constant
from doxa.logic.tensor._types import (
    NUMBER,
    Axis,
    ColumnPool,
    ElementType,
    FinitePool,
    FiniteType,
    ObjectType,
    Pool,
    Ref,
    RowPool,
    RowType,
    SamplePool,
    SequencePool,
    SortPool,
    Type,
    inserted,
    union,
)

__all__ = ["Names", "frame", "pool_of", "pool_of_sort"]


class Names(ABC):
    """What the compiler knows of names: variables in scope, constants, and the axes that variables run along."""

    def __init__(self, batch: Batch, free: Free, *, stack: int) -> None:
        self.batch = batch
        self.free = free
        self.needs = Needs()
        self.stack = stack
        self.shapes = Shapes(batch, free)
        self._orders = count()
        self.numbers = count()

    def axis(self, label: str) -> Axis:
        return Axis(label, next(self._orders))

    # -- names ------------------------------------------------------------------------------------------------------

    def name(self, name: str, scope: Scope) -> Ref:
        """The value of a name: a variable in scope, a constant, or a value of an enumerated sort."""
        home = scope.find(name)
        if home is not None:
            return self.fetch(home.names[name], home.block, scope.block)
        found = constant(scope.block, self.batch, name)
        if found is None:
            raise KnowledgeError(f"unknown name {name!r}: it is neither bound nor declared")
        match found.type:
            case ObjectType(pool=SortPool(sort=sort)) if sort in self.batch.given:
                self.needs.constants.add(name)
        return found

    def fetch(self, ref: Ref, origin: Block, target: Block) -> Ref:
        """A value of a surrounding block inside another one."""
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


def frame(compiler: Names, block: Block, inner: Scope, parts: Iterable[tuple[Iterable[Group], Expr | None]]) -> Task:
    """The variables and guards of a block."""
    for groups, guard in parts:
        for group in groups:
            yield _group(compiler, group, block, inner)
        if guard is not None:
            for conjunct in _conjuncts(compiler, guard):
                yield _guard(compiler, conjunct, block, inner)
    block.label += " " + ", ".join([o.axis.label for o in block.own])


def _group(compiler: Names, group: Group, block: Block, scope: Scope) -> Task:
    """The variables of a group, each along an axis of its own, or along a list of the objects of structures."""
    if group.domain is not None and (not isinstance(group.domain, Name) or scope.binds(group.domain.name)):
        yield _inside(compiler, group, block, scope)
        return
    pool, kind = pool_of(compiler, group)
    for name in group.names:
        scope.names[name] = block.variable(compiler.axis(name), pool, kind)


def pool_of(compiler: Names, group: Group) -> tuple[Pool, Type]:
    """What the variables of a group range over: the objects of a sort, or rows."""
    if group.sort is not None:
        return pool_of_sort(compiler, group.sort, group.sample)
    assert isinstance(group.domain, Name)
    rows = RowPool(group.domain.name, None if group.sample is None else (group.sample, next(compiler.numbers)))
    compiler.batch.row_set(rows.name)
    return rows, RowType(rows)


def pool_of_sort(compiler: Names, name: str, sample: int | None) -> tuple[Pool, Type]:
    sort = compiler.batch.signature.sorts.get(name)
    if sort is None or (sort.is_integer and sort.values is None):
        raise KnowledgeError(f"variables cannot range over {name!r}; it is not a sort with objects")
    if sort.values is not None:
        if sample is not None:
            raise KnowledgeError(f"sample draws from the objects of an open sort, and {name} is finite")
        return FinitePool(sort), FiniteType(sort)
    pool = SortPool(name) if sample is None else SamplePool(name, sample, next(compiler.numbers))
    compiler.batch.objects(name)
    return pool, ObjectType(name, pool)


def _inside(compiler: Names, group: Group, block: Block, scope: Scope) -> Task:
    """Variables that range over a sequence in a field: an axis if all are equally long, else a list."""
    domain = group.domain
    assert domain is not None
    if group.sample is not None:
        raise KnowledgeError(f"sample draws from a sort or from rows, not from {domain}")
    base = yield compiler.compile(domain, scope, CLASSICAL)
    if not isinstance(base.type, ElementType):
        raise KnowledgeError(f"variables cannot range over {domain}; after 'in' stand rows or a field of a row")
    pool = base.type.pool
    column = compiler.batch.column(pool.rows.name, pool.field)
    if column.lengths is None and column.values.ndim <= pool.level:
        raise KnowledgeError(f"variables cannot range over {domain}: its field holds one value per row")
    if column.lengths is not None:
        block.ragged.append((base, pool, len(group.names)))
    for name in group.names:
        base = block.current(base)
        if column.lengths is not None:
            scope.names[name] = _element(ragged_list(block, base, pool, compiler.axis(name), base.type), pool, 1)
            continue
        place = block.variable(compiler.axis(name), SequencePool(pool.rows, pool.field, pool.level), NUMBER)
        args = [positions(block, base), positions(block, place)]
        axes = union([a.axes for a in args])
        ref = block.emit(("within", pool), _within(pool, [inserted(a.axes, axes) for a in args]), args, axes, NUMBER)
        scope.names[name] = _element(ref, pool, pool.level + 1)


def _element(ref: Ref, pool: ColumnPool, level: int) -> Ref:
    """A variable inside a sequence: an object, a value of a finite sort, or what its use makes of it."""
    return ref.read_as(ElementType(ColumnPool(pool.rows, pool.field, level)))


def _conjuncts(compiler: Names, guard: Expr) -> list[Expr]:
    """A guard in pieces to apply one after the other: a later one sees only what the earlier ones let through."""
    if not isinstance(guard, And):
        return [guard]
    pieces: list[list[Expr]] = []
    for child in guard.children:
        same = (
            pieces and compiler.free.names(child) == compiler.free.names(pieces[-1][0]) and compiler.free.total(child)
        )
        if same:
            pieces[-1].append(child)
        else:
            pieces.append([child])
    return [And(*p) for p in pieces]


def _guard(compiler: Names, guard: Expr, block: Block, scope: Scope) -> Task:
    test = Block(block, "guard")
    ref = yield compiler.compile(guard, Scope(scope, test), CLASSICAL)
    test.seal(Result(as_truth(guard, test, ref, compiler.batch, CLASSICAL)))
    spread = None
    if not test.reducer.axes:
        gone = {a for absorbed in block.lists for a in absorbed.places}
        spread = next((o.axis for o in block.own if o.axis not in gone), None)
    axis = compiler.axis(f"[{guard}]" if compiler.free.size(guard) < 30 else "[guard]")
    # The same guard elsewhere is the same list, if its values stand for the same axes in the same order.
    inputs = [ref for ref, _ in test.inputs]
    along = tuple([tuple([a in ref.axes for ref in inputs]) for a in test.reducer.axes])
    key = (guard, tuple([(ref.type, ref.dense) for ref in inputs]), along)
    guard_list(block, test, axis, key, spread, _relation(compiler, guard, scope), _fixed(compiler, guard, scope))


def _relation(compiler: Names, guard: Expr, scope: Scope) -> tuple[Source, list[Ref]] | None:
    """A guard that is a listed relation between different variables, each along an axis of its own."""
    if not isinstance(guard, Call) or not guard.children or guard.name not in compiler.batch.signature.predicates:
        return None
    if not isinstance(compiler.batch.meaning(guard.name), Named):
        return None
    variables: list[Ref] = []
    pools: list[Pool] = []
    for arg in guard.children:
        if not isinstance(arg, Name) or not scope.binds(arg.name):
            return None
        ref = compiler.name(arg.name, scope)
        match ref.type:
            case ObjectType(pool=SortPool() as pool):
                pools.append(pool)
            case FiniteType(sort=sort):
                pools.append(FinitePool(sort))
            case _:
                return None
        variables.append(ref)
    if not all(v.dense for v in variables) or len({v.axes for v in variables}) < len(variables):
        return None
    return Source(guard.name, tuple(pools), "truth"), variables


def _fixed(compiler: Names, guard: Expr, scope: Scope) -> list[str] | None:
    """The relations in a guard that consists of nothing but connectives, comparisons, and tensors of the interpretation
    applied to variables; None for other guards."""
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
        case ObjectType(pool=SortPool()) | FiniteType():
            return ref.dense
    return False


def _within(pool: ColumnPool, dims: list[tuple[int, ...]]) -> Any:
    def within(frame: Frame, *values: Any) -> Any:
        rows, places = align(values, dims)
        return rows * frame.run.column(pool.rows, pool.field).values.shape[pool.level] + places

    return within
