"""Plans: formulas compiled for an interpretation, an algebra and a schema of data, to be run on batch after batch.

:func:`truth` is what they are for without an algebra of one's own: classical truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from doxa._cache import Same
from doxa.errors import BindingError, ConfigError, KnowledgeError
from doxa.logic.bind._interpretation import Batch, Interpretation, row_names
from doxa.logic.syntax._kb import Axiom, KnowledgeBase
from doxa.logic.syntax._tree import Expr, Not, as_formula
from doxa.logic.tensor._algebra import CLASSICAL, Algebra, Classical
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._execute import drive
from doxa.logic.tensor._root import Root, formula_root, stacked_root
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._run_data import Trace
from doxa.logic.tensor._traced import Traced

CHUNK = 2**22
"""The most elements that one intermediate tensor has, unless a table or the result itself is larger."""
STACK = 16
"""So many formulas that differ only in constants are evaluated as one."""


class Program:
    """Formulas compiled for one schema of data."""

    def __init__(self, plan: TensorPlan, batch: Batch) -> None:
        formulas, algebra, stack = plan.formulas, plan.algebra, plan.stack
        expressions = [f for _, f in formulas]
        compiler = Compiler(batch, expressions, stack=stack)
        self.needs = compiler.needs
        self.classical = isinstance(algebra, Classical)
        self.roots: list[Root] = []
        # Few formulas are not even looked at for that.
        alone, stacks = compiler.trees.stacked(expressions if len(formulas) >= stack else (), stack)
        for group in stacks:
            root = self._root([formulas[m][0] for m in group.members], group.members)
            with located(root.names):
                drive(stacked_root(compiler, root, group, algebra))
        for number in sorted(alone) if stacks else range(len(formulas)):
            root = self._root([formulas[number][0]], [number])
            with located(root.names):
                drive(formula_root(compiler, root, expressions[number], algebra, plan.keep))
        self.traced = Traced(self.roots) if plan.compile else None

    def _root(self, names: list[str], members: list[int]) -> Root:
        self.roots.append(Root(names, members))
        return self.roots[-1]

    def run(
        self,
        batch: Batch,
        *,
        chunk: int,
        generator: torch.Generator | None,
        trace: Trace | None = None,
        checkpoint: bool = False,
        samples: dict[Any, Tensor] | None = None,
    ) -> list[tuple[Root, Any]]:
        run = Run(batch, self.needs, chunk, generator, trace, checkpoint, {} if samples is None else samples)
        for name in self.needs.constants:
            batch.index_of(name)  # which complains about one that lies outside these data
        values = []
        # Nothing flows back through true and false.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.classical):
            ready = self.traced.run(run) if self.traced is not None and trace is None else {}
            for root in self.roots:
                if trace is not None:
                    trace.root(root.names)
                with located(root.names):
                    values.append((root, ready[root] if root in ready else root.value(run)))
        return values


class TensorPlan:
    """A formula, or all axioms of a knowledge base, made ready to run on batch after batch.

    Args:
        what: a formula, an axiom, a knowledge base, or a list of named formulas.
        interpretation: the meaning of its symbols.
        algebra: what truth values are; classical unless said otherwise.
        chunk: intermediate tensors have at most this many elements; larger frames are cut into tiles.
        stack: so many formulas that differ only in constants are evaluated as one.
        keep: variables of the outermost ``forall`` to keep as axes of the result instead of folding them.
        compile: hand what the formulas do with their tables to ``torch.compile``, except where data decide.
        checkpoint: let the backward pass compute each tile again instead of keeping all of them.

    Calling it on data gives the truth value: a tensor with an axis per kept or free variable, or one value per axiom.

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
    ) -> None:
        if chunk < 1 or stack < 2:
            raise ValueError(f"chunk must be at least 1 and stack at least 2, got {chunk} and {stack}")
        self.interpretation = interpretation
        self.algebra = algebra
        self.chunk = chunk
        self.stack = stack
        self.compile = compile
        self.checkpoint = checkpoint
        self.keep = (keep,) if isinstance(keep, str) else tuple(keep)
        self.one = isinstance(what, Expr | Axiom)
        self.formulas = formulas_of(what)
        if not self.one and self.keep:
            raise ValueError("keep names variables of one formula; give one axiom instead of many")
        self.rows = row_names([f for _, f in self.formulas])
        self._programs: dict[Any, Program] = {}

    def __call__(self, *, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        return self.run(self.interpretation.read(data, self.rows), generator)

    def program(self, batch: Batch) -> Program:
        found = self._programs.get(batch.schema)
        if found is None and torch.compiler.is_compiling():
            raise ConfigError(
                "torch.compile cannot follow how a formula becomes a program; call the plan once on data of this kind "
                "before the compiled function"
            )
        if found is None:
            found = Program(self, batch)
            self._programs[batch.schema] = found
        return found

    def run(
        self,
        batch: Batch,
        generator: torch.Generator | None = None,
        trace: Trace | None = None,
        samples: dict[Any, Tensor] | None = None,
    ) -> Tensor:
        """The value on data that are already read. Plans of formulas that draw the same batches share ``samples``."""
        how: Any = {"chunk": self.chunk, "checkpoint": self.checkpoint}
        values = self.program(batch).run(batch, generator=generator, trace=trace, samples=samples, **how)
        if self.one:
            value: Tensor = values[0][1]
            return value
        if not values:
            return self.algebra.atom(
                torch.ones(0, dtype=torch.bool, device=batch.device), "bool", torch.get_default_dtype()
            )
        together = torch.cat([value.reshape(-1) for _, value in values])
        order = [m for root, _ in values for m in root.members]
        if order == list(range(len(order))):
            return together
        return together.index_select(0, torch.tensor(order, device=batch.device).argsort())

    def explain(self, *, generator: torch.Generator | None = None, **data: Any) -> str:
        """Run on data, and say what was computed: axes, lists of instances, tiles, tables, and calls of networks."""
        trace = Trace()
        batch = self.interpretation.read(data, self.rows)
        self.run(batch, generator, trace)
        lines = [f"{self.algebra.name}, chunks of {self.chunk} elements", *trace.lines()]
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
    """Put the name of the axiom in front of an error."""
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
    generator: torch.Generator | None = None,
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
