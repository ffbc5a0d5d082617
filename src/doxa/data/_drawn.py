"""Drawn pictures: coloured shapes, and streets with a traffic light. Generated from a seed, with noise.

Each picture is ``(3, size, size)`` in [0, 1]. What is drawn is told beside it, for measuring.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from doxa.errors import ConfigError

SHAPES = ("square", "circle", "triangle")
COLOURS = ("red", "yellow", "blue")
_PAINT = torch.tensor([[0.9, 0.1, 0.1], [0.9, 0.8, 0.1], [0.1, 0.2, 0.9]])
NOISE = 0.06


def draw_objects(shapes: Tensor, colours: Tensor, *, size: int = 16, seed: int = 0) -> Tensor:
    """One coloured shape in each picture, of any size and place that fits: ``(n, 3, size, size)``.

    Args:
        shapes: numbers into ``square, circle, triangle``, int64 ``(n,)``.
        colours: numbers into ``red, yellow, blue``, int64 ``(n,)``.
        size: of a picture, in pixels.
        seed: of places, sizes and noise.

    >>> pictures = draw_objects(torch.tensor([0, 1]), torch.tensor([2, 0]))
    >>> pictures.shape, bool((pictures[0, 2] > pictures[0, 0] - 0.5).all())
    (torch.Size([2, 3, 16, 16]), True)
    """
    _check("shapes", shapes, SHAPES)
    _check("colours", colours, COLOURS)
    random = torch.Generator().manual_seed(seed)
    count = len(shapes)
    radius = _between(0.36 * size, 0.44 * size, count, random)
    place = radius[:, None] + torch.rand(count, 2, generator=random) * (size - 1 - 2 * radius)[:, None]
    along = torch.arange(size).float()
    down = (along[None, :, None] - place[:, 0, None, None]) / radius[:, None, None]
    right = (along[None, None, :] - place[:, 1, None, None]) / radius[:, None, None]
    inside = torch.stack(
        [
            torch.maximum(down.abs(), right.abs().expand_as(down + right)) <= 0.95,
            down**2 + right**2 <= 1,
            (down <= 0.8) & (right.abs() <= (down + 1) * 0.55),
        ]
    )[shapes, torch.arange(count)]
    paint = (_PAINT[colours] + 0.08 * torch.randn(count, 3, generator=random))[:, :, None, None]
    pictures = torch.where(inside[:, None], paint, torch.tensor(0.5))
    return (pictures + NOISE * torch.randn(pictures.shape, generator=random)).clamp(0, 1)


def draw_streets(red: Tensor, green: Tensor, obstacle: Tensor, *, size: int = 24, seed: int = 0) -> Tensor:
    """A street with a traffic light, its lamps lit or not, and perhaps something on the road: ``(n, 3, size, size)``.

    >>> lit, dark = torch.ones(4), torch.zeros(4)
    >>> draw_streets(lit, dark, dark)[:, 0].amax() > draw_streets(dark, lit, dark)[:, 0].amax() - 0.5
    tensor(True)
    """
    random = torch.Generator().manual_seed(seed)
    count = len(red)
    pictures = torch.full((count, 3, size, size), 0.55)
    road = size * 5 // 8
    pictures[:, :, road:] = 0.35
    pictures[:, :, road : road + 1] = 0.8
    across = torch.randint(1, size - 6, (count,), generator=random).tolist()
    lane = torch.randint(1, size - 7, (count,), generator=random).tolist()
    height = torch.randint(3, 6, (count,), generator=random).tolist()
    width = torch.randint(4, 7, (count,), generator=random).tolist()
    bright = 0.05 + 0.85 * (torch.rand(count, generator=random) < 0.5)
    dark = torch.tensor([0.15, 0.15, 0.15])[:, None, None]
    for i in range(count):
        left = across[i]
        pictures[i, :, 1 : road - 3, left : left + 5] = dark
        for at, lit, colour in ((2, red[i], (0.95, 0.1, 0.1)), (7, green[i], (0.1, 0.9, 0.2))):
            lamp = torch.tensor(colour if lit else (0.3, 0.3, 0.3))[:, None, None]
            pictures[i, :, at : at + 3, left + 1 : left + 4] = lamp
        if obstacle[i]:
            pictures[i, :, size - 2 - height[i] : size - 2, lane[i] : lane[i] + width[i]] = bright[i]
    return (pictures + NOISE * torch.randn(pictures.shape, generator=random)).clamp(0, 1)


def _between(low: float, high: float, count: int, random: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=random)


def _check(name: str, numbers: Tensor, words: Sequence[str]) -> None:
    if numbers.dtype != torch.int64 or numbers.ndim != 1 or not bool(((numbers >= 0) & (numbers < len(words))).all()):
        raise ConfigError(f"{name} is {numbers.dtype} {tuple(numbers.shape)}, expected numbers into {', '.join(words)}")
