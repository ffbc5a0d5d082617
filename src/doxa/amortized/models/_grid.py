"""Maps: moves on a grid, and a convolutional model that is read at the cell where a path has arrived."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from doxa.amortized.models._model import Carry, InferenceModel, from_given
from doxa.errors import ConfigError
from doxa.problem import Problem
from doxa.problem._paths import MOVES, moved


class GridCNN(InferenceModel):
    """A convolutional network over the map of beliefs, read at one cell per token.

    World variable i is the cell i of a grid, row by row. One pass over the map gives every cell a feature, and a small
    recurrent cell reads the feature at the place of each token:

        φ = CNN(P),    h_i = GRU(φ[place_i] + token_{i-1}, h_{i-1}),    q(t_i | …) = softmax(MLP(h_i, φ[place_i])).

    (The dissertation's "Warcraft" model runs a ResNet18 on the map and the current position for every move; reading
    one feature map makes a path as cheap as a single run.)

    Args:
        problem: what to infer.
        shape: height and width of the grid.
        reads: ``"moves"``: outputs are moves as in ``MOVES``, and the place is where they have led from cell 0;
            ``"cells"``: output i speaks of cell i.
        channels: the width of the network.
        layers: its residual blocks, of two convolutions each; every second one looks farther (dilation).
        explain: whether the costs of the cells are decoded too; the place is then the cell itself.

    >>> from doxa.problem import Belief, shortest_path
    >>> model = GridCNN(shortest_path(3, 4), (3, 4), reads="cells", channels=8)
    >>> model.log_prob(Belief.uniform((2,) * 12, batch=(5,)), torch.zeros(5, 24, dtype=torch.int64)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        problem: Problem,
        shape: tuple[int, int],
        *,
        reads: Literal["moves", "cells"] = "moves",
        channels: int = 32,
        layers: int = 4,
        explain: bool = True,
    ) -> None:
        super().__init__(problem, explain=explain)
        height, width = shape
        if height * width != len(problem.world):
            raise ConfigError(f"shape is {shape}, expected a grid of {len(problem.world)} cells: the world variables")
        fits = {"moves": set(problem.output) == {len(MOVES)}, "cells": len(problem.output) == height * width}
        if reads not in fits or not fits[reads]:
            wanted = f"'moves' with {len(MOVES)} values per output, or 'cells' with one output per cell"
            raise ConfigError(f"reads is {reads!r} for outputs {problem.output[:4]}..., expected {wanted}")
        self.shape, self.reads = shape, reads
        self.inwards = nn.Conv2d(max(problem.world) + 2, channels, 3, padding=1)
        self.from_given = from_given(self, channels)
        self.blocks = nn.ModuleList([_Residual(channels, 1 if i % 2 == 0 else 2) for i in range(layers)])
        self.tokens = nn.Embedding(self.width + 2, channels)  # the last two stand for no token, and for worlds to come
        self.cell = nn.GRU(channels, channels)
        self.head = nn.Sequential(nn.Linear(2 * channels, channels), nn.ReLU(), nn.Linear(channels, self.width))

    def _features(self, probs: Tensor) -> Tensor:
        """One feature per cell: ``(R, cells, channels)``."""
        height, width = self.shape
        cells = probs[:, : len(self.problem.world), : max(self.problem.world)]
        grid = torch.unflatten(cells.transpose(1, 2), -1, self.shape)
        sides = [torch.linspace(-1, 1, side, device=probs.device, dtype=probs.dtype) for side in self.shape]
        place = torch.stack(torch.meshgrid(*sides, indexing="ij")).expand(len(probs), 2, height, width)
        x: Tensor = self.inwards(torch.cat([grid, place], 1))
        if self.from_given is not None:
            x = x + self.from_given(probs[:, len(self.problem.world) :].flatten(1)).unsqueeze(-1).unsqueeze(-1)
        for block in self.blocks:
            x = block(x)
        return x.relu().flatten(2).transpose(1, 2)

    def _places(self, tokens: Tensor) -> Tensor:
        """The cell of each of the first L positions, ``(R, L)``; only the tokens before a position matter to it."""
        outputs, length = len(self.problem.output), tokens.shape[-1]
        fixed = torch.arange(len(self.problem.world), device=tokens.device).expand(len(tokens), -1)
        if self.reads == "cells":
            return torch.cat([fixed, fixed], -1)[:, :length]
        cell = torch.zeros_like(tokens[:, 0])
        places = [cell]
        for t in range(min(length, outputs) - 1):
            cell = moved(cell, tokens[:, t], *self.shape)
            places.append(cell)
        return torch.cat([torch.stack(places, -1), fixed[:, : max(length - outputs, 0)]], -1)

    def _inputs(self, before: Tensor, first: int) -> Tensor:
        """Embedded tokens before each position from ``first`` on; worlds are told apart from outputs."""
        chosen = torch.where(before < 0, self.width, before)
        position = torch.arange(first, first + before.shape[-1], device=before.device)
        worlds = (position >= len(self.problem.output)).to(self.tokens.weight.dtype).unsqueeze(-1)
        x: Tensor = self.tokens(chosen) + worlds * self.tokens.weight[-1]
        return x

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        features = self._features(probs)
        return (features,), (rows, torch.zeros_like(rows), features.new_zeros(len(probs), features.shape[-1]))

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (features,), (rows, place, hidden), t = carry.shared, carry.state, carry.position
        outputs = len(self.problem.output)
        if t >= outputs or self.reads == "cells":
            place = torch.full_like(place, t % outputs if self.reads == "cells" else t - outputs)
        elif token is not None:
            place = moved(place, token, *self.shape)
        before = torch.full_like(place, -1) if token is None else token
        here = features[rows, place]
        x = here + self._inputs(before.unsqueeze(-1), t)[:, 0]
        hidden = self.cell(x.unsqueeze(0), hidden.unsqueeze(0).contiguous())[1][0]
        logits: Tensor = self.head(torch.cat([hidden, here], -1))
        return logits, Carry(t + 1, carry.shared, (rows, place, hidden))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        features = self._features(probs)
        places = self._places(tokens)
        here = features.gather(1, places.unsqueeze(-1).expand(-1, -1, features.shape[-1]))
        before = torch.cat([torch.full_like(tokens[:, :1], -1), tokens[:, :-1]], -1)
        x = here + self._inputs(before, 0)
        hidden = self.cell(x.transpose(0, 1))[0].transpose(0, 1)
        logits: Tensor = self.head(torch.cat([hidden, here], -1))
        return logits


class _Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.two(self.one(x.relu()).relu())
        return result
