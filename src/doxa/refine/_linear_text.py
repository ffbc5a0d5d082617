"""Linear knowledge from text: the knowledge language, with chained comparisons and division by numbers besides.

Statements are read by the lexer and the grammar of `doxa.logic`. Two things are put into its words before: a chain
``0 <= x <= 1`` becomes ``0 <= x & x <= 1``, and ``/``, which has no meaning for whole numbers, divides here. What comes
out is rows: exact rational coefficients over names, a bound, and a guard over labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import gcd, lcm

from doxa.logic import And, Arith, Call, Compare, Expr, Iff, Implies, Name, Not, Number, Or, Truth, Xor
from doxa.logic.syntax._diagnostics import Diagnostic, raise_all
from doxa.logic.syntax._kb import Axiom
from doxa.logic.syntax._simplify import formulas
from doxa.logic.syntax._tree import fold
from doxa.logic.text._builder import LocatedBuilder, Mistaken
from doxa.logic.text._grammar import Unexpected, run, table
from doxa.logic.text._lexer import Token
from doxa.logic.text._source import Source

_JOINTS = frozenset(["AND", "OR", "NOT", "ARROW", "IMPLIES", "IFF", "XOR", "END"])
_OPEN, _CLOSE = frozenset(["LPAR", "LSQB", "LBRACE"]), frozenset(["RPAR", "RSQB", "RBRACE"])
_WHOLE = 2**53
"""Up to here every whole number is a float64."""


@dataclass(frozen=True)
class Row:
    """``Σ coefficients·names <= bound``, or ``=``, wherever the guard holds."""

    coefficients: dict[str, Fraction]
    bound: Fraction
    equality: bool
    guard: Expr | None
    text: str

    def whole(self) -> tuple[dict[str, float], float]:
        """The coefficients and the bound as floats: times a whole number where that makes all of them exact."""
        parts = [*self.coefficients.values(), self.bound]
        scale = Fraction(1)
        if any(Fraction(float(p)) != p for p in parts):
            whole = lcm(*[p.denominator for p in parts])
            shared = gcd(*[(p * whole).numerator for p in parts]) or 1
            if all(abs(p * whole / shared) <= _WHOLE for p in parts):
                scale = Fraction(whole, shared)
        return {name: float(c * scale) for name, c in self.coefficients.items()}, float(self.bound * scale)


@dataclass
class _Form:
    """An affine term."""

    constant: Fraction = Fraction(0)
    terms: dict[str, Fraction] = field(default_factory=dict)

    def plus(self, other: _Form, times: Fraction) -> _Form:
        terms = dict(self.terms)
        for name, c in other.terms.items():
            terms[name] = terms.get(name, Fraction(0)) + times * c
        return _Form(self.constant + times * other.constant, terms)


class _Wrong(Exception):
    """A part of a formula that linear knowledge cannot have."""

    def __init__(self, node: Expr, message: str, remedy: str) -> None:  # {} in the message: the part as it is written
        super().__init__(message)
        self.node, self.message, self.remedy = node, message, remedy


def read(text: str) -> list[Row]:
    """The rows of a text; one error holds everything that is wrong in it, with its place.

    >>> [(row.text, row.equality) for row in read("0 <= share <= 1   # a part")]
    [('0 <= share', False), ('share <= 1', False)]
    """
    source, rows, wrong = Source(text), list[Row](), list[Diagnostic]()
    for number, tokens in enumerate(source.statements):
        if (sign := _ambiguous(text, tokens)) is not None:
            message = f"a line that begins with {sign.text} goes on with the comparison before it, or is a new one"
            remedy = "end the line before with ; or put both on one line"
            wrong.append(Diagnostic("error", message, remedy, source.span(sign.start, sign.end)))
            continue
        source.statements[number] = own = _rewritten(tokens)
        builder = LocatedBuilder()
        try:
            run(table(), own, builder, placed=True)
        except (Unexpected, Mistaken):
            wrong.append(source.diagnose(number))
            continue
        item = builder.items[0]

        if not isinstance(item, Axiom) or item.weight != 1 or item.learnable:
            message = "a weighted rule cannot be guaranteed" if isinstance(item, Axiom) else "this is not a comparison"
            remedy = "write comparisons of linear terms, such as total = a + b; names need no declaration"
            wrong.append(Diagnostic("error", message, remedy, source.statement(number)))
            continue
        try:
            rows += _rows(item, partial(_spelled, source, builder.spans))
        except _Wrong as error:
            place = builder.spans.get(id(error.node))
            shown = source.statement(number) if place is None else source.span(*place)
            message = error.message.format(_spelled(source, builder.spans, error.node))
            wrong.append(Diagnostic("error", message, error.remedy, shown))
    raise_all(wrong)
    return rows


def _ambiguous(text: str, tokens: list[Token]) -> Token | None:
    """A sign at the beginning of a line, outside brackets, where a comparison could have ended before."""
    depth, compared = 0, False
    for before, token in pairwise(tokens):
        depth += (before.kind in _OPEN) - (before.kind in _CLOSE)
        compared = compared or before.kind in ("COMPARE", "EQ")
        if not depth and compared and token.text in ("+", "-") and "\n" in text[before.end : token.start]:
            return token
    return None


def _spelled(source: Source, spans: dict[int, tuple[int, int]], node: Expr) -> str:
    """A part of a formula as it stands in the text, on one line."""
    start, end = spans.get(id(node), (0, 0))
    lines = [line.partition("#")[0] for line in source.text[start:end].split("\n")]
    return " ".join(" ".join(lines).split()) or str(node)


def _rewritten(tokens: list[Token]) -> list[Token]:
    """The words of a statement with chains of comparisons written out and ``/`` as an operator."""
    frames = [_Frame()]
    for token in tokens:
        top = frames[-1]
        if token.kind == "BAD" and token.text == "/":
            token = Token("DIV", "/", "/", token.start, token.end)
        if token.kind in _OPEN:
            frames.append(_Frame(token))
        elif token.kind in _CLOSE and len(frames) > 1:
            inner = frames.pop().closed()
            frames[-1].operands[-1] += [*inner, token]
        elif token.kind in ("COMPARE", "EQ"):
            top.signs.append(token)
            top.operands.append([])
        elif token.kind in _JOINTS:
            while token.kind == "END" and len(frames) > 1:  # a bracket that is never closed
                inner = frames.pop().closed()
                frames[-1].operands[-1] += inner
            frames[-1].done = [*frames[-1].flushed(), token]
        else:
            top.operands[-1].append(token)
    return frames[0].closed()


class _Frame:
    """What stands inside one pair of brackets: finished words, and a chain of operands and signs."""

    def __init__(self, opening: Token | None = None) -> None:
        self.done: list[Token] = [] if opening is None else [opening]
        self.operands: list[list[Token]] = [[]]
        self.signs: list[Token] = []

    def flushed(self) -> list[Token]:
        written = list(self.operands[0])
        for i, sign in enumerate(self.signs):
            if i:
                written += [Token("AND", "&", "&", sign.start, sign.end), *self.operands[i]]
            written += [sign, *self.operands[i + 1]]
        self.done += written
        self.operands, self.signs = [[]], []
        return self.done

    closed = flushed


# -- formulas to rows --------------------------------------------------------------------------------------------------


def _rows(axiom: Axiom, spelled: Callable[[Expr], str]) -> Iterator[Row]:
    """The rows of a statement: comparisons, joined by ``&`` and guarded by ``->``."""
    header = f"[{axiom.name}] " if axiom.named else ""
    todo: list[tuple[Expr, Expr | None]] = [(axiom.formula, None)]
    while todo:
        node, guard = todo.pop(0)
        match node:
            case And():
                todo[:0] = [(child, guard) for child in node.children]
            case Implies():
                left, right = node.children
                _check_guard(left)
                todo.insert(0, (right, left if guard is None else And(guard, left)))
            case Compare():
                before = header if guard is None else f"{header}{guard} -> "
                yield Row(*_row(node), guard, before + spelled(node))
            case Or() | Not() | Xor() | Iff():
                remedy = "join comparisons with &, and guard them with labels: label -> a <= b"
                raise _Wrong(node, "`{}` does not say which comparisons hold", remedy)
            case Truth():
                before = header if guard is None else f"{header}{guard} -> "
                yield Row({}, Fraction(0 if node.value else -1), False, guard, before + str(node))
            case _:
                remedy = "a comparison is wanted here; labels stand before ->: label -> a <= b"
                raise _Wrong(node, "`{}` is not a comparison", remedy)


def _row(node: Compare) -> tuple[dict[str, Fraction], Fraction, bool]:
    if node.op in ("<", ">", "!="):
        closest = {"<": "<=", ">": ">=", "!=": "<= or >="}[node.op]
        message = f"there is no nearest point with {node.op}: one can always come a little nearer"
        raise _Wrong(node, message, f"write {closest}, with a margin if equality must not be: a + 0.01 <= b")
    left, right = (fold(_affine, side) for side in node.children)
    difference = right.plus(left, Fraction(-1)) if node.op == ">=" else left.plus(right, Fraction(-1))
    coefficients = {name: c for name, c in difference.terms.items() if c}
    return coefficients, -difference.constant, node.op == "="


def _affine(node: Expr, below: tuple[_Form, ...]) -> _Form:
    match node:
        case Name():
            return _Form(terms={node.name: Fraction(1)})
        case Number():
            return _Form(Fraction(str(node.value)))
        case Arith(op="+"):
            return below[0].plus(below[1], Fraction(1))
        case Arith(op="-"):
            return below[0].plus(below[1], Fraction(-1)) if len(below) == 2 else _Form().plus(below[0], Fraction(-1))
        case Arith(op="*") if not (below[0].terms and below[1].terms):
            number, other = (below[1], below[0]) if below[0].terms else below
            return _Form().plus(other, number.constant)
        case Arith(op="/") if not below[1].terms and below[1].constant:
            return _Form().plus(below[0], 1 / below[1].constant)
        case Arith(op="/") if not below[1].terms:
            raise _Wrong(node, "this divides by 0", "divide by another number")
    remedy = "a linear term has names, numbers, + and -, and * and / by numbers"
    raise _Wrong(node, "`{}` is not linear", remedy)


def _check_guard(guard: Expr) -> None:
    for node in formulas(guard):
        if not (isinstance(node, And | Or | Not | Implies | Iff | Xor | Truth) or _label(node)):
            remedy = "before -> stand labels, which are known for each row, joined by & | ! -> <-> and xor"
            raise _Wrong(node, "`{}` is not a label", remedy)


def _label(node: Expr) -> bool:
    return isinstance(node, Call) and not node.children and not node.fresh
