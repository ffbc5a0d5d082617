"""What each word of a text is: keyword, sort, predicate, variable, … so that it can be coloured.

Words are those of the language itself (``_words``). What a name is follows from its declaration, wherever in the text
that stands, or from the quantifier that binds it; text that is not finished, or wrong, is marked as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from doxa._html import Html, markup, span
from doxa.logic.syntax._words import DECLARATIONS, KIND, QUOTED, SOFT_KIND, WORD, token_matches

Mark = Literal[
    "space", "comment", "keyword", "operator", "punctuation", "number", "truth", "string", "error", "name",
    "sort", "constant", "predicate", "function", "data", "variable", "field", "axiom",
]  # fmt: skip

_PUNCTUATION = {"DOT", "COLON", "COMMA", "QUESTION", "LPAR", "RPAR", "LSQB", "RSQB", "LBRACE", "RBRACE"}
_DECLARES: dict[str, Mark] = {
    "SORT": "sort", "CONST": "constant", "PRED": "predicate", "CLOSED": "predicate", "FUNC": "function",
    "DATA": "data", "DEFINE": "predicate",
}  # fmt: skip
_OPEN, _CLOSE = {"LPAR", "LBRACE", "LSQB"}, {"RPAR", "RBRACE", "RSQB"}
_BUILT_IN: dict[str, Mark] = {"Int": "sort", "Real": "sort"}


class Marked(NamedTuple):
    """A piece of a text, what it is, and where it begins."""

    kind: Mark
    text: str
    start: int


def _words(text: str) -> Iterator[tuple[str, str, int]]:
    """The tokens of a text without what is between them: terminal, spelling and place."""
    for match in token_matches(text):
        word = match[1]
        if not word:
            continue
        yield _terminal(word), word, match.start(1)


def _terminal(word: str) -> str:
    if word in KIND:
        return KIND[word]
    if WORD.match(word):
        return "NAME" if not word[-1].isspace() else SOFT_KIND.get(" ".join(word.split()), "NAME")
    if word == "\n" or word == ";":
        return "END"
    if word[0].isdigit() and word[0].isascii():
        return "NUMBER"
    if QUOTED.fullmatch(word):
        return "NAME"
    return "FIELD" if word[0] == "." and len(word) > 1 else "BAD"


def declared_names(text: str) -> dict[str, Mark]:
    """What a text declares and binds, by name as it is spelt.

    >>> declared_names("sort Bird = {owl}; pred flies(Bird); forall x: Bird. flies(x)")
    {'Int': 'sort', 'Real': 'sort', 'Bird': 'sort', 'owl': 'constant', 'flies': 'predicate', 'x': 'variable'}
    """
    found: dict[str, Mark] = dict(_BUILT_IN)
    variables: dict[str, Mark] = {}
    statement, name, declares, depth = "", "", None, 0
    before: list[tuple[str, str]] = []  # the names and commas just read
    for terminal, word, _ in _words(text):
        if terminal in DECLARATIONS or terminal in _DECLARES:
            statement, declares, before, depth = terminal, _DECLARES.get(terminal), [], 0
            continue
        depth = max(0, depth + (terminal in _OPEN) - (terminal in _CLOSE))
        if terminal == "NAME" and declares is not None:
            found[word], name = declares, word
            declares = declares if statement == "CONST" else None
        elif terminal == "NAME" and statement == "SORT" and depth:
            found.setdefault(word, "constant")
        elif terminal in ("COLON", "IN"):
            declares = None
            if statement not in ("CONST", "DATA"):
                variables |= dict.fromkeys(_listed(before), "variable")
        elif terminal == "ARROW" and statement == "DEFINE" and not depth:  # define f(x: A) -> B := …
            found[name] = "function"
        elif terminal == "ASSIGN":
            variables |= dict.fromkeys(_listed(before)[:1], "variable")
            statement, declares = "", None
        elif terminal == "COMMA" and not depth and statement != "CONST":  # pred rain, wet
            declares = _DECLARES.get(statement)
        elif terminal == "END" and (word == ";" or not depth):
            statement, declares, depth = "", None, 0
        if terminal not in ("NAME", "COMMA"):
            before = []
        before.append((terminal, word))
    return {**found, **{name: kind for name, kind in variables.items() if name not in found}}


def declarations_in(text: str) -> dict[str, str]:
    """The statement that declares each name, as it is written; the first, where there are several.

    >>> declarations_in("sort Bird = {owl}; pred flies(Bird); flies(owl)")
    {'Bird': 'sort Bird = {owl}', 'owl': 'sort Bird = {owl}', 'flies': 'pred flies(Bird)'}
    """
    found: dict[str, str] = {}
    kinds = declared_names(text)
    start: int | None = None
    names: list[str] = []
    declares: Mark | None = None
    depth, defines = 0, False

    def end(at: int) -> None:
        nonlocal start
        if start is not None:
            written = text[start:at].strip()
            found.update({name: written for name in names if name not in found})
        start = None
        names.clear()

    for terminal, word, at in _words(text):
        depth = max(0, depth + (terminal in _OPEN) - (terminal in _CLOSE))
        if terminal in _DECLARES:
            end(at)
            start, depth, declares, defines = at, 0, _DECLARES[terminal], terminal == "DEFINE"
        elif terminal in DECLARATIONS or (terminal == "END" and (not depth or word == ";")):
            end(at)
        elif terminal == "NAME" and start is not None:
            # what it declares, not what it speaks of
            own = not names if defines else kinds.get(word) == (declares if not depth else "constant")
            names += [word] if own else []
    end(len(text))
    return found


def _listed(before: list[tuple[str, str]]) -> list[str]:
    """The names, last first, that end what was read: those of ``x, y`` in ``z: Bird, x, y``."""
    names: list[str] = []
    for place in range(len(before) - 1, -1, -1):
        terminal, word = before[place]
        if terminal == "COMMA":
            continue
        if terminal != "NAME" or (place and before[place - 1][0] in ("COLON", "IN")):  # that is their sort
            break
        names.append(word)
    return names


def marks(text: str, known: Mapping[str, Mark] | None = None) -> Iterator[Marked]:
    """All pieces of a text, one after the other; together they are the text.

    Args:
        text: a knowledge file, or part of one.
        known: what names are that the text does not declare.

    >>> [(m.kind, m.text) for m in marks("pred p; p") if m.kind != "space"]
    [('keyword', 'pred'), ('predicate', 'p'), ('punctuation', ';'), ('predicate', 'p')]
    """
    names: dict[str, Mark] = {**(known or {}), **declared_names(text)}
    end = 0
    previous = "END"
    header, statement, depth = False, "", 0
    tokens = [(t, w, at) for t, w, at in _words(text)]
    for place, (terminal, word, at) in enumerate(tokens):
        yield from _between(text, end, at)
        end = at + len(word)
        follows = tokens[place + 1][0] if place + 1 < len(tokens) else "END"
        if terminal == "LSQB" and previous in ("END", "FACT"):
            header = True
        elif terminal in ("RSQB", "END"):
            header = False
        depth = max(0, depth + (terminal == "LPAR") - (terminal == "RPAR"))
        if terminal in DECLARATIONS or (terminal == "END" and not depth):
            statement = terminal
        if word == "\n":
            yield Marked("space", word, at)
            previous = terminal if previous != "BAD" else "END"
            continue
        kind = _mark(terminal, word, names, previous, follows, header)
        if terminal == "NAME" and follows == "COLON" and statement == "DATA":
            kind = "field"
        bare = word.rstrip()
        yield Marked(kind, bare, at)
        if bare != word:
            yield Marked("space", word[len(bare) :], at + len(bare))
        previous = terminal
    yield from _between(text, end, len(text))


def _mark(terminal: str, word: str, names: Mapping[str, Mark], previous: str, follows: str, header: bool) -> Mark:
    if terminal == "NAME":
        if header and previous in ("LSQB", "COMMA"):
            return "keyword" if word == "weight" and follows in ("NUMBER", "QUESTION", "MINUS") else "axiom"
        if previous == "INCLUDE" or (word[0] == '"' and previous == "NAME"):
            return "string"
        if (word == "from" and previous == "NAME") or (word == "header" and previous == "NAME"):
            return "keyword"
        if word in names:
            return names[word]
        return "predicate" if follows == "LPAR" else "sort" if previous == "COLON" else "name"
    if terminal == "BAD":
        return "error"
    if terminal == "FIELD":
        return "field"
    if terminal == "NUMBER":
        return "number"
    if terminal == "TRUTH":
        return "truth"
    if terminal == "END" or terminal in _PUNCTUATION:
        return "punctuation"
    if terminal in SOFT_KIND.values() or (word.isalpha() and word.isascii()):
        return "keyword"
    return "operator"


def _between(text: str, start: int, end: int) -> Iterator[Marked]:
    """White space and a comment."""
    gap = text[start:end]
    if not gap:
        return
    blank = len(gap) - len(gap.lstrip())
    if blank:
        yield Marked("space", gap[:blank], start)
    if gap[blank:]:
        yield Marked("comment", gap[blank:], start + blank)


_COLOURED = {
    "comment": "comment", "keyword": "keyword", "sort": "sort", "constant": "constant", "predicate": "predicate",
    "function": "function", "data": "data", "variable": "variable", "field": "data", "axiom": "quiet", "error": "bad",
}  # fmt: skip


def coloured(text: str, known: Mapping[str, Mark] | None = None) -> Html:
    """A text in colours, by what its words are.

    >>> print(coloured("p(x)"))
    <span class="predicate">p</span>(x)
    """
    return Html(
        "".join(span(_COLOURED[m.kind], m.text) if m.kind in _COLOURED else markup(m.text) for m in marks(text, known))
    )
