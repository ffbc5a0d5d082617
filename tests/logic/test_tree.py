"""Trees: equality, hashing, immutability, normal forms, walking; at any depth."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from tests.logic.strategies import trees

from doxa.errors import KnowledgeError
from doxa.logic import (
    And,
    Arith,
    Call,
    Constant,
    Expr,
    Implies,
    Name,
    Not,
    Number,
    Or,
    Quantifier,
    Sort,
    Truth,
    forall,
    postorder,
    propositions,
    variables,
)
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._tree import fold, intern

a, b, c = propositions("a b c")
DEEP = 100_000


@given(trees)
def test_a_copy_is_equal_and_has_the_same_hash(tree: Expr) -> None:
    rebuilt = fold(lambda node, below: node.with_children(below) if below else pickle.loads(pickle.dumps(node)), tree)
    assert rebuilt == tree
    assert hash(rebuilt) == hash(tree)
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert copy.deepcopy(tree) is tree


@given(trees, trees)
def test_equality_is_that_of_class_label_and_children(one: Expr, other: Expr) -> None:
    def parts(tree: Expr) -> list[tuple[str, object, int]]:
        # In preorder with the numbers of children, which determines a tree.
        found, stack = [], [tree]
        while stack:
            node = stack.pop()
            found.append((type(node).__name__, node.label, len(node.children)))
            stack.extend(node.children)
        return found

    assert (one == other) == (parts(one) == parts(other))


def test_trees_are_not_equal_to_other_things() -> None:
    assert a != "a"
    assert a != b
    assert Name("a") != Call("a")
    assert Number(1) != Number(1.0)
    assert Number(1) != Truth(True)
    assert Number(0.0) == Number(-0.0)


def test_nodes_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="formulas cannot be changed: tried to set 'label' of a Call"):
        a.label = "b"
    with pytest.raises(AttributeError, match="tried to delete 'children'"):
        del a.children


def test_the_hint_takes_no_part_in_equality() -> None:
    assert Name("x", hint=Sort("Person")) == Name("x")
    assert hash(Name("x", hint=Sort("Person"))) == hash(Name("x"))


def test_conjunctions_and_disjunctions_are_flat() -> None:
    assert (a & b) & c == a & (b & c) == And(a, b, c) == And(And(a, b), c)
    assert (a | b) | c == a | (b | c) == Or(a, b, c)
    assert len(And(a, Or(b, c), a).children) == 3
    assert And() == Truth(True)
    assert Or() == Truth(False)
    assert And(a) == a == Or(a)
    assert And(Name("a")) == a
    assert And(a, b).with_children((And(a, c), b)) == And(a, c, b)


def test_a_name_where_a_formula_stands_is_a_proposition() -> None:
    name = Name("a")
    for formula in (Not(name), And(name, name), Or(name, name), Implies(name, name), name ^ name, name.iff(name)):
        assert all(child == Call("a") for child in formula.children)
    assert Quantifier("forall", [Group("x", sort="S")], name, guard=name).children == (Call("a"), Call("a"))


def test_minus_a_number_is_a_number() -> None:
    assert Arith("-", Number(3)) == Number(-3) == -Number(3)
    assert Arith("-", Number(-3)) == Number(3)
    x = Name("x")
    assert Arith("-", x).with_children((Number(3),)) == Number(-3)
    assert isinstance(-x, Arith)


def test_numbers_have_limits() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(KnowledgeError, match="must be finite"):
            Number(value)
    with pytest.raises(KnowledgeError, match="fit into 64 bits"):
        Number(2**63)
    assert Number(2**63 - 1).value == 2**63 - 1


def test_python_values_become_literals() -> None:
    x = Name("x")
    assert 3 + x == Arith("+", Number(3), x)
    assert 3 - x == Arith("-", Number(3), x)
    assert 3 * x == Arith("*", Number(3), x)
    assert 3 // x == Arith("//", Number(3), x)
    assert 3 % x == Arith("mod", Number(3), x)
    assert (True & a) == And(Truth(True), a)
    assert (True | a) == Or(Truth(True), a)
    assert str(True ^ a) == "true xor a"
    assert str(False >> a) == "false -> a"
    assert str(x.eq(Constant("alice", Sort("Person")))) == "x = alice"
    with pytest.raises(TypeError, match="cannot use 'b' of type str in a formula"):
        a & "b"  # type: ignore[operator]


def test_python_does_not_ask_a_formula_for_its_truth() -> None:
    x = Name("x")
    with pytest.raises(TypeError, match="split chained comparisons"):
        0 <= x <= 9  # noqa: B015
    with pytest.raises(TypeError, match="no truth value"):
        a and b  # noqa: B018
    with pytest.raises(TypeError, match="not iterable"):
        list(x)  # type: ignore[call-overload]


def test_neighbouring_groups_over_the_same_objects_are_one() -> None:
    person = Sort("Person")
    x, y = variables("x y", person)
    p = Call("p", (x, y))
    assert forall(x, y)(p) == Quantifier("forall", [Group(["x", "y"], sort="Person")], p)
    sampled = [Group(["x"], sort="S", sample=3), Group(["y"], sort="S", sample=3)]
    assert len(Quantifier("forall", sampled, p).groups) == 2, "each draws its own sample"
    rows = Name("rows")
    domains = [Group(["x"], domain=rows), Group(["y"], domain=rows)]
    assert [g.names for g in Quantifier("forall", domains, p).groups] == [("x", "y")]
    mixed = [Group(["x"], sort="rows"), Group(["y"], domain=rows)]
    assert len(Quantifier("forall", mixed, p).groups) == 2
    below = [Group(["x"], domain=x.field("f")), Group(["y"], domain=x.field("f"))]
    assert len(Quantifier("forall", below, p).groups) == 2, "the second domain speaks of the first variable"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Group((), sort="S"), "at least one variable"),
        (lambda: Group("x"), "need a sort or a domain"),
        (lambda: Group("x", sort="S", domain=Name("d")), "need a sort or a domain"),
        (lambda: Group("x", sort="S", sample=0), "positive number of objects, got 0"),
        (lambda: Quantifier("forall", [], a), "at least one variable"),
        (lambda: Quantifier("most", [Group("x", sort="S")], a), "no quantifier 'most'"),
        (lambda: Quantifier("exactly", [Group("x", sort="S")], a), "takes a number"),
        (lambda: Quantifier("exactly", [Group("x", sort="S")], a, count=-1), "not negative"),
        (lambda: Quantifier("forall", [Group("x", sort="S")], a, count=1), "takes no number"),
        (lambda: Arith("/", a, b), "no arithmetic '/'"),
        (lambda: Arith("+", a), "no arithmetic '\\+' of 1 terms"),
        (lambda: Sort.range("D", 3, 2), "is empty"),
        (lambda: Sort.range("D", -(2**62), 2**62), "too many values"),
        (lambda: Sort("C", ("red",))["blue"], "no value 'blue'; it has red"),
    ],
)
def test_nodes_refuse_what_makes_no_sense(build: object, message: str) -> None:
    with pytest.raises(KnowledgeError, match=message):
        build()  # type: ignore[operator]


def test_shared_subtrees_are_visited_once() -> None:
    tree: Expr = a
    for _ in range(200):
        tree = Implies(tree, tree)  # as text this would be longer than any disk
    assert len(list(postorder(tree))) == 201
    assert fold(lambda node, below: sum(below) or 1, tree) == 2**200
    again: Expr = propositions("a")[0]
    for _ in range(200):
        again = Implies(again, again)
    assert tree == again
    assert pickle.loads(pickle.dumps(tree)) == tree
    table: dict[Expr, Expr] = {}
    assert intern(tree, table) is intern(again, table)
    assert len(table) == 201


def test_nothing_recurses() -> None:
    left, right = a, a
    for _ in range(DEEP):
        left, right = Not(left), Not(right)
    assert left == right
    assert hash(left) == hash(right)
    assert left != left.children[0]
    assert str(left) == left.unicode().replace("¬", "!") == "!" * DEEP + "a"
    assert left.latex().count("neg") == DEEP
    assert len(repr(left)) < 300
    assert pickle.loads(pickle.dumps(left)) == left
    assert copy.deepcopy(left) is left
    assert fold(lambda node, below: 1 + max(below, default=0), left) == DEEP + 1
    assert intern(left, {}) == left
    del left, right  # freeing a deep tree must not recurse either
