"""Paths: what terrain costs is learned from the cheapest routes across it.

What one sees: maps of sand, grass, forest, water and rock. Nobody says what a tile shows or costs, only the cheapest
way from corner to corner is known. The costs that the network believes in are perturbed, a planner finds the way, and
again where the error points (I-MLE); the difference is the gradient. Soon most planned ways are as cheap as the best.

python examples/paths.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from doxa.data import TILE_COSTS, Batches, PathMaps, map_tiles, optimal_paths, terrain_maps
from doxa.problem import cheapest_paths
from doxa.stochastic import IMLE, Tape

COSTS = torch.tensor(TILE_COSTS, dtype=torch.float32)


class Tiles(nn.Module):
    """What every tile of a map is believed to cost."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 84), nn.ReLU(), nn.Linear(84, 5)
        )

    def forward(self, images: Tensor) -> Tensor:
        tiles = map_tiles(images)
        kinds = self.network(tiles.flatten(0, 1)).view(*tiles.shape[:2], 5).softmax(-1)
        return kinds @ COSTS


def plan(costs: Tensor) -> Tensor:
    """The cells on the cheapest path, ``(..., size²)``, for costs of that shape."""
    size = round(costs.shape[-1] ** 0.5)
    return cheapest_paths(costs.clamp_min(0.1).unflatten(-1, (size, size))).cells.flatten(-2)


def report(network: Tiles, maps: PathMaps, when: str) -> None:
    with torch.no_grad():
        costs = network(maps.images)
    best = optimal_paths(plan(costs).view_as(maps.kinds), maps.costs).double().mean()
    agree = torch.corrcoef(torch.stack([costs.flatten(), maps.costs.flatten().float()]))[0, 1]
    print(f"{when:<10} {best:6.1%} of the test paths are cheapest; learned and true costs correlate by {agree:.2f}")


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    size, count, epochs = (6, 600, 6) if smoke else (12, 2000, 10)
    maps, test = terrain_maps("train", count, size=size), terrain_maps("test", 200, size=size)
    network = Tiles()
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    report(network, test, "untrained:")
    for epoch in range(epochs):
        for images, paths in Batches((maps.images, maps.paths), 40, seed=epoch):
            tape = Tape(batch_dims=1)
            around = Independent(Normal(-network(images), 5.0), 1)  # the best path is the one with the most of -cost
            # The reach of 20 (in tenths) is meant for every map and sample, over all of which the loss is a mean.
            way = tape.sample(around, IMLE(lambda u: plan(-u).to(u), n=4, step=20.0 * 4 * len(images)))
            truth = paths.flatten(-2).float()
            tape.cost((way * (1 - truth) + (1 - way) * truth).sum(-1))
            optimizer.zero_grad()
            tape.surrogate(allow_biased=True).backward()
            optimizer.step()
        report(network, test, f"epoch {epoch + 1}:")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
