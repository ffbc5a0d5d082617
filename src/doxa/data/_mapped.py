"""Columns that stay on disk: rows are read when a batch asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from doxa.errors import DataError


class Mapped:
    """A column in a ``.npy`` file, of which only the rows that are asked for are read.

    The file is mapped into memory for each read and let go after it, so that an epoch over a file of any size needs the
    memory of one batch. Write one with ``numpy.save``, or row by row with ``numpy.lib.format.open_memmap``.

    Args:
        path: the file; its first axis are the rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.arange(6).reshape(3, 2))
    ...     column = Mapped(Path(folder) / "x.npy")
    ...     len(column), column[torch.tensor([2, 0])], column[1:2]
    (3, tensor([[4, 5],
            [0, 1]]), tensor([[2, 3]]))
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            found = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.path} is no .npy file that can be mapped ({error}); write it with numpy.save"
            ) from error
        if not isinstance(found, np.memmap) or found.ndim == 0:
            raise DataError(f"{self.path} has no rows, expected an array of one axis or more, written with numpy.save")
        self.shape: tuple[int, ...] = found.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Some rows, copied."""
        found = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(np.array(found[rows.cpu().numpy() if isinstance(rows, Tensor) else rows]))
