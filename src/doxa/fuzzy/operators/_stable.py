r"""LTN's stable operators: inputs squeezed away from where a derivative vanishes (Badreddine et al. 2022, Appendix C).

:math:`π_0(x) = (1 - ε)x + ε` keeps clear of 0 and :math:`π_1(x) = (1 - ε)x` of 1. Unlike the cap of
:mod:`doxa._numerics` this changes every value a little, in exchange for a derivative that is never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from doxa._numerics import Dims, truth
from doxa.fuzzy.operators._parameters import require
from doxa.fuzzy.operators._tnorms import Implication, TConorm, TNorm
from doxa.fuzzy.quantifiers._aggregators import Aggregator

__all__ = ["StableAggregator", "StableConnective", "StableImplication"]


@dataclass(frozen=True)
class _Stable:
    squeeze: float

    def __post_init__(self) -> None:
        require("the squeeze of a stable operator", self.squeeze, 0, 1, closed=True)

    def _away_from(self, end: int, x: Tensor) -> Tensor:
        return (1 - self.squeeze) * truth(x) + (self.squeeze if end == 0 else 0)


@dataclass(frozen=True)
class StableConnective(_Stable):
    """A t-norm of π₀, or a t-conorm of π₁, of its arguments.

    >>> import torch
    >>> from doxa.fuzzy import Product
    >>> StableConnective(0.1, Product())(torch.tensor(0.0), torch.tensor(1.0))
    tensor(0.1000)
    """

    connective: TNorm | TConorm

    @property
    def _end(self) -> int:
        return 0 if isinstance(self.connective, TNorm) else 1

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self.connective(self._away_from(self._end, a), self._away_from(self._end, b))

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """The connective over ``dim``; arguments as in :meth:`TNorm.reduce`."""
        return self.connective.reduce(self._away_from(self._end, x), dim, mask, weight)


@dataclass(frozen=True)
class StableImplication(_Stable, Implication):
    """An implication from π₀ of its antecedent to π₁ of its consequent.

    >>> import torch
    >>> from doxa.fuzzy import REICHENBACH
    >>> StableImplication(0.1, REICHENBACH)(torch.tensor(1.0), torch.tensor(1.0))
    tensor(0.9000)
    """

    implication: Implication

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        return self.implication(self._away_from(0, a), self._away_from(1, c))


@dataclass(frozen=True)
class StableAggregator(_Stable, Aggregator):
    """A ∀ of π₁, or an ∃ of π₀, of its instances: away from where a generalised mean has no derivative.

    >>> import torch
    >>> from doxa.fuzzy import GeneralizedMeanError
    >>> StableAggregator(0.1, GeneralizedMeanError(2.0))(torch.ones(3))
    tensor(0.9000)
    """

    aggregator: Aggregator

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.aggregator.kind

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self.aggregator(self._away_from(1 if self.kind == "forall" else 0, x), dim, mask, weight)
