"""Static checking: every mistake that can be seen before data arrive, each reported with a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable

from doxa.logic.check._checker import Checker, Report
from doxa.logic.check._sorts import show
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._symbols import Declaration, Rows, Signature, Sort, literal, sorts_of
from doxa.logic.syntax._tree import Call, Expr, Name, Not, as_formula


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
    if atom.fresh:
        report(atom, "a fact is known, not drawn, so 'fresh' has no meaning here", "leave 'fresh' out")
    complex_ = [a for a in atom.children if type(a) is not Name and literal(a) is None]
    for arg in complex_:
        report(arg, f"a fact speaks of constants, values and numbers, not of {show(arg)}", "write a rule as an axiom")
    if not complex_:
        check_formula(atom, signature, report)


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
    for sort in dict.fromkeys([s.name for s in sorts_of(declaration)]):
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
