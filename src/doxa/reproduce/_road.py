"""ROAD-R's requirements on generated scores: how often random opinions break them, and what it takes to mend them.

A step is a batch of scores. There is nothing to learn: what is measured is the constrained layer itself. How fast it is
stands in ``benchmarks/road.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from doxa.data import read_road
from doxa.errors import DataError
from doxa.exact import ConstrainedLayer, Constraint
from doxa.problem import Belief
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, train


@dataclass(frozen=True)
class RoadConfig(Settings):
    """Scores are normal, log-odds of the labels; their means say how rare labels are."""

    save_every = 1
    evaluate_every = 1
    batch_size: int = 256
    spread: float = 2.0  # standard deviation of the log-odds
    mean: float = -1e-9  # of the log-odds; any number
    steps: int = 10

    def training(self, given: Given) -> Training:
        """The metrics are means over the batches so far, in percent."""
        if given.data is None:
            raise DataError("the requirements of ROAD-R are not generated: name the folder that has them with --data")
        requirements = read_road(given.data)
        layer = ConstrainedLayer(Constraint(requirements.clauses))
        variables = torch.tensor([abs(literal) - 1 for clause in requirements.clauses for literal in clause])
        signs = torch.tensor([literal > 0 for clause in requirements.clauses for literal in clause])
        owners = torch.tensor([i for i, clause in enumerate(requirements.clauses) for _ in clause])
        sums: dict[str, float] = {}

        def broken(labels: torch.Tensor) -> torch.Tensor:
            """Which requirements each row breaks, without the circuit: bool ``(n, requirements)``."""
            holds = (labels[:, variables] == signs).int()
            count = torch.zeros(len(labels), len(requirements.texts), dtype=torch.int32)
            return count.index_add_(1, owners, holds) == 0

        def step(i: int) -> dict[str, float]:
            random = torch.Generator().manual_seed(100_000 * given.seed + i)
            scores = torch.randn(self.batch_size, len(requirements.labels), generator=random)
            scores = self.mean + self.spread * scores
            belief = Belief.from_bernoulli(logits=scores)
            decoded = layer.decode(belief).worlds.bool()
            before, after = broken(scores > 0), broken(decoded)
            found = {
                "loss": layer.constraint.semantic_loss(belief).mean().item(),
                "consistent_before": 100 * (~before.any(1)).double().mean().item(),
                "requirements_before": 100 * before.double().mean().item(),
                "consistent": 100 * (~after.any(1)).double().mean().item(),
                "changed": (decoded != (scores > 0)).sum(1).double().mean().item(),
            }
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + value
            return {name: total / (i + 1) for name, total in sums.items()}

        return Training(step, {"sums": sums}, log_every=1, prefix_step=1)


ROAD = Experiment(
    name="road",
    about="ROAD-R: requirements of road events, on generated scores.",
    entries=(Entry("scores/even", RoadConfig()), Entry("scores/rare", RoadConfig(mean=-3.0))),
    train=train,
    metrics=("consistent", "consistent_before", "requirements_before", "changed", "loss"),
)
"""``changed`` counts the labels of a row that decoding changes; ``loss`` is the semantic loss."""
