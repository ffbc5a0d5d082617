"""Symbols, reserved words and names of the knowledge language."""

from __future__ import annotations

import json
import re

SYMBOLS: dict[str, tuple[str, ...]] = {
    "IFF": ("<->", "<=>", "↔", "⇔", "iff"),
    "ARROW": ("->", "→"),
    "IMPLIES": ("=>", "⇒", "implies"),
    "XOR": ("xor", "⊕"),
    "OR": ("|", "∨", "or"),
    "AND": ("&", "∧", "and"),
    "NOT": ("!", "¬", "~", "not"),
    "FORALL": ("forall", "∀"),
    "EXISTS": ("exists", "∃"),
    "IN": ("in", "∈"),
    "WHERE": ("where",),
    "TRUTH": ("true", "false", "⊤", "⊥"),
    "ASSIGN": (":=", "≔"),
    "EQ": ("=",),
    "COMPARE": ("!=", "<=", ">=", "<", ">", "≠", "≤", "≥"),
    "PLUS": ("+",),
    "MINUS": ("-", "−"),
    "STAR": ("*", "·", "×"),
    "DIV": ("//", "mod"),
    "RANGE": ("..", "…"),
    "DOT": (".",),
    "COLON": (":",),
    "COMMA": (",",),
    "QUESTION": ("?",),
    "LPAR": ("(",),
    "RPAR": (")",),
    "LSQB": ("[",),
    "RSQB": ("]",),
    "LBRACE": ("{",),
    "RBRACE": ("}",),
}
"""Every spelling of every symbol, by the terminal of the grammar it stands for."""

RESERVED = frozenset([s for spellings in SYMBOLS.values() for s in spellings if s.isalpha()])
"""Words that cannot be names unless they are quoted. All other keywords are names where no keyword can stand."""

IDENTIFIER = r"[^\W\d]\w*"

_identifier = re.compile(IDENTIFIER)


def quote(name: str) -> str:
    """A name as it stands in text: in quotation marks when it is a reserved word or not an identifier.

    What cannot be seen is written as an escape, so that no name can move the cursor of a terminal.

    >>> quote("alice"), quote("New York"), quote("where")
    ('alice', '"New York"', '"where"')
    """
    if _identifier.fullmatch(name) and name not in RESERVED:
        return name
    return "".join([c if c.isprintable() else json.dumps(c)[1:-1] for c in json.dumps(name, ensure_ascii=False)])
