"""How far q is from p: divergences over all outcomes, and losses on samples whose gradients are theirs."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from doxa.amortized._logspace import NEG_INF
from doxa.errors import ConfigError

Divergence = Literal["matching", "forward-kl", "reverse-kl", "hellinger"]
Policy = Literal["off", "on"]


def divergence(log_p: Tensor, log_q: Tensor, kind: Divergence = "forward-kl") -> Tensor:
    """The divergence of two distributions, given by the log-probabilities of all outcomes on the last axis.

        forward KL    KL(p ‖ q) = Σ p log(p / q)
        reverse KL    KL(q ‖ p) = Σ q log(q / p)
        Hellinger     H² = ½ Σ (√p - √q)² = 1 - Σ √(p q)                            (errata 5.3)
        matching      E_p[log²(q / p)], the pseudo-divergence of f(t) = t log² t

    Outcomes of probability 0 on the left of a logarithm count 0.

    >>> p, q = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.9, 0.1]).log()
    >>> [round(divergence(p, q, kind).item(), 6) for kind in ("hellinger", "matching", "reverse-kl")]
    [0.105573, 1.467892, 0.368064]
    """
    if kind == "hellinger":
        both = (0.5 * (log_p + log_q)).exp()
        return 1 - both.sum(-1)
    if kind == "reverse-kl":
        log_p, log_q = log_q, log_p
    elif kind not in ("forward-kl", "matching"):
        raise ConfigError(f"kind is {kind!r}, expected 'matching', 'forward-kl', 'reverse-kl' or 'hellinger'")
    counts = log_p > NEG_INF
    ratio = torch.where(counts, log_p, 0.0) - torch.where(counts, log_q, 0.0)
    return (log_p.exp() * (ratio.square() if kind == "matching" else ratio)).sum(-1)


def sampled_divergence(log_q: Tensor, log_p: Tensor, kind: Divergence = "matching", policy: Policy = "off") -> Tensor:
    """One loss per sample, whose expectation has the gradient of the divergence with respect to the parameters of q.

    ``"off"``: the samples came from p. ``"on"``: they came from q, and the gradient through the sampling is accounted
    for, as ∇ Σ q f = E_q[f ∇ log q] + E_q[∇ f] demands. The exception is ``"matching"``, which the dissertation
    takes on policy without it: its gradient is then 2 ∇ KL(q ‖ p) ("Relation to common divergences").

    >>> log_q = torch.tensor([0.9, 0.1]).log().requires_grad_()
    >>> log_p = torch.tensor([0.5, 0.5]).log()
    >>> sampled_divergence(log_q, log_p).detach()                          # (log q - log p)²
    tensor([0.3455, 2.5903])
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
    raise ConfigError(f"kind is {kind!r}, expected 'matching', 'forward-kl', 'reverse-kl' or 'hellinger'")
