"""Exact inference over factors: variable elimination in log space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.exact.circuits._semirings import Reduce, log_sum, restore
from doxa.exact.engines._leaves import Index, Leaves, Weights, indexing, make_leaves, pick
from doxa.exact.engines._ordering import Order, TooWide, best_order
from doxa.exact.engines._reasoner import ExactReasoner, Impossible, is_traced
from doxa.problem import Belief, Problem


class Operand(NamedTuple):
    """Tables of a batch, and how they become ``(variable, *neighbours, K, R)``; None where there is nothing to do."""

    batch: int
    numbers: Index | None
    axes: tuple[int, ...] | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Program:
    """Leaves, then unary weights of shared variables, then elimination steps."""

    leaves: tuple[Leaves, ...]
    unary: tuple[tuple[int, Index], ...]  # size, and the variables with that many values
    steps: tuple[tuple[Operand, ...], ...]  # join these tables and add up the first axis
    order: Order

    @property
    def entries(self) -> int:
        """Numbers held for each row."""
        return sum(leaf.entries for leaf in self.leaves) + self.order.entries

    @cached_property
    def zero(self) -> bool:
        """Whether the variable of weight 0 is used."""
        return any(leaf.zero for leaf in self.leaves)

    def run(self, weights: Weights, reduce: Reduce) -> Tensor:
        """log Z of each row."""
        batches = [table for leaf in self.leaves for table in leaf.tables(weights, reduce)]
        batches += [pick(weights.values, v, 0)[:, :size].transpose(0, 1) for size, v in self.unary]
        for step in self.steps:
            joint = None
            for batch, number, axes, shape in step:
                part = batches[batch]
                if number is not None:
                    part = pick(part, number, part.ndim - 2)
                if axes is not None:
                    part = part.permute(axes)
                if shape is not None:
                    part = part.reshape(*shape, weights.rows)
                joint = part if joint is None else joint + part
            assert joint is not None
            batches.append(reduce(joint))
        scalars = [batch.sum(0) if len(batch) > 1 else batch.squeeze(0) for batch in batches if batch.ndim == 2]
        return restore(sum(scalars[1:], start=scalars[0]))


class Elimination(ExactReasoner):
    """Exact inference by variable elimination over the factors of a problem.

        Σ_w p(w | P) [c(w) = y] = Σ_w Σ_aux Π_i P[i, w_i] Π_f f(w, y, aux)

    is computed by adding up one variable after the other, each within the few factors that mention it (dynamic
    programming; Zhang and Poole 1994, "A simple approach to Bayesian network computations"). The cost is exponential
    only in the number of variables that meet in one join. Chains, such as the carries of an addition, take linear time.

    Args:
        problem: what to reason about; it must have factors.
        max_join: refuse problems that need a join of more entries than this.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".
        max_entries: memory bound: batches that need more numbers at a time are computed in parts.

    >>> import torch
    >>> from doxa.problem import Belief, addition
    >>> reasoner = Elimination(addition(100))
    >>> reasoner.log_prob(Belief.uniform((10,) * 200), torch.zeros(101, dtype=torch.int64)) / 200     # one world
    tensor(-2.3026)
    """

    def __init__(
        self,
        problem: Problem,
        *,
        max_join: int = 1 << 20,
        impossible: Impossible = "raise",
        max_entries: int = 1 << 26,
    ) -> None:
        if problem.factors is None:
            raise ProblemError(
                "the problem has no factors to eliminate variables from; pass factors= or build it with "
                "Problem.from_factors, or use Enumeration if its worlds are few"
            )
        self.max_join = max_join
        observed = compile_program(problem, max_join, observed=True)
        super().__init__(problem, impossible=impossible, max_entries=max_entries, entries=observed.entries)
        self._programs: dict[tuple[bool, tuple[int, ...]], Program] = {(True, ()): observed}

    @property
    def order(self) -> Order:
        """The order of elimination for observed outputs."""
        return self._program(True).order

    @property
    def entries(self) -> int:
        """Numbers held for each row."""
        return self._program(True).entries

    def log_prob_given(self, belief: Belief, output: Tensor, certain: Sequence[int]) -> Tensor:
        """The same as ``log_prob`` for complete outputs, cheaper: some world variables are certain in every row.

        Args:
            belief: what is believed of the world; of a certain variable, all probability is at one value.
            output: int64 ``(*batch, Y)``, or ``(Y,)`` for all rows, without -1.
            certain: the certain world variables.

        >>> import torch
        >>> from doxa.problem import addition
        >>> belief = Belief.from_probs(torch.stack([torch.eye(10)[4], torch.full((10,), 0.1)]))
        >>> Elimination(addition(1)).log_prob_given(belief, torch.tensor([1, 3]), [0]).exp()     # 4 + 9
        tensor(0.1000)
        """
        values = belief.log_probs[..., list(certain), :].argmax(-1)
        program = self._program(True, tuple(certain))

        def query(rows: Tensor, given: Tensor) -> tuple[Tensor]:
            return (program.run(Weights.of(rows, None, given, zero=program.zero), log_sum),)

        self.problem.require(belief, output)
        batch = belief.batch_shape
        given = torch.cat([output.expand(*batch, -1), values], -1)
        return self._by_rows(query, belief, given, recompute=True, checked=True)[0]

    def _program(self, observed: bool, certain: tuple[int, ...] = ()) -> Program:
        key = observed, certain
        if key not in self._programs:
            self._programs[key] = compile_program(self.problem, self.max_join, observed=observed, certain=certain)
        return self._programs[key]

    def _log_weight(self, world: Tensor, output: Tensor, reduce: Reduce) -> Tensor:
        program = self._program(False)
        return program.run(Weights.of(world, output, None, zero=program.zero), reduce)

    def _log_prob(self, world: Tensor, output: Tensor, reduce: Reduce) -> Tensor:
        if is_traced(output) or bool((output < 0).any()):
            return super()._log_prob(world, output, reduce)
        program = self._program(True)
        return program.run(Weights.of(world, None, output, zero=program.zero), reduce)


def compile_program(problem: Problem, limit: int, *, observed: bool, certain: Sequence[int] = ()) -> Program:
    """The order of elimination and everything that does not depend on weights."""
    leaves, shared = make_leaves(problem, observed, certain)
    by_size: dict[int, list[int]] = {}
    for v in shared:
        by_size.setdefault(problem.sizes[v], []).append(v)
    batches: list[Sequence[tuple[int, ...]]] = [batch.scopes for leaf in leaves for batch in leaf.batches]
    batches += [[(v,) for v in variables] for variables in by_size.values()]
    try:
        order = best_order(batches, problem.sizes, limit)
    except TooWide as error:
        raise ProblemError(_too_wide(problem, error, limit)) from None
    counts = [len(scopes) for scopes in batches]
    steps = []
    for step in order.steps:
        operands = []
        for batch, numbers, labels in step.operands:
            axes = sorted(range(len(labels)), key=labels.__getitem__)  # the eliminated variable, -1, comes first
            last = len(labels), len(labels) + 1
            shape = [step.shape[j] if j in labels else 1 for j in range(len(step.shape))]
            operands.append(
                Operand(
                    batch,
                    None if len(numbers) == counts[batch] and sorted(numbers) == list(numbers) else indexing(numbers),
                    None if axes == sorted(axes) else (*axes, *last),
                    None if len(shape) + 1 == len(labels) else (step.size, *shape, step.variables),
                )
            )
        counts.append(step.variables)
        steps.append(tuple(operands))
    unary = tuple((size, indexing([v + 1 for v in variables])) for size, variables in by_size.items())
    return Program(tuple(leaves), unary, tuple(steps), order)


def _too_wide(problem: Problem, error: TooWide, limit: int) -> str:
    def name(i: int) -> str:
        return problem.names[i] if i < len(problem.names) else f"auxiliary {i - len(problem.names)}"

    named = ", ".join(name(v) for v in error.variables[:12]) + (" ..." if len(error.variables) > 12 else "")
    return (
        f"variable elimination needs a table of {error.join:,} entries, more than max_join={limit:,}: {named} are too "
        "entangled. Raise max_join if memory allows, split the factors with auxiliary variables, try Compilation, or "
        "use an approximate engine: sampled or amortized"
    )
