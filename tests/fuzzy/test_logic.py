"""Logics: Boolean on Boolean values, built as documented, found by name."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from doxa import fuzzy as fz
from doxa.errors import ConfigError

A, B = torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize("name", fz.LOGICS)
def test_truth_tables(name):
    logic = fz.logic(name)
    near = {"ltn": 5e-4, "log_ltn": 0.51}.get(name, 1e-6)  # squeezed; half of the arguments of ∨ are true
    a, b = (A.log(), B.log()) if logic.is_log else (A, B)

    def check(value, expected, read_log=logic.is_log):
        value = value.exp() if read_log else value
        assert value.tolist() == pytest.approx(expected, abs=near)

    check(logic.neg(a), [1, 1, 0, 0])
    check(logic.conj(a, b), [0, 0, 0, 1])
    check(logic.disj(a, b), [0, 1, 1, 1])
    check(logic.implies(a, b), [1, 1, 0, 1])
    if not logic.is_log:
        check(logic.iff(a, b), [1, 0, 0, 1])
        check(logic.xor(a, b), [0, 1, 1, 0])
    # A mean of 0 and 1 is neither, so means are only asked about equal instances.
    rows = torch.stack([a, b])
    some, all_ = (rows[:, [0, 3]], [0, 1]), (rows, [0, 0, 0, 1])
    values, expected = some if name == "ltn" else all_
    check(logic.forall(values, 0), expected, logic.forall.is_log)
    values, expected = some if name in ("ltn", "log_ltn", "recommended") else (rows, [0, 1, 1, 1])
    check(logic.exists(values, 0), expected, logic.exists.is_log)


def test_symmetric_logics_keep_de_morgan(tnorm):
    logic = fz.symmetric(tnorm)
    a, b = torch.meshgrid(*[torch.linspace(0, 1, 17, dtype=torch.float64)] * 2, indexing="ij")
    assert torch.allclose(logic.neg(logic.conj(a, b)), logic.disj(logic.neg(a), logic.neg(b)), atol=1e-9)
    assert torch.allclose(logic.implies(a, b), logic.disj(logic.neg(a), b), atol=1e-9)
    x = torch.stack([a, b])
    assert torch.allclose(logic.neg(logic.forall(x, 0)), logic.exists(logic.neg(x), 0), atol=1e-9)


def test_tnorm_logic():
    product = fz.tnorm_logic(fz.Product())
    assert product.neg(torch.tensor([0.0, 0.01, 1.0])).tolist() == [1, 0, 0]
    assert product.disj(torch.tensor(0.3), torch.tensor(0.6)).item() == pytest.approx(0.6)
    assert fz.logic("lukasiewicz:tnorm").neg(torch.tensor(0.3)).item() == pytest.approx(0.7)
    assert fz.logic("lukasiewicz:tnorm").conj == fz.Godel()
    assert fz.logic("yager(3):tnorm").implies == fz.Yager(3.0).residuum


def test_derived_and_given_biconditionals():
    product = fz.logic("product")
    a, b = torch.tensor(0.8), torch.tensor(0.3)
    assert product.iff(a, b).item() == pytest.approx((1 - 0.8 + 0.24) * (1 - 0.3 + 0.24))
    assert product.xor(a, b).item() == pytest.approx(1 - product.iff(a, b).item())
    given = dataclasses.replace(product, iff_operator=fz.Godel(), xor_operator=fz.Godel().dual)
    assert given.iff(a, b).item() == pytest.approx(0.3)
    assert given.xor(a, b).item() == pytest.approx(0.8)


def test_recommended_configuration():
    logic = fz.logic("recommended")
    assert logic.conj == fz.Yager(1.5) and logic.disj == fz.Yager(1.5).dual
    assert logic.implies == fz.sigmoidal(fz.REICHENBACH, 9.0, -0.5)
    assert logic.forall == fz.LogProduct() and logic.exists == fz.GeneralizedMean(1.5)
    assert fz.logic("log_product").implies == fz.REICHENBACH and fz.logic("log_product").forall.is_log


def test_stable_product_is_ltn_s():
    """Against the formulas of Badreddine et al. 2022 with ε = 1e-4, p = 2."""
    logic, e = fz.logic("ltn"), 1e-4
    a, b = torch.rand(2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def up(x):
        return (1 - e) * x + e

    def down(x):
        return (1 - e) * x

    assert torch.allclose(logic.conj(a, b), up(a) * up(b))
    assert torch.allclose(logic.disj(a, b), down(a) + down(b) - down(a) * down(b))
    assert torch.allclose(logic.implies(a, b), 1 - up(a) + up(a) * down(b))
    assert torch.allclose(logic.forall(a), 1 - ((1 - down(a)) ** 2).mean().sqrt())
    assert torch.allclose(logic.exists(a), (up(a) ** 2).mean().sqrt())
    assert torch.allclose(logic.conj.reduce(torch.stack([a, b]), 0), logic.conj(a, b))
    x = torch.ones(3, requires_grad=True)
    (grad,) = torch.autograd.grad(logic.forall(x), x)
    assert bool((grad > 0.1).all())  # never 0: that is what the squeezing is for


def test_log_space():
    """Against the same operators on truth values: products, and means of powers."""
    logic = fz.log_space(alpha=2.0)
    p, q = torch.rand(2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(logic.conj(p.log(), q.log()).exp(), p * q)
    assert torch.allclose(logic.neg(p.log()).exp(), 1 - p)
    assert torch.allclose(logic.disj(p.log(), q.log()).exp(), ((p**2 + q**2) / 2).sqrt())
    assert torch.allclose(logic.implies(p.log(), q.log()).exp(), (((1 - p) ** 2 + q**2) / 2).sqrt())
    assert torch.allclose(logic.forall(p.log()).exp(), p.prod())
    assert torch.allclose(logic.exists(p.log()).exp(), fz.GeneralizedMean(2.0)(p))
    assert torch.allclose(fz.log_space(reduction="mean").forall(p.log()), p.log().mean())
    long = torch.full((10_000,), 1e-30).log()
    assert logic.forall(long).item() == pytest.approx(10_000 * math.log(1e-30), rel=1e-5)
    mask = torch.tensor([True, False] * 10)
    assert torch.allclose(logic.exists(p.log(), mask=mask), logic.exists(p.log()[mask]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prodct", "unknown logic 'prodct'; did you mean 'product'"),
        ("product:q", "unknown logic 'product:q'; did you mean 'product:r'"),
        ("zzzz", "unknown logic 'zzzz'; there are godel, "),
        ("product(2)", r"gives a parameter to Product, which has none; leave out \(2\)"),
        ("yager(two)", "has the parameter 'two', expected a number, as in 'yager"),
        ("yager(-1)", "the exponent of a power generator is -1.0, expected a number > 0"),
        ("yager(nan)", "has the parameter 'nan', expected a number"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ConfigError, match=message):
        fz.logic(name)


def test_names_are_forgiving():
    assert fz.logic(" Yager(1.5) ") == fz.logic("yager(1.5)")
    assert fz.logic("aczel-alsina(3)").conj == fz.AczelAlsina(3.0)
    assert fz.logic("schweizer_sklar(-2):r").implies == fz.SchweizerSklar(-2.0).residuum
    assert fz.logic("log-product").forall.is_log


def test_swapped_quantifiers_are_refused():
    with pytest.raises(ConfigError, match=r"forall is .* of kind 'exists', expected kind 'forall'; did you swap"):
        dataclasses.replace(fz.logic("product"), forall=fz.GeneralizedMean(2.0))
    with pytest.raises(ConfigError, match="implication is 'x', expected 's' or 'r'"):
        fz.symmetric(fz.Godel(), "x")  # type: ignore[arg-type]


def test_logics_are_values():
    assert fz.logic("product") == fz.logic("product")
    assert len({fz.logic(n) for n in fz.LOGICS}) == len(fz.LOGICS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        fz.logic("product").name = "other"  # type: ignore[misc]


def test_catalogue_has_every_name_of_the_tables():
    for name in ("kleene_dienes", "reichenbach", "lukasiewicz", "dubois_prade", "fodor", "godel", "goguen", "weber"):
        assert name in fz.IMPLICATIONS
    assert len(fz.IMPLICATIONS) == 2 * len(fz.TNORMS) - 2 + 1
    assert set(fz.NEGATIONS) == {"standard", "sugeno", "yager", "intuitionistic"}
    with pytest.raises(TypeError):
        fz.TNORMS["mine"] = fz.Godel()  # type: ignore[index]


def test_agreement_with_ltntorch():
    """The operators LTNtorch has, with stable=False; its formulas by hand are tested above in any case."""
    ltn = pytest.importorskip("ltn")
    ops = ltn.fuzzy_ops
    a, b = torch.rand(2, 100, generator=torch.Generator().manual_seed(0))
    pairs = [
        (ops.AndMin(), fz.Godel()),
        (ops.AndProd(stable=False), fz.Product()),
        (ops.AndLuk(), fz.Lukasiewicz()),
        (ops.OrMax(), fz.Godel().dual),
        (ops.OrProbSum(stable=False), fz.Product().dual),
        (ops.OrLuk(), fz.Lukasiewicz().dual),
        (ops.ImpliesKleeneDienes(), fz.KLEENE_DIENES),
        (ops.ImpliesGodel(), fz.Godel().residuum),
        (ops.ImpliesReichenbach(stable=False), fz.REICHENBACH),
        (ops.ImpliesGoguen(stable=False), fz.GOGUEN),
        (ops.ImpliesLuk(), fz.Lukasiewicz().residuum),
    ]
    for theirs, ours in pairs:
        assert torch.allclose(theirs(a, b), ours(a, b), atol=1e-6)
    aggregators = [
        (ops.AggregMin(), fz.AGGREGATORS["minimum"]),
        (ops.AggregMean(), fz.GeneralizedMean(1.0)),
        (ops.AggregPMean(p=3, stable=False), fz.GeneralizedMean(3.0)),
        (ops.AggregPMeanError(p=3, stable=False), fz.GeneralizedMeanError(3.0)),
    ]
    for theirs, ours in aggregators:
        assert torch.allclose(theirs(a, dim=0), ours(a, 0), atol=1e-6)
    assert torch.allclose(ops.NotStandard()(a), fz.STANDARD(a))
