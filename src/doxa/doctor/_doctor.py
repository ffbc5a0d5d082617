"""The examination of a knowledge base under a fuzzy logic: what its gradients will do, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._made_up import MadeUp
from doxa.doctor._operators import weakest
from doxa.doctor._vacuous import emptiness
from doxa.errors import ConfigError, KnowledgeError
from doxa.fuzzy import FuzzyPlan, GradientMeasures, Logic, logic, measure
from doxa.logic import Call, Expr, Implies, Interpretation, KnowledgeBase, Quantifier, postorder, satisfaction

__all__ = ["Examination", "Finding", "Tried", "examine", "heard", "on_data"]

VANISHING = 0.5
"""No atom gets a derivative on more than this share of random truth values."""
ONE_SIDED = 0.9
"""More than this share of the derivatives goes to the antecedents, or to the consequents."""
EDGE = 1e-3
"""A truth value this near to 0 or 1 is saturated."""
SATURATED = 0.9
"""More than this share of what a symbol says is saturated, while an axiom does not hold."""
ALTERNATIVES = ("log_product", "recommended", "product", "ltn")
"""Logics that are tried in place of one that has findings."""


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


@dataclass(frozen=True)
class Tried:
    """What the gradient of an axiom did on random truth values.

    Args:
        gone: on which share of them no atom got a derivative.
        most: how many atoms got one, at most.
        atoms: how many atoms the axiom has.
        balance: how the derivatives went to antecedents and consequents; None if it is no implication.

    >>> Tried(0.0, 1, 12, None).single_passing
    True
    """

    gone: float
    most: int
    atoms: int
    balance: GradientMeasures | None

    @property
    def single_passing(self) -> bool:
        """Does at most one of several atoms get a derivative?"""
        return self.atoms > 1 and self.most == 1


@dataclass(frozen=True)
class Examination:
    """What was looked at, axiom by axiom, and what was found.

    >>> print(Examination("product", {}, (), ("tried on 64 random worlds",)))
    under product:
    nothing found
    tried on 64 random worlds
    """

    logic: str
    axioms: Mapping[str, Tried]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = field(default=())

    def of(self, kind: str) -> list[str]:
        """The axioms or symbols with a finding of this kind.

        >>> Examination("godel", {}, (Finding("vacuous", "rule", "", ""),)).of("vacuous")
        ['rule']
        """
        return [finding.where for finding in self.findings if finding.kind == kind]

    def __str__(self) -> str:
        lines = [f"under {self.logic}:"] if self.logic else []
        if self.axioms:
            rows: list[tuple[str, ...]] = [
                ("axiom", "no gradient", "atoms reached", "modus ponens", "modus tollens", "both")
            ]
            rows += [(name, *_cells(tried)) for name, tried in self.axioms.items()]
            widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
            lines += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [str(finding) for finding in self.findings] or ["nothing found"]
        return "\n".join([*lines, *self.notes])


def examine(
    kb: KnowledgeBase,
    chosen: Logic | str = "product",
    *,
    interpretation: Interpretation | None = None,
    data: Mapping[str, Any] | None = None,
    draws: int = 64,
    objects: int = 4,
    generator: torch.Generator | None = None,
) -> Examination:
    """Find out what may go wrong with knowledge under a logic, by trying.

    On random truth values: *vanishing* gradients (no atom gets a derivative), *single-passing* axioms (at most one atom
    does), and *one-sided* ones (all of it goes to the antecedents, or all to the consequents). By a SAT solver:
    *vacuous* axioms, and knowledge that contradicts itself. With an interpretation and data, the balance is that on the
    data, axioms are vacuous when nothing in the data makes their antecedent true, and symbols are *saturated* when what
    they say is 0 or 1 while knowledge about them does not hold.

    Args:
        kb: the knowledge.
        chosen: a logic or its name.
        interpretation: the meaning of the symbols, to look at data as well.
        data: objects and rows, by name.
        draws: so many random truth values are tried.
        objects: of each open sort, and rows of each kind, on which they are tried.
        generator: draws them; by default the same ones every time.

    >>> from doxa.logic import parse
    >>> kb = parse("sort Bird; pred raven(Bird); pred black(Bird); [rule] forall x: Bird. raven(x) -> black(x)")
    >>> examine(kb, "godel").of("single-passing"), examine(kb, "product").findings
    (['rule'], ())
    """
    if draws < 1 or objects < 1:
        raise ConfigError(f"draws is {draws} and objects is {objects}, expected at least 1")
    if not kb.axioms:
        raise KnowledgeError("the knowledge has no axioms, so there is nothing to examine")
    operators = logic(chosen) if isinstance(chosen, str) else chosen
    generator = generator or torch.Generator().manual_seed(0)
    world = MadeUp(kb, objects, generator)
    tried = _try(kb, operators, world, draws)
    notes = [f"tried on {draws} random worlds of {objects} objects or rows of each kind"]
    if interpretation is not None:
        measured = _balance(kb, interpretation, operators, data or {})
        tried = {n: Tried(t.gone, t.most, t.atoms, measured.get(n)) for n, t in tried.items()}
        if measured:
            notes.append("modus ponens and tollens are those on the data")
    findings = _gradients(kb, operators, world, tried)
    if findings and (better := _better(kb, operators, world, draws, findings)):
        notes.append(f"without these gradients: {better}")
    if interpretation is None:
        found, looked = emptiness(kb)
        findings += [_empty(name, says) for name, says in found.items()]
        notes.append(looked if looked.startswith("whether") else f"vacuous axioms were looked for {looked}")
    else:
        findings += on_data(kb, interpretation, data or {})
    return Examination(operators.name or str(operators), tried, tuple(findings), tuple(notes))


def _try(kb: KnowledgeBase, operators: Logic, world: MadeUp, draws: int) -> dict[str, Tried]:
    """The derivatives of each axiom on random truth values."""
    plan = FuzzyPlan(kb, world.interpretation, operators)
    atoms = list(world.atoms.values())
    reached: list[list[int]] = [[] for _ in kb.axioms]
    ever = [[torch.zeros_like(atom, dtype=torch.bool) for atom in atoms] for _ in kb.axioms]
    totals: dict[str, GradientMeasures] = {}
    for _ in range(draws):
        world.draw()
        for number, value in enumerate(plan(**world.data).unbind()):
            slopes: list[Tensor | None] = [None] * len(atoms)
            if value.requires_grad and atoms:
                slopes = list(torch.autograd.grad(value, atoms, retain_graph=True, allow_unused=True))
            count = 0
            for at, slope in enumerate(slopes):
                if slope is not None:
                    count += int((slope != 0).sum())
                    ever[number][at] |= slope != 0
            reached[number].append(count)
        for name, found in _balance(kb, world.interpretation, operators, world.data).items():
            totals[name] = totals.get(name, GradientMeasures()) + found
    return {
        axiom.name: Tried(
            sum(n == 0 for n in counts) / draws, max(counts), sum(int(e.sum()) for e in seen), totals.get(axiom.name)
        )
        for axiom, counts, seen in zip(kb.axioms, reached, ever, strict=True)
    }


def _balance(
    kb: KnowledgeBase, interpretation: Interpretation, operators: Logic, data: Mapping[str, Any]
) -> dict[str, GradientMeasures]:
    if all(_rule(axiom.formula) is None for axiom in kb.axioms):
        return {}
    return measure(kb, interpretation, operators, generator=torch.Generator().manual_seed(0), **data).axioms


def _rule(formula: Expr) -> Implies | None:
    """The implication behind the outermost ``forall``."""
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        formula = formula.body
    return formula if isinstance(formula, Implies) else None


def _learned(formula: Expr, world: MadeUp) -> bool:
    """Is anything in a formula learned? Otherwise it needs no derivative."""
    return any(isinstance(node, Call) and node.name in world.atoms for node in postorder(formula))


def _gradients(kb: KnowledgeBase, operators: Logic, world: MadeUp, tried: Mapping[str, Tried]) -> list[Finding]:
    found = []
    for axiom in kb.axioms:
        name, here = axiom.name, tried[axiom.name]
        culprit = weakest(axiom.formula, operators, world)
        if here.gone > VANISHING:
            because = f"; {culprit}" if culprit else ""
            says = f"no atom gets a derivative on {here.gone:.0%} of random truth values{because}"
            change = "take operators whose gradient never vanishes, such as those of log_product, or a logarithm for ∀"
            found.append(Finding("vanishing", name, says, change))
        elif here.single_passing:
            says = f"of {here.atoms} atoms at most one gets a derivative, so that it learns one instance at a time"
            found.append(Finding("single-passing", name, says, "take operators in which every argument counts"))
        rule = _rule(axiom.formula)
        both = rule is not None and all(_learned(side, world) for side in rule.children)
        ratio = here.balance.consequent_ratio if here.balance and both else float("nan")
        if ratio > ONE_SIDED:
            says = f"{ratio:.0%} of the derivatives raise consequents (modus ponens), {1 - ratio:.0%} lower antecedents"
            change = "where most antecedents are false, this makes consequents true that are not: take an S-implication"
            found.append(Finding("one-sided", name, says, change))
        elif ratio < 1 - ONE_SIDED:
            says = f"{1 - ratio:.0%} of the derivatives lower antecedents (modus tollens), {ratio:.0%} raise the rest"
            change = "nearly all it teaches is what is not the case: take a sigmoidal implication, or an R-implication"
            found.append(Finding("one-sided", name, says, change))
    return found


def _better(kb: KnowledgeBase, operators: Logic, world: MadeUp, draws: int, findings: list[Finding]) -> str:
    """Logics under which none of the axioms would have its finding."""
    troubled = {finding.where for finding in findings}
    good = []
    for name in ALTERNATIVES:
        if logic(name) == operators:
            continue
        try:
            other = _gradients(kb, logic(name), world, _try(kb, logic(name), world, draws))
        except KnowledgeError:  # a log-space ∀ inside a formula
            continue
        if not troubled & {finding.where for finding in other}:
            good.append(name)
    return ", ".join(good)


def _empty(name: str, says: str) -> Finding:
    if not name:
        return Finding("contradiction", "all axioms", says, "doxa solve with fewer of them shows which contradict")
    return Finding("vacuous", name, says, "leave it out, or say what was meant")


def on_data(kb: KnowledgeBase, interpretation: Interpretation, data: Mapping[str, Any]) -> list[Finding]:
    """Vacuous axioms and saturated symbols."""
    with heard(interpretation, kb) as said, torch.no_grad():
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
def heard(interpretation: Interpretation, kb: KnowledgeBase) -> Iterator[dict[str, list[Tensor]]]:
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


def _cells(tried: Tried) -> tuple[str, ...]:
    split = [""] * 3
    if tried.balance is not None and tried.balance.consequent == tried.balance.consequent:
        split = [f"{share:.0%}" if share == share else "–" for share in tried.balance.split.values()]
    return (f"{tried.gone:.0%}", f"{tried.most} of {tried.atoms}", *split)
