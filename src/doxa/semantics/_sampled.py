"""Sampled semantics: knowledge as a black-box program that worlds are drawn for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent

from doxa.errors import ConfigError, ProblemError
from doxa.logic import Axiom, Interpretation
from doxa.pose import KnowledgeReasoner
from doxa.problem import Belief, Problem
from doxa.semantics._instances import outer, shape
from doxa.semantics._posed import in_order, posers
from doxa.semantics._semantics import Compiled
from doxa.stochastic import Estimator, LeaveOneOut, Tape

__all__ = ["Sampled"]

DRAWS = 128
"""At least so many worlds are drawn to say how true a row is."""
_UNITS = 4096


@dataclass(frozen=True)
class Sampled:
    """Gradient estimation: worlds are drawn from what the networks believe, and the knowledge only judges them.

    The loss of an axiom is the expected share of its instances that a drawn world violates, E[1 - φ(w)]; its value and
    its derivative are estimated without bias, as far as the estimator says. With ``log`` the loss is
    -log of the share of drawn worlds in which an instance holds: nearer to what ``Exact`` minimises, but biased, for
    the logarithm of a mean is not the mean of logarithms.

    Args:
        estimator: any of ``doxa.stochastic`` that needs no derivative of the knowledge.
        log: minimise -log of the share of worlds that hold.

    `Model.truth` draws at least 128 worlds for each instance and multiplies the shares of those that hold; that is the
    probability of ``Exact`` where no two instances have a variable in common.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(1.0)), wet=doxa.probs(torch.tensor(0.0)))
    >>> model.loss(semantics=Sampled())
    tensor(1.)
    """

    estimator: Estimator = field(default_factory=lambda: LeaveOneOut(8))
    log: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, Estimator):
            raise ConfigError(f"estimator is {self.estimator!r}, expected one of doxa.stochastic: LeaveOneOut(8)")

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation, self.estimator, self.log)


class _Compiled:
    def __init__(
        self, axioms: Sequence[Axiom], interpretation: Interpretation, estimator: Estimator, log: bool
    ) -> None:
        self.axioms, self.interpretation, self.estimator, self.log = axioms, interpretation, estimator, log
        self.posers = posers(axioms, interpretation)
        self.rows = posers(axioms, interpretation, outer)

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        judge = _log_share if self.log else _expected_violation
        return torch.stack([self._mean(poser, judge, data, generator) for poser in self.posers])

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        """The shares of drawn worlds in which each instance holds, multiplied: as if instances were independent."""
        found, draws = [], max(self.estimator.n, DRAWS)
        with torch.no_grad():
            for poser in self.posers:
                posed = poser.posed(**data)
                shares = [_share(p, b, units, draws, generator) for p, b, units in posed.problems]
                found.append(in_order(posed, shares).prod())
        return torch.stack(found)

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        """The share of drawn worlds that hold. Instances of one row share their draws, so that they can be compared."""
        found, draws = [], max(self.estimator.n, DRAWS)
        with torch.no_grad():
            for axiom, poser in zip(self.axioms, self.rows, strict=True):
                sizes = shape(axiom, poser.keep, self.interpretation, data) or (1,)
                posed, alike = poser.posed(**data), math.prod(sizes[1:])
                shares = [_share(p, b, units // max(alike, 1), draws, generator) for p, b, units in posed.problems]
                found.append(in_order(posed, shares).reshape(sizes))
        return found

    def _mean(self, poser: KnowledgeReasoner, judge: Any, data: Mapping[str, Any], generator: Any) -> Tensor:
        """The mean over all instances; those that are certain count too."""
        found = poser.posed(**data)
        worst = math.log(2 * self.estimator.n) if judge is _log_share else 1.0  # as if no world held
        total: Tensor | float = worst * len(found.violated)
        for problem, belief, units in found.problems:
            total = total + judge(problem, belief, self.estimator, generator) * len(units)
        return torch.as_tensor(total) / max(1, found.count)

    def explain(self, data: Mapping[str, Any]) -> str:
        kind = "biased, for -log of a mean" if self.log else "unbiased"
        lines = [f"{self.estimator!r}, {kind}; world variables are independent given the data"]
        for poser in self.posers:
            lines += [f"{len(units):,} times {problem}" for problem, _, units in poser.posed(**data).problems]
        return "\n".join(lines)


def _drawn(belief: Belief, estimator: Estimator, generator: Any) -> tuple[Tape, Tensor]:
    if bool(belief.log_probs.detach().isnan().any()):
        raise ProblemError("no world can be drawn from NaN (not a number); Model.blame(...) says where it is from")
    tape = Tape(batch_dims=1, generator=generator)
    worlds = Independent(Categorical(logits=belief.log_probs, validate_args=False), 1, validate_args=False)
    return tape, tape.sample(worlds, estimator)


def _expected_violation(problem: Problem, belief: Belief, estimator: Estimator, generator: Any) -> Tensor:
    tape, worlds = _drawn(belief, estimator, generator)
    holds = _holds(problem, worlds)
    tape.cost((1 - holds).to(belief.log_probs.dtype))
    return tape.surrogate()


def _holds(problem: Problem, worlds: Tensor) -> Tensor:
    """1 where the knowledge holds. An estimator that goes through all values meets padding too, of probability 0."""
    last = torch.tensor(problem.world, device=worlds.device) - 1
    return (problem(worlds.minimum(last))[..., 0] == 1).long()


def _share(problem: Problem, belief: Belief, rows: Tensor, draws: int, generator: Any) -> Tensor:
    """The share of worlds that hold, ``(units,)``; units of one row are drawn with the same random numbers."""
    device, width = belief.log_probs.device, max(problem.world)
    distinct, own = torch.unique(rows, return_inverse=True)
    noise = torch.rand(len(distinct), len(problem.world), draws, device=device, generator=generator)
    last = torch.tensor(problem.world, device=device).unsqueeze(-1) - 1
    found = []
    parts = torch.split(belief.probs[..., :width], _UNITS), torch.split(own.to(device), _UNITS)
    for probs, at in zip(*parts, strict=True):
        reached = probs.cumsum(-1)
        uniform = noise[at].to(probs.dtype) * reached[..., -1:]
        worlds = torch.searchsorted(reached, uniform, right=True).minimum(last)  # the inverse of the distribution
        found.append((problem(worlds.movedim(-1, 0))[..., 0] == 1).to(probs.dtype).mean(0))
    return torch.cat(found)


def _log_share(problem: Problem, belief: Belief, estimator: Estimator, generator: Any) -> Tensor:
    """-log(1/n Σ_j φ(w_j)) with derivative -Σ_j φ(w_j) ∇log p(w_j) / Σ_j φ(w_j); no world that holds counts as half."""
    with torch.no_grad():
        worlds = _drawn(belief, estimator, generator)[1]
        holds = _holds(problem, worlds).to(belief.log_probs.dtype)
    count = holds.sum(0)
    log_probs = belief.log_prob(worlds)
    value = -(count.clamp(min=0.5) / len(holds)).log()
    slope = -(holds * log_probs).sum(0) / count.clamp(min=1)
    return (value + slope - slope.detach()).mean()
