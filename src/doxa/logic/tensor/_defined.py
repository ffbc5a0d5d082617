"""Definitions as tensors: a defined predicate becomes a table over all its arguments, one stratum after the other.

The tables of a stratum start false, and its clauses are evaluated on them again and again,

    T₀ = 0,    T_{k+1} = Φ(T_k),

until nothing changes: under classical truth, and in logics whose ∧ and ∨ are idempotent (Gödel), that is the least
fixed point, reached after finitely many rounds. Other logics come closer with every round; after ``depth`` rounds what
still changed, the residual, is reported. Gradients flow back through all rounds. Clauses that join known relations are
not evaluated on all tuples: see `doxa.logic.tensor._rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from doxa.errors import BudgetError, KnowledgeError
from doxa.logic.bind._bindings import has_values
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Table
from doxa.logic.syntax._binders import Group, Quantifier
from doxa.logic.syntax._define import Define, Stratum, strata
from doxa.logic.syntax._substitute import renamed
from doxa.logic.syntax._symbols import RowSort
from doxa.logic.syntax._tree import And, Call, Expr, Or, postorder
from doxa.logic.tensor._algebra import Algebra, Classical
from doxa.logic.tensor._rules import closure

DEPTH = 64
"""Rounds after which an approximation of a fixed point is taken as it is."""
LARGEST = 2**24
"""Tables of defined predicates have at most so many entries."""

Evaluate = Callable[[Expr, tuple[str, ...], Batch], Tensor]
"""The truth of a ``forall`` for each choice of its variables, which are kept as axes."""


@dataclass
class Rounds:
    """What was done for a stratum: how often its clauses were evaluated, and how much the last time changed."""

    names: tuple[str, ...]
    count: int
    residual: float
    how: str = "rounds"

    def __str__(self) -> str:
        left = "" if self.residual == 0 else f", residual {self.residual:.2g}"
        return f"{', '.join(self.names)}: {self.count} {self.how}{left}"


@dataclass
class Completion:
    """Completes batches with the tables of what is defined."""

    algebra: Algebra
    evaluate: Evaluate
    depth: int = DEPTH
    done: list[Rounds] = field(default_factory=list)

    def __call__(self, batch: Batch, formulas: Iterable[Expr]) -> Batch:
        """The batch with the defined predicates that the formulas use as relations of its own."""
        needed = self._needed(batch, formulas)
        if not needed:
            return batch
        self.done = []
        for stratum in strata(batch.signature.definitions):
            if needed.intersection(stratum.names):
                batch = self._completed(batch, stratum)
        return batch

    def _needed(self, batch: Batch, formulas: Iterable[Expr]) -> set[str]:
        """What is defined, used and not there yet."""
        definitions = batch.signature.definitions
        found: set[str] = set()
        todo: list[Expr] = list(formulas) if definitions else []
        while todo:
            for node in postorder(todo.pop()):
                name = node.name if isinstance(node, Call) else ""
                if name in definitions and name not in batch.symbols and name not in found:
                    found.add(name)
                    todo += definitions[name]
        return found

    def _completed(self, batch: Batch, stratum: Stratum) -> Batch:
        sizes = {name: self._sizes(name, batch) for name in stratum.names}
        if isinstance(self.algebra, Classical):
            found = closure(batch, stratum, sizes)
            if found is not None:
                tables, rounds = found
                self.done.append(Rounds(stratum.names, rounds, 0.0, "rounds of joins"))
                return self._with(batch, tables)
        formulas = {name: _formula(batch.signature.definitions[name]) for name in stratum.names}
        dtype = torch.bool if isinstance(self.algebra, Classical) else _dtype(batch)
        tables = {name: torch.zeros(size, dtype=dtype, device=batch.device) for name, size in sizes.items()}
        if not stratum.recursive:
            return self._with(batch, {n: self._value(f, batch, sizes[n]) for n, f in formulas.items()})
        residual, count = torch.inf, 0
        most = sum([prod(size) for size in sizes.values()]) + 1 if dtype == torch.bool else self.depth
        while residual > 0 and count < most:
            batch = self._with(batch, tables)
            new = {name: self._value(formula, batch, sizes[name]) for name, formula in formulas.items()}
            count += 1
            if all(has_values(t) for t in new.values()):
                changes = [(new[n].detach().double() - tables[n].detach().double()).abs() for n in new]
                residual = max([float(change.max()) if change.numel() else 0.0 for change in changes])
            tables = new
        self.done.append(Rounds(stratum.names, count, residual))
        return self._with(batch, tables)

    def _value(self, formula: Expr, batch: Batch, sizes: Sequence[int]) -> Tensor:
        names = formula.names if isinstance(formula, Quantifier) else ()
        value = self.evaluate(formula, names, batch)
        return value.expand(list(sizes)) if value.shape != torch.Size(sizes) else value

    def _with(self, batch: Batch, tables: dict[str, Tensor]) -> Batch:
        symbols = batch.signature.predicates
        kind = "bool" if isinstance(self.algebra, Classical) else "prob"
        return batch.extended({n: Table(symbols[n], t, kind) for n, t in tables.items()})  # type: ignore[arg-type]

    def _sizes(self, name: str, batch: Batch) -> tuple[int, ...]:
        symbol = batch.signature.predicates.get(name)
        if symbol is None:
            raise KnowledgeError(
                f"{name} is a defined function, which fuzzy and classical evaluation do not compute; use Exact() or "
                "Sampled(), or define a predicate instead"
            )
        sizes: list[int] = []
        for sort in symbol.sorts:
            if isinstance(sort, RowSort):
                raise KnowledgeError(
                    f"{name} is defined for rows, which fuzzy and classical evaluation do not compute; use Exact() or "
                    "Sampled(), or define it for the objects of a sort"
                )
            sizes.append(len(sort.values) if sort.values is not None else batch.objects(sort.name).size)
        if prod(sizes) > LARGEST:
            shown = " x ".join(map(str, sizes))
            raise BudgetError(
                "entries", f"{name} has a table of {shown} entries, more than {LARGEST:,}; use fewer objects"
            )
        return tuple(sizes)


def _dtype(batch: Batch) -> torch.dtype:
    tensors = [*batch.interpretation.tensors(), *[tensor for _, tensor in batch.tensors()]]
    return next((t.dtype for t in tensors if t.dtype.is_floating_point), torch.get_default_dtype())


def _formula(clauses: Sequence[Expr]) -> Expr:
    """The clauses of a predicate as one formula over its parameters, to be kept as axes."""
    parts: list[Expr] = []
    first = clauses[0]
    assert isinstance(first, Define)
    names = first.names
    for clause in clauses:
        assert isinstance(clause, Define)
        body = clause.body if clause.guard is None else And(clause.guard, clause.body)
        parts.append(body if clause.names == names else renamed(body, dict(zip(clause.names, names, strict=True))))
    groups = [Group(g.names, sort=g.sort) for g in first.groups]
    return Quantifier("forall", groups, Or(*parts)) if groups else Or(*parts)
