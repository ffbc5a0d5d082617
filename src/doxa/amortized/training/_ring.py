"""The last rows that were seen, cut from the graphs that made them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError


class Ring(nn.Module):
    """The last ``capacity`` rows of some shape, detached: old ones make room for new ones, and nothing grows.

    Everything is in buffers, so ``state_dict`` restores it to the bit.

    >>> ring = Ring(torch.zeros(1), capacity=3)
    >>> for x in (0.1, 0.2, 0.3, 0.4):
    ...     ring.add(torch.tensor([[x]]))
    >>> len(ring), ring.stored()[:, 0]
    (3, tensor([0.4000, 0.2000, 0.3000]))
    """

    rows: Tensor
    added: Tensor

    def __init__(self, row: Tensor, capacity: int = 2500) -> None:
        super().__init__()
        if capacity < 1:
            raise ConfigError(f"capacity is {capacity}, expected at least 1")
        self.capacity = capacity
        self.register_buffer("rows", row.repeat(capacity, *(1,) * row.ndim))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return min(int(self.added), self.capacity)

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """Keep rows ``(*batch, *row)``."""
        rows = rows.detach().reshape(-1, *self.rows.shape[1:])
        skipped = max(0, len(rows) - self.capacity)
        start = int(self.added) + skipped
        rows = rows[skipped:]
        places = (start + torch.arange(len(rows), device=self.rows.device)) % self.capacity
        self.rows[places] = rows.to(self.rows)
        self.added.fill_(start + len(rows))

    def stored(self) -> Tensor:
        """All rows that are kept, ``(n, *row)``, in no order."""
        return self.rows[: len(self)]
