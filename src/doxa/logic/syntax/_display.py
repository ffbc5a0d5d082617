"""Formulas and knowledge bases as notebooks show them: with mathematical symbols, in colours by what names are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doxa._html import Html, box, markup, more
from doxa.logic.syntax._marks import Mark, coloured
from doxa.logic.syntax._node import Node, below
from doxa.logic.syntax._printer import LATEX, UNICODE, render

LETTERS = 20_000
"""So much of a formula is shown."""
STATEMENTS = 200
"""So many statements of a knowledge base are shown."""
_TERMS = {"Call", "Compare", "Arith", "Field", "Index"}
"""Nodes whose children are terms."""


def formula(root: Node, known: Mapping[str, Mark] | None = None) -> Html:
    """A formula in colours; ``known`` says what names are where its shape does not."""
    text = render(root, UNICODE)
    if len(text) > LETTERS:
        return Html(f"{markup(text[:LETTERS])} …")
    return Html(f'<span class="formula">{coloured(text, known if known is not None else kinds(root))}</span>')


def kinds(root: Node) -> dict[str, Mark]:
    """What the names in a formula are, as far as its shape tells: what stands where a term is wanted is a function."""
    found: dict[str, Mark] = {}
    for node in below([root]):
        if type(node).__name__ == "Name":
            found.setdefault(node.label, "constant")
        for child in node.children:
            if type(child).__name__ == "Call":
                term = type(node).__name__ in _TERMS or (
                    type(node).__name__ == "Let" and child is not node.children[-1]
                )
                found[child.label[0]] = "function" if term else "predicate"
    return found


def formula_box(root: Node, before: str = "") -> str:
    """What a notebook shows of a formula, behind its header."""
    return box(Html(f"<p>{markup(before)}{formula(root)}</p>"))


def formula_latex(root: Node) -> str:
    """The same for what typesets LaTeX."""
    return f"${render(root, LATEX)}$"


def statements_box(title: str, statements: Sequence[str]) -> str:
    """What a notebook shows of a knowledge base."""
    shown = [s if len(s) <= LETTERS else f"{s[:LETTERS]} …" for s in statements[:STATEMENTS]]
    text = coloured("\n".join(shown))
    return box(Html(f'<pre class="formula">{text}</pre>'), *more(len(shown), len(statements), "lines"), title=title)
