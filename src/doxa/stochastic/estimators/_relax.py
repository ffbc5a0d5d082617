r"""Control variates that can be learnt: LAX, RELAX and REBAR (errata 4.2).

    LAX:     x reparameterised, the cost sees ⊥x,   l = log p(⊥x),   a = c(x) − □(l) c(⊥x)
    RELAX:   z relaxed, b = H(z), z̃ ~ p(z|b),       l = log p(b),    a = c(z) − ⊥c(z) − □(l) c(z̃) + ⊥c(z̃)

c is any differentiable function, which may depend on the parameters of the model. REBAR is RELAX with c the cost
itself at a relaxed sample. Train c with ``Tape.variance_objective``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import logsigmoid

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, reparameterised, uniform
from doxa.stochastic.estimators._factors import Factors, clamped, factors, has_factors, is_bernoulli
from doxa.stochastic.estimators._score import Score


class _Learnt(nn.Module, Score):
    learnable = True
    additive = False
    independent = False
    evaluations = "n, and 2n of c"

    def __init__(self, function: Callable[[Tensor], Tensor], n: int = 1) -> None:
        nn.Module.__init__(self)
        Score.__init__(self, n)
        self.function = function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.function).__name__}, n={self.n})"


class LAX(_Learnt):
    """The score function with a reparameterised control variate, for continuous variables.

    >>> from torch.distributions import Normal
    >>> from doxa.stochastic import Tape
    >>> mean = torch.tensor(0.5, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Normal(mean, 1.0), LAX(lambda x: x ** 2, n=3))
    >>> _ = tape.cost(z ** 2)                       # c equals the cost, so this is the reparameterisation gradient
    >>> g, = torch.autograd.grad(tape.surrogate(), mean)
    >>> bool(torch.allclose(g, 2 * z.mean()))
    True
    """

    distributions = "with rsample"

    def fits(self, distribution: Distribution) -> bool:
        return bool(distribution.has_rsample)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        if not distribution.has_rsample:
            raise ConfigError(f"LAX needs a distribution with rsample; for {type(distribution).__name__} use RELAX")
        x = reparameterised(distribution, n)
        return Draw(x.detach(), distribution, live=x)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        return self.function(draw.notes["live"]) - box * self.function(draw.value)


class RELAX(_Learnt):
    """The score function with a control variate on relaxed samples of discrete variables.

    ``function`` gets relaxed values (2n, *batch, …): for Bernoulli variables z = α + logit u in the shape of the
    value, for (one-hot) categorical ones the Gumbel-perturbed log-probabilities, with one entry for each category in
    the last dimension.

    >>> from torch.distributions import Bernoulli, Independent
    >>> from doxa.stochastic import Tape
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1), torch.nn.Flatten(-2))
    >>> relax = RELAX(net)
    >>> logits = torch.zeros(7, 4, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Independent(Bernoulli(logits=logits), 1), relax)
    >>> _ = tape.cost((z - 0.45).square().sum(-1))
    >>> loss = tape.surrogate()
    >>> slopes = torch.autograd.grad(tape.variance_objective([logits]), relax.parameters())
    """

    distributions = "independent finite factors"

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        f = factors(distribution, type(self).__name__)
        wide = f.log_probs.detach().expand(n, *f.log_probs.shape)
        wide = wide[..., 1] if wide.shape[-1] == 2 else wide
        return self._complete(distribution, f, uniform(wide), uniform(wide))

    def _complete(self, distribution: Distribution, f: Factors, u: Tensor, v: Tensor) -> Draw:
        """The relaxed sample from noise u, and a second one from noise v with the same discrete value."""
        if f.log_probs.shape[-1] == 2:
            alpha = clamped(f.log_probs[..., 1] - f.log_probs[..., 0])
            z = alpha + torch.log(u) - torch.log1p(-u)
            index = (z > 0).long()
            other = _binary_given(alpha, index, v)
        else:
            log_probs = clamped(f.log_probs)
            z = log_probs - torch.log(-torch.log(u))
            index = z.argmax(-1)
            other = _categorical_given(log_probs, index, v)
        return Draw(f.value(index.detach()), distribution, z=_shaped(f, z), other=_shaped(f, other))

    def control_function(self, z: Tensor, distribution: Distribution) -> Tensor:
        return self.function(z)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        both = torch.cat([draw.notes["z"], draw.notes["other"]])
        c, given = self.control_function(both, draw.distribution).chunk(2)
        return c - c.detach() - box * given + given.detach()


class REBAR(RELAX):
    """RELAX whose control variate is the cost at a relaxed sample, η f(softmax(z/τ)), with learnable η and τ.

    ``cost`` computes the cost of values (2n, *batch, *event) that need not be discrete.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> f = lambda z: (z - 0.45) ** 2
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=torch.zeros(5)), REBAR(f))
    >>> _ = tape.cost(f(z))
    >>> loss = tape.surrogate()
    """

    def __init__(
        self, cost: Callable[[Tensor], Tensor], n: int = 1, temperature: float = 0.5, scale: float = 1.0
    ) -> None:
        super().__init__(cost, n)
        if not temperature > 0:
            raise ConfigError(f"temperature is {temperature}, expected a positive number")
        self.log_temperature = nn.Parameter(torch.tensor(temperature).log())
        self.scale = nn.Parameter(torch.tensor(scale))

    def control_function(self, z: Tensor, distribution: Distribution) -> Tensor:
        temperature = self.log_temperature.exp()
        relaxed = torch.sigmoid(z / temperature) if is_bernoulli(distribution) else torch.softmax(z / temperature, -1)
        return self.scale * self.function(relaxed)


def _shaped(f: Factors, z: Tensor) -> Tensor:
    """Relaxed factors (m, *batch, R[, C]) in the shape of a value, or of its one-hot version for indices."""
    if f.log_probs.shape[-1] == 2:
        z = torch.stack([torch.zeros_like(z), z], -1)
    return f.soft(z) if f.soft is not None else z.reshape((*z.shape[:-2], *f.event, z.shape[-1]))


def _binary_given(alpha: Tensor, index: Tensor, v: Tensor) -> Tensor:
    """z̃ = α + logit u' with u' = v(1−p) if b = 0 and (1−p) + vp if b = 1: sums of positive numbers, in log space."""
    log_zero, log_one = logsigmoid(-alpha), logsigmoid(alpha)
    below, above = torch.log(v), torch.log1p(-v)
    one = index == 1
    log_u = torch.where(one, torch.logaddexp(log_zero, log_one + below), log_zero + below)
    log_rest = torch.where(one, log_one + above, torch.logaddexp(log_one, log_zero + above))
    return alpha + log_u - log_rest


def _categorical_given(log_probs: Tensor, index: Tensor, v: Tensor) -> Tensor:
    """Gumbel-perturbed log-probabilities given which one is largest."""
    index = index.unsqueeze(-1)
    log_e = torch.log(-torch.log(v))  # log of exponential noise
    top = -log_e.gather(-1, index)
    below = -torch.logaddexp(log_e - log_probs, -top)
    return below.scatter(-1, index, top)
