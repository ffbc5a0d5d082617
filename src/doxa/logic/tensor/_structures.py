"""Tables of what is defined for rows and for the objects in them: one axis per parameter, padded where rows differ.

Objects that lie in a field of a row have no number of their own, so a parameter such as ``x in s.objects`` has an axis
of the places 0, 1, ... in a row, as long as the longest one. Clauses are evaluated on the list of all tuples that there
are, and its values are put at their places; at places that a row does not have nothing holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.bind._bindings import has_values
from doxa.logic.bind._interpretation import Batch
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._define import Define
from doxa.logic.syntax._symbols import RowSort, Sort
from doxa.logic.syntax._tree import Call, Expr, Field, Name
from doxa.logic.tensor import _pools
from doxa.logic.tensor._block import Block, Frame, Reducer
from doxa.logic.tensor._pools import Pool, Ref, entries, ravel, spread, take


class Inside(NamedTuple):
    """What a parameter ranges over: a field of the row that another parameter is."""

    row: int
    field: str


def structured(name: str, batch: Batch) -> dict[int, Inside]:
    """The parameters of what is defined that have places in a row, and no number of their own."""
    clauses = batch.signature.definitions.get(name, ())
    found = [_inside(clause, batch) for clause in clauses if isinstance(clause, Define)]
    for other in found[1:]:
        if other != found[0]:
            raise KnowledgeError(
                f"the clauses of {name} range over different fields of a row, so it has no table; let each parameter "
                "range over the same field in all clauses, or use Exact() or Sampled()"
            )
    return found[0] if found else {}


def _inside(clause: Define, batch: Batch) -> dict[int, Inside]:
    symbol = batch.signature.predicates.get(clause.name) or batch.signature.functions[clause.name]
    found: dict[int, Inside] = {}
    rows: dict[str, str] = {}
    number = 0
    for group in clause.groups:
        match group.domain:
            case Name(name=name):
                rows.update(dict.fromkeys(group.names, name))
            case Field(children=(Name(name=of),), name=field):
                column, sort = batch.column(rows[of], field), symbol.sorts[number]
                if not _is_numbered(column.values, column.lengths is not None, sort, batch):
                    place = Inside(clause.names.index(of), field)
                    found.update(dict.fromkeys(range(number, number + len(group.names)), place))
        number += len(group.names)
    return found


def _is_numbered(values: Tensor, ragged: bool, sort: Sort, batch: Batch) -> bool:
    """Does a field hold values of a finite sort, or indices into the objects of an open one?"""
    if sort.values is not None:
        return True
    scalar = values.ndim == (1 if ragged else 2) and not values.dtype.is_floating_point and values.dtype != torch.bool
    return scalar and batch.has_objects(sort.name)


def ranges(clause: Define, batch: Batch) -> list[Group]:
    """The parameters of a clause; those whose values have numbers range over their sort."""
    signature = batch.signature
    symbol = signature.predicates.get(clause.name) or signature.functions[clause.name]
    places = _inside(clause, batch)
    found: list[Group] = []
    number = 0
    for group in clause.groups:
        inside = number in places or group.domain is None or isinstance(symbol.sorts[number], RowSort)
        found.append(group if inside else Group(group.names, sort=symbol.sorts[number].name))
        number += len(group.names)
    return found


def row_argument(block: Block, ref: Ref, sort: Sort, place: Expr) -> Ref:
    """A row as its number among all rows, also where it was drawn."""
    rows = ref.type
    if not isinstance(rows, _pools.Rows) or rows.name != sort.name:
        raise KnowledgeError(f"{place}: a row of {sort.name} is needed")
    if rows.sample is None:
        return ref
    return block.emit(
        ("row", rows), lambda frame, at: entries(frame.run.sampled(rows), at), [ref], ref.axes, _pools.Rows(rows.name)
    )


def place_argument(block: Block, ref: Ref, row: Ref, field: str, call: Call, number: int) -> tuple[Ref, Pool]:
    """An object in a field of a row as its place there, and all places."""
    pool = ref.type.pool if isinstance(ref.type, _pools.Object) else ref.type
    rows = row.type
    assert isinstance(rows, _pools.Rows)
    if not isinstance(pool, _pools.Column) or pool.rows != rows or pool.field != field:
        raise KnowledgeError(
            f"{call}: {call.children[number]} should be one of the {field} of a row of {rows.name}, for which "
            f"{call.name} is defined; let it range over that field, or use Exact() or Sampled()"
        )
    column = pool

    def place(frame: Frame, at: Tensor, of: Any) -> Tensor:
        found = frame.run.column(column.rows, column.field)
        if found.lengths is None or found.starts is None:
            length: Any = found.values.shape[1]
            start = of * length
        else:
            start, length = take(found.starts, [of]), take(found.lengths, [of])
        inside: Tensor = at - start
        wrong = (inside < 0) | (inside >= length)
        if has_values(wrong) and bool(wrong.any()):
            raise KnowledgeError(
                f"{call}: {call.children[number]} is an object of another row; {call.name} is defined for the {field} "
                "of each row itself"
            )
        return inside

    args = [block.positions(ref), block.positions(row)]
    return block.broadcast(("place in row", pool, call), place, args, _pools.NUMBER), _pools.Places(
        _pools.Rows(rows.name), field, 1
    )


class Scatter(Reducer):
    """The values of all instances of a frame, put at their places in a table of zeros."""

    spreads = True

    def __init__(self, block: Block, body: Ref, places: Sequence[Ref], pools: Sequence[Pool]) -> None:
        self.pools = tuple(pools)

        def number(frame: Frame, *at: Any) -> Tensor:
            flat = ravel(at, [frame.run.size(p) for p in self.pools])
            return torch.as_tensor(flat, device=frame.run.device)

        self.body = body
        self.number = block.broadcast(("number in table",), number, [block.positions(p) for p in places])
        self.refs, self.axes = (body, self.number), ()

    def tile(self, frame: Frame) -> tuple[Tensor, Tensor]:
        number = frame.regs[self.number.slot]
        value = spread(frame.regs[self.body.slot], self.body.axes, self.number.axes, frame.sizes)
        return number.reshape(-1), value.reshape(-1)

    def merge(self, a: Any, b: Any) -> Any:
        return torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])

    def finish(self, frame: Frame, total: Any) -> Tensor:
        number, value = total
        sizes = [frame.run.size(p) for p in self.pools]
        table = torch.zeros(prod(sizes), dtype=value.dtype, device=value.device)
        return table.index_put((number,), value).view(sizes)
