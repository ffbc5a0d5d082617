"""The kernel in C: against libm, the layers in torch, autograd in double precision and all worlds listed."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.exact import Compilation, Constraint
from doxa.exact.circuits import (
    Circuit,
    CircuitBuilder,
    cardinality,
    chain,
    compile_cnf,
    exactly_one,
    native_kernel,
)
from doxa.exact.circuits._kernel import MANY, Kernel, Mode, make_program
from doxa.exact.circuits._layers import evaluate, make_layers
from doxa.exact.circuits._semirings import BEST
from doxa.logic import CNF
from doxa.problem import Belief, Problem, addition, cnf


@pytest.fixture
def kernel() -> Kernel:
    found = native_kernel()
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@st.composite
def circuits(draw: st.DrawFn, most: int = 6) -> tuple[CNF, Circuit]:
    variables = draw(st.integers(1, most))
    literal = st.integers(1, variables).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literal, min_size=1, max_size=3), max_size=8))
    formula = CNF.from_clauses(clauses, variables)
    return formula, compile_cnf(formula).smooth()


def models(formula: CNF) -> list[tuple[int, ...]]:
    def holds(world: tuple[int, ...]) -> bool:
        return all(any(world[abs(x) - 1] == (x > 0) for x in clause) for clause in formula.clauses)

    return [world for world in itertools.product((0, 1), repeat=formula.variables) if holds(world)]


def by_layers(circuit: Circuit, weights: Tensor, mode: Mode) -> tuple[Tensor, Tensor]:
    """Root and derivatives in torch."""
    leaves = weights.clone().requires_grad_()
    layers = make_layers(circuit, real=mode == "real")
    root = evaluate(layers, leaves, **({"reduce": BEST} if mode == "best" else {}))
    return root.detach(), torch.autograd.grad(root.sum(), leaves)[0]


def draw_weights(rows: int, circuit: Circuit, mode: Mode, dtype: torch.dtype, scale: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = scale * torch.randn(circuit.literals, rows, dtype=torch.float64, generator=generator)
    gone = torch.rand(weights.shape, generator=generator) < 0.1
    weights[gone] = 0.0 if mode == "real" else -math.inf
    return weights.to(dtype)


@pytest.mark.parametrize("mode", ["log", "real", "best"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(deadline=None, max_examples=25)
@given(made=circuits(), rows=st.sampled_from([0, 1, 3, 8, 9, 33, 70]), seed=st.integers(0, 99))
def test_the_same_as_layers(mode: Mode, dtype: torch.dtype, made: tuple[CNF, Circuit], rows: int, seed: int) -> None:
    kernel, circuit = native_kernel(), made[1]
    if kernel is None or not circuit.edges:
        return
    weights = draw_weights(rows, circuit, mode, dtype, 1.0, seed)
    root, slopes = kernel.evaluate(make_program(circuit), weights, mode, slopes=True)
    alone, none = kernel.evaluate(make_program(circuit), weights, mode)
    assert torch.equal(alone, root) and none is None
    expected = by_layers(circuit, weights.double(), mode)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close((root.double(), slopes.double()), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0, 3e4, 1e12, 1e20])
def test_logarithms_of_any_size(kernel: Kernel, scale: float) -> None:
    """Far beyond the range of plain numbers, upwards and downwards, mixed within a block."""
    for circuit in (cardinality(9, 3, 6).smooth(), exactly_one(7), chain(30, [[True, True], [True, False]]).smooth()):
        weights = draw_weights(67, circuit, "log", torch.float64, scale, 0)
        weights[:, ::3] /= scale
        weights[:, 1::9] -= 5 * scale
        root, slopes = kernel.evaluate(make_program(circuit), weights, slopes=True)
        assert slopes is not None and slopes.isfinite().all() and not root.isnan().any()
        expected = by_layers(circuit, weights, "log")
        torch.testing.assert_close(root, expected[0], rtol=1e-12, atol=1e-11)
        torch.testing.assert_close(slopes, expected[1], rtol=1e-8, atol=1e-9)


def test_more_models_than_a_double_can_count(kernel: Kernel) -> None:
    n = 1500
    program = make_program(chain(n, [[True, True], [True, True]]).smooth())
    weights = torch.full((2 * n, 3), -math.log(2), dtype=torch.float64)
    root, slopes = kernel.evaluate(program, weights, slopes=True)
    assert program.bound == math.inf
    torch.testing.assert_close(root, torch.zeros_like(root), rtol=0, atol=1e-9)
    torch.testing.assert_close(slopes, torch.full_like(weights, 0.5))


@pytest.mark.parametrize("mode", ["log", "real", "best"])
def test_a_row_does_not_depend_on_others_nor_on_threads(kernel: Kernel, mode: Mode, two_threads: None) -> None:
    circuit = cardinality(24, 8, 16).smooth()
    program = make_program(circuit)
    weights = draw_weights(3001, circuit, mode, torch.float32, 40.0 if mode == "log" else 1.0, 1)
    many = kernel.evaluate(program, weights, mode, slopes=True)
    torch.set_num_threads(1)
    single = kernel.evaluate(program, weights, mode, slopes=True)
    apart = [kernel.evaluate(program, weights[:, i : i + 1], mode, slopes=True) for i in (0, 1, 500, 2999, 3000)]
    for a, b in zip(many, single, strict=True):
        assert a is not None and b is not None and torch.equal(a, b)
    for i, (root, slopes) in zip((0, 1, 500, 2999, 3000), apart, strict=True):
        assert slopes is not None and many[1] is not None
        assert torch.equal(root[0], many[0][i]) and torch.equal(slopes[:, 0], many[1][:, i])


def test_any_layout_of_memory(kernel: Kernel) -> None:
    circuit = cardinality(7, 2, 5).smooth()
    program, weights = make_program(circuit), torch.randn(14, 50)
    expected = kernel.evaluate(program, weights, slopes=True)
    for other in (weights.T.contiguous().T, torch.randn(28, 100)[::2, ::2].copy_(weights), weights.flip(0).flip(0)):
        for a, b in zip(kernel.evaluate(program, other, slopes=True), expected, strict=True):
            assert a is not None and b is not None and torch.equal(a, b)
    one = torch.randn(14, 1).expand(14, 20)
    found = kernel.evaluate(program, one)[0]
    assert torch.equal(found, found[:1].expand(20))


def test_literals_constants_and_rows_that_are_not_numbers(kernel: Kernel) -> None:
    weights = torch.tensor([[0.5, -math.inf, math.nan], [-1.0, -2.0, -3.0]], dtype=torch.float64)
    builder = CircuitBuilder(1)
    for literal, place in ((1, 0), (-1, 1)):
        root, slopes = kernel.evaluate(make_program(builder.build(literal)), weights, slopes=True)
        assert slopes is not None
        torch.testing.assert_close(root[:2], weights[place, :2])
        possible = (weights[place] > -math.inf).double()[:2]
        assert torch.equal(slopes[place, :2], possible) and (slopes[1 - place, :2] == 0).all()
    for mode in ("log", "best"):
        assert kernel.evaluate(make_program(builder.build(1)), weights, mode)[0][2].isnan()  # type: ignore[arg-type]
    true, false = (compile_cnf(CNF.from_clauses(c, 1)) for c in ([], [[1], [-1]]))
    for kind, expected in ((true, 0.0), (false, -math.inf)):
        root, slopes = kernel.evaluate(make_program(kind), weights[:, :2], slopes=True)
        assert root.tolist() == [expected] * 2 and slopes is not None and (slopes == 0).all()


@pytest.mark.parametrize("name", ["exponentials", "logarithms"])
def test_exponentials_and_logarithms_within_a_few_ulp(kernel: Kernel, name: str) -> None:
    rng = np.random.default_rng(0)
    if name == "exponentials":
        x = np.concatenate(
            [
                rng.uniform(-708, 700, 40_000),
                rng.uniform(-1, 1, 40_000),
                [0.0, -0.0, -708.0, 1e-300, -1e-9, 700.0, -1e5, -math.inf],
            ]
        )
        expected = np.where(x < -708, 0.0, np.exp(np.maximum(x, -745.0)))
    else:
        x = np.concatenate(
            [
                np.exp(rng.uniform(-700, 700, 40_000)),
                rng.uniform(0.5, 2, 40_000),
                [1.0, 2.0, 0.5, 1e300, 3e-308, 1 + 2e-16, math.sqrt(2), 0.7],
            ]
        )
        expected = np.log(x)
    padded, out = np.zeros(len(x) + 16), np.zeros(len(x) + 16)
    shift, other = (-padded.ctypes.data // 8) % 8, (-out.ctypes.data // 8) % 8  # vectors begin at multiples of 64 bytes
    padded[shift : shift + len(x)] = x
    pointers = (ctypes.c_void_p(a.ctypes.data + 8 * s) for a, s in ((padded, shift), (out, other)))
    getattr(kernel._library, name)(ctypes.c_int64(len(x)), *pointers)
    found = out[other : other + len(x)]
    assert (np.abs(found - expected) <= 4 * np.spacing(np.abs(expected))).all()


def literal_places(variables: int) -> np.ndarray:
    """Literal v gives variable v the value 1, literal -v the value 0."""
    numbers = range(2 * variables)
    return np.array([[i // 2 for i in numbers], [1 - i % 2 for i in numbers]], np.int32)


@pytest.mark.parametrize("k", [1, 2, 8, 20])
@pytest.mark.parametrize("equal", [False, True])
def test_the_best_worlds_do_not_depend_on_blocks_nor_on_threads(
    kernel: Kernel, k: int, equal: bool, two_threads: None
) -> None:
    circuit = cardinality(24, 8, 16).smooth()
    program, places = make_program(circuit), literal_places(24)
    weights = draw_weights(1501, circuit, "log", torch.float32, 1.0, 2)
    weights = weights.round() if equal else weights
    many = kernel.best(program, weights, k, 24, places)
    torch.set_num_threads(1)
    single = kernel.best(program, weights, k, 24, places)
    assert all(torch.equal(a, b) for a, b in zip(many, single, strict=True))
    for i in (0, 1, 700, 1500):  # another width of blocks
        worlds, scores = kernel.best(program, weights[:, i : i + 1], k, 24, places)
        assert torch.equal(worlds[0], many[0][i]) and torch.equal(scores[:, 0], many[1][:, i])
    for row in many[0][:50]:
        found = row[row[:, 0] >= 0]
        assert len(found.unique(dim=0)) == len(found), "no world twice"


@settings(deadline=None, max_examples=40)
@given(
    made=circuits(7),
    rows=st.sampled_from([0, 1, 8, 13, 40]),
    k=st.sampled_from([1, 2, 3, 5, 8, 9, 40, MANY]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    data=st.data(),
)
def test_the_best_worlds_are_those_of_all_worlds_listed(
    made: tuple[CNF, Circuit], rows: int, k: int, dtype: torch.dtype, data: st.DataObject
) -> None:
    kernel, (formula, circuit) = native_kernel(), made
    if kernel is None:
        return
    n = formula.variables
    weights = draw_weights(rows, circuit, "log", dtype, 1.0, data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        weights = weights.round()  # many are equal
    worlds, scores = kernel.best(make_program(circuit), weights, k, n, literal_places(n))
    exactness = 1e-5 if dtype == torch.float32 else 1e-9
    for row in range(rows):
        sums = {w: sum(weights[2 * v + 1 - x, row].item() for v, x in enumerate(w)) for w in models(formula)}
        expected = sorted((x for x in sums.values() if x > -math.inf), reverse=True)[:k]
        found = [tuple(w) for w in worlds[row].tolist()]
        assert len(set(found[: len(expected)])) == len(expected), "no world twice"
        assert [sums[w] for w in found[: len(expected)]] == pytest.approx(expected, exactness, exactness)
        assert scores[: len(expected), row].tolist() == pytest.approx(expected, exactness, exactness)
        assert (worlds[row, len(expected) :] == -1).all() and (scores[len(expected) :, row] == -math.inf).all()


def explained(problem: Problem, belief: Belief, output: Tensor, k: int) -> list[Tensor]:
    found = [Compilation(problem, native=native, cache=False).explain(belief, output, k) for native in (True, False)]
    return [x.scores for x in found]


@pytest.mark.parametrize("k", [1, 2, 6, MANY + 1])
def test_explanations_do_not_depend_on_the_kernel(kernel: Kernel, k: int) -> None:
    problem = addition(1)
    belief = Belief.from_logits(3 * torch.randn(6, 2, 10, dtype=torch.float64))
    torch.testing.assert_close(*explained(problem, belief, problem(problem.random_worlds(6)), k))
    formula = cnf([[1, 2], [-2, 3], [-1, -3, 4]])
    belief = Belief.from_bernoulli(logits=torch.randn(5, 4, dtype=torch.float64))
    for output in (torch.tensor([1]), torch.tensor([[1], [0], [-1], [0], [1]])):
        torch.testing.assert_close(*explained(formula, belief, output, k))


def test_posteriors_do_not_depend_on_the_kernel(kernel: Kernel) -> None:
    formula = cnf([[1, 2], [-2, 3], [-1, -3, 4]])
    belief = Belief.from_bernoulli(logits=torch.randn(5, 4, dtype=torch.float64))
    output = torch.tensor([[1], [0], [-1], [0], [1]])
    for ask in ("posterior", "entropy"):
        answers = [getattr(Compilation(formula, native=n, cache=False), ask)(belief, output) for n in (True, False)]
        torch.testing.assert_close(*(a.probs if isinstance(a, Belief) else a for a in answers))
    recorded = Belief.from_bernoulli(logits=torch.randn(5, 4, dtype=torch.float64, requires_grad=True))
    reasoner = Compilation(formula, cache=False)
    entropy = reasoner.entropy(recorded, output)
    assert entropy.requires_grad
    torch.testing.assert_close(entropy.detach(), reasoner.entropy(recorded.detach(), output))


def test_derivatives_of_first_and_second_order(kernel: Kernel) -> None:
    layers = make_layers(cardinality(5, 2, 3).smooth())
    real = make_layers(cardinality(5, 2, 3).smooth(), real=True)
    weights = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    for made in (layers, real):
        assert torch.autograd.gradcheck(lambda w, m=made: evaluate(m, w, kernel=kernel), (weights,))
        assert torch.autograd.gradgradcheck(lambda w, m=made: evaluate(m, w, kernel=kernel), (weights,))


def test_a_constraint_with_a_circuit_of_one_node() -> None:
    reasoner = Constraint(CNF.from_clauses([[1]], 1))
    belief = Belief.from_bernoulli(probs=torch.tensor([[0.25], [0.0]]))
    torch.testing.assert_close(reasoner.probability(belief), torch.tensor([0.25, 0.0]))
    assert reasoner.explain(belief, torch.tensor([1]), 2).worlds.tolist() == [[[1], [-1]], [[-1], [-1]]]


@settings(deadline=None, max_examples=50)
@given(made=circuits(), real=st.booleans())
def test_sizes_are_known_before_anything_is_arranged(made: tuple[CNF, Circuit], real: bool) -> None:
    layers = make_layers(made[1], real=real)
    order = layers.order.layers
    assert layers.nodes == order[-1].last
    assert layers.shares == 2 * sum(layer.last - layer.first for layer in order if layer.joins)


@settings(deadline=None, max_examples=50)
@given(made=circuits())
def test_derivatives_follow_the_root_and_stay_within_the_bound(made: tuple[CNF, Circuit]) -> None:
    program = make_program(made[1])
    whole = program.with_derivatives
    assert program.derived == program.extra == 0 < whole.derived
    for name in ("places", "sums", "products", "factors"):
        first = getattr(program, name)
        assert np.array_equal(first, getattr(whole, name)[: len(first)])
    models = made[1].total()
    bound = program.bound - (math.log(models) if models else 0.0)
    assert math.log(len(whole.products) + len(whole.factors)) <= bound + 1e-9
