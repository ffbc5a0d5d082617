"""What a network is told that sees a whole row: the objects of each instance, not its numbers and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic import Expr, Name
from doxa.logic.bind._universe import Column
from doxa.logic.syntax._binders import first_forall
from doxa.pose._data import CallData
from doxa.pose._references import Instances

Seen = tuple[tuple[str, str, int], ...]
"""What an instance ranges over, in order: rows, "", and which of its rows; or a variable, its open sort, and 0."""


def seen_by(formula: Expr, data: CallData) -> Seen:
    """The rows and objects of an instance: those that the outermost ``forall`` ranges over and that hold objects."""
    first, found = first_forall(formula), list[tuple[str, str, int]]()
    for group in () if first is None else first.groups:
        if isinstance(group.domain, Name):
            for _ in group.names:
                found.append((group.domain.name, "", len([f for f in found if f[:2] == (group.domain.name, "")])))
        elif group.sort is not None:
            if data.batch.signature.sorts[group.sort].values is None:
                found += [(name, group.sort, 0) for name in group.names]
        else:
            break  # what lies inside a row belongs to it
    return tuple([part for part in found if part[1] or _fields(data, part[0])])


class RowQuestion(NamedTuple):
    """Rows of one kind that a network will see, each once, and which of them each group of instances has."""

    seen: Seen
    rows: Tensor
    """Numbers of rows and objects, int64 ``(distinct, variables)``."""
    groups: dict[int, Tensor]
    """By group the place of each of its instances among these rows, ``(instances,)``."""


def plan_rows(groups: Sequence[tuple[int, Seen, Instances]]) -> list[RowQuestion]:
    """The rows of groups of instances, by kind."""
    kinds: dict[Seen, list[tuple[int, Instances]]] = {}
    for group, seen, instances in groups:
        kinds.setdefault(tuple([(a if not b else "", b, c) for a, b, c in seen]), []).append((group, instances))
    found = []
    named = {group: seen for group, seen, _ in groups}
    for own in kinds.values():
        parts = [_numbers(named[group], instances) for group, instances in own]
        together = torch.cat(parts)
        if together.shape[1]:
            distinct, index = torch.unique(together, dim=0, return_inverse=True)
        else:  # nothing is seen, so all look alike
            distinct, index = together.new_zeros(1, 0), together.new_zeros(len(together))
        places = torch.split(index, [len(part) for part in parts])
        members = [group for group, _ in own]
        found.append(RowQuestion(named[members[0]], distinct, dict(zip(members, places, strict=True))))
    return found


def _numbers(seen: Seen, instances: Instances) -> Tensor:
    columns = [instances.own[name] if sort else instances.rows[name][:, number] for name, sort, number in seen]
    return torch.stack(columns, -1) if columns else torch.zeros(instances.count, 0, dtype=torch.int64)


def ask_of_rows(data: CallData, question: RowQuestion, network: Callable[[list[Tensor], int], Tensor]) -> Tensor:
    """What a network says of each of these rows, ``(distinct, ...)``; of those with fields of one length together."""
    rows = question.rows
    lengths = [
        column.lengths.cpu()[rows[:, i]]
        for i, (name, sort, _) in enumerate(question.seen)
        for column in _objects(data, name, sort)
        if column.lengths is not None
    ]
    if not lengths or not len(rows) or bool((torch.stack(lengths) == torch.stack(lengths)[:, :1]).all()):
        return network(_told(data, question.seen, rows), len(rows))
    kinds, index = torch.unique(torch.stack(lengths, -1), dim=0, return_inverse=True)
    places = [(index == kind).nonzero().squeeze(1) for kind in range(len(kinds))]
    parts = torch.cat([network(_told(data, question.seen, rows[at]), len(at)) for at in places])
    return parts[torch.cat(places).argsort().to(parts.device)]


def told_of(data: CallData, question: RowQuestion) -> list[Tensor]:
    """The objects of all of these rows; an error if sequences of different lengths are among them."""
    for i, (name, sort, _) in enumerate(question.seen):
        for column in _objects(data, name, sort):
            own = None if column.lengths is None else column.lengths.cpu()[question.rows[:, i]]
            if own is not None and bool((own != own[:1]).any()):
                raise BindingError(
                    f"{name} holds sequences of different lengths, which an autoregressive belief cannot be about; "
                    "give rows of one length at a time"
                )
    return _told(data, question.seen, question.rows)


def _told(data: CallData, seen: Seen, rows: Tensor) -> list[Tensor]:
    """The objects of rows: one tensor ``(rows, ...)`` for each field that holds some, and for each variable."""
    return [
        _entries(column, rows[:, i]) for i, (name, sort, _) in enumerate(seen) for column in _objects(data, name, sort)
    ]


def _objects(data: CallData, name: str, sort: str) -> list[Column]:
    """The fields of rows that hold objects, or the objects of a sort, each with what a network sees of them."""
    batch = data.batch
    if sort:
        return [Column(_features(data, sort, f"the variable {name}"))]
    found = []
    for field in _fields(data, name):
        column = batch.column(name, field)
        values = column.values
        if column.sort is not None and not values.is_floating_point() and batch.has_objects(column.sort.name):
            values = _features(data, column.sort.name, f"{name}.{field}")[values.long()]
        found.append(Column(values, column.sort, column.lengths))
    return found


def _fields(data: CallData, rows: str) -> list[str]:
    """The fields of rows that hold objects."""
    declared, columns = data.batch.signature.rows.get(rows), data.batch.row_set(rows).columns
    if declared is not None:
        return [field for field, sort, _ in declared.fields if sort.is_open and not sort.is_integer]
    return [f for f, c in columns.items() if c.values.ndim > 1]  # objects show it


def _features(data: CallData, sort: str, place: str) -> Tensor:
    features = data.batch.objects(sort).features
    if features is None:
        raise BindingError(
            f"{place}: a network that sees whole rows needs the features of their objects, but {sort} has none; pass "
            f"{sort}=tensor, or give one tensor for all rows: mixture(weights=logits(torch.zeros(K)), ...)"
        )
    return features


def _entries(column: Column, rows: Tensor) -> Tensor:
    at = rows.to(column.values.device)
    if column.lengths is None or column.starts is None:
        return column.values.index_select(0, at)
    length = int(column.lengths[at[0]]) if len(at) else 0
    inside = column.starts[at].unsqueeze(-1) + torch.arange(length, device=at.device)
    return column.values[inside]
