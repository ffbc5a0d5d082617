"""Maps made from a seed: terrain whose kinds differ in texture more than in colour."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from doxa.data._paths import TILE, TILE_COSTS, PathMaps
from doxa.errors import ConfigError
from doxa.problem import cheapest_paths

Split = Literal["train", "val", "test"]
SPLITS = ("train", "val", "test")
Floats = NDArray[np.float32]

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
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}, expected one of {', '.join(map(repr, SPLITS))}")
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
