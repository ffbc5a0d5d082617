r"""Fuzzy implications: decreasing in the antecedent, increasing in the consequent, I(0,0) = I(1,1) = 1, I(1,0) = 0.

Two constructions cover all named ones (Chapter 2, "Fuzzy Implications"):

* (S,N)-implications :math:`I_{S,N}(a, c) = S(N(a), c)`, with the standard negation called S-implications;
* R-implications :math:`I_T(a, c) = \sup\{b : T(a, b) ≤ c\}`, the residuum of T.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from doxa._numerics import truth
from doxa.fuzzy.operators._negations import STANDARD, Negation

if TYPE_CHECKING:
    from doxa.fuzzy.operators._tnorms import TConorm, TNorm

__all__ = ["Implication", "RImplication", "SImplication"]


class Implication(ABC):
    """A fuzzy implication: ``I(a, c)`` on tensors that broadcast.

    >>> import torch
    >>> from doxa.fuzzy import REICHENBACH
    >>> isinstance(REICHENBACH, Implication), REICHENBACH(torch.tensor(0.8), torch.tensor(0.3))
    (True, tensor(0.4400))
    """

    @abstractmethod
    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        """The truth of a → c."""


@dataclass(frozen=True)
class SImplication(Implication):
    """The (S,N)-implication :math:`I_{S,N}(a, c) = S(N(a), c)` (Chapter 2, Eq. s-impl).

    It always satisfies LN, EP and R-CP; if N is strong, CP and L-CP too (errata 1.6).

    >>> import torch
    >>> from doxa.fuzzy import Godel
    >>> SImplication(Godel().dual)(torch.tensor(0.8), torch.tensor(0.3))      # Kleene-Dienes
    tensor(0.3000)
    """

    tconorm: TConorm
    negation: Negation = STANDARD

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        if self.negation == STANDARD:
            return self.tconorm.tnorm._s_implies(truth(a), truth(c))
        return self.tconorm(self.negation(a), c)


@dataclass(frozen=True)
class RImplication(Implication):
    r"""The R-implication :math:`I_T(a, c) = \sup\{b : T(a, b) ≤ c\}` (Chapter 2, Eq. r-implication).

    It is 1 where a ≤ c, with derivative 0; on a = c it takes that side. It satisfies LN and IP, and EP if T is
    left-continuous (errata 1.7). Its derivatives, singular for most t-norms, are capped at 1/ε.

    >>> import torch
    >>> from doxa.fuzzy import Product
    >>> RImplication(Product())(torch.tensor([0.8, 0.2]), torch.tensor([0.3, 0.3]))      # Goguen
    tensor([0.3750, 1.0000])
    """

    tnorm: TNorm

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        return self.tnorm._residual(truth(a), truth(c))
