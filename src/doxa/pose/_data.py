"""The data of one call, seen from many instances at once: which objects, numbers and sequences each has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import BindingError, ConfigError, KnowledgeError
from doxa.logic import INT, REAL, Expr, Interpretation, Predicate
from doxa.logic.bind._bindings import Returns
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Network, Table, check_table, is_exclusive
from doxa.logic.bind._universe import Column
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON
from doxa.logic.tensor._plan import CHUNK
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._run_data import Needs
from doxa.logic.tensor._symbol_values import symbol_values
from doxa.pose._known_definitions import with_known_definitions
from doxa.pose._references import Block, Cell, Indexed, Instances, Known, Object, Question, Reference, Row, Symbol
from doxa.pose._variables import UNDEFINED

FEW = 1 << 12
"""Tables of so many entries are read as a whole."""
Told = Tensor | tuple[tuple[Block, ...], Tensor | None]
"""What a symbol is told of an argument: numbers, indices, or the features of objects: where these are, and which of
them, one after the other; None for all."""


class Lookup(NamedTuple):
    """What symbols are asked, made out before any of them is."""

    columns: dict[Symbol, dict[int, Told]]
    axes: dict[Symbol, int]
    """How many axes of what a symbol says are arguments; they are flattened into one, its entries."""
    places: dict[Symbol, list[Tensor]]
    """Where each question's answers are among the entries of all symbols, one after the other: ``(instances,)``."""
    direct: list[Symbol]
    """Networks that look at the features of objects, and at nothing else."""


def require_unmapped(tensor: Tensor) -> None:
    """Refuse numbers of the data that ``torch.func.vmap`` maps over."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        if torch._C._functorch.is_batchedtensor(tensor):
            raise ConfigError(
                "posing looks at numbers and indices of the data, which torch.func.vmap hides; map over the parameters "
                "or objects alone, ask for loss(reduction='none'), or use Fuzzy(...)"
            )
        tensor = torch._C._functorch.get_unwrapped(tensor)


class CallData:
    """Where objects, numbers and sequences are, for many instances at once."""

    def __init__(
        self, interpretation: Interpretation, data: Mapping[str, Any], rows: Iterable[str], formulas: Sequence[Expr]
    ) -> None:
        self.interpretation, self._data, self._rows_named, self._formulas = interpretation, data, rows, formulas
        self.looked = False
        """Was anything looked at besides shapes? Then other data of these shapes may be posed in another way."""
        self._blocks: dict[Block, range] = {}
        self._checked: set[Cell] = set()
        self._listed: dict[str, Tensor] = {}
        self._answers: dict[str, dict[tuple[Any, ...], Any]] = {}
        self._crisp: dict[str, bool] = {}

    @cached_property
    def batch(self) -> Batch:
        """The data, checked; with what is defined by recursion and what they decide."""
        return with_known_definitions(self.interpretation.read(self._data, self._rows_named), self._formulas)

    @cached_property
    def given(self) -> Mapping[str, Any]:
        """What a symbol is told of besides its arguments: objects; rows are read cell by cell."""
        if all(isinstance(value, Tensor | int) for value in self._data.values()):
            return self._data
        return {name: value for name, value in self._data.items() if name not in self.batch.rows}

    def is_crisp(self, name: str) -> bool:
        """Is a symbol bound to what is certain?"""
        if name not in self._crisp:
            self._crisp[name] = self.batch.meaning(name).returns in ("bool", "value")
        return self._crisp[name]

    def state(self, name: str) -> Any:
        """What a crisp symbol says is the same while this is; None where it may be another at every call."""
        self.looked = True
        meaning = self.batch.meaning(name)
        if name in self.batch.symbols or next(meaning.parameters(), None) is not None:
            return None
        buffers = list(meaning.buffers())
        return None if any(b.is_inference() for b in buffers) else tuple([(id(b), b._version) for b in buffers])

    def is_exclusive(self, name: str) -> bool:
        """Do the values of the last argument of a predicate exclude each other?"""
        return bool(getattr(self.batch.meaning(name), "exclusive", False))

    def is_mixed(self, name: str) -> bool:
        """Does a symbol share the component of a mixture with others?"""
        return name in self.interpretation.joint_symbols

    def sees_rows(self) -> bool:
        """Is there a network that is told whole rows?"""
        shared = self.interpretation.joint
        return shared is not None and getattr(shared, "tensor", None) is None

    def object_count(self, sort: str) -> int:
        """How many objects a sort has."""
        return self.batch.objects(sort).size if self.batch.has_objects(sort) else 0

    # -- cells and objects ------------------------------------------------------------------------------------------

    def length(self, cell: Cell, instances: Instances) -> Tensor | None:
        """How long the sequence in a field is, ``(instances,)``; None if it is none."""
        column, depth = self.batch.column(cell.row.rows, cell.field), len(cell.path)
        if column.lengths is not None:
            self.looked = True
            return None if depth else column.lengths[self._rows(cell.row, instances)].cpu()
        if column.values.ndim <= 1 + depth:
            return None
        return torch.full((instances.count,), column.values.shape[1 + depth])

    def _rows(self, row: Row, instances: Instances) -> Tensor:
        return torch.full((instances.count,), row.number) if row.fixed else instances.rows[row.rows][:, row.number]

    def _places(self, column: Column, cell: Cell, instances: Instances) -> Tensor:
        """Where a cell is among the entries of its field: ``(instances,)``."""
        at = self._rows(cell.row, instances)
        path = [instances.own[i] if isinstance(i, str) else i for i in cell.path]
        if column.starts is not None:
            return column.starts.cpu()[at] + path[0] if path else at
        for axis, i in enumerate(path):
            at = at * column.values.shape[1 + axis] + i
        return at

    def numbers(self, cell: Cell, instances: Instances) -> Tensor:
        """The numbers in a field: ``(instances,)``."""
        self.looked = True
        column = self.batch.column(cell.row.rows, cell.field)
        values = _entries(column, len(cell.path))
        if values.ndim != 1:
            raise BindingError(f"{cell}: a number is needed, but its entries have shape {tuple(values.shape[1:])}")
        if cell not in self._checked:
            self._checked.add(cell)
            _check_values(column, f"{cell.row.rows}.{cell.field}")
        found = values.cpu()[self._places(column, cell, instances)]
        return found if found.is_floating_point() or found.dtype == torch.bool else found.long()

    def identity(self, reference: Reference, instances: Instances) -> Tensor | int:
        """Which object it is, as a number that says which are the same: ``(instances,)``, or one for all of them."""
        sort, at = reference
        if isinstance(at, Indexed):
            if at.constant:
                return self._block((sort, at.constant))
            return instances.own[at.name] if at.name else at.index
        finite = self.batch.signature.sorts[sort].values
        if finite is not None:
            found = self.numbers(at, instances).long()
            return found - finite[0] if isinstance(finite, range) else found
        column, depth = self.batch.column(at.row.rows, at.field), len(at.path)
        values, places = _entries(column, depth), self._places(column, at, instances)
        scalar = values.ndim == 1 and not values.dtype.is_floating_point and values.dtype != torch.bool
        if not scalar or not self.batch.has_objects(sort):
            return self._block((sort, (at.row.rows, at.field, depth))) + places
        self.looked = True
        found, count = values.cpu().long()[places], self.object_count(sort)
        if ((found < 0) | (found >= count)).any():
            raise BindingError(f"{at}: it holds {found.min().item()} to {found.max().item()}, but {sort} has {count}")
        return found

    def _block(self, block: Block) -> int:
        """The number of the first of some objects that come with features."""
        if block not in self._blocks:
            others = [len(numbers) for (sort, _), numbers in self._blocks.items() if sort == block[0]]
            first = self.object_count(block[0]) + sum(others)
            self._blocks[block] = range(first, first + len(self._features(block)))
        return self._blocks[block].start

    def _features(self, block: Block) -> Tensor:
        """What networks see of some objects; without a place, of those that have an index."""
        sort, where = block
        if isinstance(where, tuple):
            rows, field, depth = where
            return _entries(self.batch.rows[rows].columns[field], depth)
        if where is None:
            features = self.batch.objects(sort).features
        else:
            fixed = self.interpretation.constant(where)
            features = None if fixed is None or fixed.tensor is None else fixed.tensor.unsqueeze(0)
        if features is None:
            raise BindingError(f"{sort}: some of its objects have features and some have none")
        return features

    def own_constant(self, name: str) -> Reference:
        """A constant of an open sort."""
        sort = self.batch.signature.constants[name].sort.name
        fixed = self.interpretation.constant(name)
        if sort in self.batch.given and fixed is not None and fixed.tensor is not None:
            return sort, Indexed(0, constant=name)
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

    def known(self, known: Known, instances: Instances, names: Sequence[Reference]) -> tuple[Tensor, Tensor]:
        """The value of what the data decide, ``(instances,)``, and where it has one."""
        everywhere = torch.ones(instances.count, dtype=torch.bool)
        if known.op == "cell":
            return self.numbers(known.args[0], instances), everywhere
        if known.op == "own":
            values, here = known.args[0].sort.values, instances.own[known.args[0].name]
            return here + values[0] if isinstance(values, range) else here, everywhere
        if known.op == "call":
            symbol, args = known.args
            self.looked = True
            lookup = self.locate({symbol: [(args, instances, names)]})
            found = self.read(lookup)[symbol][0].detach().cpu()[lookup.places[symbol][0]]
            if found.is_floating_point():
                return found, ~found.isnan()
            if found.dtype == torch.bool:
                return found, everywhere
            values = symbol.result.values
            fine = found > torch.iinfo(torch.int64).min if values is None else found >= 0
            return found + values[0] if isinstance(values, range) else found, fine
        (a, fine), (b, also) = [
            self.known(arg, instances, names) if isinstance(arg, Known) else (arg, everywhere) for arg in known.args
        ]  # a plain number takes the precision of what stands beside it
        fine = fine & also
        if known.op in ("//", "mod"):
            b = torch.as_tensor(b)
            fine, b = fine & (b != 0), torch.where(b == 0, torch.ones_like(b), b)
        if known.op in ("min", "max"):
            extreme = torch.minimum if known.op == "min" else torch.maximum
            return extreme(torch.as_tensor(a), torch.as_tensor(b)).expand(instances.count), fine
        operate = ARITHMETIC.get(known.op) or COMPARISON[known.op]
        return torch.as_tensor(operate(a, b)).expand(instances.count), fine

    # -- symbols ----------------------------------------------------------------------------------------------------

    def locate(self, asked: Mapping[Symbol, Sequence[Question]]) -> Lookup:
        """What symbols will be asked, and where the answer to each question will be.

        An argument that is None is left open: its values are on the last axis.
        """
        found = Lookup({}, {}, {}, [])
        networks = [self._network(symbol) for symbol in asked]
        first = 0
        for (symbol, questions), network in zip(asked.items(), networks, strict=True):
            alone = networks.count(network) == 1  # a network that two symbols share runs once for both
            seen = self._seen(symbol) if alone else None
            objects = None if seen is None else self.batch.given.get(seen)
            features = None if objects is None else objects.features
            every = features is not None and features.is_floating_point() and features.ndim > 1
            columns, count, tuples = self._tuples(symbol, questions, every)
            told = [self._features(block) for at in columns.values() if isinstance(at, tuple) for block in at[0]]
            if seen is not None and told and all(some.is_floating_point() for some in told):
                found.direct.append(symbol)
            found.columns[symbol] = columns
            pairs = list(zip(symbol.sorts, questions[0][0], strict=True))
            finite = [len(sort.values) for sort, arg in pairs if sort.values is not None and arg is not None]
            found.axes[symbol] = len(finite) + any(sort.values is None for sort in symbol.sorts)
            found.places[symbol] = [
                first + self._entry(symbol, question, at) for question, at in zip(questions, tuples, strict=True)
            ]
            first += count * prod(finite)
        return found

    def _network(self, symbol: Symbol) -> Any:
        meaning = self.batch.meaning(symbol.name)
        return self.batch.identity(meaning) if isinstance(meaning, Network) else None

    def _seen(self, symbol: Symbol) -> str | None:
        """The sort whose objects, one at a time, a symbol is a network's belief about."""
        meaning, opened = self.batch.meaning(symbol.name), [sort for sort in symbol.sorts if sort.values is None]
        if not isinstance(meaning, Network) or meaning.bare or meaning.per_object or meaning.returns == "value":
            return None
        return opened[0].name if len(opened) == 1 and not opened[0].is_integer else None

    def _entry(self, symbol: Symbol, question: Question, place: Tensor) -> Tensor:
        """Where the answers to a question are among the entries of a symbol, from where its tuples are."""
        args, instances, names = question
        many, more = 1, 0  # the place is still to be multiplied, and more to be added
        for label, sort in zip(args, symbol.sorts, strict=True):
            if sort.values is not None and label is not None:
                own = self.identity(names[label.label], instances)
                many, more = many * len(sort.values), more * len(sort.values)
                if isinstance(own, int):
                    more += own
                else:
                    place, many, more = place * many + more + own, 1, 0
        return place if many == 1 and not more else place * many + more

    def _tuples(
        self, symbol: Symbol, questions: Sequence[Question], features: bool
    ) -> tuple[dict[int, Told], int, list[Tensor]]:
        """The different tuples of objects and numbers that are asked about, how many, and where each question's are.

        With ``features``, all objects of a sort are told by their features, not by their indices.
        """
        places = [i for i, sort in enumerate(symbol.sorts) if sort.values is None]
        if not places:
            return {}, 1, [torch.zeros(instances.count, dtype=torch.int64) for _, instances, _ in questions]
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
        elif together.shape[-1] == 1:  # quicker than along an axis
            distinct, index = torch.unique(together.squeeze(-1), return_inverse=True)
            distinct = distinct.unsqueeze(-1)
        else:
            distinct, index = torch.unique(together, dim=0, return_inverse=True)
        columns: dict[int, Told] = {}
        for place, values in zip(places, distinct.unbind(-1), strict=True):
            sort = symbol.sorts[place]
            if sort in (INT, REAL):
                columns[place] = (values if sort == REAL else values.long()).to(self.batch.device)
                continue
            ids, count = values.long(), self.object_count(sort.name)
            if len(ids) and int(ids.max()) >= count:
                columns[place] = self._sources(sort.name, ids)
            else:
                every = features and len(ids) == count
                columns[place] = (((sort.name, None),), None) if every else ids.to(self.batch.device)
        found = dict(zip(parts, torch.split(index, [len(p) for p in parts.values()]), strict=True))
        return columns, len(distinct), [found[key] for key in keys]

    def _argument(self, value: Any, instances: Instances, names: Sequence[Reference]) -> Tensor:
        if isinstance(value, Object):
            value = self.identity(names[value.label], instances)
        elif isinstance(value, Known):
            found, fine = self.known(value, instances, names)
            if not fine.all():
                raise KnowledgeError(f"{value} has no value in some rows; keep it away from there with a guard")
            return found
        return value if isinstance(value, Tensor) else torch.full((instances.count,), float(value), dtype=torch.float64)

    def _sources(self, sort: str, ids: Tensor) -> Told:
        """The objects with these numbers by their features; they are numbered one block after the other."""
        own = [(block, numbers) for block, numbers in self._blocks.items() if block[0] == sort]
        blocks = [((sort, None), range(self.object_count(sort))), *own]
        low, high = int(ids.min()), int(ids.max())
        needed = {block: numbers for block, numbers in blocks if low < numbers.stop and numbers.start <= high}
        numbers = torch.cat([torch.arange(some.start, some.stop) for some in needed.values()])
        at = None if torch.equal(ids, numbers) else (ids - numbers[0]).to(self.batch.device)
        return tuple(needed), at

    def read(self, lookup: Lookup) -> dict[Symbol, tuple[Tensor, Returns]]:
        """What symbols say, ``(entries, ...)``, and what kind of numbers these are; every network runs once."""
        mixed = {s: own for s, own in lookup.columns.items() if self.is_mixed(s.name)}
        alone = {s: own for s, own in lookup.columns.items() if s not in mixed}
        found = {s.name: self._mixed(s, own, lookup.axes[s] - bool(own)) for s, own in mixed.items()}
        asked = {s: {i: self._told(told) for i, told in own.items()} for s, own in alone.items()}
        direct = [s for s in lookup.direct if s in asked]
        found |= {s.name: _direct(self.batch, s.name, *asked.pop(s).values()) for s in direct}
        if asked:
            columns_of = {s.name: columns for s, columns in asked.items()}
            follows = {n: self.batch.symbols[n] for n in self.batch.signature.definitions if n in self.batch.symbols}
            others = symbol_values(self.interpretation, columns_of, self.given, follows)
            found |= {name: (reading.values, reading.returns) for name, reading in others.items()}
        flat: dict[Symbol, tuple[Tensor, Returns]] = {}
        for symbol, axes in lookup.axes.items():
            values, returns = found[symbol.name]
            flat[symbol] = (values.flatten(0, axes - 1) if axes else values.unsqueeze(0), returns)
        return flat

    def _mixed(self, symbol: Symbol, told: Mapping[int, Told], finite: int) -> tuple[Tensor, Returns]:
        """What a symbol says in each component of a mixture: ``(tuples, *finite arguments, K, ...)``."""
        meaning, returns = self.batch.meaning(symbol.name), self.batch.meaning(symbol.name).returns
        if isinstance(meaning, Table):
            values = self._stacked(meaning, told)
        else:
            inputs = []
            for i, at in told.items():
                sort, asked = symbol.sorts[i], at
                if isinstance(at, Tensor) and sort not in (INT, REAL):  # indices: it sees what they stand for
                    asked = (((sort.name, None),), at)
                inputs.append(self._told(asked))
            values = Run(self.batch, Needs(), CHUNK).components(symbol.name, inputs)
        if values.dtype in (torch.float16, torch.bfloat16):  # under autocast
            values = values.float()
        if returns == "logit" and is_exclusive(meaning):
            values, returns = values.log_softmax(-1), "log_prob"
        values = values.movedim(1, 1 + finite)
        return values if told else values.squeeze(0), returns

    def _stacked(self, meaning: Table, told: Mapping[int, Told]) -> Tensor:
        """Of a stack of tensors ``(K, *arguments, ...)`` the entries of objects: ``(tuples, K, *finite, ...)``."""
        name, tensor = meaning.symbol.name, meaning.tensor
        if tensor.requires_grad and self.interpretation.check_finite:
            check_table(meaning)
        index: list[Tensor] = []
        for i, at in told.items():
            sort = meaning.symbol.sorts[i].name
            if not isinstance(at, Tensor):
                raise BindingError(f"{name} is bound to tensors, which need the indices of {sort}, not their features")
            if tensor.shape[i + 1] != self.object_count(sort):
                came = f"axis {i + 1} of its tensor has size {tensor.shape[i + 1]}"
                raise BindingError(f"{name}: {came}, but {sort} has {self.object_count(sort)} objects")
            index.append(at)
        opened = tensor.movedim([i + 1 for i in told], [*range(len(told))])
        return opened[tuple(index)] if index else opened.unsqueeze(0)

    def _told(self, told: Told) -> Tensor:
        """Numbers and indices as they are; of other objects the features."""
        if isinstance(told, Tensor):
            return told
        parts = [self._features(block) for block in told[0]]
        together = parts[0] if len(parts) == 1 else torch.cat(parts)
        return together if told[1] is None else together.index_select(0, told[1].to(together.device))

    def answer(self, symbol: Symbol, values: tuple[Any, ...]) -> Any:
        """What a crisp symbol says of values and numbers, none of them undefined: see :meth:`tabulated`."""
        self.looked = True
        if symbol.name not in self._answers:
            domains = [sort.values or () for sort in symbol.sorts]  # of an open sort nothing is listed
            every = list(product(*domains)) if prod(map(len, domains)) <= FEW else []
            self._answers[symbol.name] = dict(zip(every, self.tabulated(symbol, every), strict=True))
        known = self._answers[symbol.name]
        return known[values] if values in known else self.tabulated(symbol, [values])[0]

    def tabulated(self, symbol: Symbol, tuples: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What a crisp symbol says of values and numbers: true and false, numbers, names of values; or undefined."""
        self.looked = True
        defined = [t for t in tuples if UNDEFINED not in t]
        if not defined:
            return [UNDEFINED] * len(tuples)
        finite = [i for i, sort in enumerate(symbol.sorts) if sort.values is not None]
        at = list(range(len(defined))) if len(finite) < len(symbol.sorts) else [0] * len(defined)
        for i in finite:
            domain = symbol.sorts[i].values or ()
            at = [place * len(domain) + domain.index(t[i]) for place, t in zip(at, defined, strict=True)]
        entries = self._listed.get(symbol.name)  # of all values of its arguments, where these are known
        if entries is None:
            columns: dict[int, Told] = {
                i: torch.tensor([t[i] for t in defined], device=self.batch.device)
                for i, sort in enumerate(symbol.sorts)
                if sort.values is None
            }
            lookup = Lookup({symbol: columns}, {symbol: len(finite) + bool(columns)}, {}, [])
            entries = self.read(lookup)[symbol][0].detach().cpu()
            if not columns:
                self._listed[symbol.name] = entries
        values = entries[torch.tensor(at)].tolist()
        if isinstance(symbol, Predicate):
            values = [bool(v) for v in values]
        elif symbol.result.values is not None:
            values = [UNDEFINED if v < 0 else symbol.result.values[int(v)] for v in values]
        else:
            values = [UNDEFINED if v != v or v == torch.iinfo(torch.int64).min else v for v in values]
        answers = iter(values)
        return [UNDEFINED if UNDEFINED in t else next(answers) for t in tuples]


def _direct(batch: Batch, name: str, features: Tensor) -> tuple[Tensor, Returns]:
    """What a network says of the features of objects; logits of values that exclude each other as log-probabilities."""
    values, meaning = Run(batch, Needs(), CHUNK).direct(name, [features]), batch.meaning(name)
    values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values  # under autocast
    if meaning.returns == "logit" and is_exclusive(meaning):
        return values.log_softmax(-1), "log_prob"
    return values, meaning.returns


def _entries(column: Column, depth: int) -> Tensor:
    """The entries of a field, or of the sequences in it, on one axis."""
    return column.values.flatten(0, depth) if depth and column.lengths is None else column.values


def _check_values(column: Column, name: str) -> None:
    """Refuse a field that holds what is no value of its finite sort."""
    if column.sort is None or column.sort.values is None:
        return
    domain, values = column.sort.values, column.values.flatten()
    low, high = (domain[0], domain[-1]) if isinstance(domain, range) else (0, len(domain) - 1)
    wrong = (values < low) | (values > high)
    if bool(wrong.any()):
        at = int(wrong.long().argmax())
        raise BindingError(f"{name}: entry {at} is {values[at].item()}, which is no value of {column.sort.name}")
