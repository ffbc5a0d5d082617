"""Projection onto linear knowledge: against enumeration and SciPy, its laws, its guarantee and its derivative."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from itertools import combinations
from math import frexp

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError
from doxa.refine import LinearProjection, LinearSystem

BUDGET = "total = a + b; 0 <= a <= 3; low <= high; 0 <= share <= 1; 0 <= b; a + 2*b - 3 <= c / 2; share + a <= 2"
LONG = "a1 + a2 + a3 + a4 + a5 + a6 - b1 - b2 - b3 - b4 - b5 - b6 = 0; a1 + b1 <= 1; a2 - b2 >= 0.1; a3 = b3 / 3"
SYSTEMS = [BUDGET, LONG, "low <= middle <= high", "x = y / 3; 3*x = y", "0.1*a + 0.2*b <= 0.3; a >= 0; b >= 0"]


def random(shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def nearest_by_enumeration(system: LinearSystem, x: Tensor) -> Tensor:
    """Of the projections onto the affine hulls of all sets of rows the nearest that is feasible: the exact answer."""
    matrix, bounds, equality = system.matrix, system.bounds, system.equality
    always = equality.nonzero().flatten().tolist()
    free = (~equality).nonzero().flatten().tolist()
    best, found = torch.full((len(x),), torch.inf, dtype=torch.float64), torch.full_like(x, torch.nan)
    for size in range(min(len(free), x.shape[1]) + 1):
        for chosen in combinations(free, size):
            rows = [*always, *chosen]
            y = x
            inverse = torch.linalg.pinv(matrix[rows], rtol=1e-11)
            for _ in range(2 if rows else 0):
                y = y - (y @ matrix[rows].T - bounds[rows]) @ inverse.T
            off = y @ matrix.T - bounds
            slack = 1e-10 * (y.abs() @ matrix.abs().T + bounds.abs() + 1e-3)
            fine = ((off <= slack) & (~equality | (off >= -slack))).all(1)
            distance = torch.where(fine, (y - x).norm(dim=1), torch.inf)
            found = torch.where((distance < best).unsqueeze(1), y, found)
            best = torch.minimum(best, distance)
    return found


def exact_excess(system: LinearSystem, row: list[float], digits: int) -> float:
    """The largest violation in units in the last place of the row's scale, in fractions."""
    worst = Fraction(0)
    for a, b, equality in zip(system.matrix.tolist(), system.bounds.tolist(), system.equality.tolist(), strict=True):
        terms = [Fraction(c) * Fraction(v) for c, v in zip(a, row, strict=True)]
        off = sum(terms, -Fraction(b))
        scale = max([abs(t) for t in terms] + [abs(Fraction(b))])
        if off == 0 or (off < 0 and not equality):
            continue
        exponent = frexp(float(scale))[1]
        if Fraction(2) ** exponent <= scale:
            exponent += 1
        elif Fraction(2) ** (exponent - 1) > scale:
            exponent -= 1
        least = -149 if digits == 24 else -1074  # the smallest number that there is
        worst = max(worst, abs(off) / Fraction(2) ** max(exponent - digits, least))
    return float(worst)


@st.composite
def systems(draw: st.DrawFn) -> LinearSystem:
    """Small systems with whole coefficients: rows repeat, vanish, contradict and depend on each other."""
    n = draw(st.integers(1, 4))
    number = st.integers(-2, 2).map(float)
    row = st.lists(number, min_size=n, max_size=n)
    inequalities = draw(st.lists(st.tuples(row, st.integers(-2, 3).map(float)), min_size=1, max_size=6))
    equalities = draw(st.lists(st.tuples(row, st.integers(-1, 1).map(float)), max_size=2))
    if draw(st.booleans()):
        inequalities.append(([2 * c for c in inequalities[0][0]], 2 * inequalities[0][1]))
    parts = [
        (torch.tensor([a for a, _ in rows], dtype=torch.float64).view(-1, n), torch.tensor([b for _, b in rows]))
        for rows in (inequalities, equalities)
    ]
    return LinearSystem(*parts[0], *parts[1])


def feasible(system: LinearSystem, places: list[int]) -> bool:
    """SciPy's simplex method."""
    rows = [p for p in places if p < len(system.A)]
    others = [p - len(system.A) for p in places if p >= len(system.A)]
    status = linprog(
        np.zeros(len(system.names)),
        A_ub=system.A[rows].numpy() if rows else None,
        b_ub=system.b[rows].numpy() if rows else None,
        A_eq=system.E[others].numpy() if others else None,
        b_eq=system.f[others].numpy() if others else None,
        bounds=(None, None),
    ).status
    return bool(status != 2)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(systems(), st.sampled_from([0.5, 3.0, 1000.0]), st.integers(0, 1000))
def test_nearest_by_enumeration_or_proven_contradiction(system: LinearSystem, scale: float, seed: int) -> None:
    try:
        layer = LinearProjection(system)
    except KnowledgeError:
        found = system.contradiction()
        assert found is not None
        # the proof, in exact fractions
        rows = [[Fraction(c) for c in row] for row in system.matrix[list(found.places)].tolist()]
        assert all(
            sum((w * c for w, c in zip(found.weights, column, strict=True)), Fraction(0)) == 0
            for column in zip(*rows, strict=True)
        )
        bounds = [Fraction(b) for b in system.bounds[list(found.places)].tolist()]
        assert sum(w * b for w, b in zip(found.weights, bounds, strict=True)) == found.total < 0
        assert all(w > 0 or system.equality[p] for w, p in zip(found.weights, found.places, strict=True))
        # and a second opinion: they contradict each other, and no proper part of them does
        assert not feasible(system, list(found.places))
        assert all(feasible(system, [p for p in found.places if p != q]) for q in found.places)
        return
    assert feasible(system, list(range(system.count)))
    n = len(system.names)
    for x in (scale * random((16, n), seed), (scale * random((16, n), seed)).round()):
        wanted = nearest_by_enumeration(system, x)
        for dtype, tolerance, digits in ((torch.float64, 1e-9, 53), (torch.float32, 1e-5, 24)):
            y = layer(x.to(dtype))
            torch.testing.assert_close(y.double(), wanted, rtol=0, atol=tolerance * max(scale, 10.0))
            assert max(exact_excess(system, row, digits) for row in y.double().tolist()) <= 4
            assert torch.equal(layer(y), y)
            found = layer.certificate(x.to(dtype), y)
            assert float(found.primal.max()) <= 4 and float(found.dual.max()) == 0
            assert float(found.error.max()) <= tolerance * max(scale, 10.0)


@pytest.mark.parametrize("text", SYSTEMS)
def test_agrees_with_slsqp(text: str) -> None:
    layer = LinearProjection(text)
    s, x = layer.system, 3 * random((8, len(layer.names)), 1)
    A, b, E, f = (t.numpy() for t in (s.A, s.b, s.E, s.f))
    for start, ours in zip(x.numpy(), layer(x).numpy(), strict=True):
        rules = [{"type": "ineq", "fun": lambda y: b - A @ y, "jac": lambda y: -A}]
        independent = E if np.linalg.matrix_rank(E) == len(E) else E[:1]
        fixed = f[: len(independent)]
        rules.append(
            {"type": "eq", "fun": lambda y, E=independent, f=fixed: E @ y - f, "jac": lambda y, E=independent: E}
        )
        found = minimize(
            lambda y, start=start: 0.5 * ((y - start) ** 2).sum(),
            start,
            jac=lambda y, start=start: y - start,
            method="SLSQP",
            constraints=[r for r in rules if len(r["jac"](start))],
            options={"ftol": 1e-15, "maxiter": 300},
        )
        np.testing.assert_allclose(ours, found.x, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("text", SYSTEMS)
def test_laws(text: str, dtype: torch.dtype) -> None:
    """Idempotent to the bit, brings no two points further apart, does not care for the order of values and rows."""
    layer = LinearProjection(text)
    n, eps = len(layer.names), torch.finfo(dtype).eps
    x, other = 3 * random((200, n), 2, dtype), 3 * random((200, n), 3, dtype)
    y = layer(x)
    assert torch.equal(layer(y), y) and bool(layer.satisfied(y).all())
    assert bool(((y - layer(other)).norm(dim=1) <= (x - other).norm(dim=1) * (1 + 100 * eps) + 100 * eps).all())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(4))
    s = layer.system
    turned = LinearSystem(s.A.flip(0)[:, order], s.b.flip(0), s.E.flip(0)[:, order], s.f.flip(0))
    torch.testing.assert_close(LinearProjection(turned)(x[:, order]), y[:, order], rtol=0, atol=200 * eps)


def test_satisfied_rows_come_back_to_the_bit() -> None:
    layer = LinearProjection(BUDGET)
    fine = torch.tensor([3.0, 1.0, 2.0, 0.1, 0.2, 0.3, 9.0])
    assert torch.equal(layer(fine), fine)
    batch = torch.stack([fine, -fine])
    assert torch.equal(layer(batch)[0], fine) and not torch.equal(layer(batch)[1], -fine)
    loose = LinearProjection("a <= b", names=("a", "b", "elsewhere"))
    x = torch.tensor([[2.0, 1.0, 0.1234567]])
    assert loose(x)[0, 2] == x[0, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("text", SYSTEMS)
@pytest.mark.parametrize("count", [2_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_no_row_is_violated_by_more_than_four_units(text: str, dtype: torch.dtype, count: int) -> None:
    layer = LinearProjection(text)
    violations, digits = 0, 53 if dtype == torch.float64 else 24
    for seed in range(0, count, 50_000):
        some = min(count, 50_000)
        x = random((some, len(layer.names)), seed, dtype) * 10 ** random((some, 1), seed + 1, dtype)
        y = layer(x)
        violations += int((layer.system.excess(y) > 4).sum())
        for row in y[:100].double().tolist():  # the measure itself, against fractions
            assert exact_excess(layer.system, row, digits) <= 4
    assert violations == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_huge_and_tiny_values(dtype: torch.dtype, scale: float) -> None:
    for text in SYSTEMS:
        layer = LinearProjection(text)
        n = len(layer.names)
        x = (scale * random((200, n), 5)).to(dtype)
        mixed = torch.where(random((200, n), 6) > 0, x, random((200, n), 7).to(dtype)).requires_grad_()
        y = layer(mixed)
        assert bool(torch.isfinite(y).all()) and float(layer.system.excess(y).max()) <= 4
        (grad,) = torch.autograd.grad(y.sum(), mixed)
        assert bool(torch.isfinite(grad).all())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, in forward mode
@pytest.mark.parametrize("text", [BUDGET, "low <= middle <= high", "0.1*a + 0.2*b <= 0.3; a >= 0; b >= 0"])
def test_derivative(text: str) -> None:
    layer = LinearProjection(text)
    x = (3 * random((6, len(layer.names)), 8)).requires_grad_()
    assert torch.autograd.gradcheck(layer, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(layer, x)


def test_derivative_on_the_knowledge_itself_keeps_to_equalities() -> None:
    """Values that satisfy everything come back as they are, but can move only along total = a + b."""
    layer = LinearProjection("total = a + b; a >= 0")
    x = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(layer, x)
    normal = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(jacobian, torch.eye(3, dtype=torch.float64) - torch.outer(normal, normal) / 3)
    torch.testing.assert_close(torch.func.jacrev(layer, chunk_size=1)(x), jacobian)


def test_dependent_equalities_have_a_derivative() -> None:
    layer = LinearProjection("x = y / 3; 3*x = y; 6*x - 2*y = 0")
    for x in (torch.tensor([1.0, 3.0]), torch.tensor([2.0, -1.0])):
        torch.testing.assert_close(torch.autograd.functional.jacobian(layer, x), torch.tensor([[0.1, 0.3], [0.3, 0.9]]))


def test_guards() -> None:
    layer = LinearProjection("price >= 0; premium & !sale -> price >= 100; sale -> price = 50")
    assert layer.labels == ("premium", "sale")
    x = torch.tensor([20.0, 20.0, 20.0, -5.0]).unsqueeze(1)
    labels = torch.tensor([[True, False], [True, True], [False, False], [False, False]])
    wanted = torch.tensor([[100.0], [50.0], [20.0], [0.0]])
    assert torch.equal(layer(x, labels), wanted)
    by_name = {"premium": labels[:, 0], "sale": labels[:, 1]}
    assert torch.equal(layer(x, labels=by_name), wanted)
    assert bool(layer.satisfied(wanted, labels).all()) and not bool(layer.satisfied(x, labels).all())
    assert float(layer.certificate(x, wanted, labels).error.max()) == 0
    active = torch.zeros(4, 3, dtype=torch.bool)
    assert torch.equal(layer(x, labels, active), x)
    # each example alone
    for i in range(4):
        assert torch.equal(layer(x[i], labels[i]), wanted[i])


def test_guards_against_systems_of_the_rows_that_hold() -> None:
    text = "p -> total = a + b; q -> a <= b; a >= 0; p xor q -> b <= 1; total >= 1"
    layer = LinearProjection(text)
    x, labels = 2 * random((40, 3), 9), random((40, 2), 10) > 0
    y, s = layer(x, labels), layer.system
    held = s.holding(labels)
    assert held is not None
    for row, on, found in zip(x, held, y, strict=True):
        part = LinearSystem(s.A[on[: len(s.A)]], s.b[on[: len(s.A)]], s.E[on[len(s.A) :]], s.f[on[len(s.A) :]])
        torch.testing.assert_close(found, LinearProjection(part)(row), rtol=0, atol=1e-12)


def test_contradicting_guards_are_refused_when_they_occur() -> None:
    layer = LinearProjection("cheap -> price <= 10; premium -> price >= 100; price >= 0")
    x = torch.zeros(2, 1)
    assert layer(x, {"cheap": torch.tensor([True, False]), "premium": torch.tensor([False, True])}).tolist() == [
        [0],
        [100],
    ]
    with pytest.raises(KnowledgeError, match=r"example 1 .*`cheap -> price <= 10`, `premium -> price >= 100`; "):
        layer(x, {"cheap": torch.tensor([True, True]), "premium": torch.tensor([False, True])})
    equal = LinearProjection("p -> x = 1; q -> x = 2")
    with pytest.raises(KnowledgeError, match="`p -> x = 1`, `q -> x = 2`"):
        equal(torch.zeros(1, 1), torch.tensor([[True, True]]))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a <= 1; b <= 1; c <= 5; a + b >= 3", ("a <= 1", "b <= 1", "a + b >= 3")),
        ("low <= high; low >= 2; high <= 1; high >= 0", ("low <= high", "low >= 2", "high <= 1")),
        ("x = 1; x = 2", ("x = 1", "x = 2")),
        ("x = y / 3; 3*x = y + 1", ("x = y / 3", "3*x = y + 1")),
        ("x <= 0.1; 10*x >= 1.0000000001", ("x <= 0.1", "10*x >= 1.0000000001")),
        ("x >= 0; 1 <= 0", ("1 <= 0",)),
    ],
)
def test_contradictions_name_the_smallest_part(text: str, rows: tuple[str, ...]) -> None:
    with pytest.raises(KnowledgeError, match="contradict each other"):
        LinearProjection(text)
    found = LinearSystem.parse(text).contradiction()
    assert found is not None and set(found.rows) == set(rows)


def test_rows_that_just_fit_are_no_contradiction() -> None:
    layer = LinearProjection("x <= 0.1; 10*x >= 1; 0.3*y = 0.1 + 0.2")
    assert layer(torch.tensor([[5.0, 5.0]], dtype=torch.float64)).tolist() == [[0.1, 1.0]]
    corner = LinearProjection("x >= 0; y >= 0; x + y <= 0; x - y = 0")
    assert float(corner(random((50, 2))).abs().max()) == 0


def test_shapes_and_dtypes() -> None:
    layer = LinearProjection(BUDGET)
    assert layer(torch.zeros(0, 7)).shape == (0, 7)
    assert layer(torch.zeros(2, 0, 7, requires_grad=True)).shape == (2, 0, 7)
    x = random((2, 3, 7))
    assert torch.equal(layer(x), layer(x.view(6, 7)).view(2, 3, 7))
    assert layer(x[0, 0]).shape == (7,)
    assert layer(x.float()).dtype == torch.float32 and layer(x.bfloat16()).dtype == torch.float32
    assert layer.certificate(x[:0], x[:0]).error.shape == (0, 3)
    free = LinearProjection("", names=("a", "b"))
    assert torch.equal(free(x[..., :2]), x[..., :2])
    assert torch.equal(copy.deepcopy(layer)(x), layer(x)) and torch.equal(
        pickle.loads(pickle.dumps(layer))(x), layer(x)
    )
    assert list(layer.state_dict()) == [] and "1 equalities" in repr(layer)


def test_bad_input_is_refused_clearly() -> None:
    layer = LinearProjection("a <= b; p -> a >= 0")
    labels = torch.tensor([True])
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ConfigError, match="expected finite numbers"):
            layer(torch.tensor([1.0, bad]), labels)
    with pytest.raises(ConfigError, match=r"the values are a list, expected a tensor \(\*batch, 1\)"):
        LinearProjection("a >= 1")([0.0])  # a module takes whatever comes
    with pytest.raises(ConfigError, match=r"names is the text 'ab', expected a list of names: \['ab'\]"):
        LinearProjection("ab >= 1", "ab")
    with pytest.raises(ConfigError, match=r"shape \(3,\), expected \(\*batch, 2\): a, b"):
        layer(torch.zeros(3), labels)
    with pytest.raises(ConfigError, match="no labels came"):
        layer(torch.zeros(2))
    with pytest.raises(ConfigError, match="'q' is not a label"):
        layer(torch.zeros(2), {"q": torch.tensor(True)})
    with pytest.raises(ConfigError, match="label 'p' is missing"):
        layer(torch.zeros(2), {})
    with pytest.raises(ConfigError, match="expected bool"):
        layer(torch.zeros(2), torch.tensor([1.0]))
    with pytest.raises(ConfigError, match=r"expected \(\*batch, 1\)"):
        layer(torch.zeros(2), torch.tensor([True, False]))
    with pytest.raises(ConfigError, match="batch shape"):
        layer(torch.zeros(2, 2), torch.ones(3, 1, dtype=torch.bool))
    with pytest.raises(ConfigError, match="vmap cannot follow"):
        torch.vmap(LinearProjection("a <= b"))(torch.zeros(3, 2))
    with pytest.raises(ConfigError, match="no row has a guard"):
        LinearProjection("a <= b")(torch.zeros(2), labels)
    with pytest.raises(ConfigError, match="expected bool of shape"):
        layer(torch.zeros(2), labels, torch.ones(3, dtype=torch.bool))
    with pytest.raises(ConfigError, match="expected that of the values"):
        layer.certificate(torch.zeros(2), torch.zeros(1, 2), labels)
    with pytest.raises(ConfigError, match="expected a text or a LinearSystem"):
        LinearProjection(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="leave names and labels out"):
        LinearProjection(layer.system, names=("a", "b"))


def test_a_certificate_tells_a_wrong_answer() -> None:
    layer = LinearProjection("a + b <= 1; a >= 0")
    x = random((20, 2), 11) + 1
    found = layer.certificate(x, layer(x) - 0.01)
    assert bool((found.error > 1e-3).all())
    assert float(layer.certificate(x, x + 1).primal.min()) > 4


@pytest.mark.parametrize("power", range(3, 16))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equalities_that_nearly_repeat_each_other(power: int, dtype: torch.dtype) -> None:
    near = f"{1 + 10.0**-power:.17g}"
    text = f"x + y + z = 1; {near}*x + y + z = 1; x >= 0; y >= 0; z >= 0"
    layer, plain = LinearProjection(text), LinearProjection("x = 0; y + z = 1; y >= 0; z >= 0", names=list("xyz"))
    x = 3 * random((50, 3), dtype=dtype)
    found = layer(x)
    assert bool(layer.satisfied(found).all())
    assert torch.allclose(found, plain(x), atol=1e-6 if dtype == torch.float32 else 1e-14)
    assert float(layer.certificate(x, found).error.max()) < (1e-5 if dtype == torch.float32 else 1e-13)
    guarded = LinearProjection(f"on -> x + y = 1; on -> {near}*x + y = 1")
    free, held = guarded(x[:, :2], labels={"on": torch.arange(50) % 2 == 0}), torch.tensor([0.0, 1.0], dtype=dtype)
    assert torch.equal(free[1::2], x[1::2, :2]) and torch.allclose(free[::2], held.expand(25, 2), atol=1e-6)
