"""Algebras: what truth values are, what connectives do, and how a quantifier folds an axis.

A fold can be done in pieces. The mean p-error 1 - (1/n sum (1 - v)^p)^(1/p) lifts (1 - v)^p, folds by +, finishes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import log
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from doxa.logic.syntax._tree import Expr

Kind = Literal["bool", "prob", "logit", "log_prob"]
State = tuple[Tensor, ...]


class Accumulator(Protocol):
    """How a quantifier folds truth values; the tensors of a state may have further axes behind those of the frame."""

    @property
    def idempotent(self) -> bool:
        """Does folding equal values give that value, so that an axis a formula does not mention can be left out?"""

    @property
    def counts(self) -> bool:
        """Does ``finish`` look at the number of instances?"""

    def lift(self, x: Tensor) -> State:
        """The state of each single instance."""

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        """Fold over axes, which disappear."""

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        """Fold an axis onto ``size`` places: entry i goes to place ``ids[i]``."""

    def merge(self, a: State, b: State) -> State:
        """Two states of disjoint instances as one."""

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        """The truth value of the quantifier over ``count`` instances."""


class Powers(Protocol):
    """A quantifier whose state is a sum of powers f^p, done factor by factor: (f g)^p = f^p g^p.

    A ∀ that measures falsity so gets it from the factors, and nothing is taken from 1 twice.
    """

    @property
    def of_truth(self) -> bool:
        """Is f the truth v of an instance, or its falsity 1 - v?"""

    @property
    def contracts(self) -> bool:
        """May factors be contracted, without a tensor of all instances?"""

    @property
    def scaled(self) -> bool:
        """Are factors divided by something first? Then contracting costs more, and there must be more than one."""

    def of_factor(self, factor: Tensor) -> Tensor:
        """What stands for a factor in the state of an instance, which is the product of these."""

    def lift(self, factor: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        """The powers of a factor, and what it was divided by before, one number for all places along ``dims``."""

    def state(self, total: Tensor, scales: Sequence[Tensor]) -> State:
        """The state of the quantifier, from the sum of products of powers and the scales of the factors."""


class OuterFold(NamedTuple):
    """How a quantifier that a formula begins with is folded."""

    alone: bool
    """Is it folded by itself, or together with the quantifiers of its kind that follow at once?"""
    is_log: bool | None
    """Is its value a logarithm? None if it is what the values of the instances are."""
    fold: Callable[[bool], Accumulator]
    """The fold, given whether the values of the instances are logarithms."""
    powers: Powers | None


class Algebra(Protocol):
    """Truth values, connectives and quantifiers. Tensors broadcast; lists are not empty."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def statements(self) -> Literal["mode", "axis"]:
        """``x := f(t) (phi)``: take the most probable value, or let phi range over all values (see :meth:`draw`)."""

    @property
    def associative(self) -> bool:
        """May ``and_`` and ``or_`` of many formulas be done in groups? If not, they get all of them at once."""

    def atom(self, raw: Tensor, kind: Kind, dtype: torch.dtype) -> Tensor:
        """What a network, tensor or table says, as truth values; bools become ``dtype`` where these are numbers."""

    def not_(self, x: Tensor) -> Tensor: ...

    def and_(self, xs: Sequence[Tensor]) -> Tensor: ...

    def or_(self, xs: Sequence[Tensor]) -> Tensor: ...

    def implies(self, a: Tensor, b: Tensor) -> Tensor: ...

    def iff(self, a: Tensor, b: Tensor) -> Tensor: ...

    def xor(self, a: Tensor, b: Tensor) -> Tensor: ...

    def connective(self, kind: Literal["and", "or"]) -> Accumulator:
        """Conjunction or disjunction of very many formulas, as a fold."""

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        """``forall``, ``exists``, ``exactly``, ``at most``, ``at least`` (the last three with a number)."""

    def draw(self) -> Accumulator:
        """Folds and_([p(d), phi(d)]) over the values d of statements, when these are ``axis``."""
        return self.quantifier("exists", None)

    def factors(self, node: Expr, truth: bool) -> list[tuple[Expr, bool]] | None:
        """The formulas whose truth (True) or falsity (False) multiply to the truth or falsity of this one, or None."""
        return None

    def powers(self, kind: str, count: int | None) -> Powers | None:
        """A quantifier as a sum of powers, or None."""
        return None

    @property
    def connectives_are_log(self) -> bool:
        """Do connectives work on logarithms?"""
        return False

    def outer(self, kind: str, first: bool) -> OuterFold | None:
        """How ``forall`` or ``exists`` is folded when nothing but quantifiers stands before it (``first``: nothing at
        all); None if just as everywhere else."""
        return None

    def only(self, is_log: bool) -> Accumulator:
        """The value of the only instance there is, and true where there is none."""
        return self.quantifier("forall", None)

    def truths(self) -> Algebra:
        """The same truth values, of whole formulas too where these are logarithms otherwise."""
        return self

    def result(self, x: Tensor, is_log: bool) -> Tensor:
        """The value of a whole formula, from a logarithm or a truth value."""
        return x


class Monoid:
    """Lift, fold with one associative operation, finish. ``neutral`` is what min or max of no instances gives."""

    def __init__(
        self,
        op: Literal["all", "any", "sum", "prod", "min", "max"],
        *,
        lift: Callable[[Tensor], Tensor] | None = None,
        finish: Callable[[Tensor, int | Tensor], Tensor] | None = None,
        counts: bool = False,
        neutral: float | None = None,
    ) -> None:
        self.op = op
        self.counts = counts
        self.idempotent = op not in ("sum", "prod")
        self._lift = lift
        self._finish = finish
        self._neutral = float(op == "min") if neutral is None else neutral

    def lift(self, x: Tensor) -> State:
        return (x if self._lift is None else self._lift(x),)

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        (x,) = state
        if not dims:
            return state
        if self.op in ("all", "any"):
            if x.numel() == 0:
                return (x.all(dims) if self.op == "all" else x.any(dims),)
            # Bytes fold more than ten times faster than bools.
            bits = x.view(torch.uint8)
            return ((bits.amin(dims) if self.op == "all" else bits.amax(dims)).view(torch.bool),)
        if self.op == "sum":
            if x.dtype == torch.bool:
                small = torch.int32 if x.numel() < 2**31 else torch.int64
                return (x.view(torch.uint8).sum(dims, dtype=small).long(),)
            return (x.sum(dims),)
        if self.op == "prod":
            for dim in sorted(dims, reverse=True):
                x = x.prod(dim)
            return (x,)
        if any(x.shape[d] == 0 for d in dims):
            return (x.new_full([n for d, n in enumerate(x.shape) if d not in dims], self._neutral),)
        return (x.amin(dims) if self.op == "min" else x.amax(dims),)

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        (x,) = state
        shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
        if self.op in ("all", "any"):
            hits = (x if self.op == "any" else ~x).to(torch.int32)
            count = torch.zeros(shape, dtype=torch.int32, device=x.device).index_add(dim, ids, hits)
            return (count > 0 if self.op == "any" else count == 0,)
        if self.op == "sum":
            lifted = x if x.dtype.is_floating_point else x.to(torch.int64)
            return (torch.zeros(shape, dtype=lifted.dtype, device=x.device).index_add(dim, ids, lifted),)
        index = ids.view([-1 if d == dim else 1 for d in range(x.ndim)]).expand(x.shape)
        if self.op == "prod":
            return (torch.ones(shape, dtype=x.dtype, device=x.device).scatter_reduce(dim, index, x, "prod"),)
        return (x.new_full(shape, self._neutral).scatter_reduce(dim, index, x, f"a{self.op}", include_self=False),)

    def merge(self, a: State, b: State) -> State:
        return (_MERGED[self.op](a[0], b[0]),)

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        return state[0] if self._finish is None else self._finish(state[0], count)


_MERGED: dict[str, Callable[[Any, Any], Tensor]] = {
    "all": operator.and_,
    "any": operator.or_,
    "sum": operator.add,
    "prod": operator.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}


@dataclass(frozen=True)
class Classical(Algebra):
    """True and false. A network counts as saying what it thinks most likely: what exceeds one half."""

    name: str = "classical"
    statements: Literal["mode", "axis"] = "mode"
    associative: bool = True

    def atom(self, raw: Tensor, kind: Kind, dtype: torch.dtype) -> Tensor:
        if kind == "bool":
            return raw
        return raw > {"prob": 0.5, "logit": 0.0, "log_prob": log(0.5)}[kind]

    def not_(self, x: Tensor) -> Tensor:
        return ~x

    # Where one side is spread along an axis, bytes are combined more than ten times faster than bools.

    def and_(self, xs: Sequence[Tensor]) -> Tensor:
        return reduce(torch.bitwise_and, [x.view(torch.uint8) for x in xs]).view(torch.bool)

    def or_(self, xs: Sequence[Tensor]) -> Tensor:
        return reduce(torch.bitwise_or, [x.view(torch.uint8) for x in xs]).view(torch.bool)

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        return a <= b

    def iff(self, a: Tensor, b: Tensor) -> Tensor:
        return a == b

    def xor(self, a: Tensor, b: Tensor) -> Tensor:
        return a != b

    def connective(self, kind: Literal["and", "or"]) -> Accumulator:
        return _ALL if kind == "and" else _ANY

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        if count is None:
            return _ALL if kind == "forall" else _ANY
        compared = {"exactly": operator.eq, "at most": operator.le, "at least": operator.ge}[kind]
        return Monoid("sum", finish=lambda found, n: compared(found, count))


_ALL, _ANY = Monoid("all"), Monoid("any")
CLASSICAL = Classical()
