"""Which rows of an axiom share a variable, so that they cannot be taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from doxa.logic import Expr, Name, Quantifier, postorder
from doxa.logic.syntax._binders import Group, first_forall

__all__ = ["joined", "repeated", "row_by_row"]


def row_by_row(formula: Expr) -> Group | None:
    """What a formula ranges over with its first variable and nowhere else: rows, or an open sort."""
    outermost = first_forall(formula)
    if outermost is None:
        return None
    group = outermost.groups[0]
    if len(group.names) > 1 or group.sample is not None or not isinstance(group.domain, Name | None):
        return None
    over = (group.sort, group.domain)
    every = [g for node in postorder(formula) if isinstance(node, Quantifier) for g in node.groups]
    return group if [(g.sort, g.domain) for g in every].count(over) == 1 else None


def repeated(variable: Tensor) -> Tensor:
    """The places of the variables that are in more than one instance."""
    return (variable.bincount()[variable] > 1).nonzero().squeeze(1) if len(variable) else variable


def joined(count: int, instances: Sequence[int], variables: Sequence[int]) -> list[list[int]]:
    """Instances that share a variable, directly or through others, together."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    holder: dict[int, int] = {}
    for instance, variable in zip(instances, variables, strict=True):
        parent[root(instance)] = root(holder.setdefault(variable, instance))
    together: dict[int, list[int]] = {}
    for i in range(count):
        together.setdefault(root(i), []).append(i)
    return list(together.values())
