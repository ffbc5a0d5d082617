"""Plans: formulas compiled for an interpretation, an algebra and a schema of data, to be run on batch after batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa._cache import Same
from doxa.errors import BindingError, ConfigError, KnowledgeError
from doxa.logic.bind._interpretation import Batch, Interpretation, row_names
from doxa.logic.syntax._binders import Group, Quantifier
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._kb import Axiom, KnowledgeBase
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._tree import Call, Expr, Field, Name, Not, as_formula
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL, Algebra, Classical, OuterFold
from doxa.logic.tensor._block import Block, Result, Scope
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._defined import DEPTH, Completion
from doxa.logic.tensor._execute import Root, side_by_side
from doxa.logic.tensor._frame import frame, pool_of, pool_of_sort
from doxa.logic.tensor._pools import NUMBER, Pool, Ref
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._run_data import Needs, Trace
from doxa.logic.tensor._structures import Scatter, place_argument
from doxa.logic.tensor._traced import Traced
from doxa.logic.tensor._trees import Stack

CHUNK = 2**22
"""The most elements that one intermediate tensor has, unless a table or the result itself is larger."""
Generator = torch.Generator | None
Samples = dict[Any, Tensor] | None
STACK = 16
"""So many formulas that differ only in constants are evaluated as one."""


class Program(NamedTuple):
    needs: Needs
    roots: list[Root]
    traced: Traced | None


class TensorPlan:
    """A formula, an axiom, or named formulas (all axioms of a knowledge base) made ready to run on batch after batch.

    Calling it on data gives a tensor with an axis per kept or free variable, or one value per axiom. Arguments are
    those of :class:`doxa.fuzzy.FuzzyPlan`; ``algebra`` says what truth values are.

    >>> from doxa.logic import Interpretation, KnowledgeBase, Predicate, Sort, forall, variables
    >>> Person = Sort("Person")
    >>> smokes, cancer = Predicate("smokes", (Person,)), Predicate("cancer", (Person,))
    >>> (x,) = variables("x", Person)
    >>> kb = KnowledgeBase(health=forall(x)(smokes(x) >> cancer(x)))
    >>> world = Interpretation(kb, smokes=torch.tensor([True, True, False]), cancer=torch.tensor([True, False, False]))
    >>> TensorPlan(kb["health"], world, keep="x")(Person=3)
    tensor([ True, False,  True])
    >>> print(TensorPlan(kb["health"], world).explain(Person=3))
    classical, chunks of 4194304 elements
    health
      forall x: x 3, 1 tile
    tables: smokes(Person) 3, cancer(Person) 3
    """

    def __init__(
        self,
        what: Expr | Axiom | KnowledgeBase | Sequence[tuple[str, Expr]],
        interpretation: Interpretation,
        *,
        algebra: Algebra = CLASSICAL,
        chunk: int = CHUNK,
        stack: int = STACK,
        keep: str | Sequence[str] = (),
        compile: bool = False,
        checkpoint: bool = True,
        depth: int = DEPTH,
        table: bool = False,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        if chunk < 1 or stack < 2:
            raise ValueError(f"chunk must be at least 1 and stack at least 2, got {chunk} and {stack}")
        self.interpretation = interpretation
        self.algebra = algebra
        self.chunk = chunk
        self.stack = stack
        self.compile = compile
        self.table = table
        """Are all variables kept, also those inside structures, as places in their row? For definitions."""
        self.checkpoint = checkpoint
        self.keep = (keep,) if isinstance(keep, str) else tuple(keep)
        self.one = isinstance(what, Expr | Axiom)
        self.formulas = formulas_of(what)
        if not self.one and self.keep:
            raise ValueError("keep names variables of one formula; give one axiom instead of many")
        self.rows = row_names([f for _, f in self.formulas])
        self.depth = depth
        self.completion = Completion(algebra, self._evaluated, depth)
        self._clauses: dict[tuple[Expr, bool], TensorPlan] = {}
        self._programs: dict[Any, Program] = {}

    def __call__(self, *, generator: Generator = None, **data: Any) -> Tensor:
        return self.run(self.interpretation.read(data, self.rows), generator)

    def program(self, batch: Batch) -> Program:
        found = self._programs.get(batch.schema)
        if found is None:
            if torch.compiler.is_compiling():
                raise ConfigError(
                    "torch.compile cannot follow how a formula becomes a program; call the plan once on data of this "
                    "kind before the compiled function"
                )
            found = self._programs[batch.schema] = self._compiled(batch)
        return found

    def _compiled(self, batch: Batch) -> Program:
        names, expressions = [name for name, _ in self.formulas], [f for _, f in self.formulas]
        compiler = Compiler(batch, expressions, stack=self.stack)
        # Few formulas are not even looked at for that.
        alone, stacks = compiler.trees.stacked(expressions if len(names) >= self.stack else (), self.stack)
        singles = sorted(alone) if stacks else range(len(names))
        roots: list[Root] = []
        groups: list[tuple[Expr | Stack, list[int]]] = [(stack, stack.members) for stack in stacks]
        for what, members in [*groups, *[(expressions[n], [n]) for n in singles]]:
            roots.append(Root([names[m] for m in members], members))
            with located(roots[-1].names):
                drive(_compile(compiler, roots[-1], what, self.algebra, self.keep, table=self.table))
        return Program(compiler.needs, roots, Traced(roots) if self.compile else None)

    def values(
        self, batch: Batch, generator: Generator, trace: Trace | None = None, samples: Samples = None
    ) -> list[Tensor]:
        """The value of each formula, or of each stack, on data that are already read."""
        return [root.closed(value) for root, value in self._opened(self.completed(batch), generator, trace, samples)]

    def _opened(
        self, batch: Batch, generator: Generator, trace: Trace | None, samples: Samples
    ) -> list[tuple[Root, Any]]:
        """What the formulas give before the last thing that is done to each value."""
        needs, roots, traced = self.program(batch)
        samples = {} if samples is None else samples
        run = Run(batch, needs, self.chunk, generator, trace, self.checkpoint, samples)
        for name in needs.constants:
            batch.index_of(name)  # which complains about one that lies outside these data
        values: list[tuple[Root, Any]] = []
        # Nothing flows back through true and false.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not isinstance(self.algebra, Classical)):
            ready = traced.run(run) if traced is not None and trace is None else {}
            for root in roots:
                if trace is not None:
                    trace.root(root.names)
                with located(root.names):
                    values.append((root, ready[root] if root in ready else root.opened(run)))
        return values

    def completed(self, batch: Batch) -> Batch:
        """The data together with what is defined in terms of them."""
        return self.completion(batch, [f for _, f in self.formulas]) if batch.signature.definitions else batch

    def _evaluated(self, formula: Expr, keep: tuple[str, ...], batch: Batch, algebra: Algebra) -> Tensor:
        """A clause of a definition for all its arguments, as truth values."""
        key = (formula, isinstance(algebra, Classical))
        if key not in self._clauses:
            self._clauses[key] = TensorPlan(
                formula, self.interpretation, algebra=algebra, chunk=self.chunk, keep=keep, depth=self.depth, table=True
            )
        return self._clauses[key].run(batch)

    def run(
        self, batch: Batch, generator: Generator = None, trace: Trace | None = None, samples: Samples = None
    ) -> Tensor:
        """One value, or one per formula in order. Plans of formulas that draw the same batches share ``samples``."""
        batch = self.completed(batch)
        opened = self._opened(batch, generator, trace, samples)
        if self.one:
            ((root, value),) = opened
            alone: Tensor = root.closed(value)
            return alone
        if not opened:
            nothing = torch.ones(0, dtype=torch.bool, device=batch.device)
            return self.algebra.atom(nothing, "bool", torch.get_default_dtype())
        order, together = side_by_side(opened)
        if order == list(range(len(order))):
            return together
        return together.index_select(0, torch.tensor(order, device=batch.device).argsort())

    def explain(self, *, generator: Generator = None, **data: Any) -> str:
        """Run on data, and say what was computed: axes, lists of instances, tiles, tables, and calls of networks."""
        trace = Trace()
        batch = self.completed(self.interpretation.read(data, self.rows))
        self.run(batch, generator, trace)
        lines = [f"{self.algebra.name}, chunks of {self.chunk} elements", *trace.lines()]
        lines += [f"defined {done}" for done in self.completion.done]
        traced = self.program(batch).traced
        if traced is not None:
            self.run(batch, generator)
            lines += traced.lines()
        return "\n".join(lines)


def formulas_of(what: Expr | Axiom | KnowledgeBase | Sequence[tuple[str, Expr]]) -> list[tuple[str, Expr]]:
    """Formulas with names to call them by: one, or the axioms of a knowledge base."""
    if isinstance(what, list | tuple):
        return list(what)
    if isinstance(what, KnowledgeBase):
        return [(a.name, a.formula) for a in what.axioms]
    if isinstance(what, Axiom):
        return [(what.name, what.formula)]
    if isinstance(what, Expr):
        return [("the formula", as_formula(what))]
    raise TypeError(f"wanted a formula, an axiom or a knowledge base, got {type(what).__name__}")


@contextmanager
def located(names: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (BindingError, KnowledgeError) as error:
        if names[0] == "the formula":
            raise
        more = f" (or one of {len(names)} axioms like it)" if len(names) > 1 else ""
        raise type(error)(f"axiom {names[0]!r}{more}: {error}") from error


def truth(
    what: Expr | Axiom | KnowledgeBase,
    interpretation: Interpretation,
    /,
    *,
    keep: str | Sequence[str] = (),
    generator: Generator = None,
    chunk: int = CHUNK,
    **data: Any,
) -> Tensor:
    """Is it true? Networks say what they think most likely; every quantifier ranges over all its objects.

    Args:
        what: a formula, an axiom, or a knowledge base (is every axiom true, and does every fact hold?).
        interpretation: the meaning of the symbols.
        keep: variables of the outermost ``forall`` to keep as axes of the result, such as the rows of the data.
        generator: draws the batches of ``sample``.
        chunk: intermediate tensors have at most this many elements.
        data: objects of open sorts and rows, by name.

    Returns:
        A Boolean tensor: one value, or one per object of each kept variable, and of each free variable of the formula.

    >>> from doxa.logic import Function, KnowledgeBase, Sort, forall, logits, variables, within
    >>> Digit = Sort.range("Digit", 0, 9)
    >>> digit = Function("digit", (Sort("Image"),), Digit)
    >>> (p,) = variables("p")
    >>> total = digit(p.field("left")) + digit(p.field("right"))
    >>> kb = KnowledgeBase(sums=forall(within("pairs", p))(total.eq(p.field("sum"))))
    >>> sees = Interpretation(kb, digit=logits(lambda image: image))  # these images are their own logits
    >>> images = torch.eye(10)[[3, 4, 5, 6]]
    >>> pairs = dict(left=images[:2], right=images[2:], sum=torch.tensor([8, 11]))
    >>> truth(kb, sees, pairs=pairs)
    tensor(False)
    >>> truth(kb["sums"], sees, keep="p", pairs=pairs)
    tensor([ True, False])
    """
    key = (what if isinstance(what, Expr) else Same(what), chunk, keep if isinstance(keep, str) else tuple(keep))
    plan: TensorPlan = interpretation.plans.find(key, lambda: TensorPlan(what, interpretation, chunk=chunk, keep=keep))
    batch = interpretation.read(data, plan.rows)
    value = plan.run(batch, generator)
    if not isinstance(what, KnowledgeBase):
        return value
    if what.facts:
        facts: TensorPlan = interpretation.plans.find(
            ("facts", *key), lambda: TensorPlan(fact_formulas(what), interpretation, chunk=chunk)
        )
        value = torch.cat([value, facts.run(batch, generator)])
    return value.all()


def fact_formulas(kb: KnowledgeBase) -> list[tuple[str, Expr]]:
    """The facts as formulas: atoms that are true, and negated ones."""
    return [(str(f), f.atom if f.label else Not(f.atom)) for f in kb.facts]


def _compile(
    compiler: Compiler, root: Root, what: Expr | Stack, algebra: Algebra, keep: tuple[str, ...], *, table: bool
) -> Task:
    """Compile one formula, or a stack; free variables and those in ``keep`` are axes of the value."""
    scope = Scope(None, root.block)
    if isinstance(what, Stack):
        along = root.variable(compiler.axis("formulas"), _pools.Stack(len(what.members)), NUMBER)
        compiler.parameters(what, scope, along)
        formula = what.pattern
    else:
        formula, free = what, compiler.trees.names(what)
        for name in [n for n in compiler.trees.hints if n in free]:
            pool, kind = pool_of_sort(compiler, compiler.trees.hints[name])
            scope.names[name] = root.variable(compiler.axis(name), pool, kind)
    if table and any(not isinstance(g.domain, Name | None) for groups, _ in outermost(formula)[0] for g in groups):
        root.block.seal(Result((yield _tabled(compiler, root, formula, scope, algebra, keep))))
        return
    if keep:
        ref, is_log = yield _kept(compiler, root, formula, scope, algebra, keep)
    else:
        ref, is_log = yield compiler.value(formula, scope, algebra, first=True)
    root.seal(ref, algebra, is_log)


def _kept(compiler: Compiler, root: Root, formula: Expr, scope: Scope, algebra: Algebra, keep: tuple[str, ...]) -> Task:
    """The formula with some variables of its outermost ``forall`` left free."""
    outer = algebra.outer("forall", True)
    levels, body = outermost(formula, alone=outer is not None and outer.alone)
    bound = [n for groups, _ in levels for g in groups for n in g.names]
    for name in keep:
        if name not in bound:
            remedy = did_you_mean(name, bound, f"it binds {', '.join(bound)}" if bound else "it binds nothing")
            raise KnowledgeError(f"keep={name!r}: the outermost 'forall' of the formula does not bind that; {remedy}")
    parts: list[tuple[list[Group], Expr | None]] = []
    for groups, guard in levels:
        left: list[Group] = []
        for group in groups:
            inside = [n for n in group.names if n in keep]
            if inside and not isinstance(group.domain, Name | None):
                raise KnowledgeError(f"keep={inside[0]!r}: only variables over a sort or over rows can be kept")
            if inside:
                pool, kind = pool_of(compiler, group)
                for name in inside:
                    scope.names[name] = root.variable(compiler.axis(name), pool, kind)
                if group.sample is not None and len(inside) < len(group.names):
                    raise KnowledgeError("keep all variables of a sampled group, or none of them")
            rest = [n for n in group.names if n not in keep]
            if rest:
                left.append(Group(rest, sort=group.sort, domain=group.domain, sample=group.sample))
        if left or guard is not None:
            parts.append((left, guard))
    if not parts:
        return (yield compiler.value(body, scope, algebra))
    if not any(groups for groups, _ in parts):
        outer = OuterFold(True, None, algebra.only, None)
    return (yield compiler.block("forall", None, parts, body, scope, algebra, outer))


def _tabled(
    compiler: Compiler, root: Root, formula: Expr, scope: Scope, algebra: Algebra, keep: tuple[str, ...]
) -> Task:
    """The formula as a table over its outermost variables, all of them kept; those inside rows by their place there."""
    assert isinstance(formula, Quantifier)
    block = Block(root.block, "table")
    inner = Scope(scope, block)
    yield frame(compiler, block, inner, [(formula.groups, formula.guard)])
    ref, is_log = yield compiler.value(formula.body, inner, algebra)
    value = block.emit(("result",), lambda frame, x: algebra.result(x, is_log), [ref], ref.axes)
    places: list[Ref] = []
    pools: list[Pool] = []
    for group in formula.groups:
        for name in group.names:
            found = compiler.name(name, inner)
            if isinstance(group.domain, Field):
                of = group.domain.children[0]
                assert isinstance(of, Name)
                call = Call(name, (Name(name),))
                found, pool = place_argument(block, found, compiler.name(of.name, inner), group.domain.name, call, 0)
            else:
                pool, _ = pool_of(compiler, group)
            places.append(found)
            pools.append(pool)
    assert len(places) == len(keep)
    return compiler.close(block, Scatter(block, value, places, pools), root.block)


def outermost(formula: Expr, *, alone: bool = False) -> tuple[list[tuple[tuple[Group, ...], Expr | None]], Expr]:
    """The levels of the outermost ``forall`` (up to one that hides a variable), and the formula they bind."""
    levels: list[tuple[tuple[Group, ...], Expr | None]] = []
    bound: set[str] = set()
    while isinstance(formula, Quantifier) and formula.kind == "forall" and bound.isdisjoint(formula.names):
        levels.append((formula.groups, formula.guard))
        bound.update(formula.names)
        formula = formula.body
        if alone:
            break
    return levels, formula
