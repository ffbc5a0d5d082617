"""Printing formulas: as text and Unicode that parse back to the same tree, and as LaTeX.

What a node is follows from the name of its class; the classes themselves are defined on top of this file. Parentheses
are printed only where precedence needs them. A formula of any depth prints in time proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from doxa.errors import visible
from doxa.logic.syntax._node import Node
from doxa.logic.syntax._words import quote

# How tightly each node holds together; an operand that holds less tightly than its place needs gets parentheses.
_RANKS = {kind: rank for rank, kind in enumerate(("Let", "Iff", "Implies", "Xor", "Or", "And", "Not", "Compare"))}
_RANKS |= {"Quantifier": 0, "Define": 0, "Field": 12, "Index": 12}
_NOT, _COMPARE, _TERM, _SUM, _PRODUCT, _MINUS, _POSTFIX, _ATOM = range(6, 14)


@dataclass(frozen=True)
class Style:
    """What differs between text, Unicode and LaTeX."""

    infix: dict[str, str]
    """By the class name of a connective, or the operator of a comparison or a term: the symbol with its spaces."""
    negation: str
    truth: tuple[str, str]
    """Of ``false`` and of ``true``."""
    quantifier: dict[str, str]
    """By kind; ``{}`` is the count."""
    words: dict[str, str]
    """The rest, with their spaces."""
    aggregate: dict[str, tuple[str, str, str]]
    """By kind: what stands before the variables, between them and the body, and after it."""
    variable: Callable[[str], str] = quote
    symbol: Callable[[str], str] = quote
    number: Callable[[float], str] = repr


TEXT = Style(
    infix={"And": " & ", "Or": " | ", "Xor": " xor ", "Implies": " -> ", "Iff": " <-> "}
    | {op: f" {op} " for op in ("=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "//", "mod")},
    negation="!",
    truth=("false", "true"),
    quantifier={"forall": "forall ", "exists": "exists "}
    | {kind: f"{kind} {{}} " for kind in ("exactly", "at most", "at least")},
    words={word: f" {word} " for word in ("where", "in", "sample", ":=")}
    | {"fresh": "fresh ", "dot": ". ", ":": ": ", "body": " (", "of": "of ", "define": "define ", "result": " -> "},
    aggregate={kind: (f"{kind} ", ". ", "") for kind in ("sum", "min", "max", "argmin", "argmax", "all_different")}
    | {"count": ("count ", "", "")},
)

UNICODE = Style(
    infix=TEXT.infix
    | {"And": " ∧ ", "Or": " ∨ ", "Xor": " ⊕ ", "Implies": " → ", "Iff": " ↔ "}
    | {"!=": " ≠ ", "<=": " ≤ ", ">=": " ≥ ", "*": " · "},
    negation="¬",
    truth=("⊥", "⊤"),
    quantifier={"forall": "∀", "exists": "∃", "exactly": "∃={} ", "at most": "∃≤{} ", "at least": "∃≥{} "},
    words=TEXT.words | {"in": " ∈ "},
    aggregate=TEXT.aggregate | {"sum": ("∑", ". ", "")},
)


def escape(name: str, special: dict[str, str]) -> str:
    """A name in LaTeX, the letters that mean something there replaced."""
    return "".join([special.get(c) or (f"\\{c}" if c in "_#$%&{}" else c) for c in visible(name)])


def _latex_symbol(name: str, font: str = "mathrm") -> str:
    special = {"\\": r"\backslash ", "~": r"\sim ", "^": r"\hat{\ }", " ": r"\ "}
    return f"\\{font}{{{escape(name, special)}}}"


def _latex_variable(name: str) -> str:
    """One letter is italic, digits behind it are its index, and a longer name is a word."""
    if match := re.fullmatch(r"([^\W\d_])_?([0-9]*)", name):
        return f"{match[1]}_{{{match[2]}}}" if match[2] else match[1]
    return _latex_symbol(name, "mathit")


def latex_number(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if exponent else mantissa


LATEX = Style(
    infix=TEXT.infix
    | {"And": r" \land ", "Or": r" \lor ", "Xor": r" \oplus ", "Implies": r" \rightarrow "}
    | {"Iff": r" \leftrightarrow ", "!=": r" \neq ", "<=": r" \leq ", ">=": r" \geq "}
    | {"*": r" \cdot ", "//": r" \mathbin{/\!/} ", "mod": r" \bmod "},
    negation=r"\neg ",
    truth=(r"\bot", r"\top"),
    quantifier={"forall": r"\forall ", "exists": r"\exists ", "exactly": r"\exists^{{={}}} "}
    | {"at most": r"\exists^{{\leq {}}} ", "at least": r"\exists^{{\geq {}}} "},
    words={"where": r" \text{ where } ", "in": r" \in ", "sample": r" \text{ sample } ", "fresh": r"\text{fresh } "}
    | {"dot": r".\; ", ":": r" \colon ", ":=": " := ", "body": r"\; (", "of": r"\text{of } "}
    | {"define": "", "result": r" \rightarrow "},
    aggregate={kind: (rf"\{name}_{{", r"} ", "") for kind, name in (("sum", "sum"), ("min", "min"), ("max", "max"))}
    | {kind: (rf"\operatorname{{{kind}}}_{{", r"} ", "") for kind in ("argmin", "argmax")}
    | {"all_different": (r"\operatorname{alldifferent}_{", r"} ", ""), "count": (r"\left| \{", "", r"\} \right|")},
    variable=_latex_variable,
    symbol=_latex_symbol,
    number=latex_number,
)


_Task = tuple[Node, int, bool, bool]
"""A node to print, the tightness its place needs, whether it ends its bracket, and whether a formula is wanted."""


def render(root: Node, style: Style) -> str:
    """A tree in a style."""
    out: list[str] = []
    stack: list[str | _Task] = [(root, 0, True, True)]
    while stack:
        task = stack.pop()
        if isinstance(task, str):
            out.append(task)
            continue
        node, need, last, formula = task
        rank = _rank(node)
        # A quantifier reaches as far right as it can, so it needs no parentheses as the last operand.
        if rank < need if rank else need > _NOT or (need > 0 and not last):
            out.append("(")
            stack.append(")")
            last = True
        stack.extend(reversed(_pieces(node, style, last, formula)))
    return "".join(out)


def _rank(node: Node) -> int:
    kind = type(node).__name__
    if kind == "Arith":
        return _MINUS if len(node.children) == 1 else _SUM if node.label in "+-" else _PRODUCT
    if kind == "Aggregate":
        return _COMPARE if node.label[0] == "all_different" else _TERM
    if kind == "Number":
        return _MINUS if node.label[1] < 0 else _ATOM
    return _RANKS.get(kind, _ATOM)


def _pieces(node: Node, style: Style, last: bool, formula: bool) -> list[str | _Task]:
    """What a node prints, from left to right: strings and the children with what their places need."""
    kind, label, children = type(node).__name__, node.label, node.children
    match kind:
        case "Name":
            return [style.variable(label)]
        case "Number":
            return [style.number(label[1])]
        case "Truth":
            return [style.truth[label]]
        case "Call":
            name, fresh = label
            name = (style.words["fresh"] if fresh else "") + style.symbol(name)
            if not children and formula and not fresh:
                return [name]
            return [f"{name}(", *_listed([(c, 0, True, False) for c in children]), ")"]
        case "Field":
            return [(children[0], _POSTFIX, False, False), "." + style.symbol(label)]
        case "Index":
            return [(children[0], _POSTFIX, False, False), "[", (children[1], 0, True, False), "]"]
        case "Arith" if len(children) == 1:
            return ["-", (children[0], _MINUS, False, False)]
        case "Arith":
            rank = _rank(node)
            return [(children[0], rank, False, False), style.infix[label], (children[1], rank + 1, False, False)]
        case "Compare":
            return [(children[0], _TERM, False, False), style.infix[label], (children[1], _TERM, False, False)]
        case "Not":
            return [style.negation, (children[0], _NOT, last, True)]
        case "And" | "Or":
            need, end = _RANKS[kind] + 1, len(children) - 1
            return _listed([(c, need, last and i == end, True) for i, c in enumerate(children)], style.infix[kind])
        case "Xor" | "Implies" | "Iff":
            rank, right_associative = _RANKS[kind], kind == "Implies"
            return [
                (children[0], rank + right_associative, False, True),
                style.infix[kind],
                (children[1], rank + (not right_associative), last, True),
            ]
        case "Let":
            parts: list[str | _Task] = []
            for name, value in zip(label, children[:-1], strict=True):
                parts += [", "] if parts else []
                parts += [style.variable(name) + style.words[":="], (value, 0, True, False)]
            return [*parts, style.words["body"], (children[-1], 0, True, True), ")"]
        case "Quantifier":
            parts = [style.quantifier[label[0]].format(label[1]), *_variables(label, children, style)]
            return [*parts, style.words["dot"], (children[-1], 0, True, True)]
        case "Aggregate":
            before, between, after = style.aggregate[label[0]]
            counts = label[0] == "count"  # whose guard no dot ends
            parts = [before, *_variables(label, children, style, _POSTFIX if counts else 0), between]
            return [*parts, *([] if counts else [(children[-1], _TERM, False, False)]), after]
        case "Define":
            parts = [style.words["define"] + style.symbol(label[0])]
            if label[2] or label[1] is not None:
                parts += ["(", *_variables(label, children, style), ")"]
            parts += [] if label[1] is None else [style.words["result"] + style.symbol(label[1])]
            return [*parts, style.words[":="], (children[-1], 0, True, label[1] is None)]
        case "Count":
            prefix = style.quantifier[label[0]].format(label[1]) + style.words["of"]
            return [prefix, "(", *_listed([(c, 0, True, True) for c in children]), ")"]
    raise TypeError(f"cannot print a {kind}")


def _variables(label: Any, children: tuple[Node, ...], style: Style, need: int = 0) -> list[str | _Task]:
    """The variables of a binder with what they range over, and its guard in a place that needs so much tightness."""
    words, (_, _, groups, guarded) = style.words, label
    parts: list[str | _Task] = []
    domains = iter(children)
    for i, (names, sort, sample) in enumerate(groups):
        parts.append((", " if i else "") + ", ".join([style.variable(n) for n in names]))
        if sort is not None:
            parts.append(words[":"] + style.symbol(sort))
        else:
            parts += [words["in"], (next(domains), _POSTFIX, False, False)]
        if sample is not None:
            parts.append(f"{words['sample']}{sample}")
    return [*parts, words["where"], (children[-2], need, True, True)] if guarded else parts


def _listed(items: Iterable[_Task], separator: str = ", ") -> list[str | _Task]:
    parts: list[str | _Task] = []
    for item in items:
        parts += [separator, item] if parts else [item]
    return parts
