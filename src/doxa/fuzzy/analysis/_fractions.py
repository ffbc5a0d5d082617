r"""On how much of its domain an operator has a gradient (Chapter 3, "Aggregation"; errata 2.3-2.8).

An operator *vanishes* at a point if all its partial derivatives are 0 there: learning stops. The fraction of the cube
on which it does not is known in closed form for many operators, and estimated by sampling for the others.
"""

from __future__ import annotations

import fractions
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.fuzzy.operators._frank import Frank
from doxa.fuzzy.operators._godel import Drastic, Godel, NilpotentMinimum
from doxa.fuzzy.operators._hamacher import Hamacher
from doxa.fuzzy.operators._logspace import LogConjunction, LogDisjunction
from doxa.fuzzy.operators._lukasiewicz import Lukasiewicz
from doxa.fuzzy.operators._negations import (
    STANDARD,
    IntuitionisticNegation,
    Negation,
    StandardNegation,
    SugenoNegation,
    YagerNegation,
)
from doxa.fuzzy.operators._parameters import number
from doxa.fuzzy.operators._product import Product
from doxa.fuzzy.operators._schweizer_sklar import SchweizerSklar
from doxa.fuzzy.operators._sigmoidal import SigmoidalAggregator, SigmoidalConnective, SigmoidalImplication
from doxa.fuzzy.operators._stable import StableConnective
from doxa.fuzzy.operators._tnorms import Archimedean, Implication, RImplication, SImplication, TConorm, TNorm
from doxa.fuzzy.operators._yager import AczelAlsina, Dombi, Yager
from doxa.fuzzy.quantifiers._aggregators import (
    Aggregator,
    GeneralizedMean,
    GeneralizedMeanError,
    LogProbabilisticSum,
    LogProduct,
    TConormAggregator,
    TNormAggregator,
    UnboundedYager,
    UnboundedYagerSum,
)

__all__ = ["Fraction", "irwin_hall_cdf", "nonvanishing_fraction", "single_passing", "yager_fraction"]

Operator = (
    TNorm
    | TConorm
    | Implication
    | Negation
    | Aggregator
    | SigmoidalConnective
    | StableConnective
    | LogConjunction
    | LogDisjunction
)


@dataclass(frozen=True)
class Fraction:
    """A fraction of the unit cube: its value, its standard error (0 if exact) and how it was found.

    >>> print(Fraction(0.5, 0.0, "closed form"))
    0.5 (closed form)
    """

    value: float
    error: float
    method: Literal["closed form", "sampling"]

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ± {self.error:.1g}" if self.error else "") + f" ({self.method})"


def irwin_hall_cdf(y: float, n: int) -> float:
    r"""P(U₁ + … + Uₙ ≤ y) for n uniform variables: :math:`\frac{1}{n!} \sum_{k ≤ y} (-1)^k \binom{n}{k} (y - k)^n`
    (errata 2.4). At y = 1 it is 1/n!, the fraction on which Łukasiewicz has a gradient.

    >>> round(irwin_hall_cdf(1.4, 3), 6)
    0.425333
    """
    y = min(max(y, 0.0), float(n))
    exact = fractions.Fraction(y)  # huge terms of both signs cancel
    terms = ((-1) ** k * math.comb(n, k) * (exact - k) ** n for k in range(math.floor(y) + 1))
    return float(sum(terms, fractions.Fraction(0)) / math.factorial(n))


def yager_fraction(p: float, n: int) -> float:
    r"""The volume :math:`Γ(1 + 1/p)^n / Γ(1 + n/p)` of the unit p-ball's positive orthant (errata 2.7): the fraction on
    which Yager's t-norm over n arguments has a gradient. For p = 2 it is π^(n/2)/(2ⁿ Γ(n/2 + 1)) (errata 2.6).

    >>> round(yager_fraction(2.0, 3), 6), round(yager_fraction(0.5, 2), 6)
    (0.523599, 0.166667)
    """
    return math.exp(n * math.lgamma(1 + 1 / p) - math.lgamma(1 + n / p))


def nonvanishing_fraction(
    operator: Operator,
    n: int = 2,
    *,
    samples: int = 100_000,
    generator: torch.Generator | None = None,
    closed_form: bool = True,
) -> Fraction:
    """The fraction of [0, 1]ⁿ on which at least one partial derivative of the operator is not 0.

    Args:
        operator: a t-norm, t-conorm, implication, aggregator or negation.
        n: the number of arguments; implications have 2 and negations 1.
        samples: how many points to try where there is no closed form.
        generator: the source of randomness.
        closed_form: set it to False to sample in any case.

    >>> from doxa.fuzzy import SugenoWeber
    >>> print(nonvanishing_fraction(Lukasiewicz(), n=4))
    0.04167 (closed form)
    >>> nonvanishing_fraction(SugenoWeber(2.0), generator=torch.Generator().manual_seed(0)).method
    'sampling'
    """
    if n < 1:
        raise ConfigError(f"n is {n}, expected at least 1")
    if isinstance(operator, Implication) and n != 2:
        raise ConfigError(f"n is {n}, expected 2: an implication has two arguments")
    if isinstance(operator, Negation) and n != 1:
        raise ConfigError(f"n is {n}, expected 1: a negation has one argument")
    exact = _closed_form(operator, n) if closed_form else None
    if exact is not None:
        return Fraction(exact, 0.0, "closed form")
    points = torch.rand(samples, n, dtype=torch.float64, generator=generator)
    share = float((gradients(operator, points) != 0).any(1).double().mean())
    return Fraction(share, math.sqrt(share * (1 - share) / samples), "sampling")


def single_passing(operator: Operator, n: int = 3, points: int = 2000) -> bool:
    """Whether at most one partial derivative is not 0, tried on points spread over the cube (Chapter 3, Def. 3).

    >>> single_passing(Godel()), single_passing(Product())
    (True, False)
    """
    n = 2 if isinstance(operator, Implication) else 1 if isinstance(operator, Negation) else n
    return bool(((gradients(operator, spread(points, n)) != 0).sum(1) <= 1).all())


def spread(points: int, n: int) -> Tensor:
    """Points spread evenly over (0, 1)ⁿ, the same at every call: multiples of square roots of primes, modulo 1."""
    primes: list[int] = []
    candidate = 2
    while len(primes) < n:
        if all(candidate % q for q in primes):
            primes.append(candidate)
        candidate += 1
    steps = torch.tensor(primes, dtype=torch.float64).sqrt()
    return torch.remainder(torch.arange(1, points + 1, dtype=torch.float64)[:, None] * steps, 1)


def gradients(operator: Operator, points: Tensor) -> Tensor:
    """The partial derivatives of an operator at each row of ``points``."""
    with torch.enable_grad():
        x = points.detach().requires_grad_()
        if isinstance(operator, Implication):
            value = operator(x[:, 0], x[:, 1])
        elif isinstance(operator, Negation):
            value = operator(x[:, 0])
        elif isinstance(operator, Aggregator):
            value = operator(x, 1)
        else:
            value = operator.reduce(x, 1)
        if not value.requires_grad:
            return torch.zeros_like(points)
        return torch.autograd.grad(value.sum(), x)[0]


def _closed_form(operator: Operator, n: int) -> float | None:
    match operator:
        case TConorm(tnorm) | TNormAggregator(tnorm):
            return _closed_form(tnorm, n)
        case TConormAggregator(tconorm):
            return _closed_form(tconorm, n)
        case SigmoidalConnective(connective=inner) | SigmoidalImplication(implication=inner):
            return _closed_form(inner, n)
        case SigmoidalAggregator(aggregator=inner):
            return _closed_form(inner, n)
        case SImplication(tconorm, negation) if negation == STANDARD:
            return _closed_form(tconorm, 2)
        case RImplication(tnorm):
            # Where a > c the consequent has a gradient, where a <= c nothing has.
            left_continuous = isinstance(tnorm, Godel | Product | NilpotentMinimum | Archimedean)
            return 0.5 if left_continuous else 0.0 if isinstance(tnorm, Drastic) else None
        case TNorm() if n == 1:
            return 1.0
        case Godel() | Product() | Frank() | Hamacher() | AczelAlsina() | Dombi():
            return 1.0
        case Lukasiewicz():
            return irwin_hall_cdf(1.0, n)
        case Yager(p):
            return yager_fraction(number(p), n)
        case NilpotentMinimum():
            return 2.0 ** (1 - n)
        case Drastic():
            return 0.0
        case SchweizerSklar(lam) if number(lam) <= 0:
            return 1.0
        case GeneralizedMean() | GeneralizedMeanError() | UnboundedYager() | UnboundedYagerSum():
            return 1.0
        case LogProduct() | LogProbabilisticSum():
            return 1.0
        case StandardNegation() | SugenoNegation() | YagerNegation():
            return 1.0
        case IntuitionisticNegation():
            return 0.0
    return None
