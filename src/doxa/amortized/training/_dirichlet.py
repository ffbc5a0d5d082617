"""Dirichlet distributions over beliefs: sampling without underflow, and fitting to beliefs that were seen."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from doxa.errors import ConfigError

SMALLEST = 1e-7  # added to probabilities before their logarithm is taken (errata 5.5)


def dirichlet_log_sample(concentration: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """log P for P ~ Dirichlet(α) along the last axis, in log space; where α is 0, P is 0.

    A gamma variable of shape α is one of shape α + 1 times U^{1/α}. In log space this cannot underflow: with α = 0.005
    and five values, more than a tenth of the samples in float32 would otherwise be 0 in all five.

    >>> log_probs = dirichlet_log_sample(torch.full((1000, 5), 0.005))
    >>> bool(torch.allclose(log_probs.exp().sum(-1), torch.ones(1000))), bool(log_probs.exp().amax(-1).median() > 0.99)
    (True, True)
    """
    exists = concentration > 0
    shape = torch.where(exists, concentration, torch.ones_like(concentration))
    boosted = torch._standard_gamma(shape + 1, generator=generator)
    uniform = torch.rand(shape.shape, dtype=shape.dtype, device=shape.device, generator=generator)
    uniform = uniform.clamp(min=torch.finfo(shape.dtype).tiny)
    logits = boosted.log() + uniform.log() / shape
    return logits.masked_fill(~exists, -math.inf).log_softmax(-1)


class DirichletFit(nn.Module):
    """Independent Dirichlet distributions, fitted to the mean of log P (dissertation, "Dirichlet prior"; errata 5.5).

        loss(α) = - mean_w K (log Γ(Σ_v α_wv) - Σ_v log Γ(α_wv) + Σ_v (α_wv - 1) s_wv) + λ mean(α²),

    where K is the number of beliefs and s = mean log(P + 1e-7). The regularisation keeps α small, so that sampled
    beliefs stay diverse. α = softplus(raw), and everything is in buffers: it persists between fits and in checkpoints.

    Args:
        exists: bool ``(W, D)``, which values exist.
        method: ``"adam"`` takes steps of Adam, as the dissertation does; ``"minka"`` iterates Minka's fixed point,
            ψ(α_v) + c α_v = ψ(Σ α) + s_v with c = 2 λ W / (K n), n the number of all values, which needs no rate.
        initial: α at the start.
        l2: λ.
        rate: of Adam.
        iterations: steps per fit.

    >>> fit = DirichletFit(torch.ones(1, 2, dtype=torch.bool), method="minka", l2=0.0, iterations=100)
    >>> beliefs = dirichlet_log_sample(torch.tensor([[2.0, 5.0]]).expand(20_000, 1, 2)).exp()
    >>> fit(beliefs.double().add(1e-7).log().mean(0), 20_000)
    >>> bool(torch.allclose(fit.concentration, torch.tensor([[2.0, 5.0]]), rtol=0.1))
    True
    """

    exists: Tensor
    raw: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor

    def __init__(
        self,
        exists: Tensor,
        *,
        method: Literal["adam", "minka"] = "adam",
        initial: float = 0.1,
        l2: float = 900_000.0,
        rate: float = 0.01,
        iterations: int = 50,
    ) -> None:
        super().__init__()
        if method not in ("adam", "minka"):
            raise ConfigError(f"method is {method!r}, expected 'adam' or 'minka'")
        if not (initial > 0 and l2 >= 0 and rate > 0 and iterations >= 0):
            raise ConfigError(f"initial {initial}, l2 {l2}, rate {rate}, iterations {iterations}: expected positive")
        self.method, self.l2, self.rate, self.iterations = method, l2, rate, iterations
        raw = torch.full(exists.shape, initial + math.log(-math.expm1(-initial)))  # the inverse of softplus
        self.register_buffer("exists", exists, persistent=False)
        self.register_buffer("raw", raw)
        self.register_buffer("first", torch.zeros_like(raw))
        self.register_buffer("second", torch.zeros_like(raw))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @property
    def concentration(self) -> Tensor:
        """α, ``(W, D)``; 0 where a value does not exist."""
        return softplus(self.raw).masked_fill(~self.exists, 0.0)

    @torch.no_grad()
    def forward(self, statistic: Tensor, count: int) -> None:
        """Fit to the mean of log P, ``(W, D)``, over ``count`` beliefs."""
        statistic = torch.where(self.exists, statistic, torch.zeros_like(statistic)).to(self.raw)
        if self.method == "adam":
            self._adam(statistic, count)
        elif count:
            self._minka(statistic, count)

    def slope(self, statistic: Tensor, count: int) -> Tensor:
        """The derivative of the loss with respect to raw, in closed form."""
        exists = self.exists.to(self.raw)
        return self._slope(statistic, count / len(exists), 2 * self.l2 / exists.sum(), exists)

    def _slope(self, statistic: Tensor, weight: float, pull: Tensor, exists: Tensor) -> Tensor:
        # Every operation counts: this runs tens of times in each step of training, on small tensors.
        alpha = softplus(self.raw)
        unfitted = alpha.digamma().sub_((alpha * exists).sum(-1, keepdim=True).digamma_()).sub_(statistic)
        return unfitted.mul_(weight).addcmul_(alpha, pull).mul_(self.raw.sigmoid()).mul_(exists)

    def _adam(self, statistic: Tensor, count: int) -> None:
        exists = self.exists.to(self.raw)
        weight, pull = count / len(exists), 2 * self.l2 / exists.sum()
        done = int(self.steps)
        for step in range(done + 1, done + self.iterations + 1):
            slope = self._slope(statistic, weight, pull, exists)
            self.first.lerp_(slope, 0.1)
            self.second.mul_(0.999).addcmul_(slope, slope, value=0.001)
            size = (self.second / (1 - 0.999**step)).sqrt_().add_(1e-8)
            self.raw.addcdiv_(self.first, size, value=-self.rate / (1 - 0.9**step))
        self.steps += self.iterations

    def _minka(self, statistic: Tensor, count: int) -> None:
        alpha = softplus(self.raw).double()
        exists, statistic = self.exists, statistic.double()
        pull = 2 * self.l2 * len(alpha) / (float(exists.sum()) * count)
        for _ in range(self.iterations):
            wanted = torch.digamma((alpha * exists).sum(-1, keepdim=True)) + statistic
            alpha = _inverse(wanted, pull)
        floor = 1e-6  # below this, softplus and its inverse lose precision
        alpha = alpha.clamp(min=floor)
        raw = torch.where(alpha > 20, alpha, alpha + torch.log(-torch.expm1(-alpha)))
        self.raw.copy_(torch.where(exists, raw.to(self.raw), self.raw))


def _inverse(wanted: Tensor, pull: float) -> Tensor:
    """The x > 0 with ψ(x) + pull · x = wanted, by Newton's method on log x: the left side increases from -∞ to ∞."""
    # For pull = 0 these are Minka's starting values; a positive pull only makes x smaller.
    x = torch.where(wanted >= -2.22, wanted.exp() + 0.5, -1 / (wanted + 0.5772156649015329).clamp(max=-1e-3))
    if pull > 0:
        x = torch.minimum(x, (wanted.clamp(min=1.0) + 5) / pull).clamp(min=1e-12)
    for _ in range(30):
        value = torch.digamma(x) + pull * x - wanted
        slope = x * (torch.polygamma(1, x) + pull)
        x = x * (-value / slope).clamp(-2, 2).exp()
    return x
