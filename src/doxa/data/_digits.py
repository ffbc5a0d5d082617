"""Tasks about digits that are seen: what a function makes of them, or whether a grid of them is a correct Sudoku.

Visual Sudoku: Augustine et al. 2022; dissertation, Chapter 6.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from doxa.data._batches import split_indices
from doxa.data._mnist import MNIST
from doxa.errors import ConfigError, DataError
from doxa.problem import Factor, Problem, Variable, tabulate

LISTED = 10**5  # worlds that are listed to find out which values a function takes


@dataclass(frozen=True, eq=False, repr=False)
class DigitsTask:
    """Rows of K digits with the output of a function; each image of the split is in one row at most.

    Args:
        problem: the function from K digits to its outputs.
        images: uint8 ``(n, K, 28, 28)``, to be `normalize`-d.
        outputs: int64 ``(n, Y)``: what is told.
        digits: int64 ``(n, K)``: what is not told; for measuring only.

    >>> import torch
    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10)
    >>> task = digits_task(mnist, max, digits=3)
    >>> task
    DigitsTask(20 rows of 3 digits, outputs (10,))
    >>> bool((task.outputs[:, 0] == task.digits.amax(1)).all())
    True
    """

    problem: Problem
    images: Tensor
    outputs: Tensor
    digits: Tensor

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        return f"DigitsTask({len(self)} rows of {self.digits.shape[1]} digits, outputs {self.problem.output})"


def digits_task(
    mnist: MNIST,
    function: Callable[..., Any] | Problem,
    *,
    digits: int | None = None,
    output: Sequence[int] | None = None,
    split: Literal["train", "test"] = "train",
    seed: int = 0,
) -> DigitsTask:
    """The task of learning digits from any function of them: data and the `Problem` that they pose.

    The images of a split are shuffled and taken K at a time, each once: 60,000 images make 60,000 / K rows, and what is
    left over is dropped.

    Args:
        mnist: the digits.
        function: a Python function of K digits that returns an int or a sequence of ints; or a `Problem` over digits,
            such as ``addition(2)`` or ``multiplication()``.
        digits: K, for a Python function.
        output: how many values each output has, for a Python function; by default found by trying all digits.
        split: of the images.
        seed: of the shuffle.

    Raises:
        ConfigError: the arguments do not go together.
        DataError: there are fewer than K images.

    >>> import torch
    >>> from doxa.problem import multiplication
    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10)
    >>> digits_task(mnist, multiplication())
    DigitsTask(30 rows of 2 digits, outputs (10, 10))
    >>> digits_task(mnist, lambda a, b: (a + b, abs(a - b)), digits=2)
    DigitsTask(30 rows of 2 digits, outputs (19, 10))
    """
    problem = _problem(function, digits, output)
    count = len(problem.world)
    images = mnist.train_images if split == "train" else mnist.test_images
    labels = mnist.labels(split)
    rows = len(labels) // count
    if not rows:
        raise DataError(f"{len(labels)} {split} images make no row of {count} digits")
    order, _ = split_indices(len(labels), rows * count, seed=seed)
    order = order.reshape(rows, count).to(labels.device)
    return DigitsTask(problem, images[order], problem(labels[order]), labels[order])


def _problem(function: Callable[..., Any] | Problem, digits: int | None, output: Sequence[int] | None) -> Problem:
    if isinstance(function, Problem):
        if digits is not None or output is not None:
            raise ConfigError("digits and output are for Python functions; a Problem says itself what they are")
        if set(function.world) != {10}:
            raise ConfigError(f"the problem has a world of {function.world}, expected ten values for each digit")
        return function
    if digits is None or digits < 1:
        raise ConfigError(f"digits is {digits}, expected the number of digits that the function takes, 1 or more")
    world = (10,) * digits
    if output is not None:
        return Problem.from_function(function, world, tuple(output))
    if 10**digits > LISTED:
        raise ConfigError(f"10^{digits} worlds are too many to find out the values of the function; give output=")
    first = function(*(0,) * digits)
    outputs = len(first) if isinstance(first, Sequence) else 1
    unbounded = Problem.from_function(function, world, (2**31,) * outputs)
    found = unbounded(unbounded.worlds())
    return Problem.from_function(function, world, tuple((found.amax(0) + 1).tolist()))


MOST_CORRUPTIONS = 10


@dataclass(frozen=True, eq=False, repr=False)
class SudokuPuzzles:
    """Grids of digits, some of them correct Sudokus. Cells are in rows, the first row first.

    Args:
        size: n, the number of rows; digits are 0 to n - 1.
        images: uint8 ``(puzzles, n², 28, 28)``, to be `normalize`-d.
        correct: bool ``(puzzles,)``: what is told.
        digits: int64 ``(puzzles, n²)``: what is not told; for measuring only.

    >>> grey = torch.zeros(2000, 28, 28, dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(2000) % 10, grey, torch.arange(2000) % 10)
    >>> train, test = visual_sudoku(mnist, 4, puzzles=20)
    >>> train
    SudokuPuzzles(20 grids of 4 × 4, 10 correct)
    >>> bool((is_sudoku(train.digits) == train.correct).all())
    True
    """

    size: int
    images: Tensor
    correct: Tensor
    digits: Tensor

    def __len__(self) -> int:
        return len(self.correct)

    def __repr__(self) -> str:
        return f"SudokuPuzzles({len(self)} grids of {self.size} × {self.size}, {int(self.correct.sum())} correct)"


def visual_sudoku(
    mnist: MNIST, size: int = 4, *, puzzles: int = 200, corruption: float = 0.5, seed: int = 0
) -> tuple[SudokuPuzzles, SudokuPuzzles]:
    """Puzzles to train on and puzzles to test on, half of them correct; every image is in one cell of one of them.

    A correct grid is filled cell by cell with a digit that is still allowed there, and begun anew where none is left.
    An incorrect one is such a grid in which either cells were given another digit, or cells were swapped: once, and
    again as long as a coin with probability ``corruption`` says so, at most 10 times; a grid that is still correct
    after that is corrupted anew. This is the "simple" generator of the published data set without overlap, whose splits
    are drawn from all of MNIST, training and test images alike.

    Args:
        mnist: the digits.
        size: 4 or 9, or any other square number.
        puzzles: how many to train on, and as many to test on.
        corruption: see above.
        seed: of everything; another seed is another split.

    Raises:
        DataError: there are not enough images of some digit.

    >>> grey = torch.zeros(2000, 28, 28, dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(2000) % 10, grey, torch.arange(2000) % 10)
    >>> train, test = visual_sudoku(mnist, 4, puzzles=20, seed=1)
    >>> test.images.shape, test.correct.sum()
    (torch.Size([20, 16, 28, 28]), tensor(10))
    """
    box = math.isqrt(size)
    if box * box != size or not 1 < size <= 10:
        raise ConfigError(f"size is {size}, expected 4 or 9: a square number of at most ten digits")
    if puzzles < 2 or puzzles % 2 or not 0 <= corruption < 1:
        raise ConfigError(
            f"puzzles is {puzzles} and corruption {corruption}, expected an even number, and a chance below 1"
        )
    chance, draw = np.random.RandomState(seed), random.Random(seed)
    grids = []
    for number in range(2 * puzzles):
        grid = _filled(size, draw)
        grids.append(grid if number % 2 == 0 else _corrupted(grid, size, corruption, chance))
    digits, told = torch.from_numpy(np.stack(grids)), torch.arange(2 * puzzles) % 2 == 0
    images = _images(mnist, digits, chance)
    first, second = (
        SudokuPuzzles(size, images[part], told[part], digits[part]) for part in (slice(puzzles), slice(puzzles, None))
    )
    return first, second


@cache
def sudoku_pairs(size: int) -> Tensor:
    """The pairs of cells that must differ: those in one row, column or block, int64 ``(pairs, 2)``.

    >>> len(sudoku_pairs(4)), len(sudoku_pairs(9))
    (56, 810)
    """
    box = math.isqrt(size)
    if box * box != size:
        raise ConfigError(f"size is {size}, expected a square number, such as 4 or 9")

    def together(a: int, b: int) -> bool:
        (r, c), (s, d) = divmod(a, size), divmod(b, size)
        return r == s or c == d or (r // box, c // box) == (s // box, d // box)

    return torch.tensor([(a, b) for a, b in combinations(range(size * size), 2) if together(a, b)])


def is_sudoku(digits: Tensor) -> Tensor:
    """Whether grids ``(..., n²)`` are correct: bool ``(...)``.

    >>> is_sudoku(torch.tensor([0, 1, 2, 3, 2, 3, 0, 1, 1, 0, 3, 2, 3, 2, 1, 0]))
    tensor(True)
    """
    return _differing(digits, sudoku_pairs(math.isqrt(digits.shape[-1]))).all(-1)


def sudoku_problem(size: int = 4, *, by_pairs: bool = False) -> Problem:
    """From the digits of a grid to whether it is correct; or, pair by pair, to which cells that must differ do differ.

    Args:
        size: 4 or 9.
        by_pairs: one output for each of `sudoku_pairs`, all 1 in a correct grid, instead of a single one.

    >>> sudoku_problem(4).names[-1], len(sudoku_problem(4).world)
    ('correct', 16)
    >>> len(sudoku_problem(9, by_pairs=True).output)
    810
    """
    pairs = sudoku_pairs(size)
    names = [f"cell {row + 1},{column + 1}" for row in range(size) for column in range(size)]
    world, differ = [size] * size**2, tabulate((size, size, 2), lambda a, b, y: y == (a != b))
    if by_pairs:
        factors = [Factor(_cells(pair, Variable.output(i)), differ) for i, pair in enumerate(pairs.tolist())]
        parts = [*names, *[f"pair {i}" for i in range(len(pairs))]]
        return Problem(
            tuple(world),
            (2,) * len(pairs),
            lambda worlds: _differing(worlds, pairs).long(),
            tuple(factors),
            names=tuple(parts),
        )
    # Auxiliary variable 2i says whether pair i differs, 2i + 1 whether all pairs so far do.
    both = tabulate((2, 2, 2), lambda a, b, y: y == a * b)
    factors, last = [], len(pairs) - 1
    for i, pair in enumerate(pairs.tolist()):
        here = Variable.auxiliary(2 * i)
        factors.append(Factor(_cells(pair, here), differ))
        done = Variable.output(0) if i == last else Variable.auxiliary(2 * i + 1)
        if i == 0:
            factors.append(Factor((here, done), tabulate((2, 2), lambda a, y: y == a)))
        else:
            factors.append(Factor((Variable.auxiliary(2 * i - 1), here, done), both))
    return Problem(
        tuple(world),
        (2,),
        lambda worlds: is_sudoku(worlds).long().unsqueeze(-1),
        tuple(factors),
        auxiliary=(2,) * (2 * len(pairs) - 1),
        names=(*names, "correct"),
    )


def _cells(pair: Sequence[int], target: Variable) -> tuple[Variable, Variable, Variable]:
    return Variable.world(pair[0]), Variable.world(pair[1]), target


def _differing(worlds: Tensor, pairs: Tensor) -> Tensor:
    pairs = pairs.to(worlds.device)
    return worlds[..., pairs[:, 0]] != worlds[..., pairs[:, 1]]


def _filled(size: int, draw: random.Random) -> np.ndarray:
    """A correct grid, int64 ``(n²,)``."""
    box, options = math.isqrt(size), _options(size)
    cells = [(*divmod(cell, size), box * (cell // size // box) + cell % size // box) for cell in range(size * size)]
    while True:
        grid: list[int] = []
        rows, columns, blocks = [0] * size, [0] * size, [0] * size  # digits that are used there, as bits
        for row, column, block in cells:
            allowed = options[rows[row] | columns[column] | blocks[block]]
            if not allowed:
                break
            digit = allowed[int(draw.random() * len(allowed))]
            rows[row] |= 1 << digit
            columns[column] |= 1 << digit
            blocks[block] |= 1 << digit
            grid.append(digit)
        else:
            return np.array(grid)


@cache
def _options(size: int) -> list[tuple[int, ...]]:
    """The digits that are left, for each set of used ones."""
    return [tuple(d for d in range(size) if not used >> d & 1) for used in range(1 << size)]


def _corrupted(grid: np.ndarray, size: int, corruption: float, chance: np.random.RandomState) -> np.ndarray:
    swap = chance.randint(2) == 0
    most = min(MOST_CORRUPTIONS, size * size // 2 if swap else size * size)
    while True:
        wrong, cells = grid.copy(), chance.permutation(size * size)
        count = 1
        while count < most and chance.rand() < corruption:
            count += 1
        if swap:
            a, b = cells[:count], cells[count : 2 * count]
            wrong[a], wrong[b] = grid[b], grid[a]
        else:
            other = chance.randint(1, size, size=count)  # another digit, each equally probable
            wrong[cells[:count]] = (wrong[cells[:count]] + other) % size
        if not bool(is_sudoku(torch.from_numpy(wrong))):
            return wrong


def _images(mnist: MNIST, digits: Tensor, chance: np.random.RandomState) -> Tensor:
    """An image of its own for every cell."""
    labels = torch.cat([mnist.train_labels, mnist.test_labels]).cpu()
    pool = torch.cat([mnist.train_images, mnist.test_images])
    chosen = torch.empty_like(digits)
    for digit in range(int(digits.max()) + 1):
        wanted = digits == digit
        found = (labels == digit).nonzero().squeeze(1)
        if int(wanted.sum()) > len(found):
            raise DataError(
                f"the puzzles need {int(wanted.sum())} images of the digit {digit}, and there are {len(found)}; make "
                "fewer puzzles"
            )
        order = torch.from_numpy(chance.permutation(len(found))[: int(wanted.sum())])
        chosen[wanted] = found[order]
    return pool[chosen.to(pool.device)]
