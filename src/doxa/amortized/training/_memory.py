"""The last beliefs that were seen, cut from the graphs that made them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.problem import Belief


class Memory(nn.Module):
    """A ring of the last ``capacity`` beliefs, detached: old ones make room for new ones, and nothing grows.

    Everything is in buffers, so ``state_dict`` restores it to the bit.

    >>> memory = Memory((2,), capacity=3)
    >>> for p in (0.1, 0.2, 0.3, 0.4):
    ...     memory.add(Belief.from_bernoulli(probs=torch.tensor([[p]])))
    >>> len(memory), memory.beliefs().probs[:, 0, 1]
    (3, tensor([0.4000, 0.2000, 0.3000]))
    """

    log_probs: Tensor
    added: Tensor

    def __init__(self, sizes: Sequence[int], capacity: int = 2500) -> None:
        super().__init__()
        if capacity < 1:
            raise ConfigError(f"capacity is {capacity}, expected at least 1")
        self.sizes = tuple(sizes)
        self.capacity = capacity
        uniform = Belief.uniform(self.sizes).log_probs
        self.register_buffer("log_probs", uniform.repeat(capacity, 1, 1))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return min(int(self.added), self.capacity)

    @torch.no_grad()
    def add(self, belief: Belief) -> None:
        """Remember the rows of a belief."""
        if belief.sizes != self.sizes:
            raise ConfigError(f"the belief is over domains {belief.sizes}, the memory over {self.sizes}")
        rows = belief.log_probs.detach()[..., : max(self.sizes)].reshape(-1, *self.log_probs.shape[1:])
        skipped = max(0, len(rows) - self.capacity)
        rows = rows[skipped:]
        start = int(self.added) + skipped
        places = (start + torch.arange(len(rows), device=self.log_probs.device)) % self.capacity
        self.log_probs[places] = rows.to(self.log_probs)
        self.added.fill_(start + len(rows))

    def beliefs(self) -> Belief:
        """Everything that is remembered, in no order."""
        return Belief(self.log_probs[: len(self)], self.sizes, validate=False)
