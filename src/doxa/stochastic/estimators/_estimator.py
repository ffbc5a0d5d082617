r"""What an estimator is: four pure functions, and what it declares about itself.

An estimator is a tuple ⟨q, w, l, a⟩ of a proposal, weights, a gradient function and a control variate (dissertation,
"Gradient Estimators in Storchastic"). For one node with cost f its surrogate is

    Σ_j w_j [ □(l_j) f(x_j) + a_j ],      x_1..x_m ~ q.

All four work on one leading axis of size m; extra points at which the cost is wanted are samples of weight 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from doxa.errors import ConfigError
from doxa.stochastic.estimators._factors import dtype_of, independent_values, plain, repeat_batch


class Draw:
    """What a proposal returns: the samples, the distribution they stand for, and anything the estimator noted.

    Every tensor begins with the axis of the m samples, followed by the batch shape of the distribution.

    >>> from torch.distributions import Normal
    >>> from doxa.stochastic import Score
    >>> draw = Score().propose(Normal(torch.zeros(4), 1.0), 3)
    >>> draw.value.shape, draw.m
    (torch.Size([3, 4]), 3)
    """

    def __init__(self, value: Tensor, distribution: Distribution, **notes: Tensor) -> None:
        self.value = value
        self.distribution = distribution
        self.notes = notes

    @property
    def m(self) -> int:
        return self.value.shape[0]

    def first(self, n: int) -> Tensor:
        """Weights: 1/n for the first n samples, 0 for the others."""
        weights = torch.zeros(self.m, device=self.value.device, dtype=dtype_of(self.distribution))
        weights[:n] = 1 / n
        return weights.reshape(-1, *(1,) * len(self.distribution.batch_shape))

    def map(self, function: Callable[[Tensor], Tensor], distribution: Distribution) -> Draw:
        """The same draw with every tensor passed through ``function``."""
        notes = {name: function(tensor) for name, tensor in self.notes.items()}
        return Draw(function(self.value), distribution, **notes)


class Estimator:
    """Base class: override what differs from a plain average over independent samples, without gradient.

    A new estimator is a dozen lines. This one takes antithetic pairs from a Gaussian, and is unbiased at any order:

    >>> from torch.distributions import Normal
    >>> from doxa.stochastic import Tape
    >>> class Antithetic(Estimator):
    ...     distributions = "Normal"
    ...     def propose(self, distribution, n):
    ...         x = distribution.sample((n,))
    ...         return Draw(torch.cat([x, 2 * distribution.mean - x]).detach(), distribution)
    ...     def gradient(self, draw):
    ...         return draw.distribution.log_prob(draw.value)
    >>> tape = Tape()
    >>> z = tape.sample(Normal(torch.tensor(0.3), 1.0), Antithetic(4))
    >>> z.shape, bool(torch.allclose(z.mean(), torch.tensor(0.3)))
    (torch.Size([8]), True)

    Class attributes are the declaration: ``order`` (derivatives unbiased up to it, ``inf`` for any), ``distributions``
    and ``evaluations`` (in words, for the catalogue), ``learnable``, ``biased``, ``stateful``, and ``independent`` (the
    proposal draws independent values, so that ``outcomes`` can list all there are).
    """

    order: float = inf
    distributions: str = "any"
    evaluations: str = "n"
    learnable: bool = False
    biased: bool = False
    stateful: bool = False
    independent: bool = False
    least: int = 1
    n: int = 1

    def __init__(self, n: int = 1) -> None:
        self.n = self.checked(n)

    def __eq__(self, other: object) -> bool:
        """Equal settings are the same estimator, unless it learns or remembers."""
        if self is other or self.learnable or self.stateful or type(self) is not type(other):
            return self is other
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        return id(self) if self.learnable or self.stateful else hash((type(self), self.n))

    def checked(self, n: int) -> int:
        """``n``, if this estimator can work with so many samples."""
        if not isinstance(n, int) or isinstance(n, bool) or n < self.least:
            raise ConfigError(f"{type(self).__name__} needs a whole number of samples n >= {self.least}, got {n!r}")
        return n

    # The four functions.

    def propose(self, distribution: Distribution, n: int) -> Draw:
        """Samples (m, *batch, *event) from the proposal; detached, unless the estimator is pathwise."""
        count = n * self.draws(distribution)
        return self.complete(distribution, self.source(distribution).sample(torch.Size([count])))

    def weight(self, draw: Draw) -> Tensor | None:
        """The weights (m, *batch); ``None`` is 1/m for every sample."""
        return None

    def gradient(self, draw: Draw) -> Tensor | None:
        """The gradient function l, (m, *batch); ``None`` is 0."""
        return None

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor | None:
        """The control variate a, (m, ...), from □(l) and the detached downstream cost (m, ...) of each sample."""
        return None

    # What the proposal is made of, unless ``propose`` is overridden.

    def source(self, distribution: Distribution) -> Distribution:
        """What is sampled."""
        return distribution

    def draws(self, distribution: Distribution) -> int:
        """How many independent draws each of the n samples needs, itself included."""
        return 1

    def complete(self, distribution: Distribution, drawn: Tensor) -> Draw:
        """A draw from n · ``draws`` independent values."""
        return Draw(drawn, distribution)

    # Declarations that depend on the distribution, and hooks.

    def order_for(self, distribution: Distribution) -> float:
        """The order up to which the estimator is unbiased for this distribution."""
        return self.order

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        """Every draw that ``propose`` can return, with its probability; ``None`` if they cannot be listed.

        The draw's tensors are (m, outcomes, *batch, ...), the probabilities (outcomes, *batch).
        """
        found = None
        if self.independent:
            found = independent_values(self.source(distribution), n * self.draws(distribution))
        if found is None:
            return None
        return self.complete(repeat_batch(distribution, found[1].shape[0]), found[0]), found[1]

    def observe(self, draw: Draw, cost: Tensor) -> None:
        """Learn from the costs of a draw; called once per tape, after the surrogate was built."""

    def fits(self, distribution: Distribution) -> bool:
        """Whether the estimator can sample this distribution."""
        return True

    @property
    def additive(self) -> bool:
        """Whether the control variate of a sum of costs is the sum of their control variates."""
        return True

    @property
    def controls(self) -> bool:
        """Whether there is a control variate."""
        return type(self).control is not Estimator.control

    def describe(self) -> str:
        return f"{type(self).__name__}@{self.n}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n})"


# What proposals are made of.


def require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{name} is {value}, expected a positive number")


def uniform(like: Tensor) -> Tensor:
    """Numbers strictly between 0 and 1 in the shape of ``like``."""
    # torch draws from [0, 1): only 0 has to go.
    return torch.rand_like(like).clamp_min(torch.finfo(like.dtype).tiny)


def reparameterised(distribution: Distribution, n: int) -> Tensor:
    """n live samples; those of a Normal as torch makes them, but of noise that torch.func.vmap can draw, too."""
    if not distribution.has_rsample:
        kind = type(distribution).__name__
        raise ConfigError(f"{kind} cannot be reparameterised; use LeaveOneOut, RELAX, or Implicit if it has a cdf")
    base, _ = plain(distribution)
    if isinstance(base, Normal):
        return base.loc + torch.randn_like(base.loc.detach().expand(n, *base.loc.shape)) * base.scale
    live: Tensor = distribution.rsample(torch.Size([n]))
    return live


def gumbel(like: Tensor) -> Tensor:
    """Standard Gumbel noise."""
    return -torch.log(-torch.log(uniform(like)))


def logistic(like: Tensor) -> Tensor:
    """Standard logistic noise."""
    u = uniform(like)
    return torch.log(u) - torch.log1p(-u)
