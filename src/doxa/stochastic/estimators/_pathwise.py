r"""Pathwise estimators: reparameterisation, implicit or not, relaxations of discrete variables, perturbed solvers.

A reparameterised sample is a differentiable function of the parameters and of noise that does not know them, so the
cost itself carries the gradient: w = 1/n, l = 0, a = 0 (dissertation, "Gradient Estimation Methods").
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log2
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, TransformedDistribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator, gumbel, logistic, reparameterised, require_positive
from doxa.stochastic.estimators._factors import Factors, clamped, factors, has_factors, plain

Solver = Callable[[Tensor], Tensor]
# torch differentiates the samples of these once, by the implicit method.
ONCE = ("Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT", "Wishart")


class Reparameterise(Estimator):
    """The reparameterisation gradient, by ``distribution.rsample``.

    For Gamma, Beta, Dirichlet and their relatives torch knows the first derivative only.

    >>> from torch.distributions import Normal
    >>> from doxa.stochastic import Tape
    >>> mean = torch.tensor(1.0, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Normal(mean, 0.5), Reparameterise(100))
    >>> _ = tape.cost(z * 3)
    >>> torch.autograd.grad(tape.surrogate(), mean)[0]
    tensor(3.0000)
    """

    distributions = "with rsample"

    def fits(self, distribution: Distribution) -> bool:
        return bool(distribution.has_rsample)

    def order_for(self, distribution: Distribution) -> float:
        while isinstance(distribution, Independent | TransformedDistribution):
            distribution = distribution.base_dist
        return 1 if type(distribution).__name__ in ONCE else inf

    def propose(self, distribution: Distribution, n: int) -> Draw:
        return Draw(reparameterised(distribution, n), distribution)


class Implicit(Estimator):
    r"""Implicit reparameterisation of continuous scalars with a distribution function F, such as mixtures.

    The sample x is fixed, and its dependence on the parameters is that of the solution of F_θ(x) = u. One Newton
    step with live parameters gives the first derivative, −∇F/p, and each further step doubles the order that is right:

        x ← x − (F_θ(x) − u) / p_θ(x),      starting from ⊥x,      u = ⊥F_θ(x).

    >>> from torch.distributions import Categorical, MixtureSameFamily, Normal
    >>> from doxa.stochastic import Tape
    >>> means = torch.tensor([-1.0, 1.0], requires_grad=True)
    >>> mixture = MixtureSameFamily(Categorical(torch.ones(2)), Normal(means, torch.ones(2)))
    >>> tape = Tape()
    >>> z = tape.sample(mixture, Implicit(10))
    >>> _ = tape.cost(z ** 2)
    >>> (g,) = torch.autograd.grad(tape.surrogate(), means)
    """

    distributions = "continuous scalars with cdf"
    order = 1

    def __init__(self, n: int = 1, order: int = 1) -> None:
        super().__init__(n)
        self.order = order

    def fits(self, distribution: Distribution) -> bool:
        base, _ = plain(distribution)
        if base.event_shape or has_factors(distribution) or getattr(base, "is_discrete", False):
            return False
        try:
            base.cdf(base.sample())
        except NotImplementedError:
            return False
        return True

    def propose(self, distribution: Distribution, n: int) -> Draw:
        base, _ = plain(distribution)
        if base.event_shape:
            raise ConfigError(f"Implicit needs independent scalars; {type(base).__name__} has vectors as values")
        x = distribution.sample(torch.Size([n]))
        try:
            u = base.cdf(x).detach()
        except NotImplementedError:
            raise ConfigError(f"{type(base).__name__} has no cdf; use Reparameterise or Score") from None
        density = base.log_prob(x).detach().exp()
        x = x - (base.cdf(x) - u) / density
        for _ in range(max(0, ceil(log2(self.order + 1)) - 1)):
            x = x - (base.cdf(x) - u) / base.log_prob(x).exp()
        return Draw(x, distribution)


class _Soft(Estimator):
    distributions = "Bernoulli, OneHotCategorical"
    biased = True

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution) and factors(distribution).soft is not None

    def vectors(self, distribution: Distribution) -> tuple[Factors, Callable[[Tensor], Tensor]]:
        """The factors, and what makes values of weights."""
        f = factors(distribution, type(self).__name__)
        if f.soft is None:
            raise ConfigError(f"{type(self).__name__} relaxes vectors, so indices will not do; use OneHotCategorical")
        return f, f.soft


class GumbelSoftmax(_Soft):
    """The Gumbel-softmax (concrete) relaxation: differentiable samples that are not quite discrete. Biased.

    ``hard=True`` returns discrete samples with the gradient of the relaxed ones (straight-through Gumbel).

    >>> from torch.distributions import OneHotCategorical
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(OneHotCategorical(logits=torch.zeros(2, 3)), GumbelSoftmax(temperature=0.5, n=4))
    >>> bool(torch.allclose(z.sum(-1), torch.ones(4, 2)))
    True
    """

    def __init__(self, temperature: float = 1.0, n: int = 1, hard: bool = False) -> None:
        super().__init__(n)
        require_positive("temperature", temperature)
        self.temperature, self.hard = temperature, hard

    def propose(self, distribution: Distribution, n: int) -> Draw:
        f, shaped = self.vectors(distribution)
        z = perturbed(f.log_probs, n)
        soft = torch.softmax(z / self.temperature, -1)
        if self.hard:
            hard = torch.nn.functional.one_hot(z.argmax(-1), z.shape[-1]).to(soft.dtype)
            soft = hard + (soft - soft.detach())
        return Draw(shaped(soft), distribution)

    def __repr__(self) -> str:
        return f"GumbelSoftmax({self.temperature}, n={self.n}, hard={self.hard})"


class StraightThrough(_Soft):
    """Discrete samples that pass the gradient on to the probabilities as if they were the sample. Biased.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> p = torch.tensor([0.3], requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(p), StraightThrough())
    >>> _ = tape.cost(5 * z)
    >>> torch.autograd.grad(tape.surrogate(allow_biased=True), p)[0]
    tensor([5.])
    """

    def propose(self, distribution: Distribution, n: int) -> Draw:
        f, shaped = self.vectors(distribution)
        p = shaped(f.log_probs.exp())
        return Draw(distribution.sample(torch.Size([n])) + (p - p.detach()), distribution)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, solver: Solver, step: float) -> Tensor:
        z = solver(u.detach())
        ctx.solver, ctx.step = solver, step
        ctx.save_for_backward(u, z)
        return z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        u, z = ctx.saved_tensors
        return (z - ctx.solver(u - ctx.step * grad)) / ctx.step, None, None


class IMLE(Estimator):
    r"""Implicit maximum likelihood (Niepert et al. 2021): solve again where the gradient of the cost points. Biased.

        ∇_θ ≈ ( z(u) − z(u − λ ∇_z f) ) / λ,      u = θ + noise.

    The distribution needs ``rsample``, and the solution the shape of the input. The second solution is computed in
    the backward pass, so a cost that is never differentiated costs one solution only.

    >>> from torch.distributions import Gumbel, Independent
    >>> from doxa.stochastic import Tape
    >>> solver = lambda u: torch.nn.functional.one_hot(u.argmax(-1), u.shape[-1]).float()
    >>> theta = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Independent(Gumbel(theta, 1.0), 1), IMLE(solver, step=10.0))
    >>> _ = tape.cost(z @ torch.tensor([1.0, 2.0, 4.0]))
    >>> (g,) = torch.autograd.grad(tape.surrogate(allow_biased=True), theta)
    """

    distributions = "with rsample, as the solver's input"
    evaluations = "n, and 2n solutions"
    order = 1
    biased = True

    def __init__(self, solver: Solver, n: int = 1, step: float = 10.0) -> None:
        super().__init__(n)
        require_positive("step", step)
        self.solver, self.step = solver, step

    def fits(self, distribution: Distribution) -> bool:
        return bool(distribution.has_rsample)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        u = reparameterised(distribution, n)
        z: Tensor = _Solve.apply(u, self.solver, self.step)  # type: ignore[no-untyped-call]
        if z.shape != u.shape:
            raise ConfigError(f"IMLE needs solutions of the weights' shape {tuple(u.shape)}, got {tuple(z.shape)}")
        return Draw(z, distribution)


def perturbed(log_probs: Tensor, n: int) -> Tensor:
    """Gumbel-perturbed log-probabilities (n, *batch, R, C), live; for two values logistic noise on their difference."""
    wide = log_probs.detach().expand(n, *log_probs.shape)
    if log_probs.shape[-1] == 2:
        noise = logistic(wide[..., 1])
        return torch.stack([torch.zeros_like(noise), clamped(log_probs[..., 1] - log_probs[..., 0]) + noise], -1)
    return log_probs + gumbel(wide)
