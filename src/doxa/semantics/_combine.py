"""How the losses of axioms are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import And, Axiom, Expr, Group, Name, Quantifier, first_forall, postorder

__all__ = ["joint_axiom", "require_unweighted", "together"]


def joint_axiom(axioms: Sequence[Axiom]) -> Axiom:
    """One axiom that says all of them.

    Where all begin with ``forall`` over the same rows or objects, it is the conjunction for each of these: its
    instances are theirs. Elsewhere it is one event.
    """
    require_unweighted(axioms, "joint")
    firsts = [first_forall(axiom.formula) for axiom in axioms]
    kinds = {None if q is None else tuple((g.sort, g.domain, len(g.names), g.sample) for g in q.groups) for q in firsts}
    if len(kinds) > 1 or None in kinds or any(q is not None and q.guard is not None for q in firsts):
        return Axiom("joint", axioms[0].formula if len(axioms) == 1 else And(*[a.formula for a in axioms]))
    first = firsts[0]
    assert first is not None
    names = [f"{name}'" for name in first.names]  # no name of the language ends so
    bodies = [_renamed(q.body, dict(zip(q.names, names, strict=True))) for q in firsts if q is not None]
    fresh = iter(names)
    groups = [
        Group([next(fresh) for _ in g.names], sort=g.sort, domain=g.domain, sample=g.sample) for g in first.groups
    ]
    return Axiom("joint", Quantifier("forall", groups, And(*bodies) if len(bodies) > 1 else bodies[0]))


def _renamed(root: Expr, names: dict[str, str]) -> Expr:
    """The formula with other names for its free variables; binders inside that use one of them keep it."""
    bound = {n for node in postorder(root) for n in getattr(node, "names", ()) if isinstance(node, Quantifier)}
    if bound & set(names):
        raise ConfigError(
            f"a variable {sorted(bound & set(names))[0]!r} is bound twice, one inside the other; rename one of them "
            "to combine the axioms jointly"
        )
    made: dict[int, Expr] = {}
    for node in postorder(root):
        children = tuple([made[id(c)] for c in node.children])
        made[id(node)] = (
            Name(names[node.name])
            if isinstance(node, Name) and node.name in names
            else (node.with_children(children) if children else node)
        )
    return made[id(root)]


def require_unweighted(axioms: Sequence[Axiom], how: str) -> None:
    """Weights make sense in a sum only."""
    for axiom in axioms:
        if axiom.learnable or axiom.weight != 1:
            weight = "?" if axiom.learnable else f"{axiom.weight:g}"
            raise ConfigError(
                f"axiom {axiom.name!r} has weight {weight}, but combine={how!r} takes all axioms alike; leave the "
                "weight out, or combine them by their weighted 'sum'"
            )


def together(losses: Sequence[Tensor], is_log: Sequence[bool], aggregate: Callable[[Tensor], Tensor]) -> Tensor:
    """1 - A(truths), for an aggregator A such as LTN's p-mean error."""
    truths = [(-loss).exp() if log else 1 - loss for loss, log in zip(losses, is_log, strict=True)]
    return 1 - aggregate(torch.stack(truths))
