"""Numbers and infinity: the least of nothing is ∞, the greatest -∞, and what arithmetic makes of them.

Whole numbers have no infinity of their own, so a number that no sum of others reaches stands for it. What has no
value, such as ∞ - ∞, is an error, as a quotient by 0 is (`doxa.logic.syntax._symbols.calculated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.bind._bindings import has_values
from doxa.logic.syntax._symbols import ARITHMETIC
from doxa.logic.syntax._tree import Expr
from doxa.logic.tensor._algebra import Monoid, State

INFINITE = 1 << 62
"""Stands for infinity among whole numbers."""


def infinity(like: Tensor) -> int | float:
    return float("inf") if like.dtype.is_floating_point else INFINITE


def is_infinite(x: Tensor) -> Tensor:
    return x.abs() == infinity(x)


def _signed(sign: Tensor, like: Tensor) -> Tensor:
    infinite = infinity(like)
    return torch.where(sign > 0, like.new_full((), infinite), like.new_full((), -infinite))


def _tensor(x: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64 if isinstance(x, float) else None, device=device)


def extended(op: str, one: Any, other: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """``+ - * // mod`` of numbers that may be infinite, and where there is no such value. No divisor is 0."""
    a, b = _tensor(one, device), _tensor(other, device)
    at_a, at_b = is_infinite(a), is_infinite(b)
    signs = a.sign(), -b.sign() if op == "-" else b.sign()
    if op in ("+", "-"):
        wrong = at_a & at_b & (signs[0] != signs[1])
        sign = torch.where(at_a, *signs)
    else:
        zero = (at_a & (b == 0)) | (at_b & (a == 0))
        wrong = zero if op == "*" else at_b if op == "//" else at_a | at_b
        sign = signs[0] * signs[1]
    finite = ARITHMETIC[op](torch.where(at_a, 1, a), torch.where(at_b, 1, b))
    return torch.where(at_a | at_b, _signed(sign, finite), finite), wrong


def refuse(node: Expr, wrong: Tensor) -> None:
    """Raise the error for arithmetic on infinity that has no value, if there is some."""
    if has_values(wrong) and bool(wrong.any()):
        raise KnowledgeError(
            f"{node} has no value in some instance: the min or max of nothing is infinite, and there is no inf - inf, "
            "0 * inf or inf mod 2; keep it away from there with a guard"
        )


def comparable(one: Any, other: Any) -> tuple[Any, Any]:
    """Two numbers whose infinities are the same."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one, other
    if one.dtype.is_floating_point == other.dtype.is_floating_point:
        return one, other
    a, b = [x if x.dtype.is_floating_point else _as_real(x) for x in (one, other)]
    return a, b


def _as_real(x: Tensor) -> Tensor:
    real = x.double()
    return torch.where(is_infinite(x), _signed(x, real), real)


# --- folds ----------------------------------------------------------------------------------------------------------


class Extreme:
    """The least or greatest number; of nothing, infinity."""

    idempotent = False
    counts = False

    def __init__(self, *, greatest: bool) -> None:
        self.greatest = greatest

    def _empty(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.new_full(tuple(shape), -infinity(x) if self.greatest else infinity(x))

    def lift(self, x: Tensor) -> State:
        return (x,)

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        (x,) = state
        if not dims:
            return state
        if any(x.shape[d] == 0 for d in dims):
            return (self._empty(x, [n for d, n in enumerate(x.shape) if d not in dims]),)
        return (x.amax(dims) if self.greatest else x.amin(dims),)

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        (x,) = state
        start = self._empty(x, [*x.shape[:dim], size, *x.shape[dim + 1 :]])
        index = ids.view([-1 if d == dim else 1 for d in range(x.ndim)]).expand(x.shape)
        return (start.scatter_reduce(dim, index, x, "amax" if self.greatest else "amin"),)

    def merge(self, a: State, b: State) -> State:
        return (torch.maximum(a[0], b[0]) if self.greatest else torch.minimum(a[0], b[0]),)

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        return state[0]


class Total:
    """The sum of numbers that may be infinite: that of the others, and whether there is ∞, and -∞."""

    idempotent = False
    counts = False

    def __init__(self, node: Expr) -> None:
        self.node = node
        self._folds = (Monoid("sum"), Monoid("any"), Monoid("any"))

    def lift(self, x: Tensor) -> State:
        infinite = is_infinite(x)
        return torch.where(infinite, 0, x), infinite & (x > 0), infinite & (x < 0)

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        return tuple([f.fold((x,), dims)[0] for f, x in zip(self._folds, state, strict=True)])

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        return tuple([f.segments((x,), dim, ids, size)[0] for f, x in zip(self._folds, state, strict=True)])

    def merge(self, a: State, b: State) -> State:
        return tuple([f.merge((x,), (y,))[0] for f, x, y in zip(self._folds, a, b, strict=True)])

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        total, above, below = state
        refuse(self.node, above & below)
        return torch.where(above | below, _signed(above.long() - below.long(), total), total)
