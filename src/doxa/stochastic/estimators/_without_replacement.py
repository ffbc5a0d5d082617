r"""Estimators that sample without replacement: the unordered set, and the score function with Gumbel-top-k weights."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import dtype_of, has_factors, log_prob, repeat_batch, support, total_size
from doxa.stochastic.estimators._outcomes import MOST_OUTCOMES
from doxa.stochastic.estimators._search import NEVER, log_outside, stochastic_beam, tokens_of
from doxa.stochastic.estimators._sets import set_log_probs

__all__ = ["ScoreWithoutReplacement", "UnorderedSet"]


class _Different(Estimator):
    distributions = "independent finite factors, Sequences"
    least = 2

    def __init__(self, n: int = 2, baseline: bool = True) -> None:
        super().__init__(n)
        self.baseline = baseline

    @property
    def controls(self) -> bool:
        return self.baseline

    def fits(self, distribution: Distribution) -> bool:
        if not (has_factors(distribution) or hasattr(distribution, "as_tokens")):
            return False
        size = total_size(distribution)
        return size is None or size > self.n

    def gradient(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}, baseline={self.baseline})"


class UnorderedSet(_Different):
    r"""The unordered set estimator: n different values, weighted as if their order had been averaged out.

        w(x) = ⊥ p(x) p(U|o₁=x) / p(U),      l = log p(x),
        a = (1 − □(l)) ⊥ Σ_{x'∈S} p(x') r(x, x') f(x'),      r = p(U|o₁=x,o₂=x') / p(U|o₁=x),      r(x, x) = 1,

    unbiased at any order (errata 4.2). The weights sum to 1. Set probabilities are computed in float64 log space, so
    spaces of 2^40 or 10^20 values are as good as small ones.

    >>> import torch
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

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["log_weight"].exp().to(dtype_of(draw.distribution))

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
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
            orders = torch.tensor(list(permutations(range(size), n)), device=values.device).T  # (n, O)
            taken = log_p[orders]  # (n, O, *batch)
            prob, left = torch.ones_like(taken[0]), log_p.unsqueeze(1).expand(-1, *taken.shape[1:])
            for drawn, own in zip(orders, taken, strict=True):
                # What is left to draw from is summed, not subtracted from 1: it may be tiny. Impossible draws have p 0.
                prob = prob * torch.where(own > NEVER, (own - left.logsumexp(0)).exp(), 0.0)
                gone = torch.arange(size, device=orders.device).unsqueeze(-1) == drawn
                left = left.masked_fill(gone.reshape((*gone.shape, *(1,) * (taken.dim() - 2))), NEVER)
            wide = repeat_batch(distribution, orders.shape[1])
            return self._complete(wide, values[orders], taken.movedim(0, -1), left.logsumexp(0)), prob


class ScoreWithoutReplacement(_Different):
    r"""The score function on n different values with inclusion weights (Kool, van Hoof and Welling 2019).

    With κ the (n+1)-th largest Gumbel-perturbed log-probability, each of the n values above it has

        w(x) = ⊥ p(x) / q(x),      q(x) = P(log p(x) + Gumbel > κ) = 1 − exp(−exp(log p(x) − κ)),

    and the baseline of x is Σ_{x'≠x} w(x') f(x') + p(x) f(x): given κ the values enter independently, so it has the
    expectation E[f] for every x, and its control variate is zero on average at any order.

    >>> import torch
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
            raise ConfigError(
                f"ScoreWithoutReplacement({n}) needs more than {n} values, the distribution has {model.size}; "
                "use Enumerate()"
            )
        with torch.no_grad():
            tokens, log_p, noisy = stochastic_beam(model, n + 1)
            log_x = log_p[:, :n] - noisy[:, n:]
            inclusion = torch.where(log_x < -30, log_x, torch.log(-torch.expm1(-log_x.exp())))
            weight = log_p[:, :n] - inclusion
            shape = (n, *distribution.batch_shape)
            notes = [t.movedim(-1, 0).reshape(shape) for t in (weight, log_p[:, :n])]
            return Draw(model.values(tokens[:, :n]), distribution, log_weight=notes[0], log_p=notes[1])

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["log_weight"].exp().to(dtype_of(draw.distribution))

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        w, p = draw.notes["log_weight"].exp(), draw.notes["log_p"].exp()
        b = (w * cost).sum(0, keepdim=True) + (p - w) * cost
        return (1 - box) * b.to(box.dtype)
