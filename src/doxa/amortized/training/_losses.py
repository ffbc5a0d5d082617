"""How far q is from p: divergences, the losses that an inference model is trained on, and what is left after it."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from doxa.amortized._decoding import draw
from doxa.amortized.models._model import InferenceModel, frozen, log_world, pick
from doxa.amortized.pruners._pruner import Pruner
from doxa.errors import ConfigError
from doxa.problem import Belief, Problem
from doxa.problem._logspace import NEG_INF

Divergence = Literal["matching", "forward-kl", "reverse-kl", "hellinger"]
Policy = Literal["off", "on"]
WRONG_KIND = "kind is {!r}, expected 'matching', 'forward-kl', 'reverse-kl' or 'hellinger'"


def divergence(log_p: Tensor, log_q: Tensor, kind: Divergence = "forward-kl") -> Tensor:
    """The divergence of two distributions, given by the log-probabilities of all outcomes on the last axis.

        forward KL    KL(p ‖ q) = Σ p log(p / q)
        reverse KL    KL(q ‖ p) = Σ q log(q / p)
        Hellinger     H² = ½ Σ (√p - √q)² = 1 - Σ √(p q)                            (errata 5.3)
        matching      E_p[log²(q / p)], the pseudo-divergence of f(t) = t log² t

    Outcomes of probability 0 on the left of a logarithm count 0.
    """
    if kind == "hellinger":
        both = (0.5 * (log_p + log_q)).exp()
        return 1 - both.sum(-1)
    if kind == "reverse-kl":
        log_p, log_q = log_q, log_p
    elif kind not in ("forward-kl", "matching"):
        raise ConfigError(WRONG_KIND.format(kind))
    counts = log_p > NEG_INF
    ratio = torch.where(counts, log_p, 0.0) - torch.where(counts, log_q, 0.0)
    return (log_p.exp() * (ratio.square() if kind == "matching" else ratio)).sum(-1)


def sampled_divergence(log_q: Tensor, log_p: Tensor, kind: Divergence = "matching", policy: Policy = "off") -> Tensor:
    """One loss per sample, whose expectation has the gradient of the divergence with respect to the parameters of q.

    The samples came from p (``"off"``) or from q (``"on"``: ∇ Σ q f = E_q[f ∇ log q] + E_q[∇ f]; ``"matching"`` is
    taken without the first term, and has the gradient 2 ∇ KL(q ‖ p), as in the dissertation).
    """
    ratio = log_q - log_p
    fixed = ratio.detach()
    if policy not in ("off", "on"):
        raise ConfigError(f"policy is {policy!r}, expected 'off' or 'on'")
    off = policy == "off"
    if kind == "matching":
        return ratio.square()
    if kind == "forward-kl":
        # On policy: weights p/q, and E_q[(p/q) ∇ log q] is minus the gradient.
        return -ratio if off else (-fixed).exp() * -ratio
    if kind == "reverse-kl":
        # Off policy: E_p[(q/p) log(q/p)]. On policy: the gradient of ½ log²(q/p), at the value log(q/p).
        return ratio.exp() * ratio if off else fixed + 0.5 * (ratio.square() - fixed.square())
    if kind == "hellinger":
        # Off policy: 1 - E_p √(q/p). On policy: 1 - E_q √(p/q), and ∇ Σ √(pq) = ½ E_q[√(p/q) ∇ log q].
        return 1 - (0.5 * ratio).exp() if off else 1 - (-0.5 * fixed).exp() * (1 + 0.5 * (ratio - fixed))
    raise ConfigError(WRONG_KIND.format(kind))


def prediction_loss(
    model: InferenceModel, belief: Belief, worlds: Tensor, pruner: Pruner | None = None, *, given: Tensor | None = None
) -> Tensor:
    """-log q(c(w) | P), ``(*batch,)``, for worlds ``(*batch, W)`` drawn from the belief (dissertation, "L_Pred")."""
    return -model.log_prob(belief, model.problem(worlds, given), pruner, given=given)


def joint_matching_loss(
    model: InferenceModel,
    belief: Belief,
    worlds: Tensor,
    pruner: Pruner | None = None,
    *,
    kind: Divergence = "matching",
    given: Tensor | None = None,
) -> Tensor:
    """(log q(w, c(w) | P) - log p(w | P))², ``(*batch,)``, or another divergence, off policy ("L_Expl")."""
    model.require_explaining()
    log_q = model.log_prob(belief, torch.cat([model.problem(worlds, given), worlds], -1), pruner, given=given)
    return sampled_divergence(log_q, log_world(belief.log_probs, worlds).to(log_q), kind, "off")


def on_policy_loss(
    model: InferenceModel,
    belief: Belief,
    pruner: Pruner | None = None,
    *,
    output: Tensor | None = None,
    kind: Divergence = "matching",
    given: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(log q(w, y | P) - log p(w, y | P))², ``(*batch,)``, for a sample of the model (after ``output``, if given).

    For knowledge that hardly ever holds. Samples that do not give their output have p = 0 and are left out.
    """
    model.require_explaining()
    belief = belief.detach()
    outputs = len(model.problem.output)
    tokens = draw(model, belief, prefix=output, given=given, pruner=pruner, generator=generator).tokens.squeeze(-2)
    worlds = tokens[..., outputs:].clamp(min=0)
    valid = (model.problem(worlds, given) == tokens[..., :outputs]).all(-1)
    log_q = model.log_prob(belief, tokens.clamp(min=0), pruner, given=given)
    log_p = log_world(belief.log_probs, worlds).to(log_q)
    usable = valid & (log_q > NEG_INF)
    log_q = torch.where(usable, log_q, log_p)  # a difference of 0: no loss, no gradient
    loss = sampled_divergence(log_q, log_p, kind, "on")
    return torch.where(usable, loss, torch.zeros_like(loss))


def supervised_loss(
    model: InferenceModel, belief: Belief, worlds: Tensor, pruner: Pruner | None = None, *, given: Tensor | None = None
) -> Tensor:
    """-log q(w | c(w), P), ``(*batch,)``, for worlds that were observed; the model is held fixed."""
    model.require_explaining()
    worlds = worlds.expand(*belief.batch_shape, worlds.shape[-1])
    tokens = torch.cat([model.problem(worlds, given), worlds], -1)
    with frozen(model):
        log_probs = model.log_probs(belief, tokens, pruner, given=given)
    return -pick(log_probs, tokens)[..., len(model.problem.output) :].sum(-1)


MOST_WORLDS = 1 << 16  # up to here all worlds are summed where no exact reasoner is given


class HasLogProb(Protocol):
    """A reasoner with probabilities: anything whose ``log_prob`` is log p(y | P), or an estimate of it."""

    @property
    def problem(self) -> Problem: ...

    def log_prob(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor: ...


class Calibration(NamedTuple):
    """KL(p(y | P) ‖ q(y | P)) in nats, ``(*batch,)``, and its standard error, 0 where it was summed: by so much the
    expected loss is above the exact one; where one output is certain, it is the loss itself.
    """

    kl: Tensor
    error: Tensor

    @property
    def mean(self) -> float:
        """The average over the beliefs."""
        return float(self.kl.mean())

    @property
    def largest(self) -> float:
        """That of the worst belief."""
        return float(self.kl.max())
