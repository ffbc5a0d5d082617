"""From log-weights and Boolean factors to tables over shared variables.

A variable that only one factor mentions is *private* to it and added up at once, over the tuples that the factor has;
of known variables each row looks up the tuples of its own values. Factors with one table and the same roles are a
*batch*; batches with about as many tuples are looked up together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from doxa.exact.circuits._semirings import Reduce
from doxa.exact.engines._forward import Forward
from doxa.exact.engines._weights import Scope, Weights
from doxa.problem import Problem
from doxa.problem._budget import Meter
from doxa.problem._factors import Relation


@dataclass(frozen=True, eq=False)
class Batch:
    """K factors with one table and the same roles."""

    count: int  # K
    shape: tuple[int, ...]  # the sizes of the shared variables
    privates: tuple[Scope, ...]  # the weighted private variables of each factor
    given: tuple[Scope, ...]  # the known variables of each factor, by their place among the known ones
    given_sizes: tuple[int, ...]
    places: Tensor  # (privates, tuples, given values, cells): the values of each private variable; -1 = no tuple
    in_order: bool  # whether the first private variable has the values 0, 1, 2, ..., so that it needs no lookup


@dataclass(frozen=True, eq=False)
class Leaves:
    """Batches that are looked up together: C cells, each the sum over T tuples of the weights of p variables."""

    batches: tuple[Batch, ...]
    numbers: tuple[int, ...]  # of the batches
    splits: tuple[int, ...]  # the cells of each batch
    first: Tensor | None  # (C,): the first private variable of each cell, where its values need no lookup
    places: tuple[Tensor, ...]  # (T, n) for each other: its values; a cell's columns are one stretch
    offsets: tuple[Tensor, ...]  # (C, 1) for each other: where the weights of the variable begin
    starts: Tensor  # (C, 1): where the stretch of columns begins
    given: Tensor  # (g · C,): the known variables of each cell
    strides: Tensor  # (g, C, 1): and what their values add to ``starts``
    tuples: int

    def tables(self, weights: Weights, reduce: Reduce) -> list[Tensor]:
        """For each batch ``(*shape, K, R)``."""
        rows, count = weights.rows, len(self.starts)
        column = self.starts
        if len(self.given):
            assert weights.given is not None
            if count == 1:  # in one operation: many small problems are like this
                column = torch.addmm(column, self.strides.view(1, -1), weights.given.index_select(0, self.given))
            else:
                seen = weights.given.index_select(0, self.given).view(-1, count, rows) * self.strides
                column = column + (seen[0] if len(seen) == 1 else seen.sum(0))  # (C, R)
        column = column.view(-1)
        joint = None
        if self.first is not None:
            joint = weights.values.index_select(0, self.first).transpose(0, 1).narrow(0, 0, self.tuples)
        flat = weights.values.view(-1, rows)
        for places, offsets in zip(self.places, self.offsets, strict=True):
            index = places.index_select(1, column).view(self.tuples, count, -1) + offsets
            if len(self.given):
                part = flat.gather(0, index.view(-1, rows))
            else:
                part = flat.index_select(0, index.view(-1))
            part = part.view(self.tuples, count, rows)
            joint = part if joint is None else joint + part
        assert joint is not None
        reduced = reduce(joint)
        cells = torch.split_with_sizes(reduced, self.splits) if len(self.splits) > 1 else (reduced,)
        return [part.view(*batch.shape, batch.count, rows) for part, batch in zip(cells, self.batches, strict=True)]

    @cached_property
    def zero(self) -> bool:
        """Whether the variable of weight 0 is used: where there are fewer private variables than elsewhere."""
        return any(bool((offsets == 0).any()) for offsets in self.offsets)

    @property
    def entries(self) -> int:
        """Numbers held for each row."""
        return (1 + len(self.places)) * self.tuples * len(self.starts)


class Shape(NamedTuple):
    """Factors with one relation and the same roles of their variables: known from sizes alone."""

    relation: Relation
    roles: tuple[str, ...]
    scopes: tuple[Scope, ...]

    def part(self, role: str) -> list[Scope]:
        """The variables of each factor that have this role."""
        return [tuple(v for v, r in zip(scope, self.roles, strict=True) if r == role) for scope in self.scopes]

    def sizes(self, role: str) -> int:
        """The number of joint values of these variables."""
        return math.prod(n for n, r in zip(self.relation.shape or (), self.roles, strict=True) if r == role)

    @property
    def entries(self) -> int:
        """About how many numbers are held for each row."""
        cells = self.sizes("shared")
        tuples = max(1, -(-self.relation.tuples // (self.sizes("known") * cells)))
        return (1 + self.roles.count("weighted")) * tuples * cells * len(self.scopes)


@dataclass(frozen=True, eq=False)
class Structure:
    """Which variables the factors of a problem share, and what is known: found without looking at any table."""

    shapes: tuple[Shape, ...]
    shared: tuple[int, ...]  # the weighted variables that are not private to any factor
    known: Mapping[int, int]  # the place of each known variable among the known values
    none: int  # the value whose weight is that of the impossible
    forward: Forward  # the lookups that are done before

    @classmethod
    def of(cls, problem: Problem, observed: bool, worth: int, meter: Meter) -> Structure:
        """The given variables are known, and so are the outputs if they are ``observed``; see ``Forward`` on worth."""
        assert problem.factors is not None
        world, outputs = len(problem.world), len(problem.output)
        first = world if observed else world + outputs
        known = {v: i for i, v in enumerate(range(first, world + outputs + len(problem.given)))}
        scopes, mentions = list[Scope](), [0] * len(problem.sizes)
        for factor in problem.factors:
            meter.tick(len(factor.scope))
            scopes.append(tuple(problem.index(variable) for variable in factor.scope))
            for v in scopes[-1]:
                mentions[v] += 1
        factors = [(scope, factor.relation) for scope, factor in zip(scopes, problem.factors, strict=True)]
        forward, done = Forward.of(factors, mentions, known, world, first, worth, meter)
        alike: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for number, scope in enumerate(scopes):
            meter.tick(len(scope))
            if number in done:
                continue
            roles = tuple(
                "known" if v in known else "shared" if mentions[v] > 1 else "weighted" if v < first else "free"
                for v in scope
            )
            alike.setdefault((id(problem.factors[number].relation), roles), []).append(number)
        shapes = tuple(
            Shape(problem.factors[numbers[0]].relation, roles, tuple(scopes[n] for n in numbers))
            for (_, roles), numbers in alike.items()
        )
        shared = tuple(v for v in range(first) if mentions[v] != 1 and v not in forward.done)
        none = max(problem.world if observed else problem.world + problem.output)
        return cls(shapes, shared, known, none, forward)

    @property
    def tables(self) -> int:
        """Entries of the tables that must be made."""
        return sum({id(s.relation): math.prod(s.relation.shape or ()) for s in self.shapes}.values())

    def leaves(self, meter: Meter) -> list[Leaves]:
        """Everything about the tables that does not depend on weights."""
        groups: dict[tuple[int, bool], list[tuple[int, Batch]]] = {}
        for number, shape in enumerate(self.shapes):
            meter.check_clock()
            batch = _batch(shape.relation.table, shape, self.known)
            groups.setdefault((batch.places.shape[1].bit_length(), batch.in_order), []).append((number, batch))
        return [_together([b for _, b in group], tuple(n for n, _ in group), self.none) for group in groups.values()]


def _batch(table: Tensor, shape: Shape, known: Mapping[int, int]) -> Batch:
    roles = ("known", "shared", "weighted", "free")
    axes = {role: [i for i, r in enumerate(shape.roles) if r == role] for role in roles}
    sizes, private = table.shape, axes["weighted"]
    ordered = table.permute(*axes["known"], *axes["shared"], *private, *axes["free"])
    numbers, cells = (math.prod(sizes[i] for i in axes[role]) for role in ("known", "shared"))
    # A free variable has weight 1, so its tuples count but its values do not matter.
    group, entry = ordered.reshape(numbers * cells, -1).nonzero().unbind(1)
    counts = torch.bincount(group, minlength=numbers * cells)
    most = max(int(counts.max()), 1)
    position = torch.arange(len(group)) - (counts.cumsum(0) - counts)[group]
    entry = entry // math.prod(sizes[i] for i in axes["free"])
    values: list[Tensor] = []
    for i in reversed(private):
        values.insert(0, entry % sizes[i])
        entry = entry // sizes[i]
    in_order = len(private) > 1 and sizes[private[0]] <= 2 * most
    if in_order:  # only where the first private variable determines the others
        in_order = len(torch.unique(group * sizes[private[0]] + values[0])) == len(group)
    if in_order:
        position, most = values[0], sizes[private[0]]
    # Without weights to look up, the tuples are those of the variable of weight 0, which has the value 0.
    places = torch.full((max(len(private), 1), most, numbers * cells), -1, dtype=torch.int64)
    for i, value in enumerate(values or [torch.zeros_like(group)]):
        places[i, position, group] = value
    return Batch(
        len(shape.scopes),
        tuple(sizes[i] for i in axes["shared"]),
        tuple(shape.part("weighted")),
        tuple(tuple(known[v] for v in scope) for scope in shape.part("known")),
        tuple(sizes[i] for i in axes["known"]),
        places.reshape(len(places), most, numbers, cells),
        in_order,
    )


def _together(batches: list[Batch], order: tuple[int, ...], none: int) -> Leaves:
    """One lookup for several batches; ``none`` is the value whose weight is that of the impossible."""
    privates = max(len(batch.places) for batch in batches)
    tuples = max(batch.places.shape[1] for batch in batches)
    givens = max(len(batch.given_sizes) for batch in batches)
    columns, variables, starts, given, strides, splits = [], [], [], [], [], []
    begin = 0
    for batch in batches:
        count, (used, listed, numbers, cells) = batch.count, batch.places.shape
        # Cells come first, then given values: a cell's row of columns is one stretch. Missing variables have weight 0.
        column = torch.zeros(privates, tuples, cells, numbers, dtype=torch.int64)
        column[:used] = none
        column[:used, :listed] = batch.places.transpose(2, 3).masked_fill(batch.places.transpose(2, 3) < 0, none)
        columns.append(column.flatten(2))
        own = torch.tensor([[v + 1 for v in scope] + [0] * (privates - len(scope)) for scope in batch.privates])
        variables.append(own.T.repeat(1, cells))  # cell by cell, all factors of a cell side by side
        starts.append((begin + numbers * torch.arange(cells)).repeat_interleave(count))
        seen = torch.tensor([list(scope) + [0] * (givens - len(scope)) for scope in batch.given], dtype=torch.int64)
        given.append(seen.reshape(count, givens).T.repeat(1, cells))
        sizes = batch.given_sizes
        steps = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))] + [0] * (givens - len(sizes))
        strides.append(torch.tensor(steps, dtype=torch.int64).unsqueeze(-1).expand(-1, cells * count))
        splits.append(cells * count)
        begin += cells * numbers
    variable, place = torch.cat(variables, 1).contiguous(), torch.cat(columns, 2)
    in_order = batches[0].in_order
    return Leaves(
        tuple(batches),
        order,
        tuple(splits),
        variable[0] if in_order else None,
        tuple(x.contiguous() for x in place[int(in_order) :]),
        tuple((x * (none + 1)).unsqueeze(-1) for x in variable[int(in_order) :]),
        torch.cat(starts).unsqueeze(-1),
        torch.cat(given, 1).flatten(),
        torch.cat(strides, 1).unsqueeze(-1),
        tuples,
    )
