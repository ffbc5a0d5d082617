"""Digits that are made in no time, and runs that are killed: what the tests of several experiments need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from doxa.data import Batches, write_idx


def drawn_digits(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images in which digit d is a bright square in place d, with noise: easy to read."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    images = torch.randint(0, 60, (count, 28, 28), generator=generator, dtype=torch.uint8)
    for digit in range(10):
        row, column = divmod(digit, 4)
        images[labels == digit, 8 * row : 8 * row + 7, 7 * column : 7 * column + 7] = 250
    return images, labels


def write_digits(folder: Path) -> Path:
    """Put 3,000 of them to train on and 400 to test on into a folder, as MNIST's files."""
    for name, (images, labels) in (("train", drawn_digits(3000, 0)), ("t10k", drawn_digits(400, 1))):
        write_idx(folder / f"{name}-images-idx3-ubyte", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels.to(torch.uint8))
    return folder


@contextmanager
def killed_at(batch: int) -> Iterator[None]:
    """Within it, a run is killed when it asks for its ``batch``-th batch; that it is, is asserted."""
    calls, following = 0, Batches.next

    def stopped(self: Batches) -> object:  # type: ignore[type-arg]
        nonlocal calls
        calls += 1
        if calls == batch:
            raise RuntimeError("killed")
        return following(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "next", stopped)
        with pytest.raises(RuntimeError, match="killed"):
            yield
