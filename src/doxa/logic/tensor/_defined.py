"""Definitions as tensors: a defined predicate becomes a table over all its arguments, one stratum after the other.

The tables of a stratum start false, and its clauses are evaluated on them again and again,

    T₀ = 0,    T_{k+1} = Φ(T_k),

until nothing changes: under classical truth, and in logics whose ∧ and ∨ are idempotent (Gödel), that is the least
fixed point, reached after finitely many rounds. Other logics come closer with every round; after ``depth`` rounds what
still changed, the residual, is reported. Gradients flow back through all rounds. Clauses that join known relations are
not evaluated on all tuples: see `doxa.logic.tensor._rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from doxa.errors import BudgetError, KnowledgeError
from doxa.logic.bind._bindings import has_values
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Meaning, Table
from doxa.logic.syntax._binders import Group, Quantifier
from doxa.logic.syntax._define import Define, Stratum, strata
from doxa.logic.syntax._symbols import Function, RowSort
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Name, Truth, postorder
from doxa.logic.tensor._algebra import CLASSICAL, Algebra, Classical
from doxa.logic.tensor._rules import closure
from doxa.logic.tensor._structures import ranges, structured

DEPTH = 64
"""Rounds after which an approximation of a fixed point is taken as it is."""
LARGEST = 2**24
"""Tables of defined predicates have at most so many entries."""

_VALUE = "\0value"
Evaluate = Callable[[Expr, tuple[str, ...], Batch, Algebra], Tensor]
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
        if stratum.names[0] in batch.signature.functions:
            return self._functions(batch, stratum, sizes)
        tensors = [*batch.interpretation.tensors(), *[tensor for _, tensor in batch.tensors()]]
        if isinstance(self.algebra, Classical) and not all(has_values(tensor) for tensor in tensors):
            return self._with(batch, {name: self._false(size, batch) for name, size in sizes.items()})  # only shapes
        if isinstance(self.algebra, Classical):
            found = closure(batch, stratum, sizes)
            if found is not None:
                tables, rounds = found
                self.done.append(Rounds(stratum.names, rounds, 0.0, "rounds of joins"))
                return self._with(batch, tables)
        start = {name: self._false(size, batch) for name, size in sizes.items()}
        most = sum([prod(size) for size in sizes.values()]) + 1 if isinstance(self.algebra, Classical) else self.depth
        return self._with(batch, self._iterated(batch, stratum, start, most))

    def _iterated(self, batch: Batch, stratum: Stratum, tables: dict[str, Tensor], most: int) -> dict[str, Tensor]:
        """Evaluate all clauses on the tables again and again, until nothing changes or it was often enough."""
        residual, count = torch.inf, 0
        while residual > 0 and count < most:
            batch = self._with(batch, tables)
            new = {name: self._value(name, batch, tables[name].shape) for name in tables}
            count += 1
            if all(has_values(t) for t in new.values()):
                changes = [(new[n].detach().double() - tables[n].detach().double()).abs() for n in new]
                residual = max([float(change.max()) if change.numel() else 0.0 for change in changes])
            tables = new
            if not stratum.recursive:
                residual = 0.0
        self.done.append(Rounds(stratum.names, count, residual))
        return tables

    def _functions(self, batch: Batch, stratum: Stratum, sizes: Mapping[str, tuple[int, ...]]) -> Batch:
        """The distributions of functions. No value needs itself, so the same are reached whatever one starts from."""
        most, ends = sum([prod(size[:-1]) for size in sizes.values()]) + 1, []
        for place in (0, -1) if stratum.recursive else (0,):
            start = {name: self._false(size, batch) for name, size in sizes.items()}
            for table in start.values():
                table[..., place] = 1
            ends.append(self._iterated(batch, stratum, start, most))
        for name, table in ends[0].items():
            settled = self.done[-1].residual == 0 and all(torch.equal(e[name], table) for e in ends[1:])
            if has_values(table) and not settled:
                raise KnowledgeError(f"a value of {name} needs itself; begin with a clause that does not")
            if has_values(table) and not bool(((table > 0).any(-1) | self._absent(name, batch)).all()):
                raise KnowledgeError(f"{name} has no value for some arguments; add a clause without a condition")
        return self._with(batch, ends[0])

    def _value(self, name: str, batch: Batch, sizes: Sequence[int]) -> Tensor:
        """The truth of what is defined for all its arguments: of any clause, or of the first whose guard holds."""
        definitions = batch.signature.definitions
        function = name in batch.signature.functions
        parts: list[Tensor] = []
        left: Tensor | None = None
        for clause in definitions[name]:
            assert isinstance(clause, Define)
            parameters = ranges(clause, batch)
            groups, body, guard = list(parameters), clause.body, clause.guard
            if function:
                groups, body = [*groups, Group([_VALUE], sort=clause.result)], Compare("=", body, Name(_VALUE))
            elif guard is not None and any(isinstance(node, Call) for node in postorder(guard)):
                body, guard = And(guard, body), None  # as true as what it speaks of
            keep = tuple([n for g in groups for n in g.names])
            over = Quantifier("forall", groups, body, guard=guard) if groups else body
            value = self.evaluate(over, keep, batch, self.algebra.truths()).expand(list(sizes))
            passes = None
            if guard is not None:
                where = Quantifier("forall", parameters, guard) if parameters else guard
                passes = self.evaluate(where, clause.names, batch, CLASSICAL)
                passes = passes.unsqueeze(-1) if function else passes
            chosen = passes if left is None else left if passes is None else left & passes
            parts.append(value if chosen is None else torch.where(chosen, value, torch.zeros_like(value)))
            if function:
                others = torch.zeros_like(value[..., :1], dtype=torch.bool) if passes is None else ~passes
                left = others if left is None else left & others
        if len(parts) == 1:
            return parts[0]
        return torch.stack(parts).amax(0) if function else self._any(parts)

    def _absent(self, name: str, batch: Batch) -> Tensor:
        """Where a table has no tuple: places that only longer rows have."""
        clause = batch.signature.definitions[name][0]
        assert isinstance(clause, Define)
        if not structured(name, batch):
            return torch.zeros((), dtype=torch.bool, device=batch.device)
        everywhere = Quantifier("forall", ranges(clause, batch), Truth(True))
        return ~self.evaluate(everywhere, clause.names, batch, CLASSICAL)

    def _any(self, parts: list[Tensor]) -> Tensor:
        """The disjunction of truth values."""
        algebra, kind = self.algebra, "bool" if isinstance(self.algebra, Classical) else "prob"
        joined = algebra.or_([algebra.atom(part, kind, part.dtype) for part in parts])  # type: ignore[arg-type]
        return joined.exp() if algebra.connectives_are_log else joined

    def _false(self, sizes: Sequence[int], batch: Batch) -> Tensor:
        dtype = torch.bool if isinstance(self.algebra, Classical) else _dtype(batch)
        return torch.zeros(list(sizes), dtype=dtype, device=batch.device)

    def _with(self, batch: Batch, tables: dict[str, Tensor]) -> Batch:
        known, crisp = batch.signature, isinstance(self.algebra, Classical)
        found: dict[str, Meaning] = {}
        for name, table in tables.items():
            if name in known.functions:  # the value that a distribution is sure of
                found[name] = Table(known.functions[name], table.to(_dtype(batch)), "prob")
            else:
                found[name] = Table(known.predicates[name], table, "bool" if crisp else "prob")
        return batch.extended(found)

    def _sizes(self, name: str, batch: Batch) -> tuple[int, ...]:
        known = batch.signature
        symbol = known.predicates.get(name) or known.functions[name]
        inside = structured(name, batch)
        sizes: list[int] = []
        for number, sort in enumerate(symbol.sorts):
            if isinstance(sort, RowSort):
                sizes.append(batch.row_set(sort.name).size)
            elif number in inside:
                row, field = inside[number]
                sizes.append(batch.column(symbol.sorts[row].name, field).longest)
            else:
                sizes.append(len(sort.values) if sort.values is not None else batch.objects(sort.name).size)
        sizes += [len(symbol.result.values or ())] if isinstance(symbol, Function) else []
        if prod(sizes) > LARGEST:
            shown = " x ".join(map(str, sizes))
            message = f"{name} has a table of {shown} entries, more than {LARGEST:,}; use fewer objects"
            raise BudgetError("entries", message)
        return tuple(sizes)


def _dtype(batch: Batch) -> torch.dtype:
    tensors = [*batch.interpretation.tensors(), *[tensor for _, tensor in batch.tensors()]]
    return next((t.dtype for t in tensors if t.dtype.is_floating_point), torch.get_default_dtype())
