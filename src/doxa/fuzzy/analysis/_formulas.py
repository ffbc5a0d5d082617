"""Operators as text: the formula of each family, and the parameters in it.

A formula is written so that it can be evaluated again: after · ^ ≤ = have become * ** <= == it is a Python expression
in a, b, c or x and the parameters. The tests do so and compare with the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from doxa._html import box, table
from doxa.fuzzy.operators._connectives import (
    Implication,
    Negation,
    RImplication,
    SImplication,
    StandardNegation,
    TConorm,
    TNorm,
)
from doxa.fuzzy.operators._wrapped import SigmoidalImplication
from doxa.fuzzy.quantifiers._aggregators import (
    Aggregator,
    GeneralizedMean,
    GeneralizedMeanError,
    LogProduct,
    TConormAggregator,
    TNormAggregator,
)

Operator = TNorm | TConorm | Implication | Aggregator | Negation

_FAMILIES = """
Godel            | T             | min(a, b)
Godel            | S             | max(a, b)
Godel            | S-implication | max(1 - a, c)
Godel            | R-implication | 1 if a ≤ c else c
Godel            | forall        | min(x)
Godel            | exists        | max(x)
Product          | T             | a·b
Product          | S             | a + b - a·b
Product          | S-implication | 1 - a + a·c
Product          | R-implication | 1 if a ≤ c else c/a
Product          | forall        | prod(x)
Product          | exists        | 1 - prod(1 - x)
Lukasiewicz      | T             | max(a + b - 1, 0)
Lukasiewicz      | S             | min(a + b, 1)
Lukasiewicz      | R-implication | min(1 - a + c, 1)
Lukasiewicz      | forall        | max(sum(x) - n + 1, 0)
Lukasiewicz      | exists        | min(sum(x), 1)
Drastic          | T             | min(a, b) if a = 1 or b = 1 else 0
Drastic          | S             | max(a, b) if a = 0 or b = 0 else 1
Drastic          | S-implication | c if a = 1 else 1 - a if c = 0 else 1
Drastic          | R-implication | 1 if a < 1 else c
NilpotentMinimum | T             | min(a, b) if a + b > 1 else 0
NilpotentMinimum | S             | max(a, b) if a + b < 1 else 1
NilpotentMinimum | R-implication | 1 if a ≤ c else max(1 - a, c)
NilpotentMinimum | forall        | min(x) if sum(lowest_two(x)) > 1 else 0
NilpotentMinimum | exists        | max(x) if sum(highest_two(x)) < 1 else 1
Yager            | T             | max(1 - ((1 - a)^p + (1 - b)^p)^(1/p), 0)
Yager            | S             | min((a^p + b^p)^(1/p), 1)
Yager            | S-implication | min(((1 - a)^p + c^p)^(1/p), 1)
Yager            | R-implication | 1 if a ≤ c else 1 - ((1 - c)^p - (1 - a)^p)^(1/p)
Yager            | forall        | max(1 - sum((1 - x)^p)^(1/p), 0)
Yager            | exists        | min(sum(x^p)^(1/p), 1)
SchweizerSklar   | T             | max(a^λ + b^λ - 1, 0)^(1/λ)
SchweizerSklar   | S             | 1 - max((1 - a)^λ + (1 - b)^λ - 1, 0)^(1/λ)
Frank            | T             | log(1 + (λ^a - 1)·(λ^b - 1)/(λ - 1))/log(λ)
Hamacher         | T             | a·b/(λ + (1 - λ)·(a + b - a·b))
AczelAlsina      | T             | exp(-((-log(a))^λ + (-log(b))^λ)^(1/λ))
Dombi            | T             | 1/(1 + (((1 - a)/a)^λ + ((1 - b)/b)^λ)^(1/λ))
Dombi            | S             | 1 - 1/(1 + ((a/(1 - a))^λ + (b/(1 - b))^λ)^(1/λ))
SugenoWeber      | T             | max((a + b - 1 + λ·a·b)/(1 + λ), 0)
SugenoWeber      | S             | min(a + b - λ/(1 + λ)·a·b, 1)
"""
FAMILIES = {
    tuple(map(str.strip, line.split("|")[:2])): line.split("|")[2].strip() for line in _FAMILIES.split("\n") if line
}
"""What is made of each t-norm; where it would be long, it is said in terms of the t-norm T."""

OTHERS = {
    "UnboundedYager": "1 - sum((1 - x)^p)^(1/p)",
    "UnboundedYagerSum": "sum(x^p)^(1/p)",
    "GeneralizedMeanError": "1 - mean((1 - x)^p)^(1/p)",
    "GeneralizedMean": "mean(x^p)^(1/p)",
    "LogProduct": "sum(log(x))",
    "LogProbabilisticSum": "log(1 - prod(1 - x))",
    "StandardNegation": "1 - a",
    "SugenoNegation": "(1 - a)/(1 + λ·a)",
    "YagerNegation": "(1 - a^w)^(1/w)",
    "IntuitionisticNegation": "1 if a = 0 else 0",
}


def formula(operator: Operator) -> str:
    """The formula of an operator; where it would be long, in terms of its t-norm T."""
    match operator:
        case TNorm():
            return _of(operator, "T", "T(a, b)")
        case TConorm(tnorm):
            return _of(tnorm, "S", "1 - T(1 - a, 1 - b)")
        case SImplication(TConorm(tnorm), StandardNegation()):
            return _of(tnorm, "S-implication", "1 - T(a, 1 - c)")
        case RImplication(tnorm):
            return _of(tnorm, "R-implication", "sup(b for T(a, b) ≤ c)")
        case SigmoidalImplication(implication=inner):
            return f"(1 - exp(-s·I))/(1 - exp(-s))·σ(s·(I + b0))/σ(s·(1 + b0)), I = {formula(inner)}"
        case TNormAggregator(tnorm):
            return _of(tnorm, "forall", "A(x)")
        case TConormAggregator(TConorm(tnorm)):
            return _of(tnorm, "exists", "A(x)")
        case LogProduct("mean"):
            return "mean(log(x))"
        case GeneralizedMeanError(1):
            return "1 - mean(1 - x)"
        case GeneralizedMean(1):
            return "mean(x)"
    unknown = "N(a)" if isinstance(operator, Negation) else "A(x)" if isinstance(operator, Aggregator) else "I(a, c)"
    return OTHERS.get(type(operator).__name__, unknown)


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


def table_box(title: str, operators: Mapping[str, Any]) -> str:
    """What a notebook shows of operators: the formula of each, and its parameters."""
    rows = []
    for name, operator in operators.items():
        known = isinstance(operator, TNorm | TConorm | Implication | Aggregator | Negation)
        text = formula(operator) if known else repr(operator)
        numbers = ", ".join(f"{letter} = {value:g}" for letter, value in parameters(operator).items())
        rows.append((name, type(operator).__name__, text, numbers))
    return box(table(("", "operator", "formula", "parameters"), rows), title=title)


def _of(tnorm: TNorm, what: str, otherwise: str) -> str:
    return FAMILIES.get((type(tnorm).__name__, what), otherwise)
