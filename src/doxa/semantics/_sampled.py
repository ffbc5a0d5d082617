"""Sampled semantics: knowledge as a black-box program that worlds are drawn for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent

from doxa.errors import ConfigError, ProblemError
from doxa.logic import Axiom, Interpretation
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.pose._poser import undefined
from doxa.problem import Belief, Mixture
from doxa.problem._autoregressive import Autoregressive
from doxa.problem._logspace import is_traced
from doxa.problem._mixture import AnyBelief, picked, rows_of
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._semantics import Compiled, Generator, Semantics

if TYPE_CHECKING:  # the estimators are loaded when a semantics is made, not when its name is looked up
    from doxa.stochastic import Estimator, Tape

DRAWS = 128
"""At least so many worlds are drawn to say how true a row is."""
_ROWS = 4096


def _default() -> Estimator:
    from doxa.stochastic import LeaveOneOut

    return LeaveOneOut(100)


@dataclass(frozen=True)
class Sampled(Semantics):
    r"""Gradient estimation: worlds are drawn from what the networks believe, and the knowledge only judges them.

    With ``log`` the loss of an instance is :math:`-\log \frac1n \sum_j φ(w_j)`, minus the logarithm of the share of
    drawn worlds in which it holds; where none does, half a world counts. That is nearer to what `Exact` minimises, but
    biased, for the logarithm of a mean is not the mean of logarithms. Without, it is the probability that a drawn world
    violates the instance, E[1 - φ(w)], and its value and derivative are estimated without bias, as far as the estimator
    says.

    Args:
        estimator: any of ``doxa.stochastic`` that needs no derivative of the knowledge.
        log: minimise -log of the share of worlds that hold.
        quantifier, impossible, budget: see `Semantics`.

    Of a :func:`doxa.mixture` the component is drawn first, and the estimator is told the probability of the world under
    all of them; of :func:`doxa.autoregressive` worlds are drawn place by place. Estimators that take variables one at a
    time refuse both.

    `Model.truth` draws at least 128 worlds for each instance and multiplies the shares of those that hold; that is the
    probability of `Exact` where no two instances have a variable in common.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.5)), wet=doxa.probs(torch.tensor(1.0)))
    >>> model.loss(semantics=Sampled())
    tensor(0.)
    """

    estimator: Estimator = field(default_factory=_default)
    log: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        from doxa.stochastic import Estimator

        if not isinstance(self.estimator, Estimator):
            raise ConfigError(f"estimator is {self.estimator!r}, expected one of doxa.stochastic: LeaveOneOut(100)")

    def for_labels(self) -> Semantics:
        """What one network says of one fact needs no sampling."""
        from doxa.semantics._exact import Exact
        from doxa.semantics._fuzzy import Fuzzy

        if self.log:
            return Exact(impossible=self.impossible, budget=self.budget)
        return Fuzzy("product", impossible=self.impossible, budget=self.budget)  # 1 - p

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation, self)


class _Compiled(Probabilistic):
    how: Sampled
    takes_joint = True

    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation, how: Sampled) -> None:
        super().__init__(axioms, interpretation, how)
        self.is_log = how.log

    def worst(self, dtype: torch.dtype) -> float:
        return math.log(2 * self.how.estimator.n) if self.is_log else 1.0  # as if no world held

    def batch_losses(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        estimator, dtype = self.how.estimator, batch.belief.dtype
        if not self.is_log:
            tape, worlds = _drawn(batch.belief, estimator, generator)
            tape.cost(1 - _holds(posed, batch, _of_problem(batch.belief, worlds)).to(dtype))
            return tape.surrogate(reduction="none")
        with torch.no_grad():
            worlds = _drawn(batch.belief, estimator, generator)[1]
            holds = _holds(posed, batch, _of_problem(batch.belief, worlds)).to(dtype)
        # -log(1/n Σ_j φ(w_j)) with derivative -Σ_j φ(w_j) ∇log p(w_j) / Σ_j φ(w_j)
        count = holds.sum(0)
        value = -(count.clamp(min=0.5) / len(holds)).log()
        log_probs = batch.belief._gather(worlds)
        slope = -log_probs.masked_fill(holds == 0, 0.0).sum(0) / count.clamp(min=1)
        return value + slope - slope.detach()

    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        return self.batch_truths(posed, batch, generator).log()

    def batch_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        """The share of worlds that hold; the instances of one row are drawn with the same random numbers."""
        draws = max(self.how.estimator.n, DRAWS)
        row = batch.instances // max(math.prod(posed.shape[1:]), 1)
        device, size = batch.belief.device, len(batch.problem.world)
        if isinstance(batch.belief, Autoregressive):
            size = len(batch.belief.drawn_sizes)
        distinct, own = torch.unique(row, return_inverse=True)
        extra = int(isinstance(batch.belief, Mixture))  # which component
        noise = torch.rand(len(distinct), size + extra, draws, device=device, generator=generator)
        found = []
        for at in torch.split(torch.arange(len(row), device=device), _ROWS):
            worlds = _inverse(batch.belief[at].detach(), noise[own.to(device)[at]])
            given = None if batch.given is None else batch.given[at]
            some = replace(batch, given=given, observed=batch.observed[at])
            found.append(_holds(posed, some, worlds.movedim(-1, 0)).to(batch.belief.dtype).mean(0))
        return torch.cat(found)

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        kind = "biased, for -log of a mean" if self.how.log else "unbiased, as far as the estimator is"
        return f"{self.how.estimator!r}, {kind}"


def _of_problem(belief: AnyBelief | Autoregressive, worlds: Tensor) -> Tensor:
    return belief.of_problem(worlds) if isinstance(belief, Autoregressive) else worlds


def _inverse(belief: AnyBelief | Autoregressive, noise: Tensor) -> Tensor:
    """Worlds ``(R, W, draws)`` from numbers in [0, 1): the inverse of the distribution, component first."""
    if isinstance(belief, Autoregressive):
        own = belief.inverse(noise[:, : len(belief.row)].permute(2, 0, 1))  # (draws, R, places)
        if belief.others is not None:
            rest = _inverse(belief.others, noise[:, len(belief.row) :].contiguous())
            own = torch.cat([own, rest.permute(2, 0, 1)], -1)
        return belief.of_problem(own).permute(1, 2, 0)
    if isinstance(belief, Mixture):
        component = _place(belief.log_weights.exp().unsqueeze(-2), noise[:, :1]).squeeze(-2)  # (R, draws)
        chosen = picked(belief.components.log_probs, component.T.clamp(max=belief.log_weights.shape[-1] - 1))
        own = noise[:, 1:].movedim(-1, 0).unsqueeze(-1)  # (draws, R, W, 1)
        return _inverse(Belief(chosen, belief.sizes, validate=False), own).squeeze(-1).movedim(0, -1)
    last = torch.tensor(belief.sizes, device=noise.device).unsqueeze(-1) - 1
    return _place(belief.probs[..., : max(belief.sizes)], noise).minimum(last)


def _place(probs: Tensor, noise: Tensor) -> Tensor:
    reached = probs.cumsum(-1)
    return torch.searchsorted(reached, (noise.to(reached.dtype) * reached[..., -1:]).contiguous(), right=True)


def _drawn(belief: AnyBelief | Autoregressive, estimator: Estimator, generator: Generator) -> tuple[Tape, Tensor]:
    rows = belief.like if isinstance(belief, Autoregressive) else rows_of(belief)
    if not is_traced(rows) and bool(rows.detach().isnan().any()):
        raise ProblemError("no world can be drawn from NaN (not a number); Model.find_nonfinite(...) says from where")
    from doxa.stochastic import Tape

    tape = Tape(batch_dims=1, generator=generator)
    if not isinstance(belief, Belief):
        from doxa.stochastic.estimators._mixtures import JointWorlds

        return tape, tape.sample(JointWorlds(belief), estimator)
    worlds = Independent(Categorical(logits=belief.log_probs, validate_args=False), 1, validate_args=False)
    return tape, tape.sample(worlds, estimator)


def _holds(posed: PosedAxiom, batch: ProblemBatch, worlds: Tensor) -> Tensor:
    """Whether the outputs are as observed. Estimators that try all values meet padding, of probability 0."""
    last = torch.tensor(batch.problem.world, device=worlds.device) - 1
    inside = (worlds <= last).all(-1)
    outputs = batch.problem(worlds.minimum(last), batch.given)
    for output in batch.partial:
        if bool((outputs[..., output] == len(batch.outputs[output]) - 1).any()):
            raise undefined(posed.axiom)
    return (outputs == batch.observed).all(-1) & inside
