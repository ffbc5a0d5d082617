r"""Sums of products, rewritten exactly (see :mod:`doxa.logic.tensor._contract`).

With the product t-norm, the probabilistic sum, the standard negation and Reichenbach's implication, truths and
falsities :math:`\bar e = 1 - e` are products:

.. math::
    e(φ ∧ ψ) = e(φ)\, e(ψ), \quad \bar e(φ ∨ ψ) = \bar e(φ)\, \bar e(ψ), \quad
    \bar e(φ → ψ) = e(φ)\, \bar e(ψ), \quad e(¬φ) = \bar e(φ).

A generalised mean (error) adds up p-th powers of truths (falsities), and the power of a product is the product of the
powers. So a quantifier over a formula of this kind is a contraction of the tensors of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import truth
from doxa.fuzzy._logic import Logic
from doxa.fuzzy.operators._negations import STANDARD
from doxa.fuzzy.operators._norms import _power, _unpower
from doxa.fuzzy.operators._parameters import Parameter, bounds, current
from doxa.fuzzy.operators._product import Product
from doxa.fuzzy.operators._sigmoidal import SigmoidalAggregator
from doxa.fuzzy.operators._tnorms import SImplication, TConorm
from doxa.fuzzy.quantifiers._aggregators import (
    Aggregator,
    GeneralizedMean,
    GeneralizedMeanError,
    UnboundedYager,
    UnboundedYagerSum,
)
from doxa.logic import And, Expr, Implies, Not, Or

__all__ = ["PowerSum", "factors", "power_sum"]

LARGEST = 16.0
"""The largest p whose powers double precision can carry: a factor of ε below the largest one is still there."""


@dataclass(frozen=True)
class PowerSum:
    """A generalised mean or its like: its state is a sum of p-th powers, or for p > 2 the p-norm (see ``_folds``)."""

    p: Parameter
    eps: float | None
    of_truth: bool

    @property
    def scaled(self) -> bool:
        """Powers above 2 underflow, so factors are divided by their largest element, and summed in double precision."""
        return bounds(self.p)[1] > 2

    def lift(self, factor: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        factor = truth(factor)
        if not self.scaled:
            return _power(factor, self.p, self.eps), None
        if factor.numel():
            top = factor.detach().amax(dims, keepdim=True) if dims else factor.detach()
            scale = torch.where(top > 0, top, 1.0)
        else:
            scale = factor.new_ones([1 if d in dims else n for d, n in enumerate(factor.shape)])
        return _power((factor / scale).double(), self.p, self.eps), scale

    def state(self, total: Tensor, scales: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if not self.scaled:
            return (total,)
        norm = _unpower(total, self.p, current(self.p), self.eps)
        for scale in scales:
            norm = norm.to(scale.dtype) * scale
        return (norm,)


def power_sum(aggregator: Aggregator) -> PowerSum | None:
    """An aggregator as a sum of powers of products, if it is one."""
    while isinstance(aggregator, SigmoidalAggregator):  # which bends only what comes out
        aggregator = aggregator.aggregator
    if not isinstance(aggregator, GeneralizedMean | GeneralizedMeanError | UnboundedYager | UnboundedYagerSum):
        return None
    low, high = bounds(aggregator.p)
    # Below 1 the derivative of a power is capped, of the whole and of a factor at different places.
    if low < 1 or high > LARGEST:
        return None
    return PowerSum(aggregator.p, aggregator.eps, isinstance(aggregator, GeneralizedMean | UnboundedYagerSum))


def factors(logic: Logic, node: Expr, of_truth: bool) -> list[tuple[Expr, bool]] | None:
    """The formulas whose truths (True) and falsities (False) multiply to the truth or falsity of this one, or None."""
    match node:
        case Not() if logic.neg == STANDARD:
            return [(node.children[0], not of_truth)]
        case And() if of_truth and isinstance(logic.conj, Product):
            return [(child, True) for child in node.children]
        case Or() if not of_truth and _is_dual(logic.disj):
            return [(child, False) for child in node.children]
        case Implies() if not of_truth and isinstance(logic.implies, SImplication):
            if _is_dual(logic.implies.tconorm) and logic.implies.negation == STANDARD:
                premise, conclusion = node.children
                return [(premise, True), (conclusion, False)]
    return None


def _is_dual(operator: object) -> bool:
    return isinstance(operator, TConorm) and isinstance(operator.tnorm, Product)
