"""Distributions moved in their parameters, and simultaneous perturbation: a difference in a random direction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical, constraints

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import MOST_OUTCOMES, all_indices, log_prob, repeat_batch, support, total_size
from doxa.stochastic.tape._joint import Joint


class SPSA(Estimator):
    r"""SPSA: with ε = ±1 at random, x₁ ~ p_{θ+cε} and x₂ ~ p_{θ−cε}. The gradient has a bias of order c².

        w = ½ ⊥(p(x)/p_±(x)),      l = ± Σ_d θ_d ⊥(p_±(x) / (c ε_d p(x))),      a = 0      (errata 4.2)

    θ are logits, locations, and logarithms of positive parameters.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), SPSA(n=4, step=0.1))
    >>> _ = tape.cost(z)
    >>> (g,) = torch.autograd.grad(tape.surrogate(allow_biased=True), logits)
    """

    distributions = "with real or positive parameters"
    evaluations = "2n"
    order = 1
    biased = True

    def __init__(self, n: int = 1, step: float = 0.1) -> None:
        super().__init__(n)
        if not step > 0:
            raise ConfigError(f"step is {step}, expected a positive number")
        self.step = step

    def fits(self, distribution: Distribution) -> bool:
        try:
            return bool(parameters_of(distribution))
        except ConfigError:
            return False

    def propose(self, distribution: Distribution, n: int) -> Draw:
        with torch.no_grad():
            theta = {k: t.expand(n, *t.shape) for k, t in parameters_of(distribution).items()}
            signs = {k: torch.where(torch.rand_like(t) < 0.5, -1.0, 1.0).to(t.dtype) for k, t in theta.items()}
            moved = self._moved(distribution, signs)
            return self._complete(distribution, [d.sample() for d in moved], moved, signs)[0]

    def _moved(self, distribution: Distribution, signs: dict[str, Tensor]) -> list[Distribution]:
        theta = parameters_of(distribution)
        return [rebuilt(distribution, {k: theta[k] + c * signs[k] for k in theta}) for c in (self.step, -self.step)]

    def _complete(
        self, distribution: Distribution, values: list[Tensor], moved: list[Distribution], signs: dict[str, Tensor]
    ) -> tuple[Draw, Tensor]:
        """The draw, and the log-probabilities of both halves."""
        value = torch.cat(values)
        logs = torch.cat([log_prob(d, v) for d, v in zip(moved, values, strict=True)])
        log_ratio = log_prob(distribution, value) - logs
        # ±1/(cε) for the two halves, and 1/ε = ε.
        notes = {k: torch.cat([s, -s]) / self.step for k, s in signs.items()}
        # The gradient function divides by the ratio again, so where it is extreme only the product matters.
        return Draw(value, distribution, ratio=log_ratio.clamp(-40.0, 40.0).exp(), **notes), logs

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["ratio"] / draw.m

    def gradient(self, draw: Draw) -> Tensor:
        keep = 1 + len(draw.distribution.batch_shape)
        parts = []
        for name, theta in parameters_of(draw.distribution).items():
            part = torch.where(theta.isinf(), 0.0, theta) * draw.notes[name]  # an infinite logit has no derivative
            parts.append(part.flatten(keep).sum(-1) if part.dim() > keep else part)
        return torch.stack(parts).sum(0) / draw.notes["ratio"]

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        size = total_size(distribution)
        with torch.no_grad():
            theta = parameters_of(distribution)
            batch = len(distribution.batch_shape)
            if size is None or n > 1 or set(theta) != {"logits"}:
                return None
            logits = theta["logits"]
            count = logits.shape[batch:].numel()
            if size * size * 2**count > MOST_OUTCOMES:
                return None
            choice = all_indices((2,) * count + (size, size), logits.device)  # (O, count + 2)
            signs = (choice[:, :count] * 2 - 1).to(logits.dtype)
            signs = signs.reshape(1, -1, *(1,) * batch, *logits.shape[batch:]).expand(1, -1, *logits.shape)
            both = {"logits": signs}
            pair = [support(distribution)[choice[:, count + i]].unsqueeze(0) for i in (0, 1)]
            wide = repeat_batch(distribution, choice.shape[0])
            draw, logs = self._complete(wide, pair, self._moved(distribution, both), both)
        return draw, logs.double().sum(0).exp() / 2**count


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
        kind = type(distribution).__name__
        raise ConfigError(f"{kind} cannot be moved in its parameters, expected logits, or real or positive numbers")
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
        raise ConfigError("entries that are functions of earlier ones have no parameters to move; use LeaveOneOut")
    return found


def _positive(constraint: object) -> bool:
    if constraint is constraints.positive or constraint is constraints.nonnegative:
        return True
    return isinstance(constraint, type(constraints.positive)) and getattr(constraint, "lower_bound", None) == 0
