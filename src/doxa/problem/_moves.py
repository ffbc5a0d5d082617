"""Paths on a grid as sequences of moves."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.errors import ProblemError

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
    if length is None:
        length = height * width - 1
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
        raise ProblemError(
            f"moves are {moves.dtype} {tuple(moves.shape)} on a grid of {height} by {width}, expected int64 "
            "(*batch, length) and at least one cell"
        )
    flat = moves.reshape(math.prod(moves.shape[:-1]), moves.shape[-1])
    if flat.numel() and (int(flat.min()) < 0 or int(flat.max()) > STAY):
        raise ProblemError(f"moves lie in {int(flat.min())} .. {int(flat.max())}, expected 0 .. {STAY}")
    row = column = flat.new_zeros(len(flat))
    cells = torch.zeros(len(row), height * width, dtype=torch.uint8, device=moves.device)
    cells[:, 0] = 1
    for step in torch.tensor(MOVES, device=moves.device)[flat].unbind(1):
        row = (row + step[:, 0]).clamp(0, height - 1)
        column = (column + step[:, 1]).clamp(0, width - 1)
        cells.scatter_(1, (row * width + column).unsqueeze(1), 1)
    return cells.reshape(*moves.shape[:-1], height, width)
