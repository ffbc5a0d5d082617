"""Arithmetic and comparison of numbers, by the operator of the text language."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

__all__ = ["ARITHMETIC", "COMPARISON"]

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
