"""Which engine? Estimated from sizes, explained, and within a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from doxa import _html
from doxa.errors import BudgetError, ProblemError
from doxa.exact.circuits._encoding import count_clauses
from doxa.exact.engines._compilation import Compilation
from doxa.exact.engines._elimination import Elimination, Enumeration, Schedule, require_few_worlds
from doxa.exact.engines._ordering import ROWS, STEP
from doxa.exact.engines._reasoner import ExactReasoner
from doxa.problem import Impossible, Problem
from doxa.problem._budget import Budget

CHEAP = 1000 * STEP  # what costs less is not worth compiling a circuit for


@dataclass(frozen=True)
class Option:
    """An engine that was considered: what a query would cost, or why it cannot be used."""

    engine: str
    cost: float | None  # in table entries for a batch, overheads included
    remark: str


@dataclass(frozen=True, eq=False)
class ExactPlan:
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
        uses Enumeration: 100 worlds
        - elimination: 0 steps, largest join 0 entries, 15 entries in all
        - compilation: not considered, the engine above is cheap enough
        """
        lines = [str(self.problem), "assumes that the world variables are independent, given the belief"]
        used = type(self.reasoner).__name__
        lines += [f"uses {used}: {o.remark}" for o in self.options if o.engine == used.lower()]
        lines += [f"- {o.engine}: {o.remark}" for o in self.options if o.engine != used.lower()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        used = type(self.reasoner).__name__.lower()
        rows = [
            (
                _html.span("good", o.engine) if o.engine == used else o.engine,
                "" if o.cost is None else f"{o.cost:.2g}",
                o.remark,
            )
            for o in self.options
        ]
        about = [_html.line(text) for text in self.explain().split("\n")[:2]]
        return _html.box(*about, _html.table(("engine", "cost of a batch, in table entries", "what it would do"), rows))


def plan(problem: Problem, *, budget: Budget | None = None, impossible: Impossible = "raise") -> ExactPlan:
    """Pick the cheapest exact engine for a problem; an error that says what stands in the way if there is none.

    What each engine would cost is estimated by counting, from sizes alone; only the one that is picked is built. A
    circuit is compiled, within the budget, when the others do not fit or are expensive. If that takes more than
    the budget, the next one is picked.

    Args:
        problem: what to reason about.
        budget: the limits.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".

    >>> from doxa.problem import shortest_path
    >>> print(plan(shortest_path(2, 2, (1, 2))).explain().splitlines()[2])
    uses Enumeration: 16 worlds
    """
    return plan_for(str(problem), problem, budget=budget or Budget(), impossible=impossible)


REMEDY = (
    "Give the problem factors over few variables, raise a limit, or reason approximately: sampled (doxa.stochastic) "
    "or amortized"
)


def plan_for(what: str, problem: Problem, *, budget: Budget, impossible: Impossible, remedy: str = REMEDY) -> ExactPlan:
    """As ``plan``; where no engine fits, the error says so of ``what``, and how to mend it."""
    options = [_considered(engine, problem, budget) for engine in ("enumeration", "elimination")]
    least = min((option.cost for option in options if option.cost is not None), default=None)
    if problem.formula is None and least is not None and least <= CHEAP:
        options.append(Option("compilation", None, "not considered, the engine above is cheap enough"))
    else:
        options.append(_considered("compilation", problem, budget))
    for option in sorted((o for o in options if o.cost is not None), key=lambda o: o.cost or 0.0):
        try:
            reasoner = ENGINES[option.engine](problem, budget=budget, impossible=impossible)
        except BudgetError as error:
            if error.field == "seconds":  # a clock may stop work, but not choose a method
                raise
            options[options.index(option)] = Option(option.engine, None, str(error))
        else:
            return ExactPlan(problem, reasoner, tuple(options))
    reasons = "\n".join(f"- {option.engine}: {option.remark}" for option in options)
    raise ProblemError(f"no exact engine fits {what}:\n{reasons}\n{remedy}")


ENGINES: dict[str, Callable[..., ExactReasoner]] = {
    "enumeration": Enumeration,
    "elimination": Elimination,
    "compilation": Compilation,
}


def _considered(engine: str, problem: Problem, budget: Budget) -> Option:
    """An engine with what a question would cost and a remark; without a cost where it cannot be used."""
    if engine != "enumeration" and problem.factors is None and (problem.formula is None or engine == "elimination"):
        return Option(engine, None, "the problem has no factors")
    try:
        if engine == "enumeration":
            require_few_worlds(problem, budget)
            operations = 4 + len(problem.world) + 2 * len(problem.output)
            cost = STEP * operations / 8 + ROWS * problem.num_worlds * (2 + len(problem.output))
            return Option(engine, cost, f"{problem.num_worlds:,} worlds")
        if engine == "compilation":
            clauses = count_clauses(problem, budget)
            return Option(engine, 2 * STEP + 8 * ROWS * clauses, f"a circuit of about {clauses:,} clauses")
        schedule = Schedule.of(problem, budget, observed=True)
    except BudgetError as error:
        if error.field == "seconds":
            raise
        return Option(engine, None, str(error))
    order, entries = schedule.order, schedule.entries
    remark = f"{len(order.steps)} steps, largest join {order.widest:,} entries, {entries:,} entries in all"
    return Option(engine, 2 * STEP + order.cost + ROWS * entries, remark)
