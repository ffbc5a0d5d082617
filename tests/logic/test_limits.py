"""What is too large is refused before it is built, what takes too long is stopped, and Ctrl-C is heard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import pytest

from doxa.errors import BindingError, BudgetError, ConfigError, DataError
from doxa.logic import (
    And,
    Call,
    Count,
    Expr,
    KnowledgeBase,
    Not,
    Or,
    all_models,
    count,
    entails,
    ground,
    parse,
    parse_formula,
    propositions,
    read_dimacs,
    satisfiable,
    to_cnf,
)
from doxa.logic.sat._nnf import to_nnf
from doxa.logic.unfold._domains import Clock, Universe, check_grounding


def pigeonhole(pigeons: int, holes: int) -> Expr:
    """Every pigeon sits in a hole, and no two in one."""
    sits = [[Call(f"p{i}_{j}") for j in range(holes)] for i in range(pigeons)]
    apart = [Not(a & b) for hole in zip(*sits, strict=True) for a, b in combinations(hole, 2)]
    return And(*[Or(*row) for row in sits], *apart)


SIX = "sort N; pred p(N, N, N, N, N, N); forall a, b, c, d, e, f: N. p(a, b, c, d, e, f)"


def over_budget(field: str, message: str) -> Any:
    return pytest.raises(BudgetError, match=message, check=lambda error: error.field == field)


@pytest.mark.parametrize("ask", [ground, satisfiable, count, lambda kb, **kw: next(all_models(kb, **kw))])
def test_too_many_instances_are_refused_before_they_are_built(ask: Callable[..., Any]) -> None:
    kb = parse(SIX, warn=False)
    with over_budget("entries", r"grounding forall a, b, c, d, e, f: N.* takes 1,\d{3},\d{3},\d{3},\d{3} entries"):
        ask(kb, domains={"N": 100})
    with over_budget("entries", "more than entries=100;"):
        ask(kb, domains={"N": 3}, entries=100)


def test_a_question_is_measured_too() -> None:
    kb = parse("sort N; pred p(N, N); pred q; q", warn=False)
    with over_budget("entries", "grounding"):
        entails(kb, parse_formula("forall x, y: N. p(x, y)", kb), domains={"N": 5000})


def instances(text: str, size: int) -> int:
    """The entries that an axiom is estimated to take: the least limit that lets it pass."""
    kb = parse(text, warn=False)
    low, high = 0, 10**9
    while low < high:
        middle = (low + high) // 2
        try:
            check_grounding([a.formula for a in kb.axioms], Universe(kb.signature, {"N": size}), middle)
            high = middle
        except BudgetError:
            low = middle + 1
    return low


@pytest.mark.parametrize(
    ("formula", "entries"),
    [
        ("forall x: N. p(x)", lambda n: 2 * n),
        ("forall x, y: N. r(x, y)", lambda n: 2 * n * n),
        # what mentions one variable is built once for each of its objects
        ("forall x: N. p(x) & (exists y: N. p(y))", lambda n: n + n + n + n + n),
        # a drawn value depends on what it is drawn from, and on no more
        ("forall x, y: N. d := f(x) (d = 3)", lambda n: n * n + n + n + n),
    ],
)
def test_the_estimate_counts_choices_of_variables(formula: str, entries: Callable[[int], int]) -> None:
    text = f"sort N; sort D = 0..9; pred p(N), r(N, N); func f(N) -> D; {formula}"
    assert [instances(text, n) for n in (3, 7)] == [entries(3), entries(7)]


def test_tables_of_functions_are_measured_while_they_grow() -> None:
    kb = parse("sort D = 0..999; func f(D) -> D; forall x: D. f(1) * f(2) * f(3) = x", warn=False)
    with over_budget("entries", "calculating the cases of"):
        ground(kb, entries=1_000_000)


@pytest.mark.parametrize("kind", ["exactly", "at most", "at least"])
def test_counts_are_measured_before_they_become_clauses(kind: str) -> None:
    atoms = propositions(" ".join(f"x{i}" for i in range(20_000)))
    with over_budget("entries", "writing this formula as clauses takes"):
        to_cnf(Count(kind, 10_000, atoms))
    assert len(to_cnf(Count(kind, 1, atoms)))


@pytest.mark.parametrize("n", [5, 12, 40])
@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("method", ["tseitin", "polarity"])
def test_the_estimate_of_clauses_is_no_less_than_half_of_them(n: int, k: int, method: str) -> None:
    atoms = propositions(" ".join(f"x{i}" for i in range(n)))
    formula = Or(Count("exactly", min(k, n), atoms), And(*atoms) >> Call("y"))
    entries = len(to_cnf(formula, method=method).literals) // 16
    with over_budget("entries", "clauses"):
        to_cnf(formula, method=method, entries=entries - 1)


def test_sorts_of_a_thousand_million_objects() -> None:
    kb = parse("sort N; pred p(N); forall x: N. p(x)", warn=False)
    with over_budget("entries", "sort N has 1,000,000,000 objects, more than entries=2,000,000"):
        ground(kb, domains={"N": 1_000_000_000})
    endless = parse("sort N = 0..999999999999; pred p(N); p(3)", warn=False)
    assert satisfiable(endless)
    with over_budget("entries", "grounding forall x: N"):
        ground(parse("forall x: N. p(x)", base=endless, warn=False))


@pytest.mark.parametrize("size", [-1, True])
def test_a_number_of_objects_is_a_number(size: int) -> None:
    with pytest.raises(BindingError, match="not negative, got"):
        ground(parse("sort N; pred p(N); forall x: N. p(x)", warn=False), domains={"N": size})


def test_a_hard_question_is_given_up_in_time() -> None:
    hard = pigeonhole(12, 11)
    for ask in (
        lambda: satisfiable(hard, seconds=0.2),
        lambda: list(all_models(hard, seconds=0.2)),
        lambda: count(hard, seconds=0.2),
        lambda: entails(hard, Call("p0_0"), seconds=0.2),
    ):
        with over_budget("seconds", r"could not decide within 0\.2 seconds; raise seconds"):
            ask()


def test_grounding_and_enumeration_are_given_up_in_time() -> None:
    kb = parse("sort N; pred p(N, N); forall x, y: N. p(x, y) | p(y, x)", warn=False)
    with over_budget("seconds", "could not decide within 1e-06 seconds"):
        ground(kb, domains={"N": 300}, seconds=1e-6)
    with over_budget("seconds", "could not decide within 0.1 seconds"):
        count(Or(*propositions(" ".join(f"x{i}" for i in range(40)))), limit=10**9, seconds=0.1)


class Stopping(Clock):
    """A clock that counts how often it is looked at, and has run out at the last of so many looks."""

    def __init__(self, last: int) -> None:
        super().__init__(None)
        self.looks, self.last = 0, last

    def check(self) -> None:
        self.looks += 1
        if self.looks == self.last:
            raise BudgetError("seconds", "could not decide in time")


@pytest.mark.parametrize("method", ["tseitin", "polarity", "plain"])
@pytest.mark.parametrize("shape", ["clauses", "count"])
def test_the_clock_is_looked_at_while_clauses_are_written(method: str, shape: str) -> None:
    atoms = propositions(" ".join(f"x{i}" for i in range(400 if shape == "clauses" else 40)))
    formula = Count("at most", 2, atoms) if shape == "count" else And(*[a & b | ~a & ~b for a, b in pairwise(atoms)])
    watched = Stopping(-1)
    assert to_cnf(formula, method=method, clock=watched).clauses == to_cnf(formula, method=method).clauses
    assert watched.looks > len(atoms)
    for last in (1, watched.looks // 2, watched.looks):
        with over_budget("seconds", "could not decide in time"):
            to_cnf(formula, method=method, clock=Stopping(last))


def test_clauses_are_written_within_the_seconds() -> None:
    cnf, more = to_cnf(Or(*propositions("a b c"))), pigeonhole(8, 8)
    for ask in (
        lambda: satisfiable(cnf, given=[more], seconds=1e-6),
        lambda: list(all_models(cnf, given=[more], seconds=1e-6)),
        lambda: count(cnf, given=[more], seconds=1e-6),
        lambda: entails(cnf, more, seconds=1e-6),
    ):
        with over_budget("seconds", "could not decide within 1e-06 seconds"):
            ask()


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_seconds_are_positive(seconds: float) -> None:
    with pytest.raises(ConfigError, match="must be a positive number"):
        satisfiable(Call("a"), seconds=seconds)


def test_answers_do_not_depend_on_the_clock() -> None:
    easy, none = pigeonhole(5, 5), pigeonhole(8, 7)
    assert satisfiable(easy, seconds=1000) == satisfiable(easy)
    assert satisfiable(none, seconds=1000) is None
    assert count(easy, seconds=1000) == count(easy) == 120
    assert entails(none, Call("p0_0"), seconds=1000).vacuous


def test_the_solver_goes_on_after_a_look_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doxa.logic.sat._solve._CONFLICTS", 10)
    assert satisfiable(pigeonhole(7, 6)) is None
    assert satisfiable(pigeonhole(6, 6)) is not None


def test_counting_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from doxa.logic.sat import _solve

    atoms = propositions("a b c d e")
    assert _solve._count_all(Count("exactly", 2, atoms), atoms, _solve.Clock(None)) == 10
    kb = KnowledgeBase(*[a | b for a, b in combinations(atoms, 2)])
    assert count(kb) == 6


def test_an_interrupt_is_heard_while_the_solver_works() -> None:
    script = """
        from itertools import combinations, pairwise
        from doxa.logic import And, Call, Not, Or, satisfiable
        sits = [[Call(f"p{i}_{j}") for j in range(10)] for i in range(11)]
        apart = [Not(a & b) for hole in zip(*sits) for a, b in combinations(hole, 2)]
        print("ready", flush=True)
        try:
            satisfiable(And(*[Or(*row) for row in sits], *apart))
        except KeyboardInterrupt:
            print("heard", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)  # now it is deep in the solver
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stdout.read() == "heard\n"
    finally:
        process.kill()
        process.stdout.close()


def test_counts_are_measured_before_they_are_written_out() -> None:
    atoms = propositions(" ".join(f"x{i}" for i in range(5_000)))
    with over_budget("entries", "writing the counts of this formula out takes"):
        to_nnf(Count("at least", 2_500, atoms), counting="expand")
    assert to_nnf(Count("at least", 2_500, atoms)) == Count("at least", 2_500, atoms)


@pytest.mark.parametrize("header", ["p cnf \u0663 1", f"p cnf {'9' * 5000} 1", "p cnf \u00b3 1"])
def test_numbers_of_a_dimacs_header_are_plain(header: str) -> None:
    with pytest.raises(DataError, match="wanted 'p cnf VARIABLES CLAUSES'"):
        read_dimacs(f"{header}\n1 0\n")


def test_a_comment_with_an_endless_number_names_nothing() -> None:
    assert str(read_dimacs(f"c {'1' * 5000} = rain\nc p show {'1' * 5000} 0\np cnf 1 1\n1 0\n").atoms[0]) == "x1"
