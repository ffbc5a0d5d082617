r"""Probabilities of sets drawn without replacement, right for spaces of any size.

Draw k values one after another, never the same twice. With S the set drawn, r = 1 − Σ_{s∈S} p_s what is left
outside, and G(T) the probability that, T ⊆ S having been drawn, the rest of S follows,

    G(S) = 1,      G(T) = Σ_{s∈S∖T} p_s / (r + Σ_{u∈S∖T} p_u) · G(T ∪ {s}),

so that p(U=S) = G(∅), p(U=S | o₁=x) = G({x}) and p(U=S | o₁=x, o₂=y) = G({x, y}). Every summand is positive: this is
inclusion and exclusion without its cancellation, in log space and float64, over the 2^k subsets. For large k the same
numbers are integrals (Kool, van Hoof and Welling 2020),

    G(T) = ∫ Π_{s∈S∖T} (1 − exp(−p_s/r · e^{−g})) dGumbel(g),

which the trapezoidal rule computes to full precision, because the integrand is analytic and decays doubly
exponentially.
"""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.stochastic.tape._tracing import is_traced

__all__ = ["SUBSETS_UP_TO", "by_quadrature", "by_subsets", "set_log_probs"]

SUBSETS_UP_TO = 9


def set_log_probs(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(U), log p(U | o₁) and log p(U | o₁, o₂) of sets (..., k): shapes (...), (..., k), (..., k, k).

    ``log_p`` (float64) holds the log-probabilities of the members, ``log_rest`` that of everything outside. On the
    diagonal of the last one stands p(U | o₁): a value is not drawn twice, and the ratio of the two is then 1 (errata
    4.2).

    >>> import torch
    >>> p = torch.tensor([0.5, 0.3], dtype=torch.float64)
    >>> u, first, _ = set_log_probs(p.log(), torch.tensor(0.2, dtype=torch.float64).log())
    >>> u.exp(), (p.log() + first - u).exp()
    (tensor(0.5143, dtype=torch.float64), tensor([0.5833, 0.4167], dtype=torch.float64))
    """
    if log_p.shape[-1] <= SUBSETS_UP_TO:
        return by_subsets(log_p, log_rest)
    if is_traced(log_p):
        raise ConfigError(
            f"sets of {log_p.shape[-1]} values are integrated over a range that depends on the data, and torch.compile "
            f"and vmap do not show the data; take at most {SUBSETS_UP_TO} values there"
        )
    return by_quadrature(log_p, log_rest)


def by_subsets(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By the recursion over subsets, 2^k · k terms."""
    k = log_p.shape[-1]
    full = (1 << k) - 1
    G: dict[int, Tensor] = {full: torch.zeros_like(log_rest)}
    left: dict[int, Tensor] = {full: log_rest}
    for T in reversed(range(full)):  # a larger set is a larger number
        members = [s for s in range(k) if not T >> s & 1]
        left[T] = torch.logaddexp(left[T | 1 << members[0]], log_p[..., members[0]])
        G[T] = torch.logsumexp(torch.stack([log_p[..., s] + G[T | 1 << s] for s in members], -1), -1) - left[T]
    first = torch.stack([G[1 << s] for s in range(k)], -1)
    rows = [torch.stack([G[1 << s | 1 << t] for t in range(k)], -1) for s in range(k)]
    return G[0], first, torch.stack(rows, -2)


def by_quadrature(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By the integral over the largest perturbed log-probability outside the set."""
    rest = log_rest.clamp_min(-700.0).unsqueeze(-1)
    log_a = log_p - rest
    # Where a is large the factors become 1 around g = log a; the integrand ends some 40 after that.
    high = float(log_a.max().clamp_min(0.0)) + 45.0
    g = torch.arange(-7.0, high, 0.1, dtype=log_p.dtype, device=log_p.device)
    log_x = log_a.unsqueeze(-1) - g  # (..., k, nodes)
    x = log_x.exp()
    factor = torch.where(x < 1e-6, log_x - x / 2, torch.log(-torch.expm1(-x.clamp_min(1e-6))))
    density = torch.log(torch.tensor(0.1, dtype=log_p.dtype)) - g - torch.exp(-g)
    whole = factor.sum(-2) + density
    u = torch.logsumexp(whole, -1)
    first = torch.logsumexp(whole.unsqueeze(-2) - factor, -1)
    second = torch.stack(
        [torch.logsumexp(whole.unsqueeze(-2) - factor - factor[..., i : i + 1, :], -1) for i in range(log_p.shape[-1])],
        -2,
    )
    second = torch.where(torch.eye(log_p.shape[-1], dtype=torch.bool, device=log_p.device), first.unsqueeze(-1), second)
    # A set that is all there is comes for certain.
    sure = torch.isinf(log_rest)
    return (
        torch.where(sure, 0.0, u),
        torch.where(sure.unsqueeze(-1), 0.0, first),
        torch.where(sure.unsqueeze(-1).unsqueeze(-1), 0.0, second),
    )
