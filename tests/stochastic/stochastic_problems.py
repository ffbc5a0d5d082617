"""The golden problems of the verified reference: S1 with one node, S2 with two, and small ones of other kinds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, OneHotCategorical

from doxa.stochastic import Draw, Estimator, Tape, Verdict

THETA = torch.tensor(0.37, dtype=torch.float64)


def tensor(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


W, B, F = tensor([0.7, -0.4, 0.9]), tensor([0.1, 0.3, -0.2]), tensor([-2.0, 3.0, -0.4])
W2 = tensor([[0.5, -0.8, 0.2], [-0.3, 0.6, 1.1], [0.9, 0.1, -0.7]])
B2 = tensor([[0.2, -0.1, 0.4], [0.0, 0.3, -0.5], [-0.2, 0.6, 0.1]])
F2 = tensor([[1.0, -2.0, 0.5], [0.7, 3.0, -1.2], [2.2, -0.4, 1.6]])
S1_TRUTH = (0.075734, -0.759547, 2.182051, 4.554670)
S2_TRUTH = (0.749578, -0.068931, -0.261382, 0.712884)


def s1(theta: Tensor) -> Categorical:
    return Categorical(logits=theta.unsqueeze(-1) * W + B)


def s1_cost(k: Tensor, theta: Tensor) -> Tensor:
    k = k.double()
    return F[k.long()] * torch.cos(theta * (1 + 0.3 * k)) + 0.5 * theta**2 * k


def s2(first: Estimator, second: Estimator) -> Callable[[Tape, Tensor], None]:
    def model(tape: Tape, theta: Tensor) -> None:
        a = tape.sample(s1(theta), first)
        b = tape.sample(Categorical(logits=theta.unsqueeze(-1) * W2[a] + B2[a]), second)
        x, y = a.double(), b.double()
        tape.cost(F2[a, b] * torch.cos(theta * (1 + 0.3 * x) - 0.2 * y) + 0.5 * theta**2 * x)

    return model


def coin(theta: Tensor) -> Bernoulli:
    return Bernoulli(logits=0.7 * theta + 0.2)


def coin_cost(b: Tensor, theta: Tensor) -> Tensor:
    return torch.where(b > 0, 2 * torch.cos(theta) + 0.4 * theta, -0.7 * torch.cos(theta))


def coins(theta: Tensor) -> Independent:
    return Independent(Bernoulli(logits=theta.unsqueeze(-1) * tensor([0.7, -1.1]) + tensor([0.2, 0.4])), 1)


def coins_cost(b: Tensor, theta: Tensor) -> Tensor:
    return torch.cos(theta + b[..., 0]) * (1 + b[..., 1]) - 0.6 * b[..., 0] * b[..., 1] + theta * b[..., 1]


def one_hot(theta: Tensor) -> OneHotCategorical:
    return OneHotCategorical(logits=theta.unsqueeze(-1) * W + B)


def one_hot_cost(x: Tensor, theta: Tensor) -> Tensor:
    return s1_cost(x.argmax(-1), theta)


def pair(theta: Tensor) -> Independent:
    table = torch.stack([W, -W.flip(0)])
    return Independent(Categorical(logits=theta.unsqueeze(-1).unsqueeze(-1) * table + torch.stack([B, -B])), 1)


def pair_cost(x: Tensor, theta: Tensor) -> Tensor:
    return F2[x[..., 0], x[..., 1]] * torch.cos(theta * (1 + 0.3 * x[..., 0].double()))


def bell(theta: Tensor) -> Normal:
    return Normal(0.7 * theta, torch.exp(0.3 * theta))


def bell_cost(x: Tensor, theta: Tensor) -> Tensor:
    return torch.cos(x) * theta + 0.3 * x**2


PROBLEMS: dict[str, tuple[Callable[[Tensor], Distribution], Callable[[Tensor, Tensor], Tensor]]] = {
    "categorical": (s1, s1_cost),
    "one-hot": (one_hot, one_hot_cost),
    "pair of categoricals": (pair, pair_cost),
    "Bernoulli": (coin, coin_cost),
    "two Bernoullis": (coins, coins_cost),
    "Normal": (bell, bell_cost),
}


class FixedTape(Tape):
    """A tape on which the draw is chosen, not sampled."""

    def __init__(self, choose: Callable[[Distribution], Draw], batch_dims: int = 0) -> None:
        super().__init__(batch_dims)
        self.choose = choose

    def _propose(self, estimator: Estimator, distribution: Distribution, n: int) -> Draw:
        return self.choose(distribution)


def derivatives(loss: Tensor, theta: Tensor, order: int) -> list[float]:
    found = [loss]
    for _ in range(order):
        (loss,) = torch.autograd.grad(loss, theta, create_graph=True)
        found.append(loss)
    return [float(x.detach()) for x in found]


def told(check: Callable[[int], Verdict], order: int) -> Verdict:
    """The verdict up to the highest order that samples can tell about; no order may be found to be biased.

    Third derivatives have heavy tails, and weights 1 / q of samples without replacement no variance at all.
    """
    verdict = check(order)
    while verdict.kind == "undecided" and verdict.samples and order > 1:
        order -= 1
        verdict = check(order)
    return verdict


def no_variance(verdict: Verdict, *names: str) -> bool:
    """Whether nothing can be told because samples are drawn without replacement."""
    without = any("without" in name.lower() for name in names)
    return without and verdict.kind == "undecided" and "carry all of the variance" in str(verdict)
