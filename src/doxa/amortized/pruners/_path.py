"""The local pruner for paths: stay on the map, visit no cell twice, arrive in time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from doxa.amortized.models._grid import MOVES, STAY, moved
from doxa.amortized.pruners._pruner import Pruner
from doxa.errors import ConfigError


class PathPruner(Pruner):
    """Moves on a grid from its first to its last cell, as in ``MOVES``.

    Forbidden are moves that leave the grid, that return to a cell of the path (dissertation, "Prune with local
    constraints"), or after which the goal is too far for the moves that are left; staying is allowed at the goal, and
    only there. That makes it a path; not the shortest one, and there may be dead ends, so the pruner is not complete.

    Args:
        shape: height and width of the grid.
        length: the number of moves, padded with staying.
        world: the sizes of the world variables that follow, on which nothing is forbidden.

    >>> pruner = PathPruner((2, 2), length=3)
    >>> pruner(torch.zeros(0, dtype=torch.int64)).nonzero().flatten()          # right, down, or straight to the goal
    tensor([4, 6, 7])
    >>> pruner(torch.tensor([7])).nonzero().flatten()                          # there: stay
    tensor([8])
    """

    def __init__(self, shape: tuple[int, int], length: int, world: Sequence[int] = ()) -> None:
        height, width = shape
        if height < 1 or width < 1 or length < max(height, width) - 1:
            raise ConfigError(
                f"shape is {shape} and length {length}, expected a grid and at least {max(shape) - 1} moves"
            )
        super().__init__((len(MOVES),) * length + tuple(world), complete=False)
        self.shape = shape
        self.length = length

    def allowed(self, prefix: Tensor) -> Tensor:
        k = prefix.shape[-1]
        if k >= self.length:
            return torch.ones(len(prefix), self.sizes[k], dtype=torch.bool, device=prefix.device)
        height, width = self.shape
        cell = prefix.new_zeros(len(prefix))
        visited = torch.zeros(len(prefix), height * width, dtype=torch.bool, device=prefix.device)
        for move in prefix.unbind(-1):
            visited.scatter_(-1, cell.unsqueeze(-1), True)
            cell = moved(cell, move, height, width)
        visited.scatter_(-1, cell.unsqueeze(-1), True)
        steps = torch.tensor(MOVES, device=prefix.device)
        row, column = (cell // width).unsqueeze(-1) + steps[:, 0], (cell % width).unsqueeze(-1) + steps[:, 1]
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        target = torch.where(inside, row * width + column, 0)
        far = torch.maximum(height - 1 - row, width - 1 - column)  # king's moves to the goal
        allowed = inside & ~visited.gather(-1, target) & (far <= self.length - k - 1)
        arrived = cell == height * width - 1
        stay = torch.arange(len(MOVES), device=prefix.device) == STAY
        return torch.where(arrived.unsqueeze(-1), stay, allowed & ~stay)
