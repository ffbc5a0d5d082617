"""Axioms that say nothing, and knowledge that says too much: found by a SAT solver."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from doxa.doctor._observed import Compared, Place, compared_values
from doxa.doctor._random_worlds import groundings
from doxa.errors import DoxaError
from doxa.logic import INT, REAL, Axiom, Implies, KnowledgeBase, Name, Not, Quantifier, postorder, satisfiable
from doxa.logic.syntax._binders import Group

__all__ = ["Emptiness", "emptiness"]

_OBSERVATIONS = 256
_OBJECTS = 3
_INSTANCES = 1 << 16  # of an axiom

Emptiness = dict[str, str]
"""What is wrong, by the name of the axiom; the empty name is for the whole knowledge base."""


def emptiness(kb: KnowledgeBase) -> tuple[Emptiness, str]:
    """Axioms that hold in every world, or whose antecedent is true in no world in which the others hold.

    Looked for over a few objects of each open sort and one row of each kind, under every observation. The second
    result says what was looked at, or why nothing could be decided.
    """
    compared = compared_values(kb.axioms, kb.signature)
    for (rows, field), numbers in compared.items():
        if numbers.unclear is not None:
            undecided = f"the numbers of {rows}.{field} that `{numbers.unclear}` tells apart cannot be listed"
            return {}, f"whether axioms are vacuous is not decided: {undecided}"
    domains = list(_domains(kb, compared))
    if not domains:
        return {}, "whether axioms are vacuous is not decided: there are too many different observations"
    for axiom in kb.axioms:
        if (count := groundings(axiom.formula, lambda group: _count(kb, group))) > _INSTANCES:
            return {}, f"whether axioms are vacuous is not decided: {axiom.name!r} has {count:,} instances"
    looked = f"with {_OBJECTS} objects of each open sort and one row of each kind"
    try:
        if not _possible(kb, domains):
            return {"": "no world makes all axioms and facts true"}, looked
        found: Emptiness = {}
        for axiom in kb.axioms:
            others = [a for a in kb.axioms if a is not axiom]
            if not _possible(_only(kb, [Axiom("not", Not(axiom.formula))]), domains):
                found[axiom.name] = "holds in every world, so that it teaches nothing"
            elif (active := _active(axiom)) and not _possible(_only(kb, [*others, active], facts=True), domains):
                found[axiom.name] = "its antecedent is true in no world in which the other axioms hold"
        return found, looked
    except DoxaError as error:  # what cannot be grounded
        return {}, f"whether axioms are vacuous is not decided: {error}"


def _count(kb: KnowledgeBase, group: Group) -> int:
    """How many objects or rows a variable ranges over; rows have up to so many objects in each field."""
    values = None if group.sort is None else kb.signature.sorts[group.sort].values
    return 1 if isinstance(group.domain, Name) else _OBJECTS if values is None else len(values)


def _possible(kb: KnowledgeBase, domains: list[dict[str, Any]]) -> bool:
    return any(satisfiable(kb, domains=domain) is not None for domain in domains)


def _only(kb: KnowledgeBase, axioms: list[Axiom], facts: bool = False) -> KnowledgeBase:
    return KnowledgeBase.from_parts(kb.signature, axioms, kb.facts if facts else ())


def _active(axiom: Axiom) -> Axiom | None:
    """That some instance of an implication has a true antecedent."""
    binders, formula = [], axiom.formula
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        binders.append(formula)
        formula = formula.body
    if not isinstance(formula, Implies):
        return None
    formula = formula.children[0]
    for binder in reversed(binders):
        formula = Quantifier("exists", binder.groups, formula, guard=binder.guard)
    return Axiom("active", formula)


def _domains(kb: KnowledgeBase, compared: dict[Place, Compared]) -> Iterator[dict[str, Any]]:
    """Objects and one row, for every observation; nothing where there are too many."""
    signature = kb.signature
    constants = [c.sort.name for c in signature.constants.values()]
    objects: dict[str, Any] = {
        s.name: max(_OBJECTS, constants.count(s.name))
        for s in signature.sorts.values()
        if s.is_open and s not in (INT, REAL)
    }
    rows: dict[str, int] = {}
    for axiom in kb.axioms:
        for node in postorder(axiom.formula):
            for group in node.groups if isinstance(node, Quantifier) else ():
                if isinstance(group.domain, Name) and group.domain.name in signature.rows:
                    rows[group.domain.name] = 1
    fields, choices, fixed = [], [], {}
    for name in rows:
        for field, sort, many in signature.rows[name].fields:
            if sort.is_open and sort not in (INT, REAL):
                listed = [f"{name}_{field}{i}" for i in range(_OBJECTS if many else 1)]
                fixed[name, field] = listed if many else listed[0]
                total = objects[sort.name]
                known = [f"{sort.name}{i}" for i in range(total)] if isinstance(total, int) else total
                objects[sort.name] = [*known, *listed] if sort.name not in constants else total
            else:
                fields.append((name, field, many))
                numbers = compared.get((name, field))
                values = sort.values or ([0] if numbers is None else numbers.values(sort))
                choices.append(list(values))
    if math.prod([len(c) for c in choices]) > _OBSERVATIONS:
        return
    for values in product(*choices):
        seen = {(n, f): [v] * _OBJECTS if many else v for (n, f, many), v in zip(fields, values, strict=True)}
        everything = fixed | seen
        yield objects | {n: [{f: v for (m, f), v in everything.items() if m == n}] for n in rows}
