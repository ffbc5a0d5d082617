"""Blocks: straight-line programs that evaluate one quantifier, or a whole formula, over a frame of axes.

Equal operations on equal values are one step; what the tiles of a frame have in common is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.logic.syntax._tree import Expr
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Accumulator, State
from doxa.logic.tensor._pools import TRUTH, Axis, Pool, Ref, Type, align, inserted, take, union
from doxa.logic.tensor._run import Run


@dataclass(eq=False, slots=True)
class Frame:
    """A block at run time: the length of each axis, and the values so far."""

    run: Run
    sizes: dict[Axis, int]
    regs: list[Any]
    whole: bool
    """Is this the whole frame, and not one tile of many?"""
    pieces: int = 1
    """In how many pieces its lists came; for the report."""


@dataclass(eq=False, slots=True)
class Own:
    """An axis that a block introduces: one variable over a pool."""

    axis: Axis
    pool: Pool
    slot: int
    costs: bool = True
    """Do values grow with the length of this axis?"""


class Absorbed(NamedTuple):
    """A list axis that took the place of other axes: ``places`` holds a position on each of them per entry."""

    list: Axis
    made: Ref
    """The value that all places come from."""
    places: dict[Axis, Ref]


class Open(NamedTuple):
    """The folded instances of a quantifier that is not finished yet."""

    state: State
    instances: int | Tensor


Places = tuple[Tensor | None, ...]
"""The entries of a list as places along the axes that it took the place of; None for those that nobody looks at."""


def length_of(places: Places) -> int:
    return next(len(column) for column in places if column is not None)


class Split:
    """A list that is too long for one frame: what comes after it is done for each of its pieces."""

    axis: Axis

    def pieces(self) -> Iterator[Callable[[], Places]]:
        """At least one piece, each as a function that makes it, and that may be asked again."""
        raise NotImplementedError


MOVES = ("place", "shift", "gather", "positions")


@dataclass(eq=False, slots=True)
class Step:
    """``regs[out] = fn(frame, *regs[args])``, then drop ``frees``. What ``fn`` returns is a task if it ``suspends``."""

    fn: Callable[..., Any]
    args: tuple[int, ...]
    out: int
    suspends: bool
    inner: Block | None
    moves: bool = False
    """Does it only move values to where they are needed, so that it can be left out if nobody needs them?"""
    frees: tuple[int, ...] = ()


class Reducer:
    """What becomes of the values of a frame. ``refs`` are the values it looks at."""

    refs: tuple[Ref, ...]
    axes: tuple[Axis, ...]
    """The axes of the result."""
    spreads = False
    """Are values spread along axes that they do not mention?"""
    cuts = False
    """Does it cut the frame into tiles by itself?"""
    whole = False
    """Can its results not be put side by side?"""

    def tiles(self, block: Block, sizes: dict[Axis, int], chunk: int) -> list[dict[Own, slice]] | None:
        """Tiles in which no tensor has more than ``chunk`` elements, where that is possible; None for a single one."""
        raise NotImplementedError

    def tile(self, frame: Frame) -> Any:
        """What one tile gives."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def beside(self, pieces: list[Any], dim: int) -> Any:
        """Results of pieces of an outer axis side by side."""
        if not isinstance(pieces[0], Open):
            return torch.cat(pieces, dim)
        states = zip(*[piece.state for piece in pieces], strict=True)
        return Open(tuple([torch.cat(parts, dim) for parts in states]), pieces[0].instances)

    def leave_open(self) -> Accumulator | None:
        """Give :class:`Open` from now on, where finishing takes nothing but an accumulator: which one."""
        return None

    def finish(self, frame: Frame, total: Any) -> Any:
        return total

    def note(self, sizes: dict[Axis, int]) -> str:
        """What a report adds to the frame."""
        return ""


class Result(Reducer):
    """The value itself, of a block without axes of its own."""

    def __init__(self, ref: Ref) -> None:
        self.refs = (ref,)
        self.axes = ref.axes

    def tile(self, frame: Frame) -> Any:
        return frame.regs[self.refs[0].slot]


class Block:
    """The program of one frame, being built; :meth:`seal` makes it runnable."""

    reducer: Reducer
    outer: tuple[Axis, ...]
    """The axes of the values from outside."""
    invariant: list[Step]
    varying: list[Step]
    blank: list[Any]
    """The registers before anything has run: constants, and places to fill."""
    input_slots: tuple[int, ...]
    live: frozenset[int]
    """The values that the result depends on."""

    def __init__(self, parent: Block | None, label: str) -> None:
        self.parent = parent
        self.label = label
        self.slots = 0
        self.constants: list[tuple[int, Any]] = []
        self.inputs: list[tuple[Ref, Ref]] = []
        self.own: list[Own] = []
        self.steps: list[Step] = []
        self.lists: list[Absorbed] = []
        self.joined: set[Axis] = set()
        """Axes that stand in joins and nowhere else, so that nothing is as long as they are together."""
        self.ragged: list[tuple[Ref, _pools.Column, int]] = []
        self.ranges: dict[Axis, Ref] = {}
        self.guards: list[tuple[Expr, dict[str, Ref]]] = []
        """The guards of the frame, and what their free names stand for."""
        self.memo: dict[Any, Any] = {}
        self._numbers: dict[Any, Ref] = {}
        self._captured: dict[int, Ref] = {}
        self._moved: dict[tuple[int, int], Ref] = {}

    # -- building ---------------------------------------------------------------------------------------------------

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def constant(self, value: int | float, kind: Type) -> Ref:
        key = ("constant", type(value), value, kind)
        if key not in self._numbers:
            slot = self.slot()
            self.constants.append((slot, value))
            self._numbers[key] = Ref(slot, (), kind, const=value)
        return self._numbers[key]

    def emit(
        self,
        key: Any,
        fn: Callable[..., Any],
        args: Sequence[Ref],
        axes: tuple[Axis, ...],
        kind: Type = TRUTH,
        *,
        suspends: bool = False,
        inner: Block | None = None,
        dense: bool = False,
    ) -> Ref:
        """Add a step, unless the same operation on the same values is there already."""
        slots = tuple([a.slot for a in args])
        number = (key, slots)
        found = self._numbers.get(number)
        if found is None:
            found = Ref(self.slot(), axes, kind, dense=dense, epoch=len(self.lists))
            self._numbers[number] = found
            moves = isinstance(key, tuple) and key[0] in MOVES
            self.steps.append(Step(fn, slots, found.slot, suspends, inner, moves))
        # A position can be read in several ways: a row is a position in each of its fields.
        return found if found.type == kind else found.read_as(kind)

    def broadcast(self, key: Any, fn: Callable[..., Any], args: Sequence[Ref], kind: Type = TRUTH) -> Ref:
        """Add a step whose values broadcast against each other: it has all of their axes."""
        axes = union([a.axes for a in args])
        dims = [inserted(a.axes, axes) for a in args]
        if not any(dims):
            return self.emit(key, fn, args, axes, kind)
        return self.emit(key, lambda frame, *values: fn(frame, *align(values, dims)), args, axes, kind)

    def positions(self, ref: Ref) -> Ref:
        """A run of consecutive positions as a tensor; other values as they are."""
        if not ref.dense:
            return ref

        def arange(frame: Frame, run: slice) -> Tensor:
            return torch.arange(run.start, run.stop, device=frame.run.device)

        return self.emit(("positions", ref.type), arange, [ref], ref.axes, ref.type)

    def variable(self, axis: Axis, pool: Pool, kind: Type) -> Ref:
        ref = Ref(self.slot(), (axis,), kind, dense=True, epoch=len(self.lists))
        self.own.append(Own(axis, pool, ref.slot))
        return ref

    def capture(self, ref: Ref) -> Ref:
        if ref.const is not None:
            return self.constant(ref.const, ref.type)
        if ref.slot not in self._captured:
            inside = Ref(self.slot(), ref.axes, ref.type, dense=ref.dense)
            self._captured[ref.slot] = inside
            self.inputs.append((ref, inside))
        return self._captured[ref.slot].read_as(ref.type)

    def current(self, ref: Ref) -> Ref:
        """The value as it stands after the lists made so far."""
        for number in range(ref.epoch, len(self.lists)):
            absorbed = self.lists[number]
            if any(a in absorbed.places for a in ref.axes):
                key = (ref.slot, number)
                if key not in self._moved:
                    self._moved[key] = _remap(self, ref, absorbed)
                ref = self._moved[key].read_as(ref.type)
        return ref

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that this block introduced and that no later list absorbed."""
        gone = {a for absorbed in self.lists for a in absorbed.places}
        axes = [*[own.axis for own in self.own], *[absorbed.list for absorbed in self.lists]]
        return tuple([a for a in axes if a not in gone])

    def position(self, axis: Axis) -> Ref:
        """The positions 0, 1, ... along an axis of the frame."""
        for absorbed in self.lists:
            if absorbed.list is axis:

                def all_of(frame: Frame, made: Any) -> slice:
                    return slice(0, frame.sizes[axis])

                return self.emit(("position", axis), all_of, [absorbed.made], (axis,), dense=True)
        if axis not in self.ranges:
            self.ranges[axis] = Ref(self.slot(), (axis,), TRUTH, dense=True)
        return self.ranges[axis]

    def seal(self, reducer: Reducer) -> None:
        """Finish building: what varies from tile to tile, and when each value is no longer needed."""
        self.reducer = reducer
        self.outer = tuple({a: None for ref, _ in self.inputs for a in ref.axes})
        varying = {own.slot for own in self.own if own.axis not in self.joined}
        if varying:
            own_axes = {own.axis for own in self.own if own.axis not in self.joined}
            varying |= {ref.slot for axis, ref in self.ranges.items() if axis in own_axes}
        live = {ref.slot for ref in reducer.refs}
        live.update([absorbed.made.slot for absorbed in self.lists])  # how long a list is matters by itself
        for step in reversed(self.steps):  # others may find that a term has no value
            if step.out in live or not step.moves:
                live.update([step.out, *step.args])
        self.invariant = []
        self.varying = []
        last: dict[int, Step] = {}
        for step in self.steps:
            if not varying.isdisjoint(step.args):
                varying.add(step.out)
                self.varying.append(step)
            else:
                self.invariant.append(step)
        self.invariant = [step for step in self.invariant if step.out in live]
        self.varying = [step for step in self.varying if step.out in live]
        self.steps = [*self.invariant, *self.varying]  # the order in which they run
        self.live = frozenset(live)
        for step in self.steps:
            for slot in step.args:
                last[slot] = step
        kept = {ref.slot for ref in reducer.refs}
        for own in self.own:
            used = reducer.spreads or own.slot in last or own.slot in kept or own.axis in self.ranges
            own.costs = used and own.axis not in self.joined
        made = {step.out for step in self.steps}
        frees: dict[int, list[int]] = {}
        for slot, step in last.items():
            # What does not vary is still needed by the next tile.
            if slot in made and slot not in kept and (slot in varying or step.out not in varying):
                frees.setdefault(step.out, []).append(slot)
        for step in self.steps:
            step.frees = tuple(frees.get(step.out, ()))
        self.blank = [None] * self.slots
        for slot, value in self.constants:
            self.blank[slot] = value
        self.input_slots = tuple([inside.slot for _, inside in self.inputs])
        # The indices that made the program are not needed to run it.
        self._numbers, self._captured, self._moved, self.memo = {}, {}, {}, {}


def _remap(block: Block, ref: Ref, absorbed: Absorbed) -> Ref:
    """A value with absorbed axes, gathered along the list that took their place."""
    gone = [a for a in ref.axes if a in absorbed.places]
    kept = tuple([a for a in ref.axes if a not in absorbed.places])
    places = [absorbed.places[a] for a in gone]
    axes = (*kept, absorbed.list)
    if ref.dense:

        def shift(frame: Frame, run: slice, at: Tensor) -> Tensor:
            return at if run.start == 0 else at + run.start

        return block.emit(("shift", absorbed.list), shift, [ref, *places], axes, ref.type)
    dims = [ref.axes.index(a) for a in gone]
    order = (*dims, *[d for d in range(len(ref.axes)) if d not in dims])

    def gather(frame: Frame, value: Tensor, *at: Tensor) -> Tensor:
        if len(at) == 1:
            chosen = value.index_select(dims[0], at[0])
            return chosen if dims[0] == chosen.ndim - 1 else chosen.movedim(dims[0], -1)
        return take(value.permute(order), at).movedim(0, -1)

    return block.emit(("gather", absorbed.list), gather, [ref, *places], axes, ref.type)


@dataclass(eq=False, slots=True)
class Scope:
    """The names bound in a block, and those around it."""

    parent: Scope | None
    block: Block
    names: dict[str, Ref] = field(default_factory=dict)
    possible: Ref | None = None
    """Which values of drawn variables the guards around them let through, where others may have no value."""

    def find(self, name: str) -> Scope | None:
        at: Scope | None = self
        while at is not None and name not in at.names:
            at = at.parent
        return at

    def meant(self, names: Iterable[str]) -> dict[str, Ref]:
        return {name: home.names[name] for name in names if (home := self.find(name)) is not None}

    def binds(self, name: str) -> bool:
        return self.find(name) is not None
