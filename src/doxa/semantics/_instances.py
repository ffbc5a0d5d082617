"""What an axiom says once for every row or object: its instances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic import Axiom, Expr, Group, Interpretation, Name, Quantifier

__all__ = ["instances", "kept", "outer", "row_variable", "shape"]


def _outermost(formula: Expr) -> list[Group]:
    """The groups of variables of the outermost ``forall``."""
    groups: list[Group] = []
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        groups += formula.groups
        formula = formula.body
    return groups


def kept(axiom: Axiom, interpretation: Interpretation) -> tuple[str, ...]:
    """The variables of the outermost ``forall`` over rows or open sorts: a choice of them is an instance."""
    return _ranging(_outermost(axiom.formula), interpretation)


def outer(axiom: Axiom, interpretation: Interpretation) -> tuple[str, ...]:
    """Those of them that the first quantifier binds itself: in ``forall p in pairs. forall x: Node. ...`` only p."""
    formula = axiom.formula
    first = formula.groups if isinstance(formula, Quantifier) and formula.kind == "forall" else ()
    return _ranging(first, interpretation)


def _ranging(groups: Sequence[Group], interpretation: Interpretation) -> tuple[str, ...]:
    sorts = interpretation.kb.signature.sorts
    found: list[str] = []
    for group in groups:
        open_sort = group.sort is not None and sorts[group.sort].values is None and not sorts[group.sort].is_integer
        if group.sample is None and (isinstance(group.domain, Name) or (group.domain is None and open_sort)):
            found += [name for name in group.names if name not in found]
        else:
            break  # what is bound inside may depend on it
    return tuple(found)


def instances(axiom: Axiom, interpretation: Interpretation, data: Mapping[str, Any]) -> int:
    """How many instances an axiom has on data, at least 1; guards are not looked at."""
    return max(1, math.prod(shape(axiom, kept(axiom, interpretation), interpretation, data)))


def shape(
    axiom: Axiom, names: Sequence[str], interpretation: Interpretation, data: Mapping[str, Any]
) -> tuple[int, ...]:
    """How many rows or objects each of some variables of the outermost ``forall`` ranges over."""
    groups = _outermost(axiom.formula)
    batch = interpretation.read(data, [g.domain.name for g in groups if isinstance(g.domain, Name)])
    sizes = {}
    for group in groups:
        for name in set(names).intersection(group.names):
            if isinstance(group.domain, Name):
                sizes[name] = batch.row_set(group.domain.name).size
            elif group.sort is not None:
                sizes[name] = batch.objects(group.sort).size
    return tuple([sizes[name] for name in names])


def row_variable(axiom: Axiom) -> tuple[str, str]:
    """The variable of ``forall p in pairs`` at the beginning of an axiom, and the name of the rows."""
    groups = _outermost(axiom.formula)
    if not groups or not isinstance(groups[0].domain, Name) or len(groups[0].names) != 1:
        raise KnowledgeError(
            f"axiom {axiom.name!r} does not speak about rows one by one; it would begin like: forall p in pairs."
        )
    return groups[0].names[0], groups[0].domain.name
