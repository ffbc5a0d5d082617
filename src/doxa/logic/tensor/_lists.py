"""Lists of instances: what guards and ragged domains make of axes.

A guard keeps some places of the frame's axes. Those axes are replaced by one *list* axis with a vector of positions for
each of them; every value over them is gathered along it. A ragged domain (``x in s.objects``) does the same: one entry
per object of each structure. The quantifier then folds the list, and if an axis from outside went into it, the list is
folded by segments back onto that axis.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from doxa.logic.bind._meanings import Table
from doxa.logic.tensor._algebra import Accumulator
from doxa.logic.tensor._block import Absorbed, Block, Frame, Reducer
from doxa.logic.tensor._classical import CLASSICAL
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._index import unravel
from doxa.logic.tensor._lookup import expand_dims, positions
from doxa.logic.tensor._named import Sparse
from doxa.logic.tensor._run import Run, Source
from doxa.logic.tensor._task import Task
from doxa.logic.tensor._types import Axis, ColumnPool, Ref, Type, inserted, union

__all__ = ["Fold", "guard_list", "ragged_list"]


def guard_list(
    block: Block,
    guard: Block,
    axis: Axis,
    key: Any,
    spread: Axis | None,
    table: tuple[Source, list[Ref]] | None,
    fixed: list[str] | None,
) -> None:
    """Keep the places of the frame where a guard holds; ``guard`` is a sealed block inside ``block``.

    ``spread`` is an axis to keep or drop as a whole, for a guard that does not depend on any variable. ``table`` is the
    relation and its variables, for a guard that is no more than that: a list of tuples need not be searched for.
    ``fixed`` names all relations in a guard that depends on nothing else but the number of objects; as long as the
    tensors bound to them stay what they are, so does the list.
    """
    axes = guard.reducer.axes if spread is None else (spread,)
    inputs = [ref for ref, _ in guard.inputs]
    kept = None if fixed is None or spread is not None else Kept(fixed)

    def make(frame: Frame, *values: Any) -> Task:
        values = values[: len(inputs)]
        found = frame.run.find_list(key, values) if frame.whole and spread is None else None
        if found is None and kept is not None:
            found = kept.find(frame.run, values)
        if found is None:
            tuples = None if table is None else frame.run.table(table[0], CLASSICAL)
            if table is not None and isinstance(tuples, Sparse):
                found = _tuples(frame, tuples, table[1], axes)
            else:
                truth = yield run_block(guard, frame.run, values, frame.sizes)
                sizes = [frame.sizes[a] for a in axes]
                found = unravel(truth.expand(sizes).reshape(-1).nonzero().squeeze(1), sizes)
            if kept is not None and frame.whole:
                kept.keep(frame.run, values, found)
            if frame.whole and spread is None:
                frame.run.keep_list(key, values, found)
        frame.sizes[axis] = len(found[0])
        return found

    # The position makes the list follow the axis from tile to tile.
    args = inputs if spread is None else [*inputs, block.position(spread)]
    _absorb(block, axis, axes, block.emit(("list", axis), make, args, (axis,), suspends=True))


class Kept:
    """The list that a guard made last, kept from run to run: with the places and tensors that it was made from."""

    def __init__(self, relations: list[str]) -> None:
        self._relations = relations
        self._places: Any = None
        self._tensors: list[tuple[weakref.ref[Tensor], int]] = []
        self._found: tuple[Tensor, ...] | None = None

    def tensors(self, run: Run) -> list[Tensor]:
        """The tensors that decide."""
        meanings = [run.batch.meaning(name) for name in self._relations]
        return [m.tensor for m in meanings if isinstance(m, Table)]

    def find(self, run: Run, places: tuple[Any, ...]) -> tuple[Tensor, ...] | None:
        """The list, if everything is as it was."""
        if self._places != (run.device, places):
            return None
        now = self.tensors(run)
        same = [was() is t and version == t._version for (was, version), t in zip(self._tensors, now, strict=True)]
        return self._found if all(same) else None

    def keep(self, run: Run, places: tuple[Any, ...], found: tuple[Tensor, ...]) -> None:
        self._places, self._found = (run.device, places), found
        self._tensors = [(weakref.ref(t), t._version) for t in self.tensors(run)]


def _tuples(frame: Frame, table: Sparse, variables: list[Ref], axes: tuple[Axis, ...]) -> tuple[Tensor, ...]:
    """The tuples of a relation that lie in this tile, as places along the axes of their variables."""
    places = unravel(table.keys, table.shape)
    runs = [frame.regs[v.slot] for v in variables]
    inside = torch.ones_like(table.keys, dtype=torch.bool)
    for place, run in zip(places, runs, strict=True):
        inside &= (place >= run.start) & (place < run.stop)
    at = inside.nonzero().squeeze(1)
    by_axis = {
        v.axes[0]: place.index_select(0, at) - run.start for v, place, run in zip(variables, places, runs, strict=True)
    }
    return tuple([by_axis[a] for a in axes])


def ragged_list(block: Block, base: Ref, pool: ColumnPool, axis: Axis, kind: Type) -> Ref:
    """One entry per object of the structures at ``base``; the new variable."""
    at = positions(block, base)
    axes = base.axes

    def make(frame: Frame, rows: Tensor) -> tuple[Tensor, ...]:
        column = frame.run.column(pool.rows, pool.field)
        assert column.lengths is not None and column.starts is not None
        flat = rows.reshape(-1)
        lengths = column.lengths[flat]
        where = torch.repeat_interleave(lengths)
        first = lengths.cumsum(0) - lengths
        element = column.starts[flat][where] + torch.arange(len(where), device=rows.device) - first[where]
        frame.sizes[axis] = len(where)
        return (element, *unravel(where, list(rows.shape)))

    made = block.emit(("ragged", axis), make, [at], (axis,))
    element = block.emit(("element", axis), _part(0), [made], (axis,), kind)
    _absorb(block, axis, axes, made, first=1)
    return element


def _absorb(block: Block, axis: Axis, axes: tuple[Axis, ...], made: Ref, first: int = 0) -> None:
    places = {}
    for number, gone in enumerate(axes):
        places[gone] = block.emit(("place", axis, gone), _part(number + first), [made], (axis,))
    block.lists.append(Absorbed(axis, made, places))


def _part(number: int) -> Callable[..., Any]:
    return lambda frame, parts: parts[number]


class Fold(Reducer):
    """Fold the axes that a block introduced: its variables', and its lists', the latter back onto outer axes."""

    def __init__(self, block: Block, body: Ref, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.spreads = not accumulator.idempotent
        self.body = body
        gone = {a for absorbed in block.lists for a in absorbed.places}
        lists = [absorbed.list for absorbed in block.lists]
        own = [o.axis for o in block.own]
        self.folded = [a for a in [*own, *lists] if a not in gone]
        """Axes to fold away."""
        self.segments: list[tuple[Axis, list[tuple[Axis, Ref]]]] = []
        """List axes to fold onto outer axes, with the positions on these."""
        outer = [a for a in gone if a not in own and a not in lists]
        for axis in list(self.folded):
            back = [(a, block.current(block.position(a))) for a in sorted(outer, key=lambda a: a.order)]
            back = [(a, ref) for a, ref in back if ref.axes == (axis,)]
            if back:
                self.folded.remove(axis)
                self.segments.append((axis, back))
        segmented = {axis for axis, _ in self.segments}
        self.rest = tuple([a for a in body.axes if a not in self.folded and a not in segmented])
        self.axes = union([self.rest, *[tuple([a for a, _ in back]) for _, back in self.segments]])
        self.refs = (body, *[ref for _, back in self.segments for _, ref in back])
        self.absent = [a for a in self.folded if a not in body.axes]
        self.dims = tuple([d for d, a in enumerate(body.axes) if a in self.folded])

    def tile(self, frame: Frame) -> Any:
        accumulator, sizes = self.accumulator, frame.sizes
        x = frame.regs[self.body.slot]
        axes, dims = self.body.axes, self.dims
        if self.absent or self.segments:
            # An axis that the body does not mention matters when its length does: how often, or whether at all.
            missing = [a for a in self.absent if not accumulator.idempotent or sizes[a] == 0]
            missing += [a for a, _ in self.segments if a not in axes]
            if missing:
                full = union([axes, tuple(missing)])
                x = expand_dims(x, inserted(axes, full)).expand([sizes[a] for a in full])
                axes, dims = full, tuple([d for d, a in enumerate(full) if a in self.folded])
        state = accumulator.fold(accumulator.lift(x), dims)
        left = [a for a in axes if a not in self.folded]
        count: Any = 1
        if accumulator.counts:
            for a in self.folded:
                count *= sizes[a]
        for axis, back in self.segments:
            dim = left.index(axis)
            ids, size = _segment_ids(frame, back)
            state = accumulator.segments(state, dim, ids, size)
            if accumulator.counts:
                count = (
                    torch.bincount(ids, minlength=size).view([-1 if d == dim else 1 for d in range(len(left))]) * count
                )
        return state, count, left

    def merge(self, a: Any, b: Any) -> Any:
        return self.accumulator.merge(a[0], b[0]), a[1] + b[1], a[2]

    def finish(self, frame: Frame, total: Any) -> Any:
        state, count, left = total
        value = self.accumulator.finish(state, count)
        if not self.segments:
            return value
        shape: list[int] = []
        axes: list[Axis] = []
        onto = dict(self.segments)
        for axis in left:
            back = [a for a, _ in onto[axis]] if axis in onto else [axis]
            axes += back
            shape += [frame.sizes[a] for a in back]
        value = value.reshape(shape)
        order = sorted(range(len(axes)), key=lambda d: axes[d].order)
        return value.permute(order) if order != list(range(len(axes))) else value


def _segment_ids(frame: Frame, back: list[tuple[Axis, Ref]]) -> tuple[Tensor, int]:
    ids: Any = 0
    size = 1
    for axis, ref in back:
        ids = ids * frame.sizes[axis] + frame.regs[ref.slot]
        size *= frame.sizes[axis]
    return ids, size
