"""Symbolic pruners: which values may come next, so that decoding never leaves what is possible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.problem import Problem
from doxa.problem._logspace import shown


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
