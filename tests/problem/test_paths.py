"""Shortest paths against Dijkstra's algorithm in plain Python, in C and in PyTorch."""

from __future__ import annotations

import heapq
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa._native import native_library
from doxa.errors import ProblemError
from doxa.problem import cheapest_paths, path_cells, path_moves, shortest_path
from doxa.problem._paths import SOURCE

WARCRAFT = torch.tensor([8, 12, 53, 77, 92])  # tenths, so that ties are exact
ENGINES = [pytest.param(None, id="c"), pytest.param(False, id="torch")]


def dijkstra(costs: list[list[float]]) -> tuple[float, tuple[int, ...]]:
    """The cheapest path and its cost; whole paths are in the queue, so that of equal ones the first sequence wins."""
    height, width = len(costs), len(costs[0])
    queue: list[tuple[float, tuple[int, ...]]] = [(costs[0][0], (0,))]
    done: set[int] = set()
    while True:
        cost, path = heapq.heappop(queue)
        if path[-1] == height * width - 1:
            return cost, path
        if path[-1] in done:
            continue
        done.add(path[-1])
        row, column = divmod(path[-1], width)
        for r, c in itertools.product(range(row - 1, row + 2), range(column - 1, column + 2)):
            if 0 <= r < height and 0 <= c < width and r * width + c not in done:
                heapq.heappush(queue, (cost + costs[r][c], (*path, r * width + c)))


def random_costs(kind: str, maps: int, height: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    if kind == "warcraft":
        return WARCRAFT[torch.randint(5, (maps, height, width), generator=random)]
    if kind == "ties":  # ones and twos: very many paths cost the same
        return torch.randint(1, 3, (maps, height, width), generator=random)
    if kind == "mazes":  # cheap corridors between walls: paths that wind, also upwards and to the left
        return torch.where(torch.rand(maps, height, width, generator=random) < 0.45, 1000, 1)
    return torch.rand(maps, height, width, generator=random, dtype=torch.float64) + 0.01


def test_the_kernel_compiles_here_or_there_is_no_compiler() -> None:
    library = native_library(SOURCE)
    assert library is None or library.cheapest_paths


@pytest.mark.parametrize("native", ENGINES)
@pytest.mark.parametrize("kind", ["warcraft", "ties", "mazes", "floats"])
@pytest.mark.parametrize("height, width", [(12, 12), (1, 1), (1, 7), (5, 1), (2, 9), (13, 4)])
def test_paths_are_those_of_dijkstra(native: bool | None, kind: str, height: int, width: int) -> None:
    costs = random_costs(kind, 19, height, width, seed=height + 31 * width)  # not a multiple of the kernel's lanes
    found = cheapest_paths(costs, native=native)
    for grid, cost, cells in zip(costs.tolist(), found.cost.tolist(), found.cells, strict=True):
        wanted, path = dijkstra(grid)
        assert cost == pytest.approx(wanted, rel=1e-12)
        assert cells.flatten().nonzero().flatten().tolist() == sorted(path)


@pytest.mark.parametrize("native", ENGINES)
def test_larger_maps(native: bool | None) -> None:
    for kind in ("warcraft", "mazes"):
        costs = random_costs(kind, 3, 30, 30, seed=5)
        found = cheapest_paths(costs, native=native)
        for grid, cost, cells in zip(costs.tolist(), found.cost.tolist(), found.cells, strict=True):
            wanted, path = dijkstra(grid)
            assert cost == wanted
            assert cells.flatten().nonzero().flatten().tolist() == sorted(path)


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 8),
    width=st.integers(1, 8),
    maps=st.integers(1, 20),
    kind=st.sampled_from(["warcraft", "ties", "mazes", "floats"]),
    scale=st.sampled_from([1.0, 1e-9, 0.1, 1e9]),
    seed=st.integers(0, 10_000),
)
def test_c_and_torch_give_the_same_bits(height: int, width: int, maps: int, kind: str, scale: float, seed: int) -> None:
    costs = scale * random_costs(kind, maps, height, width, seed).double()
    c, plain = cheapest_paths(costs), cheapest_paths(costs, native=False)
    assert torch.equal(c.cost, plain.cost)
    assert torch.equal(c.cells, plain.cells)
    paid = (costs * c.cells).sum((-2, -1))
    torch.testing.assert_close(paid, c.cost, rtol=1e-12, atol=0)


@pytest.mark.parametrize("native", ENGINES)
def test_shapes_and_types(native: bool | None) -> None:
    costs = random_costs("warcraft", 6, 4, 5, seed=0)
    found = cheapest_paths(costs, native=native)
    assert found.cost.shape == (6,) and found.cost.dtype == torch.float64
    assert found.cells.shape == (6, 4, 5) and found.cells.dtype == torch.uint8
    folded = cheapest_paths(costs.reshape(2, 3, 4, 5), native=native)
    assert torch.equal(folded.cells, found.cells.reshape(2, 3, 4, 5))
    assert torch.equal(folded.cost, found.cost.reshape(2, 3))
    single = cheapest_paths(costs[2], native=native)
    assert single.cost.shape == () and torch.equal(single.cells, found.cells[2])
    for dtype in (torch.uint8, torch.int32, torch.float32, torch.float16):
        assert torch.equal(cheapest_paths(costs.to(dtype), native=native).cells, found.cells)
    strided = costs.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(cheapest_paths(strided, native=native).cells, found.cells)
    watched = cheapest_paths(costs.double().requires_grad_(), native=native)
    assert not watched.cost.requires_grad
    empty = cheapest_paths(costs[:0], native=native)
    assert empty.cost.shape == (0,) and empty.cells.shape == (0, 4, 5)


@pytest.mark.parametrize("native", ENGINES)
def test_costs_that_have_no_meaning_are_refused(native: bool | None) -> None:
    good = torch.ones(2, 3, 3)
    for bad in (0.0, -1.0, float("nan"), float("inf"), 1e-20):
        costs = good.clone()
        costs[1, 1, 1] = bad
        with pytest.raises(ProblemError, match=r"expected positive and finite ones.*clamp"):
            cheapest_paths(costs, native=native)
    for shape in ((3,), (2, 0, 3), (0, 3)):
        with pytest.raises(ProblemError, match=r"expected \(\*batch, H, W\)"):
            cheapest_paths(torch.ones(shape), native=native)


def test_the_problem_uses_the_same_paths() -> None:
    problem = shortest_path(6, 6, costs=tuple(WARCRAFT.tolist()))
    worlds = problem.random_worlds(20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(problem(worlds), cheapest_paths(WARCRAFT[worlds].reshape(20, 6, 6)).cells.flatten(1).long())


DIRECTIONS = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]


@pytest.mark.parametrize("kind", ["warcraft", "ties", "mazes", "floats"])
@pytest.mark.parametrize("height, width", [(12, 12), (1, 1), (1, 7), (2, 9)])
def test_moves_follow_dijkstra(kind: str, height: int, width: int) -> None:
    costs = random_costs(kind, 20, height, width, seed=7)
    cells = cheapest_paths(costs).cells
    moves = path_moves(cells)
    assert moves.shape == (20, height * width - 1)
    for grid, row in zip(costs.tolist(), moves.tolist(), strict=True):
        _, path = dijkstra(grid)
        places = [divmod(cell, width) for cell in path]
        wanted = [DIRECTIONS.index((r - a, c - b)) for (a, b), (r, c) in itertools.pairwise(places)]
        assert row == wanted + [8] * (height * width - 1 - len(wanted))
    assert torch.equal(path_cells(moves, height, width), cells)
    longer = torch.nn.functional.pad(moves, (0, 3), value=8).reshape(4, 5, -1)
    assert torch.equal(path_moves(cells.reshape(4, 5, height, width), 3), longer[..., :3])
    assert path_moves(cells[:0]).shape == (0, height * width - 1)


def test_the_problem_of_moves() -> None:
    costs = tuple(WARCRAFT.tolist())
    cells, moves = shortest_path(5, 5, costs), shortest_path(5, 5, costs, moves=24)
    worlds = cells.random_worlds(30, generator=torch.Generator().manual_seed(2))
    assert moves.output == (9,) * 24
    assert torch.equal(path_cells(moves(worlds), 5, 5).flatten(1).long(), cells(worlds))
    assert torch.equal(shortest_path(5, 5, costs, moves=4)(worlds), moves(worlds)[:, :4])


def test_what_is_no_path_and_no_move_is_refused() -> None:
    for cells, message in [
        ([[0, 1], [0, 1]], "does not hold the top-left cell"),
        ([[1, 0, 0], [0, 0, 0], [0, 0, 1]], "no way on, or more than one"),
        ([[1, 1], [1, 1]], "no way on, or more than one"),
    ]:
        with pytest.raises(ProblemError, match=message):
            path_moves(torch.tensor(cells))
    with pytest.raises(ProblemError, match=r"expected \(\*batch, H, W\)"):
        path_moves(torch.ones(3))
    with pytest.raises(ProblemError, match="length is -1"):
        path_moves(torch.ones(1, 1), -1)
    with pytest.raises(ProblemError, match=r"moves lie in 0 \.\. 9"):
        path_cells(torch.tensor([0, 9]), 2, 2)
    with pytest.raises(ProblemError, match="expected int64"):
        path_cells(torch.tensor([0.0]), 2, 2)
    with pytest.raises(ProblemError, match="moves is 0"):
        shortest_path(2, 2, moves=0)


def test_moves_stop_at_the_border() -> None:
    assert path_cells(torch.tensor([0, 1, 2]), 1, 2).tolist() == [[1, 1]]
