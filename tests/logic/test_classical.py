"""Classical truth equals what plain Python loops say, on generated formulas, data and interpretations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.logic.generated import DECLARATIONS, Case, Maker, cases, make_case
from tests.logic.naive import Undefined, evaluate

from doxa.errors import KnowledgeError
from doxa.logic import (
    And,
    Axiom,
    Call,
    Count,
    Expr,
    Function,
    Implies,
    Interpretation,
    KnowledgeBase,
    Name,
    Not,
    Number,
    Or,
    Predicate,
    Sort,
    exists,
    forall,
    parse,
    propositions,
    truth,
    variables,
)
from doxa.logic.tensor._algebra import CLASSICAL
from doxa.logic.tensor._plan import TensorPlan

SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(cases, SEEDS, st.sampled_from([1, 3, 7, 50, 2**22]), st.integers(2, 4))
def test_truth_is_what_loops_say(case: Case, seed: int, chunk: int, depth: int) -> None:
    formula = Maker(seed, people="someone" in case.bindings).formula(depth)
    kb, interpretation = case.knowledge(formula)
    assert truth(kb["a0"], interpretation, chunk=chunk, **case.data).item() is bool(evaluate(formula, case.world))


@MANY
@given(SEEDS, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 9, 2**22]))
def test_terms_without_a_value_are_errors(seed: int, people: int, rows: int, chunk: int) -> None:
    """Where loops meet a term without a value, so does the machine; else it is right, or careful in an empty frame."""
    case = make_case(seed, people, rows, False)
    formula = Maker(seed, people=True, partial=True).formula(3)
    try:
        kb, interpretation = case.knowledge(formula)
    except KnowledgeError:  # the static check has seen a literal that is out of range
        return
    try:
        want = bool(evaluate(formula, case.world))
    except Undefined:
        with pytest.raises(KnowledgeError, match="axiom 'a0': "):
            truth(kb["a0"], interpretation, chunk=chunk, **case.data)
        return
    try:
        assert truth(kb["a0"], interpretation, chunk=chunk, **case.data).item() is want
    except KnowledgeError as error:
        assert "axiom 'a0': " in str(error)


@MANY
@given(SEEDS, st.integers(1, 3), st.booleans())
def test_every_axiom_of_a_knowledge_base(seed: int, people: int, neural: bool) -> None:
    case = make_case(seed, people, 2, neural)
    make = Maker(seed, people=True)
    formulas = [make.formula(2) for _ in range(4)]
    kb, interpretation = case.knowledge(*formulas)
    want = [bool(evaluate(f, case.world)) for f in formulas]
    assert TensorPlan(kb, interpretation)(**case.data).tolist() == want
    assert truth(kb, interpretation, **case.data).item() is all(want)


@MANY
@given(SEEDS, st.integers(0, 4), st.sampled_from([1, 5, 2**22]))
def test_kept_variables_are_axes(seed: int, people: int, chunk: int) -> None:
    """Keeping a variable gives the truth for each of its objects; behind a guard that fails it is vacuous."""
    case = make_case(seed, people, 2, False)
    make = Maker(seed, people=people > 0)
    body = make.formula(2, {"x": "P", "d": "D", "y": "P"})
    guard = make.atom({"x": "P", "d": "D"}, 1)
    x, y = variables("x y", Sort("P"))
    (d,) = variables("d", DECLARATIONS[1])
    kb, interpretation = case.knowledge(forall(x, d, where=guard)(forall(y)(body)))

    def holds(i: int, k: int) -> bool:
        env = {"x": i, "d": k}
        if not evaluate(guard, case.world, env):
            return True
        return all(evaluate(body, case.world, {**env, "y": j}) for j in range(people))

    got = truth(kb["a0"], interpretation, keep=("x", "d"), chunk=chunk, **case.data)
    assert got.tolist() == [[holds(i, k) for k in (1, 2, 3)] for i in range(people)]
    got = truth(kb["a0"], interpretation, keep="d", chunk=chunk, **case.data)
    assert got.tolist() == [all(holds(i, k) for i in range(people)) for k in (1, 2, 3)]


def test_free_variables_are_axes() -> None:
    P = Sort("P")
    r = Predicate("r", (P, P))
    x, y = variables("x y", P)
    kb = KnowledgeBase(r)
    table = torch.tensor([[True, False], [True, True]])
    world = Interpretation(kb, r=table)
    assert torch.equal(truth(r(x, y), world, P=2), table)
    assert torch.equal(truth(r(y, x) & r(x, y), world, P=2), table & table.T)
    assert torch.equal(truth(exists(y)(r(x, y) & ~r(y, x)), world, P=2), torch.tensor([False, True]))


def test_keep_that_is_not_there() -> None:
    kb = parse("sort P\npred p(P)\n[all] forall person: P. p(person)")
    world = Interpretation(kb, p=torch.ones(3, dtype=torch.bool))
    with pytest.raises(KnowledgeError, match=r"keep='persn'.*did you mean 'person'"):
        truth(kb["all"], world, keep="persn", P=3)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_empty_and_single_domains(size: int) -> None:
    kb = parse(
        """
        sort P
        pred p(P)
        [all] forall x: P. p(x)
        [some] exists x: P. p(x)
        [none] exactly 0 x: P. p(x)
        [few] at most 1 x, y: P. p(x) & p(y)
        [one] at least 1 x: P. true
        [nested] forall x: P. exists y: P where y != x. p(y)
        [constant] forall x: P. exists y: P. true
    """,
        warn=False,
    )
    for value in (True, False):
        world = Interpretation(kb, p=torch.full((size,), value))
        got = dict(zip([a.name for a in kb], TensorPlan(kb, world)(P=size).tolist(), strict=True))
        assert got == {
            "all": size == 0 or value,
            "some": size > 0 and value,
            "none": size == 0 or not value,
            "few": size <= 1 or not value,
            "one": size > 0,
            "nested": size == 0 or (size > 1 and value),
            "constant": True,
        }


def test_counting_constraints_between_formulas() -> None:
    kb = KnowledgeBase(*[Predicate(n) for n in "abc"])
    a, b, c = propositions("a b c")
    world = Interpretation(kb, a=True, b=True, c=False)
    assert truth(Count("exactly", 2, [a, b, c]), world)
    assert not truth(Count("at most", 1, [a, a, c]), world)
    assert truth(Count("at least", 0, []), world) and not truth(Count("exactly", 1, []), world)


def test_out_of_range_names_axiom_value_and_remedy() -> None:
    kb = parse("""
        sort D = 0..9
        pred p(D)
        func succ(D) -> D
        [up] forall d: D. p(d) -> p(succ(d))
        [plus] forall d: D. p(d + 1)
        [fine] forall d: D where d < 9. p(succ(succ(d)) - 1)
        [safe] forall d: D where d < 8. p(succ(succ(d)))
    """)
    world = Interpretation(kb, p=torch.ones(10, dtype=torch.bool), succ=lambda d: d + 1)
    with pytest.raises(KnowledgeError, match=r"axiom 'up': succ\(9\) has no value.*guard, as in 'where d < 9'"):
        truth(kb["up"], world)
    with pytest.raises(KnowledgeError, match=r"axiom 'plus': p\(d \+ 1\): 10 is no value of D.*where d < 9"):
        truth(kb["plus"], world)
    with pytest.raises(KnowledgeError, match=r"axiom 'fine': succ\(9\)"):
        truth(kb["fine"], world)
    assert truth(kb["safe"], world)


# --- very wide and very deep --------------------------------------------------------------------------------------

N = 5_000


def ground() -> tuple[KnowledgeBase, Interpretation, list[Expr], torch.Tensor]:
    D = Sort.range("D", 0, N - 1)
    p = Predicate("p", (D,))
    kb = KnowledgeBase(p, Predicate("a"), Predicate("b"), Function("f", (D,), D))
    table = torch.ones(N, dtype=torch.bool)
    table[17] = False
    return kb, Interpretation(kb, p=table, a=True, b=False, f=lambda d: (d + 1) % N), [p(i) for i in range(N)], table


def test_wide_conjunctions_are_few_operations() -> None:
    _, world, atoms, _ = ground()
    assert not truth(And(*atoms), world)
    assert truth(And(*[x for i, x in enumerate(atoms) if i != 17]), world)
    clauses = [Or(x, Not(atoms[(7 * i) % N]), Call("a")) for i, x in enumerate(atoms)]
    plan = TensorPlan(And(*clauses, ~atoms[17]), world)
    assert plan()
    with Counter() as counter:
        plan()
    assert counter.operations < 100


def test_wide_disjunction_over_an_axis() -> None:
    D = Sort.range("D", 0, 49)
    p, q = Predicate("p", (D, D)), Predicate("q", (D,))
    table = torch.rand(50, 50, generator=torch.Generator().manual_seed(0)) < 0.02
    world = Interpretation(KnowledgeBase(p, q), p=table, q=table[0])
    (x,) = variables("x", D)
    wide = Or(*[p(x, Number(i)) for i in range(50)], *[p(Number(i), x) & q(x) for i in range(0, 50, 2)], ~q(x))
    want = table.any(1) | (table[::2].any(0) & table[0]) | ~table[0]
    for chunk in (10, 1000, 2**22):
        assert torch.equal(truth(wide, world, chunk=chunk), want)


def test_many_propositions() -> None:
    names = [f"v{i}" for i in range(300)]
    values = torch.rand(300, generator=torch.Generator().manual_seed(1)) < 0.5
    kb = KnowledgeBase(
        *[Predicate(n) for n in names],
        *[Axiom(f"[{i}]", Implies(Call(names[i - 1]), Call(names[i]))) for i in range(300)],
    )
    world = Interpretation(kb, **{n: bool(v) for n, v in zip(names, values, strict=True)})
    got = TensorPlan(kb, world)()
    assert torch.equal(got, ~values.roll(1) | values)
    assert truth(Or(*[Call(n) for n in names]), world).item() is bool(values.any())


@pytest.mark.parametrize("stack", [2, 5, 100])
def test_stacked_rules_equal_rules_one_by_one(stack: int) -> None:
    """Rules that differ in constants, numbers and values are one rule with one more axis."""
    case = make_case(5, 4, 3, True)
    make = Maker(5, people=True)
    formulas = [make.formula(2) for _ in range(3)]
    x, y = variables("x y", Sort("P"))
    for k in (1, 2, 3):
        for c in ("red", "green"):
            formulas.append(forall(x)(Call("f", (x,)).eq(k) >> Call("has", (x, Name(c)))))
            formulas.append(exists(x, y)(Call("t", (x, Number(k), y)) & Call("both", (x, y)).eq(Name(c))))
            inner = Or(*[Call("q", (Number(1 + (k + i) % 3),)) & Call("has", (x, Name(c))) for i in range(4)])
            formulas.append(forall(x)(inner | Call("p", (x,))))
    kb, interpretation = case.knowledge(*formulas)
    want = [bool(evaluate(f, case.world)) for f in formulas]
    assert TensorPlan(kb, interpretation, stack=stack)(**case.data).tolist() == want
    assert TensorPlan(kb, interpretation, stack=stack, chunk=3)(**case.data).tolist() == want


def test_deep_nesting() -> None:
    _, world, atoms, table = ground()
    deep: Expr = atoms[0]
    want = True
    for i, atom in enumerate(atoms):
        deep, want = (atom & deep, want and bool(table[i])) if i % 2 else (~(deep | ~atom), not (want or not table[i]))
    assert truth(deep, world).item() is want
    (x,) = variables("x", Sort.range("E", 0, 3))
    e = Predicate("e", (Sort.range("E", 0, 3),))
    kb = KnowledgeBase(e)
    inner = Interpretation(kb, e=torch.tensor([True, True, False, True]))
    nested: Expr = e(x)
    for i in range(N):
        nested = (nested >> e(x)) if i % 2 else ~nested
    assert truth(exists(x)(nested), inner).item() in (True, False)
    term: Expr = x
    for _ in range(N):
        term = term + 1
    assert truth(forall(x)(term.eq(x + N)), inner)


@pytest.mark.slow
def test_a_hundred_thousand() -> None:
    n = 100_000
    D = Sort.range("D", 0, n - 1)
    p = Predicate("p", (D,))
    world = Interpretation(KnowledgeBase(p), p=torch.arange(n) % 7 != 6)
    assert not truth(And(*[p(i) for i in range(n)]), world)
    assert truth(And(*[Or(p(i), Not(p(i - i % 7 + 6 if i - i % 7 + 6 < n else 6))) for i in range(n)]), world)
    deep: Expr = p(0)
    for i in range(n):
        deep = Not(deep) if i % 3 else Or(And(deep, p(i)), p(0))
    want = True
    for i in range(n):
        want = not want if i % 3 else True
    assert truth(deep, world).item() is want


def test_deep_quantifiers() -> None:
    E = Sort.range("E", 0, 3)
    e = Predicate("e", (E,))
    world = Interpretation(KnowledgeBase(e), e=torch.tensor([True, True, False, True]))
    (x,) = variables("x", E)
    deep: Expr = e(Number(0))
    for i in range(2000):
        deep = forall(x)(e(x) | deep) if i % 2 else exists(x)(e(x) & deep)
    assert truth(deep, world)
    same: Expr = exists(x)(e(x))
    for _ in range(2000):
        same = forall(x)(same)
    assert truth(same, world)
    captured: Expr = e(x)
    for _ in range(500):
        captured = exists(x)(captured) & e(x)
    assert truth(captured, world).tolist() == [True, True, False, True]


def test_shared_formulas_are_not_written_out() -> None:
    """A formula that mentions itself twice, a hundred times over, has a hundred nodes and not 2**100."""
    (x,) = variables("x", Sort.range("E", 0, 3))
    e = Predicate("e", (Sort.range("E", 0, 3),))
    world = Interpretation(KnowledgeBase(e), e=torch.tensor([True, True, False, True]))
    shared: Expr = exists(x)(e(x))
    for _ in range(100):
        shared = And(forall(x)(shared | e(x)), exists(x)(shared))
    assert truth(shared, world)
    wide = e(Number(0))
    for _ in range(60):
        wide = Or(*[And(wide, e(Number(i % 4))) for i in range(20)])
    assert truth(wide, world)


class Counter(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.operations += 1
        return func(*args, **(kwargs or {}))


def test_the_algebra_on_all_pairs() -> None:
    a = torch.tensor([False, False, True, True])
    b = torch.tensor([False, True, False, True])
    assert CLASSICAL.not_(a).tolist() == [not x for x in a]
    for name, op in {
        "implies": lambda x, y: not x or y,
        "iff": lambda x, y: x == y,
        "xor": lambda x, y: x != y,
    }.items():
        got = getattr(CLASSICAL, name)(a, b)
        assert got.tolist() == [op(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert CLASSICAL.and_([a, b]).tolist() == [False, False, False, True]
    assert CLASSICAL.or_([a, b]).tolist() == [False, True, True, True]
