"""Free variables and the leading quantifiers."""

from doxa.logic import Call, Let, Name, Quantifier, Sort, exists, forall, leading_foralls, variables, within
from doxa.logic.syntax._binders import Group, free_variables
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON
from doxa.logic.syntax._tree import Arith, Compare

x, y = variables("x y", Sort("S"))


def test_a_constant_is_no_variable() -> None:
    atom = Call("p", (x, Name("c")))
    assert free_variables(forall(x)(atom))[id(atom)] == {"x"}


def test_a_name_that_nothing_binds_is_no_variable() -> None:
    atom = Call("p", (x,))
    assert free_variables(atom)[id(atom)] == frozenset()


def test_several_roots_share_their_binders() -> None:
    atom = Call("p", (x, y))
    free = free_variables(forall(x)(atom), exists(y)(Call("q", (y,))))
    assert free[id(atom)] == {"x", "y"}


def test_a_later_domain_sees_the_earlier_variable_and_an_earlier_one_does_not() -> None:
    inner = Quantifier("forall", [Group(["x"], domain=Name("y")), Group(["y"], domain=x.field("f"))], Call("p", (x, y)))
    free = free_variables(forall(y)(inner))
    assert free[id(inner)] == {"y"}  # the domain of x stands before y is bound again


def test_the_guard_and_the_body_see_all_variables() -> None:
    rule = forall(within("rows", Name("r")), y, where=x.ne(y))(Call("p", (x, y, Name("r"))))
    free = free_variables(forall(x)(rule))
    assert free[id(rule)] == {"x"}


def test_a_later_value_sees_the_earlier_one() -> None:
    statement = Let([("x", Call("f", (Name("y"),))), ("y", Call("g", (x,)))], x.eq(y))
    assert free_variables(forall(y)(statement))[id(statement)] == {"y"}
    chained = Let([("x", Call("f", ())), ("y", Call("g", (x,)))], x.eq(y))
    assert free_variables(chained)[id(chained)] == frozenset()


def test_leading_foralls_stop_at_anything_else() -> None:
    first, second = forall(x)(forall(y)(exists(x)(forall(y)(Call("p", (x, y)))))), exists(x)(Call("q", (x,)))
    assert [q.names for q in leading_foralls(first)] == [("x",), ("y",)]
    assert leading_foralls(second) == []


def test_every_operator_of_the_language_has_its_operation() -> None:
    assert tuple(ARITHMETIC) == Arith.OPERATORS
    assert set(COMPARISON) == set(Compare.OPERATORS)
    assert (ARITHMETIC["//"](-7, 2), ARITHMETIC["mod"](-7, 2)) == (-4, 1)
    assert [op for op, holds in COMPARISON.items() if holds(2, 3)] == ["!=", "<", "<="]
    assert [op for op, holds in COMPARISON.items() if holds(3, 3)] == ["=", "<=", ">="]
