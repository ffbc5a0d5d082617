"""Columns that stay on disk: rows are read when a batch asks for them."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doxa.errors import DataError

_WRITE = "write one with numpy.save, as x.npy"


class Mapped:
    """A column in a ``.npy`` file, of which only the rows that are asked for are read.

    The file is mapped into memory for each read and let go after it, so that an epoch over a file of any size needs the
    memory of one batch. Write one with ``numpy.save``, or row by row with ``numpy.lib.format.open_memmap``.

    Args:
        path: the file, of numbers or bools; its first axis are the rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.arange(6).reshape(3, 2))
    ...     column = Mapped(Path(folder) / "x.npy")
    ...     len(column), column[torch.tensor([2, 0])], column[1:2]
    (3, tensor([[4, 5],
            [0, 1]]), tensor([[2, 3]]))
    """

    def __init__(self, path: str | Path) -> None:
        came: object = path
        if not isinstance(came, str | Path):
            raise DataError(f"Mapped takes the path of a .npy file, got a {type(came).__name__}; {_WRITE}")
        self.path = Path(path)
        found = self._map()
        if found.ndim == 0:
            raise DataError(f"{self.path} has no rows, expected an array of one axis or more; {_WRITE}")
        self.shape: tuple[int, ...] = found.shape
        try:
            torch.from_numpy(np.empty(0, found.dtype.newbyteorder("=")))
        except TypeError:
            raise DataError(f"{self.path} holds {found.dtype}, expected numbers or bools; {_WRITE}") from None

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, rows: int | slice | Sequence[int] | Tensor) -> Tensor:
        """Some rows, copied, in the byte order of the machine."""
        index: Any = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        found = self._map()
        try:
            if index is None or isinstance(index, bool | tuple):  # these speak of axes, not of rows
                raise TypeError
            return torch.from_numpy(np.array(found[index], found.dtype.newbyteorder("=")))
        except (IndexError, TypeError, ValueError):
            came = f"{reprlib.repr(rows)} chooses no rows of {self.path}, which has {len(self)}"
            wanted = f"whole numbers from {-len(self)} to {len(self) - 1}, a slice, or a bool for each row"
            raise DataError(f"{came}; expected {wanted}") from None

    def _map(self) -> np.memmap[Any, Any]:
        """The file, mapped until it is let go."""
        try:
            return np.lib.format.open_memmap(self.path, mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path} is no .npy file that can be mapped ({error}); {_WRITE}") from error
