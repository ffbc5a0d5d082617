"""Exact inference without circuits: variable elimination over factors in log space, and a list of all worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from doxa._cache import Cache, Lock
from doxa.errors import BudgetError, ProblemError
from doxa.exact.circuits._semirings import FLOOR, Reduce, restore
from doxa.exact.engines._forward import WORTH, Forward, ForwardProgram, Ranges
from doxa.exact.engines._leaves import Leaves, Structure
from doxa.exact.engines._ordering import Order, TooWide, best_order
from doxa.exact.engines._reasoner import ExactReasoner, too_many
from doxa.exact.engines._weights import Index, Weights, indexing, pick
from doxa.problem import Impossible, Problem
from doxa.problem._budget import Budget, Meter
from doxa.problem._logspace import added_pairwise, is_traced

Operand = tuple[int, Index | None, tuple[int, ...] | None, tuple[int, ...] | None]
"""The tables of a batch, and the numbers, axes and shape by which they become ``(variable, *neighbours, K, R)``."""


@dataclass(frozen=True, eq=False)
class Program:
    """Leaves, then unary weights of shared variables, then what lookups find, then elimination steps."""

    leaves: tuple[Leaves, ...]
    unary: tuple[tuple[int, Index], ...]  # size, and the variables with that many values
    steps: tuple[tuple[Operand, ...], ...]  # join these tables and add up the first axis
    order: Order
    forward: Forward
    forward_steps: ForwardProgram

    @property
    def entries(self) -> int:
        """Numbers held for each row."""
        return sum(leaf.entries for leaf in self.leaves) + self.forward.entries + self.order.entries

    @cached_property
    def zero(self) -> bool:
        """Whether the variable of weight 0 is used."""
        return any(leaf.zero for leaf in self.leaves)

    def run(self, weights: Weights, reduce: Reduce, forward: ForwardProgram | None = None) -> Tensor:
        """log Z of each row; ``forward`` is what lookups do where it is not what they do in general."""
        found = {n: t for leaf in self.leaves for n, t in zip(leaf.numbers, leaf.tables(weights, reduce), strict=True)}
        batches = [found[number] for number in range(len(found))]
        batches += [pick(weights.values, v, 0)[:, :size].transpose(0, 1) for size, v in self.unary]
        looked_up = (forward or self.forward_steps).run(weights, reduce)
        batches += [table for table in looked_up if table.ndim == 3]
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
        batches += [number for number in looked_up if number.ndim == 2]
        scalars = [batch.sum(0) if len(batch) > 1 else batch.squeeze(0) for batch in batches if batch.ndim == 2]
        return restore(sum(scalars[1:], start=scalars[0]))


class Elimination(ExactReasoner):
    """Exact inference by variable elimination over the factors of a problem.

        Σ_w p(w | P) [c(w) = y] = Σ_w Σ_aux Π_i P[i, w_i] Π_f f(w, y, aux)

    is computed by adding up one variable after the other, each within the few factors that mention it (dynamic
    programming; Zhang and Poole 1994, "A simple approach to Bayesian network computations"). The cost is exponential
    only in the number of variables that meet in one join. Chains, such as the carries of an addition, take linear time.
    Trees of lookups, such as partial sums, come first, at the cost of the pairs that there are (``_forward``).

    Args:
        problem: what to reason about; it must have factors.
        budget: the largest join, the operations of finding an order, and the numbers to hold at a time.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".

    >>> import torch
    >>> from doxa.problem import Belief, addition
    >>> reasoner = Elimination(addition(100))
    >>> reasoner.log_prob(Belief.uniform((10,) * 200), torch.zeros(101, dtype=torch.int64)) / 200     # one world
    tensor(-2.3026)
    """

    worth: int = WORTH

    def __init__(self, problem: Problem, *, budget: Budget | None = None, impossible: Impossible = "raise") -> None:
        observed = compile_program(Schedule.of(problem, budget or Budget(), observed=True, worth=self.worth))
        super().__init__(problem, impossible=impossible, budget=budget, entries=observed.entries)
        self._programs: dict[bool, Program] = {True: observed}
        self._within: Cache[Ranges, ForwardProgram] = Cache(8)
        self._lock = Lock()

    @property
    def order(self) -> Order:
        """The order of elimination for observed outputs."""
        return self._program(True).order

    @property
    def entries(self) -> int:
        """Numbers held for each row."""
        return self._program(True).entries

    def _program(self, observed: bool) -> Program:
        if observed not in self._programs:
            with self._lock:  # one thread makes it, the others wait
                if observed not in self._programs:
                    schedule = Schedule.of(self.problem, self.budget, observed=observed, worth=self.worth)
                    self._programs[observed] = compile_program(schedule)
        return self._programs[observed]

    def _log_weight(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        program = self._program(False)
        return program.run(Weights.of(world, output, given, zero=program.zero), reduce)

    def _log_prob(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        if is_traced(output) or bool((output < 0).any()):
            return super()._log_prob(world, output, given, reduce)
        program = self._program(True)
        known = output if given is None else torch.cat([output, given], 1)
        return program.run(Weights.of(world, None, known, zero=program.zero), reduce, self._forward(known))

    def _forward(self, known: Tensor) -> ForwardProgram | None:
        """The lookups without what cannot lead to the outputs."""
        program = self._program(True)
        ranges = program.forward.ranges(known)
        if not ranges:
            return None
        meter = Meter(self.budget, "leaving out what cannot lead to the outputs")
        return self._within.find(ranges, lambda: program.forward.compile(ranges, meter))

    def _rows_of_log_prob(self, output: Tensor, given: Tensor | None) -> int:
        if is_traced(output) or bool((output < 0).any()):
            return self._rows_at_once
        program = self._program(True)
        forward = self._forward(output if given is None else torch.cat([output, given], 1))
        if forward is None:
            return self._rows_at_once
        return self.budget.entries // max(1, program.entries - program.forward.entries + forward.entries)


@dataclass(frozen=True, eq=False)
class Schedule:
    """What elimination would do, found from scopes and sizes alone: no table is made."""

    structure: Structure
    unary: Mapping[int, Sequence[int]]  # size, and the shared variables with that many values
    order: Order
    meter: Meter

    @classmethod
    def of(cls, problem: Problem, budget: Budget, *, observed: bool, worth: int = WORTH) -> Schedule:
        """The order of elimination; a ``BudgetError`` where it does not fit."""
        if problem.factors is None:
            remedy = "pass factors= or build it with Problem.from_factors, or use Enumeration if its worlds are few"
            raise ProblemError(f"the problem has no factors to eliminate variables from; {remedy}")
        meter = Meter(budget, f"finding an order of elimination for {len(problem.sizes):,} variables")
        structure = Structure.of(problem, observed, worth, meter)
        if structure.tables > budget.entries:
            many = f"the tables of the factors have {structure.tables:,} entries, more than {budget.entries:,}"
            remedy = "raise Budget(entries=...), or use Enumeration if the worlds are few"
            raise BudgetError("entries", f"{many}; {remedy}")
        unary: dict[int, list[int]] = {}
        for v in structure.shared:
            unary.setdefault(problem.sizes[v], []).append(v)
        batches: list[Sequence[tuple[int, ...]]] = [shape.part("shared") for shape in structure.shapes]
        batches += [[(v,) for v in variables] for variables in unary.values()]
        batches += [[(v,)] for v in structure.forward.tables]
        try:
            order = best_order(batches, problem.sizes, budget.join, meter)
        except TooWide as error:
            join, variables = error.args
            many = f"variable elimination needs a table of {join:,} entries, more than {budget.join:,}"
            named = ", ".join(problem.name(v) for v in variables[:12]) + " ..." * (len(variables) > 12)
            remedy = "Raise Budget(join=...), split the factors with auxiliary variables, try Compilation, or use an"
            why = f"{named} are too entangled. {remedy} approximate engine: sampled or amortized"
            raise BudgetError("join", f"{many}: {why}") from None
        found = cls(structure, unary, order, meter)
        if found.entries > budget.entries:
            many = f"variable elimination takes about {found.entries:,} numbers for one row"
            raise BudgetError("entries", too_many(many, budget))
        return found

    @property
    def entries(self) -> int:
        """About how many numbers are held for each row."""
        shapes = sum(shape.entries for shape in self.structure.shapes)
        return shapes + self.structure.forward.entries + self.order.entries


def compile_program(schedule: Schedule) -> Program:
    """Everything that does not depend on weights."""
    counts = [len(shape.scopes) for shape in schedule.structure.shapes]
    counts += [len(variables) for variables in schedule.unary.values()]
    counts += [1 for _ in schedule.structure.forward.tables]
    steps = []
    for step in schedule.order.steps:
        schedule.meter.check_clock()
        operands = []
        for batch, numbers, labels in step.operands:
            axes = sorted(range(len(labels)), key=labels.__getitem__)  # the eliminated variable, -1, comes first
            last = len(labels), len(labels) + 1
            shape = [step.shape[j] if j in labels else 1 for j in range(len(step.shape))]
            every = len(numbers) == counts[batch] and sorted(numbers) == list(numbers)
            permuted = None if axes == sorted(axes) else (*axes, *last)
            reshaped = None if len(shape) + 1 == len(labels) else (step.size, *shape, step.variables)
            operands.append((batch, None if every else indexing(numbers), permuted, reshaped))
        counts.append(step.variables)
        steps.append(tuple(operands))
    unary = tuple((size, indexing([v + 1 for v in variables])) for size, variables in schedule.unary.items())
    leaves, forward = tuple(schedule.structure.leaves(schedule.meter)), schedule.structure.forward
    return Program(leaves, unary, tuple(steps), schedule.order, forward, forward.compile((), schedule.meter))


class Enumeration(ExactReasoner):
    """Exact inference over a list of all worlds, for problems that have few of them.

        log p(w, y | P, g) = Σ_i log P[i, w_i] + Σ_j log [y_j = c(w, g)_j]

    for all worlds of all rows, which are then added up. With given variables the function is evaluated for all pairs
    of a row and a world, by broadcasting; otherwise once, when the reasoner is made.

    Args:
        problem: what to reason about.
        budget: the most worlds to list, and numbers to hold at a time.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".

    >>> from doxa.problem import Belief, addition
    >>> reasoner = Enumeration(addition(1))
    >>> (reasoner.log_prob(Belief.uniform((10, 10)), torch.tensor([1, 3])).exp() * 100).round()
    tensor(6.)
    """

    worlds: Tensor
    outputs: Tensor | None

    def __init__(self, problem: Problem, *, budget: Budget | None = None, impossible: Impossible = "raise") -> None:
        require_few_worlds(problem, budget or Budget())
        entries = problem.num_worlds * (3 + len(problem.output))
        super().__init__(problem, impossible=impossible, budget=budget, entries=entries)
        worlds = problem.worlds()
        outputs = None if problem.given else problem(worlds).T.contiguous()  # (Y, worlds)
        self.register_buffer("worlds", worlds if problem.given else worlds[:0], persistent=False)
        self.register_buffer("outputs", outputs, persistent=False)

    def _log_weight(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        joint = self._priors(world)
        for weights, column in zip(output.clamp(min=FLOOR).unbind(1), self._columns(given), strict=True):
            if column.ndim == 1:
                joint = joint + weights.index_select(1, column.long())
            else:
                joint = joint + weights.gather(1, column.expand(joint.shape).long())
        return restore(reduce(joint.T))

    def _log_prob(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        partial = is_traced(output) or bool((output < 0).any())
        agrees: Tensor | None = None
        for value, column in zip(output.unsqueeze(1).unbind(-1), self._columns(given), strict=True):
            same = column == (value.bool() if column.dtype == torch.bool else value)
            same = same | (value < 0) if partial else same
            agrees = same if agrees is None else agrees & same
        joint = self._priors(world)
        assert agrees is not None
        return restore(reduce(torch.where(agrees, joint, FLOOR).T))

    def _columns(self, given: Tensor | None) -> list[Tensor]:
        """The output variables: ``(worlds,)``, or with given values what broadcasts to ``(R, worlds)``."""
        if self.outputs is not None:
            return list(self.outputs.unbind(0))
        assert given is not None
        return self.problem.columns(self.worlds, given.unsqueeze(1))

    def _priors(self, world: Tensor) -> Tensor:
        """log p(w | P) of all worlds, ``(R, worlds)``."""
        clamped = zip(world.clamp(min=FLOOR).unbind(1), self.problem.world, strict=True)
        return added_pairwise([row[:, :size] for row, size in clamped])


def require_few_worlds(problem: Problem, budget: Budget) -> None:
    """A ``BudgetError`` if there are too many worlds to list."""
    if problem.num_worlds > budget.worlds:
        many = f"the problem has {problem.describe_size()} worlds, more than {budget.worlds:,}"
        remedy = "give the problem factors and use Elimination or Compilation, or an approximate engine"
        raise BudgetError("worlds", f"{many}; raise Budget(worlds=...), {remedy}: sampled or amortized")
