"""Small problems of different shape, and every inference model on one of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from doxa.amortized import (
    CausalTransformer,
    Columns,
    FactorGraphModel,
    FactorMLPs,
    GridCNN,
    InferenceModel,
    MoveResNet,
    PairsModel,
    ScanModel,
)
from doxa.problem import Belief, Problem, addition, cnf, comparison, shortest_path

RAGGED = Problem((3, 2, 4), (5, 2), lambda w: torch.stack([w[..., 0] + w[..., 1], (w[..., 2] > 1).long()], -1))
SINGLE = Problem((1, 3), (3, 1), lambda w: torch.stack([w[..., 1], 0 * w[..., 0]], -1))
DIFFER = Problem(
    (3,) * 4, (2,) * 6, lambda w: torch.stack([w[..., i] != w[..., j] for i in range(4) for j in range(i)], -1)
)


def _walk(worlds: Tensor) -> Tensor:
    """Five moves on a 2 × 3 grid, decided by the costs in some way or other."""
    return torch.stack([(3 * worlds.sum(-1) + worlds[..., i] + i) % 9 for i in range(5)], -1)


WALK = Problem((2,) * 6, (9,) * 5, _walk)

MODELS: dict[str, Callable[[], InferenceModel]] = {
    "mlps": lambda: FactorMLPs(addition(1), hidden=12, layers=2),
    "mlps, prediction only": lambda: FactorMLPs(addition(2), hidden=12, layers=1, explain=False),
    "mlps, ragged": lambda: FactorMLPs(RAGGED, hidden=12),
    "mlps, single values": lambda: FactorMLPs(SINGLE, hidden=12),
    "scan": lambda: ScanModel(addition(2), hidden=8),
    "scan, prediction only": lambda: ScanModel(addition(3), hidden=8, explain=False, positions=False),
    "scan, ragged": lambda: ScanModel(RAGGED, hidden=8),
    "scan, single values": lambda: ScanModel(SINGLE, hidden=8),
    "scan, clauses": lambda: ScanModel(cnf([[1, 2], [-1, 3]]), hidden=8),
    "scan, odd columns": lambda: ScanModel(RAGGED, Columns(((1,), (), (0,)), ((2, 0), (1,), ())), hidden=8),
    "scan, one column": lambda: ScanModel(comparison(1), Columns(((0,),), ((0, 1),)), hidden=8),
    "transformer": lambda: CausalTransformer(addition(1), width=8, heads=2, layers=2),
    "transformer, ragged": lambda: CausalTransformer(RAGGED, width=8, heads=2, layers=1),
    "grid of moves": lambda: GridCNN(WALK, (2, 3), channels=6, layers=2),
    "grid of cells": lambda: GridCNN(shortest_path(2, 3), (2, 3), reads="cells", channels=6, layers=2),
    "residual network for each move": lambda: MoveResNet(WALK, (2, 3), channels=4),
    "graph of a sum": lambda: FactorGraphModel(addition(1), channels=6, rounds=2),
    "graph of clauses": lambda: FactorGraphModel(cnf([[1, 2], [-1, 3]]), channels=6, rounds=3),
    "graph of a comparison": lambda: FactorGraphModel(comparison(2), channels=6, rounds=3, explain=False),
    "pairs": lambda: PairsModel(DIFFER, hidden=12),
    "pairs in closed form": lambda: PairsModel(DIFFER, closed_form=True),
}


def model(name: str, dtype: torch.dtype = torch.float64) -> InferenceModel:
    torch.manual_seed(0)
    return MODELS[name]().to(dtype)


def belief(problem: Problem, *batch: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Belief:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(*batch, len(problem.world), max(problem.world), generator=generator, dtype=torch.float64)
    return Belief.from_logits((scale * logits).to(dtype), problem.world)


def tokens(m: InferenceModel, b: Belief) -> Tensor:
    """Tokens of worlds drawn from the belief."""
    worlds = b.sample(1, generator=torch.Generator().manual_seed(2))[0]
    outputs = m.problem(worlds)
    return torch.cat([outputs, worlds], -1) if m.explains else outputs


def repeated(b: Belief, count: int) -> Belief:
    """One belief ``()`` for ``count`` rows."""
    return Belief(b.log_probs.expand(count, *b.log_probs.shape), b.sizes)


def enumerate_tokens(m: InferenceModel) -> Tensor:
    """All sequences of a model in lexicographic order, ``(n, T)``."""
    grids = torch.meshgrid(*(torch.arange(size) for size in m.sizes), indexing="ij")
    return torch.stack([grid.flatten() for grid in grids], -1)
