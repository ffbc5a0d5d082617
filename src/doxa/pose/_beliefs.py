"""What is believed, given and observed of the variables of problems, for many instances at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from doxa._numerics import log1mexp
from doxa.errors import KnowledgeError
from doxa.logic import Function
from doxa.logic.tensor._readings import Reading
from doxa.pose._data import CallData, Instances, Question, References, Symbol
from doxa.pose._variables import NUMBERS, UNDEFINED, Variable
from doxa.problem import Belief

__all__ = ["believed", "given_values"]

NEG_INF = float("-inf")
Asked = tuple[tuple[Variable, ...], Instances, References]


def believed(data: CallData, groups: Sequence[Asked]) -> list[Belief]:
    """What the networks believe about world variables, one row for each instance; every network runs once."""
    asked: dict[Symbol, list[Question]] = {}
    own: list[dict[Symbol, list[tuple[int, int]]]] = []
    for world, instances, names in groups:
        here: dict[Symbol, list[tuple[int, int]]] = {}
        for w, variable in enumerate(world):
            symbol, args, _ = variable.key
            questions = asked.setdefault(symbol, [])
            here.setdefault(symbol, []).append((w, len(questions)))
            questions.append((args, instances, names))
        own.append(here)

    def log_probs(symbol: Symbol, reading: Reading) -> Tensor:
        if reading.values.dtype in (torch.float16, torch.bfloat16):  # under autocast the logic stays in float32
            reading = Reading(reading.values.float(), reading.returns)
        return reading.values if data.is_exclusive(symbol.name) else _log_probs(symbol, reading)

    found = data.lookup(asked, log_probs)
    dtype = reduce(torch.promote_types, [table.dtype for table, _ in found.values()]) if found else torch.float32
    beliefs = []
    for (world, instances, _), here in zip(groups, own, strict=True):
        sizes = tuple([len(v.values) for v in world])
        parts, order = [], []
        for symbol, variables in here.items():
            table, places = found[symbol]
            own_places = [places[question] for _, question in variables]
            offsets = torch.tensor([offset for _, offset in own_places])
            first = own_places[0][0]
            if all(place is first for place, _ in own_places):
                index = first.unsqueeze(-1) + offsets
            else:
                index = torch.stack([place for place, _ in own_places], -1) + offsets
            picked = table.index_select(0, index.flatten().to(table.device)).to(dtype)
            picked = picked.view(instances.count, len(variables), table.shape[-1])
            parts.append(pad(picked, (0, max(sizes) - table.shape[-1]), value=NEG_INF))
            order += [w for w, _ in variables]
        together = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        if order != sorted(order):
            back = torch.tensor(sorted(range(len(order)), key=order.__getitem__), device=together.device)
            together = together.index_select(1, back)
        beliefs.append(Belief(together, sizes, validate=False))
    return beliefs


def _log_probs(symbol: Symbol, reading: Reading) -> Tensor:
    """Log-probabilities over the values of a symbol, on the last axis."""
    values, returns = reading.values, reading.returns
    if not values.is_floating_point():
        raise KnowledgeError(f"{symbol.name} is certain, yet it was taken for uncertain; bind it to probabilities")
    if isinstance(symbol, Function):
        if returns == "prob":
            flat = values.reshape(-1, values.shape[-1])
            return Belief.from_probs(flat).log_probs.reshape(values.shape)
        return values
    if returns == "prob":
        return Belief.from_bernoulli(probs=values.reshape(-1)).log_probs.reshape(*values.shape, 2)
    if returns == "logit":
        return torch.stack([logsigmoid(-values), logsigmoid(values)], -1)
    return torch.stack([log1mexp(-values), values], -1)


def given_values(data: CallData, variables: Sequence[Variable], instances: Instances, names: References) -> Tensor:
    """The positions of what the data decide among the values of given variables: int64 ``(instances, variables)``."""
    columns = [_position(data, v, instances, names) for v in variables]
    return torch.stack(columns, -1) if columns else torch.zeros(instances.count, 0, dtype=torch.int64)


def _position(data: CallData, variable: Variable, instances: Instances, names: References) -> Tensor:
    kind, known = variable.key[:2]
    value, fine = data.known(known, instances, names)
    value = value.long() if value.dtype == torch.bool else value
    if kind in ("below", "up to"):
        sorted_values, asked = _comparable(variable.key[2], value)
        return torch.searchsorted(sorted_values, asked, right=kind == "up to")
    if kind == "number":
        limit = variable.key[2]
        if value.is_floating_point() or bool((value.abs() >= limit).any()):
            raise KnowledgeError(f"{known}: whole numbers below {limit:,} are wanted beside a term too large to list")
        return value.long() + len(NUMBERS) // 2
    if kind == "place":
        *_, listed, named = variable.key
        if named is not None:  # the data hold positions among all names
            places = torch.tensor([listed.index(n) if n in listed else len(listed) - 1 for n in named])
            return places[value.long()]
        return _found(listed[:-1], value, torch.full((instances.count,), len(listed) - 1))
    last = torch.full((instances.count,), len(variable.values) - 1)  # where it has no value
    numbers = [v for v in variable.values if v is not UNDEFINED]
    if numbers and isinstance(numbers[0], bool | str):
        return torch.where(fine, value.long(), last)
    return torch.where(fine, _found(numbers, value, last), last)


def _found(listed: Sequence[Any], value: Tensor, otherwise: Tensor) -> Tensor:
    """The place of each value in a sorted list of numbers."""
    if not listed:
        return otherwise
    numbers, asked = _comparable(listed, value)
    place = torch.searchsorted(numbers, asked).clamp(max=len(listed) - 1)
    return torch.where(numbers[place] == asked, place, otherwise)


def _comparable(listed: Sequence[Any], value: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of knowledge and of the data in one precision: whole numbers exactly, others in that of the data."""
    whole = not value.is_floating_point() and all(isinstance(v, int) for v in listed)
    dtype = torch.int64 if whole else value.dtype if value.is_floating_point() else torch.float64
    return torch.tensor(listed, dtype=dtype), value.to(dtype).contiguous()
