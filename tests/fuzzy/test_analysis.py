"""The analysis finds the tables of Chapter 2 (errata 1.8) and the fractions of Chapter 3 by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.fuzzy.conftest import TNORM_FAMILY

from doxa import fuzzy as fz
from doxa.errors import ConfigError

CONVEX = "Schur-concave"


@pytest.mark.parametrize(
    ("tnorm", "expected"),
    [
        (fz.Godel(), "idempotent, continuous, Schur-concave"),
        (fz.Product(), "strict, Archimedean, Schur-concave"),
        (fz.Lukasiewicz(), "continuous, Archimedean, Schur-concave"),
        (fz.Drastic(), "Archimedean"),
        (fz.NilpotentMinimum(), "left-continuous, Schur-concave"),
        (fz.Yager(0.5), "continuous, Archimedean"),
        (fz.Yager(2.0), "continuous, Archimedean, Schur-concave"),
        (fz.Yager(20.0), "continuous, Archimedean, Schur-concave"),
        (fz.SchweizerSklar(-10.0), "strict, Archimedean, Schur-concave"),
        (fz.SchweizerSklar(0.5), "continuous, Archimedean, Schur-concave"),
        (fz.SchweizerSklar(2.0), "continuous, Archimedean"),
        (fz.Frank(0.01), "strict, Archimedean, Schur-concave"),
        (fz.Frank(100.0), "strict, Archimedean, Schur-concave"),
        (fz.Hamacher(0.0), "strict, Archimedean, Schur-concave"),
        (fz.Hamacher(2.0), "strict, Archimedean, Schur-concave"),
        (fz.Hamacher(5.0), "strict, Archimedean"),
        (fz.AczelAlsina(0.5), "strict, Archimedean"),
        (fz.AczelAlsina(5.0), "strict, Archimedean, Schur-concave"),
        (fz.Dombi(0.5), "strict, Archimedean"),
        (fz.Dombi(5.0), "strict, Archimedean, Schur-concave"),
        (fz.SugenoWeber(-0.5), "continuous, Archimedean"),
        (fz.SugenoWeber(2.0), "continuous, Archimedean, Schur-concave"),
    ],
    ids=repr,
)
def test_tnorm_table(tnorm, expected):
    properties = fz.tnorm_properties(tnorm)
    assert str(properties) == expected
    if tnorm.generator is not None:  # errata 3.3: convex generator = Schur-concave
        assert properties.schur_concave is tnorm.generator.convex
        assert properties.archimedean and properties.continuous


@pytest.mark.parametrize(
    "tnorm", [*fz.TNORMS.values(), fz.Yager(0.5), fz.Hamacher(5.0), fz.SugenoWeber(-0.5)], ids=repr
)
def test_tconorm_table(tnorm):
    """Duality turns left into right and concave into convex; the two are found from different code."""
    turned = str(fz.tnorm_properties(tnorm)).replace("left", "right").replace("concave", "convex")
    assert str(fz.tconorm_properties(tnorm.dual)) == turned


def test_an_ordinal_sum_is_not_archimedean():
    """A t-norm of one's own: the product on [0, 1/2], the minimum above."""

    @dataclass(frozen=True)
    class OrdinalSum(fz.TNorm):
        def __call__(self, a, b):
            inside = (a <= 0.5) & (b <= 0.5)
            return torch.where(inside, 2 * a * b, torch.minimum(a, b))

        def reduce(self, x, dim=None, mask=None, weight=None):
            first, second = x.unbind(1)
            return self(first, second)

        def _residual(self, a, c):
            raise NotImplementedError

    assert str(fz.tnorm_properties(OrdinalSum())) == "continuous, Schur-concave"


ALL = "LN, EP, IP, CP, L-CP, R-CP"
NOT_IP = "LN, EP, CP, L-CP, R-CP"
R_ONLY = "LN, EP, IP"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kleene_dienes", NOT_IP),
        ("reichenbach", NOT_IP),
        ("lukasiewicz", ALL),
        ("dubois_prade", ALL),
        ("fodor", ALL),
        ("godel", R_ONLY),
        ("goguen", R_ONLY),
        ("weber", R_ONLY),
        ("yager_s", NOT_IP),
        ("yager_r", R_ONLY),
        ("reichenbach_sigmoidal", "CP, L-CP, R-CP"),
        ("frank_s", NOT_IP),
        ("frank_r", R_ONLY),
        ("hamacher_r", R_ONLY),
        ("schweizer_sklar_s", NOT_IP),
        ("aczel_alsina_r", R_ONLY),
        ("dombi_s", NOT_IP),
        ("sugeno_weber_r", R_ONLY),
    ],
)
def test_implication_table(name, expected):
    laws = fz.implication_laws(fz.IMPLICATIONS[name])
    assert str(laws) == expected
    # Chapter 3: contrapositive symmetry implies its differentiable form.
    assert fz.contrapositive_derivatives(fz.IMPLICATIONS[name]) or not laws.cp


def test_contrapositive_derivatives():
    found = {name for name, i in fz.IMPLICATIONS.items() if fz.contrapositive_derivatives(i)}
    s_implications = {n for n in fz.IMPLICATIONS if n.endswith("_s")}
    # Weber's derivatives are 0 almost everywhere, hence symmetric.
    assert found == s_implications | {
        "kleene_dienes",
        "reichenbach",
        "dubois_prade",
        "lukasiewicz",
        "fodor",
        "reichenbach_sigmoidal",
        "weber",
    }


def test_laws_with_other_negations():
    """(S,N): always LN, EP, R-CP(N); CP(N) for strong N (errata 1.6)."""
    for negation in (fz.SugenoNegation(2.0), fz.YagerNegation(2.0)):
        implication = fz.SImplication(fz.Product().dual, negation)
        assert str(fz.implication_laws(implication, negation, tolerance=1e-5)) == NOT_IP
        assert not fz.implication_laws(implication, fz.STANDARD).cp
    intuitionistic = fz.IntuitionisticNegation()
    weak = fz.implication_laws(fz.SImplication(fz.Product().dual, intuitionistic), intuitionistic)
    assert weak.ln and weak.ep and weak.rcp and not weak.cp


@pytest.mark.parametrize(
    ("negation", "strict", "strong"),
    [
        (fz.StandardNegation(), True, True),
        (fz.SugenoNegation(5.0), True, True),
        (fz.YagerNegation(0.5), True, True),
        (fz.YagerNegation(3.0), True, True),
        (fz.IntuitionisticNegation(), False, False),
    ],
    ids=repr,
)
def test_negation_flags(negation, strict, strong):
    assert (negation.strict, negation.strong) == (strict, strong)


def test_negation_flags_of_ones_own():
    class Squared(fz.Negation):
        def __call__(self, a):
            return 1 - a**2

    class Step(fz.Negation):
        def __call__(self, a):
            return torch.where(a < 1 / 3, 1 - a / 2, (1 - a) / 2)

    assert (Squared().strict, Squared().strong) == (True, False)
    assert (Step().strict, Step().strong) == (False, False)


FRACTIONS = [
    (fz.Lukasiewicz(), 3),
    (fz.Lukasiewicz().dual, 2),
    (fz.Yager(1.5), 3),
    (fz.Yager(2.0).dual, 4),
    (fz.Yager(0.5), 2),
    (fz.NilpotentMinimum(), 3),
    (fz.NilpotentMinimum().dual, 4),
    (fz.Drastic(), 2),
    (fz.Godel(), 3),
    (fz.SchweizerSklar(-1.0), 3),
    (fz.Frank(3.0), 2),
    (fz.TNormAggregator(fz.Yager(2.0)), 3),
    (fz.TConormAggregator(fz.Lukasiewicz().dual), 3),
    (fz.GeneralizedMeanError(2.0), 3),
    (fz.LogProduct(), 3),
    (fz.sigmoidal(fz.Lukasiewicz(), 9.0), 2),
    (fz.sigmoidal(fz.TNormAggregator(fz.NilpotentMinimum()), 9.0), 3),
    *((negation, 1) for negation in fz.NEGATIONS.values()),
    *((i, 2) for i in fz.IMPLICATIONS.values()),
]


@pytest.mark.parametrize(("operator", "n"), FRACTIONS, ids=repr)
def test_closed_forms_agree_with_sampling(operator, n):
    generator = torch.Generator().manual_seed(0)
    exact = fz.nonvanishing_fraction(operator, n)
    sampled = fz.nonvanishing_fraction(operator, n, generator=generator, closed_form=False, samples=20_000)
    assert sampled.method == "sampling"
    if exact.method == "closed form":
        assert exact.error == 0
        assert sampled.value == pytest.approx(exact.value, abs=4 * sampled.error + 1e-9)


def test_fraction_without_a_closed_form():
    """Sugeno-Weber with λ has a gradient where a + b - 1 + λab > 0: an integral of one variable."""
    lam = 2.0
    a = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    exact = torch.trapezoid(1 - ((1 - a) / (1 + lam * a)).clamp(0, 1), a).item()
    found = fz.nonvanishing_fraction(fz.SugenoWeber(lam), generator=torch.Generator().manual_seed(0))
    assert found.method == "sampling"
    assert found.value == pytest.approx(exact, abs=4 * found.error)


def test_single_passing():
    passing = {name for name, t in fz.TNORMS.items() if fz.single_passing(t)}
    assert passing == {"godel", "nilpotent", "drastic"}
    implications = {name for name, i in fz.IMPLICATIONS.items() if fz.single_passing(i)}
    assert implications == {"kleene_dienes", "godel", "fodor", "dubois_prade", "weber"}
    assert all(fz.single_passing(n) for n in fz.NEGATIONS.values())  # there is only one argument
    aggregators = {name for name, a in fz.AGGREGATORS.items() if fz.single_passing(a)}
    assert aggregators == {"minimum", "maximum", "nilpotent_minimum", "nilpotent_maximum"}


def test_bad_arguments():
    with pytest.raises(ConfigError, match="n is 3, expected 2: an implication has two arguments"):
        fz.nonvanishing_fraction(fz.REICHENBACH, 3)
    with pytest.raises(ConfigError, match="n is 2, expected 1: a negation has one argument"):
        fz.nonvanishing_fraction(fz.STANDARD, 2)
    with pytest.raises(ConfigError, match="n is 0, expected at least 1"):
        fz.nonvanishing_fraction(fz.Product(), 0)


@pytest.mark.parametrize("n", [1, 2, 3, 20, 100, 171, 400])
def test_irwin_hall_for_many_variables(n):
    """Symmetric, increasing, and near the normal distribution with its mean and variance."""
    from statistics import NormalDist

    assert fz.irwin_hall_cdf(n / 2, n) == pytest.approx(0.5, abs=1e-15)
    points = [n / 2 + k * (n / 12) ** 0.5 for k in (-2, -1, -0.5, 0.5, 1, 2)]
    values = [fz.irwin_hall_cdf(y, n) for y in points]
    assert values == sorted(values) and all(0 <= v <= 1 for v in values)
    assert values[0] + values[-1] == pytest.approx(1, abs=1e-12)
    if n >= 20:
        normal = NormalDist(n / 2, (n / 12) ** 0.5)
        assert values == pytest.approx([normal.cdf(y) for y in points], abs=0.1 / n)


@pytest.mark.parametrize("tnorm", TNORM_FAMILY, ids=repr)
def test_where_operators_are_strictly_cone_increasing(tnorm):
    """Chapter 4, appendix: below 1 for strict t-norms, Gödel's and all t-conorms; other t-norms are flat at 0."""
    properties = fz.tnorm_properties(tnorm)
    expected = "[0, 1)" if properties.strict or properties.idempotent else "(0, 1)"
    assert str(fz.cone_increasing(tnorm)) == expected
    assert str(fz.cone_increasing(tnorm, 3, points=17)) == expected
    assert str(fz.cone_increasing(tnorm.dual)) == "[0, 1)"
    assert str(fz.cone_increasing(fz.SImplication(tnorm.dual))) == "[0, 1)"
    assert str(fz.cone_increasing(tnorm.residuum)) == "[0, 1)"


@pytest.mark.parametrize(
    "operator", [fz.Godel(), fz.Lukasiewicz(), fz.Yager(2.0).dual, fz.NilpotentMinimum()], ids=repr
)
def test_cones_by_looking_in_all_directions(operator):
    """The definition itself: at random points, is there a direction along which every step raises the value?"""
    generator = torch.Generator().manual_seed(0)
    at = torch.rand(300, 1, 2, dtype=torch.float64, generator=generator)
    angle = torch.linspace(-torch.pi, torch.pi, 65, dtype=torch.float64)
    steps = torch.tensor([1e-4, 1e-3, 1e-2], dtype=torch.float64).reshape(3, 1, 1, 1)
    moved = (at + steps * torch.stack([angle.cos(), angle.sin()], -1)).clamp(0, 1)
    value = operator(at[..., 0], at[..., 1])
    some = (operator(moved[..., 0], moved[..., 1]) > value).all(0).any(-1)
    value = value.squeeze(-1)
    found = fz.cone_increasing(operator)
    assert bool(some[(value > 0) & (value < 1)].all()) == found.between
    if bool((value == 0).any()):
        assert bool(some[value == 0].all()) == found.least
    assert not bool(some[value == 1].any())


def test_cones_of_other_operators():
    assert str(fz.cone_increasing(fz.STANDARD)) == "[0, 1)"
    assert str(fz.cone_increasing(fz.IntuitionisticNegation())) == "nowhere"
    assert str(fz.cone_increasing(fz.AGGREGATORS["lukasiewicz"], 3)) == "(0, 1)"
    assert str(fz.cone_increasing(fz.AGGREGATORS["mean"])) == "[0, 1)"
    with pytest.raises(ConfigError, match="n is 0"):
        fz.cone_increasing(fz.Product(), 0)
