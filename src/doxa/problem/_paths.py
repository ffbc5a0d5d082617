"""Shortest paths on a small grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.errors import ProblemError
from doxa.problem._problem import Problem


def shortest_path(height: int, width: int, costs: Sequence[int] = (1, 2)) -> Problem:
    """The cheapest path from the top-left to the bottom-right cell of a grid, with steps to all 8 neighbours.

    World variable i says which of ``costs`` must be paid for entering cell i (row by row); output variable i is 1 if
    cell i is on the path, both ends included.

    Tie rule: cells are numbered row by row, and of several cheapest paths the one whose sequence of cell numbers is
    lexicographically first is taken.

    >>> problem = shortest_path(2, 3, costs=(1, 9))
    >>> problem(torch.tensor([0, 1, 0, 0, 0, 0])).reshape(2, 3)
    tensor([[1, 0, 0],
            [0, 1, 1]])
    """
    if height < 1 or width < 1 or not costs or not all(type(cost) is int and cost > 0 for cost in costs):
        raise ProblemError(
            f"height is {height}, width is {width}, costs are {tuple(costs)}; expected a grid of at least one "
            "cell and positive whole costs, which make ties exact"
        )
    cells = height * width
    names = (*(f"cost{i}" for i in range(cells)), *(f"path{i}" for i in range(cells)))
    function = partial(_cheapest, height=height, width=width, costs=tuple(costs))
    return Problem((len(costs),) * cells, (2,) * cells, function, names=names)


def _cheapest(worlds: Tensor, height: int, width: int, costs: tuple[int, ...]) -> Tensor:
    cost = torch.tensor(costs, device=worlds.device)[worlds]
    neighbours = _neighbours(height, width).to(worlds.device)
    cells = height * width
    far = cells * max(costs) + 1  # dearer than any path
    # to_go[v] = cost of the rest of the way from v, v not included: Bellman's equation, iterated to its fixed point.
    to_go = torch.full_like(cost, far)
    to_go[..., -1] = 0
    for _ in range(cells):
        beyond = pad(cost + to_go, (0, 1), value=2 * far)[..., neighbours]
        to_go[..., :-1] = beyond.amin(-1)[..., :-1]
    # argmin takes the first minimum, and neighbours are in the order of their numbers: that is the tie rule.
    follow = neighbours.expand_as(beyond).gather(-1, beyond.argmin(-1, keepdim=True)).squeeze(-1)
    follow[..., -1] = cells - 1
    path = torch.zeros_like(worlds)
    cell = torch.zeros_like(worlds[..., :1])
    for _ in range(cells):
        path = path.scatter(-1, cell, 1)
        cell = follow.gather(-1, cell)
    return path


def _neighbours(height: int, width: int) -> Tensor:
    """``(cells, 8)``: the neighbours of each cell in increasing order, padded with the number of cells."""
    cells = height * width
    table = torch.full((cells, 8), cells)
    for row in range(height):
        for column in range(width):
            found = [
                r * width + c
                for r in range(max(row - 1, 0), min(row + 2, height))
                for c in range(max(column - 1, 0), min(column + 2, width))
                if (r, c) != (row, column)
            ]
            table[row * width + column, : len(found)] = torch.tensor(found, dtype=torch.int64)
    return table
