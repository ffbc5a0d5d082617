"""Quantifiers in pieces: each aggregator as a fold over states, joined tile by tile or by segments.

Means and Yager sums add up powers, or for p > 2, where these underflow, take p-norms; what cannot be done in pieces
keeps all values side by side.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import cap, safe_log, truth
from doxa.fuzzy._logic import Connective
from doxa.fuzzy.operators._basic import Godel
from doxa.fuzzy.operators._connectives import TConorm, TNorm
from doxa.fuzzy.operators._generators import norm, norm_pair, power, unpower
from doxa.fuzzy.operators._logspace import LogConjunction, LogDisjunction, LogExists, finite
from doxa.fuzzy.operators._parameters import Parameter, bounds, current
from doxa.fuzzy.operators._wrapped import WrappedAggregator, WrappedConnective
from doxa.fuzzy.quantifiers import _aggregators as aggregators
from doxa.logic.tensor._algebra import Accumulator, Monoid, State

Count = int | Tensor


class Pairwise(ABC):
    """A fold whose state is one tensor and whose merge is associative; segments are then merged in pairs."""

    idempotent = False
    counts = False

    @abstractmethod
    def nothing(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """The state of no instances, along axes of these lengths."""

    @abstractmethod
    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """Two states as one."""

    def lift(self, x: Tensor) -> State:
        return (truth(x),)

    @abstractmethod
    def reduce(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        """All states along some axes as one."""

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        return (self.reduce(state[0], dims),) if dims else state

    def merge(self, a: State, b: State) -> State:
        return (self.join(a[0], b[0]),)

    def finish(self, state: State, count: Count) -> Tensor:
        return state[0]

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        """Neighbours of one segment are joined until each segment has one state: linear work, and no padding."""
        (x,) = state
        behind = x.shape[dim + 1 :]
        ids, order = ids.sort(stable=True)
        x = x.index_select(dim, order)
        while len(ids) > 1 and bool((same := ids[1:] == ids[:-1]).any()):
            place = torch.arange(len(ids), device=ids.device) - torch.searchsorted(ids, ids)
            leads = (place % 2 == 0).nonzero().squeeze(1)
            followed = torch.cat([same, same.new_zeros(1)])[leads].nonzero().squeeze(1)
            first = x.index_select(dim, leads)
            both = self.join(first.index_select(dim, followed), x.index_select(dim, leads[followed] + 1))
            x, ids = first.index_copy(dim, followed, both), ids[leads]
        trailing = self.trailing
        shape = [*x.shape[:dim], size, *behind[: len(behind) - trailing]]
        return (self.nothing(x, shape).index_copy(dim, ids, x),)

    trailing = 0
    """How many axes a state has behind those of the frame."""


@dataclass(frozen=True)
class Joined(Pairwise):
    """A t-norm or t-conorm of all instances."""

    op: TNorm | TConorm

    @property
    def idempotent(self) -> bool:  # type: ignore[override]
        return isinstance(self.op if isinstance(self.op, TNorm) else self.op.dual, Godel)

    def nothing(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        return like.new_full(shape, 1.0 if isinstance(self.op, TNorm) else 0.0)

    def reduce(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        return self.op.reduce(x, dims)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return self.op(a, b)


@dataclass(frozen=True)
class Normed(Pairwise):
    """The p-norm of all instances, or their p-mean, for exponents whose powers underflow."""

    p: Parameter
    eps: float | None
    counts: bool

    def nothing(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        return like.new_zeros(shape)

    def reduce(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        return norm(x, self.p, dims, eps=self.eps)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return norm_pair(a, b, self.p, self.eps)

    def finish(self, state: State, count: Count) -> Tensor:
        (x,) = state
        return x / at_least_one(count, x) ** (1 / current(self.p)) if self.counts else x


@dataclass(frozen=True)
class LogSummed(Pairwise):
    """The log-sum-exp of all instances, and in the end their log-mean-exp (:class:`~doxa.fuzzy.LogDisjunction`)."""

    op: LogDisjunction
    counts = True

    def lift(self, x: Tensor) -> State:
        return (current(self.op.alpha) * finite(truth(x), self.op.eps),)

    def nothing(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        # As good as -inf beside any other state, but finite.
        low = -1 / cap(like, self.op.eps)
        alpha = current(self.op.alpha)
        return like.new_full(shape, low) * alpha

    def reduce(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        if any(x.shape[d] == 0 for d in dims):
            return self.nothing(x, [n for d, n in enumerate(x.shape) if d not in dims])
        return torch.logsumexp(x, dims)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.logaddexp(a, b)

    def finish(self, state: State, count: Count) -> Tensor:
        (x,) = state
        n = at_least_one(count, x)
        return (x - (torch.log(n) if isinstance(n, Tensor) else math.log(n))) / current(self.op.alpha)


@dataclass(frozen=True)
class Counting(Pairwise):
    r"""How many instances are true: ``exactly``, ``at most`` or ``at least`` k of them.

    Truth values are read as probabilities of independent events, whatever the logic; the number of true ones then has
    a Poisson-binomial distribution, which this computes by dynamic programming. Counts that do not matter any more are
    one entry, the last.
    """

    kind: str
    number: int
    is_log: bool
    trailing = 1

    @property
    def exact(self) -> int:
        """The counts below this one have entries of their own."""
        return self.number if self.kind == "at least" else self.number + 1

    def lift(self, x: Tensor) -> State:
        x = truth(x).exp() if self.is_log else truth(x)
        entries = [1 - x, x, *[torch.zeros_like(x)] * (self.exact - 1)]
        return (torch.stack(entries, -1) if self.exact else torch.ones_like(x).unsqueeze(-1),)

    def nothing(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        start = like.new_zeros(self.exact + 1)
        start[0] = 1.0
        return start.expand(*shape, -1)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """The distribution of the sum of two counts."""
        m = self.exact
        below = a[..., :1] * b[..., :m]
        for i in range(1, m):
            below = below + torch.nn.functional.pad(a[..., i : i + 1] * b[..., : m - i], (i, 0))
        # P(i + j >= m): all terms are positive, so a small probability is not lost to rounding.
        reached = b.flip(-1).cumsum(-1)
        return torch.cat([below, (a * reached).sum(-1, keepdim=True)], -1)

    def reduce(self, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        x = x.movedim(dims, tuple(range(len(dims)))).flatten(0, len(dims) - 1)
        if not len(x):
            return self.nothing(x, x.shape[1:-1])
        while len(x) > 1:
            half = len(x) // 2
            x = torch.cat([self.join(x[:half], x[half : 2 * half]), x[2 * half :]])
        return x[0]

    def finish(self, state: State, count: Count) -> Tensor:
        (x,) = state
        chance = x[..., : self.exact].sum(-1) if self.kind == "at most" else x[..., self.number]
        return safe_log(chance) if self.is_log else chance


@dataclass(frozen=True)
class Gathered:
    """All instances side by side, for operators that cannot be done in pieces."""

    op: Callable[[Tensor, int, Tensor], Tensor]
    idempotent = False
    counts = False

    def lift(self, x: Tensor) -> State:
        x = truth(x).unsqueeze(-1)
        return x, torch.ones_like(x, dtype=torch.bool)

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        behind = tuple(range(-1 - len(dims), -1))
        return tuple([t.movedim(dims, behind).flatten(-1 - len(dims)) for t in state]) if dims else state

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        ids, order = ids.sort(stable=True)
        place = torch.arange(len(ids), device=ids.device) - torch.searchsorted(ids, ids)
        longest = int(place.max()) + 1 if len(ids) else 0
        spread = []
        for t in state:
            rows = t.index_select(dim, order).movedim(dim, 0)
            padded = rows.new_zeros(size, longest, *rows.shape[1:]).index_put((ids, place), rows)
            spread.append(padded.movedim(1, -2).flatten(-2).movedim(0, dim))
        return tuple(spread)

    def merge(self, a: State, b: State) -> State:
        return tuple([torch.cat([x, y], -1) for x, y in zip(a, b, strict=True)])

    def finish(self, state: State, count: Count) -> Tensor:
        return self.op(state[0], -1, state[1])


@dataclass(frozen=True)
class Wrapped:
    """A fold with something done to each instance before, or to the value after."""

    fold_: Accumulator
    before: Callable[[Tensor], Tensor] | None = None
    after: Callable[[Tensor], Tensor] | None = None

    @property
    def idempotent(self) -> bool:
        return self.fold_.idempotent

    @property
    def counts(self) -> bool:
        return self.fold_.counts

    def lift(self, x: Tensor) -> State:
        return self.fold_.lift(x if self.before is None else self.before(x))

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        return self.fold_.fold(state, dims)

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        return self.fold_.segments(state, dim, ids, size)

    def merge(self, a: State, b: State) -> State:
        return self.fold_.merge(a, b)

    def finish(self, state: State, count: Count) -> Tensor:
        value = self.fold_.finish(state, count)
        return value if self.after is None else self.after(value)


def quantifier_fold(aggregator: aggregators.Aggregator) -> Accumulator:
    match aggregator:
        case aggregators.TNormAggregator():
            return Joined(aggregator.tnorm)
        case aggregators.TConormAggregator():
            return Joined(aggregator.tconorm)
        case WrappedAggregator():
            return Wrapped(quantifier_fold(aggregator.aggregator), aggregator.inside, aggregator._after)
        case aggregators.PowerAggregator():
            inner = _power_fold(aggregator.p, aggregator.eps, mean=aggregator.mean)
            return Wrapped(inner, lambda x: aggregator.turn(truth(x)), aggregator.turn)
        case aggregators.LogSum():
            return _sum(aggregator.logs, mean=aggregator.reduction == "mean")
        case aggregators.LogProbabilisticSum():
            return Wrapped(_sum(aggregator.logs), after=aggregator.of_sum)
        case LogExists():
            return LogSummed(LogDisjunction(aggregator.alpha, aggregator.eps))
    return Gathered(aggregator)


def connective_fold(op: Connective) -> Accumulator:
    """A connective of very many formulas as a fold."""
    match op:
        case TNorm() | TConorm():
            return Joined(op)
        case WrappedConnective():
            return Wrapped(Joined(op.connective), op.inside, op._after)
        case LogConjunction():
            return _sum(lambda x: finite(x, op.eps))
        case LogDisjunction():
            return LogSummed(op)
    return Gathered(op.reduce)


def at_least_one(count: Count, like: Tensor) -> float | Tensor:
    if isinstance(count, int):
        return float(max(count, 1))
    return torch.as_tensor(count, dtype=like.dtype, device=like.device).clamp_min(1)


def _sum(logs: Callable[[Tensor], Tensor], *, mean: bool = False) -> Monoid:
    finish = (lambda s, n: s / at_least_one(n, s)) if mean else None
    return Monoid("sum", lift=lambda x: logs(truth(x)), finish=finish, counts=mean)


def _power_fold(p: Parameter, eps: float | None, *, mean: bool) -> Accumulator:
    if bounds(p)[1] > 2:
        return Normed(p, eps, mean)

    def finish(total: Tensor, n: Count) -> Tensor:
        return unpower(total / at_least_one(n, total) if mean else total, p, current(p), eps)

    return Monoid("sum", lift=lambda z: power(truth(z), p, eps), finish=finish, counts=mean)
