"""A logic of your own: an operator that the library does not have, what it is good for, and learning with it.

What one sees: a t-norm is made from one function, its additive generator; its t-conorm, its implications and all
reductions follow. The library finds out by trying which laws it satisfies and where its gradients vanish. Then
all ravens are black: the same rule is learned with several logics, which draw different conclusions from the same
birds.

python examples/custom_logic.py [--smoke]
"""

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

import doxa
from doxa.doctor import examine
from doxa.fuzzy import Archimedean, Generator, Logic, implication_laws, single_passing, symmetric, tnorm_properties

KNOWLEDGE = """
    sort Bird
    pred raven(Bird)
    pred black(Bird)
    [ravens_are_black]  forall b: Bird. raven(b) -> black(b)
"""


@dataclass(frozen=True)
class CayleyGenerator(Generator):
    """g(x) = (1 - x)/(1 + x): falls from 1 at 0 to 0 at 1, and is its own inverse."""

    zero = 1.0

    @property
    def convex(self) -> bool:
        return True

    def __call__(self, x: Tensor) -> Tensor:
        return (1 - x) / (1 + x)

    def inverse(self, y: Tensor) -> Tensor:
        return ((1 - y) / (1 + y)).clamp(min=0)  # 0 beyond g(0)

    def log_slope(self, x: Tensor) -> Tensor:
        return -2 * torch.log1p(x)  # but for a constant


@dataclass(frozen=True)
class Cayley(Archimedean):
    """T(a, b) = g⁻¹(min(1, g(a) + g(b)))."""

    generator = CayleyGenerator()


def learn(logic: Logic | str, steps: int) -> tuple[Tensor, Tensor]:
    """Beliefs about three birds, moved until the rule is as true as it gets."""
    raven = torch.tensor([2.0, 2.0, -1.0], requires_grad=True)  # surely a raven, surely a raven, rather not
    black = torch.tensor([1.0, -2.0, -1.0], requires_grad=True)  # rather black, surely not, rather not
    model = doxa.Model(KNOWLEDGE, doxa.Fuzzy(logic))
    optimizer = torch.optim.SGD([raven, black], 0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(Bird=3, raven=doxa.logits(raven), black=doxa.logits(black)).backward()
        optimizer.step()
    return raven.detach().sigmoid(), black.detach().sigmoid()


def main(smoke: bool) -> None:
    cayley = Cayley()
    logic = symmetric(cayley, name="cayley")
    print(f"as a t-norm: {tnorm_properties(cayley)}")
    print(f"its implication: {implication_laws(logic.implies)}")
    print(f"only one of its arguments gets a gradient: {single_passing(cayley)}")
    print(examine(doxa.parse(KNOWLEDGE), logic, objects=3, draws=16 if smoke else 64), "\n")
    print("a raven that is not black: which of the two is given up?")
    for name in ("product", "log_product", "godel", "product:r", logic):
        raven, black = learn(name, 20 if smoke else 200)
        label = name if isinstance(name, str) else name.name
        print(f"{label:<12} raven {raven[1]:.2f} (was 0.88), black {black[1]:.2f} (was 0.12)")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
