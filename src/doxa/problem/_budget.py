"""How much exact reasoning may cost: counted, so that the same question always gets the same answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from doxa.errors import BudgetError, ConfigError


@dataclass(frozen=True)
class Budget:
    """Every limit of exact reasoning. What does not fit ends in a ``BudgetError`` that names the field to raise.

    Args:
        worlds: the most worlds to list.
        join: the most entries of a table in variable elimination.
        operations: elementary operations of finding an order and of compiling a circuit.
        nodes: of a circuit while it grows, and of remembered components.
        entries: numbers held at a time; a batch that needs more is computed in parts. Knowledge may take a 32nd as many
            entries of grounding and clauses, as ``logic.ground`` counts them.
        seconds: of time for ordering, compiling, or one question; None is no limit. It can only stop work with an
            error: it never decides which method is used or what number comes out.

    >>> Budget(worlds=100).worlds
    100
    """

    worlds: int = 1 << 14
    join: int = 1 << 20
    operations: int = 1 << 24
    nodes: int = 1 << 20
    entries: int = 1 << 26
    seconds: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ConfigError(f"{field.name} is {value}, expected a number above 0")

    @property
    def symbols(self) -> int:
        """The entries that grounding and clauses of knowledge may take."""
        return max(1, self.entries // 32)


class Meter:
    """Counts the work of one task, named as in "ordering 12 variables", against a budget."""

    def __init__(self, budget: Budget, task: str) -> None:
        self.budget = budget
        self.task = task
        self.operations = 0
        self.nodes = 0  # the most at a time
        self._start = time.monotonic()
        self._look = 0  # at the clock, when so many operations are done
        self._uncounted = 0
        self.progress: Callable[[], float] | None = None  # which part of the task is done, where that can be said

    def tick(self, work: int = 1) -> None:
        """Some work is done that takes time but no operations: look at the clock now and then."""
        self._uncounted += work
        if self._uncounted > 1000:
            self._uncounted = 0
            self.check_clock()

    def spend(self, operations: int) -> None:
        """Some operations are done."""
        self.operations += operations
        if self.operations > self.budget.operations:
            self.check_operations(self.operations)
        if self.operations > self._look:
            self._look = self.operations + 5000
            self.check_clock()

    def check_operations(self, operations: int) -> None:
        """An error if these are too many."""
        if operations > self.budget.operations:
            most = f"more than {self.budget.operations:,} operations"
            raise BudgetError("operations", f"{self.task} takes {most}{self._estimate()}; raise Budget(operations=...)")

    def check_nodes(self, nodes: int) -> None:
        """An error if these are too many."""
        self.nodes = max(self.nodes, nodes)
        if nodes > self.budget.nodes:
            most = f"more than {self.budget.nodes:,} nodes and components: the clauses are too entangled"
            remedy = "Raise Budget(nodes=...), split the knowledge, or use an approximate engine: sampled or amortized"
            raise BudgetError("nodes", f"{self.task} takes {most}{self._estimate()}. {remedy}")

    def _estimate(self) -> str:
        """What the whole task would take at the pace of what is done; a bound from above where results are reused."""
        done = 0.0 if self.progress is None else self.progress()
        if not 0.0 < done < 1.0:
            return ""
        return f" (about {100 * done:.2g} % is done, so some {self.operations / done:.1e} operations at this pace)"

    def check_clock(self) -> None:
        """An error if time is over."""
        if self.budget.seconds is not None and time.monotonic() - self._start > self.budget.seconds:
            late = f"could not decide within {self.budget.seconds:g} seconds: {self.task} is not done{self._estimate()}"
            raise BudgetError("seconds", f"{late}; raise Budget(seconds=...)")


CONFLICTS = 5_000  # after so many, a solver stops to look whether it may go on


def solve(engine: Any, assumptions: Sequence[int], check: Callable[[], None] | None = None) -> bool:
    """Whether a solver of pysat finds a model; ``check`` may stop it now and then, and Ctrl-C at any time."""
    answer = None
    while answer is None:
        engine.conf_budget(CONFLICTS)
        answer = solve_limited(engine, assumptions)
        if answer is None and check is not None:
            check()
    return answer


def solve_limited(engine: Any, assumptions: Sequence[int]) -> bool | None:
    """The answer of a solver of pysat within its budget of conflicts; None if it ran out."""
    try:
        answer: bool | None = engine.solve_limited(assumptions=assumptions)
    except Exception as error:
        if "keyboard interrupt" in str(error):  # the engine's own error for Ctrl-C
            raise KeyboardInterrupt from None
        raise
    return answer
