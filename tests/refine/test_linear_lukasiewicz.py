"""The convex fragment of Łukasiewicz refinement: the same truths as the fuzzy logic, and the nearest truth values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic import And, Count, Expr, Not, Or, Truth, propositions
from doxa.refine import LinearProjection, Refine, lukasiewicz_system

ATOMS = propositions("a b c d")
A, B, C, D = ATOMS


def grid(count: int = 400, seed: int = 0) -> Tensor:
    """Random truth values, many of them with few digits, so that truths hit targets exactly."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 4, generator=g, dtype=torch.float64)
    return torch.cat([x, torch.randint(0, 9, (count, 4), generator=g) / 8.0])


clauses = st.lists(
    st.lists(st.tuples(st.sampled_from(ATOMS), st.booleans()), min_size=1, max_size=4), min_size=1, max_size=4
).map(lambda listed: And(*[Or(*[~a if negated else a for a, negated in clause]) for clause in listed]))


def truth(formula: Expr, x: Tensor) -> Tensor:
    return Refine(formula, "lukasiewicz", atoms=ATOMS).truth(x)


def agrees(formula: Expr, target: float, x: Tensor) -> None:
    """The rows hold exactly where the truth is at least the target."""
    system = lukasiewicz_system(formula, target, atoms=ATOMS)
    holds = (x @ system.A.T <= system.b + 1e-9).all(1)
    assert torch.equal(holds, truth(formula, x) >= target - 1e-9)


@settings(max_examples=60, deadline=None)
@given(clauses, st.sampled_from([1.0, 0.75, 0.5, 0.25]), st.integers(0, 100))
def test_clauses_have_the_same_truth(formula: Expr, target: float, seed: int) -> None:
    agrees(formula, target, grid(200, seed))


FRAGMENT = [
    A >> B,
    (A >> B) & (B >> C) & A,
    A.iff(B),
    (A & B) >> (C | D),
    ~(A & ~B),
    ~(A | B),
    A.iff(B) | C,
    Not(A ^ B),
    Count("at most", 1, ATOMS),
    Count("exactly", 2, [A, B, C]),
    Count("at least", 3, ATOMS),
    (A & B) >> Truth(False),
    A & (B | ~C) & ~(C & D),
]


@pytest.mark.parametrize("target", [1.0, 0.75, 0.5])
@pytest.mark.parametrize("formula", FRAGMENT, ids=str)
def test_the_fragment_has_the_same_truth(formula: Expr, target: float) -> None:
    agrees(formula, target, grid())


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        (A | (B & C), "`b & c` is not concave"),
        (A ^ B, "is not concave"),
        ((A | B) >> C, r"`!\(a \| b\)` is not concave"),
        (~(A >> B) | C, r"`!\(a -> b\)` is not concave"),
        (D & (A | ~(B | C)), r"`!\(b \| c\)` is not concave"),
    ],
)
def test_what_is_not_concave_is_named(formula: Expr, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        lukasiewicz_system(formula)


@pytest.mark.parametrize("formula", [A | B | ~C, A >> B, A & B & ~C, And(A)], ids=str)
@pytest.mark.parametrize("target", [1.0, 0.75])
def test_one_operator_is_refined_as_its_minimal_function_does(formula: Expr, target: float) -> None:
    """Where the truth is below the target, the nearest values are those of the L2-minimal refinement function."""
    x = grid(100, 1)
    x = x[truth(formula, x) < target]
    layer = LinearProjection(lukasiewicz_system(formula, target, atoms=ATOMS))
    refined = Refine(formula, "lukasiewicz", target, atoms=ATOMS, p=2, steps=1)(x)
    torch.testing.assert_close(layer(x), refined, rtol=0, atol=1e-9)


def test_nearest_with_certificate_and_never_further_than_refinement() -> None:
    formula = (A | B | C) & (~A | D) & (B >> ~D) & (C >> D)
    layer = LinearProjection(lukasiewicz_system(formula, atoms=ATOMS))
    x = grid(200, 2)
    y = layer(x)
    torch.testing.assert_close(truth(formula, y), torch.ones(len(y), dtype=torch.float64), rtol=0, atol=1e-12)
    assert float(layer.certificate(x, y).error.max()) < 1e-9
    found = Refine(formula, "lukasiewicz", atoms=ATOMS).run(x)
    reached = found.truth > 1 - 1e-9
    assert bool(reached.any())
    ours, theirs = ((z - x).norm(dim=1)[reached] for z in (y, found.values))
    assert bool((ours <= theirs + 1e-6).all()) and bool((ours < theirs - 1e-3).any())


def test_several_formulas_each_reach_the_target() -> None:
    system = lukasiewicz_system({"up": A | B, "down": ~A}, 0.75)
    assert system.rows[:2] == ("[up] a | b is at least 0.75", "[down] !a is at least 0.75")
    y = LinearProjection(system)(torch.tensor([1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(y, torch.tensor([0.25, 0.5], dtype=torch.float64))


def test_contradictions_and_mistakes() -> None:
    with pytest.raises(KnowledgeError, match="contradict each other: `a`, `!a`"):
        LinearProjection(lukasiewicz_system(A & ~A))
    assert torch.equal(LinearProjection(lukasiewicz_system(A & ~A, 0.0))(torch.tensor([0.3])), torch.tensor([0.3]))
    with pytest.raises(ConfigError, match="expected a truth value between 0 and 1"):
        lukasiewicz_system(A, 1.5)
    with pytest.raises(ConfigError, match="the atom b is in a formula but not in atoms"):
        lukasiewicz_system(A & B, atoms=[A])
    many = propositions(" ".join(f"x{i}" for i in range(40)))
    with pytest.raises(ConfigError, match=r"rows, more than 10,000; with target=1.0"):
        lukasiewicz_system(And(*[Or(many[i], many[i + 1], ~many[i + 2]) for i in range(38)]), 0.9)
    assert lukasiewicz_system(And(*[Or(many[i], many[i + 1]) for i in range(39)])).count == 39 + 80
