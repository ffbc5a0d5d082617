"""Lookups of what nobody else looks at, one after the other: partial sums, running maxima, sets of used values.

Where a factor says t = f(x, z) and nothing else mentions x and z, they are added up at once,

    p(t) = Σ_{x, z: f(x, z) = t} p(x) p(z),

over the pairs that there are, not over a table of all triples. Where only one factor looks at t, t goes the same way: a
sum of n digits takes as many operations as a hand-written convolution. Lookups of one table on one level are done
together, and values that cannot lead to what is observed are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.exact.circuits._semirings import FLOOR, Reduce
from doxa.exact.engines._weights import Index, Scope, Weights, indexing, pick
from doxa.problem._budget import Meter
from doxa.problem._factors import Relation

WORTH = 4096
"""Entries of the tables of a tree of lookups from which on it is worth a pass of its own."""
PARTS = 8
"""The values of observed variables are cut off at one of so many places."""
Ranges = tuple[tuple[int, int, int], ...]
"""Places of known targets, with the first and last value that may occur there."""


class Lookup(NamedTuple):
    """The target is what the codes say of the inputs; ``level``: how many lookups it builds on, itself included."""

    inputs: Scope
    target: int
    relation: Relation
    level: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the inputs, then of the target."""
        assert self.relation.shape is not None
        return self.relation.shape


class Source(NamedTuple):
    """Where one input of K lookups comes from: their own weights, known values, or what was found before."""

    kind: Literal["own", "known", "found"]
    size: int
    which: Index  # of the variables among the weights, or of the known values, or within a batch
    batch: int = 0


class Bucket(NamedTuple):
    """Some targets, each the sum over T tuples: for each input its values ``(T · C,)``; None where it is 0, 1, 2, ….

    The value beyond the last stands for "no tuple".
    """

    tuples: int
    cells: int
    places: tuple[Tensor | None, ...]


class Step(NamedTuple):
    """K lookups of one table: their inputs, the sums, and how the cells of all buckets are put in order."""

    sources: tuple[Source, ...]
    buckets: tuple[Bucket, ...]
    order: Tensor | None


class End(NamedTuple):
    """What becomes of a target that no lookup of a tree uses: its batch and place there, and its part of the rest.

    A known one is looked at where it is known, ``position`` being the place of each value; one that nobody else
    mentions is added up, with its weight if it has one; the others are tables.
    """

    kind: Literal["known", "weighted", "free", "table"]
    batch: int
    place: int
    variable: int
    position: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ForwardProgram:
    """All that does not depend on weights."""

    steps: tuple[Step, ...]
    ends: tuple[End, ...]
    entries: int  # about how many numbers are held for each row

    def run(self, weights: Weights, reduce: Reduce) -> list[Tensor]:
        """For each end in turn a table ``(size, 1, R)``, or a number for each row, ``(1, R)``."""
        tables: list[Tensor] = []
        for step in self.steps:
            inputs = [_input(source, weights, tables) for source in step.sources]
            cells = [_summed(bucket, inputs, reduce) for bucket in step.buckets]
            found = cells[0] if len(cells) == 1 else torch.cat(cells)
            tables.append(found if step.order is None else found.index_select(0, step.order.to(found.device)))
        return [_ended(end, tables[end.batch][:, end.place], weights, reduce) for end in self.ends]


def _input(source: Source, weights: Weights, tables: Sequence[Tensor]) -> Tensor:
    """The log-weights of one input, ``(size, K, R)``."""
    if source.kind == "found":
        return pick(tables[source.batch], source.which, 1)
    if source.kind == "own":
        return pick(weights.values, source.which, 0)[:, : source.size].transpose(0, 1)
    assert weights.given is not None
    seen, values = pick(weights.given, source.which, 0), torch.arange(source.size, device=weights.given.device)
    return torch.where(seen == values.view(-1, 1, 1), 0.0, FLOOR).to(weights.values.dtype)


def _summed(bucket: Bucket, inputs: Sequence[Tensor], reduce: Reduce) -> Tensor:
    joint: Tensor | None = None
    for part, places in zip(inputs, bucket.places, strict=True):
        if places is None:
            spread = part.unsqueeze(1)
        else:
            padded = pad(part, (0, 0, 0, 0, 0, 1), value=FLOOR)
            spread = padded.index_select(0, places.to(part.device)).view(bucket.tuples, bucket.cells, *part.shape[1:])
        joint = spread if joint is None else joint + spread
    assert joint is not None
    return reduce(joint)


def _ended(end: End, table: Tensor, weights: Weights, reduce: Reduce) -> Tensor:
    if end.kind == "known":
        assert weights.given is not None and end.position is not None
        at = end.position.to(table.device)[weights.given[end.variable]]
        return pad(table, (0, 0, 0, 1), value=FLOOR).gather(0, at.unsqueeze(0))
    if end.kind == "weighted":
        table = table + weights.values[end.variable + 1, : len(table)]
    return table.unsqueeze(1) if end.kind == "table" else reduce(table).unsqueeze(0)


@dataclass(frozen=True, eq=False)
class Forward:
    """Trees of lookups, level by level; known from sizes alone."""

    lookups: tuple[Lookup, ...]
    known: Mapping[int, int]  # the place of each known variable among the known values
    weighted: int  # variables before this one have weights
    alone: frozenset[int]  # targets that no other factor mentions

    @classmethod
    def of(
        cls,
        factors: Sequence[tuple[Scope, Relation]],
        mentions: Sequence[int],
        known: Mapping[int, int],
        worlds: int,
        weighted: int,
        worth: int,
        meter: Meter,
    ) -> tuple[Forward, set[int]]:
        """The trees that are worth it, and the numbers of their factors.

        The first ``worlds`` variables are those of the world, the first ``weighted`` ones have weights.
        """
        users: dict[int, int] = {}  # the lookup that a variable is waited for by
        waiting: dict[int, int] = {}
        ready: list[int] = []
        for number, (scope, relation) in enumerate(factors):
            meter.tick(len(scope))
            if relation.codes is None or len(scope) == 1:
                continue
            missing = [v for v in scope[:-1] if v not in known and not (v < worlds and mentions[v] == 1)]
            waiting[number] = len(missing)
            users.update(dict.fromkeys(missing, number))
            if not missing:
                ready.append(number)
        level: dict[int, int] = {}  # of targets that another lookup of the tree uses
        trees: dict[int, list[tuple[int, int]]] = {}  # by their last target: lookups and levels
        for number in ready:  # grows while it is gone through
            inputs, target = factors[number][0][:-1], factors[number][0][-1]
            meter.tick(len(inputs))
            height = 1 + max([level.get(v, 0) for v in inputs])
            below = [lookup for v in inputs if v in level for lookup in trees.pop(v)]
            trees[target] = [*below, (number, height)]
            # A known or weighted target, or one that several factors look at, is where a tree ends.
            if target not in known and target >= weighted and mentions[target] == 2 and target in users:
                level[target] = height
                waiting[users[target]] -= 1
                if not waiting[users[target]]:
                    ready.append(users[target])
        kept = [
            pair
            for tree in trees.values()
            if sum(math.prod(factors[number][1].shape or ()) for number, _ in tree) > worth
            for pair in tree
        ]
        lookups = [Lookup(factors[n][0][:-1], factors[n][0][-1], factors[n][1], height) for n, height in kept]
        lookups.sort(key=lambda lookup: lookup.level)
        alone = frozenset(x.target for x in lookups if mentions[x.target] == 1)
        return cls(tuple(lookups), known, weighted, alone), {number for number, _ in kept}

    @cached_property
    def inputs(self) -> frozenset[int]:
        """The variables that are added up on the way."""
        return frozenset(v for lookup in self.lookups for v in lookup.inputs if v not in self.known)

    @cached_property
    def ends(self) -> tuple[Lookup, ...]:
        """The lookups whose targets no other one of their tree uses."""
        return tuple(lookup for lookup in self.lookups if lookup.target not in self.inputs)

    @property
    def tables(self) -> tuple[int, ...]:
        """The targets that remain as tables, in the order in which they are found."""
        return tuple(x.target for x in self.ends if x.target not in self.alone and x.target not in self.known)

    @property
    def done(self) -> frozenset[int]:
        """The variables that nothing is left to do about."""
        return self.inputs | self.alone

    @property
    def entries(self) -> int:
        """About how many numbers are held for each row."""
        return sum(2 * lookup.relation.tuples for lookup in self.lookups)

    def ranges(self, known: Tensor) -> Ranges:
        """Between which values the known targets lie in these rows ``(R, known)``; roughly, so that few differ."""
        found = []
        for lookup in self.ends:
            size = lookup.sizes[-1]
            if lookup.target in self.known and len(known):
                place, part = self.known[lookup.target], -(-size // PARTS)
                least, most = (int(x) for x in known[:, place].aminmax())
                stop = min(size, (most // part + 1) * part, 1 << most.bit_length())
                found.append((place, least // part * part, max(stop, 1) - 1))
        return tuple(found)

    def compile(self, ranges: Ranges, meter: Meter) -> ForwardProgram:
        """The steps for known targets within these ranges."""
        kept = self._kept(ranges)
        groups: dict[tuple[object, ...], list[Lookup]] = {}
        alike: dict[int, bytes] = {v: values.numpy().tobytes() for v, values in kept.items()}
        for lookup in self.lookups:
            cut = tuple(alike.get(v) for v in (*lookup.inputs, lookup.target))
            kinds = tuple(self._kind(v) for v in lookup.inputs)
            groups.setdefault((lookup.level, id(lookup.relation), kinds, cut), []).append(lookup)
        place: dict[int, tuple[int, int]] = {}  # the batch and the place in it of each target
        steps: list[Step] = []
        entries = 0
        for group in groups.values():
            meter.check_clock()
            inputs = list(zip(*[lookup.inputs for lookup in group], strict=True))
            mixed = [len({place[v][0] for v in same}) > 1 for same in inputs if self._kind(same[0]) == "found"]
            for some in [[lookup] for lookup in group] if any(mixed) else [group]:
                place.update({lookup.target: (len(steps), i) for i, lookup in enumerate(some)})
                steps.append(self._step(some, kept, place))
                entries += 2 * len(some) * sum(bucket.tuples * bucket.cells for bucket in steps[-1].buckets)
        return ForwardProgram(tuple(steps), tuple(self._end(lookup, kept, place) for lookup in self.ends), entries)

    def _kind(self, variable: int) -> Literal["own", "known", "found"]:
        return "known" if variable in self.known else "own" if variable < self.weighted else "found"

    def _kept(self, ranges: Ranges) -> dict[int, Tensor]:
        """For targets some of whose values cannot lead to what is observed, those that can."""
        within = {place: (first, last) for place, first, last in ranges}
        alive: dict[int, Tensor] = {}
        for lookup in reversed(self.lookups):
            target, codes = lookup.target, lookup.relation.codes
            assert codes is not None
            if target in self.known and self.known[target] in within:
                first, last = within[self.known[target]]
                values = torch.arange(lookup.sizes[-1])
                alive[target] = (first <= values) & (values <= last)
            if target in alive:
                fine = alive[target][codes.clamp(min=0)] & (codes >= 0)
                for axis, v in enumerate(lookup.inputs):
                    if self._kind(v) == "found":
                        others = tuple(i for i in range(fine.ndim) if i != axis)
                        alive[v] = fine.any(others) if others else fine
        return {v: mask.nonzero().squeeze(1) for v, mask in alive.items() if not bool(mask.all())}

    def _step(self, group: Sequence[Lookup], kept: Mapping[int, Tensor], place: Mapping[int, tuple[int, int]]) -> Step:
        sources = []
        for i, v in enumerate(group[0].inputs):
            kind, variables = self._kind(v), [lookup.inputs[i] for lookup in group]
            if kind == "found":
                at = [place[u][1] for u in variables]
                size = len(kept[v]) if v in kept else group[0].sizes[i]
                sources.append(Source(kind, size, indexing(at), place[v][0]))
            else:
                at = [u + 1 if kind == "own" else self.known[u] for u in variables]
                sources.append(Source(kind, group[0].sizes[i], indexing(at)))
        lookup = group[0]
        assert lookup.relation.codes is not None
        codes = lookup.relation.codes
        for axis, v in enumerate(lookup.inputs):
            codes = codes.index_select(axis, kept[v]) if v in kept else codes
        cells = lookup.sizes[-1]
        if lookup.target in kept:
            codes = _positions(kept[lookup.target], cells)[codes.clamp(min=0)].masked_fill(codes < 0, -1)
            cells = len(kept[lookup.target])
        return Step(tuple(sources), *_buckets(codes, cells))

    def _end(self, lookup: Lookup, kept: Mapping[int, Tensor], place: Mapping[int, tuple[int, int]]) -> End:
        target, at = lookup.target, place[lookup.target]
        if target in self.known:
            size = lookup.sizes[-1]
            values = kept.get(target, torch.arange(size))
            position = _positions(values, size)
            return End("known", *at, self.known[target], position.masked_fill(position < 0, len(values)))
        if target not in self.alone:
            return End("table", *at, target)
        return End("weighted" if target < self.weighted else "free", *at, target)


def _positions(values: Tensor, size: int) -> Tensor:
    """The place of each of ``size`` values among some; -1 where it is not."""
    return torch.full((size,), -1).index_put((values,), torch.arange(len(values)))


def _buckets(codes: Tensor, cells: int) -> tuple[tuple[Bucket, ...], Tensor | None]:
    """The tuples of each target side by side; targets with about as many in one bucket, where they differ much."""
    flat = codes.reshape(-1)
    numbers = (flat >= 0).nonzero().squeeze(1)
    target, order = flat[numbers].sort(stable=True)
    values = torch.unravel_index(numbers[order], codes.shape)
    counts = target.bincount(minlength=cells)
    position = torch.arange(len(target)) - (counts.cumsum(0) - counts)[target]
    most = max(int(counts.max()), 1) if cells else 1
    if most * cells <= 2 * len(target) + WORTH:
        return (_bucket(codes.shape, values, target, position, most, cells),), None
    power = counts.clamp(min=1).double().log2().ceil().long()  # at most twice as many tuples as there are
    buckets, members = [], []
    for exponent in torch.unique(power).tolist():
        some = (power == exponent).nonzero().squeeze(1)
        members.append(some)
        here = power[target] == exponent
        own = tuple(value[here] for value in values)
        at, length = _positions(some, cells)[target[here]], max(int(counts[some].max()), 1)
        buckets.append(_bucket(codes.shape, own, at, position[here], length, len(some)))
    return tuple(buckets), torch.cat(members).argsort()


def _bucket(
    sizes: Sequence[int], values: Sequence[Tensor], target: Tensor, position: Tensor, tuples: int, cells: int
) -> Bucket:
    straight = None
    for axis, value in enumerate(values):  # an input whose values are all different for each target needs no lookup
        if (
            len(sizes) > 1
            and sizes[axis] <= tuples + 1
            and len(torch.unique(target * sizes[axis] + value)) == len(value)
        ):
            straight, position, tuples = axis, value, sizes[axis]
            break
    places: list[Tensor | None] = []
    for axis, value in enumerate(values):
        if axis == straight:
            places.append(None)
            continue
        table = torch.full((tuples, cells), sizes[axis])
        table[position, target] = value
        places.append(table.reshape(-1))
    return Bucket(tuples, cells, tuple(places))
