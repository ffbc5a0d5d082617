"""Parsing and checking knowledge: how the time grows, and how it compares with Lark's bare parse of the same text.

The peer is Lark's own LALR parser with its own contextual lexer on the same grammar; it builds a plain tree and checks
nothing.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from functools import cache

from lark import Lark

from doxa.logic import KnowledgeBase, parse
from doxa.logic.syntax._words import IDENTIFIER, SYMBOLS
from doxa.logic.text._grammar import GRAMMAR
from doxa.logic.text._lexer import NUMBER, SOFT, STRING
from harness import Row, compare

DECLARATIONS = """
sort Person; sort Image; sort Digit = 0..9; sort Colour = {red, green, blue}
const alice, bob: Person
func digit(Image) -> Digit; func colour(Person) -> Colour; func age(Person) -> Int
data pairs(left: Image, right: Image, sum: Int); data scenes(people: Person*, label: Int)
"""
TEMPLATES = """
[a{i}] forall x, y: Person where x != y. friends{k}(x, y) & smokes{m}(x) -> smokes{k}(y) | !smokes{m}(y)
[a{i}, weight 0.5] forall x: Person. exists y: Person. friends{k}(x, y) & (colour(y) = red -> age(x) < {i})
[a{i}, weight ?] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum & d <= {m})
[a{i}] forall s in scenes. forall x, y in s.people. friends{k}(x, y) <-> friends{m}(y, x) xor smokes{k}(x)
[a{i}] forall x: Image sample 64. at most 2 c: Digit. digit(x) = c | c * 2 + {m} > {i} & !seen{k}(x, c)
[a{i}] friends{k}(alice, bob) & (smokes{m}(alice) | smokes{k}(bob) | age(alice) // 2 != {i} mod 7)
""".strip().split("\n")
SYMBOLS_EACH = 50


@cache
def knowledge(axioms: int) -> str:
    """A text of that many axioms of six kinds, all different, over 150 predicates."""
    lines = [DECLARATIONS]
    lines += [f"pred friends{k}(Person, Person), smokes{k}(Person), seen{k}(Image, Digit)" for k in range(SYMBOLS_EACH)]
    for i in range(axioms):
        k, m = i % SYMBOLS_EACH, i * 7 % SYMBOLS_EACH % 10
        lines.append(TEMPLATES[i % len(TEMPLATES)].format(i=i, k=k, m=m))
    return "\n".join(lines) + "\n"


def checked(text: str) -> KnowledgeBase:
    return parse(text, warn=False)


@cache
def lark() -> Lark:
    """Lark on the same grammar, with terminals for its own lexer."""

    def terminal(kind: str) -> str:
        if kind in SYMBOLS:
            spellings = sorted(SYMBOLS[kind], key=len, reverse=True)
            words = [re.escape(s).replace("/", r"\/") + (r"\b" if s.isalpha() else "") for s in spellings]
            return f"{kind}.2: /{'|'.join(words)}/"
        if kind in SOFT:
            return f"{kind}.3: /{SOFT[kind]}/"
        others = {
            "NAME": f"NAME: /{IDENTIFIER}|{STRING}/",
            "NUMBER": f"NUMBER: /{NUMBER}/",
            "FIELD": rf"FIELD.3: /\.(?:{IDENTIFIER}|{STRING})/",
            "END": r"END: /[\n;]\s*/",
        }
        return others[kind]

    terminals = [terminal(kind) for kind in sorted(set(re.findall(r"\b[A-Z]{2,}\b", GRAMMAR)))]
    blanks = r"%ignore /[^\S\n]+/"
    return Lark(f"{GRAMMAR}\n{chr(10).join(terminals)}\n{blanks}\n", parser="lalr", lexer="contextual", start="text")


def bare(text: str) -> object:
    return lark().parse(text.lstrip())


def once(function: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    function(text)
    return time.process_time() - start


def rows() -> list[Row]:
    small, middle, large = [knowledge(n) for n in (1_000, 10_000, 100_000)]
    assert len(checked(small)) == 1_000
    found = [
        compare(
            "parse + check 10,000 axioms, against 1,000",
            lambda: checked(middle),
            lambda: checked(small),
            goal=12,
            better="lower",
            repeats=3,
        ),
        compare(
            "parse + check 1,000 axioms, against Lark's bare parse",
            lambda: checked(small),
            lambda: bare(small),
            goal=3,
            better="lower",
            repeats=5,
        ),
        compare(
            "parse + check 10,000 axioms, against Lark's bare parse",
            lambda: checked(middle),
            lambda: bare(middle),
            goal=3,
            better="lower",
            repeats=3,
        ),
    ]
    # The largest is measured once: Lark alone takes about a minute.
    tenth = statistics.median([once(checked, middle) for _ in range(3)])
    ours = once(checked, large)
    theirs = once(bare, large)
    each = f"{ours / 100_000 * 1e6:.0f} µs an axiom"
    found.append(Row("parse + check 100,000 axioms, against 10,000", ours / tenth, 12, "lower", note=each))
    found.append(Row("parse + check 100,000 axioms, against Lark's bare parse", ours / theirs, 3, "lower"))
    return found


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
