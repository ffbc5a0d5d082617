"""Static checking: every mistake that can be seen before data arrive, each reported with a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable

from doxa.logic.check._checker import Checker, Report
from doxa.logic.check._sorts import shape, show
from doxa.logic.syntax._define import Define
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._symbols import (
    Declaration,
    Function,
    Predicate,
    Rows,
    RowSort,
    Signature,
    Sort,
    literal,
    sorts_of,
)
from doxa.logic.syntax._tree import Call, Expr, Field, Name, Not, as_formula

DefineReport = Callable[[Define, Expr, str, "str | None"], None]
"""Called with a clause, the node of it at fault, what is wrong, and how to mend it."""


def check_formula(formula: Expr, signature: Signature, report: Report) -> None:
    """Report every mistake in a formula that stands on its own: ``report(node, message, remedy)``, once for each."""
    Checker(signature, report).run(as_formula(formula))


def check_axiom(name: str, formula: Expr, weight: float, signature: Signature, report: Report) -> None:
    """Report every mistake in an axiom: in its weight and in its formula."""
    _check_weight(weight, f"axiom {name!r}", formula, report)
    check_formula(formula, signature, report)


def check_fact(fact: Expr, weight: float, signature: Signature, report: Report) -> None:
    """Report every mistake in a fact: an atom, or a negated one, over constants, values and numbers."""
    _check_weight(weight, "this fact", fact, report)
    atom = as_formula(fact.children[0] if type(fact) is Not else fact)
    if type(atom) is not Call:
        report(fact, "a fact is an atom such as parent(alice, bob), or its negation", "write a rule as an axiom")
        return
    if atom.name in signature.definitions:
        remedy = "add a clause: define p(x: S where x = a) := true"
        report(atom, f"{atom.name!r} is defined, so what is true of it follows", remedy)
    if atom.fresh:
        report(atom, "a fact is known, not drawn, so 'fresh' has no meaning here", "leave 'fresh' out")
    complex_ = [a for a in atom.children if type(a) is not Name and literal(a) is None]
    for arg in complex_:
        report(arg, f"a fact speaks of constants, values and numbers, not of {show(arg)}", "write a rule as an axiom")
    if not complex_:
        check_formula(atom, signature, report)


def declare_definitions(
    clauses: Iterable[Define], signature: Signature, report: DefineReport, declared: Container[str] = ()
) -> None:
    """Declare what clauses define and add them, reporting what speaks against it: ``report(clause, node, ...)``.

    ``declared`` are symbols whose meaning comes from elsewhere.
    """
    for clause in clauses:
        symbol = defined_symbol(clause, signature, report)
        if symbol is None:
            continue
        name, known = clause.name, signature.definitions.get(clause.name)
        own = signature.predicates.get(name) or signature.functions.get(name)
        if (
            known is None
            and (own != symbol or name in declared)
            and (described := signature.describe(name)) is not None
        ):
            remedy = "leave that declaration out: a definition declares what it defines, or choose another name"
            report(clause, clause, f"{name!r} is already declared as {described}", remedy)
        elif known is not None and own != symbol:
            remedy = "all clauses of a definition have parameters of the same sorts, and the same result"
            report(clause, clause, f"{name!r} is already defined as {_header(own)}, not {_header(symbol)}", remedy)
        else:
            signature.add(symbol)
            signature.define(clause)


def defined_symbol(clause: Define, signature: Signature, report: DefineReport) -> Predicate | Function | None:
    """The predicate or function that a clause defines; None where its parameters do not say."""
    sorts: list[Sort] = []
    rows: dict[str, str] = {}
    for group in clause.groups:
        sort = None if group.sort is None else signature.sorts.get(group.sort)
        if group.sort is not None and sort is None:
            remedy = did_you_mean(group.sort, signature.sorts, f"declare it: sort {group.sort}")
            report(clause, clause, f"unknown sort {group.sort!r}", remedy)
            return None
        match group.domain:
            case Name(name=name) if name not in clause.names:
                sort = RowSort(name)
                rows.update(dict.fromkeys(group.names, name))
            case Field(children=(Name(name=of),), name=field):
                declared = signature.rows.get(rows.get(of, ""))
                sort = {f: s for f, s, many in declared.fields if many}.get(field) if declared is not None else None
        if sort is None:
            domain = clause if group.domain is None else group.domain
            what = f"the parameter {group.names[0]!r} of {clause.name} ranges over {show(domain)}"
            remedy = "give it a sort, rows, or a field of an earlier row that is declared: data rows(field: Sort*)"
            report(clause, domain, f"{what}, and nothing says what sort that is", remedy)
            return None
        sorts += [sort] * len(group.names)
    if clause.result is None:
        return Predicate(clause.name, tuple(sorts))
    result = signature.sorts.get(clause.result)
    if result is None or result.size is None:
        what = f"{clause.name!r} yields {clause.result}, which has no finite list of values"
        remedy = "let it yield a finite sort, such as sort Bit = 0..1"
        if result is None:
            what, remedy = f"unknown sort {clause.result!r}", did_you_mean(clause.result, signature.sorts, remedy)
        report(clause, clause, what, remedy)
        return None
    return Function(clause.name, tuple(sorts), result)


def check_clause(clause: Define, signature: Signature, report: Report) -> None:
    """Report every mistake in a clause whose symbol is declared."""
    Checker(signature, report).run(clause)


def _header(symbol: Predicate | Function | None) -> str:
    shown = "" if symbol is None else shape(symbol)
    return f"{shown} -> {symbol.result.name}" if isinstance(symbol, Function) else shown


def _check_weight(weight: float, of: str, node: Expr, report: Report) -> None:
    if not math.isfinite(weight) or weight < 0:
        remedy = "a weight is finite and not negative; to say that a formula is unlikely, negate it"
        report(node, f"the weight of {of} is {weight!r}", remedy)


def check_declaration(
    declaration: Declaration, signature: Signature, report: Callable[[str, str, str | None], None]
) -> None:
    """Report every mistake in a declaration that is about to be added: ``report(word, message, remedy)``.

    ``word`` is the name at fault. An undeclared sort is recognised by its name, so it may be given without values.
    """
    name = declaration.name
    if (known := signature.describe(name)) is not None:
        report(name, f"{name!r} is already declared as {known}", "choose another name, or leave one of the two out")
    if isinstance(declaration, Sort) and isinstance(declaration.values, tuple):
        _check_values(name, declaration.values, signature, report)
    fields = declaration.field_names if isinstance(declaration, Rows) else ()
    for place, field in enumerate(fields):
        if field in fields[:place]:
            report(field, f"{name} has two fields {field!r}", "give each field its own name")
    for sort in dict.fromkeys([s.name for s in sorts_of(declaration) if not isinstance(s, RowSort)]):
        if sort in signature.sorts:
            continue
        if (known := signature.describe(sort)) is not None:
            report(sort, f"{sort!r} is {known}, not a sort", "sorts are declared with: sort Name")
        else:
            report(sort, f"unknown sort {sort!r}", did_you_mean(sort, signature.sorts, f"declare it: sort {sort}"))


def _check_values(
    name: str, values: tuple[str, ...], signature: Signature, report: Callable[[str, str, str | None], None]
) -> None:
    if not values:
        report(name, f"sort {name!r} has no values", "list at least one, or leave '= {}' out for an open sort")
    seen: set[str] = set()
    for value in values:
        if value in seen:
            report(value, f"sort {name!r} lists {value!r} twice", "list each value once")
        elif value == name:
            report(value, f"{value!r} names both a sort and its value", "choose another name for one of them")
        elif (known := signature.describe(value)) is not None:
            report(value, f"{value!r} is already declared as {known}", "choose another name")
        seen.add(value)
