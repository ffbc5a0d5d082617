"""What instances that look alike have in common: one formula, unfolded once, and one problem.

They have as many rows, sequences as long, and objects that are equal to each other in the same places. What they know
is given to the problem, what they believe is its belief.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from doxa.pose._data import CallData
from doxa.pose._problem import PosedProblem
from doxa.pose._references import Cell, Indexed, Instances, Known, Reference
from doxa.pose._variables import UNDEFINED


@dataclass(eq=False)
class Template:
    """What instances that look alike share, noted while the first of them was unfolded."""

    references: list[Reference] = field(default_factory=list)
    """What the labels of objects refer to."""
    labels: list[int] = field(default_factory=list)
    """For each reference, the first one that is the same object."""
    lengths: dict[Cell, int] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of rows or objects, where all of them are ranged over."""
    tables: list[list[Any]] = field(default_factory=list)
    """What crisp symbols said of values and numbers: the symbol, arguments, answers, and its state then."""
    constants: dict[str, Any] = field(default_factory=dict)
    assumed: dict[Known, tuple[Any, ...]] = field(default_factory=dict)
    """The values that known numbers were taken to have."""
    posed: PosedProblem = field(init=False)

    def covers(self, data: CallData, instances: Instances) -> bool:
        """Are the known numbers of these instances, constants and tables those that the problem was made for?"""
        if any(data.constant(name) != value for name, value in self.constants.items()):
            return False
        for known, assumed in self.assumed.items():
            values, fine = data.known(known, instances, self.references)
            values = values.long() if values.dtype == torch.bool else values
            listed = torch.tensor([v for v in assumed if v is not UNDEFINED], dtype=values.dtype)
            if not (torch.isin(values, listed) | ~fine).all() or (not fine.all() and UNDEFINED not in assumed):
                return False
        for table in self.tables:
            symbol, tuples, answers, state = table
            now = data.state(symbol.name)
            if now is None or now != state:
                if data.tabulated(symbol, tuples) != answers:
                    return False
                table[3] = now
        return True

    def matches(self, data: CallData, instances: Instances) -> Tensor:
        """Which instances look like this: bool ``(instances,)``."""
        fits = torch.ones(instances.count, dtype=torch.bool)
        for (kind, name), count in self.counts.items():
            if count != (data.batch.row_set(name).size if kind == "rows" else data.batch.objects(name).size):
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
                    here[k] = data.identity(self.references[k], instances)
            fits &= (here[i] == here[j]) == same
        return fits

    @cached_property
    def _comparisons(self) -> list[tuple[int, int, bool]]:
        """Pairs of references that may mean other objects in other instances, and whether they are the same here."""
        found = []
        firsts: dict[str, list[int]] = {}  # the different objects so far, by sort
        fixed = [isinstance(at, Indexed) and not at.name for _, at in self.references]  # the same in every instance
        for i, (sort, _) in enumerate(self.references):
            others = firsts.setdefault(sort, [])
            found += [(i, j, self.labels[i] == j) for j in others if not (fixed[i] and fixed[j])]
            if self.labels[i] == i:
                others.append(i)
        return found
