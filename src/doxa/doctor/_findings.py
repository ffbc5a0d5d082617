"""Findings, and those that need no gradients: axioms that say nothing, knowledge that says too much, sure networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from doxa import _html
from doxa.doctor._layout import Layout, has_objects, ranged_rows
from doxa.doctor._observed import Compared, Place, compared_values
from doxa.doctor._right_worlds import INSTANCES
from doxa.doctor._scenes import seconds_left
from doxa.errors import DoxaError
from doxa.logic import (
    Axiom,
    Expr,
    Fact,
    Implies,
    Interpretation,
    KnowledgeBase,
    Not,
    Quantifier,
    satisfaction,
    satisfiable,
)
from doxa.logic.syntax._binders import leading_foralls
from doxa.problem._budget import Meter

_OBSERVATIONS = 256
_OBJECTS = 3
EDGE = 1e-3  # a truth value this near to 0 or 1 is saturated
SATURATED = 0.9  # more than this share of what a symbol says is saturated, while an axiom does not hold


@dataclass(frozen=True)
class Finding:
    """Something that was found, where, and what to change.

    >>> print(Finding("vanishing", "rule", "no atom gets a derivative", "take product"))
    [rule] vanishing: no atom gets a derivative
        take product
    """

    kind: str
    where: str
    says: str
    change: str

    def __str__(self) -> str:
        return f"[{self.where}] {self.kind}: {self.says}\n    {self.change}"

    def _repr_html_(self) -> str:
        return _html.said(self)


def empty_axioms(kb: KnowledgeBase, clock: Meter) -> tuple[list[Finding], str]:
    """Axioms that hold in every world, or whose antecedent is true in no world in which the others hold; and what was
    looked at, or why nothing could be decided."""
    signature = kb.signature
    undecided = "whether axioms are vacuous is not decided"
    formulas = [axiom.formula for axiom in kb.axioms]
    compared = compared_values(formulas, signature)
    for (name, field), numbers in compared.items():
        if numbers.unclear is not None:
            told = f"the numbers of {name}.{field} that `{numbers.unclear}` tells apart cannot be listed"
            return [], f"{undecided}: {told}"
    constants = [c.sort.name for c in signature.constants.values()]
    objects = {s.name: max(_OBJECTS, constants.count(s.name)) for s in signature.sorts.values() if has_objects(s)}
    rows = sorted(ranged_rows(*formulas) & set(signature.rows))
    layout = Layout(signature, dict.fromkeys(rows, 1), objects, _OBJECTS)
    domains = list(_domains(layout, compared))
    if not domains:
        return [], f"{undecided}: there are too many different observations"
    for axiom in kb.axioms:
        if (count := layout.instances(axiom.formula)) > INSTANCES:
            return [], f"{undecided}: {axiom.name!r} has {count:,} instances"

    nothing = Layout(signature, dict.fromkeys(rows, 1), {name: constants.count(name) for name in objects}, 0)

    # What is certain in every world; other facts are labels, which an axiom may repeat.
    given = [fact for fact in kb.facts if signature.predicates[fact.atom.name].closed]

    def possible(
        axioms: list[Axiom], facts: Sequence[Fact] = kb.facts, over: Sequence[dict[str, Any]] = domains
    ) -> bool:
        part = KnowledgeBase.from_parts(signature, axioms, facts)
        return any(satisfiable(part, domains=domain, seconds=seconds_left(clock)) is not None for domain in over)

    looked = f"vacuous axioms were looked for with {_OBJECTS} objects of each open sort and one row of each kind"
    try:
        found = []
        consistent = possible(list(kb.axioms))
        if not consistent:
            change = "doxa solve with fewer of them shows which contradict"
            found = [Finding("contradiction", "all axioms", "no world makes all axioms and facts true", change)]
        for axiom in kb.axioms:
            says = ""
            if not possible([Axiom("not", Not(axiom.formula))], given, [*domains, *_domains(nothing, compared)]):
                says = "holds in every world, so that it teaches nothing"
            elif (
                consistent
                and (active := _active(axiom))
                and not possible([*[a for a in kb.axioms if a is not axiom], active])
            ):
                says = "its antecedent is true in no world in which the other axioms hold"
            if says:
                found.append(Finding("vacuous", axiom.name, says, "leave it out, or say what was meant"))
        return found, looked
    except DoxaError as error:  # what cannot be grounded, or takes too long
        return [], f"{undecided}: {error}"


def implication(formula: Expr) -> Implies | None:
    """The implication behind the outermost ``forall``."""
    binders = leading_foralls(formula)
    formula = binders[-1].body if binders else formula
    return formula if isinstance(formula, Implies) else None


def _active(axiom: Axiom) -> Axiom | None:
    """That some instance of an implication has a true antecedent."""
    rule = implication(axiom.formula)
    if rule is None:
        return None
    formula = rule.children[0]
    for binder in reversed(leading_foralls(axiom.formula)):
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


def on_data(kb: KnowledgeBase, interpretation: Interpretation, data: Mapping[str, Any]) -> list[Finding]:
    """Vacuous axioms and saturated symbols."""
    with _heard(interpretation, kb) as said, torch.no_grad():
        report = satisfaction(kb, interpretation, generator=torch.Generator().manual_seed(0), **data)
    found = []
    for axiom in report.axioms:
        if axiom.vacuous:
            says = "it has no instances" if not axiom.instances else "its antecedent is never true"
            change = "on these data it teaches nothing; look at the data, the guard and the networks of the antecedent"
            found.append(Finding("vacuous", axiom.name, f"{says} in these data", change))
    broken = [axiom for axiom in report.axioms if axiom.name in kb and axiom.rate < 0.99]
    if not broken:
        return found
    worst = min(broken, key=lambda axiom: axiom.rate)
    for symbol, truths in said.items():
        values = torch.cat([t.reshape(-1) for t in truths])
        share = float((torch.minimum(values, 1 - values) < EDGE).double().mean()) if len(values) else 0.0
        if share > SATURATED:
            says = (
                f"{share:.0%} of what it says is within {EDGE} of 0 or 1, while [{worst.name}] holds for only "
                f"{worst.rate:.0%}: sure and wrong, with next to no derivative left"
            )
            change = "train from the start with a smaller learning rate or weight decay, or by a loss in log space"
            found.append(Finding("saturated", symbol, says, change))
    return found


@contextmanager
def _heard(interpretation: Interpretation, kb: KnowledgeBase) -> Iterator[dict[str, list[Tensor]]]:
    """The probabilities that each symbol gives while this is open; what is crisp by nature is left out."""
    said: dict[str, list[Tensor]] = {}

    def listen(name: str, returns: str, one_of_many: bool, output: Any) -> None:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return
        if returns == "logit":
            output = output.softmax(-1) if one_of_many else output.sigmoid()
        elif returns == "log_prob":
            output = output.exp()
        said.setdefault(name, []).append(output.detach())

    with ExitStack() as undo:
        for name in (*kb.signature.predicates, *kb.signature.functions):
            meaning = interpretation.meaning(name)
            returns = getattr(meaning, "returns", "")
            if returns not in ("prob", "logit", "log_prob"):
                continue
            one_of_many = name in kb.signature.functions or getattr(meaning, "exclusive", False)
            undo.callback(interpretation.listen(name, partial(listen, name, returns, one_of_many)))
        yield said
