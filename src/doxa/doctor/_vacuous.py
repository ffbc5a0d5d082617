"""Axioms that say nothing, and knowledge that says too much: found by a SAT solver."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from doxa.doctor._layout import Layout, has_objects, ranged_rows
from doxa.doctor._observed import Compared, Place, compared_values
from doxa.errors import DoxaError
from doxa.logic import Axiom, Implies, KnowledgeBase, Not, Quantifier, satisfiable
from doxa.logic.syntax._binders import leading_foralls

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
    signature = kb.signature
    compared = compared_values(kb.axioms, signature)
    for (rows, field), numbers in compared.items():
        if numbers.unclear is not None:
            undecided = f"the numbers of {rows}.{field} that `{numbers.unclear}` tells apart cannot be listed"
            return {}, f"whether axioms are vacuous is not decided: {undecided}"
    constants = [c.sort.name for c in signature.constants.values()]
    objects = {s.name: max(_OBJECTS, constants.count(s.name)) for s in signature.sorts.values() if has_objects(s)}
    rows_ = sorted(ranged_rows(*[axiom.formula for axiom in kb.axioms]) & set(signature.rows))
    layout = Layout(signature, dict.fromkeys(rows_, 1), objects, _OBJECTS)
    domains = list(_domains(layout, compared))
    if not domains:
        return {}, "whether axioms are vacuous is not decided: there are too many different observations"
    for axiom in kb.axioms:
        if (count := layout.instances(axiom.formula)) > _INSTANCES:
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


def _possible(kb: KnowledgeBase, domains: list[dict[str, Any]]) -> bool:
    return any(satisfiable(kb, domains=domain) is not None for domain in domains)


def _only(kb: KnowledgeBase, axioms: list[Axiom], facts: bool = False) -> KnowledgeBase:
    return KnowledgeBase.from_parts(kb.signature, axioms, kb.facts if facts else ())


def _active(axiom: Axiom) -> Axiom | None:
    """That some instance of an implication has a true antecedent."""
    binders = leading_foralls(axiom.formula)
    formula = binders[-1].body if binders else axiom.formula
    if not isinstance(formula, Implies):
        return None
    formula = formula.children[0]
    for binder in reversed(binders):
        formula = Quantifier("exists", binder.groups, formula, guard=binder.guard)
    return Axiom("active", formula)


def _domains(layout: Layout, compared: dict[Place, Compared]) -> Iterator[dict[str, Any]]:
    """Objects and one row, for every observation; nothing where there are too many."""
    choices: list[list[Any]] = []
    for place, sort in layout.observed.items():
        numbers = compared.get(place)
        choices.append(list(sort.values or ([0] if numbers is None else numbers.values(sort))))
    if math.prod([len(c) for c in choices]) > _OBSERVATIONS:
        return
    known = {place: [f"{layout.sorts[place].name}{i}" for i in cells] for place, cells in layout.cells.items()}
    for values in product(*choices):
        seen = {place: [v] * layout.total(*place) for place, v in zip(layout.observed, values, strict=True)}
        rows: dict[str, dict[str, Any]] = {name: {} for name in layout.rows}
        for place, column in (known | seen).items():
            rows[place[0]][place[1]] = column if place in layout.lengths else column[0]
        yield layout.objects | {name: [row] for name, row in rows.items()}
