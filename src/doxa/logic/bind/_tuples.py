"""Relations as index lists: their tuples as int64 columns, in order and without repetition.

Nothing here has the size of the product of the domains. Orders and counts are made when asked for, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

DENSE = 4
"""Keys are counted in a table, and not searched for, if that has at most so many places per tuple."""
LARGEST_KEY = 2**62


class Place(NamedTuple):
    """How a column enters a key: from its least value on, or as its rank among listed ones."""

    low: int
    size: int
    ranks: Tensor | None
    """The values of the column, in order, where those from the least to the largest are too many."""
    before: Tensor | None
    """The keys of the columns before it, in order, where these are too many: their ranks are taken instead."""


class Index(NamedTuple):
    """The tuples of a relation by the values of some columns: all that agree in them stand side by side."""

    places: tuple[Place, ...]
    order: Tensor | None
    """The numbers of the tuples in the order of the index; None if that is their own."""
    keys: Tensor
    """The keys in that order; or, for dense keys, where the tuples of each key start, and the end."""
    dense: bool

    def find(self, columns: Sequence[Tensor], count: int) -> tuple[Tensor, Tensor]:
        """For each of ``count`` tuples of values, where those that agree with it start in the order, and how many."""
        if not columns:
            start, end = self.keys.unsqueeze(1).expand(2, count)
            return start, end
        key, known = _keys(columns, self.places)
        if self.dense:
            start = self.keys.index_select(0, key)
            found = self.keys.index_select(0, key + 1).sub_(start)
        else:
            start = torch.searchsorted(self.keys, key)
            found = torch.searchsorted(self.keys, key, right=True).sub_(start)
        return start, found if known is None else found.mul_(known)

    def has(self, columns: Sequence[Tensor], count: int) -> Tensor:
        """Does any tuple agree with these values? One answer for each tuple of values."""
        return self.find(columns, count)[1] > 0


class Tuples:
    """The tuples of a relation, as one int64 column per argument: sorted, and each of them once.

    ``rows`` is an int64 tensor ``(n, k)``, in any order and with repetitions.

    >>> edges = Tuples.of(torch.tensor([[1, 2], [0, 1], [1, 2]]))
    >>> edges.rows
    tensor([[0, 1],
            [1, 2]])
    >>> len(edges), edges.distinct(0)
    (2, 2)
    """

    def __init__(self, columns: Sequence[Tensor], count: int) -> None:
        """Columns that are sorted and without repetition already; :meth:`of` takes any."""
        self.columns = tuple(columns)
        self.count = count
        self._indices: dict[tuple[int, ...], Index] = {}
        self._distinct: dict[int, int] = {}
        self._bounds: dict[int, tuple[int, int]] = {}

    @staticmethod
    def of(rows: Tensor) -> Tuples:
        if rows.ndim != 2 or rows.dtype != torch.int64:
            came = f"shape {tuple(rows.shape)} and dtype {str(rows.dtype).removeprefix('torch.')}"
            raise ValueError(f"tuples are an int64 tensor with one row each, (n, k), got {came}")
        return Tuples.of_columns(rows.unbind(1), len(rows))

    @staticmethod
    def of_columns(columns: Sequence[Tensor], count: int) -> Tuples:
        """The same of columns, in any order and with repetitions; ``count`` says how many where there is no column."""
        if not columns:
            return Tuples((), min(count, 1))
        columns = [c.contiguous() for c in columns]
        places, key = _number(columns, [_bounds(c) for c in columns])
        if bool((key[1:] > key[:-1]).all()):
            return Tuples(columns, len(key))
        if any(p.ranks is not None or p.before is not None for p in places):
            lists = torch.unique(torch.stack(columns, 1), dim=0).unbind(1)
            return Tuples([c.contiguous() for c in lists], len(lists[0]))
        key = torch.unique(key)
        return Tuples(_values(key, places), len(key))

    @staticmethod
    def all(size: int, device: torch.device | str = "cpu") -> Tuples:
        """Every object of a domain.

        >>> Tuples.all(3).columns
        (tensor([0, 1, 2]),)
        """
        return Tuples((torch.arange(size, device=device),), size)

    def __len__(self) -> int:
        return self.count

    @property
    def rows(self) -> Tensor:
        """The tuples as a tensor ``(n, k)``."""
        if not self.columns:
            return torch.zeros(self.count, 0, dtype=torch.int64)
        return torch.stack(self.columns, 1)

    def where(self, keep: Tensor) -> Tuples:
        """Those at which a Boolean tensor is true."""
        at = keep.nonzero().squeeze(1)
        return self if len(at) == self.count else Tuples([c.index_select(0, at) for c in self.columns], len(at))

    def minus(self, other: Tuples) -> Tuples:
        """Those that another relation does not have.

        >>> Tuples.all(4).minus(Tuples.of(torch.tensor([[2]]))).columns
        (tensor([0, 1, 3]),)
        """
        if not self.columns:
            return Tuples((), int(bool(self.count) and not other.count))
        return self.where(~other.index(tuple(range(len(self.columns)))).has(self.columns, self.count))

    def plus(self, other: Tuples) -> Tuples:
        """Those of both together, each once.

        >>> Tuples.of(torch.tensor([[5]])).plus(Tuples.all(2)).columns
        (tensor([0, 1, 5]),)
        """
        if not self.count or not other.count:
            return other if self.count == 0 else self
        both = [torch.cat(pair) for pair in zip(self.columns, other.columns, strict=True)]
        return Tuples.of_columns(both, self.count + other.count)

    def bounds(self, column: int) -> tuple[int, int]:
        """The least and the largest value in a column; (0, 0) if there is none."""
        if column not in self._bounds:
            self._bounds[column] = _bounds(self.columns[column])
        return self._bounds[column]

    def distinct(self, column: int) -> int:
        """How many different values a column has."""
        if column not in self._distinct:
            values, (low, high) = self.columns[column], self.bounds(column)
            if high - low < DENSE * self.count:
                seen = values.new_zeros(high - low + 1, dtype=torch.bool)
                seen[values - low] = True
                found = int(seen.sum())
            else:
                found = len(torch.unique(values))
            self._distinct[column] = found
        return self._distinct[column]

    def index(self, columns: tuple[int, ...]) -> Index:
        """The tuples by the values of some columns; made once."""
        if columns not in self._indices:
            self._indices[columns] = self._index(columns)
        return self._indices[columns]

    def _index(self, columns: tuple[int, ...]) -> Index:
        if not columns:
            ends = torch.tensor([0, self.count], device=self.columns[0].device if self.columns else None)
            return Index((), None, ends, True)
        places, key = _number([self.columns[c] for c in columns], [self.bounds(c) for c in columns])
        order = None
        if columns != tuple(range(len(columns))):
            key, order = key.sort(stable=True)
        total = 1
        for place in places:
            total = (total if place.before is None else len(place.before)) * place.size
        if total > DENSE * self.count:
            return Index(places, order, key, False)
        starts = key.new_zeros(total + 1)
        torch.cumsum(torch.bincount(key, minlength=total), 0, out=starts[1:])
        return Index(places, order, starts, True)


def _bounds(column: Tensor) -> tuple[int, int]:
    if not len(column):
        return 0, 0
    low, high = column.aminmax()
    return int(low), int(high)


def _number(columns: Sequence[Tensor], bounds: Sequence[tuple[int, int]]) -> tuple[tuple[Place, ...], Tensor]:
    """How tuples are numbered, in the order of their columns; and the numbers of these."""
    places: list[Place] = []
    key, total = columns[0], 1
    for number, (column, (low, high)) in enumerate(zip(columns, bounds, strict=True)):
        size, ranks, before = high - low + 1, None, None
        if total * size > LARGEST_KEY and number:
            before = torch.unique(key)
            key, total = torch.searchsorted(before, key), len(before)
        if total * size > LARGEST_KEY:
            ranks = torch.unique(column)
            column, low, size = torch.searchsorted(ranks, column), 0, len(ranks)
        places.append(Place(low, size, ranks, before))
        place = column - low if low else column
        key, total = key * size + place if number else place, total * size
    return tuple(places), key


def _keys(columns: Sequence[Tensor], places: Sequence[Place]) -> tuple[Tensor, Tensor | None]:
    """One number per tuple, and which tuples have one; None if all of them do. Those that have none are 0."""
    key = columns[0]
    known: Tensor | None = None
    for number, (column, (low, size, ranks, before)) in enumerate(zip(columns, places, strict=True)):
        if before is not None:
            key, here = _ranked(before, key)
            known = here if known is None else known & here
        if ranks is not None:
            place, here = _ranked(ranks, column)
        else:
            place = column - low if low else column
            here = (column >= low) & (column < low + size)
        known = here if known is None else known & here
        key = key * size + place if number else place
    if known is None or bool(known.all()):
        return key.contiguous(), None
    return key.masked_fill(~known, 0), known


def _ranked(ranks: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The places of values in a sorted list, and whether they are in it."""
    if not len(ranks):
        return torch.zeros_like(values), torch.zeros_like(values, dtype=torch.bool)
    at = torch.searchsorted(ranks, values.contiguous()).clamp_(max=len(ranks) - 1)
    return at, ranks.index_select(0, at) == values


def _values(key: Tensor, places: Sequence[Place]) -> list[Tensor]:
    """The tuples that numbers stand for."""
    found: list[Tensor] = []
    for low, size, _, _ in reversed(places[1:]):
        outer = torch.div(key, size, rounding_mode="floor")
        found.append(key - outer * size + low)
        key = outer
    found.append(key + places[0].low)
    return found[::-1]
