"""The data of one call, seen from many instances at once: which objects, numbers and sequences each has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import BindingError, KnowledgeError
from doxa.logic import INT, REAL, Interpretation, Predicate
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Network
from doxa.logic.bind._universe import Column
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON
from doxa.logic.tensor._readings import Reading, readings
from doxa.pose._references import Block, Cell, Indexed, Instances, Known, Object, Question, Reference, Row, Symbol
from doxa.pose._variables import UNDEFINED

__all__ = ["CallData", "Lookup", "entries_of", "position"]


Told = Tensor | tuple[str, Tensor | None]
"""What a symbol is told of an argument: numbers, indices, or the objects of a sort by number; None for all of them."""


class Lookup(NamedTuple):
    """What symbols are asked, made out before any of them is."""

    columns: dict[Symbol, dict[int, Told]]
    places: dict[Symbol, list[tuple[Tensor, int]]]
    """Where each question's answers are in a symbol's table: ``(instances,)``, and an offset."""
    blocks: tuple[Block, ...]
    """Where the objects come from that have no index."""


class CallData:
    """Where objects, numbers and sequences are, for many instances at once."""

    def __init__(self, interpretation: Interpretation, data: Mapping[str, Any], rows: Iterable[str]) -> None:
        self.interpretation, self._data, self._rows_named = interpretation, data, rows
        self.looked = False
        """Was anything looked at besides shapes? Then other data of these shapes may be posed in another way."""
        self._blocks: dict[Block, tuple[int, Tensor]] = {}
        self._next: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._checked: set[tuple[str, str]] = set()

    @cached_property
    def batch(self) -> Batch:
        """The data, checked."""
        return self.interpretation.read(self._data, self._rows_named)

    @cached_property
    def given(self) -> Mapping[str, Any]:
        """What a symbol is told of besides its arguments: objects; rows are read cell by cell."""
        if all(isinstance(value, Tensor | int) for value in self._data.values()):
            return self._data
        return {name: value for name, value in self._data.items() if name not in self.batch.rows}

    def is_crisp(self, name: str) -> bool:
        """Is a symbol bound to what is certain?"""
        return self.batch.meaning(name).returns in ("bool", "value")

    def state(self, name: str) -> Any:
        """What a crisp symbol says is the same while this is; None where it may be another at every call.

        Python functions and listed facts stay as they are.
        """
        self.looked = True
        meaning = self.batch.meaning(name)
        if name in self.batch.symbols or next(meaning.parameters(), None) is not None:
            return None
        buffers = list(meaning.buffers())
        return None if any(b.is_inference() for b in buffers) else tuple([(id(b), b._version) for b in buffers])

    def is_exclusive(self, name: str) -> bool:
        """Do the values of the last argument of a predicate exclude each other?"""
        return bool(getattr(self.batch.meaning(name), "exclusive", False))

    def object_count(self, sort: str) -> int:
        """How many objects a sort has."""
        if sort not in self._counts:
            self._counts[sort] = self.batch.objects(sort).size if self.batch.has_objects(sort) else 0
        return self._counts[sort]

    def _field(self, rows: str, name: str) -> Column:
        found = self.batch.rows.get(rows)  # `Batch.column` says what there is instead
        return self.batch.column(rows, name) if found is None or name not in found.columns else found.columns[name]

    def length(self, cell: Cell, instances: Instances) -> Tensor | None:
        """How long the sequence in a field is, ``(instances,)``; None if it is none."""
        column = self._field(cell.row.rows, cell.field)
        if column.lengths is not None:
            self.looked = True
            return None if cell.path else column.lengths[self._rows(cell.row, instances)]
        if column.values.ndim <= 1 + len(cell.path):
            return None
        return torch.full((instances.count,), column.values.shape[1 + len(cell.path)])

    def _rows(self, row: Row, instances: Instances) -> Tensor:
        return torch.full((instances.count,), row.number) if row.fixed else instances.rows[row.rows][:, row.number]

    def _places(self, cell: Cell, instances: Instances) -> Tensor:
        """Where a cell is among the entries of its field, its first axes taken together: ``(instances,)``."""
        column = self._field(cell.row.rows, cell.field)
        at = self._rows(cell.row, instances)
        path = [instances.own[i] if isinstance(i, str) else i for i in cell.path]
        if column.starts is not None:
            return column.starts.cpu()[at] + path[0] if path else at
        for axis, i in enumerate(path):
            at = at * column.values.shape[1 + axis] + i
        return at

    def _entries(self, rows: str, field: str, depth: int) -> Tensor:
        """The entries of a field, or of the sequences in it, on one axis."""
        column = self._field(rows, field)
        return column.values.flatten(0, depth) if depth and column.lengths is None else column.values

    def numbers(self, cell: Cell, instances: Instances) -> Tensor:
        """The numbers in a field: ``(instances,)``."""
        self.looked = True
        values = self._entries(cell.row.rows, cell.field, len(cell.path))
        if values.ndim != 1:
            raise BindingError(f"{cell}: a number is needed, but its entries have shape {tuple(values.shape[1:])}")
        self._check_values(cell.row.rows, cell.field)
        found = values.cpu()[self._places(cell, instances)]
        return found if found.is_floating_point() or found.dtype == torch.bool else found.long()

    def _check_values(self, rows: str, field: str) -> None:
        """Refuse a field that holds what is no value of its finite sort."""
        column = self._field(rows, field)
        if (rows, field) in self._checked or column.sort is None or column.sort.values is None:
            return
        self._checked.add((rows, field))
        domain = column.sort.values
        low, high = (domain[0], domain[-1]) if isinstance(domain, range) else (0, len(domain) - 1)
        values = column.values.flatten()
        wrong = (values < low) | (values > high)
        if bool(wrong.any()):
            at = int(wrong.long().argmax())
            raise BindingError(
                f"{rows}.{field}: entry {at} is {values[at].item()}, which is no value of {column.sort.name}"
            )

    def identity(self, reference: Reference, instances: Instances) -> Tensor:
        """Which object it is, as a number that says which objects are the same: ``(instances,)``."""
        sort, at = reference
        if isinstance(at, Indexed):
            return instances.own[at.name] if at.name else torch.full((instances.count,), at.index)
        finite = self.batch.signature.sorts[sort].values
        if finite is not None:
            found = self.numbers(at, instances).long()
            return found - finite[0] if isinstance(finite, range) else found
        place = (at.row.rows, at.field, len(at.path))
        values = self._entries(*place)
        scalar = values.ndim == 1 and not values.dtype.is_floating_point and values.dtype != torch.bool
        if scalar and self.batch.has_objects(sort):
            self.looked = True
            found = values.cpu().long()[self._places(at, instances)]
            count = self.object_count(sort)
            if ((found < 0) | (found >= count)).any():
                raise BindingError(
                    f"{at}: it holds {found.min().item()} to {found.max().item()}, but {sort} has {count}"
                )
            return found
        return self._block((sort, place)) + self._places(at, instances)

    def _block(self, block: Block) -> int:
        """The number of the first of some objects that come with features."""
        if block not in self._blocks:
            sort, where = block
            fixed = None if isinstance(where, tuple) else self.interpretation.constant(where)
            values = self._entries(*where) if fixed is None or fixed.tensor is None else fixed.tensor.unsqueeze(0)
            first = self._next.get(sort, self.object_count(sort))
            self._blocks[block] = (first, values)
            self._next[sort] = first + len(values)
        return self._blocks[block][0]

    def own_constant(self, name: str) -> Reference:
        """A constant of an open sort."""
        sort = self.batch.signature.constants[name].sort.name
        fixed = self.interpretation.constant(name)
        if sort in self.batch.given and fixed is not None and fixed.tensor is not None:
            return sort, Indexed(self._block((sort, name)))
        return sort, Indexed(self.batch.index_of(name))

    def constant(self, name: str) -> Any:
        """The value or number that a constant stands for."""
        self.looked = True
        sort, fixed = self.batch.signature.constants[name].sort, self.interpretation.constant(name)
        if fixed is None:
            raise BindingError(f"the constant {name} has no value; bind it: Interpretation(kb, {name}=...)")
        if sort.values is not None:
            assert fixed.index is not None
            return sort.values[fixed.index]
        assert fixed.tensor is not None
        return fixed.tensor.item()

    def column(self, sort: str, ids: Tensor) -> Tensor:
        """The features of objects, some of which have no index."""
        low, high, count = int(ids.min()), int(ids.max()), self.object_count(sort)
        features = self.batch.objects(sort).features if low < count else None
        if low < count and features is None:
            raise BindingError(f"{sort}: some of its objects have features and some have none")
        every = [] if features is None else [(0, features)]
        every += [found for (of, _), found in self._blocks.items() if of == sort]
        needed = [(first, values) for first, values in every if low < first + len(values) and first <= high]
        together = needed[0][1] if len(needed) == 1 else torch.cat([values for _, values in needed])
        at = ids - needed[0][0]  # they are numbered one after the other
        if torch.equal(at, torch.arange(len(together))):
            return together
        return together.index_select(0, at.to(together.device))

    def known(self, known: Known, instances: Instances, names: Sequence[Reference]) -> tuple[Tensor, Tensor]:
        """The value of what the data decide, ``(instances,)``, and where it has one."""
        if known.op in ("cell", "own"):
            fine = torch.ones(instances.count, dtype=torch.bool)
            if known.op == "cell":
                return self.numbers(known.args[0], instances), fine
            values = known.args[0].sort.values
            here = instances.own[known.args[0].name]
            return here + values[0] if isinstance(values, range) else here, fine
        if known.op == "call":
            symbol, args = known.args
            self.looked = True
            lookup = self.locate({symbol: [(args, instances, names)]})
            ((place, offset),) = lookup.places[symbol]
            found = entries_of(symbol, args, self.read(lookup)[symbol].values).detach().cpu()[place + offset]
            if found.is_floating_point():
                return found, ~found.isnan()
            if found.dtype == torch.bool:
                return found, torch.ones_like(found)
            finite = symbol.result.values is not None
            fine = found >= 0 if finite else found > torch.iinfo(torch.int64).min
            return found + symbol.result.values[0] if isinstance(symbol.result.values, range) else found, fine
        parts = [
            self.known(a, instances, names) if isinstance(a, Known) else (a, torch.tensor(True)) for a in known.args
        ]
        (a, fine), (b, also) = parts  # a plain number takes the precision of what stands beside it
        fine = (fine & also).expand(instances.count)
        if known.op in ("//", "mod"):
            b = torch.as_tensor(b)
            fine, b = fine & (b != 0), torch.where(b == 0, torch.ones_like(b), b)
        operate = ARITHMETIC.get(known.op) or COMPARISON[known.op]
        return torch.as_tensor(operate(a, b)).expand(instances.count), fine

    def locate(self, asked: Mapping[Symbol, Sequence[Question]]) -> Lookup:
        """What symbols will be asked, and where the answer to each question will be.

        An argument that is None is left open: its values are on the last axis.
        """
        columns, places = {}, {}
        networks = [self._network(symbol) for symbol in asked]
        for symbol, questions in asked.items():
            alone = networks.count(self._network(symbol)) == 1  # a network that two symbols share runs once for both
            columns[symbol], tuples = self._tuples(symbol, questions, alone and self._sees_features(symbol))
            places[symbol] = self._located(symbol, questions, tuples)
        return Lookup(columns, places, tuple(self._blocks))

    def _told(self, told: Told) -> Tensor:
        if isinstance(told, Tensor):
            return told
        sort, ids = told
        found: Tensor = self._data[sort] if ids is None else self.column(sort, ids)
        return found

    def _network(self, symbol: Symbol) -> Any:
        meaning = self.batch.meaning(symbol.name)
        return self.batch.identity(meaning) if isinstance(meaning, Network) else None

    def _sees_features(self, symbol: Symbol) -> bool:
        """Is a symbol bound to a network that looks at one object, whose features come with the data?"""
        meaning = self.batch.meaning(symbol.name)
        opened = [self.batch.given.get(sort.name) for sort in symbol.sorts if sort.values is None]
        features = opened[0].features if len(opened) == 1 and opened[0] is not None else None
        plain = isinstance(meaning, Network) and not meaning.bare and not meaning.per_object
        return plain and features is not None and features.is_floating_point() and features.ndim > 1

    def read(self, lookup: Lookup) -> dict[Symbol, Reading]:
        """What symbols say, ``(tuples, *finite arguments, ...)``. Every network runs once."""
        for block in lookup.blocks:  # number objects as when they were located
            self._block(block)
        columns = {
            symbol.name: {i: self._told(told) for i, told in own.items()} for symbol, own in lookup.columns.items()
        }
        found = readings(self.interpretation, columns, self.given) if columns else {}
        return {symbol: found[symbol.name] for symbol in lookup.columns}

    def _located(
        self, symbol: Symbol, questions: Sequence[Question], places: Sequence[Tensor]
    ) -> list[tuple[Tensor, int]]:
        """Where each question's answers are among the entries of a table, see `entries_of`: places, and an offset."""
        sizes = [None if sort.values is None else len(sort.values) for sort in symbol.sorts]
        found = []
        whole: dict[int, Tensor] = {}  # places times the number of finite arguments, by identity
        for (args, instances, names), place in zip(questions, places, strict=True):
            fixed, stride = 0, 1
            moving = None
            for label, size in zip(reversed(args), reversed(sizes), strict=True):
                if size is None or label is None:
                    continue
                reference = names[label.label]
                at = reference[1]
                if isinstance(at, Indexed) and not at.name:  # the same in every instance
                    fixed += at.index * stride
                else:
                    here = self.identity(reference, instances) * stride
                    moving = here if moving is None else moving + here
                stride *= size
            if id(place) not in whole:
                whole[id(place)] = place * stride
            entry = whole[id(place)]
            entry = entry if moving is None else entry + moving
            found.append((entry, fixed))
        return found

    def _tuples(
        self, symbol: Symbol, questions: Sequence[Question], features: bool
    ) -> tuple[dict[int, Told], list[Tensor]]:
        """The different tuples of objects and numbers that are asked about, and where each question's are.

        With ``features``, all objects of a sort are told by their features, not by their indices.
        """
        places = [i for i, sort in enumerate(symbol.sorts) if sort.values is None]
        if not places:
            return {}, [torch.zeros(instances.count, dtype=torch.int64) for _, instances, _ in questions]
        parts: dict[Any, Tensor] = {}
        keys = []
        for args, instances, names in questions:
            key = (tuple([args[i] for i in places]), id(instances), id(names))
            keys.append(key)
            if key not in parts:
                entries = [self._argument(args[i], instances, names) for i in places]
                parts[key] = torch.stack([e.double() for e in entries], -1)
        together = torch.cat(list(parts.values()))
        if together.shape[-1] == 1 and bool((together[1:] > together[:-1]).all()):  # all different, and in order
            distinct, index = together, torch.arange(len(together))
        elif together.shape[-1] == 1:
            distinct, index = torch.unique(together.squeeze(-1), return_inverse=True)
            distinct = distinct.unsqueeze(-1)
        else:
            distinct, index = torch.unique(together, dim=0, return_inverse=True)
        columns: dict[int, Told] = {}
        for place, values in zip(places, distinct.unbind(-1), strict=True):
            sort = symbol.sorts[place]
            if sort in (INT, REAL):
                columns[place] = (values if sort == REAL else values.long()).to(self.batch.device)
            else:
                ids = values.long()
                indexed = not len(ids) or int(ids.max()) < self.object_count(sort.name)
                if features and indexed and len(ids) == self.object_count(sort.name):
                    columns[place] = (sort.name, None)
                else:
                    columns[place] = ids.to(self.batch.device) if indexed else (sort.name, ids)
        found = dict(zip(parts, torch.split(index, [len(p) for p in parts.values()]), strict=True))
        return columns, [found[key] for key in keys]

    def number_of(self, symbol: Symbol, questions: Sequence[Question]) -> list[Tensor]:
        """A number for each question and instance that says which ground atom it is about: ``(instances,)`` each."""
        return [place + offset for place, offset in self.locate({symbol: questions}).places[symbol]]

    def _argument(self, value: Any, instances: Instances, names: Sequence[Reference]) -> Tensor:
        if isinstance(value, Object):
            return self.identity(names[value.label], instances)
        if isinstance(value, Known):
            found, fine = self.known(value, instances, names)
            if not fine.all():
                raise KnowledgeError(f"{value} has no value in some rows; keep it away from there with a guard")
            return found
        return torch.full((instances.count,), float(value), dtype=torch.float64)

    def tabulated(self, symbol: Symbol, tuples: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What a crisp symbol says of values and numbers: true and false, numbers, names of values; or undefined."""
        self.looked = True
        defined = [t for t in tuples if not any(a is UNDEFINED for a in t)]
        if len(defined) < len(tuples):
            found = iter(self.tabulated(symbol, defined) if defined else ())
            return [UNDEFINED if any(a is UNDEFINED for a in t) else next(found) for t in tuples]
        count = len(tuples)
        columns = {
            i: torch.tensor([t[i] for t in tuples], device=self.batch.device)
            for i, sort in enumerate(symbol.sorts)
            if sort.values is None
        }
        reading: Reading = readings(self.interpretation, {symbol.name: columns}, self.given)[symbol.name]
        table = reading.values.detach().cpu()
        places = [torch.arange(count)] if columns else []
        places += [
            torch.tensor([position(sort, t[i]) for t in tuples])
            for i, sort in enumerate(symbol.sorts)
            if sort.values is not None
        ]
        values = table[tuple(places)].reshape(-1).expand(count).tolist() if places else [table.item()] * count
        if isinstance(symbol, Predicate):
            return [bool(v) for v in values]
        if symbol.result.values is not None:
            return [UNDEFINED if v < 0 else symbol.result.values[int(v)] for v in values]
        return [UNDEFINED if v != v or v == torch.iinfo(torch.int64).min else v for v in values]


def entries_of(symbol: Symbol, args: Sequence[Any], table: Tensor) -> Tensor:
    """What a symbol says with the arguments of a question on one axis: ``(tuples * finite arguments, ...)``."""
    tuples = len(table) if any(sort.values is None for sort in symbol.sorts) else 1
    sizes = [len(s.values) for s, a in zip(symbol.sorts, args, strict=True) if s.values is not None and a is not None]
    kept = len(sizes) + any(sort.values is None for sort in symbol.sorts)
    return table.reshape(tuples * math.prod(sizes), *table.shape[kept:])


def position(sort: Any, value: Any) -> int:
    """The position of a value in its finite sort."""
    return int(sort.values.index(value))
