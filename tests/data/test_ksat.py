"""Random k-SAT: what a clause may be, that it is uniform, and that instances are satisfiable."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch

from doxa.data import ksat_instances, random_ksat
from doxa.errors import ConfigError, DataError
from doxa.logic import read_dimacs, satisfiable, write_dimacs
from doxa.logic.syntax._simplify import evaluate


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_instances_parse_round_trip_and_are_satisfiable() -> None:
    instances = ksat_instances(100, 20, 91, generator=seeded())
    assert len(instances) == 100 and len({write_dimacs(c) for c in instances}) == 100
    for cnf in instances:
        assert read_dimacs(write_dimacs(cnf)) == cnf
        model = satisfiable(cnf)
        assert model is not None and evaluate(cnf.formula(), model) is True


@pytest.mark.parametrize(("n", "k"), [(3, 3), (5, 1), (6, 2), (20, 3), (9, 7), (1, 1)])
def test_clauses_have_k_different_variables(n: int, k: int) -> None:
    cnf = random_ksat(n, 500, k, generator=seeded(), satisfiable=False)
    literals = cnf.literals.reshape(500, k)
    assert np.abs(literals).min() >= 1 and np.abs(literals).max() <= n
    assert all(len(set(row)) == k for row in np.abs(literals).tolist())


def test_every_clause_is_equally_likely() -> None:
    n, k, draws = 5, 3, 40_000
    cnf = random_ksat(n, draws, k, generator=seeded(1), satisfiable=False)
    found: dict[frozenset[int], int] = {}
    for clause in cnf.clauses:
        found[frozenset(clause)] = found.get(frozenset(clause), 0) + 1
    every = [
        frozenset([s * v for s, v in zip(signs, chosen, strict=True)])
        for chosen in combinations(range(1, n + 1), k)
        for signs in product((1, -1), repeat=k)
    ]
    expected = draws / len(every)
    statistic = sum((found.get(clause, 0) - expected) ** 2 / expected for clause in every)
    assert set(found) == set(every)
    assert statistic < 150  # chi-squared with 79 degrees of freedom: above 150 once in a million


def test_the_seed_decides() -> None:
    first, second = (random_ksat(30, 120, generator=seeded(7)) for _ in range(2))
    assert first == second != random_ksat(30, 120, generator=seeded(8))


def test_unsatisfiable_instances_are_filtered_out() -> None:
    raw = ksat_instances(60, 10, 50, generator=seeded(2), satisfiable=False)
    good = [satisfiable(c) is not None for c in raw]
    assert 0 < sum(good) < 60  # so the filter has something to do
    kept = ksat_instances(sum(good), 10, 50, generator=seeded(2))
    assert kept == [c for c, ok in zip(raw, good, strict=True) if ok]


def test_too_many_clauses_are_given_up() -> None:
    with pytest.raises(DataError, match=r"none of 3 random instances .* 100.00 clauses per variable are too many"):
        random_ksat(5, 500, generator=seeded(), attempts=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((2, 5, 3), "k=3 different variables"), ((5, 5, 0), "k=0"), ((5, -1), "clauses must not be negative")],
)
def test_impossible_numbers(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        random_ksat(*arguments)


def test_no_clauses() -> None:
    assert len(random_ksat(4, 0)) == 0
