"""How far knowledge holds on data: how many instances of each axiom, which do not, and whether it says anything."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from doxa import _html
from doxa.logic.bind._interpretation import Batch, Interpretation
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._tree import Expr, Implies
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL
from doxa.logic.tensor._block import Block, Frame, Reducer, Scope
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._frame import frame
from doxa.logic.tensor._plan import CHUNK, TensorPlan, fact_formulas, located, outermost
from doxa.logic.tensor._pools import Axis, Ref, spread, union
from doxa.logic.tensor._run import Run


@dataclass(frozen=True)
class AxiomReport:
    """How one axiom fares.

    An axiom ``forall x, y where g. a -> b`` has one instance per pair that its guard lets through; ``active`` counts
    those in which ``a`` is true. A rule that holds because ``a`` never does is *vacuous*.

    >>> AxiomReport("health", instances=3, holds=2, active=2, violations=({"x": "bob"},)).satisfied
    False
    """

    name: str
    instances: int
    holds: int
    active: int | None = None
    """Instances whose antecedent is true; None when the axiom is no implication."""
    violations: tuple[dict[str, str | int], ...] = ()
    """The first instances that do not hold, as assignments of the variables."""

    @property
    def satisfied(self) -> bool:
        """Does every instance hold?"""
        return self.holds == self.instances

    @property
    def vacuous(self) -> bool:
        """Does it hold only because it has no instances, or because its antecedent is never true?"""
        return self.satisfied and (self.instances == 0 or self.active == 0)

    @property
    def rate(self) -> float:
        """The share of instances that hold; 1 when there are none."""
        return self.holds / self.instances if self.instances else 1.0

    @property
    def note(self) -> str:
        """Which instances do not hold, or why it is vacuous."""
        if self.vacuous:
            return "vacuous: no instances" if not self.instances else "vacuous: the antecedent is never true"
        shown = [", ".join([f"{k} = {v}" for k, v in found.items()]) or "-" for found in self.violations]
        left = self.instances - self.holds - len(self.violations)
        return "; ".join([*shown, *([f"{left} more"] if left and shown else [])])


@dataclass(frozen=True)
class SatisfactionReport:
    """The satisfaction of a knowledge base on data, axiom by axiom; prints as a table.

    >>> report = SatisfactionReport((AxiomReport("health", 3, 2, 2, ({"x": "bob"},)),))
    >>> print(report)
    axiom   holds       antecedent true  violated by
    health  2 of 3  67%          2 of 3  x = bob
    >>> report.satisfied
    False
    """

    axioms: tuple[AxiomReport, ...]

    @property
    def satisfied(self) -> bool:
        """Does every axiom hold?"""
        return all(a.satisfied for a in self.axioms)

    def __getitem__(self, name: str) -> AxiomReport:
        return {axiom.name: axiom for axiom in reversed(self.axioms)}[name]

    def __str__(self) -> str:
        rows = [("axiom", "holds", "antecedent true", "violated by")]
        for a in self.axioms:
            share = f"{a.rate:.0%}" if a.rate in (0.0, 1.0) else f"{min(max(a.rate, 0.01), 0.99):.0%}"
            active = "" if a.active is None else f"{a.active} of {a.instances}"
            rows.append((a.name, f"{a.holds} of {a.instances} {share:>4}", active, a.note))
        widths = [max([len(r[c]) for r in rows]) for c in range(4)]
        lines = []
        for name, holds, active, note in rows:
            lines.append(f"{name:<{widths[0]}}  {holds:<{widths[1]}}  {active:>{widths[2]}}  {note}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for a in self.axioms:
            share = f"{a.holds:,} of {a.instances:,}"
            judged = (
                _html.span("bad", "no") if not a.satisfied else "vacuous" if a.vacuous else _html.span("good", "yes")
            )
            active = "" if a.active is None else f"{a.active:,} of {a.instances:,}"
            rows.append((a.name, judged, _html.bar(a.rate, label=share), active, a.note))
        return _html.box(_html.table(("axiom", "holds", "instances", "antecedent true", "violated by"), rows))

    def to_json(self) -> str:
        """The report for machines.

        >>> SatisfactionReport((AxiomReport("a", 1, 1),)).to_json()
        '[{"name": "a", "instances": 1, "holds": 1, "active": null, "violations": [], "vacuous": false}]'
        """
        return json.dumps([{**asdict(a), "vacuous": a.vacuous} for a in self.axioms])


def satisfaction(
    kb: KnowledgeBase,
    interpretation: Interpretation,
    /,
    *,
    examples: int = 3,
    generator: torch.Generator | None = None,
    chunk: int = CHUNK,
    **data: Any,
) -> SatisfactionReport:
    """How far each axiom holds on data, classically; facts come last, together.

    Instances are choices of all variables of all the ``forall`` that an axiom begins with. Losses count differently:
    they are a mean over the rows of the outermost one alone, and what it binds, further ``forall`` too, is one truth.

    Args:
        examples: how many violating instances to name per axiom.
        generator, chunk, data: as in :func:`truth`.

    >>> from doxa.logic import KnowledgeBase, Predicate, Sort, forall, variables
    >>> Person = Sort("Person", ("anna", "bob", "carl"))
    >>> smokes, cancer = Predicate("smokes", (Person,)), Predicate("cancer", (Person,))
    >>> (x,) = variables("x", Person)
    >>> kb = KnowledgeBase(health=forall(x)(smokes(x) >> cancer(x)))
    >>> world = Interpretation(kb, smokes={"anna", "bob"}, cancer={"anna"})
    >>> print(satisfaction(kb, world))
    axiom   holds       antecedent true  violated by
    health  2 of 3  67%          2 of 3  x = bob
    """
    formulas = [(a.name, a.formula) for a in kb.axioms]
    plain = [(name, f) for name, f in formulas if not outermost(f)[0]]
    rules = [(name, f.children[0]) for name, f in plain if isinstance(f, Implies)]
    facts = fact_formulas(kb)
    with torch.no_grad():
        batch = TensorPlan(formulas, interpretation, chunk=chunk).completed(interpretation.read(data))
        surveyed = [(name, f) for name, f in formulas if outermost(f)[0]]
        found = {r.name: r for r in _survey(surveyed, batch, examples, chunk, generator)}
        # Axioms without an outermost forall have one instance each; there may be very many of them.
        together = TensorPlan([*plain, *rules, *facts], interpretation, chunk=chunk)
        values = iter(together.run(batch, generator).tolist())
    held = {name: next(values) for name, _ in plain}
    active = {name: int(next(values)) for name, _ in rules}
    for name, holds in held.items():
        found[name] = AxiomReport(name, 1, int(holds), active.get(name), () if holds else ({},))
    reports = [found[name] for name, _ in formulas]
    if facts:
        wrong = [name.removeprefix("fact ") for (name, _), holds in zip(facts, values, strict=True) if not holds]
        shown: list[dict[str, str | int]] = [{"fact": name} for name in wrong[:examples]]
        reports.append(AxiomReport("facts", len(facts), len(facts) - len(wrong), None, tuple(shown)))
    return SatisfactionReport(tuple(reports))


def _survey(
    formulas: list[tuple[str, Expr]], batch: Batch, examples: int, chunk: int, generator: torch.Generator | None
) -> list[AxiomReport]:
    """Count the instances of universally quantified axioms; networks run once for all of them."""
    compiler = Compiler(batch, [f for _, f in formulas], stack=16)
    blocks = []
    for name, formula in formulas:
        blocks.append(Block(None, name))
        with located([name]):
            drive(_compile(compiler, formula, blocks[-1], examples))
    run = Run(batch, compiler.needs, chunk=chunk, generator=generator)
    found = []
    for block, (name, _) in zip(blocks, formulas, strict=True):
        with located([name]):
            found.append(AxiomReport(name, *drive(run_block(block, run, [], {}))))
    return found


def _compile(compiler: Compiler, formula: Expr, block: Block, examples: int) -> Task:
    levels, body = outermost(formula)
    scope = Scope(None, block)
    yield frame(compiler, block, scope, levels)
    truth = yield compiler.truth(body, scope, CLASSICAL)
    rule = None
    if isinstance(body, Implies):
        rule = yield compiler.truth(body.children[0], scope, CLASSICAL)
    variables = [(name, compiler.name(name, scope)) for groups, _ in levels for g in groups for name in g.names]
    block.seal(_Survey(block, truth, rule, dict(variables), examples))


class _Survey(Reducer):
    """Counts instances, those that hold and those that are active, and names the first that do not hold."""

    def __init__(self, block: Block, body: Ref, rule: Ref | None, variables: dict[str, Ref], examples: int) -> None:
        self.all = union([block.axes])
        self.axes: tuple[Axis, ...] = ()
        self.body, self.rule, self.variables, self.examples = body, rule, variables, examples
        self.refs = (body, *([rule] if rule is not None else []), *variables.values())

    def tile(self, frame: Frame) -> tuple[int, int, int | None, tuple[dict[str, str | int], ...]]:
        holds = self._spread(frame, self.body)
        active = None if self.rule is None else int(self._spread(frame, self.rule).sum())
        found = (~holds).nonzero()[: self.examples].tolist() if self.examples else []
        places = [dict(zip(self.all, where, strict=True)) for where in found]
        violations = tuple([{n: _entry(frame, ref, at) for n, ref in self.variables.items()} for at in places])
        return holds.numel(), int(holds.sum()), active, violations

    def _spread(self, frame: Frame, ref: Ref) -> Tensor:
        return spread(frame.regs[ref.slot], ref.axes, self.all, frame.sizes)

    def merge(self, a: Any, b: Any) -> Any:
        active = None if a[2] is None else a[2] + b[2]
        return a[0] + b[0], a[1] + b[1], active, (a[3] + b[3])[: self.examples]


def _entry(frame: Frame, ref: Ref, at: dict[Axis, int]) -> str | int:
    value = frame.regs[ref.slot]
    place = value.start + at[ref.axes[0]] if isinstance(value, slice) else int(value[tuple([at[a] for a in ref.axes])])
    run = frame.run
    match ref.type:
        case _pools.Finite(sort=sort):
            return (sort.values or ())[place]
        case _pools.Rows() as pool:
            place = place if pool.sample is None else int(run.sampled(pool)[place])
            return f"{pool.name}#{place}"
        case _pools.Object(sort=name, pool=_pools.Sort() as pool):
            place = place if pool.sample is None else int(run.sampled(pool)[place])
            names = run.batch.objects(name).names
            return f"{name}#{place}" if names is None else names[place]
        case _pools.Column() as pool:
            return f"{pool}#{_local(run, pool, place)}"
    return place


def _local(run: Run, pool: _pools.Column, place: int) -> str:
    """Row and place in the row, such as ``3[0]``."""
    column = run.column(pool.rows, pool.field)
    if column.starts is not None and column.lengths is not None:
        row = int(torch.searchsorted(column.starts + column.lengths, place, right=True))
        return f"{row}[{place - int(column.starts[row])}]"
    inner: list[str] = []
    for level in range(pool.level - 1, 0, -1):
        size = column.values.shape[level]
        inner.append(f"[{place % size}]")
        place //= size
    return f"{place}{''.join(reversed(inner))}"
