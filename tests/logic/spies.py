"""Networks and modes that remember what was done to them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Spy(nn.Module):
    """A linear layer that remembers the shapes it was called on."""

    def __init__(self, inputs: int, outputs: int, seed: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, generator=generator(seed)))
        self.shapes: list[tuple[tuple[int, ...], ...]] = []

    def forward(self, *xs: Tensor) -> Tensor:
        self.shapes.append(tuple([tuple(x.shape) for x in xs]))
        return torch.cat([x.flatten(1) for x in xs], -1) @ self.weight


class Pairwise(Spy):
    """A relation with all pairs at once."""

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        self.shapes.append(("pairwise", tuple(x.shape), tuple(y.shape)))  # type: ignore[arg-type]
        x, y = x.flatten(1), y.flatten(1)
        half = x.shape[1]
        return (x @ self.weight[:half])[:, None] + (y @ self.weight[half:])[None]


class Largest(TorchDispatchMode):
    """The most elements that any newly made tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t.untyped_storage()._cdata not in given:
                self.elements = max(self.elements, t.untyped_storage().nbytes() // t.itemsize)
        return out


class Nonzeros(TorchDispatchMode):
    """How often a list of places is made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.calls += func is torch.ops.aten.nonzero.default
        return func(*args, **(kwargs or {}))
