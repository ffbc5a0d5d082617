"""From text to tokens: one regular expression for the words, and the layout that ends statements.

A statement ends at a semicolon or at a line break, except inside brackets, after a token that cannot end a statement
(an operator, a comma, a colon, the dot of a quantifier, an axiom's header ...), or before a line that begins with a
token that cannot begin one (an operator, ``where``, a closing bracket ...). A line that begins with a declaration
always begins a statement, so that a forgotten bracket spoils no more than its own.

Tokens are made once for every spelling, so a long text costs one dictionary look-up a token. For error messages the
same text is read again, with positions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from doxa.errors import KnowledgeError
from doxa.logic.syntax._tree import Expr, Name, Number, Truth
from doxa.logic.syntax._words import DECLARATIONS, KIND, MEANING, QUOTED, SOFT_KIND, WORD, token_matches

# What a token does to the layout.
_PLAIN, _OPEN, _CLOSE, _NEWLINE, _STOP, _ASSIGN = range(6)
_ROLES = {"LPAR": _OPEN, "LSQB": _OPEN, "LBRACE": _OPEN, "RPAR": _CLOSE, "RSQB": _CLOSE, "RBRACE": _CLOSE}
_ROLES |= {"NEWLINE": _NEWLINE, "END": _STOP, "ASSIGN": _ASSIGN}

_OPERATORS = {"IFF", "ARROW", "IMPLIES", "XOR", "OR", "AND", "IN", "WHERE", "ASSIGN", "EQ", "COMPARE", "PLUS", "MINUS"}
_OPERATORS |= {"STAR", "DIV", "RANGE", "DOT", "COLON", "COMMA"}
_CANNOT_END = _OPERATORS | {"NOT", "FORALL", "EXISTS", "EXACTLY", "ATMOST", "ATLEAST", "SAMPLE", "FRESH", "AGGREGATE"}
_CANNOT_END |= {"COUNT", "ALLDIFFERENT"}
_CANNOT_END |= set(DECLARATIONS)
_CANNOT_BEGIN = _OPERATORS | {"RPAR", "RSQB", "RBRACE", "SAMPLE", "FIELD", "QUESTION"}


class Token:
    """A word of the language: the terminal it stands for (``kind``), what it means (``value``), and its place.

    Names, numbers and truth values carry their tree, operators the operator, fields the name.
    """

    __slots__ = ("declares", "end", "kind", "leads", "role", "start", "text", "trails", "value")

    def __init__(self, kind: str, value: object, text: str, start: int = -1, end: int = -1) -> None:
        self.kind = kind
        self.value = value
        self.text = text
        self.start = start
        self.end = end
        self.role = _ROLES.get(kind, _PLAIN)
        self.trails = kind in _CANNOT_END
        """Must something follow?"""
        self.leads = kind in _CANNOT_BEGIN
        """Must something have gone before?"""
        self.declares = kind in DECLARATIONS

    @classmethod
    def read(cls, text: str, share: Callable[[Expr], Expr], start: int = -1, end: int = -1) -> Token:
        """The token that a piece of text is; ``share`` is called on its tree."""
        if (kind := KIND.get(text)) is not None:
            meaning = MEANING.get(text, text)
            return cls(kind, share(Truth(meaning == "true")) if kind == "TRUTH" else meaning, text, start, end)
        first = text[:1]
        if WORD.match(text):
            if not text[-1].isspace():
                return cls("NAME", share(Name(text)), text, start, end)
            word = " ".join(text.split())
            return cls(SOFT_KIND[word], word, text, start, end - len(text) + len(text.rstrip()))
        if first == "\n":
            return cls("NEWLINE", None, text, start, end)
        if first == ";" or not first:
            return cls("END", None, text, start, end)
        try:
            if "0" <= first <= "9":
                return cls("NUMBER", share(Number(_number(text))), text, start, end)
            if QUOTED.fullmatch(text):
                return cls("NAME", share(Name(_unquote(text))), text, start, end)
            if first == "." and len(text) > 1:
                return cls("FIELD", _unquote(text[1:]) if text[1] == '"' else text[1:], text, start, end)
        except KnowledgeError as error:
            return cls("BAD", str(error), text, start, end)
        wrong = first if first == '"' else text
        return cls("BAD", None, wrong, start, start + len(wrong))


END = Token("END", None, "")
_HEADER_END = Token("COLON", None, "]")


class Vocabulary(dict[str, Token]):
    """Tokens by their text, made when first met; ``share`` is called on their trees."""

    def __init__(self, share: Callable[[Expr], Expr]) -> None:
        super().__init__()
        self.share = share

    def __missing__(self, text: str) -> Token:
        token = self[text] = Token.read(text, self.share)
        return token


def tokens(text: str, vocabulary: Vocabulary) -> Iterator[Token]:
    """The tokens of a text with the ends of its statements, without positions."""
    return layout(map(vocabulary.__getitem__, map(itemgetter(1), token_matches(text))))


def located_tokens(text: str) -> Iterator[Token]:
    """The tokens of a text with the ends of its statements, each a new object that knows where it stands."""
    return layout([Token.read(m[1], lambda node: node, m.start(1), m.end(1)) for m in token_matches(text)])


def layout(raw: Iterable[Token]) -> Iterator[Token]:
    """Leave line breaks out and put the ends of statements in."""
    depth = 0  # of brackets
    scope = 0  # at depth 0, how many "(" are still to come in x := f(...) (...)
    begun = newline = header = False
    defines = False  # is the next := that of a definition?
    last = END
    for token in raw:
        role = token.role
        if role == _NEWLINE:
            newline = True
            continue
        if newline:
            newline = False
            goes_on = depth > 0 or last.trails or token.leads or (scope == 1 and token.kind == "LPAR")
            if begun and (token.declares or not goes_on):
                yield END
                depth = scope = 0
                begun = header = False
        if role:
            if role == _OPEN:
                if depth == 0:
                    header = not begun and token.kind == "LSQB"
                    if scope and token.kind == "LPAR":
                        scope -= 1
                depth += 1
            elif role == _CLOSE:
                depth = max(depth - 1, 0)
                if header and depth == 0:
                    header = False
                    yield token
                    last = _HEADER_END
                    continue
            elif role == _ASSIGN:
                scope = 2 if depth == 0 and not defines else scope
                defines = False
            else:  # a semicolon or the end of the text
                if begun:
                    yield token
                depth = scope = 0
                begun = header = False
                continue
        defines = token.kind == "DEFINE" if not begun else defines
        yield token
        begun = True
        last = token


def _number(text: str) -> int | float:
    if text.isdigit():
        if len(text) > 19:
            raise KnowledgeError("an integer must fit into 64 bits; write a smaller one, or a decimal such as 1e30")
        return int(text)
    return float(text)


def _unquote(text: str) -> str:
    try:
        value = json.loads(text, strict=False)  # a tab may stand in a name
    except ValueError:
        message = 'this name cannot be read; in quotation marks, a backslash is written \\\\ and a quotation mark \\"'
        raise KnowledgeError(message) from None
    return str(value)
