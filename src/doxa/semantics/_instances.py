"""What an axiom says once for every row or object: its instances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic import Axiom, Expr, Group, Interpretation, Name, Quantifier

__all__ = ["instances", "kept", "row_variable"]


def _outermost(formula: Expr) -> list[Group]:
    """The groups of variables of the outermost ``forall``."""
    groups: list[Group] = []
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        groups += formula.groups
        formula = formula.body
    return groups


def kept(axiom: Axiom, interpretation: Interpretation) -> tuple[str, ...]:
    """The variables of the outermost ``forall`` over rows or open sorts: a choice of them is an instance."""
    sorts = interpretation.kb.signature.sorts
    found: list[str] = []
    for group in _outermost(axiom.formula):
        open_sort = group.sort is not None and sorts[group.sort].values is None and not sorts[group.sort].is_integer
        if group.sample is None and (isinstance(group.domain, Name) or (group.domain is None and open_sort)):
            found += [name for name in group.names if name not in found]
        else:
            break  # what is bound inside may depend on it
    return tuple(found)


def instances(axiom: Axiom, interpretation: Interpretation, data: Mapping[str, Any]) -> int:
    """How many instances an axiom has on data, at least 1; guards are not looked at."""
    batch = interpretation.read(data)
    names, sizes = set(kept(axiom, interpretation)), []
    for group in _outermost(axiom.formula):
        for _ in names.intersection(group.names):
            if isinstance(group.domain, Name):
                sizes.append(batch.row_set(group.domain.name).size)
            elif group.sort is not None:
                sizes.append(batch.objects(group.sort).size)
    return max(1, math.prod(sizes))


def row_variable(axiom: Axiom) -> tuple[str, str]:
    """The variable of ``forall p in pairs`` at the beginning of an axiom, and the name of the rows."""
    groups = _outermost(axiom.formula)
    if not groups or not isinstance(groups[0].domain, Name) or len(groups[0].names) != 1:
        raise KnowledgeError(
            f"axiom {axiom.name!r} does not speak about rows one by one; it would begin like: forall p in pairs."
        )
    return groups[0].names[0], groups[0].domain.name
