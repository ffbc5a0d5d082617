"""Hypothesis strategies for names, trees and knowledge bases that cover every construct of the language."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from doxa.logic import (
    INT,
    REAL,
    And,
    Arith,
    Axiom,
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
    Truth,
    Xor,
)
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._symbols import Signature

# Keywords that are names where no keyword can stand, reserved words, and names that only quotation marks can hold.
SOFT_WORDS = ["sort", "const", "pred", "func", "data", "fact", "facts", "include", "weight", "from", "header"]
SOFT_WORDS += ["closed", "sample", "exactly", "at", "most", "least", "fresh", "of"]
ODD_NAMES = [
    "forall",
    "where",
    "in",
    "true",
    "and",
    "mod",
    "New York",
    'a "b"',
    "back\\slash",
    "x.y",
    "π",
    "naïve",
    "#",
    "",
]

names = st.one_of(
    st.sampled_from(["p", "q", "r", "a", "b", "x1", "alice", "Person", "_", "é", "名"]),
    st.sampled_from(SOFT_WORDS),
    st.sampled_from(ODD_NAMES),
    st.text(max_size=4),
)
"""Names of every kind, most of them ordinary."""

integers = st.integers(-(2**63) + 1, 2**63 - 1)
numbers = st.one_of(st.integers(-9, 9), integers, st.floats(allow_nan=False, allow_infinity=False))


# --- any tree, whether it makes sense or not ----------------------------------------------------------------------


def _nodes(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    lists = st.lists(children, max_size=3)
    calls = st.builds(lambda n, args, fresh: Call(n, tuple(args), fresh), names, lists, st.booleans())
    groups = st.builds(
        lambda ns, sort, domain, sample: Group(
            ns, sort=None if domain is not None else sort, domain=domain, sample=sample
        ),
        st.lists(names, min_size=1, max_size=2),
        names,
        st.none() | children,
        st.none() | st.integers(1, 99),
    )
    return st.one_of(
        calls,
        st.builds(Field, children, names),
        st.builds(Index, children, children),
        st.builds(Arith, st.sampled_from(Arith.OPERATORS), children, children),
        st.builds(lambda a: Arith("-", a), children),
        st.builds(Compare, st.sampled_from(Compare.OPERATORS), children, children),
        st.builds(Not, children),
        st.builds(lambda args: And(*args), st.lists(children, max_size=4)),
        st.builds(lambda args: Or(*args), st.lists(children, max_size=4)),
        st.builds(Xor, children, children),
        st.builds(Implies, children, children),
        st.builds(Iff, children, children),
        st.builds(Let, st.lists(st.tuples(names, calls), min_size=1, max_size=2), children),
        st.builds(
            lambda kind, count, gs, body, guard: Quantifier(
                kind, gs, body, count=None if kind in ("forall", "exists") else count, guard=guard
            ),
            st.sampled_from(Quantifier.KINDS),
            st.integers(0, 9),
            st.lists(groups, min_size=1, max_size=3),
            children,
            st.none() | children,
        ),
    )


trees: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(
        st.builds(Name, names),
        st.builds(Number, numbers),
        st.builds(Truth, st.booleans()),
        st.builds(lambda n, fresh: Call(n, (), fresh), names, st.booleans()),
    ),
    _nodes,
    max_leaves=12,
)
"""Trees that need not make sense, for printing and parsing."""


def propositional(symbols: list[str], max_leaves: int = 12) -> st.SearchStrategy[Expr]:
    """Formulas of connectives over propositions."""
    return st.recursive(
        st.one_of(st.builds(lambda n: Call(n, ()), st.sampled_from(symbols)), st.builds(Truth, st.booleans())),
        lambda below: st.one_of(
            st.builds(Not, below),
            st.builds(lambda args: And(*args), st.lists(below, min_size=2, max_size=4)),
            st.builds(lambda args: Or(*args), st.lists(below, min_size=2, max_size=4)),
            st.builds(Xor, below, below),
            st.builds(Implies, below, below),
            st.builds(Iff, below, below),
        ),
        max_leaves=max_leaves,
    )


# --- knowledge bases that make sense ------------------------------------------------------------------------------

Scope = dict[str, Any]
"""What the variables in scope are: a :class:`Sort`, or :class:`Rows` for a row."""


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Sorts of every kind, constants, predicates, functions and rows; every open sort has a constant."""
    pool = draw(st.lists(names.filter(lambda n: n not in ("Int", "Real")), min_size=24, max_size=24, unique=True))
    signature = Signature()
    low = draw(st.integers(-3, 3))
    values = tuple([pool.pop() for _ in range(draw(st.integers(1, 3)))])
    sorts = [Sort(pool.pop()), Sort.range(pool.pop(), low, low + draw(st.integers(0, 9))), Sort(pool.pop(), values)]
    sorts += [Sort(pool.pop())] if draw(st.booleans()) else []
    for sort in sorts:
        signature.add(sort)
    for sort in sorts:
        for _ in range(draw(st.integers(1 if sort.is_open else 0, 2))):
            signature.add(Constant(pool.pop(), sort))
    some_sorts = st.lists(st.sampled_from(sorts), max_size=2)
    signature.add(Predicate(pool.pop()))
    for _ in range(draw(st.integers(1, 2))):
        signature.add(Predicate(pool.pop(), tuple(draw(some_sorts)), draw(st.booleans())))
    for _ in range(draw(st.integers(1, 2))):
        signature.add(Function(pool.pop(), tuple(draw(some_sorts)), draw(st.sampled_from([*sorts, INT, REAL]))))
    fields = draw(st.lists(names, min_size=2, max_size=3, unique=True))
    kinds = [draw(st.sampled_from([*sorts, INT])) for _ in fields]
    many = [i == 0 or draw(st.booleans()) for i in range(len(fields))]
    signature.add(Rows(pool.pop(), tuple(zip(fields, kinds, many, strict=True))))
    return signature


@st.composite
def terms(draw: st.DrawFn, signature: Signature, sort: Sort, scope: Scope, depth: int) -> Expr:
    """Terms of a sort."""
    options: list[st.SearchStrategy[Expr]] = []
    plain = [n for n, s in scope.items() if s == sort]
    plain += [c.name for c in signature.constants.values() if c.sort == sort and c.name not in scope]
    if isinstance(sort.values, tuple):
        plain += [v for v in sort.values if v not in scope]
    if plain:
        options.append(st.sampled_from(plain).map(Name))
    if isinstance(sort.values, range):
        options.append(st.sampled_from(sort.values).map(Number))
    if sort == INT:
        options.append(st.integers(-5, 5).map(Number))
    if sort == REAL:
        options.append(st.floats(-5, 5).map(Number))
    for name, rows in scope.items():
        if isinstance(rows, Rows):
            for field, kind, many in rows.fields:
                if kind == sort:
                    value = Field(Name(name), field)
                    options.append(st.just(Index(value, Number(draw(st.integers(0, 3)))) if many else value))
    if depth > 0:
        suitable = [f for f in signature.functions.values() if f.result == sort]
        options += [calls(signature, f, scope, depth - 1) for f in suitable]
        if sort == INT:
            options.append(
                st.builds(
                    Arith,
                    st.sampled_from(["+", "-", "*"]),
                    terms(signature, sort, scope, depth - 1),
                    terms(signature, sort, scope, depth - 1),
                )
            )
            options.append(
                st.builds(
                    lambda op, a, b: Arith(op, a, Number(b)),
                    st.sampled_from(["//", "mod"]),
                    terms(signature, sort, scope, depth - 1),
                    st.integers(1, 5),
                )
            )
            options.append(terms(signature, sort, scope, depth - 1).map(lambda t: Arith("-", t)))
    return draw(st.one_of(options))


@st.composite
def calls(draw: st.DrawFn, signature: Signature, symbol: Predicate | Function, scope: Scope, depth: int) -> Call:
    """Applications of a symbol, functions sometimes fresh."""
    args = [draw(terms(signature, sort, scope, depth)) for sort in symbol.sorts]
    return Call(symbol.name, tuple(args), fresh=isinstance(symbol, Function) and draw(st.booleans()))


@st.composite
def groups(draw: st.DrawFn, signature: Signature, scope: Scope, count: int) -> list[Group]:
    """Groups of new variables, which enter the scope."""
    found: list[Group] = []
    for _ in range(count):
        known = {*scope, *signature.names(), *[n for g in found for n in g.names]}
        fresh = st.lists(names.filter(lambda n: n not in known), min_size=1, max_size=2, unique=True)  # noqa: B023
        new = draw(fresh)
        sample = draw(st.none() | st.integers(1, 99))
        domains: list[tuple[Expr | None, Any]] = [(None, s) for n, s in signature.sorts.items() if s not in (INT, REAL)]
        domains += [(Name(n), rows) for n, rows in signature.rows.items() if n not in scope]
        for name, rows in scope.items():
            if isinstance(rows, Rows):
                domains += [(Field(Name(name), f), s) for f, s, many in rows.fields if many]
        domain, kind = draw(st.sampled_from(domains))
        found.append(Group(new, sort=kind.name if domain is None else None, domain=domain, sample=sample))
        scope.update(dict.fromkeys(new, kind))
    return found


@st.composite
def formulas(draw: st.DrawFn, signature: Signature, scope: Scope | None = None, depth: int = 3) -> Expr:
    """Well-sorted formulas without free variables (but those in scope)."""
    scope = {} if scope is None else scope
    below = formulas(signature, scope, depth - 1)
    kinds = ["atom", "atom", "compare", "truth"]
    if depth > 0:
        kinds += ["not", "and", "or", "xor", "implies", "iff", "quantifier", "quantifier", "let"]
    match draw(st.sampled_from(kinds)):
        case "atom":
            predicate = draw(st.sampled_from(list(signature.predicates.values())))
            return draw(calls(signature, predicate, scope, 1))
        case "compare":
            sort = draw(st.sampled_from([*signature.sorts.values()]))
            numeric = sort in (INT, REAL) or isinstance(sort.values, range)
            op = draw(st.sampled_from(Compare.OPERATORS if numeric else ("=", "!=")))
            return Compare(op, draw(terms(signature, sort, scope, 2)), draw(terms(signature, sort, scope, 2)))
        case "truth":
            return Truth(draw(st.booleans()))
        case "not":
            return Not(draw(below))
        case "and":
            return And(*draw(st.lists(below, min_size=2, max_size=3)))
        case "or":
            return Or(*draw(st.lists(below, min_size=2, max_size=3)))
        case "xor":
            return Xor(draw(below), draw(below))
        case "implies":
            return Implies(draw(below), draw(below))
        case "iff":
            return Iff(draw(below), draw(below))
        case "let":
            inner = dict(scope)
            bindings = []
            for _ in range(draw(st.integers(1, 2))):
                function = draw(st.sampled_from(list(signature.functions.values())))
                known = {*inner, *signature.names()}
                name = draw(names.filter(lambda n: n not in known))  # noqa: B023
                bindings.append((name, draw(calls(signature, function, inner, 1))))
                inner[name] = function.result
            return Let(bindings, draw(formulas(signature, inner, depth - 1)))
    inner = dict(scope)
    kind = draw(st.sampled_from(Quantifier.KINDS))
    count = None if kind in ("forall", "exists") else draw(st.integers(0, 3))
    binders = draw(groups(signature, inner, draw(st.integers(1, 2))))
    guard = draw(st.none() | formulas(signature, inner, 0))
    return Quantifier(kind, binders, draw(formulas(signature, inner, depth - 1)), count=count, guard=guard)


@st.composite
def knowledge_bases(draw: st.DrawFn, max_axioms: int = 3, depth: int = 3) -> KnowledgeBase:
    """Knowledge bases that pass every check."""
    signature = draw(signatures())
    titles = draw(st.lists(names, max_size=max_axioms, unique=True))
    weights = st.floats(0, 1e9) | st.just(1.0)
    axioms = [
        Axiom(title, draw(formulas(signature, depth=depth)), draw(weights), draw(st.booleans()), draw(st.booleans()))
        for title in titles
    ]
    facts = []
    for predicate in signature.predicates.values():
        if draw(st.booleans()):
            atom = draw(calls(signature, predicate, {}, 0))
            facts.append(Fact(atom, draw(st.booleans()), draw(weights)))
    return KnowledgeBase.from_parts(signature, axioms, facts)
