r"""A fuzzy logic as an algebra of truth values (Chapter 3, Def. val). Some quantifiers are sums of products.

With the product t-norm, its dual, standard negation and Reichenbach's implication, truths and falsities are products:

.. math:: e(φ ∧ ψ) = e(φ)\, e(ψ), \quad \bar e(φ ∨ ψ) = \bar e(φ)\, \bar e(ψ), \quad \bar e(φ → ψ) = e(φ)\, \bar e(ψ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from doxa._numerics import safe_log, truth
from doxa.errors import ConfigError
from doxa.fuzzy._logic import Connective, Logic
from doxa.fuzzy.operators._basic import Product
from doxa.fuzzy.operators._connectives import STANDARD, SImplication, TConorm, TNorm
from doxa.fuzzy.operators._generators import power, unpower
from doxa.fuzzy.operators._logspace import LogConjunction, LogForall
from doxa.fuzzy.operators._parameters import Parameter, bounds, current
from doxa.fuzzy.operators._wrapped import SigmoidalAggregator
from doxa.fuzzy.quantifiers._aggregators import Aggregator, GeneralizedMeanError, LogProduct, PowerAggregator
from doxa.fuzzy.quantifiers._folds import Counting, Wrapped, connective_fold, quantifier_fold
from doxa.logic import And, Expr, Implies, Not, Or
from doxa.logic.tensor._algebra import Accumulator, Algebra, Kind, Monoid, OuterFold

LARGEST = 16.0
"""The largest p whose powers double precision can carry: a factor of ε below the largest one is still there."""


@dataclass(frozen=True)
class FuzzyAlgebra(Algebra):
    r"""The operators of a :class:`Logic`, as :class:`doxa.logic.TensorPlan` wants them.

    * A statement ``x := f(t) (φ)`` is :math:`∃_d\, T(p(d), φ(d))`, with the logic's ∃ over all values at once.
    * ``exactly k``, ``at most k``, ``at least k`` read truth values as probabilities of independent events, in every
      logic: the value is the Poisson-binomial probability of such a count. In product logic ``at least 1`` is ∃.
    * Guards (``where``) are classical: they say which instances there are.

    A conjunction of more than two formulas is the n-ary ``reduce`` of the logic's operator. T-norms are associative, so
    they are joined in the order that suits grounding; LTN's stable operators, the ∨ of log space and sigmoidal
    connectives are not, and get all arguments at once.

    Where quantifiers give logarithms and connectives work on truth values (the log-product), so does a whole formula;
    a quantifier inside it gives exp of its logarithm. Arguments are those of :class:`FuzzyPlan`.
    """

    logic: Logic
    statements: Literal["mode", "axis"] = "axis"
    rewrite: bool = False
    outermost: Aggregator | None = None

    def __post_init__(self) -> None:
        if self.outermost is not None and self.outermost.kind != "forall":
            raise ConfigError(f"outermost is {self.outermost}, which is for exists; expected an aggregator for forall")

    @property
    def name(self) -> str:
        return self.logic.name or "fuzzy"

    @property
    def associative(self) -> bool:
        return all(isinstance(op, TNorm | TConorm | LogConjunction) for op in (self.logic.conj, self.logic.disj))

    def atom(self, raw: Tensor, kind: Kind, dtype: torch.dtype) -> Tensor:
        x = truth(raw.to(dtype) if kind == "bool" else raw)
        if self.logic.is_log:
            return x if kind == "log_prob" else logsigmoid(x) if kind == "logit" else safe_log(x)
        return x.exp() if kind == "log_prob" else x.sigmoid() if kind == "logit" else x

    def not_(self, x: Tensor) -> Tensor:
        return self.logic.neg(x)

    def and_(self, xs: Sequence[Tensor]) -> Tensor:
        return _all(self.logic.conj, xs)

    def or_(self, xs: Sequence[Tensor]) -> Tensor:
        return _all(self.logic.disj, xs)

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        return self.logic.implies(a, b)

    def iff(self, a: Tensor, b: Tensor) -> Tensor:
        return self.logic.iff(a, b)

    def xor(self, a: Tensor, b: Tensor) -> Tensor:
        return self.logic.xor(a, b)

    def connective(self, kind: Literal["and", "or"]) -> Accumulator:
        return connective_fold(self.logic.conj if kind == "and" else self.logic.disj)

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        if count is not None:
            return Counting(kind, count, self.logic.is_log)
        fold = quantifier_fold(self._aggregator(kind))
        return Wrapped(fold, after=torch.exp) if self._aggregator(kind).is_log and not self.logic.is_log else fold

    def _aggregator(self, kind: str) -> Aggregator:
        return self.logic.forall if kind == "forall" else self.logic.exists

    # -- whole formulas ---------------------------------------------------------------------------------------------

    @property
    def connectives_are_log(self) -> bool:
        return self.logic.is_log

    @property
    def is_log(self) -> bool:
        if self.outermost is not None:
            return self.outermost.is_log
        return self.logic.is_log or self.logic.forall.is_log or self.logic.exists.is_log

    def outer(self, kind: str, first: bool) -> OuterFold | None:
        if first and kind == "forall" and self.outermost is not None:
            powers = None if self.logic.is_log else self._power_sum(self.outermost)
            takes_log = isinstance(self.outermost, LogForall)
            return OuterFold(True, self.outermost.is_log, partial(_fold_of, self.outermost, takes_log), powers)
        aggregator = self._aggregator(kind)
        if not aggregator.is_log or self.logic.is_log:
            return None
        return OuterFold(False, True, partial(_fold_of, aggregator, False), None)

    def truths(self) -> FuzzyAlgebra:
        return replace(self, outermost=GeneralizedMeanError(1.0)) if self.is_log else self

    def only(self, is_log: bool) -> Accumulator:
        return Monoid("sum") if is_log else Monoid("min")

    def result(self, x: Tensor, is_log: bool) -> Tensor:
        if is_log == self.is_log:
            return x
        return x.exp() if is_log else safe_log(truth(x))

    def factors(self, node: Expr, truth: bool) -> list[tuple[Expr, bool]] | None:
        match node:
            case Not() if self.logic.neg == STANDARD:
                return [(node.children[0], not truth)]
            case And() if truth and isinstance(self.logic.conj, Product):
                return [(child, True) for child in node.children]
            case Or() if not truth and _is_dual(self.logic.disj):
                return [(child, False) for child in node.children]
            case Implies() if not truth and isinstance(self.logic.implies, SImplication):
                if _is_dual(self.logic.implies.tconorm) and self.logic.implies.negation == STANDARD:
                    premise, conclusion = node.children
                    return [(premise, True), (conclusion, False)]
        return None

    def powers(self, kind: str, count: int | None) -> PowerSum | None:
        return None if count is not None else self._power_sum(self._aggregator(kind))

    def _power_sum(self, aggregator: Aggregator) -> PowerSum | None:
        found = power_sum(aggregator)
        return found if found is None or self.rewrite else replace(found, contracts=False)


def _fold_of(aggregator: Aggregator, takes_log: bool, is_log: bool) -> Accumulator:
    """The fold of truth values or logarithms, whichever of the two the aggregator takes."""
    if is_log and isinstance(aggregator, LogProduct):
        aggregator, takes_log = LogForall(aggregator.reduction, aggregator.eps), True
    fold = quantifier_fold(aggregator)
    if is_log == takes_log:
        return fold
    return Wrapped(fold, before=torch.exp if is_log else lambda x: safe_log(truth(x)))


def _all(op: Connective, xs: Sequence[Tensor]) -> Tensor:
    if len(xs) == 2 or isinstance(op, TNorm | TConorm):
        return reduce(op, xs)
    return op.reduce(torch.stack(torch.broadcast_tensors(*xs)), 0)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class PowerSum:
    """A generalised mean or its like: its state is a sum of p-th powers, or for p > 2 the p-norm (see ``_folds``)."""

    p: Parameter
    eps: float | None
    of_truth: bool
    contracts: bool = True

    @property
    def scaled(self) -> bool:
        """Powers above 2 underflow, so factors are divided by their largest element, and summed in double precision."""
        return bounds(self.p)[1] > 2

    def of_factor(self, factor: Tensor) -> Tensor:
        return factor if self.scaled else power(factor, self.p, self.eps)

    def lift(self, factor: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        factor = truth(factor)
        if not self.scaled:
            return power(factor, self.p, self.eps), None
        if factor.numel():
            top = factor.detach().amax(dims, keepdim=True) if dims else factor.detach()
            scale = torch.where(top > 0, top, 1.0)
        else:
            scale = factor.new_ones([1 if d in dims else n for d, n in enumerate(factor.shape)])
        return power((factor / scale).double(), self.p, self.eps), scale

    def state(self, total: Tensor, scales: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if not self.scaled:
            return (total,)
        norm = unpower(total, self.p, current(self.p), self.eps)
        for scale in scales:
            norm = norm.to(scale.dtype) * scale
        return (norm,)


def power_sum(aggregator: Aggregator) -> PowerSum | None:
    """An aggregator as a sum of powers of products, if it is one."""
    while isinstance(aggregator, SigmoidalAggregator):  # which bends only what comes out
        aggregator = aggregator.aggregator
    if not isinstance(aggregator, PowerAggregator):
        return None
    low, high = bounds(aggregator.p)
    # Below 1 the derivative of a power is capped, of the whole and of a factor at different places.
    if low < 1 or high > LARGEST:
        return None
    return PowerSum(aggregator.p, aggregator.eps, aggregator.kind == "exists")


def _is_dual(operator: object) -> bool:
    return isinstance(operator, TConorm) and isinstance(operator.tnorm, Product)
