"""Circuits: counted against a SAT solver, evaluated against enumeration, read, written, kept and damaged."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import math
import multiprocessing
import random
import stat
import struct
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa._native import cache_directory, native_library
from doxa.errors import BudgetError, ConfigError, DataError, ProblemError
from doxa.exact import Compilation, Constraint, Elimination
from doxa.exact.circuits import (
    Circuit,
    CircuitBuilder,
    cardinality,
    chain,
    compile_cnf,
    exactly_one,
    machine,
    native_kernel,
    read_nnf,
    weigh,
    write_nnf,
)
from doxa.exact.circuits._files import Kept, key_of, load, pack, save
from doxa.exact.circuits._layers import evaluate, make_layers
from doxa.logic import CNF, count
from doxa.problem import Belief, BruteForce, Budget, addition, cnf


@st.composite
def formulas(draw: st.DrawFn, most: int = 8) -> CNF:
    variables = draw(st.integers(1, most))
    literal = st.integers(1, variables).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literal, min_size=0 if draw(st.booleans()) else 1, max_size=4), max_size=16))
    return CNF.from_clauses(clauses, variables)


def random_cnf(variables: int, clauses: int, seed: int = 0) -> CNF:
    rng = random.Random(seed)
    rows = [[v * rng.choice((1, -1)) for v in rng.sample(range(1, variables + 1), 3)] for _ in range(clauses)]
    return CNF.from_clauses(rows, variables)


def sudoku(box: int = 2) -> CNF:
    """Every filling of a Sudoku grid: cell (r, c) has value v as variable (r n + c) n + v + 1."""
    n = box * box
    cells = list(itertools.product(range(n), range(n)))
    groups = [[(r, c) for c in range(n)] for r in range(n)] + [[(r, c) for r in range(n)] for c in range(n)]
    groups += [
        [(box * a + i, box * b + j) for i in range(box) for j in range(box)] for a in range(box) for b in range(box)
    ]

    def variable(cell: tuple[int, int], value: int) -> int:
        return (cell[0] * n + cell[1]) * n + value + 1

    clauses = [[variable(cell, v) for v in range(n)] for cell in cells]
    clauses += [[-variable(c, v), -variable(c, w)] for c in cells for v, w in itertools.combinations(range(n), 2)]
    clauses += [
        [-variable(a, v), -variable(b, v)] for g in groups for v in range(n) for a, b in itertools.combinations(g, 2)
    ]
    return CNF.from_clauses(clauses, n**3)


def by_enumeration(formula: CNF, weights: Tensor) -> Tensor:
    """log of the weighted count, from all assignments; weights as for a circuit."""
    n = formula.variables
    total = weights.new_full((weights.shape[1],), -math.inf)
    for bits in itertools.product((True, False), repeat=n):
        if all(any(bits[abs(x) - 1] == (x > 0) for x in clause) for clause in formula.clauses):
            rows = [2 * v + (not bit) for v, bit in enumerate(bits)]
            total = torch.logaddexp(total, weights[rows].sum(0))
    return total


@settings(deadline=None, max_examples=60)
@given(formulas())
def test_counts_like_a_solver(formula: CNF) -> None:
    circuit = compile_cnf(formula)
    assert circuit.count() == count(formula)
    assert circuit.smooth().count() == count(formula)


@settings(deadline=None, max_examples=30)
@given(formulas())
def test_circuits_are_decomposable_deterministic_and_can_be_made_smooth(formula: CNF) -> None:
    circuit = compile_cnf(formula).smooth()
    scopes = circuit.scopes
    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        parts = [scopes[c] for c in children]
        if kind == 0:
            assert sum(p.bit_count() for p in parts) == scopes_union(parts).bit_count()
        else:
            assert len(set(parts)) <= 1
            for a, b in itertools.combinations(children, 2):
                assert not models_of(circuit, a) & models_of(circuit, b)


def scopes_union(scopes: list[int]) -> int:
    union = 0
    for scope in scopes:
        union |= scope
    return union


def models_of(circuit: Circuit, node: int) -> int:
    """The assignments that satisfy a node, as bits."""
    columns = [0] * circuit.literals
    for number in range(1 << circuit.variables):
        for v in range(circuit.variables):
            columns[2 * v + (1 - (number >> v & 1))] |= 1 << number
    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        value = (1 << (1 << circuit.variables)) - 1 if kind == 0 else 0
        for child in children:
            value = value & columns[child] if kind == 0 else value | columns[child]
        columns.append(value)
    return columns[node]


@pytest.mark.parametrize("native", [False, True])
@settings(deadline=None, max_examples=20)
@given(formula=formulas(6), seed=st.integers(0, 99))
def test_values_and_derivatives(native: bool, formula: CNF, seed: int) -> None:
    kernel = native_kernel() if native else None
    layers = make_layers(compile_cnf(formula).smooth())
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2 * formula.variables, 3, dtype=torch.float64, generator=generator)
    weights[torch.rand(weights.shape, generator=generator) < 0.2] = -math.inf
    weights.requires_grad_()
    value, expected = evaluate(layers, weights, kernel=kernel), by_enumeration(formula, weights)
    torch.testing.assert_close(value, expected)
    (slopes,) = torch.autograd.grad(value.sum(), weights, create_graph=True)
    assert slopes.isfinite().all()
    possible = expected > -math.inf
    if not possible.any():
        assert (slopes == 0).all()
        return
    finite = weights.detach().clamp(min=-1e3).requires_grad_()
    (wanted,) = torch.autograd.grad(by_enumeration(formula, finite).sum(), finite)
    torch.testing.assert_close(slopes[:, possible], wanted[:, possible], atol=1e-9, rtol=1e-6)
    if slopes.requires_grad:
        (second,) = torch.autograd.grad(slopes.square().sum(), weights)
        assert not second.isnan().any()


def test_kernel_and_layers_agree_on_a_large_circuit() -> None:
    kernel = native_kernel()
    if kernel is None:
        pytest.skip("no C compiler")
    layers = make_layers(compile_cnf(sudoku()).smooth())
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.float64, 1e-11)):
        for rows in (0, 1, 127, 300):
            weights = (3 * torch.randn(128, rows, dtype=dtype)).requires_grad_()
            answers = []
            for engine in (None, kernel):
                value = evaluate(layers, weights, kernel=engine)
                answers.append((value, *torch.autograd.grad(value.sum(), weights)))
            torch.testing.assert_close(*answers, rtol=tolerance, atol=tolerance)


def test_subnormal_numbers_survive_the_kernel() -> None:
    kernel = native_kernel()
    layers = make_layers(cardinality(6, 2, 4))
    evaluate(layers, torch.randn(12, 5), kernel=kernel)
    tiny = struct.unpack("<d", struct.pack("<Q", 1))[0]
    assert tiny * 1.0 > 0
    assert 1e-308 / 16 > 0
    assert (torch.tensor([1e-40]) * torch.ones(1)).item() > 0
    assert (torch.tensor([1e-310], dtype=torch.float64) / 2).item() > 0


def test_builders() -> None:
    for n in range(1, 7):
        assert exactly_one(n).count() == n
        for low, high in itertools.combinations_with_replacement(range(n + 1), 2):
            assert cardinality(n, low, high).count() == sum(math.comb(n, k) for k in range(low, high + 1))
        words = itertools.product((0, 1), repeat=n)
        expected = sum(all(not (a and b) for a, b in itertools.pairwise(w)) for w in words)
        assert chain(n, [[True, True], [True, False]]).count() == expected
        assert machine([[0, 1], [1, 0]], n, accepting=[1]).count() == 2 ** (n - 1)
    with pytest.raises(ProblemError, match="literal 3 is out of range"):
        CircuitBuilder(2).conjoin([3])


@settings(deadline=None, max_examples=20)
@given(formula=formulas())
def test_nnf_round_trip(tmp_path_factory: pytest.TempPathFactory, formula: CNF) -> None:
    path = tmp_path_factory.mktemp("nnf") / "circuit.nnf"
    circuit = compile_cnf(formula)
    write_nnf(circuit, path)
    assert read_nnf(path).count() == circuit.count()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line is not"),
        ("p cnf 1 1\n", "first line is not"),
        ("nnf 2 0 1\nL 1\n", "has 1 nodes, expected 2"),
        ("nnf 1 0 1\nL 2\n", "is no node"),
        ("nnf 2 1 1\nL 1\nA 2 0\n", "is no node"),
        ("nnf 1 1 1\nA 1 0\n", "is no node"),
        ("nnf 1 1 1\nX 1\n", "is no node"),
    ],
)
def test_bad_nnf_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.nnf").write_text(text)
    with pytest.raises(DataError, match=message):
        read_nnf(tmp_path / "x.nnf")


def test_sudoku_has_288_solutions() -> None:
    assert compile_cnf(sudoku()).count() == 288


def test_deep_formulas_do_not_recurse() -> None:
    n = 600
    formula = CNF.from_clauses([[-i, i + 1] for i in range(1, n)], n)
    weights = torch.zeros(2 * n, 1, dtype=torch.float64)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        circuit = compile_cnf(formula)
        assert circuit.count() == n + 1
        value = evaluate(make_layers(circuit.smooth()), weights)
    finally:
        sys.setrecursionlimit(limit)
    assert value.item() == pytest.approx(math.log(n + 1))


def test_budgets_are_kept() -> None:
    hard = random_cnf(120, 240)
    for limits in (Budget(seconds=1e-9), Budget(nodes=500), Budget(operations=20_000)):
        field = next(
            name for name in ("seconds", "nodes", "operations") if getattr(limits, name) != getattr(Budget(), name)
        )
        messages = set()
        for _ in range(2):
            with pytest.raises(BudgetError, match=rf"[Rr]aise Budget\({field}=...\)") as error:
                compile_cnf(hard, limits)
            messages.add(str(error.value))
            assert error.value.field == field
        assert len(messages) == 1, "the same every time"


def test_a_budget_means_the_same_for_a_circuit_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path))
    problem = cnf(random_cnf(10, 20).clauses, 10)
    small = Budget(operations=20_000)
    for kept in (0, 1):
        assert len(list(tmp_path.glob("*.circuit"))) == kept
        with pytest.raises(BudgetError, match="more than 20,000 operations"):
            Compilation(problem, budget=small)
        Compilation(problem)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [20, 30, 40, 50, 60])
def test_random_formulas_of_some_size(variables: int) -> None:
    formula = random_cnf(variables, int(4.2 * variables))
    assert compile_cnf(formula).count() == count(formula, limit=3_000_000)


@pytest.mark.slow
def test_larger_problems_agree_with_other_compilers() -> None:
    problem = addition(3, base=4)
    belief = Belief.from_logits(torch.randn(5, 6, 4, dtype=torch.float64))
    output = problem(problem.random_worlds(5))
    answers = [Compilation(problem, backend=b, cache=False).log_prob(belief, output) for b in available()]
    for answer in answers:
        torch.testing.assert_close(answer, answers[0])


def available() -> list[str]:
    found = ["doxa"]
    found += [name for name in ("pysdd", "dd") if importlib.util.find_spec(name) is not None]
    return found


@settings(deadline=None, max_examples=25)
@given(formula=formulas(6))
def test_other_compilers_count_the_same(formula: CNF) -> None:
    from doxa.exact.circuits._compiler import compile_with

    for backend in available():
        assert compile_with(backend, formula, Budget())[0].count() == count(formula)  # type: ignore[arg-type]


def test_missing_backends_are_explained() -> None:
    with pytest.raises(ConfigError, match="backend is 'minic2d', expected 'doxa', 'pysdd' or 'dd'"):
        Compilation(addition(1), backend="minic2d", cache=False)  # type: ignore[arg-type]
    for backend in {"pysdd", "dd"}.difference(available()):
        with pytest.raises(ConfigError, match="backend needs the package"):
            Compilation(addition(1, base=2), backend=backend, cache=False)  # type: ignore[arg-type]


def test_cached_circuits_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path))
    problem = cnf([[1, 2], [-2, 3]])
    belief, output = Belief.uniform((2, 2, 2)), torch.tensor([1])
    expected = Compilation(problem).log_prob(belief, output)
    (file,) = tmp_path.glob("*.circuit")
    content = file.read_bytes()
    for damaged in (b"", content[:-1], content + b"x", *(_flipped(content, i) for i in (0, 20, 50, len(content) - 3))):
        file.write_bytes(damaged)
        assert load(file.stem, tmp_path) is None
        torch.testing.assert_close(Compilation(problem).log_prob(belief, output), expected)
        assert file.read_bytes() == content  # rebuilt
    # A valid file under a wrong name is not taken either.
    other = tmp_path / f"{'0' * 64}.circuit"
    other.write_bytes(content)
    assert load(other.stem, tmp_path) is None


def _flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def _compile_in_a_process(folder: str, barrier: object) -> None:
    formula = random_cnf(30, 90)
    barrier.wait()  # type: ignore[attr-defined]
    for _ in range(5):
        save(key_of(formula), Kept(compile_cnf(formula), 7, 3), Path(folder))


def test_two_processes_leave_a_valid_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [context.Process(target=_compile_in_a_process, args=(str(tmp_path), barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    formula = random_cnf(30, 90)
    found = load(key_of(formula), tmp_path)
    assert found is not None
    assert pack(found, "") == pack(Kept(compile_cnf(formula), 7, 3), "")
    assert [file.suffix for file in tmp_path.iterdir()] == [".circuit"]


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="can be written by others"):
        cache_directory()
    source = tmp_path / "_some.c"
    source.write_text("int one(void) { return 1; }")
    assert native_library(source) is None


def test_the_cache_is_private_and_may_be_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link = tmp_path / "a" / "b", tmp_path / "link"
    monkeypatch.setenv("DOXA_CACHE", str(folder))
    assert stat.S_IMODE(cache_directory().stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(cache_directory().stat().st_mode) == 0o700
    link.symlink_to(folder)
    monkeypatch.setenv("DOXA_CACHE", str(link))
    assert cache_directory().samefile(folder)


@pytest.mark.parametrize("script", ["sleep 600", "exit 1", "touch $DOXA_CACHE/started; sleep 600 & wait"])
def test_a_compiler_that_hangs_or_fails_is_asked_once(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, source = tmp_path / "cc", tmp_path / "_some.c"
    source.write_text("int one(void) { return 1; }")
    compiler.write_text(f"#!/bin/sh\necho x >> $DOXA_CACHE/calls\n{script}\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("doxa._native.SECONDS", 0.2)
    for _ in range(2):
        assert native_library.__wrapped__(source) is None
    assert (tmp_path / "cache" / "calls").read_text() == "x\n"


@settings(deadline=None, max_examples=30)
@given(formula=formulas(6), seed=st.integers(0, 99))
def test_semirings(formula: CNF, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2, 3, formula.variables, dtype=torch.float64, generator=generator)
    circuit = compile_cnf(formula)
    leaves = torch.stack([weights[0], weights[1]], -1).flatten(-2).T
    torch.testing.assert_close(weigh(circuit, *weights), by_enumeration(formula, leaves))
    real = torch.zeros(3, dtype=torch.float64)
    best = torch.full((3,), -math.inf, dtype=torch.float64)
    for bits in itertools.product((True, False), repeat=formula.variables):
        if all(any(bits[abs(x) - 1] == (x > 0) for x in clause) for clause in formula.clauses):
            chosen = torch.where(torch.tensor(bits), weights[0], weights[1])
            real, best = real + chosen.prod(-1), torch.maximum(best, chosen.sum(-1))
    torch.testing.assert_close(weigh(circuit, *weights, "real"), real)
    torch.testing.assert_close(weigh(circuit, *weights, "max"), best)


@pytest.mark.parametrize("native", [False, True])
@settings(deadline=None, max_examples=20)
@given(formula=formulas(6), seed=st.integers(0, 99))
def test_plain_numbers_and_their_derivatives(native: bool, formula: CNF, seed: int) -> None:
    kernel = native_kernel() if native else None
    layers = make_layers(compile_cnf(formula).smooth(), real=True)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2 * formula.variables, 3, dtype=torch.float64, generator=generator)
    weights[torch.rand(weights.shape, generator=generator) < 0.2] = 0.0
    weights.requires_grad_()
    expected = 0.0 * weights.sum(0)
    for bits in itertools.product((True, False), repeat=formula.variables):
        if all(any(bits[abs(x) - 1] == (x > 0) for x in clause) for clause in formula.clauses):
            expected = expected + weights[[2 * v + (not bit) for v, bit in enumerate(bits)]].prod(0)
    value = evaluate(layers, weights, kernel=kernel)
    torch.testing.assert_close(value, expected)
    for graph in (False, True):
        slopes = [
            torch.autograd.grad((x * x).sum(), weights, create_graph=graph, retain_graph=True)[0]
            for x in (value, expected)
        ]
        torch.testing.assert_close(*slopes)
    second = [torch.autograd.grad(s.square().sum(), weights, materialize_grads=True)[0] for s in slopes]
    torch.testing.assert_close(*second)


def test_kernel_and_layers_agree_on_plain_numbers() -> None:
    kernel = native_kernel()
    if kernel is None:
        pytest.skip("no C compiler")
    circuit = compile_cnf(sudoku()).smooth()
    layers, by_logs = make_layers(circuit, real=True), make_layers(circuit)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-11)):
        for rows in (0, 1, 127, 300):
            weights = torch.rand(128, rows, dtype=dtype).requires_grad_()
            values = [
                evaluate(layers, weights),
                evaluate(layers, weights, kernel=kernel),
                evaluate(by_logs, weights.log()).exp(),
            ]
            answers = [(value, *torch.autograd.grad(value.sum(), weights)) for value in values]
            torch.testing.assert_close(answers[0], answers[1], rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(answers[0], answers[2], rtol=tolerance, atol=tolerance)


def test_semirings_have_derivatives_and_clear_errors() -> None:
    circuit = chain(3, [[True, True], [True, False]])
    positive, negative = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True).unbind(0)
    for semiring in ("log", "real"):
        assert torch.autograd.gradcheck(lambda a, b, s=semiring: weigh(circuit, a, b, s), (positive, negative))
        assert torch.autograd.gradgradcheck(lambda a, b, s=semiring: weigh(circuit, a, b, s), (positive, negative))
    with pytest.raises(ConfigError, match="semiring is 'tropical', expected one of log, real, max"):
        weigh(circuit, positive, negative, "tropical")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="one weight for each literal"):
        weigh(circuit, positive[:, :2], negative[:, :2])


@pytest.mark.parametrize("clauses", [230, *(pytest.param(n, marks=pytest.mark.slow) for n in (80, 160))])
def test_large_counts_agree_with_another_counter(clauses: int) -> None:
    """Sizes that cannot be listed one by one: doxa's circuit against Ganak, or against a second compiler of ours."""
    formula = random_cnf(60, clauses, seed=clauses) if clauses > 80 else random_cnf(40, clauses)
    found = compile_cnf(formula, Budget(operations=1 << 26)).count()
    if importlib.util.find_spec("pyganak") is not None:
        from pyganak import Counter

        counter = Counter()
        counter.new_vars(formula.variables)
        counter.add_clauses(formula.clauses)
        assert found == counter.count()
    # Renaming the variables changes every decision of the search, and must not change the count.
    order = random.Random(1).sample(range(1, formula.variables + 1), formula.variables)
    renamed = [[order[abs(x) - 1] * (1 if x > 0 else -1) for x in clause] for clause in formula.clauses]
    assert compile_cnf(CNF.from_clauses(renamed, formula.variables)).count() == found


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
def test_fourteen_binary_variables(seed: int) -> None:
    formula = random_cnf(14, 30, seed)
    problem = cnf(formula.clauses, 14)
    belief = Belief.from_bernoulli(logits=torch.randn(2, 14, dtype=torch.float64))
    oracle, output = BruteForce(problem), torch.tensor([1])
    for reasoner in (
        Compilation(problem, budget=Budget(operations=1 << 26)),
        Elimination(problem),
        Constraint(formula),
    ):
        torch.testing.assert_close(reasoner.log_prob(belief, output), oracle.log_prob(belief, output))
        torch.testing.assert_close(reasoner.posterior(belief, output).probs, oracle.posterior(belief, output).probs)
        torch.testing.assert_close(reasoner.explain(belief, output, 3).scores, oracle.explain(belief, output, 3).scores)
