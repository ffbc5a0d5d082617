"""From an operator to its refinement function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from doxa import fuzzy
from doxa.errors import ConfigError
from doxa.refine import _closed as closed
from doxa.refine import _implication as implications
from doxa.refine._base import Dual, Junction, Refinement
from doxa.refine._numerical import NumericalRefinement, NumericalResiduumRefinement

Found = TypeVar("Found", bound=Refinement)

_JUNCTIONS: Mapping[type[fuzzy.TNorm], Callable[[Any], Junction]] = {
    fuzzy.Godel: closed.GodelRefinement,
    fuzzy.Lukasiewicz: closed.LukasiewiczRefinement,
    fuzzy.Product: closed.ProductRefinement,
    fuzzy.NilpotentMinimum: closed.NilpotentRefinement,
    fuzzy.Drastic: closed.DrasticRefinement,
}
_RESIDUA: Mapping[type[fuzzy.TNorm], Callable[[Any], Refinement]] = {
    fuzzy.NilpotentMinimum: implications.FodorRefinement,
    fuzzy.Drastic: implications.WeberRefinement,
}


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
    match operator:
        case fuzzy.TNorm():
            return _junction(operator, p)
        case fuzzy.TConorm():
            return Dual(_junction(operator.tnorm, p))
        case fuzzy.SImplication():
            if operator.negation != fuzzy.STANDARD:
                raise ConfigError(f"{operator!r} has another negation than the standard negation, 1 - a")
            return implications.SImplicationRefinement(Dual(_junction(operator.tconorm.tnorm, p)))
        case fuzzy.RImplication(fuzzy.Lukasiewicz()):  # both S and R
            return implications.SImplicationRefinement(Dual(_junction(operator.tnorm, p)))
        case fuzzy.RImplication(fuzzy.Godel()):
            return implications.GodelResiduumRefinement(operator, p or 1.0)
        case fuzzy.RImplication():
            closed_form = _family(operator.tnorm, _RESIDUA, implications.ResiduumRefinement)(operator)
            return _minimal(closed_form, operator, operator.tnorm, p) or NumericalResiduumRefinement(operator, p or 1.0)
    known = "t-norms, t-conorms, S-implications with the standard negation, and residua"
    raise ConfigError(f"{operator!r} has no refinement function; there are those of {known}")


def _junction(tnorm: fuzzy.TNorm, p: float | None) -> Junction:
    closed_form = _family(tnorm, _JUNCTIONS, closed.GeneratorRefinement)(tnorm)
    return _minimal(closed_form, tnorm, tnorm, p) or NumericalRefinement(tnorm, p or 1.0)


def _family(
    tnorm: fuzzy.TNorm, table: Mapping[type[fuzzy.TNorm], Callable[[Any], Found]], generated: Callable[[Any], Found]
) -> Callable[[Any], Found]:
    """What refines the family of a t-norm: its own, or that of any additive generator."""
    for family, own in table.items():
        if isinstance(tnorm, family):
            return own
    if tnorm.generator is None:
        raise ConfigError(f"{tnorm!r} has no additive generator, and so no refinement function")
    return generated


def _minimal(closed_form: Found, operator: object, tnorm: fuzzy.TNorm, p: float | None) -> Found | None:
    """The closed form if it is minimal as asked for; None if a search has to be."""
    if p is None or closed_form.minimal_for(p):
        return closed_form
    if tnorm.generator is None:
        raise ConfigError(f"the refinement of {operator!r} is minimal for L1 only, p={p} was asked for; take p=1")
    return None
