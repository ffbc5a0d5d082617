"""Maps: convolutional models that are read, or look, at the cell where a path has arrived."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from doxa.amortized.models._model import Carry, InferenceModel, from_given, one_hot
from doxa.amortized.models._reader import FeatureReader
from doxa.errors import ConfigError
from doxa.problem import Problem
from doxa.problem._paths import MOVES, STAY, moved


class GridCNN(FeatureReader):
    """A convolutional network over the map of beliefs, read at one cell per token.

    World variable i is the cell i of a grid, row by row. One pass over the map gives every cell a feature, and a small
    recurrent cell reads the feature at the place of each token:

        φ = CNN(P),    h_i = GRU(φ[place_i] + token_{i-1}, h_{i-1}),    q(t_i | …) = softmax(MLP(h_i, φ[place_i])).

    (The dissertation's "Warcraft" model, ``MoveResNet``, runs a network on the map and the current position for every
    move; reading one feature map makes a path as cheap as a single run.)

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
        self.make_reader(channels)

    def features(self, probs: Tensor) -> Tensor:
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

    def place(self, place: Tensor, token: Tensor | None, t: int) -> Tensor:
        outputs = len(self.problem.output)
        if t >= outputs or self.reads == "cells":
            return torch.full_like(place, t % outputs if self.reads == "cells" else t - outputs)
        return place if token is None else moved(place, token, *self.shape)


class MoveResNet(InferenceModel):
    """The dissertation's model of paths: a residual network looks at the map and at the place reached, move by move.

        q(y_i | y_{<i}, P) = softmax(ResNet([P, here_i])),    here_i = 1 in the cell that the moves have led to, else 0

    ("Warcraft Visual Path Planning".) World variable i is the cell i of a grid, row by row; outputs are moves as in
    ``MOVES``. With the standard width it is ResNet18, but for its normalisation, which is by groups of channels: so a
    row does not depend on its batch. ``GridCNN`` reads one run of a network for all moves instead.

    Args:
        problem: what to infer, such as ``shortest_path(12, 12, costs, moves=143)``.
        shape: height and width of the grid.
        channels: those of the first stage; each of the three others has twice as many as the one before it.

    >>> from doxa.problem import Belief, shortest_path
    >>> model = MoveResNet(shortest_path(3, 4, moves=5), (3, 4), channels=4)
    >>> model.log_prob(Belief.uniform((2,) * 12, batch=(5,)), torch.full((5, 5), 8)).shape
    torch.Size([5])
    """

    def __init__(self, problem: Problem, shape: tuple[int, int], *, channels: int = 64) -> None:
        super().__init__(problem, explain=False)
        if math.prod(shape) != len(problem.world) or set(problem.output) != {len(MOVES)} or problem.given:
            wanted = f"a grid of {len(problem.world)} cells, moves of {len(MOVES)} values, and nothing given"
            raise ConfigError(f"shape is {shape} for outputs {problem.output[:4]}..., expected {wanted}")
        if channels < 4 or channels % 4:
            raise ConfigError(f"channels is {channels}, expected a multiple of 4")
        self.shape = shape
        widths = [channels * 2**stage for stage in range(4)]
        self.network = nn.Sequential(
            nn.Conv2d(max(problem.world) + 1, channels, 7, stride=2, padding=3, bias=False),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
            *[
                _Basic(widths[max(stage - (block == 0), 0)], width, 2 if stage and block == 0 else 1)
                for stage, width in enumerate(widths)
                for block in range(2)
            ],
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(widths[-1], self.width),
        )

    def _at(self, probs: Tensor, rows: Tensor, place: Tensor) -> Tensor:
        """Scores ``(n, 9)`` of the next move, for rows ``(n,)`` of the belief and the places reached ``(n,)``.

        Nothing is left to decide where a path has arrived: there every move has the score 0.
        """
        goal = probs.shape[1] - 1
        under_way = (place != goal).nonzero().squeeze(-1)
        scores = probs.new_zeros(len(place), self.width)
        if not len(under_way):
            return scores
        here = one_hot(place[under_way], goal + 1, probs.dtype).unsqueeze(1)
        seen = torch.cat([probs[rows[under_way]].transpose(1, 2), here], 1)
        return scores.index_copy(0, under_way, self.network(torch.unflatten(seen, -1, self.shape)))

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        return (probs,), (rows, torch.zeros_like(rows))

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (probs,), (rows, place) = carry.shared, carry.state
        place = place if token is None else moved(place, token, *self.shape)
        return self._at(probs, rows, place), Carry(carry.position + 1, carry.shared, (rows, place))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        count, length = tokens.shape
        moving = (tokens[:, :-1] != STAY).any(0).nonzero()
        last = int(moving[-1]) + 1 if len(moving) else 0  # from there on nobody moves
        places = [torch.zeros_like(tokens[:, 0])]
        for t in range(last):
            places.append(moved(places[-1], tokens[:, t], *self.shape))
        places += [places[-1]] * (length - 1 - last)
        rows = torch.arange(count, device=tokens.device).repeat_interleave(length)
        return torch.unflatten(self._at(probs, rows, torch.stack(places, 1).flatten()), 0, (count, length))


class _Basic(nn.Module):
    """The block of ResNet18: two convolutions, normalised, with a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(4, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(4, outputs),
        )
        self.around: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.GroupNorm(4, outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = (self.around(x) + self.main(x)).relu()
        return result


class _Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.two(self.one(x.relu()).relu())
        return result
