r"""Estimators that sample without replacement: the unordered set, and the score function with Gumbel-top-k weights.

With S the set drawn, r = 1 − Σ_{s∈S} p_s, and G(T) the probability that, T ⊆ S having been drawn, the rest follows,

    G(S) = 1,      G(T) = Σ_{s∈S∖T} p_s / (r + Σ_{u∈S∖T} p_u) · G(T ∪ {s}),

so that p(U=S) = G(∅), p(U=S | o₁=x) = G({x}) and p(U=S | o₁=x, o₂=y) = G({x, y}). Every summand is positive, so nothing
cancels. For large k the same numbers are integrals (Kool, van Hoof and Welling 2020),

    G(T) = ∫ Π_{s∈S∖T} (1 − exp(−p_s/r · e^{−g})) dGumbel(g),

which the trapezoidal rule computes to full precision: the integrand is analytic and decays doubly exponentially.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw
from doxa.stochastic.estimators._factors import MOST_OUTCOMES, dtype_of, log_prob, repeat_batch, support, total_size
from doxa.stochastic.estimators._score import Score
from doxa.stochastic.estimators._search import all_orders, has_tokens, log_outside, stochastic_beam, tokens_of
from doxa.stochastic.tape._magic import is_traced

SUBSETS_UP_TO = 9


class _Different(Score):
    distributions = "independent finite factors, Sequences"
    least = 2
    independent = False

    def __init__(self, n: int = 2, baseline: bool = True) -> None:
        super().__init__(n, baseline)

    @property
    def controls(self) -> bool:
        return bool(self.baseline)

    def fits(self, distribution: Distribution) -> bool:
        return has_tokens(distribution, self.n)

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["log_weight"].exp().to(dtype_of(draw.distribution))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}, baseline={self.baseline})"


class UnorderedSet(_Different):
    r"""The unordered set estimator: n different values, weighted as if their order had been averaged out.

        w(x) = ⊥ p(x) p(U|o₁=x) / p(U),      l = log p(x),
        a = (1 − □(l)) ⊥ Σ_{x'∈S} p(x') r(x, x') f(x'),      r = p(U|o₁=x,o₂=x') / p(U|o₁=x),      r(x, x) = 1,

    unbiased at any order (errata 4.2). The weights sum to 1. Set probabilities are computed in float64 log space, so
    spaces of 2^40 or 10^20 values are as good as small ones.

    >>> from torch.distributions import Bernoulli, Independent
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Independent(Bernoulli(logits=torch.zeros(40)), 1), UnorderedSet(5))
    >>> z.shape
    torch.Size([5, 40])
    """

    def propose(self, distribution: Distribution, n: int) -> Draw:
        model = tokens_of(distribution, "UnorderedSet")
        if model.size is not None and model.size < n:
            raise ConfigError(f"UnorderedSet({n}) needs {n} different values, the distribution has {model.size}")
        with torch.no_grad():
            tokens, log_p, _ = stochastic_beam(model, n)
            return self._complete(distribution, model.values(tokens), log_p, log_outside(model, tokens, log_p))

    def _complete(self, distribution: Distribution, value: Tensor, log_p: Tensor, log_rest: Tensor) -> Draw:
        """Notes: the log-weights (k, *batch), and the matrix p(x') r(x, x') as (k, *batch, k)."""
        whole, first, second = set_log_probs(log_p, log_rest)
        weight = log_p + first - whole.unsqueeze(-1)
        ratio = log_p.unsqueeze(-2) + second - first.unsqueeze(-1)
        shape = (value.shape[0], *distribution.batch_shape)
        return Draw(
            value,
            distribution,
            log_weight=weight.movedim(-1, 0).reshape(shape),
            log_ratio=ratio.movedim(-2, 0).reshape((*shape, value.shape[0])),
        )

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        ratio = draw.notes["log_ratio"].exp()
        b = (ratio * cost.double().movedim(0, -1).unsqueeze(0)).sum(-1)
        return (1 - box) * b.to(box.dtype)

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        size = total_size(distribution)
        if size is None or size**n > MOST_OUTCOMES:
            return None
        values = support(distribution)
        with torch.no_grad():
            log_p = log_prob(distribution, values).double()
            orders, prob, rest = all_orders(log_p, n)
            wide = repeat_batch(distribution, orders.shape[1])
            return self._complete(wide, values[orders], log_p[orders].movedim(0, -1), rest), prob


class ScoreWithoutReplacement(_Different):
    r"""The score function on n different values with inclusion weights (Kool, van Hoof and Welling 2019).

    With κ the (n+1)-th largest Gumbel-perturbed log-probability, each of the n values above it has

        w(x) = ⊥ p(x) / q(x),      q(x) = P(log p(x) + Gumbel > κ) = 1 − exp(−exp(log p(x) − κ)),

    and the baseline of x is Σ_{x'≠x} w(x') f(x') + p(x) f(x): given κ the values enter independently, so it has the
    expectation E[f] for every x, and its control variate is zero on average at any order.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(torch.ones(10)), ScoreWithoutReplacement(4))
    >>> len(set(z.tolist()))
    4
    """

    def propose(self, distribution: Distribution, n: int) -> Draw:
        model = tokens_of(distribution, "ScoreWithoutReplacement")
        if model.size is not None and model.size <= n:
            raise ConfigError(f"{self!r} needs more values, the distribution has {model.size}; use Enumerate()")
        with torch.no_grad():
            tokens, log_p, noisy = stochastic_beam(model, n + 1)
            log_x = log_p[:, :n] - noisy[:, n:]
            inclusion = torch.where(log_x < -30, log_x, torch.log(-torch.expm1(-log_x.exp())))
            weight = log_p[:, :n] - inclusion
            shape = (n, *distribution.batch_shape)
            notes = [t.movedim(-1, 0).reshape(shape) for t in (weight, log_p[:, :n])]
            return Draw(model.values(tokens[:, :n]), distribution, log_weight=notes[0], log_p=notes[1])

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        w, p = draw.notes["log_weight"].exp(), draw.notes["log_p"].exp()
        b = (w * cost).sum(0, keepdim=True) + (p - w) * cost
        return (1 - box) * b.to(box.dtype)


def set_log_probs(log_p: Tensor, log_rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(U), log p(U | o₁) and log p(U | o₁, o₂) of sets (..., k): shapes (...), (..., k), (..., k, k).

    On the diagonal of the last one stands p(U | o₁), so that the ratio of the two is 1 (errata 4.2).

    >>> p = torch.tensor([0.5, 0.3], dtype=torch.float64)
    >>> u, first, _ = set_log_probs(p.log(), torch.tensor(0.2, dtype=torch.float64).log())
    >>> u.exp(), (p.log() + first - u).exp()
    (tensor(0.5143, dtype=torch.float64), tensor([0.5833, 0.4167], dtype=torch.float64))
    """
    if log_p.shape[-1] <= SUBSETS_UP_TO:
        return by_subsets(log_p, log_rest)
    if is_traced(log_p):
        raise ConfigError(f"torch.compile and vmap do not show the data; take at most {SUBSETS_UP_TO} values there")
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
