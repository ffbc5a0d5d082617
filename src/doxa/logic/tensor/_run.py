"""Symbols as tables: networks run once per pool, Python functions and named tuples become tensors, all kept per batch.

A table has one axis per argument of the symbol, in order, over the pool of objects that argument comes from; the
distribution of a neural function has one more, over its values. A network with one input runs once per batch, on all
the pools that the plan will ask for put together. One with two inputs runs on all pairs of two pools (by its method
``pairwise(x, y)``, if it has one) when a formula needs all of them, and otherwise only on the pairs that occur.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Meaning, Named, Network, Table, check_probabilities, is_draw, signature_text
from doxa.logic.bind._universe import has_values, shape_of
from doxa.logic.syntax._symbols import INT, Function
from doxa.logic.tensor._algebra import Algebra, Kind
from doxa.logic.tensor._classical import CLASSICAL
from doxa.logic.tensor._index import cut, unravel
from doxa.logic.tensor._named import Sparse, named_table
from doxa.logic.tensor._pools import Needs, Pools
from doxa.logic.tensor._trace import Trace
from doxa.logic.tensor._types import (
    ColumnPool,
    FinitePool,
    FunctionPool,
    Pool,
    PropositionPool,
    RowPool,
    SamplePool,
    SortPool,
)

__all__ = ["Run", "Source", "View"]

View = Literal["truth", "weights", "mode", "value"]


@dataclass(frozen=True)
class Source:
    """A symbol over the pools of its arguments, and what is wanted of it."""

    name: str
    pools: tuple[Pool, ...]
    view: View
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.pools, self.view)))

    def __hash__(self) -> int:
        return self._hash  # asked for at every look into the table


class Run(Pools):
    """One evaluation of a plan on one batch, with the tables of its symbols."""

    def __init__(
        self,
        batch: Batch,
        needs: Needs,
        *,
        chunk: int,
        generator: torch.Generator | None = None,
        trace: Trace | None = None,
        checkpoint: bool = False,
    ) -> None:
        super().__init__(batch, needs, chunk=chunk, generator=generator, trace=trace, checkpoint=checkpoint)
        self._raw: dict[Any, Any] = {}
        self._views: dict[Any, Any] = {}
        self._outputs: dict[Any, Tensor] = {}
        self._pairs: dict[Any, tuple[Tensor, Tensor]] = {}

    def table(self, source: Source, algebra: Algebra) -> Tensor | Sparse:
        """The table of a symbol."""
        key = (source, id(algebra)) if source.view in ("truth", "weights") else source
        found: Tensor | Sparse | None = self._views.get(key)
        if found is None:
            with self.kept_for_backward():
                found = self._views[key] = self._presented(source, algebra)
            if self.trace is not None:
                self.trace.tables[_text(source)] = tuple(found.shape)
        return found

    def _presented(self, source: Source, algebra: Algebra) -> Tensor | Sparse:
        if source.pools and isinstance(source.pools[0], PropositionPool):
            return self._propositions(source.pools[0], algebra)
        raw = self.raw(source.name, source.pools)
        meaning = self.batch.meaning(source.name)
        return raw if isinstance(raw, Sparse) else self.present(meaning, raw, source.view, algebra)

    def raw(self, name: str, pools: tuple[Pool, ...]) -> Tensor | Sparse:
        """What was bound to a symbol, as a table over pools, before it is read as truth."""
        key = (name, pools)
        if key not in self._raw:
            with self.kept_for_backward():
                self._raw[key] = self._made(name, pools)
        made: Tensor | Sparse = self._raw[key]
        return made

    def _made(self, name: str, pools: tuple[Pool, ...]) -> Tensor | Sparse:
        meaning = self.batch.meaning(name)
        if isinstance(meaning, Network):
            return self._network(meaning, pools)
        if isinstance(meaning, Named):
            return named_table(self, meaning, [self.size(p) for p in pools])
        return self._tensor(meaning, pools)

    def features_of(self, name: str, pools: tuple[Pool, ...]) -> Tensor:
        """The features that a function into an open sort computes, one row per tuple of arguments."""
        raw = self.raw(name, pools)
        assert isinstance(raw, Tensor)
        return raw.flatten(0, len(pools) - 1) if len(pools) > 1 else raw

    def _tensor(self, meaning: Table, pools: tuple[Pool, ...]) -> Tensor:
        tensor = meaning.tensor
        for axis, pool in enumerate(pools):
            size = self.size(pool)
            if tensor.shape[axis] != size:
                sort = meaning.symbol.sorts[axis].name
                raise BindingError(
                    f"{meaning.symbol.name}: axis {axis} of its tensor has size {tensor.shape[axis]}, but {sort} has "
                    f"{size} objects"
                )
        return tensor

    def _propositions(self, pool: PropositionPool, algebra: Algebra) -> Tensor:
        meanings = [self.batch.meaning(name) for name in pool.names]
        if all(isinstance(m, Table) for m in meanings) and len({m.returns for m in meanings}) == 1:
            return self.present(
                meanings[0], torch.stack([m.tensor for m in meanings if isinstance(m, Table)]), "truth", algebra
            )
        parts = [self.table(Source(name, (), "truth"), algebra) for name in pool.names]
        return torch.stack([p for p in parts if isinstance(p, Tensor)])

    def present(self, meaning: Meaning, raw: Tensor, view: View, algebra: Algebra) -> Tensor:
        """What was bound, read as it is wanted: truth values, weights of values, the most probable value, the value."""
        if view == "value":
            return raw
        if raw.dtype in (torch.float16, torch.bfloat16):
            raw = raw.float()  # what a network returns under autocast; the logic stays in single precision
        if algebra is CLASSICAL and raw.dtype.is_floating_point and has_values(raw) and raw.isnan().any():
            name = meaning.symbol.name
            raise BindingError(f"{name}: NaN (not a number) is neither true nor false; mend what {name} is bound to")
        if view == "mode":
            return raw.argmax(-1)
        kind: Kind = "bool" if meaning.returns == "value" else meaning.returns
        exclusive = not isinstance(meaning, Named) and meaning.exclusive
        if kind == "logit" and (view == "weights" or exclusive):
            return algebra.atom(raw.log_softmax(-1), "log_prob", self.dtype(algebra))
        return algebra.atom(raw, kind, self.dtype(algebra))

    # -- networks ---------------------------------------------------------------------------------------------------

    def _network(self, meaning: Network, pools: tuple[Pool, ...]) -> Tensor:
        """The whole table of a network, its axes in the order of the arguments."""
        inputs = [pools[i] for i in meaning.inputs]
        if len(inputs) == 1:
            found = self._unary(meaning, inputs[0])
        elif inputs:
            found = self._grid(meaning, inputs)
        else:
            found = self._checked(meaning, self._call(meaning, meaning.call, ()), ())
        order = [*meaning.inputs, *meaning.axes]
        if order == sorted(order):
            return found
        rest = range(len(order), found.ndim)
        return found.permute(*[order.index(i) for i in range(len(order))], *rest)

    def _unary(self, meaning: Network, pool: Pool) -> Tensor:
        same = self.batch.identity(meaning)
        if meaning.per_object:
            return self._checked(meaning, self._one_by_one(meaning, [pool], None), (self.size(pool),))
        if (same, pool) not in self._outputs:
            self._run_unary(meaning, pool)
        return self._checked(meaning, self._outputs[same, pool], (self.size(pool),))

    def _run_unary(self, meaning: Network, pool: Pool) -> None:
        """Run a network on a pool, and with it on all other pools that the plan will ask it for."""
        same = self.batch.identity(meaning)
        asked = self.needs.unary.get(same, {})
        if isinstance(pool, SamplePool) and SortPool(pool.sort) in asked:
            self._unary(meaning, SortPool(pool.sort))
            everything = self._outputs[same, SortPool(pool.sort)]
            self._outputs[same, pool] = everything.index_select(0, self.sampled(pool))
            return
        first = self._input(meaning, pool)
        group, tensors = [pool], [first]
        for other in asked:
            ready = not isinstance(other, FunctionPool | SamplePool) and (same, other) not in self._outputs
            if ready and other != pool:
                features = self._input(meaning, other)
                if features.shape[1:] == first.shape[1:] and features.dtype == first.dtype:
                    group.append(other)
                    tensors.append(features)
        together = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        output = self._call(meaning, meaning.call, (together,))
        if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != len(together):
            raise self._misshapen(meaning, output, (len(together),))
        for other, part in zip(group, torch.split(output, [len(t) for t in tensors]), strict=True):
            self._outputs[same, other] = part

    def _grid(self, meaning: Network, pools: list[Pool]) -> Tensor:
        """A network on all tuples of several pools."""
        sizes = [self.size(p) for p in pools]
        pairwise = getattr(meaning.call, "pairwise", None)
        if pairwise is not None and len(pools) == 2 and not meaning.per_object:
            inputs = [self._input(meaning, p) for p in pools]
            return self._checked(meaning, self._call(meaning, pairwise, inputs), tuple(sizes))
        flat = torch.arange(prod(sizes), device=self.device)
        out = self._on_tuples(meaning, pools, unravel(flat, sizes))
        return out.reshape(*sizes, *out.shape[1:])

    def pairs(self, name: str, pools: list[Pool], places: Sequence[Tensor]) -> Tensor:
        """A network on the tuples that occur: ``places`` are positions in the pools. Each distinct tuple runs once."""
        meaning = self.batch.meaning(name)
        assert isinstance(meaning, Network)
        sizes = [self.size(p) for p in pools]
        flat = _ravel(places, sizes)
        keys = torch.unique(flat)
        store = (name, tuple(pools))
        with self.kept_for_backward():
            known, values = self._pairs.get(store, (None, None))
            if known is None or values is None:
                known, values = keys, self._on_tuples(meaning, pools, unravel(keys, sizes))
            else:
                at = torch.searchsorted(known, keys).clamp(max=max(0, len(known) - 1))
                new = keys[known[at] != keys] if len(known) else keys
                if len(new):
                    values = torch.cat([values, self._on_tuples(meaning, pools, unravel(new, sizes))])
                    known, order = torch.cat([known, new]).sort()
                    values = values.index_select(0, order)
            self._pairs[store] = (known, values)
            return values.index_select(0, torch.searchsorted(known, flat))

    def direct(self, name: str, arguments: Sequence[Tensor]) -> Tensor:
        """A network or function on values that come from no pool, such as numbers; all arguments have one axis."""
        meaning = self.batch.meaning(name)
        assert isinstance(meaning, Network)
        count = len(arguments[0])
        if meaning.per_object:
            return self._checked(meaning, self._one_by_one(meaning, None, arguments), (count,))
        return self._checked(meaning, self._call(meaning, meaning.call, arguments), (count,))

    def _on_tuples(self, meaning: Network, pools: list[Pool], places: Sequence[Tensor]) -> Tensor:
        """A network on tuples given by positions, so many at a time that what it is fed stays within the chunk."""
        count = len(places[0])
        if meaning.per_object:
            return self._checked(meaning, self._one_by_one(meaning, pools, places), (count,))
        features = [self._input(meaning, p) for p in pools]
        largest = max([prod(f.shape[1:]) for f in features])
        step = max(1, self.chunk // max(1, largest))
        parts = []
        for start in range(0, max(1, count), step):
            part = slice(start, min(count, start + step))
            fed = [f.index_select(0, cut(at, part)) for f, at in zip(features, places, strict=True)]
            parts.append(self._checked(meaning, self._call(meaning, meaning.call, fed), (len(fed[0]),)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _input(self, meaning: Network, pool: Pool) -> Tensor:
        features = self.features(pool, meaning.symbol.name)
        if features is not None:
            return features
        if meaning.bare:
            if isinstance(pool, SamplePool):
                return self.sampled(pool)
            return torch.arange(self.size(pool), device=self.device)
        sort = pool.sort if isinstance(pool, SortPool | SamplePool) else str(pool)
        raise BindingError(
            f"{meaning.symbol.name} is a network on {sort}, but the objects of {sort} have no features; "
            f"pass them as {sort}=tensor, or bind features to the constants"
        )

    def _one_by_one(self, meaning: Network, pools: list[Pool] | None, places: Sequence[Tensor] | None) -> Tensor:
        """A Python function called once per distinct tuple of single objects."""
        name = meaning.symbol.name
        if pools is None:
            assert places is not None
            columns = [p.tolist() for p in places]
        else:
            lookups = [self._single(meaning, p) for p in pools]
            at = [range(self.size(pools[0]))] if places is None else [p.tolist() for p in places]
            columns = [[look(i) for i in where] for look, where in zip(lookups, at, strict=True)]
        out: list[Any] = []
        known: dict[Any, Any] = {}
        for number in range(len(columns[0])):
            args = [c[number] for c in columns]
            key = tuple([id(a) if isinstance(a, Tensor) else a for a in args])
            if key not in known:
                known[key] = self._plain(meaning, self._call(meaning, meaning.call, args))
            out.append(known[key])
        try:
            return torch.tensor(out, device=self.device, dtype=torch.bool if meaning.returns == "bool" else None)
        except (TypeError, ValueError, RuntimeError):
            raise BindingError(
                f"{name}: the function returned different kinds of values, such as {out[:3]!r}"
            ) from None

    def _single(self, meaning: Network, pool: Pool) -> Callable[[int], Any]:
        """From a position to the object that a function of single objects takes."""
        if isinstance(pool, FinitePool):
            assert pool.sort.values is not None
            return pool.sort.values.__getitem__
        features = self.features(pool, meaning.symbol.name)
        if features is not None:
            return list(features).__getitem__
        base = self.sampled(pool).tolist() if isinstance(pool, SamplePool) else range(self.size(pool))
        names = self.batch.objects(pool.sort).names if isinstance(pool, SortPool | SamplePool) else None
        return (lambda i: base[i]) if names is None else (lambda i: names[base[i]])

    def _plain(self, meaning: Network, value: Any) -> Any:
        """A value that a function returned, with names as positions."""
        if isinstance(value, Tensor):
            value = value.item()
        if isinstance(value, str) and isinstance(meaning.symbol, Function):
            result = meaning.symbol.result
            if isinstance(result.values, tuple):
                return result.values.index(value) if value in result.values else -1
            return self.batch.index_of(value)
        return value

    def _call(self, meaning: Network, call: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
        shapes = tuple([shape_of(i) if isinstance(i, Tensor) else i for i in inputs])
        if self.trace is not None:
            self.trace.calls.append((meaning.symbol.name, shapes))
        try:
            return call(*inputs)
        except Exception as error:
            # The trouble is the network's own; say where it was called.
            error.add_note(f"in what {signature_text(meaning.symbol)} is bound to, called on shapes {shapes}")
            if meaning.bare and not meaning.per_object:
                error.add_note(
                    "functions are called with tensors; for one value at a time say function(f, per_object=True)"
                )
            raise

    # -- checks -----------------------------------------------------------------------------------------------------

    def _checked(self, meaning: Network, output: Any, sizes: tuple[int, ...]) -> Tensor:
        """The output of a network, with the axes it must have: its objects, its finite arguments, its distribution."""
        symbol = meaning.symbol
        wanted = (*sizes, *[len(symbol.sorts[i].values or ()) for i in meaning.axes])
        if is_draw(meaning) and isinstance(symbol, Function):
            wanted = (*wanted, len(symbol.result.values or ()))
        if not isinstance(output, Tensor):
            raise self._misshapen(meaning, output, wanted)
        features = meaning.returns == "value" and isinstance(symbol, Function) and _is_open(symbol) and not meaning.bare
        if tuple(output.shape) == wanted or (features and tuple(output.shape[: len(wanted)]) == wanted):
            return self._typed(meaning, output)
        if tuple(output.shape) == (*wanted, 1) and len(wanted) == len(sizes):
            return self._typed(meaning, output.squeeze(-1))
        raise self._misshapen(meaning, output, wanted)

    def _typed(self, meaning: Network, output: Tensor) -> Tensor:
        symbol = meaning.symbol
        if meaning.returns == "bool" and output.dtype != torch.bool:
            raise BindingError(
                f"{symbol.name}: the function returned {str(output.dtype).removeprefix('torch.')}, but a predicate is "
                "true or false; return bool, or say what it returns with probs(...) or logits(...)"
            )
        if isinstance(symbol, Function) and symbol.result == INT and output.dtype.is_floating_point:
            raise BindingError(
                f"{symbol.name} yields Int, but what it is bound to returned {str(output.dtype)[6:]}; return whole "
                "numbers, or declare it with -> Real"
            )
        if meaning.returns in ("prob", "logit", "log_prob") and not output.dtype.is_floating_point:
            raise BindingError(f"{symbol.name}: wanted floating point numbers from the network, got {output.dtype}")
        distribution = is_draw(meaning) or meaning.exclusive
        check_probabilities(
            symbol.name, "what the network returned", output, meaning.returns, distribution=distribution
        )
        if meaning.bare and isinstance(symbol, Function) and symbol.result.values is not None:
            low = symbol.result.values[0] if isinstance(symbol.result.values, range) else 0
            found = output.long() - low
            return torch.where((found >= 0) & (found < len(symbol.result.values)), found, -1)
        if meaning.bare and isinstance(symbol, Function) and _is_open(symbol):
            size = self.size(SortPool(symbol.result.name))
            return torch.where((output >= 0) & (output < size), output.long(), -1)
        return output

    def _misshapen(self, meaning: Network, output: Any, wanted: tuple[int, ...]) -> BindingError:
        came = f"shape {shape_of(output)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
        return BindingError(
            f"{meaning.symbol.name}: for {signature_text(meaning.symbol)} the network should return a tensor of shape "
            f"{wanted} here, got {came}"
        )


def _is_open(symbol: Function) -> bool:
    return symbol.result.values is None and not symbol.result.is_integer


def _ravel(places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    flat = places[0]
    for at, size in zip(places[1:], sizes[1:], strict=True):
        flat = flat * size + at
    return flat


def _text(source: Source) -> str:
    return f"{source.name}({', '.join([pool_text(p) for p in source.pools])})"


def pool_text(pool: Pool) -> str:
    """A pool in a word or two."""
    match pool:
        case FinitePool(sort=sort):
            return sort.name
        case SortPool(sort=name):
            return name
        case SamplePool(sort=name, size=size):
            return f"{size} of {name}"
        case ColumnPool(rows=rows, field=field):
            return f"{rows.name}.{field}"
        case FunctionPool(name=name, pools=pools):
            return f"{name}({', '.join([pool_text(p) for p in pools])})"
        case RowPool(name=name):
            return name
    return type(pool).__name__
