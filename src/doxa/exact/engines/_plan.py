"""Which engine? Estimated, explained, and within a budget."""

from __future__ import annotations

from dataclasses import dataclass

from doxa.errors import ProblemError
from doxa.exact.circuits._compiler import Budget, BudgetError
from doxa.exact.engines._compilation import Compilation
from doxa.exact.engines._elimination import Elimination
from doxa.exact.engines._enumeration import Enumeration
from doxa.exact.engines._ordering import ROWS, STEP
from doxa.exact.engines._reasoner import ExactReasoner, Impossible
from doxa.problem import Problem


@dataclass(frozen=True)
class Option:
    """An engine that was considered: what a query would cost, or why it cannot be used."""

    engine: str
    cost: float | None  # in table entries for a batch, overheads included
    remark: str


@dataclass(frozen=True, eq=False)
class Plan:
    """The engine for a problem, and why.

    >>> from doxa.problem import addition
    >>> made = plan(addition(15))
    >>> type(made.reasoner).__name__
    'Elimination'
    """

    problem: Problem
    reasoner: ExactReasoner
    options: tuple[Option, ...]

    def explain(self) -> str:
        """What will be computed, at what cost, and under which assumption.

        >>> from doxa.problem import addition
        >>> print(plan(addition(1)).explain())
        Problem(world=(10, 10), output=(2, 10), factors=1)
        assumes that the world variables are independent, given the belief
        uses Enumeration: 100 worlds in one matrix product
        - elimination: 0 steps, largest join 0 entries, ... entries in all
        - compilation: not tried, the engine above is cheap enough
        """
        lines = [str(self.problem), "assumes that the world variables are independent, given the belief"]
        used = type(self.reasoner).__name__
        lines += [f"uses {used}: {option.remark}" for option in self.options if option.engine == used.lower()]
        lines += [f"- {o.engine}: {o.remark}" for o in self.options if o.engine != used.lower()]
        return "\n".join(lines)


def plan(
    problem: Problem,
    *,
    budget: Budget | None = None,
    max_worlds: int = 1 << 14,
    max_join: int = 1 << 20,
    impossible: Impossible = "raise",
) -> Plan:
    """Pick the cheapest exact engine for a problem; an error that says what stands in the way if there is none.

    Enumeration costs the number of worlds times the number of values; elimination what its steps cost; a circuit is
    compiled, within the budget, only when the others do not fit or are expensive.

    Args:
        problem: what to reason about.
        budget: of compiling.
        max_worlds: the most worlds to list.
        max_join: the most entries of a table in elimination.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".

    >>> from doxa.problem import shortest_path
    >>> print(plan(shortest_path(2, 2, (1, 2))).explain().splitlines()[2])
    uses Enumeration: 16 worlds in one matrix product
    """
    options: list[Option] = []
    candidates: list[tuple[float, ExactReasoner]] = []
    if problem.num_worlds <= max_worlds:
        values = sum(problem.world) + sum(problem.output)
        cost = STEP + ROWS * problem.num_worlds * (1 + values / 16)  # a product is cheaper than an exponential
        candidates.append((cost, Enumeration(problem, max_worlds=max_worlds, impossible=impossible)))
        options.append(Option("enumeration", cost, f"{problem.num_worlds:,} worlds in one matrix product"))
    else:
        remark = f"{problem.describe_size()} worlds are more than max_worlds={max_worlds:,}"
        options.append(Option("enumeration", None, remark))
    if problem.factors is None:
        options.append(Option("elimination", None, "the problem has no factors"))
        options.append(Option("compilation", None, "the problem has no factors"))
    else:
        try:
            elimination = Elimination(problem, max_join=max_join, impossible=impossible)
        except ProblemError as error:
            options.append(Option("elimination", None, str(error)))
        else:
            order, entries = elimination.order, elimination.entries
            cost = 2 * STEP + order.cost + ROWS * entries
            candidates.append((cost, elimination))
            remark = f"{len(order.steps)} steps, largest join {order.widest:,} entries, {entries:,} entries in all"
            options.append(Option("elimination", cost, remark))
        if candidates and min(candidates, key=lambda c: c[0])[0] <= 1000 * STEP:
            options.append(Option("compilation", None, "not tried, the engine above is cheap enough"))
        else:
            try:
                compilation = Compilation(problem, budget=budget, impossible=impossible)
            except BudgetError as error:
                options.append(Option("compilation", None, str(error)))
            else:
                circuit = compilation.circuit
                cost = STEP * len(compilation.layers.layers) / 4 + ROWS * circuit.edges
                candidates.append((cost, compilation))
                options.append(Option("compilation", cost, f"a circuit of {len(circuit):,} nodes"))
    if not candidates:
        reasons = "\n".join(f"- {option.engine}: {option.remark}" for option in options)
        raise ProblemError(
            f"no exact engine fits {problem}:\n{reasons}\nGive the problem factors over few variables, raise a limit, "
            "or reason approximately: sampled (doxa.stochastic) or amortized"
        )
    return Plan(problem, min(candidates, key=lambda c: c[0])[1], tuple(options))
