"""The examination of a knowledge base under a fuzzy logic: what its gradients will do, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from doxa import _html
from doxa.doctor._findings import Finding, empty_axioms, implication, on_data
from doxa.doctor._random_worlds import ENTRIES, RandomWorlds, weakest
from doxa.errors import BudgetError, ConfigError, KnowledgeError
from doxa.fuzzy import GradientMeasures, Logic, logic, measure
from doxa.logic import Call, Interpretation, KnowledgeBase, postorder
from doxa.problem import Budget
from doxa.problem._budget import Meter
from doxa.semantics import Compiled, Fuzzy, Semantics

if TYPE_CHECKING:
    from doxa.train import Task

SLOPE = 0.01  # a gradient vanishes where Σ |∂L/∂a| over all atoms is less than this share of the loss L
SATISFIED = 1e-6  # below this loss an axiom needs no gradient, if it holds for the nearest 0 and 1
VANISHING = 0.5  # more than this share of the worlds in which an axiom does not hold
REACHED = 1e-3  # an atom is reached if its derivative is at least this share of the average one
FEW = 0.1  # an axiom is single-passing if on half of the worlds no more than this share of its atoms is reached, or one
OBJECTS = 64  # of each open sort, and rows of each kind, unless told otherwise: the usual batch
WORK = 1 << 28  # instances of an axiom in all random worlds together, at most
OVERHEAD = 1 << 14  # a draw costs as much as so many instances, however few there are
ONE_SIDED = 0.9  # more than this share of the derivatives goes to the antecedents, or to the consequents
ALTERNATIVES = ("log_product", "recommended", "product", "ltn")  # tried in place of a logic that has findings


HEAD = ("axiom", "vanishing", "atoms reached", "modus ponens", "modus tollens", "both")


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
            rows: list[tuple[str, ...]] = [HEAD]
            rows += [(name, *_cells(tried)) for name, tried in self.axioms.items()]
            widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
            lines += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [str(finding) for finding in self.findings] or ["nothing found"]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        tables = (
            [_html.table(HEAD, [(name, *_cells(tried)) for name, tried in self.axioms.items()])] if self.axioms else []
        )
        rows = [(f.where, _html.span("bad", f.kind), f.says, f.change) for f in self.findings]
        found = (
            _html.table(("where", "finding", "what", "what to change"), rows) if rows else _html.line("nothing found")
        )
        notes = [_html.line(note, kind="quiet") for note in self.notes]
        return _html.box(*tables, found, *notes, title=f"under {self.logic}" if self.logic else "")


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
    seconds: float | None = None,
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
        seconds: stop after this time.
        generator: draws them; by default the same ones every time.

    Raises:
        BudgetError: the axioms have more instances than ``entries``, the draws are too many, or time is over before it
            is known what the gradients do.

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
    clock = Meter(Budget(seconds=seconds), "examining")
    generator = generator or torch.Generator().manual_seed(0)
    world, objects = _random_worlds(kb, objects, generator, entries)
    if draws > (most := WORK // max(world.entries, OVERHEAD)):
        raise BudgetError("draws", f"draws is {draws:,}, more than the limit of {most:,} here; take fewer draws")
    tried = _try(kb, semantics, world, draws, clock)
    by = "the mean of the instances" if quantifier == "mean" else "the logic's own ∀"
    notes = [f"tried on {draws} random worlds of {objects} objects or rows of each kind, by {by}"]
    if interpretation is not None:
        measured = _balance(kb, interpretation, operators, data or {})
        tried = {n: replace(t, balance=measured.get(n)) for n, t in tried.items()}
        if measured:
            notes.append("modus ponens and tollens are those on the data")
    if untried := [name for name, found in tried.items() if not found.atoms]:
        notes.append(f"could not decide about gradients of {', '.join(untried)}: in these worlds none reaches an atom")
    findings = _gradients(kb, semantics, world, tried)
    try:
        if findings and (better := _better(kb, semantics, world, draws, findings, clock)):
            notes.append(f"without these gradients: {better}")
    except BudgetError:
        notes.append(f"could not decide within {seconds:g} seconds what would be without these gradients")
    if interpretation is None:
        found, looked = empty_axioms(kb, clock)
        findings += found
        notes.append(looked)
    else:
        findings += on_data(kb, interpretation, data or {})
    return Examination(operators.name or str(operators), tried, tuple(findings), tuple(notes))


def examine_run(
    path: str | Path,
    logic: str | None = None,
    *,
    task: Task | None = None,
    rows: int = 256,
    seconds: float | None = None,
) -> Examination:
    """Examine a run of ``doxa train``: its knowledge, its networks and its test data.

    The gradients are those of the logic that it was trained with, or of another; a run that was trained without one is
    examined without, unless a logic is named. Concepts that were read wrongly by rule are findings too.

    Args:
        path: the run folder.
        logic: the name of a fuzzy logic, in place of the run's own.
        task: the task, where the folder cannot tell how to find it: one that was trained from Python.
        rows: so many test rows are looked at.
        seconds: stop examining the knowledge after this time.

    >>> examine_run("nowhere")
    Traceback (most recent call last):
    doxa.errors.RunError: ...
    """
    from doxa.train import evaluate_run, open_run

    run, task, model = open_run(path, task)
    data = task.part(0, min(rows, task.size()))
    semantics = model.semantics
    chosen = logic if logic is not None else semantics.logic if isinstance(semantics, Fuzzy) else None
    if chosen is None:
        name = type(semantics).__name__
        note = f"trained under {name}, which has no operators to examine; --logic says under which ones to look at it"
        notes, shared = [note], model.interpretation.joint_symbols
        if shared:
            notes.append(f"{', '.join(sorted(shared))} share one belief, so they were not looked at one by one")
        seen = [] if shared else on_data(model.kb, model.interpretation, data)
        found = Examination("", {}, tuple(seen), tuple(notes))
    else:
        found = examine(
            model.kb,
            chosen,
            quantifier=semantics.quantifier if isinstance(semantics, Semantics) else "mean",
            interpretation=model.interpretation,
            data=data,
            objects=run.config.get("batch_size", task.batch_size),
            seconds=seconds,
        )
    change = "train longer; or the knowledge cannot tell: doxa shortcuts lists such maps, and labels that rule them out"
    warned = [text.partition(": ") for text in evaluate_run(path, task).warnings]
    concepts = [Finding("concepts", symbol, says, change) for symbol, _, says in warned]
    return Examination(found.logic, found.axioms, (*found.findings, *concepts), found.notes)


def _random_worlds(
    kb: KnowledgeBase, objects: int | None, generator: torch.Generator, entries: int
) -> tuple[RandomWorlds, int]:
    """Worlds of so many objects; where nothing is said, of as many as fit."""
    size = OBJECTS if objects is None else objects
    while True:
        try:
            return RandomWorlds(kb, size, generator, entries), size
        except BudgetError as error:
            if objects is not None:
                raise BudgetError("objects", str(error)) from None
            if size == 1:
                raise
            size //= 2


def _try(
    kb: KnowledgeBase, semantics: Fuzzy, world: RandomWorlds, draws: int, clock: Meter
) -> dict[str, AxiomGradient]:
    """The derivatives of each axiom on random truth values."""
    compiled = semantics.compile(kb.axioms, world.interpretation)
    smooth = Fuzzy("product", impossible="finite").compile(kb.axioms, world.interpretation)
    occurs = [slope > 0 for _, slope in _slopes(smooth, world)]
    atoms = [int(seen.sum()) for seen in occurs]
    vanished: list[list[bool]] = [[] for _ in kb.axioms]
    reached: list[list[int]] = [[] for _ in kb.axioms]
    totals: dict[str, GradientMeasures] = {}
    for _ in range(draws):
        clock.check_clock()
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
    if all(implication(axiom.formula) is None for axiom in kb.axioms):
        return {}
    return measure(kb, interpretation, operators, generator=torch.Generator().manual_seed(0), **data).axioms


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
        rule = implication(axiom.formula)
        sides = () if rule is None else rule.children
        calls = [{n.name for n in postorder(side) if isinstance(n, Call)} for side in sides]
        both = bool(calls) and all(world.atoms.keys() & called for called in calls)  # others need no derivative
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


def _better(
    kb: KnowledgeBase, semantics: Fuzzy, world: RandomWorlds, draws: int, findings: list[Finding], clock: Meter
) -> str:
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
            found = _gradients(kb, other, world, _try(kb, other, world, draws, clock))
        except KnowledgeError:  # a log-space ∀ inside a formula
            continue
        if not troubled & {finding.where for finding in found}:
            good.append("the mean of the instances" if quantifier != semantics.quantifier else str(chosen))
    return ", ".join(good)


def _cells(tried: AxiomGradient) -> tuple[str, ...]:
    split = [""] * 3
    if tried.balance is not None and tried.balance.consequent == tried.balance.consequent:
        split = [f"{share:.0%}" if share == share else "–" for share in tried.balance.split.values()]
    return (f"{tried.vanished:.0%}" if tried.atoms else "not tried", f"{tried.reached} of {tried.atoms}", *split)
