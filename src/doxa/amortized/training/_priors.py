"""Belief priors: the distributions over beliefs for which an inference model is trained, and how they are fitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from doxa.amortized.models._model import value_mask
from doxa.errors import ConfigError
from doxa.problem import Belief


class Ring(nn.Module):
    """The last ``capacity`` rows of some shape, detached, in buffers: ``state_dict`` restores them to the bit."""

    rows: Tensor
    added: Tensor

    def __init__(self, row: Tensor, capacity: int = 2500) -> None:
        super().__init__()
        if capacity < 1:
            raise ConfigError(f"capacity is {capacity}, expected at least 1")
        self.capacity = capacity
        self.register_buffer("rows", row.repeat(capacity, *(1,) * row.ndim))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return min(int(self.added), self.capacity)

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """Keep rows ``(*batch, *row)``."""
        rows = rows.detach().reshape(-1, *self.rows.shape[1:])
        skipped = max(0, len(rows) - self.capacity)
        start = int(self.added) + skipped
        rows = rows[skipped:]
        places = (start + torch.arange(len(rows), device=self.rows.device)) % self.capacity
        self.rows[places] = rows.to(self.rows)
        self.added.fill_(start + len(rows))

    def stored(self) -> Tensor:
        """All rows that are kept, ``(n, *row)``, in no order."""
        return self.rows[: len(self)]


SMALLEST = 1e-7  # added to probabilities before their logarithm is taken (errata 5.5)


def dirichlet_log_sample(concentration: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """log P for P ~ Dirichlet(α) along the last axis, 0 where α is; in log space, where small α cannot underflow."""
    exists = concentration > 0
    shape = torch.where(exists, concentration, torch.ones_like(concentration))
    boosted = torch._standard_gamma(shape + 1, generator=generator)
    uniform = torch.rand(shape.shape, dtype=shape.dtype, device=shape.device, generator=generator)
    uniform = uniform.clamp(min=torch.finfo(shape.dtype).tiny)
    logits = boosted.log() + uniform.log() / shape
    return logits.masked_fill(~exists, -math.inf).log_softmax(-1)


class DirichletFit(nn.Module):
    """Independent Dirichlet distributions, fitted to s = mean log(P + 1e-7) of K beliefs (errata 5.5).

        loss(α) = - mean_w K (log Γ(Σ_v α_wv) - Σ_v log Γ(α_wv) + Σ_v (α_wv - 1) s_wv) + λ mean(α²),  α = softplus(raw)

    ``"adam"`` takes steps of Adam; ``"minka"`` iterates ψ(α_v) + c α_v = ψ(Σ α) + s_v, c = 2 λ W / (K n), n all values.
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
        for name, value in (("raw", raw), ("first", torch.zeros_like(raw)), ("second", torch.zeros_like(raw))):
            self.register_buffer(name, value)
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
            alpha = _inverse(torch.digamma((alpha * exists).sum(-1, keepdim=True)) + statistic, pull)
        alpha = alpha.clamp(min=1e-6)  # below this, softplus and its inverse lose precision
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


class Prior(nn.Module, ABC):
    """A distribution p(P) over beliefs (dissertation, "Belief prior design").

    ``observe`` is told what beliefs a perception network has, ``adapt`` is called before every update of the inference
    model, and ``sample`` draws beliefs. A prior of your own needs only the last.

    >>> class Ignorant(Prior):
    ...     def sample(self, count, *, generator=None):
    ...         return Belief.uniform(self.sizes, (count,))
    >>> Ignorant((10, 10)).sample(600)
    Belief(batch=(600,), sizes=(10, 10), dtype=torch.float32)
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)

    @abstractmethod
    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Belief:
        """``count`` beliefs."""

    def observe(self, belief: Belief) -> None:
        """Learn of beliefs that occur. Nothing, unless the prior keeps them."""

    def adapt(self) -> None:
        """Fit what was observed. Nothing, unless the prior has something to fit."""

    def _drawn(self, concentration: Tensor, generator: torch.Generator | None) -> Belief:
        return Belief(dirichlet_log_sample(concentration, generator), self.sizes, validate=False)


class _Remembering(Prior):
    """A prior that keeps the last beliefs."""

    def __init__(self, sizes: Sequence[int], capacity: int) -> None:
        super().__init__(sizes)
        self.memory = Ring(Belief.uniform(self.sizes).log_probs, capacity)

    def observe(self, belief: Belief) -> None:
        if belief.sizes != self.sizes:
            raise ConfigError(f"the belief is over domains {belief.sizes}, the prior over {self.sizes}")
        self.memory.add(belief.log_probs[..., : max(self.sizes)])


class FixedDirichlet(Prior):
    """Independent Dirichlet distributions with a given α (dissertation, "Warcraft": α = 0.005).

    Args:
        sizes: of the domains.
        concentration: α for all values, or a tensor ``(W, D)`` of them.

    >>> FixedDirichlet((5,) * 4, 0.005).sample(2).probs.shape
    torch.Size([2, 4, 5])
    """

    concentration: Tensor

    def __init__(self, sizes: Sequence[int], concentration: float | Tensor = 1.0) -> None:
        super().__init__(sizes)
        exists = value_mask(self.sizes)
        alpha = torch.as_tensor(concentration, dtype=torch.float32).expand(exists.shape)
        if not (alpha[exists] > 0).all():
            raise ConfigError("concentration has values that are not positive, expected α > 0 wherever a value exists")
        self.register_buffer("concentration", alpha.masked_fill(~exists, 0.0), persistent=False)

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Belief:
        return self._drawn(self.concentration.expand(count, *self.concentration.shape), generator)


class FittedDirichlet(_Remembering):
    """Dirichlet distributions fitted to the last beliefs that perception had: the dissertation's prior.

    Args:
        sizes: of the domains.
        capacity: how many beliefs are kept.
        method: how they are fitted, by Adam or by Minka's fixed point.
        initial: α at the start.
        l2: the regularisation, which must be large: without it, uniform beliefs at the start of training give a prior
            of uniform beliefs, and the inference model learns to ignore its input.
        rate: of Adam.
        iterations: steps per fit.

    >>> prior = FittedDirichlet((10, 10))
    >>> prior.observe(Belief.uniform((10, 10), batch=(16,)))
    >>> prior.adapt()
    >>> bool((prior.dirichlet.concentration < 0.2).all())                        # small: sampled beliefs are diverse
    True
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        capacity: int = 2500,
        method: Literal["adam", "minka"] = "adam",
        initial: float = 0.1,
        l2: float = 900_000.0,
        rate: float = 0.01,
        iterations: int = 50,
    ) -> None:
        super().__init__(sizes, capacity)
        self.dirichlet = DirichletFit(
            value_mask(self.sizes), method=method, initial=initial, l2=l2, rate=rate, iterations=iterations
        )

    def adapt(self) -> None:
        if len(self.memory):
            statistic = self.memory.stored().exp().add(SMALLEST).log().mean(0)
            self.dirichlet(statistic, len(self.memory))

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Belief:
        alpha = self.dirichlet.concentration
        return self._drawn(alpha.expand(count, *alpha.shape), generator)


class MixtureDirichlet(Prior):
    """A mixture of Dirichlet distributions over concentrations, log-uniform from ``low`` to ``high``: nothing to fit.

    Small concentrations make nearly certain beliefs, as a trained network has; large ones nearly uniform beliefs, as
    it has at first. The mixture covers both, and all between.

    Args:
        sizes: of the domains.
        low: the smallest α.
        high: the largest.
        per: one α for all variables of a belief (``"belief"``), or one for each (``"variable"``).

    >>> spread = MixtureDirichlet((10,)).sample(1000).entropy()
    >>> bool(spread.min() < 0.1), bool(spread.max() > 2.2)
    (True, True)
    """

    def __init__(
        self,
        sizes: Sequence[int],
        low: float = 0.001,
        high: float = 10.0,
        *,
        per: Literal["belief", "variable"] = "belief",
    ) -> None:
        super().__init__(sizes)
        if not 0 < low <= high or per not in ("belief", "variable"):
            raise ConfigError(f"low {low}, high {high}, per {per!r}: expected 0 < low <= high, 'belief' or 'variable'")
        self.low, self.high, self.per = low, high, per
        self.exists: Tensor
        self.register_buffer("exists", value_mask(self.sizes), persistent=False)

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Belief:
        each = len(self.sizes) if self.per == "variable" else 1
        uniform = torch.rand(count, each, 1, device=self.exists.device, generator=generator)
        alpha = (math.log(self.low) + uniform * math.log(self.high / self.low)).exp()
        return self._drawn(torch.where(self.exists, alpha, torch.zeros_like(alpha)), generator)


class Replay(_Remembering):
    """The beliefs themselves that perception had last: no prior at all (the dissertation's ablation "no prior").

    Before anything was observed, beliefs are uniform. With ``shuffle`` the variables of a sampled belief come from
    different observed ones, which keeps the distribution of each and covers more combinations.

    >>> prior = Replay((2,))
    >>> prior.observe(Belief.from_bernoulli(probs=torch.tensor([[0.3]])))
    >>> prior.sample(3).probs[:, 0, 1]
    tensor([0.3000, 0.3000, 0.3000])
    """

    def __init__(self, sizes: Sequence[int], *, capacity: int = 2500, shuffle: bool = False) -> None:
        super().__init__(sizes, capacity)
        self.shuffle = shuffle

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Belief:
        if not len(self.memory):
            return Belief.uniform(self.sizes, (count,), device=self.memory.rows.device)
        stored = self.memory.stored()
        shape = (count, len(self.sizes)) if self.shuffle else (count, 1)
        rows = torch.randint(len(stored), shape, device=stored.device, generator=generator).expand(-1, len(self.sizes))
        log_probs = stored[rows, torch.arange(len(self.sizes), device=stored.device)]
        return Belief(log_probs, self.sizes, validate=False)
