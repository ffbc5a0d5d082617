"""The objects that one evaluation of a plan is about: sizes and features of pools, samples, rows, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Named
from doxa.logic.bind._universe import Column, has_values
from doxa.logic.syntax._symbols import Sort
from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._classical import Classical
from doxa.logic.tensor._index import cut
from doxa.logic.tensor._task import Task, drive
from doxa.logic.tensor._trace import Trace
from doxa.logic.tensor._types import (
    ColumnPool,
    FinitePool,
    FunctionPool,
    ListedPool,
    OwnPool,
    Pool,
    PropositionPool,
    RowPool,
    SamplePool,
    SequencePool,
    SortPool,
    StackPool,
)

__all__ = ["Needs", "Pools", "low_of"]

T = TypeVar("T")
MOST_RECOMPUTED = 16
"""At most this many nested blocks are computed again in the backward pass; each takes a part of Python's stack."""


@dataclass
class Needs:
    """What a plan will ask for, known before it runs: so that each network runs once, on all of it."""

    unary: dict[Any, dict[Pool, None]] = field(default_factory=dict)
    """The pools that each network of one input runs on."""
    whole: set[tuple[str, tuple[Pool, ...]]] = field(default_factory=set)
    """Tables of networks of several inputs of which all entries are needed."""
    constants: set[str] = field(default_factory=set)
    """The constants of open sorts that occur."""


class Pools:
    """The objects of one evaluation: how many there are, their features, samples of them, and rows of data."""

    def __init__(
        self,
        batch: Batch,
        needs: Needs,
        *,
        chunk: int,
        generator: torch.Generator | None,
        trace: Trace | None = None,
        checkpoint: bool = False,
    ) -> None:
        self.batch = batch
        self.needs = needs
        self.chunk = chunk
        self.generator = generator
        self.trace = trace
        self.checkpoint = checkpoint
        self.device = batch.device
        self._kept: dict[Any, tuple[Any, Any]] = {}
        self._cache: dict[Any, Any] = {}
        self._sizes: dict[Pool, int] = {}
        self._dtype: torch.dtype | None = None
        self._recomputing = 0

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
        """A value made once per run."""
        if key not in self._cache:
            with self.kept_for_backward():
                self._cache[key] = make()
        found: T = self._cache[key]
        return found

    def find_list(self, key: Any, inputs: tuple[Any, ...]) -> Any:
        """A list of instances that was made before from the very same inputs, or None."""
        found = self._kept.get((key, _identity(inputs)))
        return None if found is None else found[1]

    def keep_list(self, key: Any, inputs: tuple[Any, ...], made: Any) -> None:
        # The inputs are kept with it, so that no other tensor can take over their identity.
        self._kept[key, _identity(inputs)] = (inputs, made)

    # -- memory of the backward pass --------------------------------------------------------------------------------

    def recomputed(self, make: Callable[[], Task]) -> Task:
        """Part of the work, of which nothing is kept: the backward pass computes it again."""
        if not self.checkpoint or not torch.is_grad_enabled() or self._recomputing == MOST_RECOMPUTED:
            return (yield make())

        def work() -> Any:
            self._recomputing += 1
            try:
                return drive(make())
            finally:
                self._recomputing -= 1

        return checkpoint(work, use_reentrant=False)

    def kept_for_backward(self) -> AbstractContextManager[Any]:
        """Inside work that is computed again: what is made here is made once, and keeps what its derivative needs."""
        return saved_tensors_hooks(_same, _same) if self._recomputing else nullcontext()

    # -- pools ------------------------------------------------------------------------------------------------------

    def size(self, pool: Pool) -> int:
        """How many objects a pool has."""
        found = self._sizes.get(pool)
        if found is None:
            found = self._sizes[pool] = self._size(pool)
        return found

    def _size(self, pool: Pool) -> int:
        match pool:
            case FinitePool(sort=sort):
                return len(sort.values or ())
            case SortPool(sort=name):
                return self.batch.objects(name).size
            case StackPool(size=size):
                return size
            case RowPool(name=name, sample=sample):
                rows = self.batch.row_set(name).size
                return rows if sample is None else min(sample[0], rows)
            case SamplePool(sort=name, size=size):
                return min(size, self.batch.objects(name).size)
            case OwnPool(sort=name):
                return len(self.batch.own_constants(name))
            case ColumnPool(level=level):
                values = self.column(pool.rows, pool.field).values
                return int(values.shape[:level].numel())
            case SequencePool(level=level):
                return self.column(pool.rows, pool.field).values.shape[level]
            case FunctionPool(pools=pools):
                total = 1
                for inner in pools:
                    total *= self.size(inner)
                return total
            case PropositionPool(names=names):
                return len(names)
            case ListedPool(name=name, argument=argument):
                meaning = self.batch.meaning(name)
                assert isinstance(meaning, Named)
                return len(meaning.listed[argument]) + 1

    def features(self, pool: Pool, wanted_by: str) -> Tensor | None:
        """What a network sees of the objects of a pool, one per entry of the first axis; None when that is nothing."""
        match pool:
            case SortPool(sort=name):
                return self.batch.objects(name).features
            case FinitePool(sort=sort):
                return torch.arange(len(sort.values or ()), device=self.device) + low_of(sort)
            case OwnPool(sort=name):
                return self.keep((pool, "features"), lambda: self._own_features(name))
            case SamplePool(sort=name):
                features = self.batch.objects(name).features
                if features is None:
                    return None
                return self.keep((pool, "features"), lambda: features.index_select(0, self.sampled(pool)))
            case ColumnPool(rows=rows, field=field, level=level):
                values = self.column(rows, field).values
                return values if level == 1 else values.flatten(0, level - 1)
            case FunctionPool(name=name, pools=pools):
                return self.features_of(name, pools)
        raise KnowledgeError(f"{wanted_by} cannot be computed on {pool}")

    def features_of(self, name: str, pools: tuple[Pool, ...]) -> Tensor:
        """The features that a function into an open sort computes, one row per tuple of arguments."""
        raise NotImplementedError

    def _own_features(self, sort: str) -> Tensor:
        features: list[Tensor] = []
        for name in self.batch.own_constants(sort):
            fixed = self.batch.interpretation.constant(name)
            assert fixed is not None and fixed.tensor is not None
            features.append(fixed.tensor)
        if len({f.shape for f in features}) > 1:
            raise BindingError(f"the constants of sort {sort} have features of different shapes")
        return torch.stack(features)

    def sampled(self, pool: SamplePool | RowPool) -> Tensor:
        """The positions that one random batch drew, in random order and without repetition."""

        def draw() -> Tensor:
            if isinstance(pool, SamplePool):
                total = self.batch.objects(pool.sort).size
            else:
                total = self.batch.row_set(pool.name).size
            device = self.generator.device if self.generator is not None else torch.device("cpu")
            order = torch.randperm(total, generator=self.generator, device=device)
            return cut(order, slice(0, self.size(pool))).to(self.device)

        return self.keep((pool, "sample"), draw)

    # -- rows -------------------------------------------------------------------------------------------------------

    def column(self, rows: RowPool, field: str) -> Column:
        """A field of rows; of the drawn rows, when these are a random batch."""
        column = self.batch.column(rows.name, field)
        if rows.sample is None:
            return column

        def choose() -> Column:
            if column.lengths is not None:
                raise KnowledgeError(f"{rows.name}.{field} is ragged, and its rows cannot be sampled; sample the data")
            return Column(column.values.index_select(0, self.sampled(rows)), column.sort)

        return self.keep((rows, field), choose)

    def lengths(self, pool: ColumnPool) -> Tensor:
        """How many objects each row of a ragged field has, on the CPU."""
        lengths = self.column(pool.rows, pool.field).lengths
        assert lengths is not None
        return self.keep((pool, "lengths"), lengths.cpu)

    def positions(self, pool: ColumnPool, sort: Sort) -> Tensor:
        """A field as positions in a finite sort, checked once for all rows."""

        def convert() -> Tensor:
            values = self.column(pool.rows, pool.field).values.flatten(0, pool.level - 1)
            if values.ndim != 1 or values.dtype.is_floating_point or values.dtype == torch.bool:
                raise BindingError(
                    f"{pool.rows.name}.{pool.field}: wanted integers, values of {sort.name}, got shape "
                    f"{tuple(values.shape)} and dtype {str(values.dtype).removeprefix('torch.')}"
                )
            column_sort = self.column(pool.rows, pool.field).sort
            named = column_sort == sort and not isinstance(sort.values, range)
            found = values.long() - (0 if named else low_of(sort))
            wrong = (found < 0) | (found >= len(sort.values or ()))
            if has_values(wrong) and bool(wrong.any()):
                row = int(wrong.long().argmax())
                raise BindingError(
                    f"{pool.rows.name}.{pool.field}: entry {row} is {values[row].item()}, "
                    f"which is no value of {sort.name}"
                )
            return found

        return self.keep((pool, sort), convert)

    def indices(self, pool: ColumnPool, sort: str) -> Tensor:
        """A field as indices into the objects of an open sort, checked once for all rows."""

        def convert() -> Tensor:
            values = self.column(pool.rows, pool.field).values.flatten(0, pool.level - 1).long()
            size = self.batch.objects(sort).size
            wrong = (values < 0) | (values >= size)
            if has_values(wrong) and bool(wrong.any()):
                row = int(wrong.long().argmax())
                raise BindingError(
                    f"{pool.rows.name}.{pool.field}: entry {row} is {values[row].item()}, "
                    f"but {sort} has {size} objects (0..{size - 1})"
                )
            return values

        return self.keep((pool, sort), convert)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def low_of(sort: Sort) -> int:
    """The first integer of a range; positions and values of other sorts are the same."""
    return sort.values[0] if isinstance(sort.values, range) else 0


def _identity(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([(v.start, v.stop) if isinstance(v, slice) else id(v) for v in inputs])
