"""The data a formula is evaluated on: the objects of open sorts, and rows of fields.

A batch is a set of keyword arguments. ``Image=tensor`` gives the objects of an open sort, one per entry of the first
axis (``Image=100`` gives a hundred objects without features). ``pairs=dict(left=..., right=..., sum=...)`` gives rows:
fields with equal first dimension. A field holds

* numbers, or values of a finite sort (integers of a range, positions in an enumeration, or lists of names);
* indices into an open sort: int64 with no further axis, when that sort has objects (data or constants);
* otherwise the objects themselves (features), so that ``digit(p.left)`` runs the network on that column.

Further axes of a field are sequences (``p.digits[2]``, ``forall x in p.digits``); :class:`Ragged` holds sequences of
different lengths without padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic.bind._bindings import check_alike, describe, has_values, shape_of
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._symbols import Rows, Signature, Sort


class Ragged:
    """Several objects per row, a different number in each: all of them in one tensor, and how many each row has.

    It is indexed, iterated, moved and pickled like a list of rows: ``scenes[3]`` is the tensor of one row, and a slice,
    a list, an index tensor or a mask give a `Ragged` of those rows.

    Args:
        values: the objects of all rows, one after the other, ``(lengths.sum(), ...)``.
        lengths: the number of objects of each row, ``(rows,)``.

    >>> scenes = Ragged.cat([torch.zeros(2, 3), torch.ones(1, 3)])
    >>> len(scenes), scenes.values.shape, scenes.lengths
    (2, torch.Size([3, 3]), tensor([2, 1]))
    >>> scenes[1], scenes[[1, 0, 1]].lengths
    (tensor([[1., 1., 1.]]), tensor([1, 2, 1]))
    """

    def __init__(self, values: Tensor, lengths: Tensor | Sequence[int]) -> None:
        self.values = values
        self.lengths = torch.as_tensor(lengths, dtype=torch.int64, device=values.device)
        if self.lengths.ndim != 1 or values.ndim < 1:
            shapes = f"{shape_of(values)} and {shape_of(self.lengths)}"
            raise BindingError(f"Ragged needs values (total, ...) and lengths (rows,), got shapes {shapes}")
        if has_values(self.lengths):
            if bool((self.lengths < 0).any()):
                raise BindingError(f"Ragged lengths must not be negative, got {self.lengths.min().item()}")
            total = int(self.lengths.sum())
            if total != len(values):
                raise BindingError(f"Ragged lengths add up to {total}, but there are {len(values)} values")

    @classmethod
    def cat(cls, structures: Sequence[Tensor | Ragged]) -> Ragged:
        """One row per tensor, whose objects lie along its first axis; a `Ragged` among them adds all of its rows.

        >>> two = Ragged.cat([torch.arange(2), torch.arange(3)])
        >>> Ragged.cat([two, torch.arange(1), two]).lengths
        tensor([2, 3, 1, 2, 3])
        """
        came: object = structures
        given = list(came) if isinstance(came, Iterable) else [came]
        if not given:
            raise BindingError("Ragged.cat needs at least one tensor, to know the shape of an object")
        parts = []
        for s in given:
            if not isinstance(s, Ragged) and not (isinstance(s, Tensor) and s.ndim):
                raise BindingError(f"Ragged.cat takes tensors (objects, ...), one for each row, got {describe(s)}")
            parts.append(s if isinstance(s, Ragged) else Ragged(s, [len(s)]))
        shapes = list(dict.fromkeys(shape[1:] for part in parts if (shape := shape_of(part.values)) != (0,)))
        if len(shapes) > 1:  # torch.cat passes over tensors of shape (0,)
            raise BindingError(f"Ragged.cat needs objects of one shape, got {shapes[0]} and {shapes[1]}")
        return cls(torch.cat([part.values for part in parts]), torch.cat([part.lengths for part in parts]))

    @staticmethod
    def collate(rows: Sequence[Any]) -> Any:
        """Rows of a data set as one batch: for ``DataLoader(..., collate_fn=Ragged.collate)``.

        A data set gives its ragged fields as a `Ragged` of one row, such as ``scenes[[i]]``; they are concatenated, in
        dicts and tuples too. Everything else is put together as ``torch.utils.data.default_collate`` does.

        >>> scenes = Ragged.cat([torch.zeros(2, 3), torch.ones(1, 3)])
        >>> Ragged.collate([{"objects": scenes[[i]], "label": i} for i in (1, 0)])
        {'objects': Ragged(2 rows, 3 objects of shape (3,)), 'label': tensor([1, 0])}
        """
        from torch.utils.data import default_collate

        first = rows[0]
        if isinstance(first, Ragged):
            return Ragged.cat(rows)
        if isinstance(first, Mapping):
            return {key: Ragged.collate([row[key] for row in rows]) for key in first}
        if isinstance(first, tuple | list):
            return [Ragged.collate(column) for column in zip(*rows, strict=True)]
        if isinstance(first, Tensor) and len({row.shape for row in rows}) > 1:
            raise BindingError(
                f"rows of the shapes {shape_of(first)} and others cannot be stacked; give each as a Ragged of one row: "
                "Ragged.cat([objects])"
            )
        return default_collate(list(rows))

    @property
    def device(self) -> torch.device:
        """Where the objects are."""
        return self.values.device

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """The same objects on another device or of another dtype, as ``Tensor.to``.

        >>> Ragged.cat([torch.arange(2)]).to(torch.float64).values
        tensor([0., 1.], dtype=torch.float64)
        """
        return Ragged(self.values.to(*args, **kwargs), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.split(self.values, self.lengths.tolist()))

    def __getitem__(self, rows: Any) -> Any:
        ends = self.lengths.cumsum(0)
        if isinstance(rows, int) or (isinstance(rows, Tensor) and rows.ndim == 0 and rows.dtype != torch.bool):
            end, length = int(ends[rows]), int(self.lengths[rows])
            return self.values[end - length : end]
        index = torch.as_tensor(rows, device=self.device) if isinstance(rows, Sequence) else rows
        index = index.long() if isinstance(index, Tensor) and not len(index) and index.ndim == 1 else index
        lengths = self.lengths[index]
        if lengths.ndim != 1:
            raise BindingError(f"Ragged takes a row, a slice, a list or a tensor of one axis, got {describe(rows)}")
        # object k of a chosen row lies k after the first object of that row
        firsts = torch.repeat_interleave((ends - self.lengths)[index], lengths)
        within = torch.arange(len(firsts), device=self.device)
        within = within - torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
        return Ragged(self.values.index_select(0, firsts + within), lengths)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} objects of shape {shape_of(self.values)[1:]})"


@dataclasses.dataclass
class Objects:
    """The objects of an open sort: how many, and what a network sees of them, if anything."""

    size: int
    features: Tensor | None = None
    names: tuple[str, ...] | None = None
    """Their names, when they are the sort's constants."""


@dataclasses.dataclass
class Column:
    """A field of all rows: ``values`` has one entry per row, or per object when the field is ragged."""

    values: Tensor
    sort: Sort | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        self.starts = None if self.lengths is None else self.lengths.cumsum(0) - self.lengths

    @property
    def longest(self) -> int:
        """How many objects the row with the most of them has."""
        if self.lengths is None:
            return self.values.shape[1]
        return int(self.lengths.max()) if len(self.lengths) else 0

    @property
    def schema(self) -> tuple[Any, ...]:
        """What a plan depends on: everything but the values and the number of rows."""
        dtype = self.values.dtype
        kind = "bool" if dtype == torch.bool else "real" if dtype.is_floating_point or dtype.is_complex else "int"
        return (kind, self.values.ndim, self.lengths is not None, None if self.sort is None else self.sort.name)


@dataclasses.dataclass
class RowSet:
    size: int
    columns: dict[str, Column]


def read_sort(sort: Sort, data: Any) -> Objects:
    if isinstance(data, Tensor) and data.ndim >= 1:
        return Objects(len(data), _dense(sort.name, data))
    if isinstance(data, int) and not isinstance(data, bool) and data >= 0:
        return Objects(data)
    raise BindingError(
        f"{sort.name}: wanted a tensor with one object of the sort per entry of its first axis, or the number of "
        f"objects, got {describe(data)}"
    )


def read_rows(
    name: str, data: Any, declared: Rows | None, signature: Signature, given: Mapping[str, Objects]
) -> RowSet:
    """Rows from a mapping or a dataclass of tensors; objects of ``given`` sorts go by position, not by name."""
    fields = _fields(name, data)
    sorts: dict[str, tuple[Sort, bool]] = {}
    if declared is not None:
        sorts = {field: (sort, many) for field, sort, many in declared.fields}
        for field in fields:
            if field not in sorts:
                remedy = did_you_mean(field, sorts, f"declared are {', '.join(sorts)}")
                raise BindingError(f"{name} has no field {field!r}; {remedy}")
        if missing := [field for field in sorts if field not in fields]:
            raise BindingError(f"{name}: the field {missing[0]!r} is declared but did not come with the data")
    columns: dict[str, Column] = {}
    size: int | None = None
    first = ""
    for field, value in fields.items():
        sort, many = sorts.get(field, (None, None))
        column = _column(f"{name}.{field}", value, sort, many, signature, given)
        rows = len(column.values) if column.lengths is None else len(column.lengths)
        if size is not None and rows != size:
            came = f"{first!r} has {size} and {field!r} has {rows}"
            raise BindingError(f"{name}: every field needs one entry per row, but {came}")
        size, first = rows, first or field
        columns[field] = column
        # Fields of an open sort that hold no indices hold the objects themselves.
        if sort is not None and sort.is_open and not sort.is_integer and column.values.is_floating_point():
            known = next((f for f, c in columns.items() if c.sort == sort and c.values.is_floating_point()), field)
            look = [_objects(columns[f], sorts[f][1]) for f in (known, field)]
            check_alike(sort.name, f"{name}.{known}", look[0], f"{name}.{field}", look[1])
    if size is None:
        raise BindingError(f"{name}: rows need at least one field, got none")
    return RowSet(size, columns)


def _objects(column: Column, many: bool | None) -> Tensor:
    return column.values.flatten(0, 1) if many and column.lengths is None else column.values


def _fields(name: str, data: Any) -> dict[str, Any]:
    if isinstance(data, Mapping):
        return dict(data)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {f.name: getattr(data, f.name) for f in dataclasses.fields(data)}
    if hasattr(data, "_asdict"):
        return dict(data._asdict())
    raise BindingError(f"{name}: wanted rows as a dict or a dataclass of tensors, got {describe(data)}")


def _column(
    place: str,
    value: Any,
    sort: Sort | None,
    many: bool | None,
    signature: Signature,
    given: Mapping[str, Objects],
) -> Column:
    if isinstance(value, Ragged):
        if many is False:
            raise BindingError(f"{place} holds one {_called(sort)} per row, got {value!r}; declare it with a star")
        return Column(_dense(place, value.values), sort, value.lengths)
    if isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, str) for v in value):
        value, sort = _named(place, value, sort, signature)
        if sort.name in given:
            raise BindingError(f"{place} names constants, but the objects of {sort.name} come with the data")
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            raise BindingError(
                f"{place}: wanted a tensor with one entry per row, Ragged, or a list of numbers or names, "
                f"got {describe(value)}"
            ) from None
    _dense(place, value)
    least = 1 if not many else 2
    if value.ndim < least:
        axes = "(rows, ...)" if least == 1 else "(rows, objects per row, ...), or Ragged(values, lengths)"
        raise BindingError(f"{place}: wanted a tensor {axes}, got {describe(value)}")
    if sort is not None and (sort.values is not None or sort.is_integer):
        _check_scalar(place, value, sort, 2 if many else 1)
    return Column(value, sort)


def _dense(place: str, value: Tensor) -> Tensor:
    if value.layout != torch.strided:
        raise BindingError(f"{place}: wanted a dense tensor, got {describe(value)}; call .to_dense()")
    return value


def _check_scalar(place: str, value: Tensor, sort: Sort, axes: int) -> None:
    """A field of numbers or finite values has no feature axes, and integers unless it is real."""
    real = sort.name == "Real"
    if value.ndim != axes or (not real and (value.dtype.is_floating_point or value.dtype == torch.bool)):
        wanted = "numbers" if real else "integers"
        raise BindingError(f"{place}: wanted {wanted} of sort {sort.name} with {axes} axes, got {describe(value)}")


def _named(place: str, names: Iterable[Any], sort: Sort | None, signature: Signature) -> tuple[Tensor, Sort]:
    """A list of value names as positions in their sort, a list of constants as positions among the constants."""
    found: list[int] = []
    positions: dict[str, int] = {}
    for name in names:
        own = signature.value_sorts.get(name)
        if own is None and name in signature.constants and signature.constants[name].sort.is_open:
            own = signature.constants[name].sort
        if own is None or (sort is not None and own != sort):
            values = sort.values if sort is not None and isinstance(sort.values, tuple) else [*signature.value_sorts]
            known = [str(v) for v in values] + [c.name for c in signature.constants.values()]
            wanted = f"a value of sort {_called(sort)}" if sort is not None else "a known value or constant"
            raise BindingError(
                f"{place}: {name!r} is not {wanted}; {did_you_mean(str(name), known) or ''}".rstrip("; ")
            )
        if sort is None or not positions:
            sort = own
            order = sort.values or [c.name for c in signature.constants.values() if c.sort == own]
            positions = {str(v): i for i, v in enumerate(order)}
        found.append(positions[name])
    assert sort is not None
    return torch.tensor(found, dtype=torch.int64), sort


def _called(sort: Sort | None) -> str:
    return "object" if sort is None else sort.name
