r"""The sigmoidal transform of any operator with values in [0, 1] (Chapter 3, "Sigmoidal Implications"; appendix).

.. math:: σ_f = \frac{1 + e^{-s(1+b_0)}}{e^{-b_0 s} - e^{-s(1+b_0)}} \left((1 + e^{-b_0 s})\, σ(s (f + b_0)) - 1\right)

with σ(x) = 1/(1 + e^{-x}) (errata 2.15). It keeps 0 and 1, and everything that holds of f being 0, 1, equal or ordered;
s > 0 says how steep the curve is, -b₀ where it is steepest, and s → 0 gives f back. As printed it overflows for large s
and cancels for small s. The same function, by σ(x) - σ(y) = sinh((x-y)/2)/(2 cosh(x/2) cosh(y/2)), is

.. math:: σ_f = \frac{1 - e^{-s f}}{1 - e^{-s}} \cdot \frac{σ(s(f + b_0))}{σ(s(1 + b_0))},

which does neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, overload

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from doxa._numerics import Dims, lower
from doxa.errors import ConfigError
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, require
from doxa.fuzzy.operators._tnorms import Implication, TConorm, TNorm
from doxa.fuzzy.quantifiers._aggregators import Aggregator

__all__ = ["SigmoidalAggregator", "SigmoidalConnective", "SigmoidalImplication", "sigmoidal"]

Connective = TypeVar("Connective", bound="TNorm | TConorm")


@dataclass(frozen=True)
class _Sigmoidal:
    s: Parameter
    b0: Parameter

    def __post_init__(self) -> None:
        require("the s of a sigmoidal operator", self.s, 0, closed=True)

    def _bend(self, f: Tensor) -> Tensor:
        if self.s == 0:
            return f
        s, b0 = current(self.s), current(self.b0)

        def curve(f: Tensor) -> Tensor:
            if bounds(self.b0)[0] >= -1:
                return torch.expm1(-s * f) * torch.sigmoid(s * (f + b0))
            # σ(s(1 + b0)) may underflow: divide it out beforehand.
            return torch.expm1(-s * f) * torch.exp(logsigmoid(s * (f + b0)) - logsigmoid(s * (one + b0)))

        one = torch.ones((), dtype=f.dtype, device=f.device)
        return lower(curve(f) / curve(one), 1)


@dataclass(frozen=True)
class SigmoidalImplication(_Sigmoidal, Implication):
    """σ_I for an implication I; made by :func:`sigmoidal`.

    >>> from doxa.fuzzy import REICHENBACH
    >>> sigmoidal(REICHENBACH, 9.0, -0.5)(torch.tensor(0.8), torch.tensor(0.3))
    tensor(0.3652)
    """

    implication: Implication

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        return self._bend(self.implication(a, c))


@dataclass(frozen=True)
class SigmoidalConnective(_Sigmoidal):
    """σ_T or σ_S for a t-norm or t-conorm; made by :func:`sigmoidal`. Of many arguments, it bends the joint value once.

    >>> from doxa.fuzzy import Product
    >>> sigmoidal(Product(), 9.0).reduce(torch.tensor([0.9, 0.9, 0.9]))
    tensor(0.8958)
    """

    connective: TNorm | TConorm

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self._bend(self.connective(a, b))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """The bent value of the connective over ``dim``; arguments as in :meth:`TNorm.reduce`."""
        return self._bend(self.connective.reduce(x, dim, mask, weight))


@dataclass(frozen=True)
class SigmoidalAggregator(_Sigmoidal, Aggregator):
    """σ_A for an aggregator A; made by :func:`sigmoidal`.

    >>> from doxa.fuzzy import GeneralizedMeanError
    >>> sigmoidal(GeneralizedMeanError(1.0), 9.0)(torch.tensor([0.2, 0.3]))
    tensor(0.0863)
    """

    aggregator: Aggregator

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.aggregator.kind

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self._bend(self.aggregator(x, dim, mask, weight))


@overload
def sigmoidal(operator: Implication, s: Parameter, b0: Parameter = -0.5) -> SigmoidalImplication: ...
@overload
def sigmoidal(operator: Connective, s: Parameter, b0: Parameter = -0.5) -> SigmoidalConnective: ...
@overload
def sigmoidal(operator: Aggregator, s: Parameter, b0: Parameter = -0.5) -> SigmoidalAggregator: ...
def sigmoidal(
    operator: Implication | TNorm | TConorm | Aggregator, s: Parameter, b0: Parameter = -0.5
) -> SigmoidalImplication | SigmoidalConnective | SigmoidalAggregator:
    """The sigmoidal version of an implication, a connective or an aggregator.

    Args:
        operator: anything with values in [0, 1].
        s: steepness, s ≥ 0 or learnable; 0 leaves the operator as it is.
        b0: minus the place of the steepest slope; -0.5 is symmetric.

    >>> from doxa.fuzzy import REICHENBACH, LogProduct
    >>> sigmoidal(REICHENBACH, 9.0, -0.2)(torch.tensor(0.8), torch.tensor(0.3))
    tensor(0.8803)
    >>> sigmoidal(LogProduct(), 9.0)
    Traceback (most recent call last):
    doxa.errors.ConfigError: LogProduct has values outside [0, 1], ...
    """
    if isinstance(operator, Implication):
        return SigmoidalImplication(s, b0, operator)
    if isinstance(operator, TNorm | TConorm):
        return SigmoidalConnective(s, b0, operator)
    if not operator.bounded:
        raise ConfigError(
            f"{type(operator).__name__} has values outside [0, 1], expected an operator with values inside; bend the "
            "formula below it instead, or use its bounded relative"
        )
    return SigmoidalAggregator(s, b0, operator)
