"""Does knowledge contradict itself? Asked of a solver, within limits; said only where it is proven."""

from __future__ import annotations

import time
from collections.abc import Sequence

from doxa.errors import BudgetError, DoxaError
from doxa.logic.check._lint import Places
from doxa.logic.sat._solve import satisfiable
from doxa.logic.syntax._binders import Quantifier, leading_foralls
from doxa.logic.syntax._diagnostics import Diagnostic
from doxa.logic.syntax._kb import Axiom, Fact, KnowledgeBase
from doxa.logic.syntax._symbols import INT, REAL, Signature
from doxa.logic.syntax._tree import Call, Expr, postorder

ENTRIES = 200_000
"""Larger knowledge is not looked at."""
_SHOWN = 4
_MOST = 64
"""Of more axioms or facts, it is not looked for the few that contradict each other."""
_PLAIN = {"Name", "Number", "Truth", "Call", "Arith", "Compare", "Not", "And", "Or", "Xor", "Implies", "Iff", "Let"}


def contradiction(kb: KnowledgeBase, places: Places | None = None, *, seconds: float = 5.0) -> Diagnostic | None:
    """The axioms and facts that no world makes true together, or None: there are none, or it could not be decided.

    Only what must hold counts: axioms and facts with a weight of their own may be broken. Objects of open sorts that
    the knowledge does not name may exist, so of axioms about these only universal ones are asked about, whose truth
    for all objects is truth for the named ones.

    >>> from doxa.logic import parse
    >>> print(contradiction(parse("pred rain, wet; [soaked] rain -> wet; fact rain; fact !wet")))
    error: no world makes all of this true: fact rain; fact !wet; [soaked] rain -> wet
        take one of them back, or give the axiom a weight if learning may break it: [soaked, weight 0.5]
    >>> contradiction(parse("sort Day; const today: Day; pred dry(Day); fact dry(today); exists d: Day. !dry(d)"))
    """
    signature = kb.signature
    axioms = [a for a in kb.axioms if a.weight == 1.0 and not a.learnable and _decidable(a.formula, signature)]
    facts = [f for f in kb.facts if f.weight == 1.0 and _decidable(f.atom, signature)]
    end = time.monotonic() + seconds

    named = {c.sort.name for c in kb.signature.constants.values()}
    domains = {
        s.name: 0 for s in kb.signature.sorts.values() if s.is_open and s not in (INT, REAL) and s.name not in named
    }

    def possible(some: Sequence[Axiom], told: Sequence[Fact]) -> bool:
        part = KnowledgeBase.from_parts(kb.signature, some, told)
        return (
            satisfiable(part, domains=domains, entries=ENTRIES, seconds=max(end - time.monotonic(), 1e-3)) is not None
        )

    try:
        if not axioms or possible(axioms, facts):
            return None
    except DoxaError:
        return None
    try:
        alone = next((a for a in axioms if len(axioms) <= _MOST and not possible([a], facts)), None)
        axioms = [alone] if alone is not None else axioms
        for axiom in list(axioms) if 1 < len(axioms) <= _MOST else ():
            fewer = [a for a in axioms if a is not axiom]
            axioms = axioms if possible(fewer, facts) else fewer
        if len(facts) > _MOST and not possible(axioms, []):
            facts = []
        for fact in list(facts) if len(facts) <= _MOST else ():
            rest = [f for f in facts if f is not fact]
            facts = facts if possible(axioms, rest) else rest
    except BudgetError:
        pass  # proven all the same; only more is named than is needed
    return _told(kb, axioms, facts, places or Places())


def _told(kb: KnowledgeBase, axioms: Sequence[Axiom], facts: Sequence[Fact], places: Places) -> Diagnostic:
    parts = [str(part) for part in (*facts, *axioms)]
    more = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    message = f"no world makes all of this true: {'; '.join(parts[:_SHOWN])}{more}"
    name = axioms[0].name if axioms and axioms[0].named else ""
    soft = f"[{name}, weight 0.5]" if name else "[weight 0.5]"
    remedy = f"take one of them back, or give the axiom a weight if learning may break it: {soft}"
    span = places.fact(next(i for i, f in enumerate(kb.facts) if f is facts[0])) if facts else None
    if span is None and axioms:
        located = places.axiom(next(i for i, a in enumerate(kb.axioms) if a is axioms[0]))
        span = None if located is None else located[1](located[0], "")
    return Diagnostic("error", message, remedy, span)


def _decidable(formula: Expr, signature: Signature) -> bool:
    """Is what a formula says of all objects right for the named ones too, and can it be grounded?"""
    nodes = list(postorder(formula))
    groups = [group for node in nodes for group in getattr(node, "groups", ())]
    if any(g.domain is not None or g.sample is not None for g in groups):
        return False
    called = [signature.functions.get(node.name) for node in nodes if isinstance(node, Call)]
    if any(function is not None and function.result.is_open for function in called):
        return False
    defined = any(node.name in signature.definitions for node in nodes if isinstance(node, Call))
    if defined and any(s.is_open and s not in (INT, REAL) for s in signature.sorts.values()):
        return False  # a definition may speak of objects that are not named
    if not any(signature.sorts[g.sort].is_open for g in groups if g.sort in signature.sorts):
        return True
    binders = leading_foralls(formula)
    parts = [b.guard for b in binders if b.guard is not None] + [binders[-1].body] if binders else [formula]
    inner = [type(node).__name__ for part in parts for node in postorder(part)]
    return all(isinstance(b, Quantifier) and b.kind == "forall" for b in binders) and set(inner) <= _PLAIN
