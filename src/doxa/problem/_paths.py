"""Shortest paths on grids with steps to all 8 neighbours, where entering a cell costs something; and their moves."""

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
from torch.nn.functional import pad

from doxa._native import native_library
from doxa.errors import ProblemError
from doxa.problem._logspace import shown
from doxa.problem._problem import Problem

#: Row and column of each move: the eight neighbours in the order of their cells, and last, staying where one is.
MOVES = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1), (0, 0))
STAY = 8


def path_moves(cells: Tensor, length: int | None = None) -> Tensor:
    """The moves of paths from the top-left to the bottom-right cell: 0 to 7 for the neighbours row by row, 8 to stay.

    A cheapest path never touches itself (or there would be a shorter one), so its cells say in which order they come.

    Args:
        cells: ``(*batch, H, W)``, 1 for the cells on the path, both ends included.
        length: how many moves; a path that arrives earlier stays, and a longer one is cut off. By default H · W - 1,
            which is enough for every path.

    Returns:
        int64 ``(*batch, length)``.

    >>> cells = torch.tensor([[1, 0, 0], [0, 1, 1]])
    >>> path_moves(cells)
    tensor([7, 4, 8, 8, 8])
    >>> path_cells(path_moves(cells), 2, 3)
    tensor([[1, 0, 0],
            [0, 1, 1]], dtype=torch.uint8)
    """
    if cells.ndim < 2 or 0 in cells.shape[-2:]:
        raise ProblemError(f"cells have shape {tuple(cells.shape)}, expected (*batch, H, W) with at least one cell")
    height, width = cells.shape[-2:]
    length = height * width - 1 if length is None else length
    if length < 0:
        raise ProblemError(f"length is {length}, expected 0 or more moves")
    left = pad(cells.to(torch.uint8).reshape(-1, height, width), (1, 1, 1, 1)).flatten(1)  # cells still to be visited
    row, goal = width + 2, height * (width + 2) + width
    steps = torch.tensor([dr * row + dc for dr, dc in MOVES[:STAY]], device=cells.device)
    at = torch.full((len(left), 1), row + 1, device=cells.device)
    if not bool((left.gather(1, at) == 1).all()):
        raise ProblemError("a path does not hold the top-left cell, where paths begin")
    moves = torch.full((len(left), length), STAY, device=cells.device)
    for i in range(length):
        arrived = at == goal
        if bool(arrived.all()):
            break
        left = left.scatter(1, at, 0)
        ways = left.gather(1, at + steps)
        if not bool((arrived | (ways.sum(1, keepdim=True) == 1)).all()):
            raise ProblemError("the cells are not those of a path: somewhere there is no way on, or more than one")
        way = ways.argmax(1, keepdim=True)
        moves[:, i : i + 1] = torch.where(arrived, STAY, way)
        at = torch.where(arrived, at, at + steps[way])
    return moves.reshape(*cells.shape[:-2], length)


def path_cells(moves: Tensor, height: int, width: int) -> Tensor:
    """The cells that moves lead through from the top-left one on; a move over the border ends at the border.

    Args:
        moves: int64 ``(*batch, length)``, numbered as in `path_moves`.
        height: of the grid.
        width: of the grid.

    Returns:
        uint8 ``(*batch, H, W)``.

    >>> path_cells(torch.tensor([4, 6, 8]), 2, 2)                                   # right, down, stay
    tensor([[1, 1],
            [0, 1]], dtype=torch.uint8)
    """
    if height < 1 or width < 1 or moves.ndim < 1 or moves.dtype != torch.int64:
        wanted = "int64 (*batch, length) and at least one cell"
        raise ProblemError(f"moves have {shown(moves)} on a grid of {height} by {width}, expected {wanted}")
    flat = moves.reshape(math.prod(moves.shape[:-1]), moves.shape[-1])
    if flat.numel() and (int(flat.min()) < 0 or int(flat.max()) > STAY):
        raise ProblemError(f"moves lie in {int(flat.min())} .. {int(flat.max())}, expected 0 .. {STAY}")
    cell = flat.new_zeros(len(flat))
    cells = torch.zeros(len(cell), height * width, dtype=torch.uint8, device=moves.device)
    cells[:, 0] = 1
    for move in flat.unbind(1):
        cell = moved(cell, move, height, width)
        cells.scatter_(1, cell.unsqueeze(1), 1)
    return cells.reshape(*moves.shape[:-1], height, width)


def moved(cell: Tensor, move: Tensor, height: int, width: int) -> Tensor:
    """Where a move leads from a cell (numbered row by row); at the border, as far as the grid reaches."""
    steps = torch.tensor(MOVES, device=cell.device)[move.clamp(min=0)]
    row = (cell // width + steps[..., 0]).clamp(0, height - 1)
    column = (cell % width + steps[..., 1]).clamp(0, width - 1)
    return row * width + column


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
    *batch, height, width = costs.shape
    grids = costs.detach().to(torch.float64).reshape(-1, height, width)
    if not len(grids):
        return Paths(grids.new_zeros(batch), torch.zeros(costs.shape, dtype=torch.uint8, device=costs.device))
    least, most = (float(bound) for bound in grids.aminmax())
    # Below this a cost added to the rest of the way may leave it as it is, and paths could go in circles.
    if not (math.isfinite(most) and least > most * height * width * torch.finfo(torch.float64).eps):
        wanted = "positive and finite ones within a factor of about 1e12; clamp them, as in costs.clamp_min(1e-3)"
        raise ProblemError(f"costs lie in {least:g} .. {most:g}, expected {wanted}")
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
    around = torch.tensor([dr * row + dc for dr, dc in MOVES[:STAY]], device=grids.device)
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
        wanted = "a grid of at least one cell and positive whole costs, which make ties exact"
        raise ProblemError(f"height is {height}, width is {width}, costs are {tuple(costs)}; expected {wanted}")
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
