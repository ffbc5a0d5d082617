"""Belief priors: the distributions over beliefs for which an inference model is trained."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from doxa.amortized._logspace import value_mask
from doxa.amortized.training._dirichlet import SMALLEST, DirichletFit, dirichlet_log_sample
from doxa.amortized.training._ring import Ring
from doxa.errors import ConfigError
from doxa.problem import Belief


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
        alpha = self.concentration.expand(count, *self.concentration.shape)
        return Belief(dirichlet_log_sample(alpha, generator), self.sizes, validate=False)


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
        return Belief(dirichlet_log_sample(alpha.expand(count, *alpha.shape), generator), self.sizes, validate=False)


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
        alpha = torch.where(self.exists, alpha, torch.zeros_like(alpha))
        return Belief(dirichlet_log_sample(alpha, generator), self.sizes, validate=False)


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
