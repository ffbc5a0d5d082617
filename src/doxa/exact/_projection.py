"""What networks do with knowledge: constrained outputs, soft targets, entropy, and answers that are certainly valid."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.exact._constraint import Constraint, truth
from doxa.exact.engines._derivatives import log_of
from doxa.problem import Belief


class Certified(NamedTuple):
    """Worlds with a certificate.

    Attributes:
        worlds: int64 ``(*batch, W)``, or ``(count, *batch, W)`` for samples.
        valid: bool, whether the knowledge holds, found by evaluating the formula itself, not the circuit.
        log_probs: log p(w | knowledge, P).

    >>> Certified(torch.tensor([1, 0]), torch.tensor(True), torch.tensor(0.0)).valid
    tensor(True)
    """

    worlds: Tensor
    valid: Tensor
    log_probs: Tensor


class ConstrainedLayer(nn.Module):
    """The belief, projected onto the knowledge.

    Of all distributions q over worlds under which the knowledge holds with probability t, the one nearest to the
    belief, min KL(q ‖ p), is Jeffrey's rule:

        q(w) = t · p(w | knowledge, P) + (1 - t) · p(w | ¬knowledge, P)

    With t = 1 it is conditioning: no world that breaks the knowledge is left (dissertation, appendix "Constrained
    structured output prediction").

    Args:
        constraint: the knowledge.
        target: t, the probability with which the knowledge is to hold.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> layer = ConstrainedLayer(Constraint(a ^ b))
    >>> belief = Belief.from_bernoulli(probs=torch.tensor([0.9, 0.8]))
    >>> layer.decode(belief).worlds, layer(belief).probs[:, 1]
    (tensor([1, 0]), tensor([0.6923, 0.3077]))
    """

    def __init__(self, constraint: Constraint, *, target: float = 1.0) -> None:
        super().__init__()
        if not 0.0 < target <= 1.0:
            raise ConfigError(f"target is {target}, expected a probability above 0 and at most 1")
        self.constraint = constraint
        self.target = target

    def forward(self, belief: Belief, *, given: Tensor | None = None) -> Belief:
        """q(w_i) for each world variable, as a belief: a differentiable layer that knows."""
        held = self.constraint.posterior(belief, truth(belief, 1), given=given)
        if self.target == 1.0:
            return held
        broken = self.constraint.posterior(belief, truth(belief, 0), given=given)
        mixed = self.target * held.probs + (1 - self.target) * broken.probs
        return Belief(log_of(mixed), held.sizes, validate=False)

    def log_prob(self, belief: Belief, worlds: Tensor, *, given: Tensor | None = None) -> Tensor:
        """log q(w), ``(*sample, *batch)``, -inf for worlds that q excludes: its negative is a loss for labelled worlds.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> layer = ConstrainedLayer(Constraint(a | b))
        >>> layer.log_prob(Belief.uniform((2, 2)), torch.tensor([[1, 1], [0, 0]])).exp()
        tensor([0.3333, 0.0000])
        """
        holds = self.constraint.problem(worlds, given).squeeze(-1) == 1
        prior = belief.log_prob(worlds)
        held = math.log(self.target) - self.constraint.log_prob(belief, truth(belief, 1), given=given)
        if self.target == 1.0:
            return (prior + held).masked_fill(~holds, -math.inf)
        broken = math.log1p(-self.target) - self.constraint.log_prob(belief, truth(belief, 0), given=given)
        return prior + torch.where(holds, held, broken)

    def decode(self, belief: Belief, *, given: Tensor | None = None) -> Certified:
        """The most probable world in which the knowledge holds, with a certificate.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> ConstrainedLayer(Constraint(a | b)).decode(Belief.from_bernoulli(probs=torch.tensor([0.1, 0.2])))
        Certified(worlds=tensor([0, 1]), valid=tensor(True), log_probs=tensor(-0.4418))
        """
        best = self.constraint.explain(belief, truth(belief, 1), given=given)
        worlds = best.worlds.squeeze(-2)
        self.constraint._require_possible(best.scores.squeeze(-1), truth(belief, 1), given)
        return Certified(worlds, self._valid(worlds, given), best.scores.squeeze(-1))

    def sample(
        self,
        belief: Belief,
        count: int = 1,
        *,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Certified:
        """Worlds drawn from p(w | knowledge, P): all of them valid.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> ConstrainedLayer(Constraint(a & ~b)).sample(Belief.uniform((2, 2)), 2).worlds
        tensor([[1, 0],
                [1, 0]])
        """
        worlds = self.constraint.sample(belief, truth(belief, 1), count, given=given, generator=generator)
        total = self.constraint.log_prob(belief, truth(belief, 1), given=given)
        return Certified(worlds, self._valid(worlds, given), belief.log_prob(worlds) - total)

    def entropy(self, belief: Belief, *, given: Tensor | None = None) -> Tensor:
        """H(w | knowledge, P) in nats, ``(*batch,)``: how undecided the belief is among the valid worlds.

        Made small, it is neurosymbolic entropy regularisation (Ahmed et al. 2022, "Neuro-symbolic entropy
        regularization"): a network should be sure of one of the worlds that the knowledge allows.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> ConstrainedLayer(Constraint(a | b)).entropy(Belief.uniform((2, 2))).exp()
        tensor(3.)
        """
        return self.constraint.entropy(belief, truth(belief, 1), given=given)

    def _valid(self, worlds: Tensor, given: Tensor | None) -> Tensor:
        return self.constraint.problem(worlds, given).squeeze(-1) == 1
