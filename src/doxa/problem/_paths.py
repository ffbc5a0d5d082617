"""Shortest paths on grids with steps to all 8 neighbours, where entering a cell costs something."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from doxa._native import native_library
from doxa.errors import ProblemError
from doxa.problem._moves import STAY, path_moves
from doxa.problem._problem import Problem

SOURCE = Path(__file__).with_name("_paths.c")
CACHED = 2**16  # cells that PyTorch works on at once: their costs stay in the cache of the processor
ANSWERED = 1 << 20  # cells of maps that the C code takes at a time, so that Ctrl-C is soon answered


class Paths(NamedTuple):
    """Cheapest paths: what they cost, float64 ``(*batch)``, and the cells on them, uint8 ``(*batch, H, W)``.

    >>> cheapest_paths(torch.ones(1, 2)).cost
    tensor(2., dtype=torch.float64)
    """

    cost: Tensor
    cells: Tensor


def cheapest_paths(costs: Tensor, *, native: bool | None = None) -> Paths:
    """The cheapest path from the top-left to the bottom-right cell of each map, both ends included and paid for.

    The rest of the way, r(v) for cell v, satisfies Bellman's equation over the 8 neighbours N(v),

        r(v) = c(v) + min_{u ∈ N(v)} r(u),      r(goal) = c(goal),

    which is iterated to its fixed point on all maps at once.

    Tie rule, the same wherever doxa speaks of paths: cells are numbered row by row, and of several cheapest paths the
    one whose sequence of cell numbers is lexicographically first is taken. Costs are compared in float64, as summed
    from the goal on: whole costs make ties exact, so prefer 8 and 12 to 0.8 and 1.2.

    Args:
        costs: positive ``(*batch, H, W)``, of any dtype.
        native: False does without the C kernel, which otherwise serves tensors on the CPU where there is a C compiler.
            The results are the same bits.

    Raises:
        ProblemError: a cost is not positive and finite, or so small beside the others that it would be rounded away.

    >>> paths = cheapest_paths(torch.tensor([[1, 9, 1], [9, 1, 9], [9, 9, 1]]))
    >>> paths.cost
    tensor(3., dtype=torch.float64)
    >>> paths.cells
    tensor([[1, 0, 0],
            [0, 1, 0],
            [0, 0, 1]], dtype=torch.uint8)
    """
    if costs.ndim < 2 or 0 in costs.shape[-2:]:
        raise ProblemError(f"costs have shape {tuple(costs.shape)}, expected (*batch, H, W) with at least one cell")
    height, width = costs.shape[-2:]
    batch = costs.shape[:-2]
    grids = costs.detach().to(torch.float64).reshape(-1, height, width)
    if not len(grids):
        return Paths(grids.new_zeros(batch), torch.zeros(costs.shape, dtype=torch.uint8, device=costs.device))
    least, most = (float(bound) for bound in grids.aminmax())
    # Below this a cost added to the rest of the way may leave it as it is, and paths could go in circles.
    if not (math.isfinite(most) and least > most * height * width * torch.finfo(torch.float64).eps):
        raise ProblemError(
            f"costs lie in {least:g} .. {most:g}, expected positive and finite ones that differ by no more than a "
            "factor of about 1e12; clamp them, as in costs.clamp_min(1e-3)"
        )
    library = native_library(SOURCE) if native is not False and costs.device.type == "cpu" else None
    if library is None:
        parts = [_in_torch(part) for part in torch.split(grids, max(1, CACHED // (height * width)))]
    else:
        parts = [_in_c(library, part) for part in torch.split(grids, max(1, ANSWERED // (height * width)))]
    cost, cells = (torch.cat(both) for both in zip(*parts, strict=True))
    return Paths(cost.reshape(batch), cells.reshape(costs.shape))


def _in_c(library: ctypes.CDLL, grids: Tensor) -> Paths:
    maps, height, width = grids.shape
    grids = grids.contiguous()
    cost = torch.empty(maps, dtype=torch.float64)
    cells = torch.empty(grids.shape, dtype=torch.uint8)
    sizes = (ctypes.c_int64(size) for size in (maps, height, width))
    failed = library.cheapest_paths(*sizes, *(ctypes.c_void_p(x.data_ptr()) for x in (grids, cost, cells)))
    if failed:
        raise MemoryError("there is no memory for the two copies of a map that shortest paths need")
    return Paths(cost, cells)


def _in_torch(grids: Tensor) -> Paths:
    maps, height, width = grids.shape
    cost = grids.permute(1, 2, 0).contiguous()  # the maps last, so that neighbours are slices of whole rows of numbers
    rest = cost.new_full((height + 2, width + 2, maps), math.inf)  # with a border that no path enters
    rest[-2, -2] = cost[-1, -1]
    inner, beside, found = rest[1:-1, 1:-1], cost.new_empty(height + 2, width, maps), torch.empty_like(cost)
    for sweep in count(1):
        # The cell itself is among the nine, and never the least of them: r(v) > r(u) for the u it came from.
        torch.minimum(rest[:, :-2], rest[:, 2:], out=beside)
        torch.minimum(beside, rest[:, 1:-1], out=beside)
        torch.minimum(beside[:-2], beside[2:], out=found)
        torch.minimum(found, beside[1:-1], out=found)
        found.add_(cost)
        found[-1, -1] = cost[-1, -1]
        if sweep % 4 == 0 and torch.equal(found, inner):  # comparing costs as much as a third of a sweep
            break
        inner.copy_(found)
    row = width + 2
    around = torch.tensor([-row - 1, -row, -row + 1, -1, 1, row - 1, row, row + 1], device=grids.device)
    flat = rest.reshape(-1, maps).t()
    goal = row * height + width
    at = torch.full((maps, 1), row + 1, device=grids.device)
    cells = torch.zeros(flat.shape, dtype=torch.uint8, device=grids.device)
    while True:
        cells.scatter_(1, at, 1)
        if bool((at == goal).all()):
            break
        ahead = at + around
        # argmin takes the first of the least, and neighbours come in the order of their numbers: that is the tie rule.
        nearest = flat.gather(1, ahead).argmin(1, keepdim=True)
        at = torch.where(at == goal, at, ahead.gather(1, nearest))
    return Paths(rest[1, 1].clone(), cells.reshape(maps, height + 2, row)[:, 1:-1, 1:-1].contiguous())


def shortest_path(height: int, width: int, costs: Sequence[int] = (1, 2), *, moves: int | None = None) -> Problem:
    """The cheapest path from the top-left to the bottom-right cell of a grid, with steps to all 8 neighbours.

    World variable i says which of ``costs`` must be paid for cell i (row by row). Output variable i is 1 if cell i is
    on the path, both ends included; or, with ``moves``, the i-th move, as `path_moves` numbers them. Ties are broken
    as `cheapest_paths` says.

    Args:
        height: of the grid.
        width: of the grid.
        costs: positive whole numbers, which make ties exact.
        moves: how many moves make an output, in place of cells; H · W - 1 cuts no path short.

    >>> problem = shortest_path(2, 3, costs=(1, 9))
    >>> world = torch.tensor([0, 1, 0, 0, 0, 0])
    >>> problem(world).reshape(2, 3)
    tensor([[1, 0, 0],
            [0, 1, 1]])
    >>> shortest_path(2, 3, costs=(1, 9), moves=4)(world)                # down and right, right, and stay
    tensor([7, 4, 8, 8])
    """
    if height < 1 or width < 1 or not costs or not all(type(cost) is int and cost > 0 for cost in costs):
        raise ProblemError(
            f"height is {height}, width is {width}, costs are {tuple(costs)}; expected a grid of at least one "
            "cell and positive whole costs, which make ties exact"
        )
    if moves is not None and moves < 1:
        raise ProblemError(f"moves is {moves}, expected at least 1")
    cells = height * width
    output, what = ((2,) * cells, "path") if moves is None else ((STAY + 1,) * moves, "move")
    names = (*(f"cost{i}" for i in range(cells)), *(f"{what}{i}" for i in range(len(output))))
    function = partial(_cheapest, height=height, width=width, costs=tuple(costs), moves=moves)
    return Problem((len(costs),) * cells, output, function, names=names)


def _cheapest(worlds: Tensor, height: int, width: int, costs: tuple[int, ...], moves: int | None) -> Tensor:
    prices = torch.tensor(costs, dtype=torch.float64, device=worlds.device)
    cells = cheapest_paths(prices[worlds].reshape(*worlds.shape[:-1], height, width)).cells
    return cells.flatten(-2).to(torch.int64) if moves is None else path_moves(cells, moves)
