"""The free variables of formulas."""

from __future__ import annotations

from doxa.logic.syntax._binders import Let, Quantifier
from doxa.logic.syntax._tree import Expr, Name
from doxa.logic.syntax._walk import postorder

__all__ = ["free_of_binder", "free_variables"]


def free_variables(*roots: Expr) -> dict[int, frozenset[str]]:
    """By ``id(node)``: the variables of enclosing binders that each node below the roots mentions.

    A name that no binder of any root binds is a constant and left out. Later groups and values of a binder see its
    earlier variables.

    >>> from doxa.logic import Call, Name, Sort, forall, variables
    >>> (x,) = variables("x", Sort("Person"))
    >>> likes = Call("likes", (x, Name("bob")))
    >>> rule = forall(x)(likes)
    >>> free = free_variables(rule)
    >>> sorted(free[id(likes)]), sorted(free[id(rule)])
    (['x'], [])
    """
    nodes = list(postorder(*roots))
    bound = {name for n in nodes if isinstance(n, Quantifier | Let) for name in n.names}
    none: frozenset[str] = frozenset()
    free: dict[int, frozenset[str]] = {}
    for node in nodes:
        below = [free[id(c)] for c in node.children]
        if isinstance(node, Name):
            free[id(node)] = frozenset((node.name,)) if node.name in bound else none
        elif isinstance(node, Quantifier | Let):
            free[id(node)] = free_of_binder(node, below)
        else:
            different = set(below)
            free[id(node)] = different.pop() if len(different) == 1 else none.union(*different)
    return free


def free_of_binder(node: Quantifier | Let, below: list[frozenset[str]]) -> frozenset[str]:
    """The variables that a binder takes from outside, given those of its children."""
    found: set[str] = set()
    earlier: set[str] = set()
    inside = iter(below)
    groups = [((name,), None, None) for name in node.names] if isinstance(node, Let) else node.label[2]
    for names, sort, _ in groups:
        if sort is None:  # the value of a Let, or the domain of a group
            found |= next(inside) - earlier
        earlier.update(names)
    return frozenset(found.union(*[names - earlier for names in inside]))
