"""The static side of grounding: axes, and what is known of a value before anything runs.

A value inside a plan has *axes*, one tensor dimension each, in the order in which they were introduced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from doxa.logic.tensor._pools import Type

__all__ = ["Axis", "Ref", "inserted", "union"]


@dataclass(eq=False, slots=True)
class Axis:
    """One dimension of a frame: a variable's, or that of a list of instances."""

    label: str
    order: int


def union(axes: Iterable[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """All axes that occur, in their order."""
    found = {a: None for some in axes for a in some}
    return tuple(sorted(found, key=lambda a: a.order))


def inserted(of: tuple[Axis, ...], into: tuple[Axis, ...]) -> tuple[int, ...]:
    """The dimensions to insert so that a tensor over ``of`` broadcasts against one over ``into``."""
    if not of:
        return ()
    first = into.index(of[0])  # further to the left, broadcasting inserts by itself
    return tuple([d - first for d in range(first, len(into)) if into[d] not in of])


@dataclass(frozen=True, eq=False, slots=True)
class Ref:
    """A value of a plan: where it will be, its axes and its type."""

    slot: int
    axes: tuple[Axis, ...]
    type: Type
    dense: bool = False
    """At run time it is a slice: consecutive positions along its one axis."""
    const: int | float | None = None
    """Its value, when that is known before anything runs."""
    epoch: int = 0
    """How many lists its block had when it was made; later lists may absorb its axes."""

    def read_as(self, kind: Type) -> Ref:
        """The same value, understood as another kind of thing."""
        return self if kind == self.type else replace(self, type=kind)
