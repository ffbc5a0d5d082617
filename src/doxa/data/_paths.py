"""Path planning: pictures of maps, whose tiles say what they cost, and the cheapest paths across them.

Maps are read from the files of the Warcraft maps (Vlastelica et al. 2020), three NumPy arrays for each split, or made
from a seed: terrain whose kinds differ in texture more than in colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doxa.errors import ConfigError, DataError
from doxa.problem import Problem, cheapest_paths, shortest_path

TILE = 8
"""Pixels on the side of a tile."""

TILE_COSTS = (8, 12, 53, 77, 92)
"""What the five kinds of tiles cost, in tenths: as whole numbers, ties between paths are exact."""

Split = Literal["train", "val", "test"]
SPLITS = ("train", "val", "test")
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class PathMaps:
    """Maps of H × W tiles, laid out as the Warcraft maps are.

    Args:
        images: uint8 ``(n, 8H, 8W, 3)``, red, green and blue.
        kinds: uint8 ``(n, H, W)``: which of the five costs each tile has. Only for measuring: learning sees the paths.
        paths: uint8 ``(n, H, W)``: 1 for the tiles on the cheapest path from the top left to the bottom right.

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
        tiles = (n, height, width)
        wanted = {"images": (n, TILE * height, TILE * width, 3), "kinds": tiles, "paths": tiles}
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
    """The tiles of maps, row by row, as a network takes them: colours in [-1, 1], channels first.

        x ↦ x / 127.5 - 1,    uint8 (n, 8H, 8W, 3) ↦ float32 (n, H · W, 3, 8, 8)

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
    """Whether paths ``(*batch, H, W)`` are those given, cell by cell: harder than `optimal_paths`, as ties count."""
    if cells.shape != paths.shape or cells.ndim < 2:
        raise DataError(f"cells have shape {tuple(cells.shape)}, paths {tuple(paths.shape)}; expected (*batch, H, W)")
    return ((cells != 0) == (paths != 0)).flatten(-2).all(-1)


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}, expected one of {', '.join(map(repr, SPLITS))}")


# -- the Warcraft maps --------------------------------------------------------------------------------------------

FILES = ("maps", "vertex_weights", "shortest_paths")


def read_warcraft(folder: str | Path, split: Split, *, size: int | None = None) -> PathMaps:
    """Read the maps of a split from ``train_maps.npy``, ``train_vertex_weights.npy`` and ``train_shortest_paths.npy``.

    The weights 0.8, 1.2, 5.3, 7.7 and 9.2 are taken back to the kinds of tiles that they stand for.

    Args:
        folder: holds the files, or a folder such as ``12x12`` that holds them.
        split: ``"train"``, ``"val"`` or ``"test"``.
        size: tiles on a side; needed where the folder has sub-folders for several, and checked.

    Raises:
        DataError: with the file, what is wrong with it, and what was expected.

    >>> read_warcraft("nowhere", "test")
    Traceback (most recent call last):
    doxa.errors.DataError: nowhere/test_maps.npy does not exist; expected the files of the Warcraft maps, ...
    """
    _check_split(split)
    place = Path(folder)
    if size is not None and (place / f"{size}x{size}").is_dir():
        place = place / f"{size}x{size}"
    images, weights, paths = (_array(place / f"{split}_{name}.npy") for name in FILES)
    prices = np.array(TILE_COSTS) / 10
    flat = weights.astype(np.float64).reshape(-1)
    kinds = np.searchsorted((prices[1:] + prices[:-1]) / 2, flat).astype(np.uint8)
    wrong = ~(np.abs(flat - prices[kinds]) < 0.02)  # the files may hold half precision
    if wrong.any():
        name = place / f"{split}_vertex_weights.npy"
        raise DataError(f"{name} has the weight {flat[wrong][0]:g}, expected one of {', '.join(map(str, prices))}")
    if images.dtype != np.uint8:
        raise DataError(f"{place / f'{split}_maps.npy'} is {images.dtype}, expected uint8 with colours 0 .. 255")
    if not ((paths == 0) | (paths == 1)).all():
        raise DataError(f"{place / f'{split}_shortest_paths.npy'} has other values than 0 and 1")
    try:
        maps = PathMaps(
            torch.from_numpy(images),
            torch.from_numpy(kinds.reshape(weights.shape)),
            torch.from_numpy(paths.astype(np.uint8)),
        )
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    if size is not None and tuple(maps.kinds.shape[1:]) != (size, size):
        raise DataError(f"{place} holds {maps}, expected maps of {size}×{size} tiles")
    return maps


def _array(file: Path) -> NDArray[np.generic]:
    try:
        found: NDArray[np.generic] = np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(
            f"{file} does not exist; expected the files of the Warcraft maps, such as train_maps.npy, "
            "train_vertex_weights.npy and train_shortest_paths.npy, or sub-folders such as 12x12 and size=12"
        ) from error
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{file} cannot be read as a NumPy array: {error}") from error
    return found


# -- generated terrain --------------------------------------------------------------------------------------------

# One row for each cost: sand, grass, forest, water, rock.
COLOUR = np.array([[140, 122, 92], [112, 124, 80], [92, 112, 78], [88, 108, 126], [118, 114, 112]], np.float32)
CONTRAST = np.array([0, 24, 24, 24, 24], np.float32)  # of the pattern, in grey values; sand is plain
WAVELENGTH = np.array([1, 2.9, 5.6, 3.8, 3.0], np.float32)  # in pixels
ANGLE = np.array([0, 0, 45, 90, 45], np.float32) * np.float32(np.pi / 180)  # of the waves; 0: upright stripes
CROSSED = np.array([0, 0, 1, 0, 0], np.float32)  # waves both ways: round crowns of trees instead of stripes
EITHER_WAY = np.array([0, 0, 0, 0, 1], np.float32)  # stripes of rock fall to the left or to the right
TINT = np.array([1.05, 1.0, 0.85], np.float32)  # of light and shade

TOGETHER = 2500  # tiles drawn at once: few enough to stay in the cache of the processor


def terrain_maps(split: Split, n: int, *, size: int = 12, seed: int = 0) -> PathMaps:
    r"""Draw maps in which regions of sand, grass, forest, water and rock lie beside each other, with their paths.

    The kinds of tiles are where the largest of five smoothed random fields is. A tile of kind k has at pixel (x, y) the
    colour

        light · ( colour_k + cast + shade + contrast · tint · wave_k(x, y) + grain ),

    with a light and a cast of colour for each map, a shade, contrast, wavelength, angle and phase for each tile, and
    grain for each pixel, all random. So colours of one kind differ more than those of different kinds: mean pixels
    tell little, the pattern nearly everything.

    Map i depends on the seed, the split, the size and i alone: a larger set begins with the maps of a smaller one.

    Args:
        split: ``"train"``, ``"val"`` or ``"test"``; they share nothing.
        n: how many maps. Their pictures take 192 bytes a tile: 27 kB a map of 12×12 tiles, 173 kB one of 30×30.
        size: tiles on a side.
        seed: 0 or more.

    >>> maps = terrain_maps("val", 3, size=12, seed=1)
    >>> maps
    PathMaps(3 maps of 12×12 tiles)
    >>> bool((terrain_maps("val", 2, size=12, seed=1).images == maps.images[:2]).all())
    True
    """
    _check_split(split)
    if n < 0 or size < 1 or seed < 0:
        raise ConfigError(f"n is {n}, size {size} and seed {seed}, expected n >= 0, size >= 1 and seed >= 0")
    images = np.empty((n, size, TILE, size, TILE, 3), np.uint8)
    kinds = np.empty((n, size, size), np.uint8)
    together = max(1, TOGETHER // size**2)
    for part, first in enumerate(range(0, n, together)):
        random = np.random.default_rng([seed, SPLITS.index(split), size, part])
        some = _kinds(random, together, size)
        end = min(first + together, n)
        kinds[first:end] = some[: end - first]
        _paint(random, some, images[first:end])
    grid = torch.from_numpy(kinds)
    paths = cheapest_paths(torch.tensor(TILE_COSTS)[grid.long()]).cells if n else torch.zeros_like(grid)
    return PathMaps(torch.from_numpy(images.reshape(n, TILE * size, TILE * size, 3)), grid, paths)


def _kinds(random: np.random.Generator, n: int, size: int) -> NDArray[np.int64]:
    """The kind of each tile, ``(n, size, size)``."""
    fields = _normal(random, n, len(TILE_COSTS), size, size)
    wide = np.pad(fields, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    wide = wide[..., :-2, :] + wide[..., 1:-1, :] + wide[..., 2:, :]
    smooth = (wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]) / 3
    liking = np.float32(0.6) * _normal(random, n, len(TILE_COSTS), 1, 1)  # some maps have more of one kind
    kinds: NDArray[np.int64] = (smooth + liking).argmax(1)
    return kinds


def _paint(random: np.random.Generator, kinds: NDArray[np.int64], images: NDArray[np.uint8]) -> None:
    """Fill images ``(m, size, 8, size, 8, 3)`` with the first m of some maps."""
    n, size, _ = kinds.shape
    kind = kinds.reshape(-1)
    tiles = len(kind)
    turned = EITHER_WAY[kind] * (np.float32(np.pi / 2) * random.integers(2, size=tiles, dtype=np.uint8))
    angle = ANGLE[kind] + turned + np.float32(0.12) * _normal(random, tiles)
    frequency = np.float32(2 * np.pi) / (WAVELENGTH[kind] * np.exp(np.float32(0.06) * _normal(random, tiles)))
    pixel = np.arange(TILE, dtype=np.float32)
    phase = np.float32(2 * np.pi) * random.random((2, tiles, 1), dtype=np.float32)
    across = (frequency * np.cos(angle))[:, None] * pixel + phase[0]
    down = (frequency * np.sin(angle))[:, None] * pixel + phase[1]
    contrast = (CONTRAST[kind] * np.exp(np.float32(0.2) * _normal(random, tiles)))[:, None]
    # cos(a + b) = cos a cos b - sin a sin b is a wave; without its second part, two waves that cross.
    value = np.cos(down)[:, :, None] * (contrast * np.cos(across))[:, None, :]
    value -= np.sin(down)[:, :, None] * (contrast * (1 - CROSSED[kind])[:, None] * np.sin(across))[:, None, :]
    grain = random.integers(256, size=value.shape, dtype=np.uint8)
    value += np.float32(0.108) * (grain - np.float32(127.5))  # a deviation of 8
    light = np.exp(np.float32(0.18) * _normal(random, n, 1, 1))
    cast = np.float32(10) * _normal(random, n, 1, 3)
    shade = np.float32(8) * _normal(random, n, size**2, 1) + np.float32(5) * _normal(random, n, size**2, 3)
    base = (light * (COLOUR[kind].reshape(n, -1, 3) + cast + shade)).reshape(n, size, 1, size, 1, 3)
    slope = (light * TINT).reshape(n, 1, 1, 1, 1, 3)
    value = value.reshape(n, size, size, TILE, TILE).transpose(0, 1, 3, 2, 4)[: len(images)]
    for channel in range(3):
        colour = value * slope[: len(images), ..., channel]
        colour += base[: len(images), ..., channel]
        images[..., channel] = np.clip(colour, 0, 255, out=colour)


def _normal(random: np.random.Generator, *shape: int) -> Floats:
    return random.standard_normal(shape, dtype=np.float32)
