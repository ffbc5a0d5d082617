"""The frame of a block: its variables along axes, inside the structures of rows, and behind guards.

A guard replaces axes by one *list* axis with their positions; a ragged domain (``x in s.objects``) does the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._tree import Expr, Name
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL
from doxa.logic.tensor._block import Block, Frame, Scope
from doxa.logic.tensor._guards import Guards
from doxa.logic.tensor._lists import absorb, part_of
from doxa.logic.tensor._names import Names
from doxa.logic.tensor._pools import NUMBER, Axis, Pool, Ref, Type, unravel

Parts = Iterable[tuple[Iterable[Group], Expr | None]]
"""Groups of variables, each followed by a guard or not."""


def frame(compiler: Names, block: Block, inner: Scope, parts: Parts) -> Task:
    guards = Guards(compiler, block, inner)
    for groups, guard in parts:
        for group in groups:
            if not inner.names.keys().isdisjoint(group.names):
                yield guards.apply()  # they mean the variables that were bound before
            if group.domain is None or (isinstance(group.domain, Name) and not inner.binds(group.domain.name)):
                pool, kind = pool_of(compiler, group)
                for name in group.names:
                    inner.names[name] = block.variable(compiler.axis(name), pool, kind)
            else:
                yield guards.apply()
                yield _inside(compiler, group, group.domain, block, inner)
        if guard is not None:
            yield guards.add(guard)
    yield guards.apply()
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
    element = block.emit(("element", axis), part_of(0), [made], (axis,), pool)
    absorb(block, axis, base.axes, made, first=1)
    return element
