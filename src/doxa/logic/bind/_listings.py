"""Tables as index lists: one column per argument, without an object for each tuple."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic.bind._bindings import Columns, Entries
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._symbols import INT, REAL, Function, Predicate, Signature, Sort


@dataclass(frozen=True, eq=False)
class Listing:
    """A column of a table: numbers, positions in a finite sort, or objects of an open one.

    An object is an index into the data from 0 on, or -1, -2, ... for the first, second, ... of ``names``.
    """

    codes: Tensor
    names: tuple[str, ...] = ()

    def places(self, place: Callable[[str], int]) -> Tensor:
        """The objects as indices, where ``place`` says which one a name means."""
        if not self.names:
            return self.codes
        named = torch.tensor([place(name) for name in self.names], dtype=torch.int64)
        return torch.where(self.codes < 0, named[(-1 - self.codes).clamp(min=0)], self.codes)

    def python(self, sort: Sort) -> list[Any]:
        """The column as what stands in a table by name."""
        if sort.values is not None:
            values = sort.values
            return [values[code] for code in self.codes.tolist()]
        if sort in (INT, REAL):
            return list(self.codes.tolist())
        return [self.names[-1 - code] if code < 0 else code for code in self.codes.tolist()]


def positions(sort: Sort) -> dict[Any, int]:
    return {value: i for i, value in enumerate(sort.values or ())}


def position(sort: Sort, value: Any, place: str, known: dict[Any, int] | None = None) -> int:
    """Where a value stands in its finite sort; ``known`` holds the answers, when there are many to ask for."""
    assert sort.values is not None
    if isinstance(value, Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, int | str) and not isinstance(value, bool):
        found = (known or positions(sort)).get(value)
        if found is not None:
            return found
    shown = ", ".join([str(v) for v in sort.values[:12]]) + (", ..." if len(sort.values) > 12 else "")
    raise BindingError(f"{place}: {value!r} is no value of {sort.name} ({shown})")


def listings(
    symbol: Predicate | Function, table: Entries | Columns, said: str, signature: Signature
) -> tuple[list[Listing], Listing]:
    """The columns of the arguments and of the value; names and numbers are checked against the sorts."""
    result = symbol.result if isinstance(symbol, Function) else None
    if isinstance(table, Columns):
        arguments, value = _of_columns(symbol, table, said, signature)
        check_single(symbol, arguments, value)
        return arguments, value
    arity, name = len(symbol.sorts), symbol.name
    for args, value in table.entries:
        if len(args) != arity:
            raise BindingError(f"{name}: {said} takes {arity} arguments, but the table has the tuple {args!r}")
        if result is None and not isinstance(value, bool):
            raise BindingError(f"{name}{args!r}: a predicate is true or false, got {value!r}")
    keys, values = [args for args, _ in table.entries], [value for _, value in table.entries]
    lists = list(zip(*keys, strict=True)) if keys else [()] * arity
    found = [_of_values(name, column, sort, signature) for column, sort in zip(lists, symbol.sorts, strict=True)]
    if result is None:
        return found, Listing(torch.tensor(values, dtype=torch.bool))
    results = _of_values(name, values, result, signature)
    check_single(symbol, found, results)
    return found, results


def _of_values(place: str, values: Sequence[Any], sort: Sort, signature: Signature) -> Listing:
    """A column of Python's values, each kind of them looked at once."""
    kinds = {type(v) for v in values}
    if sort.values is not None:
        known = positions(sort)
        places: list[int | None] = list(map(known.get, values)) if kinds <= {int, str} else [None]
        if None in places:
            places = [position(sort, value, place, known) for value in values]
        return Listing(torch.tensor(places, dtype=torch.int64))
    if sort in (INT, REAL):
        if not kinds <= ({int} if sort == INT else {int, float}):
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int if sort == INT else int | float):
                    raise _nothing(place, value, sort)
        return Listing(torch.tensor(values, dtype=torch.int64 if sort == INT else torch.float64))
    ranks: dict[str, int] = {}
    if kinds != {int}:
        for value in dict.fromkeys(values) if kinds == {str} else values:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise _nothing(place, value, sort)
            if isinstance(value, str) and value not in ranks:
                _check_constant(place, value, sort, signature)
                ranks[value] = -1 - len(ranks)
        values = [ranks[v] if isinstance(v, str) else v for v in values]
    codes = torch.tensor(values, dtype=torch.int64)
    if not ranks and len(codes) and int(codes.min()) < 0:
        raise _nothing(place, int(codes.min()), sort)
    return Listing(codes, tuple(ranks))


def _nothing(place: str, value: Any, sort: Sort) -> BindingError:
    return BindingError(f"{place}: {value!r} names nothing of sort {sort.name}; use a constant or an index")


def _check_constant(place: str, value: str, sort: Sort, signature: Signature) -> None:
    constant = signature.constants.get(value)
    if constant is None or constant.sort != sort:
        constants = [c.name for c in signature.constants.values() if c.sort == sort]
        remedy = did_you_mean(value, constants, f"declare it: const {value}: {sort.name}")
        raise BindingError(f"{place}: no constant {value!r} of sort {sort.name}; {remedy}")


def contradiction(arguments: Sequence[Tensor], values: Tensor) -> tuple[int, int] | None:
    """Two rows of a table of the same arguments and another value, if there are such.

    >>> contradiction([torch.tensor([3, 1, 3])], torch.tensor([0, 1, 2]))
    (0, 2)
    """
    count = len(values)
    key = torch.zeros(count, dtype=torch.int64, device=values.device)
    for column in arguments:  # equal keys for equal tuples, and no key above the number of rows
        place = torch.unique(column, return_inverse=True)[1]
        key = torch.unique(key * count + place, return_inverse=True)[1]
    rows = torch.arange(count, device=values.device)
    first = torch.full_like(key, count).scatter_reduce(0, key, rows, "amin")[key]
    differs = (values != values[first]) & ~(values.isnan() & values[first].isnan())
    if not bool(differs.any()):
        return None
    at = int(differs.long().argmax())
    return int(first[at]), at


def check_single(symbol: Predicate | Function, arguments: Sequence[Listing], value: Listing) -> None:
    """Refuse a function of two values for the same arguments."""
    if isinstance(symbol, Predicate):
        return
    rows = contradiction([listing.codes for listing in arguments], value.codes)
    if rows is None:
        return

    def shown(listing: Listing, row: int, sort: Sort) -> str:
        return str(Listing(listing.codes[[row]], listing.names).python(sort)[0])

    of = ", ".join([shown(a, rows[1], sort) for a, sort in zip(arguments, symbol.sorts, strict=True)])
    said = " and ".join([shown(value, row, symbol.result) for row in rows])
    where = f"in its rows {rows[0]} and {rows[1]}"
    raise BindingError(f"{symbol.name}: the table gives {symbol.name}({of}) two values, {said}, {where}; keep one")


# --- tables that come in columns already ---


def _of_columns(
    symbol: Predicate | Function, table: Columns, said: str, signature: Signature
) -> tuple[list[Listing], Listing]:
    sorts = [*symbol.sorts, *([symbol.result] if isinstance(symbol, Function) else [])]
    if len(table.columns) != len(sorts):
        wanted = f"one for each argument{' and one for the value' if len(sorts) > len(symbol.sorts) else ''}"
        raise BindingError(
            f"{symbol.name}: {said} needs {len(sorts)} columns, {wanted}, but {table.origin} has {len(table.columns)}"
        )
    found = []
    for number, ((codes, names), sort) in enumerate(zip(table.columns, sorts, strict=True)):
        place = f"{symbol.name}: column {number} of {table.origin}"
        found.append(_of_codes(place, codes, names, sort, signature, table.shape is not None))
    if isinstance(symbol, Function):
        return found[:-1], found[-1]
    count = len(found[0].codes) if found else 0
    return found, Listing(torch.ones(count, dtype=torch.bool))


def _of_codes(
    place: str, codes: Tensor, names: tuple[str, ...] | None, sort: Sort, signature: Signature, positions_: bool
) -> Listing:
    """A column of whole numbers, or of numbers of names; the names are looked at once each."""
    if names is not None:
        if sort in (INT, REAL) or isinstance(sort.values, range):
            raise BindingError(f"{place}: numbers of sort {sort.name} are wanted, got names such as {names[:1]!r}")
        if sort.values is not None:
            known = positions(sort)
            return Listing(torch.tensor([position(sort, n, place, known) for n in names], dtype=torch.int64)[codes])
        for name in names:
            _check_constant(place, name, sort, signature)
        return Listing(-1 - codes, names)
    if codes.is_floating_point() and sort != REAL:
        raise BindingError(f"{place}: whole numbers are wanted for sort {sort.name}, got {str(codes.dtype)[6:]}")
    if sort in (INT, REAL):
        return Listing(codes.long() if sort == INT else codes.double())
    codes = codes.long()
    if isinstance(sort.values, range) and not positions_:
        codes = codes - sort.values[0]
    if len(codes):
        low, high = (int(end) for end in codes.aminmax())
        if low < 0 or (sort.values is not None and high >= len(sort.values)):
            raise BindingError(
                f"{place}: {(low if low < 0 else high) + (sort.values[0] if isinstance(sort.values, range) else 0)} "
                f"stands for nothing of sort {sort.name}; use indices from 0 on, or values of the sort"
            )
    return Listing(codes)
