"""Regression with constraints: a curve through few noisy points that must rise, and must stay between 0 and 1.

What one sees: a network that fits ten points bends as it likes between them. Told that the curve never falls and never
leaves [0, 1] - which is known of a dose and its effect - it comes closer to the true curve, and hardly ever violates
what it was told, also where there are no points.

python examples/regression.py [--smoke]
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

import doxa

KNOWLEDGE = """
    sort Dose
    data steps(less: Dose, more: Dose)
    pred rises(Dose, Dose)
    pred positive(Dose)
    pred below_one(Dose)

    [monotone]  forall s in steps. rises(s.less, s.more)
    [effect]    forall s in steps. positive(s.less) & below_one(s.more)
"""
SHARP = 100.0  # how fast a comparison goes from false to true


def effect(dose: Tensor) -> Tensor:
    return torch.sigmoid(10 * (dose - 0.5))


class Compared(nn.Module):
    """How far what a curve says is above 0, as a logit."""

    def __init__(self, curve: nn.Module, margin: Callable[..., Tensor]) -> None:
        super().__init__()
        self.curve, self.margin = curve, margin

    def forward(self, *doses: Tensor) -> Tensor:
        return SHARP * self.margin(*map(self.curve, doses)) + 2


def train(dose: Tensor, seen: Tensor, weight: float, steps: int) -> nn.Module:
    torch.manual_seed(0)
    curve = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
    # A comparison of numbers that a network computes is a predicate with a degree of truth.
    model = doxa.Model(
        KNOWLEDGE,
        doxa.Fuzzy("log_product"),
        rises=doxa.logits(Compared(curve, lambda less, more: more - less)),
        positive=doxa.logits(Compared(curve, lambda y: y)),
        below_one=doxa.logits(Compared(curve, lambda y: 1 - y)),
    )
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(steps):
        loss = (curve(dose) - seen).square().mean()
        if weight:
            loss = loss + weight * model.loss(steps=neighbours(torch.rand(64, 1))) / 64
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return curve


def neighbours(dose: Tensor) -> dict[str, Tensor]:
    """Pairs of a dose and a little more; the knowledge is about all doses, so any will do."""
    return {"less": dose, "more": dose + 0.05}


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    dose = torch.linspace(0, 1, 10).unsqueeze(1)
    seen = effect(dose).squeeze(1) + 0.15 * torch.randn(10)
    grid = torch.linspace(0, 1, 201).unsqueeze(1)
    for name, weight in (("points alone", 0.0), ("with knowledge", 0.2)):
        curve = train(dose, seen, weight, 400 if smoke else 2000)
        with torch.no_grad():
            error = (curve(grid) - effect(grid).squeeze(1)).square().mean().sqrt()
            rising = (curve(grid).diff() >= 0).double().mean()
            inside = ((curve(grid) >= 0) & (curve(grid) <= 1)).double().mean()
        print(
            f"{name:<15} {error:.3f} from the true curve; rises on {rising:.0%} of the way, is inside on {inside:.0%}"
        )


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
