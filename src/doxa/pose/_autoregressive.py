"""The variables of a row that a network says in turn: which they are, and what it says of the next."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.bind._joint import RowNetwork
from doxa.pose._data import CallData
from doxa.pose._references import Cell, Object, Reference
from doxa.pose._rows import RowQuestion, Seen, told_of
from doxa.pose._variables import Variable
from doxa.problem import Belief
from doxa.problem._autoregressive import RowSteps


def row_sizes(shared: RowNetwork, data: CallData) -> tuple[int, ...]:
    """How many values each place of a row has."""
    functions = data.batch.signature.functions
    return tuple([len(functions[s].result.values or ()) if s in functions else 2 for s, _, _ in shared.places])


def places_of(
    world: Sequence[Variable], names: Sequence[Reference], seen: Seen, shared: RowNetwork, data: CallData
) -> tuple[tuple[int, ...], Seen]:
    """Where the variables of a problem are among the places of a row, and then the others; and the row that is seen."""
    order: list[int] = []
    own_rows, others = set[tuple[str, str, int]](), 0
    for variable in world:
        symbol, args, fresh = variable.key
        if not data.is_mixed(symbol.name):
            order.append(len(shared.places) + others)
            others += 1
            continue
        field: str = ""
        path: tuple[int | str, ...] = ()
        cell = names[args[0].label][1] if args and isinstance(args[0], Object) else None
        if isinstance(cell, Cell) and not cell.row.fixed:
            field, path = cell.field, cell.path
            own_rows.add((cell.row.rows, "", cell.row.number))
        place = (symbol.name, field, path)
        if fresh is not None or place not in shared.places or bool(args) != bool(field):
            listed = ", ".join([f"{s}({f}{''.join([f'[{i}]' for i in p])})" if f else s for s, f, p in shared.places])
            raise KnowledgeError(
                f"{variable.name} is no place of a row that the autoregressive belief is about: {listed}; name it too, "
                "or bind it by doxa.mixture or on its own"
            )
        order.append(shared.places.index(place))
    if len(own_rows) > 1 or not own_rows <= set(seen):
        raise KnowledgeError(
            "an autoregressive belief is about one row at a time, but an axiom speaks of several at once, or of a row "
            "that its outermost forall does not range over; bind the symbols by doxa.mixture or on their own"
        )
    return tuple(order), tuple(own_rows)


def steps(data: CallData, question: RowQuestion, shared: RowNetwork) -> RowSteps:
    """What a network says of the next place of rows."""
    objects, sizes, count = told_of(data, question), row_sizes(shared, data), len(question.rows)

    def said(rows: Tensor | None, prefix: Tensor) -> Tensor:
        some = objects if rows is None else [x.index_select(0, rows.to(x.device)) for x in objects]
        size = sizes[prefix.shape[-1]]
        found = shared.following(prefix, some, size, check_finite=data.interpretation.check_finite)
        if shared.returns == "prob":
            return Belief.from_probs(found, validate=False).log_probs
        return found.log_softmax(-1) if shared.returns == "logit" else found

    first = said(None, torch.zeros(count, 1, 0, dtype=torch.int64, device=data.batch.device))

    def step(rows: Tensor, prefix: Tensor) -> Tensor:
        if not prefix.shape[-1]:
            return first.index_select(0, rows).expand(-1, prefix.shape[1], -1)
        every = len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device))
        return said(None if every else rows, prefix)

    if first.device != data.batch.device:
        raise BindingError(f"the autoregressive network answers on {first.device}, expected {data.batch.device}")
    return RowSteps(step, sizes, count, first.detach())
