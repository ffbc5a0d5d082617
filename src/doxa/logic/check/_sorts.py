"""What a term is: the sort rules of the language, apart from how trees are walked.

The *kind* of an expression is a :class:`~doxa.logic.Sort` for an object, ``Rows`` for a data row, ``Many`` for a field
that holds several objects per row, ``FORMULA`` for a formula, and None when nothing is known before data arrive; the
unknown fits everywhere. Range sorts, ``Int`` and ``Real`` are numbers and mix in arithmetic and comparisons. As
arguments, different range sorts do not mix (a row of a board is not a column), but a computed ``Int`` may be passed
where a range is wanted, since ``succ(d + 1)`` can only be judged with values.
"""

from __future__ import annotations

from dataclasses import dataclass

from doxa.logic.syntax._symbols import INT, REAL, Function, Predicate, Rows, RowSort, Sort
from doxa.logic.syntax._tree import Expr

FORMULA = Sort("formula")
NUMBER = Sort("number")
"""Arithmetic over unknown terms: some number, integer or real. Both marks are compared by identity."""

LARGE = 24  # expressions of more nodes are not quoted in messages


@dataclass(frozen=True)
class Many:
    """Several objects of a sort: the value of a field declared with ``*``."""

    sort: Sort


Kind = Sort | Rows | Many | None


def is_number(kind: Kind) -> bool:
    """Is it something to calculate with? (Unknown kinds are not known to be.)"""
    return isinstance(kind, Sort) and (kind is NUMBER or kind.is_integer)


def fits(kind: Kind, wanted: Sort) -> bool:
    """May a term of this kind stand where an argument of a sort is wanted?"""
    if kind is None or kind is wanted or kind == wanted:
        return True
    if isinstance(wanted, RowSort):
        return isinstance(kind, Rows) and kind.name == wanted.name
    if not isinstance(kind, Sort) or not is_number(kind) or not is_number(wanted):
        return False
    if kind is NUMBER:
        return True
    if kind == REAL:
        return False
    return kind == INT or wanted in (INT, REAL)


def comparable(left: Kind, right: Kind) -> bool:
    """May two terms be asked whether they are equal?"""
    if left is None or right is None:
        return True
    if isinstance(left, Many) or isinstance(right, Many):
        return False
    return left == right or (is_number(left) and is_number(right))


def calculated(kinds: list[Kind]) -> Sort:
    """The sort of arithmetic over numbers: real as soon as one of them is."""
    if any(k == REAL for k in kinds):
        return REAL
    return NUMBER if any(k is None or k is NUMBER for k in kinds) else INT


def describe(kind: Kind) -> str:
    """A kind in words: ``a Digit``, ``an Image``, ``a row of pairs``."""
    match kind:
        case Rows(name=name):
            return f"a row of {name}"
        case RowSort(name=name):
            return f"a row of {name}"
        case Many(sort=sort):
            return f"several objects of sort {sort.name}"
        case Sort(name=name):
            return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"
    return "something unknown"


def listing(symbol: Predicate | Function) -> str:
    """The argument sorts of a symbol: ``(Person, Person)``."""
    return f"({', '.join([s.name for s in symbol.sorts])})"


def shape(symbol: Predicate | Function) -> str:
    """How a symbol is written: ``friends(Person, Person)``, ``rain``, ``now()``."""
    return symbol.name if isinstance(symbol, Predicate) and not symbol.sorts else symbol.name + listing(symbol)


def plain(node: Expr, otherwise: str) -> str:
    """The text of a small expression, and other words for a large one."""
    stack, seen = [node], 0
    while stack:
        seen += 1
        if seen > LARGE or len(stack[-1].children) > LARGE:
            return otherwise
        stack += stack.pop().children
    return str(node)


def show(node: Expr) -> str:
    """An expression inside a message."""
    text = plain(node, "")
    return f"`{text}`" if text else "this expression"
