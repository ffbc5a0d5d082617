"""What instances that look alike have in common: one formula, unfolded once, and one problem.

Instances look alike when they have as many rows, sequences as long, and objects that are equal to each other in the
same places. What they know and believe differs: what they know is given to the problem, what they believe is its
belief.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic import INT, REAL, Expr, Function, Predicate, Sort
from doxa.logic.unfold._unfolder import Scope, Unfolder
from doxa.pose._data import CallData, Indexed, Instances, Reference, position
from doxa.pose._problem import PosedProblem, build
from doxa.pose._values import Cell, InstanceValues, Known, Object, Own, Row
from doxa.pose._variables import UNDEFINED, Variables

__all__ = ["Template"]


@dataclass(eq=False)
class Template:
    """What instances that look alike share; the setting in which the first of them is unfolded.

    Attributes:
        references: what the labels of objects refer to.
        labels: for each reference, the first one that is the same object.
        lengths: how long sequences are.
        counts: how many rows or objects there are, where all of them are ranged over.
        tables: what crisp symbols said of values and numbers: the symbol, arguments, answers, and its state then.
        assumed: the values that known numbers were taken to have.
        posed: the problem, and what fills its variables.
    """

    data: CallData
    first: Instances  # one instance
    everyone: Instances
    rows_of: Mapping[str, int]  # how many rows an instance has of its own, by name; all rows of other names
    values_seen: dict[Known, tuple[Any, ...]]  # in this and earlier data
    limit: int
    references: list[Reference] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    lengths: dict[Cell, int] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    tables: list[list[Any]] = field(default_factory=list)
    assumed: dict[Known, tuple[Any, ...]] = field(default_factory=dict)
    posed: PosedProblem = field(init=False)
    _place: dict[Reference, int] = field(default_factory=dict)
    _label: dict[tuple[str, int], int] = field(default_factory=dict)

    def unfold(self, formulas: Sequence[Expr], scope: Scope) -> None:
        """Unfold what is asked, whether all formulas hold, and let go of the data."""
        variables = Variables(self.limit)
        values = InstanceValues(self.data.batch.signature, self, variables)
        outer = {name: self.refer(v) if isinstance(v, tuple) else v for name, v in scope.items()}
        unfolder = Unfolder(values, outer)
        self.posed = build(values.conjunction([unfolder.formula(f) for f in formulas]), variables)
        del self.data, self.first, self.everyone

    # -- what the first instance is made of -------------------------------------------------------------------------

    def rows(self, name: str) -> list[Row]:
        if name in self.rows_of:
            return [Row(name, i) for i in range(self.rows_of[name])]
        self.counts["rows", name] = self.data.row_count(name)
        return [Row(name, i, fixed=True) for i in range(self.counts["rows", name])]

    def objects(self, sort: str) -> list[Object]:
        if sort in self.rows_of:
            return [self.refer((sort, Indexed(0, f"{sort}{i}"))) for i in range(self.rows_of[sort])]
        self.counts["sort", sort] = self.data.batch.objects(sort).size
        return [self.refer((sort, Indexed(i))) for i in range(self.counts["sort", sort])]

    def constant(self, name: str) -> Any:
        sort = self.data.batch.signature.constants[name].sort
        fixed = self.data.interpretation.constant(name)
        if sort.is_open and sort not in (INT, REAL):
            return self.refer(self.data.own_constant(name))
        if fixed is None:
            raise BindingError(f"the constant {name} has no value; bind it: Interpretation(kb, {name}=...)")
        if sort.values is not None:
            assert fixed.index is not None
            return sort.values[fixed.index]
        assert fixed.tensor is not None
        return fixed.tensor.item()

    def refer(self, reference: Reference) -> Object:
        """The object that a reference means in the first instance, known by the first reference to it."""
        if reference not in self._place:
            here = (reference[0], int(self.data.identity(reference, self.first)))
            self._place[reference] = len(self.references)
            self.labels.append(self._label.setdefault(here, len(self.references)))
            self.references.append(reference)
        return Object(reference[0], self.labels[self._place[reference]])

    def object(self, value: Any, sort: Sort) -> Object:
        if isinstance(value, Object):
            return value
        if isinstance(value, Own):
            return self.refer((sort.name, Indexed(0, value.name)))
        return self.refer((sort.name, value if isinstance(value, Cell) else Indexed(position(sort, value))))

    def length(self, cell: Cell) -> int | None:
        if cell not in self.lengths:
            found = self.data.length(cell, self.first)
            if found is None:
                return None
            self.lengths[cell] = int(found)
        return self.lengths[cell]

    def sort_of(self, cell: Cell) -> Sort | None:
        return self.data.field(cell.row.rows, cell.field).sort

    def is_crisp(self, symbol: Predicate | Function) -> bool:
        return self.data.is_crisp(symbol.name)

    def is_exclusive(self, symbol: Predicate | Function) -> bool:
        return self.data.is_exclusive(symbol.name)

    def tabulated(self, symbol: Predicate | Function, tuples: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What a crisp symbol says of values and numbers; it is noted, for it may say something else another time."""
        defined = [t for t in tuples if not any(a is UNDEFINED for a in t)]
        found = iter(self.data.tabulated(symbol, defined) if defined else ())
        answers = [UNDEFINED if any(a is UNDEFINED for a in t) else next(found) for t in tuples]
        answers = [UNDEFINED if a is None else a for a in answers]
        self.tables.append([symbol, list(tuples), answers, self.data.state(symbol.name)])
        return answers

    def seen(self, known: Known) -> tuple[Any, ...]:
        alike = torch.ones(self.everyone.count, dtype=torch.bool)
        for cell, length in self.lengths.items():  # elsewhere the sequence may be shorter
            lengths = self.data.length(cell, self.everyone)
            alike &= False if lengths is None else lengths.cpu() == length
        values, fine = self.data.known(known, self.everyone.select(alike.nonzero().squeeze(1)), self)
        earlier = self.values_seen.get(known, ())
        found = {*torch.unique(values[fine]).tolist(), *earlier} - {UNDEFINED}
        partial = not bool(fine.all()) or UNDEFINED in earlier
        self.values_seen[known] = (*sorted(found), *([UNDEFINED] if partial else []))
        self.assumed[known] = self.values_seen[known]
        return self.values_seen[known]

    def named(self, value: Any) -> str:
        if not isinstance(value, Object):
            return str(value)
        sort, at = self.references[value.label]
        if isinstance(at, Cell):
            return str(at)
        finite = self.data.batch.signature.sorts[sort].values
        return at.name or (str(finite[at.index]) if finite is not None else f"{sort}#{at.index}")

    # -- other instances --------------------------------------------------------------------------------------------

    def covers(self, data: CallData, instances: Instances) -> bool:
        """Are the known numbers of these instances, and what tables say, those that the problem was made for?"""
        for known, assumed in self.assumed.items():
            values, fine = data.known(known, instances, self)
            listed = [v for v in assumed if v is not UNDEFINED]
            values = values.long() if values.dtype == torch.bool else values
            inside = torch.isin(values, torch.tensor(listed, dtype=values.dtype)) | ~fine
            if not inside.all() or (not fine.all() and UNDEFINED not in assumed):
                return False
        for table in self.tables:
            symbol, tuples, answers, state = table
            now = data.state(symbol.name)
            if now is None or now != state:
                defined = [(t, a) for t, a in zip(tuples, answers, strict=True) if not any(x is UNDEFINED for x in t)]
                said = data.tabulated(symbol, [t for t, _ in defined]) if defined else []
                if [UNDEFINED if a is None else a for a in said] != [a for _, a in defined]:
                    return False
                table[3] = now
        return True

    def matches(self, data: CallData, instances: Instances) -> Tensor:
        """Which instances look like this: bool ``(instances,)``."""
        fits = torch.ones(instances.count, dtype=torch.bool)
        for (kind, name), count in self.counts.items():
            if count != (data.row_count(name) if kind == "rows" else data.batch.objects(name).size):
                return ~fits
        for cell, length in self.lengths.items():
            found = data.length(cell, instances)
            fits &= False if found is None else found == length
        if not fits.all():  # a reference may lead nowhere in instances of another shape
            where = fits.nonzero().squeeze(1)
            return fits.index_put((where,), self.matches(data, instances.select(where))) if len(where) else fits
        here: dict[int, Tensor | int] = {}
        for i, j, same in self._comparisons:
            for k in (j, i):  # in the order in which they were first met, which numbers objects alike in all calls
                if k not in here:
                    at = self.references[k][1]
                    known = at.index if isinstance(at, Indexed) and not at.name else None
                    here[k] = data.identity(self.references[k], instances) if known is None else known
            fits &= (here[i] == here[j]) == same
        return fits

    @cached_property
    def _comparisons(self) -> list[tuple[int, int, bool]]:
        """Pairs of references that may mean other objects in other instances, and whether they are the same here."""
        found = []
        firsts: dict[str, list[int]] = {}  # the different objects so far, by sort
        for i, (sort, at) in enumerate(self.references):
            others = firsts.setdefault(sort, [])
            # what is fixed stays as it is
            moving = [j for j in others if not (_is_fixed(at) and _is_fixed(self.references[j][1]))]
            found += [(i, j, self.labels[i] == j) for j in moving]
            if self.labels[i] == i:
                others.append(i)
        return found


def _is_fixed(at: Cell | Indexed) -> bool:
    return isinstance(at, Indexed) and not at.name
