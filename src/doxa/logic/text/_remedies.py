"""Syntax errors in plain words: what came, and what to write instead."""

from __future__ import annotations

from typing import NamedTuple

from doxa.logic.syntax._diagnostics import nearest
from doxa.logic.syntax._words import RESERVED, SYMBOLS
from doxa.logic.text._lexer import Token

Said = tuple[Token, str, str]
"""Which token to point at, what is wrong, and what to do."""

_PAIRS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_QUANTIFIERS = ("FORALL", "EXISTS", "EXACTLY", "ATMOST", "ATLEAST", "AGGREGATE", "ALLDIFFERENT")
_COMPARISONS = ("EQ", "COMPARE")
_CONNECTIVES = ("IFF", "ARROW", "IMPLIES", "XOR", "OR", "AND")

_FOREIGN = {
    "==": "equality is written =, equivalence <->",
    "===": "equality is written =, equivalence <->",
    "&&": "'and' is written & (or and, ∧)",
    "||": "'or' is written | (or or, ∨)",
    "**": "there are no powers; products are written with *",
    "<>": "'not equal' is written !=",
    "%": "the remainder is written mod",
    "/": "integer division is written //",
    "^": "'and' is written &, exclusive or is written xor; there are no powers",
    "'": 'names in quotation marks have double ones: "New York"',
    '"': 'the quotation mark is not closed on this line: "New York"',
    "\\": "symbols are written as such (∀, ∧, →) or in ASCII (forall, &, ->)",
}
"""Operators and characters of other languages."""

_KEYWORDS = {
    written: keyword
    for keyword, spellings in {
        "pred": "predicate relation",
        "func": "function fun",
        "const": "constant",
        "sort": "type enum",
        "include": "import",
        "define": "def definition rule",
        "forall": "for all every",
        "exists": "any some exist",
    }.items()
    for written in spellings.split()
}
"""What people write for a keyword."""

_DECLARING = ("sort", "const", "pred", "func", "data", "fact", "facts", "include", "define")
_WORDS = ("forall", "exists", "not", *_DECLARING, "fresh")
_INFIX = ("and", "or", "xor", "implies", "iff", "mod", "in", "where", "sample")

_NAMES = {"NAME": "a name", "NUMBER": "a number", "END": "the end of the statement", "FIELD": "a field", "DOT": "'. '"}
_NAMES |= {
    kind: f"'{SYMBOLS[kind][0]}'"
    for kind in ("COLON", "COMMA", "ARROW", "ASSIGN", "EQ", "RANGE", "LPAR", "RPAR", "LSQB", "RSQB", "LBRACE", "RBRACE")
}
_NAMES |= {"WHERE": "'where'", "IN": "'in'", "QUESTION": "'?'", "STAR": "'*'", "SAMPLE": "'sample'"}


_SHAPES = {
    "SORT": "a sort is sort Name, sort Name = 0..9, or sort Name = {one, two}",
    "CONST": "a constant has a sort: const name: Sort",
    "PRED": "a predicate lists its sorts: pred name(Sort, Sort)",
    "CLOSED": "a predicate lists its sorts: closed pred name(Sort, Sort)",
    "FUNC": "a function has a result: func name(Sort) -> Sort",
    "DATA": "data rows list their fields with sorts: data name(field: Sort, other: Sort*)",
    "FACTS": 'facts come from a file: facts name from "file.csv"',
    "DEFINE": "a definition lists its parameters with their sorts: define name(x: Sort, y: Sort) := ...",
    "INCLUDE": 'a file name stands in quotation marks: include "other.doxa"',
}
"""How declarations are written."""


class _Place(NamedTuple):
    """What the tokens before the wrong one have opened."""

    brackets: list[Token]
    quantifier: Token | None
    """The quantifier whose variables are being listed."""
    guarded: bool
    """Has its ``where`` come?"""


def _survey(tokens: list[Token]) -> _Place:
    brackets: list[Token] = []
    quantifiers: list[tuple[Token, int, bool]] = []
    for token in tokens:
        if token.kind in _PAIRS:
            brackets.append(token)
        elif token.kind in _PAIRS.values() and brackets:
            brackets.pop()
            while quantifiers and quantifiers[-1][1] > len(brackets):
                quantifiers.pop()
        elif token.kind in _QUANTIFIERS:
            quantifiers.append((token, len(brackets), False))
        elif token.kind == "WHERE" and quantifiers:
            quantifiers[-1] = (*quantifiers[-1][:2], True)
        elif token.kind == "DOT" and quantifiers:
            quantifiers.pop()
    if not quantifiers:
        return _Place(brackets, None, False)
    return _Place(brackets, quantifiers[-1][0], quantifiers[-1][2])


def explain(tokens: list[Token], index: int, expected: set[str]) -> Said:
    """What to say about the wrong token of a statement: which token to point at, what is wrong, and what to do.

    ``expected`` are the terminals that could have come instead.
    """
    token = tokens[index]
    before = tokens[:index]
    last = before[-1] if before else None
    place = _survey(before)
    if token.kind == "BAD":
        return _bad(token)
    found = (
        _negative_count(tokens, index)
        or _header(tokens, token, last)
        or _closed(tokens, index)
        or _weighted_fact(tokens, token)
        or _layout(token, last, place)
        or _declaration(tokens, token, last, expected)
        or _variables(token, last, place)
        or _words(token, last, place, expected)
        or _operands(before, token, last, place, expected)
    )
    if found is not None:
        return found
    what = "the statement ends too early" if token.kind == "END" else f"'{_shown(token)}' cannot stand here"
    return token, what, _wanted(expected)


def _bad(token: Token) -> Said:
    if isinstance(token.value, str):  # what the lexer could not read, such as a number that is too large
        what, _, remedy = token.value.partition("; ")
        return token, what, remedy or "write it differently"
    remedy = _FOREIGN.get(token.text, "names are made of letters, digits and _; other names stand in quotation marks")
    shown = token.text if token.text.isprintable() else f"U+{ord(token.text[0]):04X}"
    return token, f"'{shown}' has no meaning here", remedy


def _layout(token: Token, last: Token | None, place: _Place) -> Said | None:
    """Brackets that do not match, and statements that never end."""
    closes = token.kind in _PAIRS.values()
    if closes and not place.brackets:
        return token, f"'{token.text}' closes a bracket that was never opened", "leave it out, or open the bracket"
    if closes and _PAIRS[place.brackets[-1].kind] != token.kind:
        opened = place.brackets[-1]
        remedy = f"close it with {_NAMES[_PAIRS[opened.kind]]} first"
        return token, f"'{opened.text}' is closed by '{token.text}'", remedy
    ended = token.kind == "END" or token.declares
    if ended and place.brackets:
        opened = place.brackets[-1]
        return opened, f"'{opened.text}' is never closed", f"close it with {_NAMES[_PAIRS[opened.kind]]}"
    if token.declares and last is not None:
        word = token.text.strip()
        return token, f"'{word}' begins a new statement, but the one before it is not complete", "complete it first"
    return None


def _header(tokens: list[Token], token: Token, last: Token | None) -> Said | None:
    """``[name, weight 0.5]``."""
    if tokens[0].kind != "LSQB" or last is None:
        return None
    if last is tokens[0] and token.text in RESERVED:
        return _reserved(token)
    weight = [t.kind for t in tokens[:4]] == ["LSQB", "NAME", "COMMA", "NAME"] and tokens[3].text == "weight"
    if weight and last is tokens[3] and (token.kind in ("NAME", "DOT", "RSQB") or token.text in RESERVED):
        return token, f"a weight is a number, such as 0.5, got '{token.text}'", "write [name, weight 0.5], or weight ?"
    closed = [t for t in tokens if t.kind == "RSQB"]
    if not closed:
        return tokens[0], "'[' is never closed", "write [name] and then the formula"
    if last is closed[0] and token.kind in ("COLON", "DOT"):
        return token, f"'{token.text}' does not belong after an axiom's name", "write [name] and then the formula"
    if last is closed[0] and token.kind == "FACT":
        return token, "the weight of a fact stands after 'fact'", "write fact [weight 0.5] p(a)"
    if last is closed[0] and token.declares:
        return token, "only axioms have a name in brackets", "leave the brackets out"
    if closed[0].start < token.start:
        return None
    if last.kind in ("MINUS", "FIELD") or token.kind in ("MINUS", "FIELD"):
        return token, "this name of an axiom is not an identifier", 'put it in quotation marks: ["my-name"]'
    if last.kind == "NAME" and token.text == "weight":
        return token, "a comma is missing before 'weight'", "write [name, weight 0.5]"
    if last.kind == "NAME" and token.kind == "NAME":
        return token, "a name of several words stands in quotation marks", 'write ["my name"]'
    if last.text == "weight" and token.kind in ("COLON", "EQ"):
        return token, f"there is no '{token.text}' after 'weight'", "write weight 0.5, or weight ? for a learned one"
    return token, f"'{_shown(token)}' cannot stand in the header of an axiom", "write [name], or [name, weight 0.5]"


def _negative_count(tokens: list[Token], index: int) -> Said | None:
    """A count below 0: where no number follows it, ``exactly`` is a name, from which something could be subtracted."""
    for at in range(max(index - 3, 0), index + 1):
        kinds, words = [t.kind for t in tokens[at : at + 5]], 1 if tokens[at].text == "exactly" else 2
        said = " ".join([t.text for t in tokens[at : at + words]])
        exists = kinds[0] == "EXISTS" and kinds[1] in _COMPARISONS
        below_0 = ["MINUS", "NUMBER"] if exists else ["MINUS", "NUMBER", "NAME"]
        if (exists or said in ("exactly", "at most", "at least")) and kinds[words : words + len(below_0)] == below_0:
            minus, number = tokens[at + words : at + words + 2]
            count = Token("BAD", None, f"-{number.text}", minus.start, number.end)
            message = f"the count must be a whole number of at least 0, got {count.text}"
            return count, message, f"write {said} 1 x: Sort. ..."
    return None


def _closed(tokens: list[Token], index: int) -> Said | None:
    """``closed`` before something else than ``pred``."""
    token = tokens[index]
    if index == 0 or tokens[index - 1].text != "closed" or not (token.declares or token.kind == "NAME"):
        return None
    if token.text == "pred" and tokens[index + 1].text in RESERVED:
        return _reserved(tokens[index + 1])
    if token.declares and token.kind != "PRED":
        return token, "only predicates are declared closed", "leave 'closed' out"
    return token, "'closed' stands before 'pred' and a name", "write closed pred name(Sort, Sort)"


def _weighted_fact(tokens: list[Token], token: Token) -> Said | None:
    """``fact [weight ...] p(a)`` that was not recognised."""
    if [t.text.strip() for t in tokens[:3]] != ["fact", "[", "weight"]:
        return None
    return token, "this is no weight of a fact", "write fact [weight 0.5] and then the atom, on the same line"


def _definition(tokens: list[Token], token: Token, last: Token | None, expected: set[str]) -> Said | None:
    """The head of a definition."""
    head = [t.kind for t in tokens[: tokens.index(token)]]
    if last is None or tokens[0].kind != "DEFINE" or "ASSIGN" in head:
        return None
    if token.kind in ("EQ", "IFF", "IMPLIES", "COLON") and "ASSIGN" in expected:
        return token, f"a definition is written with ':=', not '{token.text}'", _SHAPES["DEFINE"]
    if token.kind in ("COMMA", "RPAR") and last.kind == "NAME":
        return token, f"nothing says what the parameter {last.text} ranges over", _SHAPES["DEFINE"]
    if token.kind == "END" and "ASSIGN" in expected:
        return token, "this definition does not say what is defined", _SHAPES["DEFINE"]
    return None


def _declaration(tokens: list[Token], token: Token, last: Token | None, expected: set[str]) -> Said | None:
    kind = tokens[0].kind
    if last is None or kind not in _SHAPES:
        return None
    if kind == "DEFINE":
        return _definition(tokens, token, last, expected)
    if token.text in RESERVED and "NAME" in expected:
        return _reserved(token)
    if token.kind == "END":
        return token, "this declaration is not complete", _SHAPES[kind]
    if kind == "PRED" and last.text == "closed":
        return token, "'closed' stands before 'pred'", "write closed pred name(Sort, Sort)"
    if kind in ("PRED", "CLOSED") and token.kind == "COLON":
        return token, "the arguments of a predicate have no names", "list the sorts only: pred name(Sort, Sort)"
    if kind in ("PRED", "CLOSED") and token.kind == "ARROW":
        return token, "a predicate has no result", "leave it out, or declare a function: func name(Sort) -> Sort"
    if kind == "FUNC" and token.kind == "COLON" and "ARROW" in expected:
        return token, "the result of a function stands after an arrow", _SHAPES[kind]
    if kind == "FUNC" and token.kind == "COLON":
        return token, "the arguments of a function have no names", "list the sorts only: func name(Sort) -> Sort"
    if kind == "SORT" and token.kind in ("MINUS", "DOT") and ("RANGE" in expected or last.kind == "RANGE"):
        return token, f"a range is not written with '{token.text}'", "write two dots: sort Digit = 0..9"
    if kind == "SORT" and token.kind == "NAME" and last.kind == "EQ":
        return token, "values are listed in braces", "write sort Colour = {red, green}"
    if kind == "SORT" and token.kind == "NUMBER" and last.kind in ("LBRACE", "COMMA"):
        remedy = 'write sort Digit = 0..9; names such as "1" stand in quotation marks'
        return token, "integers are given as a range", remedy
    return token, f"'{_shown(token)}' cannot stand here", _SHAPES[kind]


def _variables(token: Token, last: Token | None, place: _Place) -> Said | None:
    """The list of variables between a quantifier and its dot."""
    quantifier = place.quantifier
    if last is None or quantifier is None:
        return None
    word = quantifier.text.strip()
    field = token if token.kind == "FIELD" else last
    if field.kind == "FIELD" and (token.kind == "LPAR" or not place.guarded):
        apart = f"put a space after the dot of a quantifier: '. {field.text[1:]}'"
        return field, f"'{field.text}' is read as a field", apart
    if place.guarded and token.kind not in ("COLON", "NAME", "END"):
        return None
    dot = f"end the variables of '{word}' with a dot and a space: {word} x: Sort. ..."
    if place.guarded:
        return token, f"the dot that ends '{word} ... where ...' is missing before '{_shown(token)}'", dot
    if token.kind == "LPAR" and last is quantifier:
        return token, "variables are not put in parentheses", f"write {word} x, y: Sort. ..."
    if token.kind == "DOT" and last.kind == "NAME":
        remedy = f"give it a sort or rows: {word} {last.text}: Sort. ..."
        return token, f"nothing says what {last.text} ranges over", remedy
    if token.kind in ("COMPARE", "EQ") and last.kind == "NAME":
        remedy = f"write {word} x: Sort where x {token.text} ..."
        return token, "a condition on the variables comes after 'where'", remedy
    if token.text == "sample":
        return token, "'sample' is followed by a positive number", "write sample 64"
    if token.kind == "NUMBER" and last is quantifier:
        many = f"exactly {token.text}, at least {token.text} or at most {token.text}"
        return token, f"'{word}' takes no number", f"write {many}"
    if token.text in RESERVED and last.kind in (*_QUANTIFIERS, "COMMA"):
        return _reserved(token)
    if token.kind == "NAME" and last.kind == "NAME":
        return token, f"a dot is missing before '{_shown(token)}'", dot
    what = "the statement ends" if token.kind == "END" else f"'{_shown(token)}' comes"
    return token, f"{what} before the variables of '{word}' are complete", dot


def _words(token: Token, last: Token | None, place: _Place, expected: set[str]) -> Said | None:
    """Two names side by side: one of them is probably meant as a keyword."""
    if token.text in RESERVED and last is not None and last.text in _DECLARING and last.text != "fact":
        return _reserved(token)
    if token.kind in ("IN", "WHERE"):
        return token, f"'{token.text}' belongs to a quantifier", "write forall x in rows. ..., forall x: Sort where ..."
    if last is None or last.kind not in ("NAME", "NUMBER", "RPAR", "RSQB", "FIELD", "TRUTH"):
        return None
    if token.kind not in ("NAME", "NUMBER", "TRUTH", *_QUANTIFIERS, "NOT", "FRESH"):
        return None
    if last.text == "include":
        return token, "a file name stands in quotation marks", 'write include "other.doxa"'
    if last.text == "fact":
        return token, "a fact is an atom or its negation", "write fact parent(alice, bob) or fact !parent(alice, bob)"
    if last.text in ("exactly", "most", "least"):
        return token, f"'{last.text}' is followed by a number", "write exactly 1 x: Sort. ..., or at most 2, at least 3"
    for word in [w for w in (last, token) if w.kind == "NAME"]:
        if word.text in ("if", "then"):
            return word, f"there is no '{word.text}'", "an implication is written a -> b"
        if word.text == "axiom":
            return word, "there is no keyword 'axiom'", "write the formula alone, or [name] and then the formula"
        infix = word is token
        known = None if infix else _KEYWORDS.get(word.text.lower())
        meant = known or nearest(word.text, _INFIX if infix else _WORDS)
        if meant is not None and not word.text.startswith('"'):
            return word, f"'{word.text}' is a name, and no name can stand here", f"did you mean '{meant}'?"
    what = f"'{_shown(last)}' and '{_shown(token)}' stand side by side"
    return token, what, "put an operator such as &, |, -> or = between them, or begin a new line"


def _operands(before: list[Token], token: Token, last: Token | None, place: _Place, expected: set[str]) -> Said | None:
    """Operators that lack an operand or do not go together."""
    if token.kind in _COMPARISONS and "AND" in expected:
        return token, "comparisons do not chain", "join two of them with &: a < b & b < c"
    if token.kind == "RPAR" and last is not None and last.kind == "LPAR":
        return token, "there is nothing between the parentheses", "put a formula or a term between them"
    if token.kind == "COMMA" and not place.brackets:
        return token, "a comma separates arguments and variables only", "join formulas with &"
    if token.kind == "ASSIGN":
        return token, "':=' comes after a name and before a function", "write d := digit(x) (...)"
    if expected == {"NAME", "FRESH"}:
        return token, "':=' names the value of a function", "write d := digit(x) (...)"
    if expected <= {"LPAR", "COMMA"} and any(t.kind == "ASSIGN" for t in before):
        return token, "the scope of ':=' is missing", "put it in parentheses: d := digit(x) (...)"
    if token.kind == "NOT" or token.kind in _QUANTIFIERS:
        return token, f"'{_shown(token)}' cannot stand in a term", "put the formula in parentheses"
    if token.kind == "DOT" and any(t.kind == "COUNT" for t in before):
        return token, "'count' has no body", "say what is counted with a guard: count x: Sort where red(x)"
    if token.kind == "DOT":
        remedy = "leave it out; decimals begin with a digit: 0.5"
        return token, "there is no quantifier that this dot belongs to", remedy
    if token.kind == "COLON" and last is not None:
        return token, "a colon stands after variables and before their sort", "write forall x: Sort. ..., or b -> a"
    if token.kind == "LPAR" and last is not None and last.kind in ("FIELD", "RPAR", "RSQB", "NUMBER", "TRUTH"):
        return token, f"'{_shown(last)}' cannot be applied to arguments", "only names of predicates and functions can"
    if token.kind == "RANGE":
        return token, "a range can only stand in the declaration of a sort", "write sort Digit = 0..9"
    if token.kind in (*_CONNECTIVES, *_COMPARISONS, "PLUS", "STAR", "DIV") and "NAME" in expected:
        return token, f"something is missing before '{_shown(token)}'", _wanted(expected)
    if token.kind in ("END", "LSQB") and "NAME" in expected and last is not None:
        return token, f"something is missing after '{_shown(last)}'", _wanted(expected)
    return None


def _reserved(token: Token) -> Said:
    return token, f"'{token.text}' is a reserved word", f'as a name it stands in quotation marks: "{token.text}"'


def _shown(token: Token) -> str:
    text = token.text.strip()
    return text if len(text) <= 40 else text[:37] + "..."


def _wanted(expected: set[str]) -> str:
    """The expected terminals in words."""
    wanted: list[str] = []
    if {"NAME", "NUMBER", "LPAR"} <= expected:
        wanted.append("a formula or a term")
        expected = expected - {"NAME", "NUMBER", "LPAR", "LSQB"}
    elif {"AND", "ARROW"} <= expected or {"PLUS", "STAR"} <= expected:
        wanted.append("an operator")
        expected = expected - {"LSQB", "FIELD", "STAR", "EQ", "ARROW"}
    wanted += [_NAMES[kind] for kind in _NAMES if kind in expected]
    return f"wanted here: {' or '.join(wanted[:5])}" if wanted else "write it differently"
