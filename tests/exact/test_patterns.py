"""Constraints found in clauses: equal to the clauses they replace, found when planted, left alone when nearly so."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import BudgetError
from doxa.exact.circuits import compile_cnf, weigh
from doxa.exact.circuits._compiler import compile_with
from doxa.exact.circuits._patterns import distinct, find_groups
from doxa.exact.circuits._search import Group
from doxa.logic import CNF
from doxa.problem import Budget
from doxa.problem._budget import Meter

Clauses = list[list[int]]


def tidy(clauses: Clauses, meter: Meter) -> list[tuple[int, ...]]:
    cnf = CNF.from_clauses(clauses, max((abs(x) for c in clauses for x in c), default=0))
    return distinct(cnf.literals, cnf.offsets, meter)


def found(clauses: Clauses) -> tuple[list[tuple[int, ...]], list[Group]]:
    meter = Meter(Budget(), "")
    return find_groups(tidy(clauses, meter), meter)


def at_least(literals: list[int], k: int) -> Clauses:
    return [list(c) for c in itertools.combinations(literals, len(literals) - k + 1)]


def xor(literals: list[int], odd: bool) -> Clauses:
    rows = [
        [x * s for x, s in zip(literals, signs, strict=True)]
        for signs in itertools.product((1, -1), repeat=len(literals))
    ]
    return [row for row in rows if (sum(x < 0 for x in row) - sum(x < 0 for x in literals)) % 2 != odd]


def holds(bits: tuple[bool, ...], clauses: Clauses | list[tuple[int, ...]], groups: list[Group]) -> bool:
    def true(x: int) -> bool:
        return bits[abs(x) - 1] == (x > 0)

    return all(any(map(true, c)) for c in clauses) and all(g.allowed >> sum(map(true, g.literals)) & 1 for g in groups)


@st.composite
def planted(draw: st.DrawFn) -> tuple[Clauses, int]:
    """A few constraints as clauses, over shared variables; perhaps with one clause missing or changed, and others."""
    variables = draw(st.integers(3, 7))
    rng = random.Random(draw(st.integers(0, 10**6)))
    clauses: Clauses = []
    for _ in range(draw(st.integers(1, 3))):
        size = rng.randint(2, min(variables, 5))
        literals = [v * rng.choice((1, -1)) for v in rng.sample(range(1, variables + 1), size)]
        own = xor(literals, rng.random() < 0.5) if rng.random() < 0.4 else at_least(literals, rng.randint(1, size))
        if rng.random() < 0.5:
            own += at_least([-x for x in literals], rng.randint(1, size))
        near = rng.random()
        place = rng.randrange(len(own))
        if near < 0.25:
            del own[place]
        elif near < 0.5:
            own[place] = [-own[place][0], *own[place][1:]]
        clauses += own
    for _ in range(rng.randint(0, 3)):
        clauses.append([v * rng.choice((1, -1)) for v in rng.sample(range(1, variables + 1), rng.randint(1, 3))])
    rng.shuffle(clauses)
    return clauses, variables


@settings(deadline=None, max_examples=150)
@given(planted())
def test_what_is_found_is_equal_to_the_clauses(case: tuple[Clauses, int]) -> None:
    clauses, variables = case
    left, groups = found(clauses)
    for bits in itertools.product((True, False), repeat=variables):
        assert holds(bits, clauses, []) == holds(bits, left, groups)


@settings(deadline=None, max_examples=60)
@given(case=planted(), seed=st.integers(0, 99))
def test_weighted_counts_and_gradients(case: tuple[Clauses, int], seed: int) -> None:
    clauses, variables = case
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2, variables, dtype=torch.float64, generator=generator).requires_grad_()
    formula = CNF.from_clauses(clauses, variables)
    broken, _ = compile_with("doxa", CNF.from_clauses([], variables), Budget(), clauses)
    for circuit, wanted in ((compile_cnf(formula), True), (broken, False)):
        models = [b for b in itertools.product((True, False), repeat=variables) if holds(b, clauses, []) == wanted]
        assert circuit.count() == len(models)
        if models:
            chosen: Tensor = torch.stack([torch.where(torch.tensor(b), weights[0], weights[1]).sum() for b in models])
            answers = [weigh(circuit, weights[0], weights[1]), chosen.logsumexp(0)]
            slopes = [torch.autograd.grad(answer, weights, retain_graph=True)[0] for answer in answers]
            torch.testing.assert_close(*answers)
            torch.testing.assert_close(*slopes)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(st.integers(-4, 4).filter(bool), max_size=5), max_size=12))
def test_clauses_are_tidied(clauses: Clauses) -> None:
    wanted: list[tuple[int, ...]] = []
    for clause in clauses:
        row = tuple(sorted(set(clause)))
        if row not in wanted and not any(-x in row for x in row):
            wanted.append(row)
    assert tidy(clauses, Meter(Budget(), "")) == wanted


def test_planted_constraints_are_found_and_nearly_planted_ones_are_not() -> None:
    for m in range(3, 8):
        literals = [v if v % 3 else -v for v in range(1, m + 1)]
        for k in range(2, m):
            whole = at_least(literals, k)
            assert not found(whole)[0]
            assert len(found(whole)[1]) == 1
            both = whole + at_least([-x for x in literals], m - k)
            assert not found(both)[0]
            ((_, allowed),) = found(both)[1]
            assert allowed.bit_count() == 1
        parity = xor(literals, odd=True)
        assert not found(parity)[0]
        assert len(found(parity)[1]) == 1
        assert found(parity[1:])[1] != found(parity)[1]
        assert compile_cnf(CNF.from_clauses(parity[1:], m)).count() == 2 ** (m - 1) + 1


def test_large_constraints_are_compiled_from_clauses() -> None:
    fourteen = list(range(1, 15))
    clauses = at_least(fourteen, 7) + at_least([-x for x in fourteen], 7)
    circuit = compile_cnf(CNF.from_clauses(clauses, 14), Budget(operations=1 << 18))
    assert circuit.count() == math.comb(14, 7)
    assert circuit.edges < 400
    assert compile_cnf(CNF.from_clauses(xor(fourteen[:12], odd=True), 14)).count() == 2**13
    steps = [c for i in range(1, 98, 2) for c in xor([i, i + 1, i + 2], odd=False)]  # a chain of XORs
    circuit = compile_cnf(CNF.from_clauses(steps, 99))
    assert circuit.count() == 2**50


def test_refusals_have_an_estimate() -> None:
    rng = random.Random(0)
    rows = [[v * rng.choice((1, -1)) for v in rng.sample(range(1, 121), 3)] for _ in range(240)]
    for limits in (Budget(operations=100_000), Budget(nodes=500)):
        with pytest.raises(BudgetError, match=r"about .* % is done, so some .* operations at this pace"):
            compile_cnf(CNF.from_clauses(rows, 120), limits)


def test_what_is_too_small_or_too_wide_to_pay_stays_as_clauses() -> None:
    pair = [[1, 2], [-1, -2], [2, 3, 4]]
    assert found(pair) == (tidy(pair, Meter(Budget(), "")), [])
    wide = list(range(1, 20_001))
    clauses = [wide, [-1, *wide[1:]], [-1, 2]]  # tables of all parts of these clauses would not fit
    left, groups = found(clauses)
    assert len(left) == 3
    assert not groups
    small = Meter(Budget(entries=1 << 8), "")
    many = [[1, 9], *at_least(list(range(1, 9)), 5)]
    assert find_groups(tidy(many, small), small)[1] == []
    assert len(found(many)[1]) == 1
