"""What is believed, given and observed of the variables of problems, for many instances at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from doxa._numerics import log1mexp
from doxa.errors import KnowledgeError
from doxa.logic import Function
from doxa.logic.tensor._readings import Reading
from doxa.pose._data import CallData, Lookup, entries_of
from doxa.pose._references import Instances, Question, Reference, Symbol
from doxa.pose._variables import NUMBERS, UNDEFINED, Variable
from doxa.problem import Belief

__all__ = ["Arranged", "arrange", "believed", "given_values"]

NEG_INF = float("-inf")
Asked = tuple[tuple[Variable, ...], Instances, Sequence[Reference]]


class Arranged(NamedTuple):
    """How beliefs are put together from what symbols say: what they are asked, and where the answers go."""

    lookup: Lookup
    arguments: dict[Symbol, tuple[Any, ...]]
    """Of a question to each symbol; None for one that stays open."""
    beliefs: list[tuple[tuple[int, ...], int, list[tuple[Symbol, int, Tensor | None]], Tensor | None]]
    """For each group the sizes of its variables, how many instances it has, for each symbol how many variables are its
    and their places in what it says (None: the first ones, in order), and the order of the variables among these."""


def arrange(data: CallData, groups: Sequence[Asked]) -> Arranged:
    """Where the beliefs about world variables will be, one row for each instance; no network runs."""
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
    lookup = data.locate(asked)
    beliefs = []
    for (world, instances, _), here in zip(groups, own, strict=True):
        parts: list[tuple[Symbol, int, Tensor | None]] = []
        order: list[int] = []
        for symbol, variables in here.items():
            places = [lookup.places[symbol][question] for _, question in variables]
            index = torch.stack([place for place, _ in places], -1) + torch.tensor([offset for _, offset in places])
            index = index.flatten().to(data.batch.device)
            in_order = torch.equal(index, torch.arange(len(index), device=index.device))
            parts.append((symbol, len(variables), None if in_order else index))
            order += [w for w, _ in variables]
        back = torch.tensor(sorted(range(len(order)), key=order.__getitem__), device=data.batch.device)
        sizes = tuple([len(v.values) for v in world])
        beliefs.append((sizes, instances.count, parts, None if order == sorted(order) else back))
    return Arranged(lookup, {symbol: questions[0][0] for symbol, questions in asked.items()}, beliefs)


def believed(data: CallData, arranged: Arranged) -> list[Belief]:
    """What the networks believe about world variables; every network runs once."""
    tables = {}
    for symbol, reading in data.read(arranged.lookup).items():
        if reading.values.dtype in (torch.float16, torch.bfloat16):  # under autocast the logic stays in float32
            reading = Reading(reading.values.float(), reading.returns)
        exclusive = arranged.arguments[symbol][-1:] == (None,)
        table = reading.values if exclusive else _log_probs(symbol, reading)
        tables[symbol] = entries_of(symbol, arranged.arguments[symbol], table)
    dtype = reduce(torch.promote_types, [table.dtype for table in tables.values()]) if tables else torch.float32
    beliefs = []
    for sizes, count, own, order in arranged.beliefs:
        parts = []
        for symbol, width, index in own:
            table = tables[symbol]
            picked = table[: count * width] if index is None else table.index_select(0, index.to(table.device))
            picked = picked.to(dtype).view(count, width, table.shape[-1])
            missing = max(sizes) - table.shape[-1]
            parts.append(pad(picked, (0, missing), value=NEG_INF) if missing else picked)
        together = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        together = together if order is None else together.index_select(1, order)
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
        return logsigmoid(torch.stack([-values, values], -1))
    return torch.stack([log1mexp(-values), values], -1)


def given_values(
    data: CallData, variables: Sequence[Variable], instances: Instances, names: Sequence[Reference]
) -> Tensor:
    """The positions of what the data decide among the values of given variables: int64 ``(instances, variables)``."""
    columns = [_position(data, v, instances, names) for v in variables]
    return torch.stack(columns, -1) if columns else torch.zeros(instances.count, 0, dtype=torch.int64)


def _position(data: CallData, variable: Variable, instances: Instances, names: Sequence[Reference]) -> Tensor:
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
