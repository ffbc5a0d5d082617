"""Variables laid out in columns, from left to right, for models that scan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from doxa.errors import ConfigError
from doxa.problem import Problem

LARGEST_JOINT = 256  # values of a column's variables together, up to which their joint distribution is its feature


@dataclass(frozen=True)
class Columns:
    """Which output variables and which world variables stand in each column.

    A sum is written in columns: under the digits of both summands stands the digit of the sum. Every variable
    stands in exactly one column; a column may be without outputs or without world variables.

    Args:
        outputs: for each column the output variables.
        world: for each column the world variables.

    >>> from doxa.problem import addition
    >>> Columns.of(addition(2))                       # the first digit of a sum has no digits above it
    Columns(outputs=((0,), (1,), (2,)), world=((), (0, 2), (1, 3)))
    """

    outputs: tuple[tuple[int, ...], ...]
    world: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.outputs)

    @classmethod
    def of(cls, problem: Problem) -> Columns:
        """Columns read off the problem.

        A world variable stands under the last output that shares a factor with it. Where factors do not say, columns
        are the world variables in their order, and the outputs stand in the last of them.
        """
        outputs, world = len(problem.output), len(problem.world)
        under: dict[int, int] = {}
        for factor in problem.factors or ():
            own = [v.index for v in factor.scope if v.kind == "output"]
            for variable in factor.scope:
                if own and variable.kind == "world":
                    under[variable.index] = max(*own, under.get(variable.index, -1))
        if len(under) == world and len(set(under.values())) > 1:
            above = [tuple(w for w in range(world) if under[w] == y) for y in range(outputs)]
            return cls(tuple((y,) for y in range(outputs)), tuple(above))
        count = max(outputs, world)
        return cls(
            tuple((c - count + outputs,) if c >= count - outputs else () for c in range(count)),
            tuple((c - count + world,) if c >= count - world else () for c in range(count)),
        )

    def require(self, problem: Problem) -> None:
        """A ``ConfigError`` unless every variable of the problem stands in exactly one column."""
        for what, given, count in (
            ("outputs", self.outputs, len(problem.output)),
            ("world", self.world, len(problem.world)),
        ):
            if len(self.outputs) != len(self.world) or sorted(v for c in given for v in c) != list(range(count)):
                raise ConfigError(
                    f"the columns have {what} {given}, expected each of {count} variables in exactly one column, and "
                    "as many columns of outputs as of world variables"
                )

    def joint(self, sizes: Sequence[int]) -> bool:
        """Whether the joint distribution of every column is small enough to be a feature."""
        return all(math.prod(sizes[w] for w in column) <= LARGEST_JOINT for column in self.world)
