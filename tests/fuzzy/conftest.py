"""The families of operators: one list for each kind. A new operator joins its list and inherits every check."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz

TNORM_FAMILY = [
    fz.Godel(),
    fz.Product(),
    fz.Lukasiewicz(),
    fz.Drastic(),
    fz.NilpotentMinimum(),
    *map(fz.Yager, (0.5, 1.0, 1.5, 2.0, 20.0)),
    *map(fz.SchweizerSklar, (-10.0, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 2.0)),
    *map(fz.Frank, (1e-3, 0.5, 1.0, 3.0, 1e3)),
    *map(fz.Hamacher, (0.0, 0.5, 1.0, 2.0, 5.0)),
    *map(fz.AczelAlsina, (0.5, 1.0, 2.0, 20.0)),
    *map(fz.Dombi, (0.5, 1.0, 2.0, 20.0)),
    *map(fz.SugenoWeber, (-0.5, 0.0, 2.0, 50.0)),
]

# Parameters so far out that laws hold only roughly in floating point; everything must still be finite.
EXTREME_TNORMS = [
    *map(fz.Yager, (0.1, 1e3)),
    *map(fz.SchweizerSklar, (-50.0, -1e-3, 1e-3, 5.0, 20.0)),
    *map(fz.Frank, (1e-30, 0.999, 1.001, 1e30)),
    *map(fz.Hamacher, (1e-6, 1e6)),
    *map(fz.AczelAlsina, (0.1, 50.0)),
    *map(fz.Dombi, (0.1, 50.0)),
    *map(fz.SugenoWeber, (-0.999, -1e-4, 1e-4, 1e6)),
    fz.Yager(0.5, eps=1e-3),
    fz.Product(eps=1e-3),
    fz.Frank(3.0, eps=1e-3),
]

NEGATION_FAMILY = [
    fz.StandardNegation(),
    *map(fz.SugenoNegation, (-0.9, 0.0, 1.0, 50.0)),
    *map(fz.YagerNegation, (0.5, 1.0, 2.0, 5.0)),
    fz.IntuitionisticNegation(),
]

IMPLICATION_FAMILY = [
    *(fz.SImplication(t.dual) for t in TNORM_FAMILY),
    *(t.residuum for t in TNORM_FAMILY),
    fz.SImplication(fz.Product().dual, fz.SugenoNegation(1.0)),
    fz.SImplication(fz.Godel().dual, fz.YagerNegation(2.0)),
    *(
        fz.sigmoidal(fz.REICHENBACH, s, b0)
        for s, b0 in [(0.0, -0.5), (1e-3, -0.5), (9.0, -0.5), (9.0, -0.2), (1e3, -0.5)]
    ),
    fz.sigmoidal(fz.GOGUEN, 3.0, -0.3),
    fz.sigmoidal(fz.KLEENE_DIENES, 20.0, -1.5),
]

FORALL_FAMILY: list[fz.Aggregator] = [
    *map(fz.TNormAggregator, TNORM_FAMILY),
    *map(fz.GeneralizedMeanError, (0.5, 1.0, 1.5, 2.0, 20.0)),
    fz.sigmoidal(fz.GeneralizedMeanError(2.0), 9.0),
]

EXISTS_FAMILY: list[fz.Aggregator] = [
    *(fz.TConormAggregator(t.dual) for t in TNORM_FAMILY),
    *map(fz.GeneralizedMean, (0.5, 1.0, 1.5, 2.0, 20.0)),
    fz.sigmoidal(fz.GeneralizedMean(1.5), 9.0, -0.2),
]

# Aggregators whose values leave [0, 1].
UNBOUNDED_FAMILY: list[fz.Aggregator] = [
    fz.LogProduct(),
    fz.LogProduct("mean"),
    fz.LogProbabilisticSum(),
    *map(fz.UnboundedYager, (0.5, 1.0, 2.0, 20.0)),
    *map(fz.UnboundedYagerSum, (0.5, 1.0, 2.0, 20.0)),
]


def family(members: list[Any]) -> Any:
    """A fixture that runs a test for every member."""
    return pytest.fixture(scope="module", params=members, ids=repr)(lambda request: request.param)


tnorm = family(TNORM_FAMILY)
any_tnorm = family(TNORM_FAMILY + EXTREME_TNORMS)
left_continuous = family([t for t in TNORM_FAMILY if t != fz.Drastic()])
generated = family([t for t in TNORM_FAMILY if t.generator is not None])
negation = family(NEGATION_FAMILY)
implication = family(IMPLICATION_FAMILY)
bounded_aggregator = family(FORALL_FAMILY + EXISTS_FAMILY)
aggregator = family(FORALL_FAMILY + EXISTS_FAMILY + UNBOUNDED_FAMILY)


def edge_points(dtype: torch.dtype) -> Tensor:
    """0, 1, subnormals, the cap and its square, ordinary values, and the neighbouring floats of each."""
    info = torch.finfo(dtype)
    small = [0.0, info.tiny / 1024, info.tiny, 1e-30, 1e-20, info.eps**2, 1e-10, info.eps / 2, info.eps, 1e-4, 0.01]
    middle = [0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 0.9, 0.99]
    large = [1 - 1e-4, 1 - 1e-6, 1 - info.eps, 1 - info.eps / 2, 1.0]
    x = torch.tensor(small + middle + large, dtype=torch.float64).to(dtype)
    return torch.unique(torch.cat([x, x.nextafter(torch.zeros_like(x)), x.nextafter(torch.ones_like(x))]))


@pytest.fixture(scope="session", params=[torch.float32, torch.float64], ids=str)
def edges(request: pytest.FixtureRequest) -> Tensor:
    return edge_points(request.param)


@pytest.fixture(scope="session")
def edge_points_of() -> Any:
    return edge_points


@pytest.fixture(scope="session")
def interior() -> Tensor:
    """A few dozen triples away from 0, 1, ties and the diagonal."""
    grid = [0.13, 0.37, 0.58, 0.81, 0.94]
    offsets = torch.tensor([0.0, 0.011, 0.023], dtype=torch.float64)
    return torch.tensor(list(itertools.product(grid, repeat=3))[::3], dtype=torch.float64) + offsets
