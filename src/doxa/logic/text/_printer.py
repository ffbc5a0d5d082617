"""Printing formulas and declarations: as text and Unicode that parse back to the same tree, and as LaTeX.

Parentheses are printed only where precedence needs them. A tree is walked from the left with a stack of its own, and
the pieces are joined at the end, so a formula of any depth prints in time proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from doxa.logic.syntax._binders import Let, Quantifier
from doxa.logic.syntax._count import Count
from doxa.logic.syntax._symbols import Constant, Function, Predicate, Rows, Signature, Sort
from doxa.logic.syntax._tree import (
    And,
    Arith,
    Call,
    Compare,
    Expr,
    Field,
    Iff,
    Implies,
    Index,
    Name,
    Not,
    Number,
    Or,
    Truth,
    Xor,
)
from doxa.logic.text._grammar import quote

if TYPE_CHECKING:
    from doxa.logic.syntax._kb import Axiom, Fact, KnowledgeBase

__all__ = ["declarations", "to_latex", "to_text", "to_unicode"]

# How tightly each node holds together; an operand that holds less tightly than its place needs gets parentheses.
_IFF, _IMPLIES, _XOR, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _MINUS, _POSTFIX, _ATOM = range(1, 13)


@dataclass(frozen=True)
class _Style:
    """What differs between text, Unicode and LaTeX."""

    infix: dict[str, str]
    """By the class name of a connective, or the operator of a comparison or a term: the symbol with its spaces."""
    negation: str
    minus: str
    truth: tuple[str, str]
    """Of ``false`` and of ``true``."""
    quantifier: dict[str, str]
    """By kind; ``{}`` is the count."""
    words: dict[str, str]
    """The rest, with their spaces."""
    variable: Callable[[str], str]
    symbol: Callable[[str], str]
    number: Callable[[float], str] = repr


_TEXT = _Style(
    infix={
        "And": " & ",
        "Or": " | ",
        "Xor": " xor ",
        "Implies": " -> ",
        "Iff": " <-> ",
        **{op: f" {op} " for op in (*Compare.OPERATORS, *Arith.OPERATORS)},
    },
    negation="!",
    minus="-",
    truth=("false", "true"),
    quantifier={
        "forall": "forall ",
        "exists": "exists ",
        "exactly": "exactly {} ",
        "at most": "at most {} ",
        "at least": "at least {} ",
    },
    words={
        "where": " where ",
        "in": " in ",
        "sample": " sample ",
        "fresh": "fresh ",
        "dot": ". ",
        ":": ": ",
        ":=": " := ",
        "body": " (",
        "of": "of ",
    },
    variable=quote,
    symbol=quote,
)

_UNICODE = _Style(
    infix=_TEXT.infix
    | {"And": " ∧ ", "Or": " ∨ ", "Xor": " ⊕ ", "Implies": " → ", "Iff": " ↔ "}
    | {"!=": " ≠ ", "<=": " ≤ ", ">=": " ≥ ", "*": " · "},
    negation="¬",
    minus="-",
    truth=("⊥", "⊤"),
    quantifier={"forall": "∀", "exists": "∃", "exactly": "∃={} ", "at most": "∃≤{} ", "at least": "∃≥{} "},
    words=_TEXT.words | {"in": " ∈ "},
    variable=quote,
    symbol=quote,
)


def _escape(name: str) -> str:
    special = {"\\": r"\backslash ", "~": r"\sim ", "^": r"\hat{\ }", " ": r"\ "}
    return "".join([special.get(c) or (f"\\{c}" if c in "_#$%&{}" else c) for c in name])


def _latex_symbol(name: str) -> str:
    return f"\\mathrm{{{_escape(name)}}}"


def _latex_variable(name: str) -> str:
    """One letter is italic, digits behind it are its index, and a longer name is a word."""
    if match := re.fullmatch(r"([^\W\d_])_?([0-9]*)", name):
        return f"{match[1]}_{{{match[2]}}}" if match[2] else match[1]
    return f"\\mathit{{{_escape(name)}}}"


def _latex_number(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if exponent else mantissa


_LATEX = _Style(
    infix=_TEXT.infix
    | {"And": r" \land ", "Or": r" \lor ", "Xor": r" \oplus ", "Implies": r" \rightarrow "}
    | {"Iff": r" \leftrightarrow ", "!=": r" \neq ", "<=": r" \leq ", ">=": r" \geq "}
    | {"*": r" \cdot ", "//": r" \mathbin{/\!/} ", "mod": r" \bmod "},
    negation=r"\neg ",
    minus="-",
    truth=(r"\bot", r"\top"),
    quantifier={
        "forall": r"\forall ",
        "exists": r"\exists ",
        "exactly": r"\exists^{{={}}} ",
        "at most": r"\exists^{{\leq {}}} ",
        "at least": r"\exists^{{\geq {}}} ",
    },
    words={
        "where": r" \text{ where } ",
        "in": r" \in ",
        "sample": r" \text{ sample } ",
        "fresh": r"\text{fresh } ",
        "dot": r".\; ",
        ":": r" \colon ",
        ":=": " := ",
        "body": r"\; (",
        "of": r"\text{of } ",
    },
    variable=_latex_variable,
    symbol=_latex_symbol,
    number=_latex_number,
)


def to_text(node: Expr) -> str:
    """The formula as text that parses back to the same tree; also ``str(node)``.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> to_text((a >> b) >> (~c | a & b))
    '(a -> b) -> !c | a & b'
    """
    return _render(node, _TEXT)


def to_unicode(node: Expr) -> str:
    """The formula with mathematical symbols, which parses back to the same tree; also ``node.unicode()``.

    >>> from doxa.logic import Sort, exactly, variables
    >>> (x,) = variables("x", Sort.range("Digit", 0, 9))
    >>> to_unicode(exactly(1, x)(x >= 9))
    '∃=1 x: Digit. x ≥ 9'
    """
    return _render(node, _UNICODE)


def to_latex(node: Expr) -> str:
    r"""The formula for a paper, in mathematics mode (``amsmath`` for ``\text``); also ``node.latex()``.

    >>> from doxa.logic import Call, Sort, forall, variables
    >>> (x,) = variables("x", Sort("Person"))
    >>> print(to_latex(forall(x)(Call("smokes", (x,)))))
    \forall x \colon \mathrm{Person}.\; \mathrm{smokes}(x)
    """
    return _render(node, _LATEX)


_Task = tuple[Expr, int, bool, bool]
"""A node to print, the tightness its place needs, whether it ends its bracket, and whether a formula is wanted."""


def _render(root: Expr, style: _Style) -> str:
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


def _rank(node: Expr) -> int:
    if isinstance(node, Arith):
        return _MINUS if len(node.children) == 1 else _SUM if node.op in "+-" else _PRODUCT
    if isinstance(node, Number):
        return _MINUS if node.value < 0 else _ATOM
    return _RANKS.get(type(node), _ATOM)


_RANKS: dict[type[Expr], int] = {
    Quantifier: 0,
    Let: 0,
    Iff: _IFF,
    Implies: _IMPLIES,
    Xor: _XOR,
    Or: _OR,
    And: _AND,
    Not: _NOT,
    Compare: _COMPARE,
    Field: _POSTFIX,
    Index: _POSTFIX,
}


def _pieces(node: Expr, style: _Style, last: bool, formula: bool) -> list[str | _Task]:
    """What a node prints, from left to right: strings and the children with what their places need."""
    match node:
        case Name():
            return [style.variable(node.name)]
        case Number():
            return [style.number(node.value)]
        case Truth():
            return [style.truth[node.value]]
        case Call():
            name = (style.words["fresh"] if node.fresh else "") + style.symbol(node.name)
            if not node.children and formula and not node.fresh:
                return [name]
            return [f"{name}(", *_listed([(c, 0, True, False) for c in node.children]), ")"]
        case Field():
            return [(node.children[0], _POSTFIX, False, False), "." + style.symbol(node.name)]
        case Index():
            return [(node.children[0], _POSTFIX, False, False), "[", (node.children[1], 0, True, False), "]"]
        case Arith() if len(node.children) == 1:
            return [style.minus, (node.children[0], _MINUS, False, False)]
        case Arith():
            rank = _rank(node)
            left, right = node.children
            return [(left, rank, False, False), style.infix[node.op], (right, rank + 1, False, False)]
        case Compare():
            left, right = node.children
            return [(left, _SUM, False, False), style.infix[node.op], (right, _SUM, False, False)]
        case Not():
            return [style.negation, (node.children[0], _NOT, last, True)]
        case And() | Or():
            need, end = _RANKS[type(node)] + 1, len(node.children) - 1
            operands: list[_Task] = [(c, need, last and i == end, True) for i, c in enumerate(node.children)]
            return _listed(operands, style.infix[type(node).__name__])
        case Xor() | Implies() | Iff():
            rank, right_associative = _RANKS[type(node)], isinstance(node, Implies)
            left, right = node.children
            return [
                (left, rank + right_associative, False, True),
                style.infix[type(node).__name__],
                (right, rank + (not right_associative), last, True),
            ]
        case Let():
            parts: list[str | _Task] = []
            for name, value in zip(node.names, node.values, strict=True):
                parts += [", "] if parts else []
                parts += [style.variable(name) + style.words[":="], (value, 0, True, False)]
            return [*parts, style.words["body"], (node.body, 0, True, True), ")"]
        case Quantifier():
            return _quantifier(node, style)
        case Count():
            prefix = style.quantifier[node.kind].format(node.count) + style.words["of"]
            return [prefix, "(", *_listed([(c, 0, True, True) for c in node.children]), ")"]
    raise TypeError(f"cannot print a {type(node).__name__}")


def _quantifier(node: Quantifier, style: _Style) -> list[str | _Task]:
    words = style.words
    parts: list[str | _Task] = [style.quantifier[node.kind].format(node.count)]
    for i, group in enumerate(node.groups):
        parts.append((", " if i else "") + ", ".join([style.variable(n) for n in group.names]))
        if group.domain is None:
            parts.append(words[":"] + style.symbol(group.sort or ""))
        else:
            parts += [words["in"], (group.domain, _POSTFIX, False, False)]
        if group.sample is not None:
            parts.append(f"{words['sample']}{group.sample}")
    if node.guard is not None:
        parts += [words["where"], (node.guard, 0, True, True)]
    return [*parts, words["dot"], (node.body, 0, True, True)]


def _listed(items: Iterable[_Task], separator: str = ", ") -> list[str | _Task]:
    parts: list[str | _Task] = []
    for item in items:
        parts += [separator, item] if parts else [item]
    return parts


# --- declarations, axioms and facts -------------------------------------------------------------------------------


def declarations(signature: Signature) -> list[str]:
    """The declarations of a signature, one statement each.

    >>> from doxa.logic import Constant, Signature, Sort
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


def axiom_header(axiom: Axiom) -> str:
    """``[name, weight 0.5] `` or as much of it as there is to say.

    >>> from doxa.logic import Axiom, Call
    >>> axiom_header(Axiom("rule", Call("a"), weight=0.5, learnable=True))
    '[rule, weight 0.5?] '
    """
    parts = [quote(axiom.name)] if axiom.named else []
    if axiom.learnable:
        parts.append("weight ?" if axiom.weight == 1.0 else f"weight {axiom.weight!r}?")
    elif axiom.weight != 1.0:
        parts.append(f"weight {axiom.weight!r}")
    return f"[{', '.join(parts)}] " if parts else ""


def fact_text(fact: Fact, printer: Callable[[Expr], str] = to_text) -> str:
    """A labelled atom as a statement.

    >>> from doxa.logic import Call, Fact, Name
    >>> fact_text(Fact(Call("smokes", (Name("bob"),)), False, weight=0.5))
    'fact [weight 0.5] !smokes(bob)'
    """
    weight = "" if fact.weight == 1.0 else f"[weight {fact.weight!r}] "
    return f"fact {weight}{printer(fact.literal)}"


def knowledge_text(kb: KnowledgeBase, printer: Callable[[Expr], str] = to_text) -> str:
    """A whole knowledge base, one statement a line: declarations, facts, axioms.

    >>> from doxa.logic import KnowledgeBase, propositions
    >>> a, b = propositions("a b")
    >>> print(knowledge_text(KnowledgeBase(rule=a >> b), to_unicode))
    pred a
    pred b
    [rule] a → b
    """
    lines = declarations(kb.signature)
    lines += [fact_text(f, printer) for f in kb.facts]
    for axiom in kb.axioms:
        header, text = axiom_header(axiom), printer(axiom.formula)
        # A line that begins with a minus would go on with the line before it.
        lines.append(header + text if header or not text.startswith("-") else f"({text})")
    return "\n".join(lines)


def knowledge_latex(kb: KnowledgeBase) -> str:
    r"""The facts and axioms of a knowledge base as one display for a paper.

    >>> from doxa.logic import KnowledgeBase, propositions
    >>> a, b = propositions("a b")
    >>> print(knowledge_latex(KnowledgeBase(rule=a >> b)))
    \begin{align*}
      & \mathrm{a} \rightarrow \mathrm{b} && \text{rule}
    \end{align*}
    """
    lines = [
        f"  & {to_latex(f.literal)}" + ("" if f.weight == 1 else f" && \\text{{weight ${_latex_number(f.weight)}$}}")
        for f in kb.facts
    ]
    for axiom in kb.axioms:
        notes = [_text_latex(axiom.name)] if axiom.named else []
        if axiom.learnable or axiom.weight != 1.0:
            notes.append(f"weight ${'w' if axiom.learnable else _latex_number(axiom.weight)}$")
        lines.append(f"  & {to_latex(axiom.formula)}" + (f" && \\text{{{', '.join(notes)}}}" if notes else ""))
    return "\n".join([r"\begin{align*}", " \\\\\n".join(lines), r"\end{align*}"])


def _text_latex(name: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join([special.get(c) or (f"\\{c}" if c in "_#$%&{}" else c) for c in name])
