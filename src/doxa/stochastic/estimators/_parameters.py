"""Distributions taken apart into unconstrained parameters, and put together again."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical, constraints

from doxa.errors import ConfigError
from doxa.stochastic.tape._joint import Joint


def parameters_of(distribution: Distribution) -> dict[str, Tensor]:
    """The parameters as unconstrained numbers, live: logits, locations, and logarithms of positive ones."""
    if isinstance(distribution, Independent):
        return parameters_of(distribution.base_dist)
    if isinstance(distribution, Bernoulli | Categorical | OneHotCategorical):
        return {"logits": distribution.logits}
    if isinstance(distribution, Joint):
        entries = enumerate(_entries(distribution))
        return {f"{i} {k}": v for i, entry in entries for k, v in parameters_of(entry).items()}
    found: dict[str, Tensor] = {}
    for name, constraint in distribution.arg_constraints.items():
        value = getattr(distribution, name, None)
        if not isinstance(value, Tensor):
            continue
        if _positive(constraint):
            found[name] = value.log()
        elif constraint is constraints.real:
            found[name] = value
    if set(found) != set(distribution.arg_constraints):
        raise ConfigError(
            f"{type(distribution).__name__} cannot be moved in its parameters; Bernoulli, categorical, and families "
            "of real and positive parameters (Normal, Poisson, Exponential, Gamma, …) can"
        )
    return found


def rebuilt(distribution: Distribution, parameters: dict[str, Tensor]) -> Distribution:
    """A distribution of the same family with other parameters; extra leading dimensions become batch dimensions."""
    if isinstance(distribution, Independent):
        return Independent(rebuilt(distribution.base_dist, parameters), distribution.reinterpreted_batch_ndims)
    if isinstance(distribution, Joint):
        own: list[dict[str, Tensor]] = [{} for _ in distribution.entries]
        for key, value in parameters.items():
            place, _, name = key.partition(" ")
            own[int(place)][name] = value
        return Joint([rebuilt(entry, part) for entry, part in zip(_entries(distribution), own, strict=True)])
    kind: Any = type(distribution)
    kinds = {} if "logits" in parameters else distribution.arg_constraints
    given = {name: value.exp() if _positive(kinds.get(name)) else value for name, value in parameters.items()}
    found: Distribution = kind(**given, validate_args=False)
    return found


def _entries(joint: Joint) -> list[Distribution]:
    found = [entry for entry in joint.entries if isinstance(entry, Distribution)]
    if len(found) < len(joint.entries):
        raise ConfigError(
            "a joint draw whose entries are functions of earlier ones cannot be moved in its parameters; "
            "sample the entries one after another, or use LeaveOneOut"
        )
    return found


def _positive(constraint: object) -> bool:
    if constraint is constraints.positive or constraint is constraints.nonnegative:
        return True
    return isinstance(constraint, type(constraints.positive)) and getattr(constraint, "lower_bound", None) == 0
