"""Static checking of trees that are built in Python: scopes, shared nodes, depth."""

from __future__ import annotations

import pytest

from doxa.errors import KnowledgeError
from doxa.logic import (
    And,
    Arith,
    Call,
    Compare,
    Constant,
    Expr,
    Fact,
    Field,
    Function,
    Iff,
    Implies,
    Index,
    KnowledgeBase,
    Let,
    Name,
    Not,
    Number,
    Or,
    Predicate,
    Quantifier,
    Rows,
    Sort,
    Xor,
    postorder,
)
from doxa.logic.check._check import check_formula
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import make


def said_of(formula: Expr, *declarations: Sort | Constant | Predicate | Function | Rows) -> list[str]:
    signature = Signature()
    for declaration in declarations:
        signature.add(declaration)
    said: list[str] = []
    check_formula(formula, signature, lambda node, message, remedy: said.append(message))
    return said


P = Sort("P")
p, q = Predicate("p", (P,)), Predicate("q", (P, P))


def test_a_bare_name_is_a_proposition() -> None:
    assert said_of(Name("a"), Predicate("a")) == []


def test_a_statement_needs_an_application() -> None:
    for value in (Name("x"), Number(3), Arith("+", Number(1), Number(2)), Call("p", (Name("x"),))):
        let = Let([("d", value)], p(Name("d")))
        (message,) = said_of(Quantifier("forall", [Group(["x"], sort="P")], let), P, p)
        assert message.startswith("'d :=' ")


def test_no_constructor_is_needed_to_find_a_bad_sample() -> None:
    label = ("forall", None, ((("x",), "P", 0),), False)
    assert said_of(make(Quantifier, label, (p(Name("x")),)), P, p) == ["sample 0 draws nothing"]


def test_the_domain_is_read_before_the_variable_is_bound() -> None:
    rows = Rows("rows", (("many", P, True),))
    inner = Quantifier("forall", [Group(["s"], domain=Field(Name("s"), "many"))], p(Name("s")))
    assert said_of(Quantifier("forall", [Group(["s"], domain=Name("rows"))], inner), P, p, rows) == []
    again = Quantifier("forall", [Group(["s"], domain=Field(Name("s"), "many"))], p(Field(Name("s"), "many")))
    outer = Quantifier("forall", [Group(["s"], domain=Name("rows"))], again)
    assert said_of(outer, P, p, rows) == ["only data rows have fields, but `s` is a P"]


def test_a_shared_node_is_checked_in_every_scope() -> None:
    """The same object is right below one quantifier and wrong below another."""
    body = p(Name("x"))
    other = Sort("Q")
    right, wrong = [Quantifier("forall", [Group(["x"], sort=s)], body) for s in ("P", "Q")]
    for order in ((right, wrong), (wrong, right)):
        assert len(said_of(And(*order), P, other, p)) == 1
    inner = Quantifier("exists", [Group(["y"], sort="P")], q(Name("x"), Name("y")))
    right, wrong = [Quantifier("forall", [Group(["x"], sort=s)], inner) for s in ("P", "Q")]
    for order in ((right, wrong, right), (wrong, right, wrong)):
        assert len(said_of(And(*order), P, other, q)) == 1
    assert said_of(And(right, inner), P, q) == ["unknown name 'x'"]


def test_shared_binders_take_no_exponential_time() -> None:
    """Every level uses the one below twice, in two scopes: 2 ** 60 paths, 120 nodes."""
    formula: Expr = p(Name("z"))
    for level in range(60):
        left = Quantifier("forall", [Group([f"x{level}"], sort="P")], formula)
        right = Quantifier("exists", [Group([f"y{level}"], sort="P")], formula)
        formula = And(Or(left, Call("a")), right)
    assert said_of(formula, P, p, Predicate("a")) == ["unknown name 'z'"]


DEEP = 100_000


def test_deep_and_wide_formulas_are_checked_without_recursion() -> None:
    a = Predicate("a")
    deep: Expr = Call("a")
    for _ in range(DEEP):
        deep = Not(deep)
    assert said_of(deep, a) == []
    deep = Call("b")
    for _ in range(DEEP // 5):
        deep = Implies(Call("a"), deep)
    assert said_of(deep, a) == ["unknown proposition 'b'"]
    atoms = [p(Name("c"))] * (DEEP - 1)
    assert said_of(And(*atoms, p(Name("zebra"))), P, p, Constant("c", P)) == ["unknown name 'zebra'"]
    term: Expr = Name("c")
    f = Function("f", (P,), P)
    for _ in range(DEEP // 5):
        term = f(term)
    assert said_of(p(term), P, p, f, Constant("c", P)) == []
    nested: Expr = p(Name("x0"))
    for i in reversed(range(DEEP // 10)):
        nested = Quantifier("forall", [Group([f"x{i}"], sort="P")], nested)
    assert said_of(nested, P, p) == []


def test_every_kind_of_node_is_checked() -> None:
    """A name that is not known is found wherever it stands."""
    x, good, a = Name("unknown"), Number(1), Call("a")
    bad = Compare("=", x, good)
    rows = Rows("rows", (("many", P, True),))
    over = [Group(["y"], sort="P")]
    places: list[Expr] = [
        And(a, bad),
        Or(bad, a),
        Xor(a, bad),
        Iff(a, bad),
        Implies(a, bad),
        Implies(bad, a),
        Not(bad),
        bad,
        Compare("<", Arith("+", good, x), good),
        Compare("<", Arith("-", x), good),
        Call("p", (x,)),
        Compare("=", Field(x, "f"), good),
        Compare("=", Index(Field(Name("y"), "f"), x), good),
        Quantifier("forall", over, bad),
        Quantifier("exactly", over, a, count=2, guard=bad),
        Quantifier("forall", [Group(["z"], domain=Field(x, "f"))], a),
        Let([("y", Call("f", (x,)))], a),
        Let([("y", Call("f", (Number(1),)))], bad),
    ]
    i = Sort("Int")
    declared = (P, p, rows, Predicate("a"), Function("f", (i,), i), Constant("y", P))
    for place in places:
        assert "unknown name 'unknown'" in said_of(place, *declared), place
    used = {type(n) for place in places for n in postorder(place)}
    assert used >= {And, Or, Xor, Iff, Implies, Not, Compare, Arith, Call, Field, Index, Quantifier, Let, Name, Number}


def test_large_expressions_are_not_quoted() -> None:
    wide = And(*[Call("a") for _ in range(1000)])
    (message,) = said_of(Compare("=", wide, Number(3)), Predicate("a"))
    assert message == "'=' compares terms, but this expression is a formula"


def test_a_knowledge_base_built_in_python_is_checked() -> None:
    with pytest.raises(KnowledgeError, match="unknown name 'nobody'"):
        KnowledgeBase(P, p, rule=p(Name("nobody")))
    with pytest.raises(KnowledgeError, match="unknown name 'nobody'"):
        KnowledgeBase(P, p, Fact(Call("p", (Name("nobody"),))))
