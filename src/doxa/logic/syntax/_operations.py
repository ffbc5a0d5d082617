"""Numbers: the operations on them, by the operator of the text language, and those that are written out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from doxa.logic.syntax._tree import Arith, Expr, Number

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "mod": operator.mod,
}
"""Division rounds down and ``mod`` has the sign of the divisor, as in Python. Zero divisors are the caller's matter."""
COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def literal(node: Expr) -> int | float | None:
    """The value of a number that is written out, perhaps with a minus sign; None for anything else."""
    sign = 1
    while type(node) is Arith and len(node.children) == 1:
        sign, node = -sign, node.children[0]
    return sign * node.value if isinstance(node, Number) else None
