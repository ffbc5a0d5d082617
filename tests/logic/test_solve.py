"""Satisfiability, models, counting and entailment."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.errors import BudgetError, KnowledgeError
from doxa.logic import (
    CNF,
    And,
    Call,
    Constant,
    Count,
    Expr,
    Fact,
    Function,
    KnowledgeBase,
    Name,
    Not,
    Or,
    Predicate,
    Sort,
    Truth,
    all_models,
    count,
    entails,
    exactly,
    exists,
    forall,
    ground,
    propositions,
    satisfiable,
    to_cnf,
    variables,
)
from doxa.logic.sat._solve import Solver
from doxa.logic.syntax._simplify import evaluate

a, b, c, d = propositions("a b c d")
PERSON = Sort("Person")
ANN, BOB = Constant("ann", PERSON), Constant("bob", PERSON)
smokes, cancer, friends = (
    Predicate("smokes", (PERSON,)),
    Predicate("cancer", (PERSON,)),
    Predicate("friends", (PERSON,) * 2),
)
x, y = variables("x y", PERSON)
SMOKERS = KnowledgeBase(
    ANN,
    BOB,
    Fact(smokes(ANN)),  # type: ignore[arg-type]
    spread=forall(x, y)((smokes(x) & friends(x, y)) >> smokes(y)),
    harm=forall(x)(smokes(x) >> cancer(x)),
)


# --- Sudoku ---------------------------------------------------------------------------------------------------------


def sudoku(box: int) -> tuple[KnowledgeBase, Predicate]:
    n = box * box
    row, column, digit = Sort.range("Row", 1, n), Sort.range("Column", 1, n), Sort.range("Digit", 1, n)
    side = Sort.range("Side", 0, box - 1)
    cell = Predicate("cell", (row, column, digit))
    (r,), (k,), (v,) = variables("r", row), variables("k", column), variables("v", digit)
    i, j = variables("i j", side)
    inside = ((r - 1) // box).eq(i) & ((k - 1) // box).eq(j)
    kb = KnowledgeBase(
        cells=forall(r, k)(exactly(1, v)(cell(r, k, v))),
        rows=forall(r, v)(exactly(1, k)(cell(r, k, v))),
        columns=forall(k, v)(exactly(1, r)(cell(r, k, v))),
        boxes=forall(i, j, v)(exactly(1, r, k, where=inside)(cell(r, k, v))),
    )
    return kb, cell


def test_sudoku_4x4_has_288_solutions() -> None:
    kb, cell = sudoku(2)
    assert count(kb) == 288
    assert sum(1 for _ in all_models(to_cnf(ground(kb).theory))) == 288
    assert count(kb, given=[cell(1, v, v) for v in (1, 2, 3, 4)]) == 288 // 24


PUZZLE = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"


def check_solution(digits: list[int]) -> None:
    rows = [digits[i * 9 : i * 9 + 9] for i in range(9)]
    boxes = [[rows[r + i][k + j] for i in range(3) for j in range(3)] for r in (0, 3, 6) for k in (0, 3, 6)]
    assert all(sorted(group) == [*range(1, 10)] for group in [*rows, *map(list, zip(*rows, strict=True)), *boxes])
    assert all(clue in ("0", str(digit)) for clue, digit in zip(PUZZLE, digits, strict=True))


def test_sudoku_9x9_is_solved_with_predicates() -> None:
    kb, cell = sudoku(3)
    view = ground(kb)
    cnf = to_cnf(view.theory)
    assert (len(view.atoms), cnf.variables, len(cnf)) == (729, 729, 4 * 81 * (36 + 1))
    clues = [cell(i // 9 + 1, i % 9 + 1, int(digit)) for i, digit in enumerate(PUZZLE) if digit != "0"]
    (solution,) = all_models(kb, given=clues)
    check_solution([next(v for v in range(1, 10) if solution[cell(i // 9 + 1, i % 9 + 1, v)]) for i in range(81)])


def test_sudoku_9x9_is_solved_with_a_function() -> None:
    row, column, digit = Sort.range("Row", 0, 8), Sort.range("Column", 0, 8), Sort.range("Digit", 1, 9)
    at = Function("at", (row, column), digit)
    (r, s), (k, m) = variables("r s", row), variables("k m", column)
    kb = KnowledgeBase(
        rows=forall(r, k, m, where=k < m)(at(r, k).ne(at(r, m))),
        columns=forall(r, s, k, where=r < s)(at(r, k).ne(at(s, k))),
        boxes=forall(r, s, k, m, where=(r < s) & (r // 3).eq(s // 3) & (k // 3).eq(m // 3))(at(r, k).ne(at(s, m))),
    )
    clues = [at(i // 9, i % 9).eq(int(v)) for i, v in enumerate(PUZZLE) if v != "0"]
    (solution,) = all_models(kb, given=clues)
    check_solution([next(v for v in range(1, 10) if solution[at(i // 9, i % 9).eq(v)]) for i in range(81)])


# --- satisfiability and models --------------------------------------------------------------------------------------


def test_every_form_of_knowledge() -> None:
    kb = KnowledgeBase(axiom=(a | b) & ~c)
    for knowledge in (kb, ground(kb), (a | b) & ~c, to_cnf((a | b) & ~c)):
        assert satisfiable(knowledge, given=[~a]) == {a: False, b: True, c: False}
        assert satisfiable(knowledge, given={a: False, b: False}) is None
        assert len(list(all_models(knowledge))) == count(knowledge) == 3
        assert len(list(all_models(knowledge, 2))) == 2 and not list(all_models(knowledge, 0))
        assert count(knowledge, given=[a]) == 2
        assert entails(knowledge, a | b | c).holds and entails(knowledge, a, given=[~b]).holds
        assert entails(knowledge, a).counter_model == {a: False, b: True, c: False}


def test_auxiliary_variables_never_show() -> None:
    knowledge = to_cnf((a & b) | (c & d))
    assert knowledge.auxiliary
    assert all(set(m) == {a, b, c, d} for m in all_models(knowledge))
    assert count(knowledge) == count((a & b) | (c & d)) == 7
    counter = entails(knowledge, a & b).counter_model
    assert counter is not None and set(counter) == {a, b, c, d}


def test_atoms_without_constraints_are_counted() -> None:
    assert count(CNF.from_clauses([], 3)) == 8
    assert count(a | ~a) == 2
    assert list(all_models(Truth(True))) == [{}]
    assert list(all_models(Truth(False))) == []
    assert (count(Truth(True)), count(Truth(False))) == (1, 0)
    assert satisfiable(CNF.from_clauses([[]], 1)) is None


def test_counting_by_table_and_by_enumeration_agree() -> None:
    few, many = [Call(f"x{i}") for i in range(12)], [Call(f"x{i}") for i in range(17)]
    assert count(Count("exactly", 4, few)) == 495
    assert count(And(Count("exactly", 4, few), *many[12:])) == 495  # 17 atoms: one by one
    with pytest.raises(BudgetError, match="more than 100 models"):
        count(Or(*many), limit=100)


def test_models_are_lazy() -> None:
    many = Or(*[Call(f"x{i}") for i in range(200)])
    found = list(islice(all_models(many), 5))
    assert len({tuple(m.values()) for m in found}) == 5 and all(evaluate(many, m) for m in found)


def test_what_is_given_in_clauses_may_be_any_formula() -> None:
    assert satisfiable(to_cnf(a | b), given=[a.iff(b), c]) == {a: True, b: True, c: True}


def test_domains_belong_to_knowledge_bases() -> None:
    kb = KnowledgeBase(axiom=exists(x)(smokes(x)))
    assert count(kb, domains={"Person": 4}) == 15
    for knowledge in (a, to_cnf(a), ground(kb, domains={"Person": 1})):
        with pytest.raises(KnowledgeError, match="domains are the objects of a KnowledgeBase"):
            satisfiable(knowledge, domains={"Person": 2})


# --- entailment -----------------------------------------------------------------------------------------------------


def test_entailment_from_a_knowledge_base() -> None:
    assert entails(SMOKERS, cancer(ANN))
    assert entails(SMOKERS, forall(x)(friends(Name("ann"), x) >> cancer(x)))
    answer = entails(SMOKERS, exists(x)(~smokes(x)) | cancer(BOB))
    assert answer.holds and not answer.vacuous
    answer = entails(SMOKERS, cancer(BOB))
    assert not answer and answer.counter_model is not None
    assert evaluate(ground(SMOKERS).theory, answer.counter_model) is True
    assert answer.counter_model[cancer(BOB)] is False
    assert "!cancer(bob)" in str(answer)
    assert entails(SMOKERS, cancer(BOB), given=[friends(ANN, BOB)]).holds


def test_everything_follows_from_a_contradiction() -> None:
    answer = entails(a & ~a, b)
    assert answer.holds and answer.vacuous and "contradicts itself" in str(answer)


def test_functions_have_one_value_in_entailments() -> None:
    digit = Function("digit", (PERSON,), Sort.range("Digit", 0, 3))
    kb = KnowledgeBase(ANN, digit, axiom=digit(ANN) > 1)
    assert entails(kb, digit(ANN).eq(2) | digit(ANN).eq(3)).holds
    assert entails(kb, (digit(ANN) * 2).ne(3)).holds
    assert str(entails(kb, digit(ANN).eq(3))) == "does not follow; counter-model: digit(ann) = 2"
    counter = entails(kb, digit(ANN).eq(3)).counter_model
    assert counter is not None and [atom for atom, true in counter.items() if true] == [digit(ANN).eq(2)]


literals = st.sampled_from([a, b, c, d, ~a, ~b, ~c, ~d])
clauses = st.lists(st.lists(literals, min_size=1, max_size=3).map(lambda args: Or(*args)), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(clauses, clauses)
def test_counter_models_are_verified_by_evaluation(premises: list[Expr], goals: list[Expr]) -> None:
    premise, goal = And(*premises), And(*goals)
    answer = entails(premise, goal)
    worlds = [dict(zip((a, b, c, d), [bool(i >> j & 1) for j in range(4)], strict=True)) for i in range(16)]
    assert answer.holds == all(evaluate(goal, w) for w in worlds if evaluate(premise, w))
    assert answer.vacuous == (not any(evaluate(premise, w) for w in worlds))
    if answer.counter_model is not None:
        assert evaluate(And(premise, Not(goal)), answer.counter_model) is True


# --- many questions -------------------------------------------------------------------------------------------------


def test_a_solver_answers_many_questions() -> None:
    with Solver(SMOKERS) as solver:
        assert solver.solve([~cancer(ANN)]) is None
        assert solver.solve([~cancer(BOB), friends(ANN, BOB)]) is None
        assert solver.solve({cancer(BOB): False}) is not None
        before = solver.solve()
        assert before is not None
        solver.exclude(before)
        assert solver.solve(before) is None and solver.solve() is not None
        with pytest.raises(KnowledgeError, match=r"no atom cancer\(bop\); did you mean cancer\(bob\)"):
            solver.solve([Call("cancer", (Name("bop"),))])
