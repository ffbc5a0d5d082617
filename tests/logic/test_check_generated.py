"""Static checking of generated formulas: right ones pass, broken ones do not, and a naive checker agrees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.logic.strategies import formulas, signatures

from doxa.errors import KnowledgeError
from doxa.logic import (
    INT,
    REAL,
    And,
    Arith,
    Axiom,
    Call,
    Compare,
    Expr,
    Field,
    Iff,
    Implies,
    Index,
    KnowledgeBase,
    Let,
    Name,
    Not,
    Number,
    Or,
    Quantifier,
    Rows,
    Sort,
    Truth,
    Xor,
    postorder,
)
from doxa.logic.check._check import check_formula
from doxa.logic.check._lint import lint
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import as_formula, intern, make

UNKNOWN = "nobody knows this"
Path = tuple[int, ...]
quickly = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def right_formulas(draw: st.DrawFn) -> tuple[Signature, Expr]:
    signature = draw(signatures())
    assume(UNKNOWN not in signature.names())
    return signature, draw(formulas(signature))


def said_of(formula: Expr, signature: Signature) -> list[str]:
    said: list[str] = []
    check_formula(formula, signature, lambda node, message, remedy: said.append(message))
    return said


@quickly
@given(right_formulas())
def test_what_is_right_passes_and_can_be_linted(world: tuple[Signature, Expr]) -> None:
    signature, formula = world
    assert said_of(formula, signature) == []
    for warning in lint(KnowledgeBase.from_parts(signature, [Axiom("rule", formula)])):
        assert warning.severity == "warning"
        assert warning.render()


# -- breaking what is right --------------------------------------------------------------------------------------------


def places(formula: Expr) -> list[tuple[Path, Expr]]:
    """Every occurrence of a node, but for row sets, of which undeclared ones are right."""
    found: list[tuple[Path, Expr]] = []

    def visit(node: Expr, path: Path) -> None:
        found.append((path, node))
        inside = 1 + (isinstance(node, Quantifier) and node.guard is not None)
        for i, child in enumerate(node.children):
            domain = isinstance(node, Quantifier) and i < len(node.children) - inside
            if not (domain and isinstance(child, Name)):
                visit(child, (*path, i))

    visit(formula, ())
    return found


CONNECTIVES = (And, Or, Not, Implies, Iff, Xor)


def replaced(formula: Expr, path: Path, new: Expr) -> Expr:
    """The formula with another node at a place; where a formula stands, a name becomes a proposition as always."""
    if not path:
        return new
    place, *rest = path
    children = list(formula.children)
    children[place] = replaced(children[place], tuple(rest), new)
    inside = 1 + (isinstance(formula, Quantifier) and formula.guard is not None)
    if isinstance(formula, CONNECTIVES) or (isinstance(formula, Quantifier | Let) and place >= len(children) - inside):
        children[place] = as_formula(children[place])
    return make(type(formula), formula.label, tuple(children))


def free_in(node: Expr) -> set[str]:
    """Variables and constants that a formula takes from outside."""
    if isinstance(node, Name):
        return {node.name}
    if isinstance(node, Let):
        inner = free_in(node.body)
        for name, value in reversed(list(zip(node.names, node.values, strict=True))):
            inner = (inner - {name}) | free_in(value)
        return inner
    if isinstance(node, Quantifier):
        inner = free_in(node.body) | (free_in(node.guard) if node.guard is not None else set())
        for group in reversed(node.groups):
            inner -= set(group.names)
            if group.domain is not None and not isinstance(group.domain, Name):
                inner |= free_in(group.domain)
        return inner
    return set().union(*[free_in(c) for c in node.children])


def breaks(node: Expr, signature: Signature) -> list[Expr]:
    """Ways to break a node, each of which must be noticed wherever it stands."""
    ways: list[Expr] = []
    if isinstance(node, Call):
        args = node.children
        ways = [Call(UNKNOWN, args, node.fresh), Call(node.name, (*args, Number(0)), node.fresh)]
        symbol = signature.predicates.get(node.name) or signature.functions[node.name]
        for i, sort in enumerate(symbol.sorts):
            ways.append(Call(node.name, args[:i] + args[i + 1 :], node.fresh))
            wrong = [Truth(True), Number(0.5)]
            wrong.append(Number(sort.values[-1] + 1) if isinstance(sort.values, range) else Number(0))
            others = [c.term for c in signature.constants.values() if c.sort.name != sort.name]
            wrong += [Name(t.name) for t in others]
            ways += [Call(node.name, (*args[:i], w, *args[i + 1 :]), node.fresh) for w in wrong]
    if isinstance(node, Name):
        ways = [Name(UNKNOWN), Truth(True), *[Name(s) for s in signature.sorts]]
    if isinstance(node, Quantifier | Let):
        ways = [Not(Name(n)) for n in node.names[:1] if n not in signature.predicates]
        if isinstance(node, Quantifier) and node.label[2][0][1] is not None:
            (names, _, sample), *rest = node.label[2]
            label = (node.kind, node.count, ((names, UNKNOWN, sample), *rest), node.guard is not None)
            ways.append(make(Quantifier, label, node.children))
        if (free_in(node.body) & set(node.names)) - set(signature.constants) - set(signature.value_sorts):
            ways.append(node.body)
    return ways


@quickly
@given(right_formulas(), st.data())
def test_what_is_broken_is_noticed(world: tuple[Signature, Expr], data: st.DataObject) -> None:
    signature, formula = world
    options = [(path, way) for path, node in places(formula) for way in breaks(node, signature)]
    assume(options)
    path, way = data.draw(st.sampled_from(options))
    broken = replaced(formula, path, way)
    if free_in(way) - free_in(formula) - {UNKNOWN}:
        # A variable that was unbound may be bound again further out; then nothing is wrong with it.
        assume(
            free_in(broken) - set(signature.constants) - set(signature.value_sorts)
            or not well_sorted(broken, signature)
        )
    assert said_of(broken, signature), f"{formula} was broken to {broken}"
    with pytest.raises(KnowledgeError):
        KnowledgeBase.from_parts(signature, [Axiom("rule", broken)])


# -- a second checker --------------------------------------------------------------------------------------------------


class Wrong(Exception):
    pass


def well_sorted(formula: Expr, signature: Signature) -> bool:
    try:
        return kind_of(as_formula(formula), {}, signature) == "formula"
    except Wrong:
        return False


def number(kind: Any) -> bool:
    return kind == "number" or (isinstance(kind, Sort) and (kind in (INT, REAL) or isinstance(kind.values, range)))


def may_be(kind: Any, wanted: Sort) -> bool:
    if kind in ("formula", "?") or isinstance(kind, Rows | tuple):
        return kind == "?"
    if kind == wanted:
        return True
    if not number(kind) or not number(wanted):
        return False
    return kind == "number" or kind == INT or (kind != REAL and wanted in (INT, REAL))


def value_of(node: Expr) -> Any:
    if isinstance(node, Arith) and len(node.children) == 1:
        inner = value_of(node.children[0])
        return None if inner is None else -inner
    return node.value if isinstance(node, Number) else None


def kind_of(node: Expr, scope: dict[str, Any], signature: Signature) -> Any:
    """Straight from the rules of the language, one case after the other, and recursive."""

    def want(condition: bool) -> None:
        if not condition:
            raise Wrong

    def below(child: Expr) -> Any:
        return kind_of(child, scope, signature)

    match node:
        case Truth():
            return "formula"
        case Number():
            return REAL if isinstance(node.value, float) else INT
        case Name(name=name):
            if name in scope:
                return scope[name]
            want(name in signature.constants or name in signature.value_sorts)
            return signature.constants[name].sort if name in signature.constants else signature.value_sorts[name]
        case Call(name=name, children=args):
            want(bool(args) or name not in scope)
            want(name in signature.predicates or name in signature.functions)
            symbol = signature.predicates.get(name) or signature.functions[name]
            want(len(args) == len(symbol.sorts))
            for arg, sort in zip(args, symbol.sorts, strict=True):
                want(may_be(below(arg), sort))
                if isinstance(sort.values, range) and value_of(arg) is not None:
                    want(value_of(arg) in sort.values)
            return "formula" if name in signature.predicates else signature.functions[name].result
        case Not() | And() | Or() | Implies() | Iff() | Xor():
            want(all(below(c) == "formula" for c in node.children))
            return "formula"
        case Field():
            row = below(node.children[0])
            if row == "?":
                return "?"
            want(isinstance(row, Rows) and node.name in row.field_names)
            _, sort, many = next(f for f in row.fields if f[0] == node.name)
            return ("many", sort) if many else sort
        case Index(children=(base, place)):
            kind, at = below(base), below(place)
            want(at == "?" or (number(at) and at != REAL))
            want(value_of(place) is None or value_of(place) >= 0)
            want(kind == "?" or isinstance(kind, tuple))
            return "?" if kind == "?" else kind[1]
        case Arith():
            kinds = [below(c) for c in node.children]
            want(all(k == "?" or number(k) for k in kinds))
            want(node.op not in ("//", "mod") or value_of(node.children[1]) != 0)
            return REAL if REAL in kinds else "number" if "?" in kinds or "number" in kinds else INT
        case Compare(children=(left, right)):
            for side in (left, right):
                want(not (isinstance(side, Name) and side.name not in scope and side.name in signature.predicates))
            a, b = below(left), below(right)
            want(not {"formula"} & {k for k in (a, b) if isinstance(k, str)})
            want(not isinstance(a, tuple) and not isinstance(b, tuple))
            if node.op in ("=", "!="):
                want("?" in (a, b) or a == b or (number(a) and number(b)))
            else:
                want(all(k == "?" or number(k) for k in (a, b)))
            return "formula"
        case Let():
            inner = dict(scope)
            want(len(set(node.names)) == len(node.names))
            for name, value in zip(node.names, node.values, strict=True):
                want(isinstance(value, Call))
                kind = kind_of(value, inner, signature)
                want(kind != "formula")
                inner[name] = kind
            want(kind_of(node.body, inner, signature) == "formula")
            return "formula"
        case Quantifier():
            inner = dict(scope)
            want(len(set(node.names)) == len(node.names))
            for group in node.groups:
                if group.sort is not None:
                    want(group.sort in signature.sorts and group.sort not in ("Int", "Real"))
                    kind = signature.sorts[group.sort]
                elif isinstance(group.domain, Name) and group.domain.name not in inner:
                    name = group.domain.name
                    want(name in signature.rows or signature.describe(name) is None)
                    kind = signature.rows.get(name, "?")
                else:
                    assert group.domain is not None
                    kind = kind_of(group.domain, inner, signature)
                    want(kind == "?" or isinstance(kind, tuple))
                    kind = kind if kind == "?" else kind[1]
                inner.update(dict.fromkeys(group.names, kind))
            for part in (node.guard, node.body):
                want(part is None or kind_of(part, inner, signature) == "formula")
            return "formula"
    raise AssertionError(node)


@quickly
@given(right_formulas(), st.data())
def test_a_naive_checker_agrees(world: tuple[Signature, Expr], data: st.DataObject) -> None:
    """Subtrees are put in places of others: sometimes that is right, mostly it is not."""
    signature, formula = world
    for _ in range(data.draw(st.integers(1, 2))):
        spots = places(formula)
        path, _ = data.draw(st.sampled_from(spots))
        formula = replaced(formula, path, data.draw(st.sampled_from([node for _, node in spots])))
    assert (said_of(formula, signature) == []) == well_sorted(formula, signature), formula


def unshared(node: Expr) -> Expr:
    return make(type(node), node.label, tuple([unshared(c) for c in node.children]))


@quickly
@given(right_formulas(), st.data())
def test_sharing_changes_nothing(world: tuple[Signature, Expr], data: st.DataObject) -> None:
    """A tree in which every node is an object of its own gets the same reports as one in which equal nodes are one."""
    signature, formula = world
    spots = places(formula)
    for _ in range(data.draw(st.integers(1, 3))):
        path, _ = data.draw(st.sampled_from(spots))
        formula = replaced(formula, path, data.draw(st.sampled_from([node for _, node in spots])))
        spots = places(formula)
    formula = And(as_formula(formula), formula, Call(UNKNOWN, ()))
    together = intern(formula, {})
    alone = unshared(together)
    assert len({id(n) for n in postorder(together)}) < len({id(n) for n in postorder(alone)})
    assert set(said_of(alone, signature)) == set(said_of(together, signature))
