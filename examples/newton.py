"""Newton's method on an expected cost: gradient and Hessian from one surrogate, estimated by sampling.

Six switches are on with probabilities σ(θ). What they cost depends on pairs of them, and decisiveness has a price:

    J(θ) = E_{x ~ Bernoulli(σ(θ))}[ xᵀQx + bᵀx ] + λ/2 |θ|²,      θ ← θ − (∇²J)⁻¹ ∇J.

The sum over all 64 settings serves as yardstick; sampling never looks at it.

python examples/newton.py [--smoke]
"""

import sys

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Independent

from doxa.stochastic import Enumerate, Estimator, LeaveOneOut, Tape

torch.manual_seed(1)
Q = torch.randn(6, 6, dtype=torch.float64)
B = torch.randn(6, dtype=torch.float64)
PRICE = 0.5


def expected_cost(theta: Tensor, estimator: Estimator) -> Tensor:
    """J(θ), to be differentiated twice."""
    tape = Tape()
    x = tape.sample(Independent(Bernoulli(logits=theta), 1), estimator)
    tape.cost(torch.einsum("...i,ij,...j->...", x, Q, x) + x @ B)
    tape.cost(PRICE / 2 * theta.square().sum())
    return tape.surrogate(order=2)


def derivatives(theta: Tensor, estimator: Estimator) -> tuple[Tensor, Tensor]:
    """Gradient and Hessian of J, both from the same samples."""
    theta = theta.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(expected_cost(theta, estimator), theta, create_graph=True)
    rows = [torch.autograd.grad(g, theta, retain_graph=True)[0] for g in gradient]
    return gradient.detach(), torch.stack(rows)


def newton(theta: Tensor, estimator: Estimator) -> Tensor:
    gradient, hessian = derivatives(theta, estimator)
    hessian = (hessian + hessian.T) / 2  # symmetric but for rounding
    return theta - torch.linalg.solve(hessian, gradient)


def descent(theta: Tensor, estimator: Estimator, rate: float = 0.5) -> Tensor:
    return theta - rate * derivatives(theta, estimator)[0]


def minimum() -> Tensor:
    """Where J is smallest, by exact Newton steps."""
    theta = torch.zeros(6, dtype=torch.float64)
    for _ in range(30):
        theta = newton(theta, Enumerate())
    return theta


def main(smoke: bool) -> None:
    best = minimum()
    samples = LeaveOneOut(500 if smoke else 20_000)
    by_newton = by_descent = torch.zeros(6, dtype=torch.float64)
    print(f"distance to the minimum, {samples.n} samples a step\nstep   Newton   gradient descent")
    for step in range(9):
        print(f"{step:4}   {(by_newton - best).norm():.4f}   {(by_descent - best).norm():.4f}")
        by_newton, by_descent = newton(by_newton, samples), descent(by_descent, samples)
    exact, found = (float(expected_cost(theta, Enumerate())) for theta in (best, by_newton))
    print(f"expected cost: {found:.4f} after Newton's steps, {exact:.4f} at the minimum")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
