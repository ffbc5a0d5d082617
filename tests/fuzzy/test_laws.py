"""The laws every operator obeys, as properties over every member of each family."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa import fuzzy as fz

D = torch.float64
truth_value = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, 5e-324, 1e-16, 1 - 2**-53, 0.25, 0.75])
triples = st.lists(st.tuples(truth_value, truth_value, truth_value), min_size=1, max_size=32)
dyadic = st.integers(0, 64).map(lambda k: k / 64)
dyadic_triples = st.lists(st.tuples(dyadic, dyadic, dyadic), min_size=1, max_size=32)
quick = settings(max_examples=7, deadline=None)


def columns(rows: list[tuple[float, float, float]]) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(rows, dtype=D).unbind(1))


def same(left: Tensor, right: Tensor, atol: float = 1e-7) -> bool:
    return torch.allclose(left, right, rtol=0, atol=atol)


@quick
@given(rows=triples)
def test_tnorm_is_a_tnorm(tnorm, rows):
    a, b, c = columns(rows)
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    assert torch.equal(tnorm(a, b), tnorm(b, a))
    assert same(tnorm(tnorm(a, b), c), tnorm(a, tnorm(b, c)))
    assert same(tnorm(a, one), a)
    assert same(tnorm(a, zero), zero)
    assert bool((tnorm(a, torch.minimum(b, c)) <= tnorm(a, torch.maximum(b, c)) + 1e-9).all())
    assert bool((tnorm(a, b) <= torch.minimum(a, b) + 1e-9).all())
    assert bool(((tnorm(a, b) >= 0) & (tnorm(a, b) <= 1)).all())


@quick
@given(rows=dyadic_triples)
def test_conorm_is_the_dual(tnorm, rows):
    # On multiples of 1/64 complements are exact, so that jumps stay where they are.
    a, b, _ = columns(rows)
    dual = tnorm.dual
    assert dual.dual == tnorm
    assert same(dual(a, b), 1 - tnorm(1 - a, 1 - b))
    assert same(dual(a, torch.zeros_like(a)), a)
    assert same(dual(a, torch.ones_like(a)), torch.ones_like(a))
    x = torch.tensor(rows, dtype=D)
    assert same(dual.reduce(x, 1), 1 - tnorm.reduce(1 - x, 1))


@quick
@given(rows=triples)
def test_reduce_is_the_fold_and_ignores_order(tnorm, rows):
    a, b, c = columns(rows)
    x = torch.tensor(rows, dtype=D)
    for op in (tnorm, tnorm.dual):
        assert same(op.reduce(x, 1), op(op(a, b), c))
        assert same(op.reduce(x, 1), op.reduce(x.flip(1), 1))


@quick
@given(rows=dyadic_triples)
def test_residuation(left_continuous, rows):
    """T(a, c) ≤ b if and only if c ≤ I(a, b)."""
    a, b, c = columns(rows)
    below = left_continuous(a, c) <= b - 1e-9
    above = left_continuous(a, c) > b + 1e-9
    residuum = left_continuous.residuum(a, b)
    assert bool((c[below] <= residuum[below] + 1e-6).all())
    assert bool((c[above] > residuum[above] - 1e-6).all())


def test_residuum_is_the_supremum(tnorm):
    """sup{b : T(a, b) ≤ c} by bisection on T alone (errata 1.8)."""
    grid = torch.linspace(0, 1, 33, dtype=D)
    a, c = torch.meshgrid(grid, grid, indexing="ij")
    low, high = torch.zeros_like(a), torch.ones_like(a)
    for _ in range(60):
        middle = (low + high) / 2
        fits = tnorm(a, middle) <= c
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    residuum = tnorm.residuum(a, c)
    # Where T(a, ·) is too flat to bisect in floats, it is enough that the residuum solves T(a, b) = c as well.
    solves = (tnorm(a, residuum) - c).abs() < 1e-9
    assert bool((((low - residuum).abs() < 1e-5) | solves).all())


@quick
@given(rows=triples)
def test_generator_gives_the_tnorm(generated, rows):
    """T = g⁻¹(min(Σ g, g(0))) and g⁻¹(g(x)) = x, with nothing lifted (errata 3.3)."""
    x = torch.tensor(rows, dtype=D)
    g = generated.generator
    plain = g.inverse(g(x).sum(1).clamp_max(g.zero))
    assert same(plain.nan_to_num(nan=0.0), generated.reduce(x, 1), atol=1e-6)
    inside = x.clamp(0.05, 0.95)
    assert same(g.inverse(g(inside)), inside, atol=1e-6)
    assert g(torch.ones(1, dtype=D)).item() == 0


@quick
@given(rows=triples)
def test_implication_is_an_implication(implication, rows):
    a, b, c = columns(rows)
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    assert bool((implication(high, c) <= implication(low, c) + 1e-9).all())
    assert bool((implication(c, low) <= implication(c, high) + 1e-9).all())
    value = implication(a, b)
    assert bool(((value >= 0) & (value <= 1)).all())
    corners = torch.tensor([[0, 0], [0, 1], [1, 1], [1, 0]], dtype=D)
    assert same(implication(corners[:, 0], corners[:, 1]), torch.tensor([1, 1, 1, 0], dtype=D))


@quick
@given(rows=dyadic_triples)
def test_s_implication_is_not_a_or_c(tnorm, rows):
    a, c, _ = columns(rows)
    assert same(fz.SImplication(tnorm.dual)(a, c), tnorm.dual(1 - a, c))


@quick
@given(rows=triples)
def test_negation_is_a_negation(negation, rows):
    a, b, _ = columns(rows)
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    assert bool((negation(high) <= negation(low) + 1e-12).all())
    assert negation(torch.tensor([0.0, 1.0], dtype=D)).tolist() == [1, 0]
    a = a.clamp_min(0.1)  # a⁵ of less is lost beside 1
    assert bool((negation(negation(a)) >= a - 1e-9).all())


@quick
@given(rows=triples)
def test_aggregator_is_an_aggregator(bounded_aggregator, rows):
    x = torch.tensor(rows, dtype=D)
    value = bounded_aggregator(x, 1)
    assert bool(((value >= 0) & (value <= 1)).all())
    assert bool((bounded_aggregator(x * 0.9, 1) <= value + 1e-9).all())
    assert same(bounded_aggregator(torch.ones_like(x), 1), torch.ones_like(value))
    assert same(bounded_aggregator(torch.zeros_like(x), 1), torch.zeros_like(value))


@quick
@given(rows=triples)
def test_aggregator_ignores_order(aggregator, rows):
    x = torch.tensor(rows, dtype=D)
    assert same(aggregator(x, 1), aggregator(x[:, [2, 0, 1]], 1), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(rows=triples, lam=st.floats(1e-3, 1e3))
def test_frank_equation(rows, lam):
    """Frank's t-norms are the ones with T(a, b) + S(a, b) = a + b."""
    a, b, _ = columns(rows)
    tnorm = fz.Frank(lam)
    assert same(tnorm(a, b) + tnorm.dual(a, b), a + b, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(rows=triples, lam=st.floats(-0.9, 50))
def test_polynomial_families(rows, lam):
    """Hamacher and Sugeno-Weber have closed forms without logarithms."""
    a, b, _ = columns(rows)
    if lam >= 0:
        divisor = lam + (1 - lam) * (a + b - a * b)
        hamacher = torch.where(divisor > 0, a * b / torch.where(divisor > 0, divisor, 1.0), 0.0)
        assert same(fz.Hamacher(lam)(a, b), hamacher, atol=1e-6)
    sugeno = torch.relu((a + b - 1 + lam * a * b) / (1 + lam))
    assert same(fz.SugenoWeber(lam)(a, b), sugeno, atol=1e-6)
