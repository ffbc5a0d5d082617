r"""Antithetic estimators for Bernoulli variables: ARM, DisARM, and ARMS with more than two samples.

With α the logits, ε logistic noise, b = 1[α + ε > 0] and its twin b̃ = 1[α − ε > 0] (errata 4.2):

    ARM:      w = (1, 0),   l = log q_α(⊥(α+ε)),   a = (1 − □(l)) ½ (⊥f(b) + ⊥f(b̃))
    DisARM:   w = (½, ½),   l = ± Σ_d α_d ⊥[(−1)^{b̃_d} 1{b_d≠b̃_d} σ(|α_d|)],   a = 0

Both are unbiased for the value and the first derivative only: they use that the score of a logistic variable is odd.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import softplus

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator, uniform
from doxa.stochastic.estimators._factors import Factors, clamped, factors, is_bernoulli, repeat_batch
from doxa.stochastic.estimators._lifted import Lifted, padded


def _binary(distribution: Distribution, who: str) -> tuple[Factors, Tensor]:
    """The factors, and the logits (*batch, R), live."""
    if not is_bernoulli(distribution):
        raise ConfigError(f"{who} is for Bernoulli variables (also Independent), got {type(distribution).__name__}")
    f = factors(distribution)
    return f, clamped(f.log_probs[..., 1] - f.log_probs[..., 0])


class _Twins(Estimator):
    distributions = "Bernoulli"
    evaluations = "2n"
    order = 1

    def fits(self, distribution: Distribution) -> bool:
        return is_bernoulli(distribution)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        _, alpha = _binary(distribution, type(self).__name__)
        return self._complete(distribution, uniform(alpha.detach().expand(n, *alpha.shape)))

    def _complete(self, distribution: Distribution, u: Tensor) -> Draw:
        """Samples (b, b̃), 2n of them, from uniform noise (n, *batch, R); notes: ε for all of them."""
        f, alpha = _binary(distribution, type(self).__name__)
        with torch.no_grad():
            noise = torch.log(u) - torch.log1p(-u)
            noise = torch.cat([noise, -noise])
            return Draw(f.value((alpha + noise > 0).long()), distribution, noise=noise)


class ARM(_Twins):
    """Augment-REINFORCE-merge: the score of the logistic noise, with the average of a sample and its twin as baseline.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=torch.zeros(3)), ARM())
    >>> z.sum(0)                                                     # at logit 0 the twin is the opposite
    tensor([1., 1., 1.])
    """

    def weight(self, draw: Draw) -> Tensor:
        return draw.first(draw.m // 2)

    def gradient(self, draw: Draw) -> Tensor:
        _, alpha = _binary(draw.distribution, "ARM")
        x = (alpha.detach() + draw.notes["noise"][: draw.m // 2]) - alpha
        return padded((-x - 2 * softplus(-x)).sum(-1), draw.m)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        n = draw.m // 2
        return padded((1 - box[:n]) * (0.5 * (cost[:n] + cost[n:])), draw.m)


class DisARM(_Twins):
    """DisARM: ARM with the noise integrated out given the pair of samples.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), DisARM())
    >>> _ = tape.cost(z * 2)
    >>> torch.autograd.grad(tape.surrogate(reduction="sum"), logits)[0]     # ½ (f(1) − f(0)) σ(0)
    tensor([0.5000, 0.5000, 0.5000])
    """

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        f, alpha = _binary(distribution, "DisARM")
        if n > 1 or f.sizes != (2,):
            return None
        # Samples change where the noise passes ±α: three intervals of u, and everything is constant on each.
        with torch.no_grad():
            a = torch.sigmoid(-alpha[..., 0].abs().double())
            u = torch.stack([a / 2, torch.full_like(a, 0.5), 1 - a / 2]).unsqueeze(0).unsqueeze(-1)
            prob = torch.stack([a, 1 - 2 * a, a])
        return self._complete(repeat_batch(distribution, 3), u), prob

    def gradient(self, draw: Draw) -> Tensor:
        f, alpha = _binary(draw.distribution, "DisARM")
        n = draw.m // 2
        index = f.index(draw.value)
        sign = 1 - 2 * index[n:].to(alpha.dtype)
        factor = torch.where(index[:n] != index[n:], sign * torch.sigmoid(alpha.detach().abs()), 0.0)
        l = (alpha * factor).sum(-1)
        return torch.cat([l, -l])


class ARMS(Lifted):
    r"""ARMS: n mutually antithetic samples (Dimitriev and Zhou 2021), DisARM for n = 2.

    The samples come from a Dirichlet copula, u_i = 1 − (1 − d_i)^{n−1}, b_i = 1[u_i < p], so that any two are
    negatively correlated, with a correlation ρ known in closed form. Since E[b_i − p | b_j] = ρ (b_j − p), the gradient

        1/(n−1) Σ_i (f_i − f̄) (b_i − p) / (1 − ρ)

    is unbiased. It enters as a control variate of the score function.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=torch.zeros(3)), ARMS(4))
    >>> z.shape
    torch.Size([4, 3])
    """

    distributions = "Bernoulli"
    order = 1
    least = 2
    independent = False

    def __init__(self, n: int = 4) -> None:
        super().__init__(n)

    def fits(self, distribution: Distribution) -> bool:
        return is_bernoulli(distribution)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        f, alpha = _binary(distribution, "ARMS")
        with torch.no_grad():
            p = torch.sigmoid(alpha)
            e = -torch.log(uniform(p.expand(n, *p.shape)))
            d = e / e.sum(0)
            u = -torch.expm1((n - 1) * torch.log1p(-d.clamp_max(1 - torch.finfo(d.dtype).eps)))
            return Draw(f.value((u < p).long()), distribution)

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        f, alpha = _binary(draw.distribution, "ARMS")
        n = draw.m
        with torch.no_grad():
            p = torch.sigmoid(alpha)
            centred = f.index(main).to(p.dtype) - p
            above = (cost - cost.mean(0, keepdim=True)).unsqueeze(-1)
            slope = above * centred / (1 - correlation(p, n)) * (n / (n - 1))
        return (alpha * slope).sum(-1), None


def correlation(p: Tensor, n: int) -> Tensor:
    """The correlation of two of n Bernoulli variables with a Dirichlet copula.

    P(u_i < p, u_j < p) = 2p − 1 + max(0, 2 (1−p)^{1/(n−1)} − 1)^{n−1}, from the joint survival function (1 − a −
    c)^{n−1}.
    """
    q = p.double()
    both = 2 * q - 1 + (2 * (1 - q).pow(1 / (n - 1)) - 1).clamp_min(0).pow(n - 1)
    variance = (q * (1 - q)).clamp_min(1e-300)
    rho = (both - q * q) / variance
    # Never positive; towards p = 0 and p = 1 it tends to 0 and rounding would spoil the quotient.
    return torch.where(variance < 1e-12, 0.0, rho).clamp(-1.0, 0.0).to(p.dtype)
