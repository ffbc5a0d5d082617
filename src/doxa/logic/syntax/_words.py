"""The words of the knowledge language: symbols, reserved words, keywords, names, and how text falls into them.

Reading, colouring and completing text all take them from here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache

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
    "AGGREGATE": ("∑",),
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
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_GAP = r"[^\S\n]+"
_SPACE = r"[^\S\n]*"
_NAME_AHEAD = rf'(?="|(?!(?:{"|".join(sorted(RESERVED))})\b|sample{_GAP}[0-9]|from{_GAP}")[^\W\d])'

_WEIGHT = rf"{_SPACE}[-−]?{_SPACE}(?:{NUMBER})?{_SPACE}\??{_SPACE}"
_ATOM_AHEAD = rf"(?:{_NAME_AHEAD}|(?=not\b|[¬~]|!(?!=)))"

DECLARATIONS = ("SORT", "CONST", "PRED", "CLOSED", "FUNC", "DATA", "FACT", "FACTS", "DEFINE", "INCLUDE")
_AGGREGATES = ("sum", "min", "max", "argmin", "argmax")
SOFT: dict[str, str] = {
    **{word.upper(): rf"{word}{_GAP}{_NAME_AHEAD}" for word in ("sort", "const", "pred", "func", "data", "facts")},
    "DEFINE": rf"define{_GAP}{_NAME_AHEAD}",
    "CLOSED": rf"closed{_GAP}pred{_GAP}{_NAME_AHEAD}",
    "FACT": rf"fact{_GAP}(?:{_ATOM_AHEAD}|(?=\[{_SPACE}weight{_WEIGHT}\]{_SPACE}{_ATOM_AHEAD}))",
    "INCLUDE": rf'include{_GAP}(?=")',
    "EXACTLY": rf"exactly{_GAP}(?=[0-9])",
    "ATMOST": rf"at{_GAP}most{_GAP}(?=[0-9])",
    "ATLEAST": rf"at{_GAP}least{_GAP}(?=[0-9])",
    "SAMPLE": rf"sample{_GAP}(?=[0-9])",
    "FRESH": rf"fresh{_GAP}{_NAME_AHEAD}",
    "AGGREGATE": rf"(?:{'|'.join(_AGGREGATES)}){_GAP}{_NAME_AHEAD}",
    "COUNT": rf"count{_GAP}{_NAME_AHEAD}",
    "ALLDIFFERENT": rf"all_different{_GAP}{_NAME_AHEAD}",
}
"""Keywords that are recognised only by what follows them, where a name could not stand: elsewhere they are names.

Each takes the white space behind it, by which it differs from the name.
"""

KIND = {spelling: kind for kind, spellings in SYMBOLS.items() for spelling in spellings}
MEANING = {"≠": "!=", "≤": "<=", "≥": ">=", "−": "-", "·": "*", "×": "*", "⊤": "true", "⊥": "false"}
_PLAIN_SPELLING = {"IFF": "<->", "ARROW": "->", "IMPLIES": "->", "XOR": "xor", "OR": "|", "AND": "&"}
_PLAIN_SPELLING |= {"FORALL": "forall", "EXISTS": "exists", "AGGREGATE": "sum"}
MEANING |= {spelling: plain for kind, plain in _PLAIN_SPELLING.items() for spelling in SYMBOLS[kind]}
_MISTAKES = ("===", "==", "&&", "||", "**", "<>")
"""Operators of other languages, read whole so that the message can name them."""

_SIGNS = sorted([s for s in (*KIND, *_MISTAKES) if not s.isalpha()], key=len, reverse=True)


@cache
def _token() -> re.Pattern[str]:
    """Made when the first text is read: compiling it takes longer than importing most modules."""
    return re.compile(
        r"[^\S\n]*+(?:\#[^\n]*+)?"
        rf"(\n|{'|'.join(SOFT.values())}|{IDENTIFIER}|{NUMBER}|{STRING}|\.(?:{IDENTIFIER}|{STRING})"
        # A quotation mark that is never closed takes the rest of its line, so that no text is read twice.
        rf'|"[^\n]*|{"|".join(re.escape(s) for s in _SIGNS)}|.|\Z)'
    )


def token_matches(text: str) -> Iterator[re.Match[str]]:
    """The tokens of a text, each the first group of its match."""
    return _token().finditer(text)


WORD = re.compile(IDENTIFIER)
QUOTED = re.compile(STRING)
SOFT_KIND = {
    **{kind.lower(): kind for kind in SOFT},
    **dict.fromkeys(_AGGREGATES, "AGGREGATE"),
    "all_different": "ALLDIFFERENT",
    "at most": "ATMOST",
    "at least": "ATLEAST",
    "closed pred": "CLOSED",
}


def quote(name: str) -> str:
    """A name as it stands in text: in quotation marks when it is a reserved word or not an identifier.

    What cannot be seen is written as an escape, so that no name can move the cursor of a terminal.

    >>> quote("alice"), quote("New York"), quote("where")
    ('alice', '"New York"', '"where"')
    """
    if WORD.fullmatch(name) and name not in RESERVED:
        return name
    return "".join([c if c.isprintable() else json.dumps(c)[1:-1] for c in json.dumps(name, ensure_ascii=False)])
