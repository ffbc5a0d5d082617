"""Symbolic pruners: which values may come next. Any function, sums of any length, and paths on a map."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.problem import Problem
from doxa.problem._logspace import shown
from doxa.problem._paths import MOVES, STAY, moved


class Pruner(ABC):
    """Says for a prefix of values (outputs first, then the world) which values of the next variable are allowed.

    A pruner is *complete* if every prefix that it allows can be completed to a world w with c(w) = y. Only then is
    whatever is decoded guaranteed to be valid. A pruner that may allow more is still useful: it narrows the search.

    Args:
        sizes: the number of values of each variable, ``problem.output + problem.world``.
        complete: whether the guarantee holds.

    >>> from doxa.amortized import AdditionPruner
    >>> AdditionPruner(1)(torch.tensor([1, 3]))                 # 13 = w_1 + w_2: then w_1 is at least 4
    tensor([False, False, False, False,  True,  True,  True,  True,  True,  True])
    """

    def __init__(self, sizes: Sequence[int], *, complete: bool) -> None:
        self.sizes = tuple(sizes)
        self.complete = complete

    @abstractmethod
    def allowed(self, prefix: Tensor) -> Tensor:
        """For prefixes int64 ``(R, k)`` the allowed values of variable k: bool ``(R, sizes[k])``."""

    def __call__(self, prefix: Tensor) -> Tensor:
        """For prefixes int64 ``(*batch, k)`` the allowed values of variable k: bool ``(*batch, sizes[k])``."""
        if prefix.dtype != torch.int64 or prefix.ndim == 0 or prefix.shape[-1] >= len(self.sizes):
            wanted = f"int64 (*batch, k) with k below {len(self.sizes)}"
            raise ProblemError(f"prefix has {shown(prefix)}, expected {wanted}")
        batch, k = prefix.shape[:-1], prefix.shape[-1]
        return self.allowed(prefix.reshape(batch.numel(), k)).reshape(*batch, self.sizes[k])

    def masks(self, tokens: Tensor, width: int) -> Tensor:
        """The allowed values at every position of tokens ``(R, L)``, given those before: bool ``(R, L, width)``."""
        rows, length = tokens.shape
        masks = torch.zeros(rows, length, width, dtype=torch.bool, device=tokens.device)
        for k in range(length):
            masks[:, k, : self.sizes[k]] = self.allowed(tokens[:, :k])
        return masks

    def verify(self, problem: Problem) -> None:
        """Compare with all worlds of a problem; the first disagreement is a ``ProblemError``.

        A complete pruner must allow exactly the prefixes of (c(w), w); any other must allow at least these.

        >>> from doxa import amortized, problem
        >>> amortized.AdditionPruner(2).verify(problem.addition(2))
        """
        worlds = problem.worlds()
        tokens = torch.cat([problem(worlds), worlds], -1)
        sizes = problem.output + problem.world
        if self.sizes != sizes:
            raise ProblemError(f"the pruner is over variables of sizes {self.sizes}, the problem has {sizes}")
        for k, size in enumerate(sizes):
            prefixes, rows = tokens[:1, :0], torch.zeros(len(tokens), dtype=torch.int64)
            if k:
                prefixes, rows = torch.unique(tokens[:, :k], dim=0, return_inverse=True)
            possible = torch.zeros(len(prefixes), size, dtype=torch.bool)
            possible[rows, tokens[:, k]] = True
            found = self.allowed(prefixes)
            wrong = possible & ~found, found & ~possible & self.complete
            for bad, what, has in zip(wrong, ("forbids", "allows"), ("some", "no"), strict=True):
                if bad.any():
                    row, value = bad.nonzero()[0].tolist()
                    prefix = tuple(prefixes[row].tolist())
                    raise ProblemError(f"after {prefix} the pruner {what} {value}, which {has} world has")

    def __and__(self, other: Pruner) -> Pruner:
        """Allow what both allow.

        >>> from doxa.amortized import AdditionPruner, FunctionPruner
        >>> even = FunctionPruner(lambda prefix: torch.arange(10) % 2 == 0, (2, 10, 10, 10), outputs=2)
        >>> (AdditionPruner(1) & even)(torch.tensor([1, 3])).nonzero().flatten()
        tensor([4, 6, 8])
        """
        return _Both(self, other)


class _Both(Pruner):
    """What is decoded in full was allowed by both, so one complete pruner is enough for the guarantee."""

    def __init__(self, one: Pruner, two: Pruner) -> None:
        if one.sizes != two.sizes:
            raise ConfigError(f"the pruners are over variables of sizes {one.sizes} and {two.sizes}, expected the same")
        super().__init__(one.sizes, complete=one.complete or two.complete)
        self.parts = one, two

    def allowed(self, prefix: Tensor) -> Tensor:
        one, two = self.parts
        return one.allowed(prefix) & two.allowed(prefix)


class FunctionPruner(Pruner):
    """Any function of the prefix; everything is allowed before variable ``outputs`` if the function is about worlds.

    Args:
        function: from prefixes ``(R, k)`` to bool ``(R, sizes[k])`` or what broadcasts to it.
        sizes: the number of values of each variable, outputs first.
        outputs: from which variable on the function is asked.
        complete: your promise that every allowed prefix can be completed. Only ``verify`` checks it.

    >>> pruner = FunctionPruner(lambda prefix: torch.arange(3) >= prefix[:, -1:], (1, 3, 3), outputs=2)
    >>> pruner(torch.tensor([[0, 0], [0, 2]]))                   # values never decrease
    tensor([[ True,  True,  True],
            [False, False,  True]])
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], sizes: Sequence[int], *, outputs: int = 0, complete: bool = False
    ) -> None:
        super().__init__(sizes, complete=complete)
        self.function = function
        self.outputs = outputs

    @classmethod
    def of(cls, problem: Problem, *, complete: bool = False) -> FunctionPruner:
        """The pruner that a problem carries.

        >>> never_one = Problem((2,), (2,), lambda w: 0 * w, pruner=lambda prefix: torch.tensor([True, False]))
        >>> FunctionPruner.of(never_one)(torch.zeros(1, 0, dtype=torch.int64))
        tensor([[ True, False]])
        """
        if problem.pruner is None:
            raise ConfigError("the problem has no pruner; pass pruner= to Problem, or derive one with SatPruner")
        return cls(problem.pruner, problem.output + problem.world, complete=complete)

    def allowed(self, prefix: Tensor) -> Tensor:
        size = self.sizes[prefix.shape[-1]]
        if prefix.shape[-1] < self.outputs:
            return torch.ones(len(prefix), size, dtype=torch.bool, device=prefix.device)
        found = self.function(prefix)
        if not isinstance(found, Tensor) or found.dtype != torch.bool or found.shape[-1:] != (size,):
            wanted = f"bool (*batch, {size}): one truth value per value"
            raise ProblemError(f"the pruner returned something of {shown(found)}, expected {wanted}")
        return found.expand(len(prefix), size)


class AdditionPruner(Pruner):
    """For the sum y of two numbers of N digits: which digit may come next? Complete, and linear in N.

    Dissertation, "MNISTAdd Symbolic Pruner", with errata 5.1: for the k-th digit of the first number, accept iff
    0 ≤ l_k - p_k ≤ 10^k - S, where l_k and p_k are the numbers that the first k + 1 digits of the sum and the first k
    digits of the number make, and S = 1 iff all later digits of the sum are 9.

    Neither side needs big integers. l_k - p_k is 0 only while the digits agree and y_1 = 0, and 10^k only while they
    agree and y_1 = 1; once they differ, both inequalities hold for good. So, while w_1 … w_{k-1} = y_2 … y_k,

        y_1 = 0:  w_k ≤ y_{k+1},            y_1 = 1:  w_k ≥ y_{k+1} + S,

    and afterwards everything goes, if they differ in the right direction. The second number is y minus the first.
    Of the sums only 1 9…9 is impossible.

    >>> pruner = AdditionPruner(2)
    >>> pruner(torch.tensor([1, 3, 5])).nonzero().flatten()                  # 135: the first digit is 3 or more
    tensor([3, 4, 5, 6, 7, 8, 9])
    >>> pruner(torch.tensor([1, 3, 5, 5, 0])).nonzero().flatten()            # 135 - 50 = 85
    tensor([8])
    """

    def __init__(self, digits: int, base: int = 10) -> None:
        if digits < 1 or base < 2:
            raise ConfigError(f"digits is {digits} and base is {base}, expected at least 1 digit and base 2")
        super().__init__((2,) + (base,) * (3 * digits), complete=True)
        self.digits, self.base = digits, base

    def allowed(self, prefix: Tensor) -> Tensor:
        digits, base, k = self.digits, self.base, prefix.shape[-1]
        values = torch.arange(self.sizes[k], device=prefix.device)
        if k <= digits:  # a digit of the sum
            full = (prefix[:, :1] == 1).all(-1) & (prefix[:, 1:] == base - 1).all(-1) & (k == digits)
            return (values < self.sizes[k] - 1) | ~full.unsqueeze(-1)
        carry, sums = prefix[:, :1], prefix[:, 1 : digits + 1]
        known = prefix[:, digits + 1 :]
        place = known.shape[-1]
        if place < digits:  # a digit of the first number
            agree, direction = _first_difference(known - sums[:, :place])
            rest = (sums[:, place + 1 :] == base - 1).all(-1, keepdim=True)
            digit = sums[:, place : place + 1]
            while_equal = torch.where(carry == 0, values <= digit, values >= digit + rest)
            possible = direction == torch.where(carry == 0, -1, 1).squeeze(-1)
            return torch.where(agree.unsqueeze(-1), while_equal, possible.unsqueeze(-1))
        first, second = known[:, :digits], known[:, digits:]
        difference = sums - first
        borrows = _first_difference(difference)[1] < 0
        wanted, here = self._remainder(difference), second.shape[-1]
        valid = (borrows == (carry.squeeze(-1) == 1)) & (second == wanted[:, :here]).all(-1)
        return (values == wanted[:, here : here + 1]) & valid.unsqueeze(-1)

    def _remainder(self, difference: Tensor) -> Tensor:
        """The digits of a difference of numbers, from the differences of their digits ``(R, N)``."""
        digits = difference.shape[-1]
        places = torch.arange(digits, device=difference.device)
        # A column borrows iff the first digits that differ to its right differ downwards.
        differs = torch.where(difference != 0, places, digits)
        following = torch.cat([differs[:, 1:], torch.full_like(differs[:, :1], digits)], -1)
        following = following.flip(-1).cummin(-1).values.flip(-1)
        padded = torch.cat([difference, torch.zeros_like(difference[:, :1])], -1)
        borrow = padded.gather(-1, following) < 0
        return (difference - borrow.long()) % self.base


def _first_difference(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Whether all entries ``(R, n)`` are 0, and the sign of the first that is not."""
    if difference.shape[-1] == 0:
        none = difference.new_zeros(len(difference))
        return none == 0, none
    first = (difference != 0).to(torch.int8).argmax(-1, keepdim=True)
    sign = difference.gather(-1, first).squeeze(-1).sign()
    return sign == 0, sign


class PathPruner(Pruner):
    """Moves on a grid from its first to its last cell, as in ``MOVES``.

    Forbidden are moves that leave the grid, that return to a cell of the path (dissertation, "Prune with local
    constraints"), or after which the goal is too far for the moves that are left; staying is allowed at the goal, and
    only there. That makes it a path; not the shortest one, and there may be dead ends, so the pruner is not complete.

    Args:
        shape: height and width of the grid.
        length: the number of moves, padded with staying.
        world: the sizes of the world variables that follow, on which nothing is forbidden.

    >>> pruner = PathPruner((2, 2), length=3)
    >>> pruner(torch.zeros(0, dtype=torch.int64)).nonzero().flatten()          # right, down, or straight to the goal
    tensor([4, 6, 7])
    >>> pruner(torch.tensor([7])).nonzero().flatten()                          # there: stay
    tensor([8])
    """

    def __init__(self, shape: tuple[int, int], length: int, world: Sequence[int] = ()) -> None:
        height, width = shape
        if height < 1 or width < 1 or length < max(height, width) - 1:
            raise ConfigError(f"shape is {shape}, length {length}, expected a grid and at least {max(shape) - 1} moves")
        super().__init__((len(MOVES),) * length + tuple(world), complete=False)
        self.shape = shape
        self.length = length

    def allowed(self, prefix: Tensor) -> Tensor:
        k = prefix.shape[-1]
        if k >= self.length:
            return torch.ones(len(prefix), self.sizes[k], dtype=torch.bool, device=prefix.device)
        height, width = self.shape
        cell = prefix.new_zeros(len(prefix))
        visited = torch.zeros(len(prefix), height * width, dtype=torch.bool, device=prefix.device)
        for move in prefix.unbind(-1):
            visited.scatter_(-1, cell.unsqueeze(-1), True)
            cell = moved(cell, move, height, width)
        visited.scatter_(-1, cell.unsqueeze(-1), True)
        return self._from(cell, visited, k)

    def masks(self, tokens: Tensor, width: int) -> Tensor:
        rows, length = tokens.shape
        masks = torch.zeros(rows, length, width, dtype=torch.bool, device=tokens.device)
        cell = tokens.new_zeros(rows)
        visited = torch.zeros(rows, math.prod(self.shape), dtype=torch.bool, device=tokens.device)
        last = min(length, self.length)
        moving = (tokens[:, :last] != STAY).any(0).nonzero()  # when all have arrived, the rest is alike
        ended = int(moving[-1]) + 1 if len(moving) else 0
        for k in range(last):  # in one walk
            if k > ended and bool((cell == visited.shape[1] - 1).all()):
                masks[:, k:last] = masks[:, k - 1 : k]
                break
            visited.scatter_(-1, cell.unsqueeze(-1), True)
            masks[:, k, : len(MOVES)] = self._from(cell, visited, k)
            cell = moved(cell, tokens[:, k], *self.shape)
        for k in range(self.length, length):
            masks[:, k, : self.sizes[k]] = True
        return masks

    def _from(self, cell: Tensor, visited: Tensor, k: int) -> Tensor:
        """The moves that are allowed in cells ``(R,)`` after k moves through those visited, bool ``(R, H · W)``."""
        height, width = self.shape
        steps = torch.tensor(MOVES, device=cell.device)
        row, column = (cell // width).unsqueeze(-1) + steps[:, 0], (cell % width).unsqueeze(-1) + steps[:, 1]
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        target = torch.where(inside, row * width + column, 0)
        far = torch.maximum(height - 1 - row, width - 1 - column)  # king's moves to the goal
        allowed = inside & ~visited.gather(-1, target) & (far <= self.length - k - 1)
        arrived = cell == height * width - 1
        stay = torch.arange(len(MOVES), device=cell.device) == STAY
        return torch.where(arrived.unsqueeze(-1), stay, allowed & ~stay)
