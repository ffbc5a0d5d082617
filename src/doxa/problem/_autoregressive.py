"""Beliefs in which every variable may depend on those before it, and the list of all worlds that they come down to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.problem._belief import Belief, Index, take
from doxa.problem._budget import Budget
from doxa.problem._logspace import NEG_INF, logsumexp, shown

Step = Callable[[Tensor, Tensor], Tensor]
"""From the numbers of rows ``(B,)`` and the first i values of worlds ``(B, m, i)`` to the log-probabilities of the next
value, ``(B, m, D_i)``."""


@dataclass(frozen=True, eq=False, repr=False)
class WorldTable:
    """Any belief about few variables: the log-probability of every world, in lexicographic order.

    Args:
        log_probs: ``(*batch, worlds)``, normalised.
        sizes: the number of values of each variable.

    >>> both_or_neither = WorldTable(torch.tensor([0.5, 0.0, 0.0, 0.5]).log(), (2, 2))
    >>> both_or_neither.marginals().probs[:, 1]
    tensor([0.5000, 0.5000])
    """

    log_probs: Tensor
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.log_probs.ndim or self.log_probs.shape[-1] != math.prod(self.sizes):
            wanted = f"(*batch, {math.prod(self.sizes)}): one number for each world over {self.sizes}"
            raise ProblemError(f"log_probs has {shown(self.log_probs)}, expected {wanted}")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes before the worlds."""
        return tuple(self.log_probs.shape[:-1])

    @property
    def dtype(self) -> torch.dtype:
        """The precision."""
        return self.log_probs.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.log_probs.device

    def detach(self) -> WorldTable:
        """The same belief, cut from the graph that computed it."""
        return WorldTable(self.log_probs.detach(), self.sizes)

    def _clone(self) -> WorldTable:
        return WorldTable(self.log_probs.clone(), self.sizes)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> WorldTable:
        """Index the batch axes, as with a tensor."""
        return WorldTable(take(self.log_probs, index, 1), self.sizes)

    def marginals(self) -> Belief:
        """The independent belief with the same marginals."""
        table, width = self.log_probs.reshape(*self.batch_shape, *self.sizes), max(self.sizes)
        columns = []
        for i, size in enumerate(self.sizes):
            others = tuple([j - len(self.sizes) for j in range(len(self.sizes)) if j != i])
            own = logsumexp(table, others) if others else table
            columns.append(torch.nn.functional.pad(own, (0, width - size), value=NEG_INF))
        return Belief(torch.stack(columns, -2), self.sizes, validate=False)


class RowSteps:
    """The variables of some rows, each said after those before it; and all worlds of these rows, listed once.

    Args:
        step: what says the log-probabilities of the next variable.
        sizes: the numbers of values of the variables of a row, in their order.
        rows: how many rows there are.
        like: a tensor whose precision and device are those of the numbers.
    """

    def __init__(self, step: Step, sizes: tuple[int, ...], rows: int, like: Tensor) -> None:
        self.step, self.sizes, self.rows, self.like = step, sizes, rows, like
        self._tables: dict[bool, Tensor] = {}

    def table(self) -> Tensor:
        """The log-probabilities of all worlds of all rows, ``(rows, worlds)`` in lexicographic order."""
        graph = torch.is_grad_enabled()
        if graph not in self._tables:
            every = torch.arange(self.rows, device=self.like.device)
            table, prefixes = self.like.new_zeros(self.rows, 1), every.new_zeros(1, 0)
            for size in self.sizes:
                table = (table.unsqueeze(-1) + self.step(every, prefixes.expand(self.rows, -1, -1))).flatten(1)
                values = torch.arange(size, device=every.device).repeat(len(prefixes)).unsqueeze(-1)
                prefixes = torch.cat([prefixes.repeat_interleave(size, 0), values], -1)
            self._tables[graph] = table
        return self._tables[graph]


@dataclass(frozen=True, eq=False, repr=False)
class Autoregressive:
    """A belief p(w) = Π_i p(w_i | w_<i) in the variables of a row, each told what those before it are.

    A problem may ask about some of the variables of the row, and about others beside them that are independent. Worlds
    that are drawn have all of them: first those of the row, then the others; ``of_problem`` picks those of a problem.

    Args:
        steps: what says the variables of rows.
        index: which row each instance has, int64 ``(*batch,)``.
        order: for each variable of the problem its place in a drawn world.
        others: what is believed of the variables beside the row, if there are any.
        attached: whether derivatives flow.

    >>> def step(rows, prefix):                                          # the second bit is the first one again
    ...     same = torch.zeros(*prefix.shape[:2], 2)
    ...     return same.log_softmax(-1) if not prefix.shape[-1] else torch.eye(2)[prefix[..., 0]].log()
    >>> copied = Autoregressive(RowSteps(step, (2, 2), 1, torch.zeros(())), torch.tensor([0]), (0, 1))
    >>> copied.listed(Budget()).log_probs.exp()
    tensor([[0.5000, 0.0000, 0.0000, 0.5000]])
    """

    steps: RowSteps
    index: Tensor
    order: tuple[int, ...]
    others: Belief | None = None
    attached: bool = True

    @property
    def row(self) -> tuple[int, ...]:
        """The numbers of values of the variables of a row."""
        return self.steps.sizes

    @property
    def like(self) -> Tensor:
        """A tensor whose precision and device are those of the numbers."""
        return self.steps.like

    def step(self, rows: Tensor, prefix: Tensor) -> Tensor:
        """What the next variable of rows may be."""
        found = self.steps.step(rows, prefix)
        return found if self.attached else found.detach()

    @property
    def drawn_sizes(self) -> tuple[int, ...]:
        """The numbers of values of the variables of a drawn world."""
        return (*self.row, *(self.others.sizes if self.others is not None else ()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each variable of the problem."""
        drawn = self.drawn_sizes
        return tuple([drawn[i] for i in self.order])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes of instances."""
        return tuple(self.index.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The precision."""
        return self.like.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.like.device

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Autoregressive:
        """Index the batch axes, as with a tensor."""
        others = None if self.others is None else self.others[index]
        return replace(self, index=take(self.index, index, 0), others=others)

    def expand(self, *batch: int) -> Autoregressive:
        """The same belief for more rows, as with a tensor."""
        others = None if self.others is None else self.others.expand(*batch)
        return replace(self, index=self.index.expand(*batch), others=others)

    def detach(self) -> Autoregressive:
        """The same belief without a graph."""
        others = None if self.others is None else self.others.detach()
        return replace(self, others=others, attached=False)

    def of_problem(self, worlds: Tensor) -> Tensor:
        """Of drawn worlds the variables of the problem."""
        return worlds[..., list(self.order)]

    def listed(self, budget: Budget) -> WorldTable:
        """The log-probability of every world of the problem; an error if there are too many to list."""
        self.require_few(budget)
        table = self.steps.table() if self.attached else self.steps.table().detach()
        # of the row those variables that the problem has, in the order of the row
        used = sorted(i for i in self.order if i < len(self.row))
        unused = tuple([1 + i for i in range(len(self.row)) if i not in used])
        table = table.reshape(-1, *self.row)
        table = (logsumexp(table, unused) if unused else table).flatten(1).index_select(0, self.index.flatten())
        sizes, places = [self.row[i] for i in used], list(used)
        if self.others is not None:
            for i, size in enumerate(self.others.sizes):
                own = self.others.log_probs[..., i, :size].reshape(-1, 1, size)
                table = (table.unsqueeze(-1) + own).flatten(1)
                sizes, places = [*sizes, size], [*places, len(self.row) + i]
        order = [1 + places.index(i) for i in self.order]
        found = table.reshape(-1, *sizes).permute(0, *order).flatten(1)
        return WorldTable(found.view(*self.batch_shape, -1), self.sizes)

    def require_few(self, budget: Budget) -> None:
        """A ``BudgetError`` if there are too many worlds to list."""
        worlds = max(math.prod(self.row), math.prod(self.sizes))
        if worlds > budget.worlds:
            raise BudgetError(
                "worlds",
                f"an autoregressive belief is exact by listing the worlds of a row, and there are {worlds:,}, more "
                f"than Budget(worlds={budget.worlds:,}); raise it, or draw worlds instead: Sampled()",
            )
        if math.prod(self.batch_shape) * worlds > budget.entries:
            raise BudgetError(
                "entries",
                f"{math.prod(self.batch_shape):,} rows of {worlds:,} worlds are more than Budget(entries="
                f"{budget.entries:,}); give fewer rows at a time, raise it, or use Sampled()",
            )

    def _gather(self, worlds: Tensor) -> Tensor:
        """log p of drawn worlds ``(*sample, *batch, variables)``: ``(*sample, *batch)``."""
        sample = worlds.shape[: worlds.ndim - 1 - len(self.batch_shape)]
        flat = worlds.reshape(math.prod(sample), math.prod(self.batch_shape), worlds.shape[-1]).transpose(0, 1)
        rows, found = self.index.flatten(), self.like.new_zeros(flat.shape[:2])
        for i in range(len(self.row)):
            following = self.step(rows, flat[..., :i])
            found = found + following.gather(-1, flat[..., i : i + 1]).squeeze(-1)
        found = found.transpose(0, 1).reshape(*sample, *self.batch_shape)
        return found if self.others is None else found + self.others._gather(worlds[..., len(self.row) :])

    log_prob = _gather

    def sample(self, count: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Worlds drawn variable by variable: int64 ``(count, *batch, variables)``; not differentiable."""
        sizes = (count, *self.batch_shape)
        noise = [torch.rand(sizes, dtype=torch.float64, device=self.device, generator=generator) for _ in self.row]
        own = self.inverse(torch.stack(noise, -1)) if noise else self.index.new_zeros(*sizes, 0)
        if self.others is None:
            return own
        return torch.cat([own, self.others.sample(count, generator=generator)], -1)

    def inverse(self, noise: Tensor) -> Tensor:
        """The variables of the row from numbers in [0, 1), ``(count, *batch, len(row))``: the inverse distribution."""
        flat = noise.reshape(len(noise), math.prod(self.batch_shape), -1).transpose(0, 1)  # (B, count, variables)
        rows, prefix = self.index.flatten(), self.index.new_zeros(*flat.shape[:2], 0)
        with torch.no_grad():
            for i, size in enumerate(self.row):
                reached = self.step(rows, prefix).double().exp().cumsum(-1)
                asked = (flat[..., i : i + 1].double() * reached[..., -1:]).contiguous()
                value = torch.searchsorted(reached.contiguous(), asked, right=True).clamp(max=size - 1)
                prefix = torch.cat([prefix, value], -1)
        return prefix.transpose(0, 1).reshape(*noise.shape)

    def __repr__(self) -> str:
        return f"Autoregressive(batch={self.batch_shape}, row={self.row}, sizes={self.sizes}, dtype={self.dtype})"
