"""The objects that one evaluation of a plan is about: sizes and features of pools, samples, rows, and named tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from doxa._cache import for_later
from doxa.errors import BindingError, KnowledgeError
from doxa.logic.bind._bindings import describe, has_values
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._listings import Listing, check_single
from doxa.logic.bind._meanings import Named, Table, low_of
from doxa.logic.bind._tuples import Tuples
from doxa.logic.bind._universe import Column
from doxa.logic.syntax._symbols import INT, REAL, Function, Sort
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Algebra, Classical
from doxa.logic.tensor._pools import Pool, Sparse, cut, ravel

T = TypeVar("T")
LARGEST = 2**24
"""Relations over more tuples than this are kept as lists."""
NO_INT = torch.iinfo(torch.int64).min
"""Stands where a function into Int has no value; NaN does for Real, -1 for positions."""


@dataclass
class Needs:
    """What a plan will ask for, known before it runs: so that each network runs once, on all of it."""

    unary: dict[Any, dict[Pool, str]] = field(default_factory=dict)
    """The pools that each network of one input runs on, and the sort of their objects."""
    whole: set[tuple[str, tuple[Pool, ...]]] = field(default_factory=set)
    """Tables of networks of several inputs of which all entries are needed."""
    sources: dict[Any, Any] = field(default_factory=dict)
    """The tables that formulas look into, each once."""
    constants: set[str] = field(default_factory=set)
    """The constants of open sorts that occur."""


@dataclass
class Trace:
    """What happened in a run, for people: the frame of each block, the tables, and the calls of networks."""

    blocks: list[str] = field(default_factory=list)
    roots: list[tuple[str, list[str]]] = field(default_factory=list)
    tables: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: list[tuple[str, tuple[tuple[int, ...], ...]]] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)

    def root(self, names: list[str]) -> None:
        title = names[0] if len(names) == 1 else f"{len(names)} formulas of one shape, such as {names[0]}"
        self.blocks = []
        self.roots.append((title, self.blocks))

    def block(self, label: str, axes: list[tuple[str, int]], tiles: int, note: str) -> None:
        if axes:
            parts = ", ".join([f"{name} {size}" for name, size in axes])
            self.blocks.append(f"  {label}: {parts}, {tiles} tile{'s' if tiles != 1 else ''}{note}")

    def join(self, plan: str) -> None:
        self.joins.append(plan)
        self.blocks.append(f"    joined: {plan}")

    def lines(self) -> list[str]:
        found = [line for title, blocks in self.roots for line in [title, *reversed(blocks)]]
        if self.tables:
            shown = [f"{name} {'x'.join(map(str, shape)) or 'one'}" for name, shape in self.tables.items()]
            found.append("tables: " + ", ".join(shown))
        return found + [f"{name} runs on {', '.join([str(s) for s in shapes])}" for name, shapes in self.calls]


@dataclass(eq=False)
class RunData:
    """The objects of one evaluation: how many there are, their features, samples of them, and rows of data."""

    batch: Batch
    needs: Needs
    chunk: int
    generator: torch.Generator | None = None
    trace: Trace | None = None
    checkpoint: bool = False
    samples: dict[Any, Tensor] = field(default_factory=dict)
    """What random batches drew; runs that share it see the same objects."""

    def __post_init__(self) -> None:
        self.device = self.batch.device
        self.recomputing = 0
        """How deep inside work that the backward pass will do again."""
        self._cache: dict[Any, Any] = {}
        self._sizes: dict[Pool, int] = {}
        self._dtype: torch.dtype | None = None

    def dtype(self, algebra: Algebra) -> torch.dtype:
        """The type of truth values: bool, or else that of the first floating point tensor there is."""
        if isinstance(algebra, Classical):
            return torch.bool
        if self._dtype is None:
            tensors = chain(self.batch.interpretation.tensors(), [tensor for _, tensor in self.batch.tensors()])
            found = next((t.dtype for t in tensors if t.dtype.is_floating_point), None)
            self._dtype = torch.get_default_dtype() if found is None else found
        return self._dtype

    def keep(self, key: Any, make: Callable[[], T]) -> T:
        found: T | None = self._cache.get(key)
        if found is None:
            with self.kept_for_backward():
                found = self._cache[key] = make()
        return found

    def find_list(self, key: Any, inputs: tuple[Any, ...]) -> Any:
        """A list of instances that was made before from the very same inputs, or None."""
        return self._cache.get((key, _identity(inputs)), (None, None))[1]

    def keep_list(self, key: Any, inputs: tuple[Any, ...], made: Any) -> None:
        # The inputs are kept with it, so that no other tensor can take over their identity.
        self._cache[key, _identity(inputs)] = (inputs, made)

    def kept_for_backward(self) -> AbstractContextManager[Any]:
        """Inside work that is computed again: what is made here is made once, and keeps what its derivative needs."""
        return saved_tensors_hooks(lambda t: t, lambda t: t) if self.recomputing else nullcontext()

    # -- pools ------------------------------------------------------------------------------------------------------

    def size(self, pool: Pool) -> int:
        found = self._sizes.get(pool)
        if found is None:
            found = self._sizes[pool] = self._size(pool)
        return found

    def _size(self, pool: Pool) -> int:
        match pool:
            case _pools.Finite(sort=sort):
                return len(sort.values or ())
            case _pools.Sort(sample=sample) | _pools.Rows(sample=sample):
                return self._all(pool) if sample is None else min(sample[0], self._all(pool))
            case _pools.Stack(size=size):
                return size
            case _pools.Own(sort=name):
                return len(self.batch.own_constants(name))
            case _pools.Column(level=level):
                return int(self.column(pool.rows, pool.field).values.shape[:level].numel())
            case _pools.Places(level=level):
                column = self.column(pool.rows, pool.field)
                return column.longest if column.lengths is not None else column.values.shape[level]
            case _pools.Function(pools=pools):
                return prod([self.size(inner) for inner in pools])
            case _pools.Propositions(names=names):
                return len(names)
            case _pools.Listed(name=name, argument=argument):
                meaning = self.batch.meaning(name)
                assert isinstance(meaning, Named)
                return len(meaning.listed[argument]) + 1

    def _all(self, pool: _pools.Sort | _pools.Rows) -> int:
        return (self.batch.objects(pool.sort) if isinstance(pool, _pools.Sort) else self.batch.row_set(pool.name)).size

    def sampled(self, pool: _pools.Sort | _pools.Rows) -> Tensor:
        """The positions that one random batch drew, in random order and without repetition."""
        if pool not in self.samples:
            device = self.generator.device if self.generator is not None else torch.device("cpu")
            order = torch.randperm(self._all(pool), generator=self.generator, device=device)
            self.samples[pool] = cut(order, slice(0, self.size(pool))).to(self.device)
        return self.samples[pool]

    # -- rows -------------------------------------------------------------------------------------------------------

    def column(self, rows: _pools.Rows, field: str) -> Column:
        """A field of rows; of the drawn rows, when these are a random batch."""
        column = self.batch.column(rows.name, field)
        if rows.sample is None:
            return column

        def choose() -> Column:
            if column.lengths is not None:
                raise KnowledgeError(f"{rows.name}.{field} is ragged, and its rows cannot be sampled; sample the data")
            return Column(column.values.index_select(0, self.sampled(rows)), column.sort)

        return self.keep((rows, field), choose)

    def flat(self, pool: _pools.Column) -> Tensor:
        values = self.column(pool.rows, pool.field).values
        return values if pool.level == 1 else values.flatten(0, pool.level - 1)

    def lengths(self, pool: _pools.Column) -> Tensor:
        lengths = self.column(pool.rows, pool.field).lengths
        assert lengths is not None
        return self.keep((pool, "lengths"), lengths.cpu)

    def positions(self, pool: _pools.Column, sort: Sort) -> Tensor:
        """A field as positions in a finite sort, or as indices into the objects of an open one; checked once."""

        def convert() -> Tensor:
            values = self.flat(pool)
            if values.ndim != 1 or values.dtype.is_floating_point or values.dtype == torch.bool:
                raise BindingError(f"{pool}: wanted integers, values of {sort.name}, got {describe(values)}")
            if sort.values is None:
                low, size = 0, self.batch.objects(sort.name).size
                remedy = f"but {sort.name} has {size} objects (0..{size - 1})"
            else:
                named = self.column(pool.rows, pool.field).sort == sort and not isinstance(sort.values, range)
                low, size = 0 if named else low_of(sort), len(sort.values)
                remedy = f"which is no value of {sort.name}"
            found = values.long() - low
            wrong = (found < 0) | (found >= size)
            if has_values(wrong) and bool(wrong.any()):
                row = int(wrong.long().argmax())
                raise BindingError(f"{pool}: entry {row} is {values[row].item()}, {remedy}")
            return found

        return self.keep((pool, sort.name), convert)

    # -- tables of named tuples -------------------------------------------------------------------------------------

    def named_table(self, meaning: Named, sizes: Sequence[int]) -> Tensor | Sparse:
        """The table of named tuples over the objects of this run; made once per choice of sizes and device."""
        made: Tensor | Sparse = self._named("table", meaning, sizes, self._named_table)
        return made

    def named_tuples(self, meaning: Named, sizes: Sequence[int]) -> Tuples:
        """The tuples of a relation over the objects of this run; made as often."""
        made: Tuples = self._named("tuples", meaning, sizes, self._named_tuples)
        return made

    def _named(self, what: str, meaning: Named, sizes: Sequence[int], make: Callable[..., Any]) -> Any:
        given = tuple([sort.name in self.batch.given for sort in meaning.symbol.sorts])  # names then mean other objects
        key = (tuple(sizes), given, str(self.device))
        known, found = meaning.made.get(what, (None, None))
        if known != key:  # the last one is kept: when the objects change, the old table will not come back
            found = for_later(lambda: make(meaning, sizes))
            meaning.made[what] = (key, found)
        return found

    def _named_tuples(self, meaning: Named, sizes: Sequence[int]) -> Tuples:
        true = meaning.value.codes.to(self.device)
        columns = [column[true] for column in self._columns(meaning, sizes)]
        return Tuples.of_columns(columns, int(true.sum()))

    def _named_table(self, meaning: Named, sizes: Sequence[int]) -> Tensor | Sparse:
        symbol, total = meaning.symbol, prod(sizes)
        if isinstance(symbol, Function):
            if total > LARGEST:
                raise BindingError(f"{symbol.name}: a table over {total} tuples is too large; bind a Python function")
            columns = self._columns(meaning, sizes)
            if any(listing.names for listing in meaning.arguments):  # a name and an index may mean the same object
                check_single(symbol, [Listing(column) for column in columns], meaning.value)
            keys = torch.as_tensor(ravel(columns, sizes), device=self.device)
            return self._named_values(meaning, symbol, keys, total).view(list(sizes))
        keys = torch.as_tensor(ravel(self.named_tuples(meaning, sizes).columns, sizes), device=self.device)
        if total > LARGEST:
            return Sparse(keys, tuple(sizes))
        dense = torch.zeros(total, dtype=torch.bool, device=self.device)
        dense[keys if symbol.sorts else slice(0, self.named_tuples(meaning, sizes).count)] = True
        return dense.view(list(sizes))

    def _columns(self, meaning: Named, sizes: Sequence[int]) -> list[Tensor]:
        """The arguments of all tuples as positions."""
        found = []
        for argument, (listing, sort, size) in enumerate(
            zip(meaning.arguments, meaning.symbol.sorts, sizes, strict=True)
        ):
            if argument in meaning.listed:
                found.append(listing.codes.to(self.device))
            else:
                if meaning.shape is not None:
                    check_axis(meaning, argument, meaning.shape[argument], size)
                found.append(self._places(listing, sort, size, meaning.symbol.name))
        return found

    def _named_values(self, meaning: Named, symbol: Function, keys: Tensor, total: int) -> Tensor:
        result, values = symbol.result, meaning.value.codes.to(self.device)
        nothing: float = NO_INT if result == INT else float("nan") if result == REAL else -1
        if result not in (INT, REAL):
            size = len(result.values) if result.values is not None else self.batch.objects(result.name).size
            values = self._places(meaning.value, result, size, symbol.name)
        filled = torch.full((total,), nothing, dtype=values.dtype, device=self.device)
        filled[keys if symbol.sorts else slice(0, len(values))] = values
        return filled

    def _places(self, listing: Listing, sort: Sort, size: int, name: str) -> Tensor:
        if sort.values is not None:
            return listing.codes.to(self.device)
        found = listing.places(self.batch.index_of)
        if len(found) and int(found.max()) >= size:
            at = int(found.argmax())
            code = int(listing.codes[at])
            value = listing.names[-1 - code] if code < 0 else code
            raise BindingError(f"{name}: the table names object {value!r}, but {sort.name} has {size} objects")
        return found.to(self.device)


def check_axis(meaning: Table | Named, axis: int, came: int, size: int) -> None:
    """Refuse a tensor of more or fewer objects than there are."""
    if came != size:
        symbol = meaning.symbol
        shown = f"{symbol.sorts[axis].name} has {size} objects"
        raise BindingError(f"{symbol.name}: axis {axis} of its tensor has size {came}, but {shown}")


def _identity(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([(v.start, v.stop) if isinstance(v, slice) else id(v) for v in inputs])
