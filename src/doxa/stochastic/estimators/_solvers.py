r"""Black-box combinatorial solvers inside a model: perturb and solve.

A solver maps weights u to a discrete solution z(u), such as a shortest path. Perturbing its input, u ~ q_θ (a Normal
or Gumbel around θ), makes the expected cost E[f(z(u))] a smooth function of θ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import log_prob
from doxa.stochastic.estimators._random import reparameterised
from doxa.stochastic.estimators._score import LeaveOneOut

__all__ = ["IMLE", "PerturbAndMAP"]

Solver = Callable[[Tensor], Tensor]


class PerturbAndMAP(LeaveOneOut):
    """Solutions of perturbed inputs, with the score function of the perturbation: unbiased at any order.

    >>> import torch
    >>> from torch.distributions import Independent, Normal
    >>> from doxa.stochastic import Tape
    >>> solver = lambda u: torch.nn.functional.one_hot(u.argmax(-1), u.shape[-1]).float()
    >>> theta = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Independent(Normal(theta, 1.0), 1), PerturbAndMAP(solver, n=8))
    >>> _ = tape.cost(z @ torch.tensor([1.0, 2.0, 4.0]))
    >>> (g,) = torch.autograd.grad(tape.surrogate(), theta)
    """

    distributions = "any, as the solver's input"

    def __init__(self, solver: Solver, n: int = 2) -> None:
        super().__init__(n)
        self.solver = solver

    def propose(self, distribution: Distribution, n: int) -> Draw:
        u = distribution.sample(torch.Size([n]))
        with torch.no_grad():
            return Draw(self.solver(u), distribution, input=u)

    def gradient(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.notes["input"])

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        return None


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

    >>> import torch
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
        if not step > 0:
            raise ConfigError(f"step is {step}, expected a positive number")
        self.solver, self.step = solver, step

    def fits(self, distribution: Distribution) -> bool:
        return bool(distribution.has_rsample)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        if not distribution.has_rsample:
            raise ConfigError(
                f"IMLE needs a distribution with rsample around the weights, got {type(distribution).__name__}"
            )
        u = reparameterised(distribution, n)
        z: Tensor = _Solve.apply(u, self.solver, self.step)  # type: ignore[no-untyped-call]
        if z.shape != u.shape:
            raise ConfigError(
                f"IMLE needs solutions of the shape of the weights; got {tuple(z.shape)} from {tuple(u.shape)}"
            )
        return Draw(z, distribution)
