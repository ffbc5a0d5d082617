"""Clauses, and the encodings of counting constraints, against enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from pysat.solvers import Solver as Engine

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic import CNF, Call, Count, Not, Or, Truth, all_models, propositions, to_cnf
from doxa.logic.sat._encode import METHODS, Clauses, assert_count, outputs

a, b, c = propositions("a b c")


def projected(clauses: Clauses, n: int) -> dict[tuple[bool, ...], int]:
    """How many models the clauses have for each assignment of the first n variables."""
    found: dict[tuple[bool, ...], int] = {}
    known = [[v, -v] for v in range(1, clauses.variables + 1)]
    with Engine("glucose4", bootstrap_with=clauses.lists + known) as engine:
        for model in engine.enum_models():
            key = tuple([v > 0 for v in sorted(model, key=abs)[:n]])
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", range(1, 8))
def test_bounds_on_every_number_of_literals(n: int, method: str) -> None:
    for low, high in product(range(n + 1), range(n + 1)):
        clauses = Clauses(n)
        assert_count(clauses, [*range(1, n + 1)], low, high, method=method)
        expected = {w: 1 for w in product([False, True], repeat=n) if low <= sum(w) <= high}
        assert projected(clauses, n) == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", range(1, 6))
def test_one_direction_has_the_same_projection(n: int, method: str) -> None:
    for low, high in product(range(n + 1), range(n + 1)):
        clauses = Clauses(n)
        assert_count(clauses, [(-1) ** v * v for v in range(1, n + 1)], low, high, method=method, unique=False)
        expected = {
            w for w in product([False, True], repeat=n) if low <= sum(t == bool(i % 2) for i, t in enumerate(w)) <= high
        }
        assert set(projected(clauses, n)) == expected


@pytest.mark.parametrize("method", ["counter", "totalizer"])
@pytest.mark.parametrize("n", range(1, 8))
def test_outputs_count(n: int, method: str) -> None:
    for top in range(1, n + 1):
        clauses = Clauses(n)
        s = outputs(clauses, [*range(1, n + 1)], top, method=method)
        assert len(s) == top
        with Engine("glucose4", bootstrap_with=clauses.lists) as engine:
            for world in product([False, True], repeat=n):
                given = [v if t else -v for v, t in enumerate(world, 1)]
                assert engine.solve(given)
                true = set(engine.get_model())
                assert [x in true for x in s] == [sum(world) >= j for j in range(1, top + 1)]


def test_impossible_bounds() -> None:
    for low, high in ((3, 2), (4, 5), (0, -1)):
        clauses = Clauses(3)
        assert_count(clauses, [1, 2, 3], low, high)
        assert clauses.lists == [[]]
    with pytest.raises(ConfigError, match="choose one of auto, binomial, counter, totalizer"):
        assert_count(Clauses(1), [1], 0, 0, method="pairwise")


@pytest.mark.parametrize(("k", "n"), [(1, 500), (3, 500), (250, 500), (497, 500)])
def test_large_counts_stay_small_and_right(k: int, n: int) -> None:
    x = [Call(f"x{i}") for i in range(n)]
    cnf = to_cnf(Count("exactly", k, x))
    assert len(cnf) < 8 * n * min(k + 1, n - k + 1, n // 2)
    rng = np.random.default_rng(0)
    with Engine("cadical195", bootstrap_with=cnf.clauses) as engine:
        for size in (k - 1, k, k + 1):
            chosen = set(rng.permutation(n)[:size].tolist())
            assert engine.solve([i + 1 if i in chosen else -i - 1 for i in range(n)]) == (size == k)


def test_nested_counts() -> None:
    x = propositions("p q r s t u v w")
    formula = Count(
        "at least", 2, [Count("exactly", 2, x[:4]), Count("at most", 2, x[2:]), Not(Count("at least", 3, x))]
    )
    expected = 0
    for w in product([0, 1], repeat=8):
        expected += (sum(w[:4]) == 2) + (sum(w[2:]) <= 2) + (sum(w) < 3) >= 2
    for method in ("tseitin", "polarity"):
        assert sum(1 for _ in all_models(to_cnf(formula, method=method))) == expected


def test_cnf_knows_its_parts() -> None:
    cnf = CNF.from_clauses([[1, -3], [2]], [a, None, b])
    assert (cnf.variables, cnf.auxiliary, cnf.index, len(cnf), list(cnf)) == (3, (2,), {a: 1, b: 3}, 2, [[1, -3], [2]])
    assert repr(cnf) == "CNF(2 clauses, 3 variables, 1 of them auxiliary)"
    assert cnf.literals.tolist() == [1, -3, 2] and cnf.offsets.tolist() == [0, 2, 3]
    assert cnf != CNF.from_clauses([[1, -3], [2]], 3)
    assert cnf != "cnf"


def test_cnf_and_formula() -> None:
    assert CNF.from_clauses([[]], 0).formula() == Truth(False)
    assert CNF.from_clauses([], 2).formula() == Truth(True)
    assert CNF.from_formula(Truth(True), [a, b]) == CNF.from_clauses([], [a, b])
    assert CNF.from_clauses([[2, -1]], [Call("aux2"), None]).formula() == Or(Call("_aux2"), ~Call("aux2"))
    with pytest.raises(KnowledgeError, match=r"it has an And. Use to_cnf"):
        CNF.from_formula(a | (b & c))


def test_literals_must_exist() -> None:
    with pytest.raises(KnowledgeError, match="literal -4 is out of range; literals are 1 to 3"):
        CNF.from_clauses([[1, -4]], 3)
    with pytest.raises(KnowledgeError, match="literal 0 is out of range"):
        CNF.from_clauses([[1, 0]], 3)


def test_conjunction_joins_atoms_and_keeps_auxiliaries_apart() -> None:
    left, right = to_cnf((a & b) | (b & c)), to_cnf((c & a) | (a & ~b))
    both = left & right
    assert both.variables == 3 + len(left.auxiliary) + len(right.auxiliary)
    assert sum(1 for _ in all_models(both)) == 1  # only a, b and c
    with pytest.raises(TypeError):
        left & a
