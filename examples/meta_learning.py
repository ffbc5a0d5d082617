"""Learning to learn: from which start does one step of learning, on sampled experience, help most?

A policy chooses one of four actions with probabilities softmax(θ). Each of three tasks has its own costs c, and the
policy may adapt to a task by one step, θ' = θ − α ∇J(θ) with J(θ) = E_x[c_x]. The start θ is to make Σ J(θ') small:

    ∇ Σ J(θ') = Σ (I − α ∇²J(θ)) ∇J(θ').

The second derivative comes for free if the loss of the inner step can be differentiated twice. The usual loss of
reinforcement learning, log p(x) · cost, cannot: its second derivative lacks E[c ∇log p ∇log pᵀ], so a constant bill,
which no decision can change, pulls at the start. The tasks differ in such a constant.

python examples/meta_learning.py [--smoke]
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Categorical

from doxa.stochastic import LeaveOneOut, Tape

CHOICES = torch.tensor([[0.0, 4, 3, 2], [4, 0, 3, 2], [4, 4, 0, 2]], dtype=torch.float64)  # task, action
BILLS = torch.tensor([[-10.0], [0.0], [10.0]], dtype=torch.float64)
COSTS = CHOICES + BILLS
RATE = 1.0


def exact(theta: Tensor) -> Tensor:
    """Σ J over tasks, for policies (3, 4), summed over all actions."""
    return (theta.softmax(-1) * COSTS).sum()


def any_order(theta: Tensor, n: int) -> Tensor:
    """The surrogate of Σ J, which may be differentiated twice."""
    tape = Tape(batch_dims=1)
    x = tape.sample(Categorical(logits=theta), LeaveOneOut(n))
    tape.cost(COSTS.expand(n, 3, 4).gather(-1, x.unsqueeze(-1)).squeeze(-1))
    return tape.surrogate(order=2, reduction="sum")


def first_order_only(theta: Tensor, n: int) -> Tensor:
    """The usual loss: its first derivative is right on average, its second is not."""
    policy = Categorical(logits=theta)
    x = policy.sample((n,))
    return (policy.log_prob(x) * COSTS.expand(n, 3, 4).gather(-1, x.unsqueeze(-1)).squeeze(-1)).mean(0).sum()


def meta_gradient(theta: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of Σ J(θ') at the start θ, with the same loss in the inner and in the outer step."""
    theta = theta.detach().requires_grad_()
    start = theta.expand(3, 4)
    (slope,) = torch.autograd.grad(loss(start), start, create_graph=True)
    return torch.autograd.grad(loss(start - RATE * slope), theta)[0]


def after_adapting(theta: Tensor) -> float:
    """The average expected cost after an exact inner step, without the bills."""
    start = theta.detach().expand(3, 4).requires_grad_()
    (slope,) = torch.autograd.grad(exact(start), start)
    return float(((start - RATE * slope).detach().softmax(-1) * CHOICES).sum()) / 3


def main(smoke: bool) -> None:
    n, steps = (200, 20) if smoke else (2000, 300)
    losses = {
        "exact, by enumeration": exact,
        "any-order surrogate": lambda theta: any_order(theta, n),
        "first order only": lambda theta: first_order_only(theta, n),
    }
    torch.manual_seed(0)
    start = torch.tensor([0.5, -0.5, 0.0, 0.2], dtype=torch.float64)
    print(f"cost after one step of adaptation, before learning: {after_adapting(start):.3f}\n")
    for name, loss in losses.items():
        gradient = torch.stack([meta_gradient(start, loss) for _ in range(1 if loss is exact else 50)]).mean(0)
        theta = start
        for _ in range(steps):
            theta = theta - 0.1 * meta_gradient(theta, loss)
        shown = ", ".join(f"{g:6.2f}" for g in gradient.tolist())
        print(f"{name:<22} meta-gradient ({shown}), cost after {steps} steps {after_adapting(theta):.3f}")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
