r"""Operators of operators: bent by a sigmoid, or with arguments squeezed away from where a derivative vanishes.

*Sigmoidal* (Chapter 3, "Sigmoidal Implications"; errata 2.15), in a form that neither overflows nor cancels:

.. math:: σ_f = \frac{1 - e^{-s f}}{1 - e^{-s}} \cdot \frac{σ(s(f + b_0))}{σ(s(1 + b_0))}

*Stable*, as in LTN (Badreddine et al. 2022): :math:`π_0(x) = (1 - ε)x + ε` keeps clear of 0, :math:`π_1(x) = (1 - ε)x`
of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, overload

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from doxa._numerics import Dims, lower, truth
from doxa.errors import ConfigError
from doxa.fuzzy.operators._connectives import Implication, TConorm, TNorm
from doxa.fuzzy.operators._parameters import Parameter, bounds, current, require
from doxa.fuzzy.quantifiers._aggregators import Aggregator

Connective = TypeVar("Connective", bound="TNorm | TConorm")


class _Wrapper:
    """What is done to arguments before an operator, and to its value after it."""

    def _before(self, x: Tensor, end: int) -> Tensor:
        """An argument, made to keep clear of 0 or of 1 if this wrapper does that."""
        return x

    def _after(self, value: Tensor) -> Tensor:
        return value


@dataclass(frozen=True)
class _Sigmoidal(_Wrapper):
    s: Parameter
    b0: Parameter

    def __post_init__(self) -> None:
        require("the s of a sigmoidal operator", self.s, 0, closed=True)

    def _after(self, value: Tensor) -> Tensor:
        if self.s == 0:
            return value
        s, b0 = current(self.s), current(self.b0)

        def curve(f: Tensor) -> Tensor:
            if bounds(self.b0)[0] >= -1:
                return torch.expm1(-s * f) * torch.sigmoid(s * (f + b0))
            # σ(s(1 + b0)) may underflow: divide it out beforehand.
            return torch.expm1(-s * f) * torch.exp(logsigmoid(s * (f + b0)) - logsigmoid(s * (one + b0)))

        one = torch.ones((), dtype=value.dtype, device=value.device)
        return lower(curve(value) / curve(one), 1)


@dataclass(frozen=True)
class _Stable(_Wrapper):
    squeeze: float

    def __post_init__(self) -> None:
        require("the squeeze of a stable operator", self.squeeze, 0, 1, closed=True)

    def _before(self, x: Tensor, end: int) -> Tensor:
        return (1 - self.squeeze) * truth(x) + (self.squeeze if end == 0 else 0)


@dataclass(frozen=True)
class WrappedConnective(_Wrapper):
    """A t-norm or t-conorm with something done before or after; of many arguments, once to the joint value."""

    connective: TNorm | TConorm

    def inside(self, x: Tensor) -> Tensor:
        """What the connective is given: a t-norm keeps clear of 0, a t-conorm of 1."""
        return self._before(x, 0 if isinstance(self.connective, TNorm) else 1)

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self._after(self.connective(self.inside(a), self.inside(b)))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """The value over ``dim``; arguments as in :meth:`TNorm.reduce`."""
        return self._after(self.connective.reduce(self.inside(x), dim, mask, weight))


@dataclass(frozen=True)
class _WrappedImplication(_Wrapper, Implication):
    implication: Implication

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        return self._after(self.implication(self._before(a, 0), self._before(c, 1)))


@dataclass(frozen=True)
class WrappedAggregator(_Wrapper, Aggregator):
    """An aggregator with something done before or after."""

    aggregator: Aggregator

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.aggregator.kind

    def inside(self, x: Tensor) -> Tensor:
        """What the aggregator is given: away from where a generalised mean has no derivative."""
        return self._before(x, 1 if self.kind == "forall" else 0)

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self._after(self.aggregator(self.inside(x), dim, mask, weight))


@dataclass(frozen=True)
class SigmoidalImplication(_WrappedImplication, _Sigmoidal):
    """σ_I for an implication I; made by :func:`sigmoidal`.

    >>> from doxa.fuzzy import REICHENBACH
    >>> sigmoidal(REICHENBACH, 9.0, -0.5)(torch.tensor(0.8), torch.tensor(0.3))
    tensor(0.3652)
    """


@dataclass(frozen=True)
class SigmoidalConnective(WrappedConnective, _Sigmoidal):
    """σ_T or σ_S for a t-norm or t-conorm; made by :func:`sigmoidal`."""


@dataclass(frozen=True)
class SigmoidalAggregator(WrappedAggregator, _Sigmoidal):
    """σ_A for an aggregator A; made by :func:`sigmoidal`.

    >>> from doxa.fuzzy import GeneralizedMeanError
    >>> sigmoidal(GeneralizedMeanError(1.0), 9.0)(torch.tensor([0.2, 0.3]))
    tensor(0.0863)
    """


@dataclass(frozen=True)
class StableConnective(WrappedConnective, _Stable):
    """A t-norm of π₀, or a t-conorm of π₁, of its arguments.

    >>> from doxa.fuzzy import Product
    >>> StableConnective(0.1, Product())(torch.tensor(0.0), torch.tensor(1.0))
    tensor(0.1000)
    """


@dataclass(frozen=True)
class StableImplication(_WrappedImplication, _Stable):
    """An implication from π₀ of its antecedent to π₁ of its consequent."""


@dataclass(frozen=True)
class StableAggregator(WrappedAggregator, _Stable):
    """A ∀ of π₁, or an ∃ of π₀, of its instances."""


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

    >>> from doxa.fuzzy import REICHENBACH, LogProduct, Product
    >>> sigmoidal(REICHENBACH, 9.0, -0.2)(torch.tensor(0.8), torch.tensor(0.3))
    tensor(0.8803)
    >>> sigmoidal(Product(), 9.0).reduce(torch.tensor([0.9, 0.9, 0.9]))
    tensor(0.8958)
    >>> sigmoidal(LogProduct(), 9.0)
    Traceback (most recent call last):
    doxa.errors.ConfigError: LogProduct has values outside [0, 1], ...
    """
    if isinstance(operator, Implication):
        return SigmoidalImplication(s, b0, operator)
    if isinstance(operator, TNorm | TConorm):
        return SigmoidalConnective(s, b0, operator)
    if not operator.bounded:
        remedy = "bend the formula below it instead, or use its bounded relative"
        raise ConfigError(f"{type(operator).__name__} has values outside [0, 1], expected values inside; {remedy}")
    return SigmoidalAggregator(s, b0, operator)
