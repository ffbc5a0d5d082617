"""Operators as text: the formula of each family, and the parameters in it.

A formula is written so that it can be evaluated again: after · ^ ≤ = have become * ** <= == it is a Python expression
in a, b, c or x and the parameters. The tests do so and compare with the operator.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from doxa.fuzzy import (
    AczelAlsina,
    Aggregator,
    Dombi,
    Drastic,
    Frank,
    GeneralizedMean,
    GeneralizedMeanError,
    Godel,
    Hamacher,
    Implication,
    IntuitionisticNegation,
    LogProbabilisticSum,
    LogProduct,
    Lukasiewicz,
    Negation,
    NilpotentMinimum,
    Product,
    RImplication,
    SchweizerSklar,
    SigmoidalImplication,
    SImplication,
    StandardNegation,
    SugenoNegation,
    SugenoWeber,
    TConorm,
    TConormAggregator,
    TNorm,
    TNormAggregator,
    UnboundedYager,
    UnboundedYagerSum,
    Yager,
    YagerNegation,
)

Operator = TNorm | TConorm | Implication | Aggregator | Negation


def formula(operator: Operator) -> str:
    """The formula of an operator; where it would be long, in terms of its t-norm T."""
    match operator:
        case TNorm():
            return _tnorm(operator)
        case TConorm(tnorm):
            return _tconorm(tnorm)
        case Negation():
            return _negation(operator)
        case Aggregator():
            return _aggregator(operator)
        case _:
            return _implication(operator)


def parameters(operator: object) -> dict[str, float]:
    """The numbers in a formula by the letter they have there."""
    found: dict[str, float] = {}
    for field in fields(operator) if is_dataclass(operator) and not isinstance(operator, type) else ():
        value: Any = getattr(operator, field.name)
        if field.name == "eps":
            continue
        if isinstance(value, float):
            found["λ" if field.name == "lam" else field.name] = value
        else:
            found |= parameters(value)
    return found


def _tnorm(tnorm: TNorm) -> str:
    match tnorm:
        case Godel():
            return "min(a, b)"
        case Product():
            return "a·b"
        case Lukasiewicz():
            return "max(a + b - 1, 0)"
        case Drastic():
            return "min(a, b) if a = 1 or b = 1 else 0"
        case NilpotentMinimum():
            return "min(a, b) if a + b > 1 else 0"
        case Yager():
            return "max(1 - ((1 - a)^p + (1 - b)^p)^(1/p), 0)"
        case SchweizerSklar():
            return "max(a^λ + b^λ - 1, 0)^(1/λ)"
        case Frank():
            return "log(1 + (λ^a - 1)·(λ^b - 1)/(λ - 1))/log(λ)"
        case Hamacher():
            return "a·b/(λ + (1 - λ)·(a + b - a·b))"
        case AczelAlsina():
            return "exp(-((-log(a))^λ + (-log(b))^λ)^(1/λ))"
        case Dombi():
            return "1/(1 + (((1 - a)/a)^λ + ((1 - b)/b)^λ)^(1/λ))"
        case SugenoWeber():
            return "max((a + b - 1 + λ·a·b)/(1 + λ), 0)"
    return "T(a, b)"


def _tconorm(tnorm: TNorm) -> str:
    match tnorm:
        case Godel():
            return "max(a, b)"
        case Product():
            return "a + b - a·b"
        case Lukasiewicz():
            return "min(a + b, 1)"
        case Drastic():
            return "max(a, b) if a = 0 or b = 0 else 1"
        case NilpotentMinimum():
            return "max(a, b) if a + b < 1 else 1"
        case Yager():
            return "min((a^p + b^p)^(1/p), 1)"
        case SchweizerSklar():
            return "1 - max((1 - a)^λ + (1 - b)^λ - 1, 0)^(1/λ)"
        case Dombi():
            return "1 - 1/(1 + ((a/(1 - a))^λ + (b/(1 - b))^λ)^(1/λ))"
        case SugenoWeber():
            return "min(a + b - λ/(1 + λ)·a·b, 1)"
    return "1 - T(1 - a, 1 - b)"


def _implication(implication: Implication) -> str:
    match implication:
        case SImplication(TConorm(Godel()), StandardNegation()):
            return "max(1 - a, c)"
        case SImplication(TConorm(Product()), StandardNegation()):
            return "1 - a + a·c"
        case SImplication(TConorm(Drastic()), StandardNegation()):
            return "c if a = 1 else 1 - a if c = 0 else 1"
        case SImplication(TConorm(Yager()), StandardNegation()):
            return "min(((1 - a)^p + c^p)^(1/p), 1)"
        case RImplication(Lukasiewicz()):
            return "min(1 - a + c, 1)"
        case RImplication(NilpotentMinimum()):
            return "1 if a ≤ c else max(1 - a, c)"
        case RImplication(Godel()):
            return "1 if a ≤ c else c"
        case RImplication(Product()):
            return "1 if a ≤ c else c/a"
        case RImplication(Drastic()):
            return "1 if a < 1 else c"
        case RImplication(Yager()):
            return "1 if a ≤ c else 1 - ((1 - c)^p - (1 - a)^p)^(1/p)"
        case SImplication(_, StandardNegation()):
            return "1 - T(a, 1 - c)"
        case RImplication():
            return "sup(b for T(a, b) ≤ c)"
        case SigmoidalImplication(implication=inner):
            bent = "(1 - exp(-s·I))/(1 - exp(-s))·σ(s·(I + b0))/σ(s·(1 + b0))"
            return f"{bent}, I = {_implication(inner)}"
    return "I(a, c)"


def _aggregator(aggregator: Aggregator) -> str:
    match aggregator:
        case TNormAggregator(Godel()):
            return "min(x)"
        case TNormAggregator(Product()):
            return "prod(x)"
        case TNormAggregator(Lukasiewicz()):
            return "max(sum(x) - n + 1, 0)"
        case TNormAggregator(NilpotentMinimum()):
            return "min(x) if sum(lowest_two(x)) > 1 else 0"
        case TNormAggregator(Yager()):
            return "max(1 - sum((1 - x)^p)^(1/p), 0)"
        case UnboundedYager():
            return "1 - sum((1 - x)^p)^(1/p)"
        case GeneralizedMeanError(p):
            return "1 - mean(1 - x)" if p == 1 else "1 - mean((1 - x)^p)^(1/p)"
        case LogProduct("sum"):
            return "sum(log(x))"
        case TConormAggregator(TConorm(Godel())):
            return "max(x)"
        case TConormAggregator(TConorm(Product())):
            return "1 - prod(1 - x)"
        case LogProbabilisticSum():
            return "log(1 - prod(1 - x))"
        case TConormAggregator(TConorm(Lukasiewicz())):
            return "min(sum(x), 1)"
        case TConormAggregator(TConorm(NilpotentMinimum())):
            return "max(x) if sum(highest_two(x)) < 1 else 1"
        case TConormAggregator(TConorm(Yager())):
            return "min(sum(x^p)^(1/p), 1)"
        case UnboundedYagerSum():
            return "sum(x^p)^(1/p)"
        case GeneralizedMean(p):
            return "mean(x)" if p == 1 else "mean(x^p)^(1/p)"
    return "A(x)"


def _negation(negation: Negation) -> str:
    match negation:
        case StandardNegation():
            return "1 - a"
        case SugenoNegation():
            return "(1 - a)/(1 + λ·a)"
        case YagerNegation():
            return "(1 - a^w)^(1/w)"
        case IntuitionisticNegation():
            return "1 if a = 0 else 0"
    return "N(a)"
