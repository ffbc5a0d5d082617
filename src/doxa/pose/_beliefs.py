"""What is believed, given and observed of the variables of problems, for many instances at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from doxa._numerics import log1mexp
from doxa.errors import BindingError, KnowledgeError
from doxa.logic import Function
from doxa.logic.bind._bindings import Returns
from doxa.logic.bind._joint import MixtureWeights, RowNetwork
from doxa.pose._autoregressive import places_of, steps
from doxa.pose._data import CallData, Lookup, require_unmapped
from doxa.pose._references import Instances, Question, Reference, Symbol
from doxa.pose._rows import RowQuestion, Seen, ask_of_rows, plan_rows
from doxa.pose._variables import NUMBERS, UNDEFINED, Variable
from doxa.problem import Belief, Mixture
from doxa.problem._autoregressive import Autoregressive

NEG_INF = float("-inf")
AnyJoint = Belief | Mixture | Autoregressive


class BeliefGroup(NamedTuple):
    """Where the beliefs of a group of instances are."""

    instances: int
    sizes: tuple[int, ...]
    entries: Tensor | None
    """Of its variables among all answers; None for the first, in order."""
    joint: bool
    """Whether some of its variables depend on each other."""
    order: tuple[int, ...] = ()
    """Of an autoregressive belief: where its variables are among those of the row, and the others after them."""


class BeliefPlan(NamedTuple):
    """What symbols are asked, and where among their answers the beliefs of each group of instances are."""

    lookup: Lookup
    groups: list[BeliefGroup]
    rows: list[RowQuestion]
    """What a network is asked that sees whole rows."""


def plan_beliefs(
    data: CallData, groups: Sequence[tuple[Sequence[Variable], Instances, Sequence[Reference], Seen]]
) -> BeliefPlan:
    """Where the beliefs about world variables will be, one row for each instance; no network runs."""
    asked: dict[Symbol, list[Question]] = {}
    own: list[list[tuple[Symbol, int]]] = []
    in_turn = data.interpretation.joint if isinstance(data.interpretation.joint, RowNetwork) else None
    for world, instances, names, _ in groups:
        own.append([])
        for variable in world:
            symbol, args, _ = variable.key
            if in_turn is not None and data.is_mixed(symbol.name):
                continue  # it has no network of its own
            questions = asked.setdefault(symbol, [])
            own[-1].append((symbol, len(questions)))
            questions.append((args, instances, names))
    lookup = data.locate(asked)
    found, rows = [], []
    for i, ((world, instances, _, seen), questions_of) in enumerate(zip(groups, own, strict=True)):
        columns = [lookup.places[symbol][question] for symbol, question in questions_of]
        entries = torch.stack(columns, -1).flatten() if columns else torch.zeros(0, dtype=torch.int64)
        in_order = torch.equal(entries, torch.arange(len(entries)))
        sizes, order = tuple([len(v.values) for v in world]), tuple[int, ...]()
        joint = any(data.is_mixed(variable.key[0].name) for variable in world)
        if joint and in_turn is not None:
            order, seen = places_of(world, groups[i][2], seen, in_turn, data)
        if joint:
            rows.append((i, seen if data.sees_rows() else (), instances))
        entries_or_all = None if in_order else entries.to(data.batch.device)
        found.append(BeliefGroup(instances.count, sizes, entries_or_all, joint, order))
    return BeliefPlan(lookup, found, plan_rows(rows))


def believed(data: CallData, plan: BeliefPlan) -> list[AnyJoint]:
    """What the networks believe about world variables; every network runs once."""
    if not plan.groups:
        return []
    said = data.read(plan.lookup)
    if plan.rows and isinstance(data.interpretation.joint, RowNetwork):
        return _in_turn(data, plan, said, data.interpretation.joint)
    if plan.rows:
        return _mixtures(data, plan, said)
    symbol, (table, returns) = next(iter(said.items()))
    if len(said) > 1:
        tables = [_log_probs(symbol, *reading) for symbol, reading in said.items()]
        dtype = reduce(torch.promote_types, [table.dtype for table in tables])
        width = max([table.shape[-1] for table in tables])
        table = torch.cat([pad(t.to(dtype), (0, width - t.shape[-1]), value=NEG_INF) for t in tables])
    beliefs: list[AnyJoint] = []
    for count, sizes, entries, *_ in plan.groups:
        picked = table[: count * len(sizes)] if entries is None else table.index_select(0, entries.to(table.device))
        picked = picked if len(said) > 1 else _log_probs(symbol, picked, returns)
        log_probs, values = picked.view(count, len(sizes), picked.shape[-1]), max(sizes)
        narrow = log_probs if values == picked.shape[-1] else log_probs[..., :values]
        beliefs.append(Belief(narrow, sizes, validate=False))
    return beliefs


def _in_turn(
    data: CallData, plan: BeliefPlan, said: Mapping[Symbol, tuple[Tensor, Returns]], shared: RowNetwork
) -> list[AnyJoint]:
    """The same where the symbols of a row are said in turn; what is not among them is independent."""
    rows = [(question, steps(data, question, shared)) for question in plan.rows]
    found = {group: (at, said_in_turn) for question, said_in_turn in rows for group, at in question.groups.items()}
    table = None
    if said:
        tables = [_log_probs(symbol, *reading) for symbol, reading in said.items()]
        width, dtype = max([t.shape[-1] for t in tables]), reduce(torch.promote_types, [t.dtype for t in tables])
        table = torch.cat([pad(t.to(dtype), (0, width - t.shape[-1]), value=NEG_INF) for t in tables])
    beliefs: list[AnyJoint] = []
    for i, (instances, sizes, entries, joint, order) in enumerate(plan.groups):
        own = (
            [size for size, place in zip(sizes, order, strict=True) if place >= len(shared.places)] if joint else sizes
        )
        alone = None
        if own and table is not None:
            at = torch.arange(instances * len(own)) if entries is None else entries
            picked = table.index_select(0, at.to(table.device)).view(instances, len(own), -1)[..., : max(own)]
            alone = Belief(picked, tuple(own), validate=False)
        if joint:
            at, own_steps = found[i]
            like = own_steps.like
            alone = None if alone is None else alone.to(like.dtype)
            beliefs.append(Autoregressive(own_steps, at.to(like.device), order, alone))
        else:
            assert alone is not None
            beliefs.append(alone)
    return beliefs


def _mixtures(data: CallData, plan: BeliefPlan, said: Mapping[Symbol, tuple[Tensor, Returns]]) -> list[AnyJoint]:
    """The same where symbols share the component of a mixture; what is not mixed is the same in all components."""
    weights = {group: weight for question in plan.rows for group, weight in _weights(data, question)}
    components = {f"{s.name}": v.shape[1] for s, (v, _) in said.items() if data.is_mixed(s.name)}
    components["weights"] = next(iter(weights.values())).shape[-1]
    if len(set(components.values())) > 1:
        shown = ", ".join([f"{name} has {count}" for name, count in components.items()])
        raise BindingError(f"a mixture has equally many components everywhere, but {shown}")
    count = components["weights"]
    tables = []
    for symbol, (values, returns) in said.items():
        if data.is_mixed(symbol.name):
            flat = _log_probs(symbol, values.flatten(0, 1), returns)
            tables.append(flat.view(*values.shape[:2], flat.shape[-1]))
        else:
            tables.append(_log_probs(symbol, values, returns).unsqueeze(1).expand(-1, count, -1))
    dtype = reduce(torch.promote_types, [t.dtype for t in (*tables, *weights.values())])
    width = max([table.shape[-1] for table in tables])
    table = torch.cat([pad(t.to(dtype), (0, width - t.shape[-1]), value=NEG_INF) for t in tables])  # (entries, K, D)
    beliefs: list[AnyJoint] = []
    for i, (instances, sizes, entries, joint, _) in enumerate(plan.groups):
        at = torch.arange(instances * len(sizes)) if entries is None else entries
        picked = table.index_select(0, at.to(table.device)).view(instances, len(sizes), count, width)
        log_probs = picked.transpose(1, 2)[..., : max(sizes)]
        if joint:
            beliefs.append(Mixture(Belief(log_probs, sizes, validate=False), weights[i].to(dtype), validate=False))
        else:
            beliefs.append(Belief(log_probs[:, 0], sizes, validate=False))
    return beliefs


def _weights(data: CallData, question: RowQuestion) -> Iterator[tuple[int, Tensor]]:
    """By group of instances, the logarithms of the weights of the components: ``(instances, K)``."""
    shared = data.interpretation.joint
    assert isinstance(shared, MixtureWeights)

    def weigh(inputs: list[Tensor], rows: int) -> Tensor:
        return shared.raw(inputs, rows, check_finite=data.interpretation.check_finite)

    raw = ask_of_rows(data, question, weigh)
    if shared.returns == "prob":
        found = Belief.from_probs(raw.unsqueeze(-2), validate=False).log_probs.squeeze(-2)
    else:
        found = raw.log_softmax(-1) if shared.returns == "logit" else raw
    for group, places in question.groups.items():
        yield group, found.index_select(0, places.to(found.device))


def _log_probs(symbol: Symbol, values: Tensor, returns: Returns) -> Tensor:
    """Log-probabilities over the values of a symbol, ``(entries, values)``; under autocast in float32."""
    if not values.is_floating_point():
        raise KnowledgeError(f"{symbol.name} is certain, yet it was taken for uncertain; bind it to probabilities")
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    if isinstance(symbol, Function):
        return Belief.from_probs(values).log_probs if returns == "prob" else values
    if values.ndim > 1:  # the values of its last argument exclude each other
        return values
    if returns == "prob":
        return Belief.from_bernoulli(probs=values).log_probs
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
    require_unmapped(value)
    value = value.long() if value.dtype == torch.bool else value
    if kind in ("below", "up to"):
        sorted_values, asked = _comparable(variable.key[2], value)
        return torch.searchsorted(sorted_values, asked, right=kind == "up to")
    if kind == "number":
        limit = variable.key[2]
        if value.is_floating_point() or bool((value.abs() >= limit).any()):
            raise KnowledgeError(f"{known}: whole numbers below {limit:,} are wanted beside a term too large to list")
        return value.long() + len(NUMBERS) // 2
    listed = variable.values
    last = torch.full((instances.count,), len(listed) - 1)  # where it is none of the values before, or has none
    if kind == "place":
        named = variable.key[3]
        if named is None:
            return _found(listed[:-1], value, last)
        places = [listed.index(n) if n in listed else len(listed) - 1 for n in named]
        return torch.tensor(places)[value.long()]  # the data hold positions among all names
    numbers = [v for v in listed if v is not UNDEFINED]
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
