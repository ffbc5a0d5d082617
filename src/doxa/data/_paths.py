"""Path planning: pictures of maps, whose tiles say what they cost, and the cheapest paths across them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.errors import DataError
from doxa.problem import Problem, cheapest_paths, shortest_path

TILE = 8
"""Pixels on the side of a tile."""

TILE_COSTS = (8, 12, 53, 77, 92)
"""What the five kinds of tiles cost, in tenths: as whole numbers, ties between paths are exact."""


@dataclass(frozen=True, eq=False, repr=False)
class PathMaps:
    """Maps of H × W tiles, laid out as the Warcraft maps are.

    Args:
        images: uint8 ``(n, 8H, 8W, 3)``, red, green and blue.
        kinds: uint8 ``(n, H, W)``: which of the five costs each tile has. Only for measuring: learning sees the paths.
        paths: uint8 ``(n, H, W)``: 1 for the tiles on the cheapest path from the top left to the bottom right.

    >>> from doxa.data import terrain_maps
    >>> maps = terrain_maps("train", 20, size=12)
    >>> maps
    PathMaps(20 maps of 12×12 tiles)
    >>> maps.images.shape, maps.costs.shape
    (torch.Size([20, 96, 96, 3]), torch.Size([20, 12, 12]))
    >>> maps.problem().output == (2,) * 144
    True
    """

    images: Tensor
    kinds: Tensor
    paths: Tensor

    def __post_init__(self) -> None:
        n, height, width = self.kinds.shape if self.kinds.ndim == 3 else (0, 0, 0)
        wanted = {
            "images": (n, TILE * height, TILE * width, 3),
            "kinds": (n, height, width),
            "paths": (n, height, width),
        }
        for name, shape in wanted.items():
            tensor = getattr(self, name)
            if tensor.dtype != torch.uint8 or tuple(tensor.shape) != shape or 0 in shape[1:]:
                raise DataError(
                    f"{name} are {tensor.dtype} {tuple(tensor.shape)}, expected torch.uint8 {shape}: maps of H × W "
                    f"tiles have images (n, {TILE}H, {TILE}W, 3), kinds (n, H, W) and paths (n, H, W)"
                )
        if n and int(self.kinds.max()) >= len(TILE_COSTS):
            raise DataError(f"kinds go up to {int(self.kinds.max())}, expected 0 .. {len(TILE_COSTS) - 1}")
        if n and int(self.paths.max()) > 1:
            raise DataError(f"paths go up to {int(self.paths.max())}, expected 0 and 1")

    def __len__(self) -> int:
        return len(self.kinds)

    def __repr__(self) -> str:
        return f"PathMaps({len(self)} maps of {self.kinds.shape[1]}×{self.kinds.shape[2]} tiles)"

    @property
    def costs(self) -> Tensor:
        """What each tile costs, in tenths: int64 ``(n, H, W)``."""
        return torch.tensor(TILE_COSTS, device=self.kinds.device)[self.kinds.long()]

    def problem(self, *, moves: int | None = None) -> Problem:
        """The `shortest_path` problem of these maps: from the kinds of tiles to the path, or to its ``moves``."""
        height, width = self.kinds.shape[1:]
        return shortest_path(height, width, costs=TILE_COSTS, moves=moves)


def map_tiles(images: Tensor) -> Tensor:
    """The tiles of maps as a network takes them: colours in [-1, 1], channels first.

        x ↦ x / 127.5 - 1

    Args:
        images: uint8 ``(n, 8H, 8W, 3)``.

    Returns:
        float32 ``(n, H · W, 3, 8, 8)``, tiles row by row.

    >>> map_tiles(torch.zeros(2, 24, 16, 3, dtype=torch.uint8)).shape
    torch.Size([2, 6, 3, 8, 8])
    """
    fits = images.ndim == 4 and images.shape[3] == 3 and images.shape[1] % TILE == images.shape[2] % TILE == 0
    if images.dtype != torch.uint8 or not fits:
        raise DataError(f"images are {images.dtype} {tuple(images.shape)}, expected torch.uint8 (n, 8H, 8W, 3)")
    n, height, width, _ = images.shape
    tiles = images.reshape(n, height // TILE, TILE, width // TILE, TILE, 3).permute(0, 1, 3, 5, 2, 4)
    return tiles.to(torch.float32, memory_format=torch.contiguous_format).div_(127.5).sub_(1).flatten(1, 2)


def optimal_paths(cells: Tensor, costs: Tensor) -> Tensor:
    """Whether paths are as cheap as can be: the accuracy of path planning, since ties leave several that are.

    The cells must hold a way from corner to corner, and cost no more than the cheapest one.

    Args:
        cells: ``(*batch, H, W)``, 1 for cells on the path.
        costs: true costs ``(*batch, H, W)``; whole ones, such as `PathMaps.costs`, make the comparison exact.

    Returns:
        bool ``(*batch)``.

    >>> costs = torch.tensor([[1, 1, 9], [1, 1, 1]])
    >>> cells = torch.tensor([[[1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 1]], [[1, 1, 0], [0, 1, 1]]])
    >>> optimal_paths(cells, costs.expand(3, 2, 3))            # two ways that are, and one with a cell too many
    tensor([ True,  True, False])
    """
    if cells.shape != costs.shape:
        raise DataError(f"cells have shape {tuple(cells.shape)}, costs {tuple(costs.shape)}; expected the same")
    price = costs.to(torch.float64)
    best = cheapest_paths(price).cost
    # A price that no path can be worth keeps the way within the cells.
    beyond = price.flatten(-2).sum(-1)[..., None, None] + 1
    within = cheapest_paths(torch.where(cells != 0, price, beyond)).cost
    paid = torch.where(cells != 0, price, 0.0).flatten(-2).sum(-1)
    slack = best * (1 + 1e-9)
    return (within <= slack) & (paid <= slack)


def same_paths(cells: Tensor, paths: Tensor) -> Tensor:
    """Whether paths are the given ones, cell by cell: harder than `optimal_paths`, since ties count against it.

    Args:
        cells: ``(*batch, H, W)``, 1 for cells on the path.
        paths: the same for the true paths, such as `PathMaps.paths`.

    Returns:
        bool ``(*batch)``.

    >>> same_paths(torch.eye(2), torch.tensor([[1, 0], [0, 1]]))
    tensor(True)
    """
    if cells.shape != paths.shape or cells.ndim < 2:
        raise DataError(f"cells have shape {tuple(cells.shape)}, paths {tuple(paths.shape)}; expected (*batch, H, W)")
    return ((cells != 0) == (paths != 0)).flatten(-2).all(-1)
