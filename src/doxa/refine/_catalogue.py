"""From an operator to its refinement function."""

from __future__ import annotations

import math
from functools import singledispatch

from doxa.errors import ConfigError
from doxa.fuzzy import (
    STANDARD,
    Drastic,
    Godel,
    Lukasiewicz,
    NilpotentMinimum,
    Product,
    RImplication,
    SImplication,
    TConorm,
    TNorm,
)
from doxa.refine._base import Refinement
from doxa.refine._generated import GeneratorRefinement
from doxa.refine._implication import (
    FodorRefinement,
    GodelResiduumRefinement,
    ImplicationRefinement,
    ResiduumRefinement,
    SImplicationRefinement,
    WeberRefinement,
)
from doxa.refine._junction import Dual, Junction
from doxa.refine._linear import LukasiewiczRefinement
from doxa.refine._numerical import NumericalRefinement, NumericalResiduumRefinement
from doxa.refine._order import DrasticRefinement, GodelRefinement, NilpotentRefinement
from doxa.refine._product import ProductRefinement

__all__ = ["refinement"]


def refinement(operator: object, p: float | None = None) -> Refinement:
    """The minimal refinement function of a t-norm, a t-conorm, an S-implication or a residuum.

    Args:
        operator: the operator, from :mod:`doxa.fuzzy`.
        p: the p-norm in which the result must be minimal: a closed form where one is, a numerical search
            (``.numerical``) where none is. None takes the closed form, whatever it is minimal for (``.norms``).

    >>> from doxa.fuzzy import Godel, Product, Yager
    >>> refinement(Product().dual).norms, refinement(Godel().residuum, p=2).norms
    ((1.0, 1.0), (1.0, inf))
    >>> [refinement(*case).numerical for case in ((Product(), 2), (Yager(0.5), 1), (Yager(2.0), 1))]
    [True, True, False]
    """
    if p is not None and not (1 <= p < math.inf):
        raise ConfigError(f"p is {p}, expected a finite number of at least 1, or None for the closed form")
    return _refinement(operator, p)


@singledispatch
def _refinement(operator: object, p: float | None) -> Refinement:
    raise ConfigError(
        f"{operator!r} has no refinement function; there are those of t-norms, t-conorms, S-implications with the "
        "standard negation, and residua"
    )


@_refinement.register
def _(operator: TNorm, p: float | None) -> Junction:
    closed: Junction
    g = operator.generator
    match operator:
        case Godel():
            closed = GodelRefinement(operator)
        case Lukasiewicz():
            closed = LukasiewiczRefinement(operator)
        case Product():
            closed = ProductRefinement(operator)
        case NilpotentMinimum():
            closed = NilpotentRefinement(operator)
        case Drastic():
            closed = DrasticRefinement(operator)
        case _ if g is not None:
            closed = GeneratorRefinement(operator)
        case _:
            raise ConfigError(f"{operator!r} has no additive generator, and so no refinement function")
    if p is None or closed.minimal_for(p):
        return closed
    if g is None:
        raise ConfigError(f"the refinement of {operator!r} is minimal for L1 only, p={p} was asked for; take p=1")
    return NumericalRefinement(operator, p)


@_refinement.register
def _(operator: TConorm, p: float | None) -> Dual:
    inner = _refinement(operator.tnorm, p)
    assert isinstance(inner, Junction)
    return Dual(inner)


@_refinement.register
def _(operator: SImplication, p: float | None) -> ImplicationRefinement:
    if operator.negation != STANDARD:
        raise ConfigError(f"{operator!r} has the negation {operator.negation!r}, expected the standard one, 1 - a")
    inner = _refinement(operator.tconorm, p)
    assert isinstance(inner, Dual)
    return SImplicationRefinement(operator, inner)


@_refinement.register
def _(operator: RImplication, p: float | None) -> ImplicationRefinement:
    match operator.tnorm:
        case Lukasiewicz():  # both S and R
            inner = _refinement(operator.tnorm.dual, p)
            assert isinstance(inner, Dual)
            return SImplicationRefinement(SImplication(operator.tnorm.dual), inner)
        case Godel():
            return GodelResiduumRefinement(operator, p or 1.0)
        case NilpotentMinimum():
            closed: ImplicationRefinement = FodorRefinement(operator)
        case Drastic():
            closed = WeberRefinement(operator)
        case _:
            closed = ResiduumRefinement(operator)
    if p is None or closed.minimal_for(p):
        return closed
    if operator.tnorm.generator is None:
        raise ConfigError(f"the refinement of {operator!r} is minimal for L1 only, p={p} was asked for; take p=1")
    return NumericalResiduumRefinement(operator, p)
