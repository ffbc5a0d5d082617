"""Simplification, normal forms, clauses and evaluation keep the meaning of propositional formulas.

The oracle is a truth table kept as one big integer, bit i of which is the truth under assignment i.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pysat.solvers import Solver as Engine
from tests.logic.generated import simplify

from doxa.errors import BindingError, ConfigError, KnowledgeError
from doxa.logic import (
    CNF,
    And,
    Call,
    Compare,
    Count,
    Expr,
    Iff,
    Implies,
    Let,
    Name,
    Not,
    Number,
    Or,
    Quantifier,
    Sort,
    Truth,
    Xor,
    all_models,
    count,
    exists,
    forall,
    postorder,
    propositions,
    satisfiable,
    to_cnf,
    variables,
)
from doxa.logic.sat._nnf import to_nnf
from doxa.logic.sat._solve import Solver
from doxa.logic.syntax._simplify import atoms_of, evaluate

ATOMS = propositions("a b c d e f g h i j k l")


def bits(index: int, n: int) -> int:
    """The truth of atom ``index`` under each of the 2**n assignments."""
    return sum(1 << row for row in range(2**n) if row >> index & 1)


COLUMNS = {n: [bits(i, n) for i in range(n)] for n in (4, 12)}


def table(formula: Expr, n: int = 12) -> int:
    """The truth table of a formula over the first n atoms, by the definition of each connective."""
    everything = (1 << 2**n) - 1
    value: dict[int, int] = {}
    for node in postorder(formula):
        below = [value[id(c)] for c in node.children if id(c) in value]
        if isinstance(node, Call):
            value[id(node)] = COLUMNS[n][ATOMS.index(node)]
        elif isinstance(node, Truth):
            value[id(node)] = everything if node.value else 0
        elif isinstance(node, Not):
            value[id(node)] = everything ^ below[0]
        elif isinstance(node, And):
            value[id(node)] = everything
            for b in below:
                value[id(node)] &= b
        elif isinstance(node, Or):
            value[id(node)] = 0
            for b in below:
                value[id(node)] |= b
        elif isinstance(node, Implies):
            value[id(node)] = (everything ^ below[0]) | below[1]
        elif isinstance(node, Xor):
            value[id(node)] = below[0] ^ below[1]
        elif isinstance(node, Iff):
            value[id(node)] = everything ^ below[0] ^ below[1]
        else:
            assert isinstance(node, Count)
            exactly = [everything] + [0] * len(below)  # exactly j of those so far
            for b in below:
                exactly = [(exactly[j] & ~b) | (exactly[j - 1] & b if j else 0) for j in range(len(exactly))]
            wanted = {"exactly": int.__eq__, "at most": int.__le__, "at least": int.__ge__}[node.kind]
            value[id(node)] = 0
            for j, rows in enumerate(exactly):
                value[id(node)] |= rows if wanted(j, node.count) else 0
    return value[id(formula)]


def formulas(n: int, leaves: int = 25) -> st.SearchStrategy[Expr]:
    leaf = st.sampled_from(ATOMS[:n]) | st.sampled_from(ATOMS[:n]) | st.booleans().map(Truth)

    def grow(below: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        several = st.lists(below, min_size=0, max_size=5)
        return st.one_of(
            below.map(Not),
            several.map(lambda a: And(*a)),
            several.map(lambda a: Or(*a)),
            st.builds(Implies, below, below),
            st.builds(Iff, below, below),
            st.builds(Xor, below, below),
            st.builds(Count, st.sampled_from(Count.KINDS), st.integers(0, 5), several),
            below.map(lambda x: Iff(And(x, ATOMS[0]), Or(x, Not(x)))),  # a shared subformula
        )

    return st.recursive(leaf, grow, max_leaves=leaves)


MANY = settings(max_examples=150, deadline=None)
SOME = settings(max_examples=60, deadline=None)


def is_literal(node: Expr) -> bool:
    return isinstance(node.children[0] if isinstance(node, Not) else node, Call | Compare)


# --- evaluation -----------------------------------------------------------------------------------------------------


@MANY
@given(formulas(12), st.integers(0, 2**12 - 1))
def test_evaluate_is_the_truth_table(formula: Expr, row: int) -> None:
    expected = bool(table(formula) >> row & 1)
    assert evaluate(formula, {a: bool(row >> i & 1) for i, a in enumerate(ATOMS)}) is expected


@MANY
@given(formulas(12))
def test_evaluate_takes_many_assignments_at_once(formula: Expr) -> None:
    rows = np.arange(2**12)
    columns = {a: (rows >> i & 1).astype(bool) for i, a in enumerate(ATOMS)}
    truth = table(formula)
    expected = np.array([truth >> row & 1 for row in range(2**12)], bool)
    assert (evaluate(formula, columns) == expected).all()
    tensors = {a: torch.from_numpy(c) for a, c in columns.items()}
    assert (evaluate(formula, tensors) == torch.from_numpy(expected)).all()


def test_evaluate_broadcasts_and_mixes_with_bools() -> None:
    a, b, c = ATOMS[:3]
    values = {a: torch.tensor([[True], [False]]), b: torch.tensor([True, False, True]), c: True}
    assert evaluate(Count("at least", 2, [a, b, Not(c)]), values).tolist() == [[True, False, True], [False] * 3]


@pytest.mark.parametrize(
    ("value", "message"),
    [(1, "got int"), (torch.ones(3), "got Tensor of torch.float32"), (np.zeros(2, int), "got ndarray of int64")],
)
def test_evaluate_wants_truth_values(value: object, message: str) -> None:
    with pytest.raises(BindingError, match=f"the truth value of a must be a bool.*{message}"):
        evaluate(ATOMS[0], {ATOMS[0]: value})


def test_evaluate_names_what_is_missing() -> None:
    with pytest.raises(BindingError, match="no truth value for the atom b"):
        evaluate(ATOMS[0] & ATOMS[1], {ATOMS[0]: True})


# --- simplification -------------------------------------------------------------------------------------------------


@MANY
@given(formulas(12))
def test_simplify_keeps_the_models(formula: Expr) -> None:
    simple = simplify(formula)
    assert table(simple) == table(formula)
    assert simplify(simple) == simple
    assert not any(isinstance(n, Truth) for n in postorder(simple)) or isinstance(simple, Truth)


@pytest.mark.parametrize(
    ("formula", "simple"),
    [
        (lambda a, b, c: ~~a, lambda a, b, c: a),
        (lambda a, b, c: (a & True) | False, lambda a, b, c: a),
        (lambda a, b, c: a & b & ~a, lambda a, b, c: Truth(False)),
        (lambda a, b, c: a | (b | ~a), lambda a, b, c: Truth(True)),
        (lambda a, b, c: And(a, ~~And(b, a)), lambda a, b, c: a & b),
        (lambda a, b, c: a >> False, lambda a, b, c: ~a),
        (lambda a, b, c: (a ^ a) | b, lambda a, b, c: b),
        (lambda a, b, c: a.iff(~a), lambda a, b, c: Truth(False)),
        (lambda a, b, c: ~a >> a, lambda a, b, c: a),
        (
            lambda a, b, c: Count("exactly", 2, [a, Truth(True), b, Truth(False), c]),
            lambda a, b, c: Count("exactly", 1, [a, b, c]),
        ),
        (lambda a, b, c: Count("at least", 1, [a, b]), lambda a, b, c: a | b),
        (lambda a, b, c: Count("at most", 1, [a, b]), lambda a, b, c: ~a | ~b),
        (lambda a, b, c: Count("exactly", 0, [a, b]), lambda a, b, c: ~a & ~b),
        (lambda a, b, c: Count("exactly", 4, [a, b, c]), lambda a, b, c: Truth(False)),
        (lambda a, b, c: Count("at most", 3, [a, b, c]), lambda a, b, c: Truth(True)),
    ],
)
def test_simplify_examples(formula: Callable[..., Expr], simple: Callable[..., Expr]) -> None:
    assert simplify(formula(*ATOMS[:3])) == simple(*ATOMS[:3])


def test_simplify_works_below_quantifiers_that_may_range_over_nothing() -> None:
    (x,) = variables("x", Sort("Person"))
    p = Call("p", (x,))
    assert simplify(forall(x)(p | True)) == Truth(True)
    assert simplify(exists(x)(p & False)) == Truth(False)
    assert simplify(exists(x)(p | True)) == exists(x)(Truth(True))
    assert simplify(forall(x, where=Truth(True))(~~p)) == forall(x)(p)
    assert simplify(forall(x, where=p & False)(p)) == Truth(True)
    assert simplify(Let([("d", Call("f", (x,)))], Name("d").eq(1) & True)) == Let(
        [("d", Call("f", (x,)))], Name("d").eq(1)
    )


def test_equal_subformulas_become_one_object() -> None:
    a, b = ATOMS[:2]
    left, right = simplify(Iff(Implies(a, b) | Call("q"), Implies(Call("a"), Call("b")) & Call("r"))).children
    assert left.children[0] is right.children[0]


# --- negation normal form -------------------------------------------------------------------------------------------


@MANY
@given(formulas(12), st.sampled_from(["keep", "expand"]))
def test_nnf_keeps_the_models_and_negates_only_atoms(formula: Expr, counting: str) -> None:
    normal = to_nnf(formula, counting=counting)
    assert table(normal) == table(formula)
    allowed = (And, Or, Not, Call, *([Count] if counting == "keep" else []))
    if not isinstance(normal, Truth):
        assert all(isinstance(n, allowed) for n in postorder(normal))
        assert all(is_literal(n) for n in postorder(normal) if isinstance(n, Not))


def test_nnf_of_nested_equivalences_does_not_blow_up() -> None:
    chain = Call("x0")
    for i in range(1, 200):
        chain = Iff(chain, Call(f"x{i}"))
    normal = to_nnf(chain)
    assert len(list(postorder(normal))) < 10 * 200
    row = np.random.default_rng(0).random((200, 50)) < 0.5
    assignment = {Call(f"x{i}"): row[i] for i in range(200)}
    assert (evaluate(normal, assignment) == (row.sum(0) % 2 == 0)).all()  # an even number of false ones


def test_nnf_turns_quantifiers_over() -> None:
    (x,) = variables("x", Sort("Person"))
    p, q = Call("p", (x,)), Call("q", (x,))
    assert to_nnf(~forall(x, where=q)(p >> q)) == exists(x, where=q)(p & ~q)
    assert to_nnf(~exists(x)(p)) == forall(x)(~p)
    counted = Quantifier("exactly", forall(x)(p).groups, ~~p, count=1)  # type: ignore[attr-defined]
    at_most = Quantifier("at most", counted.groups, p, count=0)
    at_least = Quantifier("at least", counted.groups, p, count=2)
    assert to_nnf(~counted) == at_most | at_least
    assert to_nnf(~Quantifier("at least", counted.groups, p, count=0)) == Truth(False)
    assert to_nnf(~Let([("d", Call("f", (x,)))], Name("d").eq(1) >> p)) == Let(
        [("d", Call("f", (x,)))], Name("d").eq(1) & ~p
    )


def test_nnf_knows_its_options() -> None:
    with pytest.raises(ConfigError, match="choose 'keep' or 'expand'"):
        to_nnf(ATOMS[0], counting="expnd")


# --- clauses --------------------------------------------------------------------------------------------------------


@MANY
@given(formulas(12, leaves=12))
def test_plain_clauses_have_the_same_models(formula: Expr) -> None:
    cnf = to_cnf(formula, method="plain", atoms=ATOMS)
    assert cnf.atoms == ATOMS
    assert table(cnf.formula()) == table(formula)


@SOME
@given(formulas(12), st.sampled_from(["tseitin", "polarity"]))
def test_encodings_have_the_same_models_on_the_atoms(formula: Expr, method: str) -> None:
    cnf = to_cnf(formula, method=method, atoms=ATOMS)
    assert cnf.auxiliary == tuple(range(len(ATOMS) + 1, cnf.variables + 1))
    truth = table(formula)
    with Engine("glucose4", bootstrap_with=cnf.clauses) as engine:
        for row in range(2**12):
            assumptions = [v if row >> (v - 1) & 1 else -v for v in range(1, 13)]
            assert engine.solve(assumptions) == bool(truth >> row & 1)


@MANY
@given(formulas(4))
def test_tseitin_has_every_model_once(formula: Expr) -> None:
    cnf = to_cnf(formula, atoms=ATOMS[:4])
    every = [[v, -v] for v in range(1, cnf.variables + 1)]  # so that the engine knows all variables
    with Engine("glucose4", bootstrap_with=[*cnf.clauses, *every]) as engine:
        assert sum(1 for _ in engine.enum_models()) == table(formula, 4).bit_count()


@MANY
@given(formulas(4))
def test_polarity_needs_no_more_clauses_than_tseitin(formula: Expr) -> None:
    assert len(to_cnf(formula, method="polarity")) <= len(to_cnf(formula))


def test_clauses_stay_clauses() -> None:
    a, b, c, d = ATOMS[:4]
    cnf = to_cnf((a & b) >> (c | d))
    assert (cnf.clauses, cnf.auxiliary) == ([[-1, -2, 3, 4]], ())
    assert to_cnf(And(a | ~b, c, Iff(a, d))).clauses == [[1, -2], [3], [-1, 4], [1, -4]]
    assert to_cnf(Truth(False)).clauses == [[]]
    assert to_cnf(Truth(True)).clauses == []


def test_plain_clauses_that_are_too_many_are_refused() -> None:
    pairs = [Call(f"x{i}") & Call(f"y{i}") for i in range(60)]
    with pytest.raises(KnowledgeError, match=r"more than 1000 while distributing.*method='tseitin'"):
        to_cnf(Or(*pairs), method="plain", limit=1000)
    with pytest.raises(KnowledgeError, match="too many"):
        to_cnf(Count("exactly", 30, [Call(f"x{i}") for i in range(60)]), method="plain")
    assert len(to_cnf(Or(*pairs[:9]), method="plain", limit=1000)) == 2**9


def evaluate_all_true(formula: Expr) -> object:
    return evaluate(formula, defaultdict(lambda: True))


@pytest.mark.parametrize("convert", [to_cnf, satisfiable, count, lambda f: list(all_models(f)), evaluate_all_true])
def test_quantifiers_must_be_grounded_first(convert: Callable[[Expr], object]) -> None:
    (x,) = variables("x", Sort("Person"))
    with pytest.raises(KnowledgeError, match=r"not propositional: it has exists over x.*ground\(formula, kb\)"):
        convert(Call("p") & exists(x)(Call("q", (x,))))
    with pytest.raises(KnowledgeError, match="1 is a term, and a formula is wanted"):
        convert(Call("p") & Number(1))


def test_unknown_method() -> None:
    with pytest.raises(ConfigError, match="choose one of tseitin, polarity, plain"):
        to_cnf(ATOMS[0], method="tsetin")


def test_counts_are_checked() -> None:
    with pytest.raises(KnowledgeError, match="no counting constraint 'most'"):
        Count("most", 1, ATOMS)
    with pytest.raises(KnowledgeError, match="not negative"):
        Count("at most", -1, ATOMS)


# --- solving --------------------------------------------------------------------------------------------------------


@MANY
@given(formulas(4))
def test_models_are_those_of_the_truth_table(formula: Expr) -> None:
    used = atoms_of(formula)
    truth = table(formula, 4)
    expected = {tuple([bool(row >> ATOMS.index(a) & 1) for a in used]) for row in range(16) if truth >> row & 1}
    found = [tuple(m.values()) for m in all_models(formula)]
    assert len(found) == len(expected) == count(formula) and set(found) == expected
    model = satisfiable(formula)
    assert (model is None) == (not expected)
    if model is not None:
        assert tuple(model) == used and evaluate(formula, model) is True


# --- large and deep -------------------------------------------------------------------------------------------------

N = 100_000
X = [Call(f"x{i}") for i in range(N)]


def nested(step: Callable[[Expr, Expr], Expr]) -> Expr:
    formula = X[0]
    for x in X[1:]:
        formula = step(x, formula)
    return formula


MIXED = (And, Or, Implies, Iff, Xor, lambda x, f: Count("at most", 1, [x, f, x]), lambda x, f: Not(f))
LARGE = {
    "literals": lambda: And(*[Not(x) if i % 2 else x for i, x in enumerate(X)]),
    "clauses": lambda: And(*[Or(x, Not(y)) for x, y in pairwise(X)]),
    "negations": lambda: nested(lambda x, f: Not(f)),
    "implications": lambda: nested(lambda x, f: Implies(x, f)),
    "conjunctions in disguise": lambda: nested(lambda x, f: Not(Implies(x, Not(f)))),
    "everything": lambda: nested(lambda x, f: MIXED[int(x.label[0][1:]) % 7](x, f)),
}


SLOW = ("clauses", "implications", "conjunctions in disguise")  # the same code on other shapes


@pytest.mark.parametrize("shape", [pytest.param(s, marks=pytest.mark.slow) if s in SLOW else s for s in LARGE])
def test_a_hundred_thousand_conjuncts_or_levels_go_through(shape: str) -> None:
    formula = LARGE[shape]()
    row = dict(zip(X, (np.random.default_rng(1).random(N) < 0.5).tolist(), strict=True))
    expected = evaluate(formula, row)
    assert evaluate(simplify(formula), row) is expected
    assert evaluate(to_nnf(formula), row) is expected
    with Solver(to_cnf(formula, atoms=X)) as solver:
        assert (solver.solve(row) is not None) is expected
        model = solver.solve()
    assert model is not None and evaluate(formula, model) is True


def test_plain_clauses_of_a_hundred_thousand_levels() -> None:
    cnf = to_cnf(LARGE["implications"](), method="plain", atoms=X)
    assert sorted(cnf.clauses[0]) == [*range(-N, -1), 1] and len(cnf) == 1


def test_shared_conjunctions_do_not_double() -> None:
    doubled = reduced = X[0]
    for x in X[1:40]:
        doubled = And(x, Not(Not(doubled)), Not(Or(Not(doubled), Not(x))))
        reduced = And(x, Not(Not(reduced)), Or(reduced, reduced))
    assert set(to_nnf(doubled).children) == set(simplify(reduced).children) == set(X[:40])
    assert sum(len(n.children) for n in postorder(simplify(doubled))) < 40 * 40 * 2


def test_cnf_round_trip_through_a_formula() -> None:
    cnf = CNF.from_clauses([[1, -2, 3], [], [-3], [2, 2]], 4)
    assert CNF.from_formula(cnf.formula(), cnf.atoms) == cnf  # type: ignore[arg-type]
