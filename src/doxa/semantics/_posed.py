"""Who poses the problems of axioms; kept by the interpretation, so that formulas are unfolded once."""

from __future__ import annotations

from collections.abc import Sequence

from doxa.exact import KnowledgeReasoner
from doxa.logic import Axiom, Interpretation
from doxa.semantics._instances import kept

__all__ = ["posers"]

KEPT = 64
"""An interpretation keeps so many plans, and lets the oldest go."""


def posers(axioms: Sequence[Axiom], interpretation: Interpretation) -> list[KnowledgeReasoner]:
    """One for each axiom, instance by instance."""
    plans, found = interpretation.plans, []
    for axiom in axioms:
        key = ("posed", axiom.formula)
        if key not in plans:
            while len(plans) >= KEPT:
                del plans[next(iter(plans))]
            plans[key] = KnowledgeReasoner(axiom, interpretation, keep=kept(axiom, interpretation))
        found.append(plans[key])
    return found
