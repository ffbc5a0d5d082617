"""The golden values of errata 3.1 to 3.4, and of the definitions in 3.0."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.refine import refinement


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


G, L, P = fz.Godel(), fz.Lukasiewicz(), fz.Product()

JUNCTIONS = [
    # errata 3.0
    (G, (0.8,), (0.5,), 0.5, (0.8,)),
    # errata 3.1
    (G, (0.3, 0.6, 0.9), (), 0.5, (0.5, 0.6, 0.9)),
    (G, (0.3, 0.6, 0.9), (), 0.1, (0.1, 0.6, 0.9)),
    (G, (0.2, 0.9), (0.6,), 0.8, (0.6, 0.9)),
    (G.dual, (0.3, 0.6, 0.4), (), 0.8, (0.3, 0.8, 0.4)),
    (G.dual, (0.3, 0.6, 0.4), (), 0.35, (0.3, 0.35, 0.35)),
    (G.dual, (0.6, 0.2), (0.4,), 0.1, (0.4, 0.2)),
    # errata 3.2
    (L, (0.7, 0.6, 0.9), (), 0.5, (0.8, 0.7, 1)),
    (L, (0.5, 0.95), (), 0.7, (0.7, 1)),
    (L, (0.9, 0.95), (), 0.4, (0.675, 0.725)),
    (L, (0.9, 0.8), (0.9,), 0.2, (0.7, 0.6)),
    (L, (0.5, 0.6), (0.9,), 0.4, (0.7, 0.8)),
    (L, (0.3, 0.6), (), 1, (1, 1)),
    (L.dual, (0.1, 0.3), (), 0.8, (0.3, 0.5)),
    (L.dual, (0.5, 0.3, 0.1), (), 0.6, (0.4, 0.2, 0)),
    (L.dual, (0.8, 0.05, 0.05), (), 0.4, (0.4, 0, 0)),
    (L.dual, (0.5, 0.4), (0.2,), 0.5, (0.2, 0.1)),
    (L.dual, (0.2, 0.3), (), 0.5, (0.2, 0.3)),
    # errata 3.4
    (P, (0.3, 0.9, 0.5), (), 0.4, (0.666667, 0.9, 0.666667)),
    (P, (0.3, 0.9, 0.5), (), 0.05, (0.111111, 0.9, 0.5)),
    (P, (0.3, 0.6), (0.8,), 0.5, (0.790569, 0.790569)),
    (P, (0, 0.5), (), 0.3, (0.547723, 0.547723)),
    (P, (0.3, 0.6), (), 1, (1, 1)),
    (P, (0.3, 0.6), (), 0, (0, 0.6)),
    (P.dual, (0.3, 0.6, 0.1), (), 0.9, (0.3, 0.841270, 0.1)),
    (P.dual, (0.3, 0.6, 0.1), (), 0.5, (0.254644, 0.254644, 0.1)),
    (P.dual, (0.3, 0.6), (0.2,), 0.9, (0.3, 0.821429)),
]


@pytest.mark.parametrize(("operator", "truth", "constants", "target", "wanted"), JUNCTIONS)
def test_junctions(operator, truth, constants, target, wanted) -> None:
    found = refinement(operator)(vector(*truth), target, vector(*constants))
    torch.testing.assert_close(found, vector(*wanted), atol=1e-5, rtol=0)


FAMILIES = [
    # T[.3,.7,.9]→.6 | T[.9,.8]→.3 | S[.2,.4]→.7 | S[.5,.6,.1]→.4 | R(.8,.2)→.5
    (fz.Yager(2.0), (0.726139, 0.726139, 0.9), 0.307180, 0.670820, (0.273861, 0.273861, 0.1), 0.461484),
    (fz.SchweizerSklar(-1.0), (0.782609, 0.782609, 0.9), 0.310345, 0.675676, (0.217391, 0.217391, 0.1), 0.444444),
    (fz.Hamacher(0.0), (0.782609, 0.782609, 0.9), 0.310345, 0.675676, (0.217391, 0.217391, 0.1), 0.444444),
    (fz.SchweizerSklar(0.5), (0.833490, 0.833490, 0.9), 0.358848, 0.573205, (0.166510, 0.166510, 0.1), 0.361843),
    (fz.Frank(3.0), (0.829338, 0.829338, 0.9), 0.346075, 0.598479, (0.170662, 0.170662, 0.1), 0.378395),
    (fz.Hamacher(2.0), (0.839737, 0.839737, 0.9), 0.354839, 0.581395, (0.160263, 0.160263, 0.1), 0.363636),
    (fz.AczelAlsina(2.0), (0.702267, 0.702267, 0.9), 0.301389, 0.693676, (0.297733, 0.297733, 0.1), 0.482787),
    (fz.Dombi(2.0), (0.667368, 0.7, 0.9), 0.300238, 0.698786, (0.317318, 0.317318, 0.1), 0.492423),
    (fz.SugenoWeber(2.0), (0.829608, 0.829608, 0.9), 0.357143, 0.576923, (0.170392, 0.170392, 0.1), 0.366667),
]


@pytest.mark.parametrize(("tnorm", "up", "down", "s_up", "s_down", "residuum"), FAMILIES, ids=lambda x: str(x)[:24])
def test_families(tnorm, up, down, s_up, s_down, residuum) -> None:
    rho, sigma = refinement(tnorm), refinement(tnorm.dual)
    cases = [
        (rho(vector(0.3, 0.7, 0.9), 0.6), up),
        (rho(vector(0.9, 0.8), 0.3), (0.9, down)),
        (sigma(vector(0.2, 0.4), 0.7), (0.2, s_up)),
        (sigma(vector(0.5, 0.6, 0.1), 0.4), s_down),
        (refinement(tnorm.residuum)(vector(0.8, 0.2), 0.5), (0.8, residuum)),
    ]
    for found, wanted in cases:
        torch.testing.assert_close(found, vector(*wanted), atol=1e-5, rtol=0)


IMPLICATIONS = [
    (L.residuum, (0.9, 0.4), 0.8, (0.75, 0.55)),
    (L.residuum, (0.9, 0.4), 0.2, (1, 0.2)),
    (fz.SImplication(L.dual), (0.9, 0.4), 0.8, (0.75, 0.55)),
    (fz.Yager(2.0).residuum, (0.3, 0.2), 0.1, (0.564110, 0)),
    (fz.GOGUEN, (0.8, 0.2), 0.5, (0.8, 0.4)),
    (fz.GOGUEN, (0.8, 0.6), 0.5, (0.8, 0.4)),
    (fz.GOGUEN, (0.3, 0.9), 0.5, (0.3, 0.15)),
    (fz.REICHENBACH, (0.9, 0.4), 0.7, (0.9, 0.666667)),
    (fz.REICHENBACH, (0.9, 0.4), 0.2, (0.9, 0.111111)),
    (G.residuum, (0.8, 0.2), 1, (0.8, 0.8)),
    (G.residuum, (0.8, 0.2), 0.5, (0.8, 0.5)),
    (G.residuum, (0.2, 0.3), 0.4, (0.4, 0.4)),
]


@pytest.mark.parametrize(("operator", "truth", "target", "wanted"), IMPLICATIONS)
def test_implications(operator, truth, target, wanted) -> None:
    torch.testing.assert_close(refinement(operator)(vector(*truth), target), vector(*wanted), atol=1e-5, rtol=0)


def test_godel_implication_in_other_norms_moves_both_to_their_mean() -> None:
    rho = refinement(G.residuum, p=2)
    moved = rho(vector(0.8, 0.2), 1.0)
    torch.testing.assert_close(moved, vector(0.5, 0.5))
    assert torch.linalg.vector_norm(moved - vector(0.8, 0.2)).item() == pytest.approx(0.424264, abs=1e-6)


@pytest.mark.parametrize(
    ("target", "wanted"), [(0.3, 0.3), (1.0, 0.6), (0.7, 0.6)], ids=["below", "one", "out of reach"]
)
def test_godel_implication_with_constant_antecedent(target: float, wanted: float) -> None:
    found = refinement(G.residuum)(vector(0.6, 0.2), target, fixed="antecedent")
    torch.testing.assert_close(found, vector(0.6, wanted))


def test_constant_consequent_lowers_the_antecedent() -> None:
    found = refinement(fz.GOGUEN)(vector(0.8, 0.2), torch.tensor([0.5, 1.0]), fixed="consequent")
    torch.testing.assert_close(found, torch.stack([vector(0.4, 0.2), vector(0.2, 0.2)]))


def test_only_constants_leave_nothing_to_do() -> None:
    assert refinement(P)(torch.empty(2, 0), 0.5, torch.ones(2, 3)).shape == (2, 0)


@pytest.mark.parametrize("generator", [None, 0])
def test_ties_change_one_literal(generator: int | None) -> None:
    chance = None if generator is None else torch.Generator().manual_seed(generator)
    found = refinement(G.dual)(torch.full((200, 3), 0.4), 0.9, generator=chance)
    places = (found == 0.9).nonzero()[:, 1]
    assert len(places) == 200
    assert set(places.tolist()) == ({0} if generator is None else {0, 1, 2})


def test_errors_say_what_is_wanted() -> None:
    with pytest.raises(ConfigError, match=r"no axes, expected \(\*batch, n\)"):
        refinement(P)(torch.tensor(0.3), 0.5)
    with pytest.raises(ConfigError, match=r"expected \(\*batch, 2\)"):
        refinement(fz.GOGUEN)(torch.rand(3), 0.5)
    with pytest.raises(ConfigError, match="do not broadcast"):
        refinement(P)(torch.rand(3, 2), torch.rand(4))
    with pytest.raises(ConfigError, match="has no refinement function"):
        refinement(fz.LogProduct())
    with pytest.raises(ConfigError, match="at least 1"):
        refinement(P, p=0.5)
    with pytest.raises(ConfigError, match="minimal for L1 only"):
        refinement(fz.NilpotentMinimum(), p=2)
