"""Symbols as tables, kept per batch: one axis per argument over its pool, and for a neural function one over values.

A network with one input runs once, on all pools together; one with two on all pairs, or only on those that occur.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.bind._bindings import check_alike, check_finite, describe, is_finite, shape_of
from doxa.logic.bind._meanings import Meaning, Named, Network, Table, check_table, is_exclusive, low_of, signature_text
from doxa.logic.bind._tuples import Tuples
from doxa.logic.syntax._symbols import INT, REAL, Function
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Algebra, Kind
from doxa.logic.tensor._pools import Pool, Sparse, cut, is_sample, ravel, unravel
from doxa.logic.tensor._run_data import RunData, check_axis

View = Literal["truth", "weights", "mode", "value"]


@dataclass(frozen=True)
class Source:
    """A symbol over the pools of its arguments, and what is wanted of it."""

    name: str
    pools: tuple[Pool, ...]
    view: View

    def __hash__(self) -> int:
        return hash((self.name, self.view))  # asked for at every look into the table

    def __str__(self) -> str:
        return f"{self.name}({', '.join([_pools.text(p) for p in self.pools])})"


class Run(RunData):
    """One evaluation of a plan on one batch, with the tables of its symbols."""

    def table(self, source: Source, algebra: Algebra) -> Tensor | Sparse:
        key = (source, id(algebra)) if source.view in ("truth", "weights") else source
        found: Tensor | Sparse | None = self._cache.get(key)
        if found is None:
            found = self.keep(key, lambda: self._presented(source, algebra))
            if self.trace is not None:
                self.trace.tables[str(source)] = tuple(found.shape)
        return found

    def _presented(self, source: Source, algebra: Algebra) -> Tensor | Sparse:
        if source.pools and isinstance(pool := source.pools[0], _pools.Propositions):
            meanings = [self.batch.meaning(name) for name in pool.names]
            tensors = [m.tensor for m in meanings if isinstance(m, Table)]
            return self.present(meanings[0], torch.stack(tensors), "truth", algebra)
        raw = self.raw(source.name, source.pools)
        meaning = self.batch.meaning(source.name)
        return raw if isinstance(raw, Sparse) else self.present(meaning, raw, source.view, algebra)

    def raw(self, name: str, pools: tuple[Pool, ...]) -> Tensor | Sparse:
        """What was bound to a symbol, as a table over pools, before it is read as truth."""
        return self.keep(("raw", name, pools), lambda: self._made(self.batch.meaning(name), pools))

    def _made(self, meaning: Meaning, pools: tuple[Pool, ...]) -> Tensor | Sparse:
        sizes = [self.size(p) for p in pools]
        if isinstance(meaning, Network):
            return self._network(meaning, pools)
        if isinstance(meaning, Named):
            return self.named_table(meaning, sizes)
        tensor = meaning.tensor
        for axis, size in enumerate(sizes):
            check_axis(meaning, axis, tensor.shape[axis], size)
        if tensor.requires_grad and self.batch.interpretation.check_finite:
            check_table(meaning)  # it learns; others were looked at when they were bound
        return tensor

    def tuples(self, name: str, pools: tuple[Pool, ...]) -> Tuples:
        """The tuples of which a table or a tensor of truth values is true, as positions in pools."""

        def make() -> Tuples:
            meaning = self.batch.meaning(name)
            if isinstance(meaning, Named):
                return self.named_tuples(meaning, [self.size(p) for p in pools])
            raw = self.raw(name, pools)
            assert isinstance(raw, Tensor)
            columns = raw.nonzero(as_tuple=True)  # in order, and each once
            return Tuples(columns, len(columns[0]))

        return self.keep(("tuples", name, pools), make)

    def features(self, pool: Pool, wanted_by: str) -> Tensor | None:
        """What a network sees of the objects of a pool, one per entry of the first axis; None when that is nothing."""
        match pool:
            case _pools.Sort(sort=name, sample=sample):
                features = self.batch.objects(name).features
                if features is None or sample is None:
                    return features
                return self.keep((pool, "features"), lambda: features.index_select(0, self.sampled(pool)))
            case _pools.Finite(sort=sort):
                return torch.arange(len(sort.values or ()), device=self.device) + low_of(sort)
            case _pools.Own(sort=name):
                return self.keep((pool, "features"), lambda: self.batch.own_features(name))
            case _pools.Column():
                return self.flat(pool)
            case _pools.Function(name=name, pools=pools):
                return self.features_of(name, pools)
        raise KnowledgeError(f"{wanted_by} cannot be computed on {pool}")

    def features_of(self, name: str, pools: tuple[Pool, ...]) -> Tensor:
        """The features that a function into an open sort computes, one row per tuple of arguments."""
        raw = self.raw(name, pools)
        assert isinstance(raw, Tensor)
        return raw.flatten(0, len(pools) - 1) if len(pools) > 1 else raw

    def present(self, meaning: Meaning, raw: Tensor, view: View, algebra: Algebra) -> Tensor:
        """What was bound, read as it is wanted: truth values, weights of values, the most probable value, the value."""
        if view == "value":
            return raw
        if raw.dtype in (torch.float16, torch.bfloat16):
            raw = raw.float()  # what a network returns under autocast; the logic stays in single precision
        if view == "mode":
            return raw.argmax(-1)
        kind: Kind = "bool" if meaning.returns == "value" else meaning.returns
        if kind == "logit" and (view == "weights" or is_exclusive(meaning)):
            return algebra.atom(raw.log_softmax(-1), "log_prob", raw.dtype)
        return algebra.atom(raw, kind, self.dtype(algebra) if kind == "bool" else raw.dtype)

    # -- networks ---------------------------------------------------------------------------------------------------

    def _network(self, meaning: Network, pools: tuple[Pool, ...]) -> Tensor:
        inputs = [pools[i] for i in meaning.inputs]
        sizes = [self.size(p) for p in inputs]
        pairwise = getattr(meaning.call, "pairwise", None) if len(inputs) == 2 and not meaning.per_object else None
        if len(inputs) == 1 and not meaning.per_object:
            found = self._checked(meaning, self._unary(meaning, inputs[0]), sizes)
        elif not inputs or pairwise is not None:
            fed = [self._input(meaning, p) for p in inputs]
            found = self._checked(meaning, self._call(meaning, fed, inputs, pairwise), sizes)
        else:
            flat = torch.arange(prod(sizes), device=self.device)
            found = self._on_tuples(meaning, inputs, unravel(flat, sizes))
            found = found.reshape(*sizes, *found.shape[1:])
        order = [*meaning.inputs, *meaning.axes]
        if order == sorted(order):
            return found
        rest = range(len(order), found.ndim)
        return found.permute(*[order.index(i) for i in range(len(order))], *rest)

    def _unary(self, meaning: Network, pool: Pool) -> Tensor:
        """What a network says of a pool; it runs on all other pools that the plan will ask it for as well."""
        same = self.batch.identity(meaning)
        asked = self.needs.unary.get(same, {})
        ready: Tensor | None = self._cache.get((same, pool))
        if ready is not None:
            return ready
        if is_sample(pool) and _pools.Sort(pool.sort) in asked:
            everything = self._unary(meaning, _pools.Sort(pool.sort))
            return self.keep((same, pool), lambda: everything.index_select(0, self.sampled(pool)))
        first = self._input(meaning, pool)
        group = {pool: first}
        for other in asked:
            if other is pool or isinstance(other, _pools.Function) or is_sample(other):
                continue
            if (same, other) not in self._cache:
                features = self._input(meaning, other)
                if asked[other] == asked.get(pool):
                    check_alike(asked[other], _pools.text(pool), first, _pools.text(other), features)
                if features.shape[1:] == first.shape[1:] and features.dtype == first.dtype:
                    group[other] = features
        together = first if len(group) == 1 else torch.cat(list(group.values()))
        output = self._call(meaning, [together], [*group])
        if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != len(together):
            return self._checked(meaning, output, [len(together)])  # which complains
        parts = [output] if len(group) == 1 else torch.split(output, [len(t) for t in group.values()])
        self._cache |= {(same, other): part for other, part in zip(group, parts, strict=True)}
        return parts[0]

    def pairs(self, name: str, pools: list[Pool], places: Sequence[Tensor]) -> Tensor:
        """A network on the tuples that occur: ``places`` are positions in the pools. Each distinct tuple runs once."""
        meaning = self.batch.meaning(name)
        assert isinstance(meaning, Network)
        sizes = [self.size(p) for p in pools]
        flat = ravel(places, sizes)
        keys = torch.unique(flat)
        store = ("pairs", name, tuple(pools))
        with self.kept_for_backward():
            known, values = self._cache.get(store, (None, None))
            if known is None or values is None:
                known, values = keys, self._on_tuples(meaning, pools, unravel(keys, sizes))
            else:
                at = torch.searchsorted(known, keys).clamp(max=max(0, len(known) - 1))
                new = keys[known[at] != keys] if len(known) else keys
                if len(new):
                    values = torch.cat([values, self._on_tuples(meaning, pools, unravel(new, sizes))])
                    known, order = torch.cat([known, new]).sort()
                    values = values.index_select(0, order)
            self._cache[store] = (known, values)
            found: Tensor = values.index_select(0, torch.searchsorted(known, flat))
            return found

    def direct(self, name: str, arguments: Sequence[Tensor]) -> Tensor:
        """A network or function on values that come from no pool, such as numbers; all arguments have one axis."""
        meaning = self.batch.meaning(name)
        assert isinstance(meaning, Network)
        if meaning.per_object:
            found: Any = self._one_by_one(meaning, [a.tolist() for a in arguments])
        else:
            found = self._call(meaning, arguments, ())
        return self._checked(meaning, found, [len(arguments[0])])

    def components(self, name: str, arguments: Sequence[Tensor]) -> Tensor:
        """A network with one belief for each component of a mixture: ``(tuples, K, *finite arguments, ...)``."""
        meaning = self.batch.meaning(name)
        assert isinstance(meaning, Network)
        found = self._call(meaning, arguments, ())
        found = found.unsqueeze(0) if isinstance(found, Tensor) and not arguments else found
        count = len(arguments[0]) if arguments else 1
        if not isinstance(found, Tensor) or found.ndim < 2 or len(found) != count or not found.shape[1]:
            came = f"shape {shape_of(found)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            wanted = f"({count}, components, ...)" if arguments else "(components, ...)"
            raise BindingError(f"{name}: in a mixture the network should return a tensor {wanted} here, got {came}")
        flat = self._checked(meaning, found.flatten(0, 1), [found.shape[0] * found.shape[1]])
        return flat.view(*found.shape[:2], *flat.shape[1:])

    def _on_tuples(self, meaning: Network, pools: list[Pool], places: Sequence[Tensor]) -> Tensor:
        """A network on tuples given by positions, so many at a time that what it is fed stays within the chunk."""
        count = len(places[0])
        if meaning.per_object:
            singles = [self._single(meaning, p) for p in pools]
            columns = [[single(i) for i in at.tolist()] for single, at in zip(singles, places, strict=True)]
            return self._checked(meaning, self._one_by_one(meaning, columns), [count])
        features = [self._input(meaning, p) for p in pools]
        largest = max([prod(f.shape[1:]) for f in features])
        step = max(1, self.chunk // max(1, largest))
        parts = []
        for start in range(0, max(1, count), step):
            part = slice(start, min(count, start + step))
            fed = [f.index_select(0, cut(at, part)) for f, at in zip(features, places, strict=True)]
            parts.append(self._checked(meaning, self._call(meaning, fed, pools), [len(fed[0])]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _input(self, meaning: Network, pool: Pool) -> Tensor:
        features = self.features(pool, meaning.symbol.name)
        if features is not None:
            return features
        if meaning.bare:
            return self.sampled(pool) if is_sample(pool) else torch.arange(self.size(pool), device=self.device)
        sort = pool.sort if isinstance(pool, _pools.Sort) else str(pool)
        raise BindingError(
            f"{meaning.symbol.name} is a network on {sort}, but the objects of {sort} have no features; "
            f"pass them as {sort}=tensor, or bind features to the constants"
        )

    def _one_by_one(self, meaning: Network, columns: list[list[Any]]) -> Tensor:
        """A Python function called once per distinct tuple of single objects."""
        name, out = meaning.symbol.name, list[Any]()
        known: dict[Any, Any] = {}
        for args in zip(*columns, strict=True):
            key = tuple([id(a) if isinstance(a, Tensor) else a for a in args])
            if key not in known:
                known[key] = self._plain(meaning, self._call(meaning, args, ()))
            out.append(known[key])
        try:
            return torch.tensor(out, device=self.device, dtype=torch.bool if meaning.returns == "bool" else None)
        except (TypeError, ValueError, RuntimeError):
            raise BindingError(f"{name}: the function returned different kinds of values: {out[:3]!r}") from None

    def _single(self, meaning: Network, pool: Pool) -> Callable[[int], Any]:
        """From a position to the object that a function of single objects takes."""
        if isinstance(pool, _pools.Finite):
            assert pool.sort.values is not None
            return pool.sort.values.__getitem__
        features = self.features(pool, meaning.symbol.name)
        if features is not None:
            return list(features).__getitem__
        base = self.sampled(pool).tolist() if is_sample(pool) else range(self.size(pool))
        names = self.batch.objects(pool.sort).names if isinstance(pool, _pools.Sort) else None
        return (lambda i: base[i]) if names is None else (lambda i: names[base[i]])

    def _plain(self, meaning: Network, value: Any) -> Any:
        if isinstance(value, Tensor):
            value = value.item()
        if isinstance(value, str) and isinstance(meaning.symbol, Function):
            result = meaning.symbol.result
            if isinstance(result.values, tuple):
                return result.values.index(value) if value in result.values else -1
            return self.batch.index_of(value)
        return value

    def _call(
        self, meaning: Network, inputs: Sequence[Any], pools: Sequence[Pool], call: Callable[..., Any] | None = None
    ) -> Any:
        """What a network or function returns, looked at once; ``pools`` say where the inputs are from."""
        if self.trace is not None:
            shapes = tuple([shape_of(i) if isinstance(i, Tensor) else i for i in inputs])
            self.trace.calls.append((meaning.symbol.name, shapes))
        try:
            output = (call or meaning.call)(*inputs)
        except Exception as error:
            # The trouble is the network's own; say where it was called.
            shown = ", ".join([describe(i) for i in inputs])
            error.add_note(f"in what {signature_text(meaning.symbol)} is bound to, called{_on(pools)} with {shown}")
            if meaning.bare and not meaning.per_object:
                error.add_note(
                    "functions are called with tensors; for one value at a time say function(f, per_object=True)"
                )
            raise
        if isinstance(output, Tensor):
            meaning.check_tensor(output, self.device)
            looked_at = self.batch.interpretation.check_finite and meaning.returns in ("logit", "value")
            if looked_at and not meaning.bare and not is_finite(output):
                thing = f"what the network returned{_on(pools)}"
                check_finite(meaning.symbol.name, thing, output, distribution=is_exclusive(meaning))
        return output

    def _checked(self, meaning: Network, output: Any, sizes: Sequence[int]) -> Tensor:
        """The output of a network, with the axes it must have; positions outside the result's sort become -1."""
        found = meaning.checked(output, tuple(sizes), contents=self.batch.interpretation.check_finite)
        if not meaning.bare or not isinstance(meaning.symbol, Function) or meaning.symbol.result in (INT, REAL):
            return found
        result = meaning.symbol.result
        size = self.size(_pools.Sort(result.name) if result.values is None else _pools.Finite(result))
        places = found.long() - low_of(result)
        return torch.where((places >= 0) & (places < size), places, -1)


def _on(pools: Sequence[Pool]) -> str:
    return f" on {', '.join([_pools.text(p) for p in pools])}" if pools else ""
