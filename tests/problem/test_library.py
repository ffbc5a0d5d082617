"""The ready-made problems against plain Python, world by world."""

from __future__ import annotations

import heapq
import itertools
import math
import pickle
from collections.abc import Callable, Sequence

import pytest
import torch

from doxa.errors import ProblemError
from doxa.problem import (
    BruteForce,
    Problem,
    addition,
    cnf,
    comparison,
    exactly_k,
    majority,
    multiplication,
    parity,
    remainder,
    shortest_path,
)

World = tuple[int, ...]
CLAUSES = [[1, -2, 3], [-1, 4], [2, -3, -4], [-4]]
LONG = [list(range(1, 12)), [-1, 11, 3], [-2, -2], [5, -5]]


def number(digits: Sequence[int], base: int) -> int:
    return sum(digit * base**place for place, digit in enumerate(reversed(digits)))


def digits(value: int, length: int, base: int) -> World:
    return tuple(value // base**place % base for place in reversed(range(length)))


def halves(world: World, base: int) -> tuple[int, int]:
    middle = len(world) // 2
    return number(world[:middle], base), number(world[middle:], base)


def plain_addition(n: int, base: int) -> Callable[[World], World]:
    return lambda world: digits(sum(halves(world, base)), n + 1, base)


def plain_multiplication(n: int, base: int) -> Callable[[World], World]:
    return lambda world: digits(math.prod(halves(world, base)), 2 * n, base)


def plain_comparison(base: int) -> Callable[[World], World]:
    def compare(world: World) -> World:
        a, b = halves(world, base)
        return (0 if a < b else 1 if a == b else 2,)

    return compare


def plain_cnf(clauses: Sequence[Sequence[int]]) -> Callable[[World], World]:
    def satisfied(world: World) -> World:
        return (int(all(any((literal > 0) == world[abs(literal) - 1] for literal in row) for row in clauses)),)

    return satisfied


def plain_path(height: int, width: int, costs: Sequence[int]) -> Callable[[World], World]:
    """All simple paths, listed once; the best by cost and then by the sequence of cells."""
    goal = height * width - 1
    paths: list[World] = []

    def walk(path: World) -> None:
        if path[-1] == goal:
            paths.append(path)
            return
        row, column = divmod(path[-1], width)
        for r, c in itertools.product(range(row - 1, row + 2), range(column - 1, column + 2)):
            if 0 <= r < height and 0 <= c < width and r * width + c not in path:
                walk((*path, r * width + c))

    walk((0,))

    def best(world: World) -> World:
        path = min(paths, key=lambda path: (sum(costs[world[cell]] for cell in path), path))
        return tuple(int(cell in path) for cell in range(goal + 1))

    return best


# A new problem joins here: built small, with the same function in plain Python on one world.
PROBLEMS: dict[str, tuple[Problem, Callable[[World], World]]] = {
    "addition 1": (addition(1), plain_addition(1, 10)),
    "addition 2": (addition(2), plain_addition(2, 10)),
    "addition 4 binary": (addition(4, base=2), plain_addition(4, 2)),
    "multiplication 1": (multiplication(), plain_multiplication(1, 10)),
    "multiplication 2": (multiplication(2), plain_multiplication(2, 10)),
    "multiplication 3 ternary": (multiplication(3, base=3), plain_multiplication(3, 3)),
    "comparison 1": (comparison(1), plain_comparison(10)),
    "comparison 2": (comparison(2), plain_comparison(10)),
    "comparison 3 ternary": (comparison(3, base=3), plain_comparison(3)),
    "remainder 7": (remainder(7, digits=3), lambda world: (number(world, 10) % 7,)),
    "remainder 1": (remainder(1, digits=2), lambda world: (0,)),
    "parity 1": (parity(1), lambda world: (sum(world) % 2,)),
    "parity 6": (parity(6), lambda world: (sum(world) % 2,)),
    "exactly 0 of 3": (exactly_k(0, 3), lambda world: (int(sum(world) == 0),)),
    "exactly 2 of 5": (exactly_k(2, 5), lambda world: (int(sum(world) == 2),)),
    "exactly 4 of 3": (exactly_k(4, 3), lambda world: (0,)),
    "majority 1": (majority(1), lambda world: (int(sum(world) > 0.5),)),
    "majority 5": (majority(5), lambda world: (int(sum(world) > 2.5),)),
    "majority 6": (majority(6), lambda world: (int(sum(world) > 3),)),
    "cnf": (cnf(CLAUSES), plain_cnf(CLAUSES)),
    "cnf long": (cnf(LONG), plain_cnf(LONG)),
    "cnf one clause": (cnf([[1, 2]], variables=3), plain_cnf([[1, 2]])),
    "cnf no clause": (cnf([], variables=2), plain_cnf([])),
    "cnf empty clause": (cnf([[1], []]), plain_cnf([[1], []])),
    "path 3x3": (shortest_path(3, 3), plain_path(3, 3, (1, 2))),
    "path 3x3 with walls": (shortest_path(3, 3, costs=(1, 100)), plain_path(3, 3, (1, 100))),
    "path 2x4": (shortest_path(2, 4, costs=(1, 4)), plain_path(2, 4, (1, 4))),
    "path 2x3, three costs": (shortest_path(2, 3, costs=(3, 1, 2)), plain_path(2, 3, (3, 1, 2))),
    "path 1x1": (shortest_path(1, 1), plain_path(1, 1, (1, 2))),
    "path 1x4": (shortest_path(1, 4), plain_path(1, 4, (1, 2))),
}


@pytest.fixture(params=PROBLEMS)
def case(request: pytest.FixtureRequest) -> tuple[Problem, Callable[[World], World]]:
    return PROBLEMS[request.param]


def test_function_is_right_for_all_worlds(case: tuple[Problem, Callable[[World], World]]) -> None:
    problem, plain = case
    worlds = problem.worlds()
    listed = list(itertools.product(*map(range, problem.world)))
    assert [tuple(world) for world in worlds.tolist()] == listed
    assert [tuple(output) for output in problem(worlds).tolist()] == [plain(world) for world in listed]


def test_check_passes_for_all_worlds(case: tuple[Problem, Callable[[World], World]]) -> None:
    problem, _ = case
    report = problem.check()
    assert (report.worlds, report.exhaustive) == (problem.num_worlds, True)
    assert report.factors == (problem.factors is not None)


@pytest.mark.parametrize("name", [name for name, (problem, _) in PROBLEMS.items() if problem.factors is not None])
def test_factors_multiply_to_the_function(name: str) -> None:
    """Σ_auxiliary ∏ factors = [c(w) = y], by one big sum that knows nothing of how the room evaluates factors."""
    problem, _ = PROBLEMS[name]
    assert problem.factors is not None
    operands: list[object] = []
    for factor in problem.factors:
        operands += [factor.table.double(), [problem.index(variable) for variable in factor.scope]]
    for variable, size in enumerate(problem.sizes):  # so that variables in no factor appear, too
        operands += [torch.ones(size, dtype=torch.float64), [variable]]
    visible = list(range(len(problem.world) + len(problem.output)))
    product = torch.einsum(*operands, visible).reshape(problem.num_worlds, *problem.output)
    expected = torch.zeros_like(product)
    expected[(torch.arange(problem.num_worlds), *problem(problem.worlds()).unbind(-1))] = 1
    torch.testing.assert_close(product, expected, rtol=0, atol=0)


def test_problems_can_be_pickled(case: tuple[Problem, Callable[[World], World]]) -> None:
    problem, _ = case
    copy = pickle.loads(pickle.dumps(problem))
    worlds = problem.worlds(0, 50)
    assert copy.sizes == problem.sizes
    assert torch.equal(copy(worlds), problem(worlds))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_addition_has_as_many_sums_and_output_values_as_the_errata_say(n: int) -> None:
    problem = addition(n)
    assert sum(problem.output) == 10 * n + 2
    assert len(BruteForce(problem).outputs) == 2 * 10**n - 1


def test_ways_to_add_up_as_the_errata_say() -> None:
    for n, output, ways in [(1, [1, 3], 6), (2, [1, 3, 5], 64), (1, [1, 9], 0)]:
        assert int((addition(n)(addition(n).worlds()) == torch.tensor(output)).all(-1).sum()) == ways


@pytest.mark.parametrize("build, operation, length", [(addition, sum, 51), (multiplication, math.prod, 100)])
def test_numbers_beyond_64_bits(
    build: Callable[[int], Problem], operation: Callable[[tuple[int, int]], int], length: int
) -> None:
    worlds = build(50).random_worlds(20, generator=torch.Generator().manual_seed(0))
    outputs = build(50)(worlds).tolist()
    for world, output in zip(worlds.tolist(), outputs, strict=True):
        assert tuple(output) == digits(operation(halves(tuple(world), 10)), length, 10)


def test_addition_of_a_thousand_digits_is_a_chain() -> None:
    problem = addition(1000)
    assert problem.factors is not None and len(problem.factors) == 1000
    assert len({id(factor.table) for factor in problem.factors}) == 2, "equal factors share their table"
    assert max(factor.table.numel() for factor in problem.factors) == 4000
    report = problem.check(samples=50, generator=torch.Generator().manual_seed(0))
    assert not report.exhaustive and report.factors


@pytest.mark.parametrize("problem", [comparison(40), parity(200), exactly_k(3, 100), majority(101), remainder(13, 60)])
def test_long_chains_agree_with_their_function(problem: Problem) -> None:
    assert problem.check(samples=500, generator=torch.Generator().manual_seed(0)).factors


def test_numbers_that_differ_only_in_the_last_digit() -> None:
    world = torch.tensor([7] * 80)
    world[79] = 8
    problem = comparison(40)
    assert problem(world).tolist() == problem.evaluate_factors(world).tolist() == [0]
    assert problem(world.flip(0)).tolist() == [2], "the reversed first number starts with the 8"


def test_winding_paths_on_a_larger_grid() -> None:
    """Uniform-cost search with whole paths in the queue: the cheapest, and of those the first sequence of cells."""
    size, costs = 5, (1, 2, 60)
    worlds = shortest_path(size, size, costs).random_worlds(100, generator=torch.Generator().manual_seed(0))
    snake = [[0, 0, 0, 0, 0], [2, 2, 2, 2, 0], [0, 0, 0, 0, 0], [0, 2, 2, 2, 2], [0, 0, 0, 0, 0]]
    worlds = torch.cat([worlds, torch.tensor(snake).reshape(1, -1)])
    outputs = shortest_path(size, size, costs)(worlds)
    for world, output in zip(worlds.tolist(), outputs.tolist(), strict=True):
        queue: list[tuple[int, World]] = [(0, (0,))]
        done: set[int] = set()
        while queue[0][1][-1] != size * size - 1:
            cost, path = heapq.heappop(queue)
            if path[-1] not in done:
                done.add(path[-1])
                row, column = divmod(path[-1], size)
                for r, c in itertools.product(range(row - 1, row + 2), range(column - 1, column + 2)):
                    if 0 <= r < size and 0 <= c < size:
                        cell = r * size + c
                        heapq.heappush(queue, (cost + costs[world[cell]], (*path, cell)))
        assert output == [int(cell in queue[0][1]) for cell in range(size * size)]
    assert outputs[-1].sum() == 13, "along the snake, cutting its corners"


def test_ties_between_paths_take_the_first_sequence_of_cells() -> None:
    flat = shortest_path(2, 3)(torch.zeros(6, dtype=torch.int64))
    assert flat.tolist() == [1, 1, 0, 0, 0, 1], "0-1-5 and 0-4-5 cost the same"


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: addition(0), "digits is 0 and base is 10, expected at least 1 digit"),
        (lambda: comparison(1, base=1), "base is 1"),
        (lambda: remainder(0, 3), "modulus is 0"),
        (lambda: parity(0), "n is 0, expected at least 1 variable"),
        (lambda: majority(0), "n is 0"),
        (lambda: exactly_k(-1, 3), "k is -1"),
        (lambda: cnf([[1, 0]]), r"literals are \[0, 1\] for 1 variables"),
        (lambda: cnf([[1, -4]], variables=3), "numbers from 1 to 3"),
        (lambda: cnf([]), "say variables="),
        (lambda: shortest_path(0, 3), "height is 0"),
        (lambda: shortest_path(2, 2, costs=(1, 0)), r"costs are \(1, 0\).*positive whole costs"),
    ],
)
def test_bad_arguments(build: Callable[[], Problem], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        build()
