"""Shortest paths on maps of 12×12 and 30×30 cells, in batches, against ``scipy.sparse.csgraph.dijkstra``."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from doxa.data import terrain_maps
from doxa.problem import cheapest_paths
from harness import Row, compare


def by_scipy(costs: np.ndarray) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Costs and paths, one map after another; the graph is built once, and only its weights change."""
    maps, height, width = costs.shape
    flat = costs.reshape(maps, -1)
    number = np.arange(height * width).reshape(height, width)
    pairs = [
        (number[max(-dr, 0) : height - max(dr, 0), max(-dc, 0) : width - max(dc, 0)],
         number[max(dr, 0) : height + min(dr, 0), max(dc, 0) : width + min(dc, 0)])
        for dr in (-1, 0, 1) for dc in (-1, 0, 1) if (dr, dc) != (0, 0)
    ]  # fmt: skip
    start = np.concatenate([a.ravel() for a, _ in pairs])
    end = np.concatenate([b.ravel() for _, b in pairs])
    graph = csr_matrix((np.ones(len(start)), (start, end)), shape=(height * width,) * 2)

    def solve() -> tuple[np.ndarray, np.ndarray]:
        totals, paths = np.empty(maps), np.zeros((maps, height * width), np.uint8)
        for i in range(maps):
            graph.data = flat[i][graph.indices]  # a step costs what its end costs
            distance, before = dijkstra(graph, indices=0, return_predecessors=True)
            totals[i] = distance[-1] + flat[i, 0]
            cell = height * width - 1
            while cell >= 0:
                paths[i, cell] = 1
                cell = before[cell]
        return totals, paths.reshape(costs.shape)

    return solve


def per_second(solve: Callable[[], object], maps: int) -> float:
    start = time.process_time()
    for _ in range(5):
        solve()
    return 5 * maps / (time.process_time() - start)


def rows() -> list[Row]:
    random = torch.Generator().manual_seed(0)
    cases: list[tuple[str, Tensor, bool | None, float]] = []
    for size, goal in ((12, 3.0), (30, 1.0)):
        terrain = terrain_maps("train", 200, size=size).costs
        cases += [
            (f"{size}×{size} terrain", terrain, None, goal),
            (f"{size}×{size} random cost classes", terrain.flatten()[torch.randperm(terrain.numel(), generator=random)]
             .reshape(terrain.shape), None, goal),
            (f"{size}×{size} random real costs", 0.5 + torch.rand(terrain.shape, generator=random), None, goal),
            (f"{size}×{size} terrain, without a C compiler", terrain, False, goal),
        ]  # fmt: skip
    found = []
    for name, costs, native, goal in cases:
        costs = costs.double()
        peer = by_scipy(costs.numpy())
        ours = lambda costs=costs, native=native: cheapest_paths(costs, native=native)  # noqa: E731
        np.testing.assert_allclose(ours().cost.numpy(), peer()[0], rtol=1e-12)
        speeds = [per_second(solve, len(costs)) for solve in (ours, peer)]
        note = f"{speeds[0]:,.0f} and {speeds[1]:,.0f} paths per CPU second"
        label = f"paths: {name}, faster than scipy's dijkstra"
        found.append(compare(label, ours, peer, goal=goal, better="higher", repeats=12, note=note))
    return found


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
