"""Printing what stands around formulas: declarations, the headers of axioms, and notes in LaTeX."""

from __future__ import annotations

from itertools import groupby

from doxa.logic.syntax._printer import latex_number
from doxa.logic.syntax._symbols import Constant, Function, Predicate, Rows, Signature, Sort
from doxa.logic.syntax._words import quote

__all__ = ["declarations", "display", "header"]


def declarations(signature: Signature) -> list[str]:
    """The declarations of a signature, one statement each.

    >>> from doxa.logic import Constant, Sort
    >>> from doxa.logic.syntax._symbols import Signature
    >>> signature = Signature()
    >>> signature.add(Sort("Colour", ("red", "dark green")))
    >>> signature.add(Constant("mine", Sort("Colour", ("red", "dark green"))))
    >>> declarations(signature)
    ['sort Colour = {red, "dark green"}', 'const mine: Colour']
    """
    lines = [_sort_text(s) for s in signature.sorts.values() if s.name not in ("Int", "Real")]
    for sort, constants in groupby(signature.constants.values(), key=lambda c: c.sort.name):
        names = [quote(c.name) for c in constants]
        lines += [f"const {', '.join(names[i : i + 10])}: {quote(sort)}" for i in range(0, len(names), 10)]
    lines += [declaration_text(p) for p in signature.predicates.values()]
    lines += [declaration_text(f) for f in signature.functions.values()]
    return lines + [declaration_text(r) for r in signature.rows.values()]


def declaration_text(declaration: Sort | Constant | Predicate | Function | Rows) -> str:
    """One declaration as a statement.

    >>> from doxa.logic import Function, Sort
    >>> declaration_text(Function("digit", (Sort("Image"),), Sort.range("Digit", 0, 9)))
    'func digit(Image) -> Digit'
    """
    name = quote(declaration.name)
    match declaration:
        case Sort():
            return _sort_text(declaration)
        case Constant(sort=sort):
            return f"const {name}: {quote(sort.name)}"
        case Predicate(sorts=sorts):
            word = "closed pred" if declaration.closed else "pred"
            return f"{word} {name}({', '.join([quote(s.name) for s in sorts])})" if sorts else f"{word} {name}"
        case Function(sorts=sorts, result=result):
            return f"func {name}({', '.join([quote(s.name) for s in sorts])}) -> {quote(result.name)}"
        case Rows(fields=fields):
            listed = [f"{quote(f)}: {quote(sort.name)}{'*' if many else ''}" for f, sort, many in fields]
            return f"data {name}({', '.join(listed)})"


def _sort_text(sort: Sort) -> str:
    name = quote(sort.name)
    if sort.values is None:
        return f"sort {name}"
    if isinstance(sort.values, range):
        return f"sort {name} = {sort.values[0]}..{sort.values[-1]}"
    return f"sort {name} = {{{', '.join([quote(v) for v in sort.values])}}}"


def header(name: str | None, weight: float, learnable: bool = False) -> str:
    """``[name, weight 0.5] `` or as much of it as there is to say.

    >>> header("rule", 0.5, True), header(None, 1.0)
    ('[rule, weight 0.5?] ', '')
    """
    parts = [] if name is None else [quote(name)]
    if learnable:
        parts.append("weight ?" if weight == 1.0 else f"weight {weight!r}?")
    elif weight != 1.0:
        parts.append(f"weight {weight!r}")
    return f"[{', '.join(parts)}] " if parts else ""


def display(formula: str, name: str | None, weight: float, learnable: bool = False) -> str:
    """A line of a display in LaTeX: the formula, and beside it what a header would say."""
    notes = [] if name is None else [_text(name)]
    if learnable or weight != 1.0:
        notes.append(f"weight ${'w' if learnable else latex_number(weight)}$")
    return f"  & {formula}" + (f" && \\text{{{', '.join(notes)}}}" if notes else "")


def _text(name: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join([special.get(c) or (f"\\{c}" if c in "_#$%&{}" else c) for c in name])
