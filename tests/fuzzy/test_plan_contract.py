"""Sums of products: contracted quantifiers have the values and gradients of the plain plan, and save memory."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa import fuzzy as fz
from doxa.fuzzy._algebra import FuzzyAlgebra
from doxa.logic import Expr, Interpretation, parse, probs

SHAPES = {"flag": (), "p": (5,), "q": (5,), "r": (5, 5), "s": (5, 5), "t": (5, 4, 5)}
DECLARED = """
sort P; sort D = 0..3
pred flag; pred p(P); pred q(P); pred r(P, P); pred s(P, P); pred t(P, D, P)
"""
RULES = [
    "forall x, y, z: P. r(x, z) & s(z, y) -> r(x, y)",
    "forall x, y, z: P. r(x, z) & s(z, y) & p(x) & !q(y) -> r(x, y) | s(y, x) | flag",
    "forall x, y: P. p(x) -> q(y)",
    "forall x, y, z: P. p(x) | !q(x) | (r(y, z) -> s(z, y))",
    "forall x, y: P. !(p(x) & r(x, y) & !(q(y) -> flag))",
    "exists x, y: P. p(x) & r(x, y) & q(y)",
    "forall x: P. exists y, z: P. r(x, y) & s(y, z) & p(z)",
    "forall x, y: P. (exists z: P. r(x, z) & s(z, y)) -> r(x, y)",
    "forall x, y: P where x != y. forall z: P. r(x, z) & s(z, y) -> p(x)",
    "forall x, y, _w: P. p(x) & r(x, y) -> flag",
    "forall x, y: P, d: D. t(x, d, y) & p(x) -> q(y)",
    "forall x, y: P. r(x, x) & p(x) -> r(x, y)",
    "exists x, y: P. !(p(x) -> q(y)) & (r(x, y) | s(x, y))",
]


class Operators(FuzzyAlgebra):
    """Every connective as its operator says, and nothing as a product."""

    def factors(self, node: Expr, truth: bool) -> None:
        return None


class OperatorPlan(fz.FuzzyPlan):
    def algebra(self) -> FuzzyAlgebra:
        return Operators(self.logic, rewrite=self.rewrite, outermost=self.outermost)


pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")  # not every rule mentions everything


def means(p: Any) -> fz.Logic:
    product = fz.Product()
    mean = fz.GeneralizedMeanError(p), fz.GeneralizedMean(p)
    return fz.Logic(fz.STANDARD, product, product.dual, fz.REICHENBACH, *mean, name=f"means {p}")


def others() -> list[fz.Logic]:
    product = fz.Product()
    base = fz.STANDARD, product, product.dual, fz.REICHENBACH
    return [
        fz.Logic(*base, fz.UnboundedYager(2.0), fz.UnboundedYagerSum(3.0), name="unbounded"),
        fz.Logic(*base, fz.sigmoidal(fz.GeneralizedMeanError(2.0), 6.0), fz.GeneralizedMean(1.0), name="sigmoidal"),
        fz.Logic(fz.SugenoNegation(1.0), *base[1:], fz.GeneralizedMeanError(2.0), fz.GeneralizedMean(2.0)),
        fz.Logic(*base[:3], fz.KLEENE_DIENES, fz.GeneralizedMeanError(2.0), fz.GeneralizedMean(2.0)),
    ]


LEARNT = fz.Learnable(1.7, 1.0, 2.0).double(), fz.Learnable(4.0, 1.0, 9.0).double()
LOGICS = [*[means(p) for p in (1.0, 1.5, 2.0, 3.0, 8.0, *LEARNT)], *others()]


def leaves(seed: int, ends: bool, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Truth values between 0 and 1; with ``ends`` many of them exactly 0 or 1."""
    g = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in SHAPES.items():
        x = torch.rand(shape, generator=g, dtype=dtype)
        if ends:
            x = torch.where(torch.rand(shape, generator=g) < 0.5, x.round(), x)
        found[name] = x.requires_grad_()
    return found


def value_and_gradient(plan: fz.FuzzyPlan, tables: dict[str, Tensor], logic: fz.Logic) -> list[Tensor]:
    inputs = [*tables.values(), *logic.trainable().parameters()]
    value = plan(P=5)
    return [value.detach(), *torch.autograd.grad(value.sum() + 0 * sum([t.sum() for t in inputs]), inputs)]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("logic", LOGICS, ids=lambda logic: logic.name or "other")
def test_contracted_and_plain_plans_agree(logic: fz.Logic, ends: bool) -> None:
    kb = parse(DECLARED + "\n".join(RULES))
    tables = leaves(3, ends)
    world = Interpretation(kb, **{k: probs(v) for k, v in tables.items()})
    for chunk in (2**22, 30):
        for axiom in kb.axioms:
            plans = [fz.FuzzyPlan(axiom, world, logic, rewrite=r, chunk=chunk) for r in (True, False)]
            plans.append(OperatorPlan(axiom, world, logic, chunk=chunk))
            *found, plain = (value_and_gradient(p, tables, logic) for p in plans)
            for a, b in [pair for ours in found for pair in zip(ours, plain, strict=True)]:
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=lambda m, a=axiom: f"{a}: {m}")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 2.0, 3.5]), st.booleans(), st.sampled_from([2**22, 50, 5]))
def test_random_products_agree(seed: int, p: float, ends: bool, chunk: int) -> None:
    """Implications between random conjunctions and disjunctions of random atoms over four variables."""
    rng = random.Random(seed)

    def atom() -> str:
        name = rng.choice("pqrs")
        sign = "!" if rng.random() < 0.3 else ""
        return f"{sign}{name}({', '.join(rng.choices('wxyz', k=1 + (name in 'rs')))})"

    premise = " & ".join([atom() for _ in range(rng.randint(1, 4))])
    conclusion = " | ".join([atom() for _ in range(rng.randint(1, 2))])
    rule = rng.choice([f"forall w, x, y, z: P. {premise} -> {conclusion}", f"exists w, x, y, z: P. {premise}"])
    kb = parse(f"{DECLARED} [rule] {rule}")
    tables = leaves(seed, ends)
    world = Interpretation(kb, **{k: probs(v) for k, v in tables.items()})
    plans = [fz.FuzzyPlan(kb["rule"], world, means(p), rewrite=r, chunk=chunk) for r in (True, False)]
    plans.append(OperatorPlan(kb["rule"], world, means(p), chunk=chunk))
    contracted, multiplied, plain = (value_and_gradient(plan, tables, means(p)) for plan in plans)
    for a, b, c in zip(contracted, multiplied, plain, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(b, c, rtol=1e-8, atol=1e-8)


def test_the_transitive_rule_is_the_matrix_product_of_its_formula() -> None:
    kb = parse(DECLARED + RULES[0])
    tables = leaves(1, False)
    world = Interpretation(kb, **{k: probs(v) for k, v in tables.items()})
    r, s = tables["r"], tables["s"]
    for p in (1.0, 2.0, 3.0):
        want = 1 - (((1 - r) ** p * (r**p @ s**p)).sum() / 5**3) ** (1 / p)
        torch.testing.assert_close(fz.FuzzyPlan(kb.axioms[0], world, means(p))(P=5), want)


def test_instances_and_stacks_are_kept() -> None:
    rules = "\n".join([f"forall x, y: P. t(x, {d}, y) & p(x) -> q(y)" for d in range(4)])
    kb = parse(DECLARED + rules)
    tables = leaves(2, False)
    world = Interpretation(kb, **{k: probs(v) for k, v in tables.items()})
    values = [fz.FuzzyPlan(kb, world, means(2.0), stack=k, rewrite=r)(P=5) for k in (2, 9) for r in (True, False)]
    for value in values[1:]:
        torch.testing.assert_close(value, values[0])
    kept = [fz.FuzzyPlan(kb.axioms[0], world, means(2.0), keep="x", rewrite=r)(P=5) for r in (True, False)]
    assert kept[0].shape == (5,)
    torch.testing.assert_close(kept[0], kept[1])


@pytest.mark.parametrize("p", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-30, 1e-8])
def test_values_and_gradients_are_finite(p: float, dtype: torch.dtype, fill: float) -> None:
    kb = parse("sort P; pred r(P, P); [a] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y); "
               "[b] exists x, y, z: P. r(x, z) & r(z, y)")  # fmt: skip
    for n in (0, 1, 3):
        r = torch.full((n, n), fill, dtype=dtype, requires_grad=True)
        world = Interpretation(kb, r=probs(r))
        ours, plain = [fz.FuzzyPlan(kb, world, means(p), rewrite=w)(P=n) for w in (True, False)]
        gradients = [torch.autograd.grad(v.sum() + 0 * r.sum(), r)[0] for v in (ours, plain)]
        assert ours.dtype == dtype and torch.isfinite(ours).all() and torch.isfinite(gradients[0]).all()
        torch.testing.assert_close(ours, plain)
        if p > 1 or fill in (0.0, 1.0):
            torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)


def test_large_exponents_and_others_are_left_alone() -> None:
    kb = parse(DECLARED + RULES[0])
    world = Interpretation(kb, **{k: probs(v) for k, v in leaves(1, False).items()})
    for logic in (means(50.0), means(0.5), fz.logic("product"), fz.logic("ltn"), means(fz.Learnable(2.0, 1.0))):
        assert "contracted" not in fz.FuzzyPlan(kb.axioms[0], world, logic).explain(P=5)


def test_what_was_contracted_is_said_and_small() -> None:
    kb = parse("sort P; pred r(P, P); [rule] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)")
    world = Interpretation(kb, r=probs(torch.rand(300, 300)))
    plan = fz.FuzzyPlan(kb["rule"], world, means(2.0))
    assert "1 tile, contracted as (x, z) · (y, z) · (x, y) in tensors of at most 90000 elements" in plan.explain(P=300)
    plan = fz.FuzzyPlan(kb["rule"], world, means(2.0), chunk=30_000)
    assert "8 tiles, contracted" in plan.explain(P=300)
    torch.testing.assert_close(plan(P=300), fz.FuzzyPlan(kb["rule"], world, means(2.0))(P=300))


@pytest.mark.parametrize("name", ["product", "lukasiewicz", "log_product", "ltn", "recommended", "godel"])
@pytest.mark.parametrize("chunk", [2**22, 12])
def test_formulas_finished_together_are_worth_what_each_is_alone(name: str, chunk: int) -> None:
    rules = [*RULES, *[f"forall x, y: P. t(x, {d}, y) & p(x) -> q(y)" for d in range(4)], "exists x: P. p(x)"]
    kb = parse(DECLARED + "\n".join(rules))
    tables = leaves(3, False)
    world = Interpretation(kb, **{k: probs(v) for k, v in tables.items()})
    for logic in (fz.logic(name), means(2.0), means(1.5)):
        together = fz.FuzzyPlan(kb, world, logic, stack=4, chunk=chunk)(P=5)
        alone = torch.stack([fz.FuzzyPlan(axiom, world, logic)(P=5) for axiom in kb.axioms])
        torch.testing.assert_close(together, alone)
        given = [t for t in tables.values() if t.requires_grad]
        slopes = [torch.autograd.grad(value.sum(), given, allow_unused=True) for value in (together, alone)]
        for ours, theirs in zip(*slopes, strict=True):
            torch.testing.assert_close(ours, theirs)
