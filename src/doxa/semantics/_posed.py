"""Who poses the problems of axioms; kept by the interpretation, so that formulas are unfolded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from doxa.logic import Axiom, Interpretation
from doxa.pose import KnowledgeReasoner, Posed
from doxa.semantics._instances import kept

__all__ = ["in_order", "posers"]


def posers(
    axioms: Sequence[Axiom], interpretation: Interpretation, keep: Callable[..., tuple[str, ...]] = kept
) -> list[KnowledgeReasoner]:
    """One for each axiom, instance by instance, where ``keep`` says which variables make an instance."""
    found = []
    for axiom in axioms:
        names = keep(axiom, interpretation)
        key = ("posed", axiom.formula, names)
        make = partial(KnowledgeReasoner, axiom, interpretation, keep=names)
        found.append(interpretation.plans.find(key, make))
    return found


def in_order(posed: Posed, truths: Sequence[Tensor]) -> Tensor:
    """The truth of every unit in order, from those of the units of each problem; the others are certain."""
    like = truths[0] if truths else torch.zeros(())
    certain = like.new_ones(posed.count)
    certain[posed.violated.to(like.device)] = 0
    if not truths:
        return certain
    places = torch.cat([units for _, _, units in posed.problems]).to(like.device)
    return certain.index_put((places,), torch.cat(list(truths)))
