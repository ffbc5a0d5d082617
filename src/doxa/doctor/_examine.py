"""The examination of a knowledge base under a fuzzy logic: what its gradients will do, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_low
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.doctor._random_worlds import ENTRIES, RandomWorlds, weakest
from doxa.doctor._vacuous import emptiness
from doxa.errors import BudgetError, ConfigError, KnowledgeError
from doxa.fuzzy import GradientMeasures, Logic, logic, measure
from doxa.logic import Call, Expr, Implies, Interpretation, KnowledgeBase, Quantifier, postorder, satisfaction
from doxa.semantics import Compiled, Fuzzy

SLOPE = 0.01
"""A gradient vanishes where Σ |∂L/∂a| over all atoms is less than this share of the loss L."""
SATISFIED = 1e-6
"""Where the loss is less than this, the axiom holds, if it does for the nearest 0 and 1, and needs no gradient."""
VANISHING = 0.5
"""An axiom is vanishing if its gradient vanishes on more than this share of the worlds in which it does not hold."""
REACHED = 1e-3
"""An atom is reached if its derivative is at least this share of the average one."""
FEW = 0.1
"""An axiom is single-passing if on half of the worlds no more than this share of its atoms is reached, or one."""
OBJECTS = 64
"""Of each open sort, and rows of each kind, unless told otherwise: the usual batch."""
WORK = 1 << 28
"""Instances of an axiom in all random worlds together, at most."""
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
class AxiomGradient:
    """What the gradient of an axiom did on random truth values.

    Args:
        vanished: on which share of the worlds in which it does not hold it vanished.
        reached: how many atoms it reached, on half of the worlds at most.
        atoms: how many atoms the axiom is about.
        balance: how the derivatives went to antecedents and consequents; None if it is no implication.

    >>> AxiomGradient(0.0, 2, 30, None).single_passing
    True
    """

    vanished: float
    reached: int
    atoms: int
    balance: GradientMeasures | None

    @property
    def single_passing(self) -> bool:
        """Do only few of several atoms get a derivative?"""
        return self.atoms > 1 and self.reached <= max(1, FEW * self.atoms)


@dataclass(frozen=True)
class Examination:
    """What was looked at, axiom by axiom, and what was found.

    >>> print(Examination("product", {}, (), ("tried on 64 random worlds",)))
    under product:
    nothing found
    tried on 64 random worlds
    """

    logic: str
    axioms: Mapping[str, AxiomGradient]
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
                ("axiom", "vanishing", "atoms reached", "modus ponens", "modus tollens", "both")
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
    quantifier: Literal["mean", "logic"] = "mean",
    interpretation: Interpretation | None = None,
    data: Mapping[str, Any] | None = None,
    draws: int = 64,
    objects: int | None = None,
    entries: int = ENTRIES,
    generator: torch.Generator | None = None,
) -> Examination:
    r"""Find out what may go wrong with knowledge under a logic, by trying.

    The gradient is that of the loss L which `doxa.semantics.Fuzzy` minimises, on random truth values a: *vanishing*
    where :math:`\sum |∂L/∂a|` is less than a hundredth of L, *single-passing* where it reaches one atom, or one in
    ten at most, and *one-sided* where all of it goes to the antecedents, or all to the consequents. These are shares,
    so they do not depend on how large a loss or how many the objects are; but the gradients may, so try them with as
    many objects as a batch of yours has. By a SAT solver: *vacuous* axioms, and knowledge that contradicts itself. With
    an interpretation and data, the balance is that on the data, axioms are vacuous when nothing in the data makes their
    antecedent true, and symbols are *saturated* when what they say is 0 or 1 while knowledge about them does not hold.

    Args:
        kb: the knowledge.
        chosen: a logic or its name.
        quantifier: as in `Fuzzy`: the "mean" of the losses of the instances, or the "logic"'s own ∀.
        interpretation: the meaning of the symbols, to look at data as well.
        data: objects and rows, by name.
        draws: so many random truth values are tried.
        objects: of each open sort, and rows of each kind, on which they are tried; by default 64, or as many as fit.
        entries: instances of an axiom, at most.
        generator: draws them; by default the same ones every time.

    Raises:
        BudgetError: the axioms have more instances than the limit, or there are too many draws of them.

    >>> from doxa.logic import parse
    >>> kb = parse("sort Bird; pred raven(Bird); pred black(Bird); [rule] forall x: Bird. raven(x) -> black(x)")
    >>> examine(kb, "godel", quantifier="logic").of("single-passing"), examine(kb, "product").findings
    (['rule'], ())
    >>> examine(kb, "product", quantifier="logic").of("vanishing")          # a product of 64 truth values
    ['rule']
    """
    if draws < 1 or (objects is not None and objects < 1):
        raise ConfigError(f"draws is {draws} and objects is {objects}, expected at least 1")
    if not kb.axioms:
        raise KnowledgeError("the knowledge has no axioms, so there is nothing to examine")
    semantics = Fuzzy(chosen, quantifier=quantifier, impossible="finite")
    operators = logic(chosen) if isinstance(chosen, str) else chosen
    generator = generator or torch.Generator().manual_seed(0)
    world, objects = _random_worlds(kb, objects, generator, entries)
    if draws * world.entries > WORK:
        raise BudgetError(
            "entries",
            f"{draws:,} draws of {world.entries:,} instances are more than the limit of {WORK:,} together; take fewer "
            "draws, or fewer objects",
        )
    tried = _try(kb, semantics, world, draws)
    by = "the mean of the instances" if quantifier == "mean" else "the logic's own ∀"
    notes = [f"tried on {draws} random worlds of {objects} objects or rows of each kind, by {by}"]
    if interpretation is not None:
        measured = _balance(kb, interpretation, operators, data or {})
        tried = {n: replace(t, balance=measured.get(n)) for n, t in tried.items()}
        if measured:
            notes.append("modus ponens and tollens are those on the data")
    findings = _gradients(kb, semantics, world, tried)
    if findings and (better := _better(kb, semantics, world, draws, findings)):
        notes.append(f"without these gradients: {better}")
    if interpretation is None:
        found, looked = emptiness(kb)
        findings += [_empty(name, says) for name, says in found.items()]
        notes.append(looked if looked.startswith("whether") else f"vacuous axioms were looked for {looked}")
    else:
        findings += on_data(kb, interpretation, data or {})
    return Examination(operators.name or str(operators), tried, tuple(findings), tuple(notes))


def _random_worlds(
    kb: KnowledgeBase, objects: int | None, generator: torch.Generator, entries: int
) -> tuple[RandomWorlds, int]:
    """Worlds of so many objects; where nothing is said, of as many as fit."""
    size = OBJECTS if objects is None else objects
    while True:
        try:
            return RandomWorlds(kb, size, generator, entries), size
        except BudgetError:
            if objects is not None or size == 1:
                raise
            size //= 2


def _try(kb: KnowledgeBase, semantics: Fuzzy, world: RandomWorlds, draws: int) -> dict[str, AxiomGradient]:
    """The derivatives of each axiom on random truth values."""
    compiled = semantics.compile(kb.axioms, world.interpretation)
    smooth = Fuzzy("product", impossible="finite").compile(kb.axioms, world.interpretation)
    occurs = [slope > 0 for _, slope in _slopes(smooth, world)]
    atoms = [int(seen.sum()) for seen in occurs]
    vanished: list[list[bool]] = [[] for _ in kb.axioms]
    reached: list[list[int]] = [[] for _ in kb.axioms]
    totals: dict[str, GradientMeasures] = {}
    for _ in range(draws):
        world.draw()
        found = list(_slopes(compiled, world))
        misses = [loss > SATISFIED for loss, _ in found]
        if not all(misses):  # a logic may be content with what is false, to the nearest truth values
            with world.rounded(), torch.no_grad():
                nearest = smooth.losses(world.data, world.generator, "mean")
            misses = [miss or float(loss) > SATISFIED for miss, loss in zip(misses, nearest, strict=True)]
        for number, (loss, slope) in enumerate(found):
            if misses[number] and atoms[number]:
                vanished[number].append(float(slope.sum()) < SLOPE * max(loss, SATISFIED))
                average = slope.sum() / atoms[number]
                reached[number].append(int((slope > REACHED * average).sum()))
        for name, measures in _balance(kb, world.interpretation, semantics.logic, world.data).items():
            totals[name] = totals.get(name, GradientMeasures()) + measures
    return {
        axiom.name: AxiomGradient(
            sum(gone) / max(1, len(gone)), median_low(some or [about]), about, totals.get(axiom.name)
        )
        for axiom, gone, some, about in zip(kb.axioms, vanished, reached, atoms, strict=True)
    }


def _slopes(compiled: Compiled, world: RandomWorlds) -> Iterator[tuple[float, Tensor]]:
    """The loss of each axiom, and how steep it is in each atom."""
    atoms = list(world.atoms.values())
    for loss in compiled.losses(world.data, world.generator, "mean"):
        slope = torch.zeros(sum(atom.numel() for atom in atoms))
        if loss.requires_grad and atoms:
            found = torch.autograd.grad(loss, atoms, retain_graph=True, materialize_grads=True, allow_unused=True)
            slope = torch.cat([part.reshape(-1) for part in found]).abs()
        yield float(loss.detach()), slope


def _balance(
    kb: KnowledgeBase, interpretation: Interpretation, operators: Logic | str, data: Mapping[str, Any]
) -> dict[str, GradientMeasures]:
    if all(_rule(axiom.formula) is None for axiom in kb.axioms):
        return {}
    return measure(kb, interpretation, operators, generator=torch.Generator().manual_seed(0), **data).axioms


def _rule(formula: Expr) -> Implies | None:
    """The implication behind the outermost ``forall``."""
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        formula = formula.body
    return formula if isinstance(formula, Implies) else None


def _learned(formula: Expr, world: RandomWorlds) -> bool:
    """Is anything in a formula learned? Otherwise it needs no derivative."""
    return any(isinstance(node, Call) and node.name in world.atoms for node in postorder(formula))


def _gradients(
    kb: KnowledgeBase, semantics: Fuzzy, world: RandomWorlds, tried: Mapping[str, AxiomGradient]
) -> list[Finding]:
    found = []
    operators = logic(semantics.logic) if isinstance(semantics.logic, str) else semantics.logic
    for axiom in kb.axioms:
        name, here = axiom.name, tried[axiom.name]
        if here.vanished > VANISHING:
            culprit = weakest(axiom.formula, operators, world, outermost=semantics.quantifier == "logic")
            because = f"; {culprit}" if culprit else ""
            says = f"its gradient vanishes on {here.vanished:.0%} of random worlds in which it does not hold{because}"
            change = "take operators whose gradient never vanishes, as log_product's, or the mean of the instances"
            found.append(Finding("vanishing", name, says, change))
        elif here.single_passing:
            says = f"its gradient reaches {here.reached} of {here.atoms} atoms, so that it learns a few at a time"
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


def _better(kb: KnowledgeBase, semantics: Fuzzy, world: RandomWorlds, draws: int, findings: list[Finding]) -> str:
    """What to minimise instead, so that none of the axioms would have its finding."""
    troubled = {finding.where for finding in findings}
    good = []
    others: list[tuple[Logic | str, Literal["mean", "logic"]]] = [(name, semantics.quantifier) for name in ALTERNATIVES]
    if semantics.quantifier == "logic":
        others.insert(0, (semantics.logic, "mean"))
    for chosen, quantifier in others:
        other = replace(semantics, logic=chosen, quantifier=quantifier)
        if other == semantics:
            continue
        try:
            found = _gradients(kb, other, world, _try(kb, other, world, draws))
        except KnowledgeError:  # a log-space ∀ inside a formula
            continue
        if not troubled & {finding.where for finding in found}:
            good.append("the mean of the instances" if quantifier != semantics.quantifier else str(chosen))
    return ", ".join(good)


def _empty(name: str, says: str) -> Finding:
    if not name:
        return Finding("contradiction", "all axioms", says, "doxa solve with fewer of them shows which contradict")
    return Finding("vacuous", name, says, "leave it out, or say what was meant")


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


def _cells(tried: AxiomGradient) -> tuple[str, ...]:
    split = [""] * 3
    if tried.balance is not None and tried.balance.consequent == tried.balance.consequent:
        split = [f"{share:.0%}" if share == share else "–" for share in tried.balance.split.values()]
    return (f"{tried.vanished:.0%}", f"{tried.reached} of {tried.atoms}", *split)
