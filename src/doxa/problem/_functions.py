"""Functions from worlds to outputs that can be pickled: wrappers around Python functions and factors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._factors import Program


@dataclass(frozen=True, eq=False)
class EachWorld:
    """A Python function of one world, applied to each in turn; ``spread`` passes its values as arguments."""

    function: Callable[..., Any]
    outputs: int
    spread: bool = False

    def __call__(self, worlds: Tensor) -> Tensor:
        rows = [tuple(row) for row in worlds.reshape(-1, worlds.shape[-1]).tolist()]
        values = [self._ints(row) for row in rows]
        return torch.tensor(values, dtype=torch.int64, device=worlds.device).reshape(*worlds.shape[:-1], self.outputs)

    def _ints(self, world: tuple[int, ...]) -> list[int]:
        returned = self.function(*world) if self.spread else self.function(world)
        try:
            values = [index(value) for value in (returned if isinstance(returned, Iterable) else (returned,))]
        except TypeError:
            values = []
        if len(values) != self.outputs:
            raise ProblemError(
                f"the function returned {returned!r} for world {world}, expected {self.outputs} int(s): one per output"
            )
        return values


@dataclass(frozen=True, eq=False)
class EachArgument:
    """A function of one tensor per world variable that returns a tensor, or a sequence of one per output."""

    function: Callable[..., Any]

    def __call__(self, worlds: Tensor) -> Tensor:
        outputs = self.function(*worlds.unbind(-1))
        return torch.stack([outputs] if isinstance(outputs, Tensor) else list(outputs), -1)


@dataclass(frozen=True, eq=False)
class FromProgram:
    """The function that factors stand for."""

    program: Program
    outputs: int

    def __call__(self, worlds: Tensor) -> Tensor:
        values, allowed = self.program.run(worlds)
        if not allowed.all():
            world = worlds[~allowed][0].tolist()
            raise ProblemError(f"the factors allow no output for world {tuple(world)}; every world needs exactly one")
        return values[..., self.program.worlds : self.program.worlds + self.outputs]
