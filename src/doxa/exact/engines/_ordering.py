"""In which order to eliminate variables: three orders are tried, and the cheapest is kept.

*Min-fill* takes the variable whose neighbours are most connected already, *min-weight* the one with the smallest join,
*parallel* as many of one form at once as have small joins: a chain of N equal links is then halved log N times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from doxa.errors import BudgetError
from doxa.problem._budget import Meter

Strategy = Literal["parallel", "min-fill", "min-weight"]
STRATEGIES: tuple[Strategy, ...] = ("parallel", "min-fill", "min-weight")
SMALL = 512  # entries of a join that costs less than the overhead of a step of its own
STEP = 20_000  # the overhead of a step, in entries for a batch of rows
ROWS = 32  # the batch that costs are estimated for


class Operand(NamedTuple):
    """Tables of one batch, and how their axes become those of the join: -1 stands for the eliminated variable."""

    batch: int
    numbers: tuple[int, ...]
    labels: tuple[int, ...]


class Step(NamedTuple):
    """Eliminate K variables of one form at once; the result is a new batch of K tables over their neighbours."""

    operands: tuple[Operand, ...]
    size: int
    shape: tuple[int, ...]
    variables: int

    @property
    def entries(self) -> int:
        return self.variables * self.size * math.prod(self.shape)


@dataclass(frozen=True)
class Order:
    """The steps, and what they cost."""

    strategy: Strategy
    steps: tuple[Step, ...]
    widest: int  # entries of the largest join
    bottleneck: tuple[int, ...]  # its variables

    @property
    def entries(self) -> int:
        return sum(step.entries for step in self.steps)

    @property
    def cost(self) -> int:
        return len(self.steps) * STEP + ROWS * self.entries


Form = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass
class _State:
    """Tables by number, with the variables they mention; and for each variable the tables that mention it."""

    sizes: Sequence[int]
    meter: Meter
    tables: dict[int, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)  # batch, place in it, scope
    mentions: dict[int, set[int]] = field(default_factory=dict)
    batches: int = 0
    next: int = 0

    def add(self, scopes: Iterable[tuple[int, ...]]) -> None:
        for place, scope in enumerate(scopes):
            self.meter.tick(len(scope))
            if scope:
                self.tables[self.next] = self.batches, place, scope
                for v in scope:
                    self.mentions.setdefault(v, set()).add(self.next)
                self.next += 1
        self.batches += 1

    def neighbours(self, variable: int) -> set[int]:
        scopes = [self.tables[number][2] for number in self.mentions[variable]]
        self.meter.spend(sum(map(len, scopes)))
        near = set[int]().union(*scopes)
        near.discard(variable)
        return near

    def join(self, variable: int) -> int:
        return math.prod((self.sizes[v] for v in self.neighbours(variable)), start=self.sizes[variable])

    def fill(self, variable: int) -> int:
        near = self.neighbours(variable)
        self.meter.spend(len(near) ** 2)
        return sum(len(near) - 1 - len(near & self.neighbours(v)) for v in near) // 2

    def ordered(self, variable: int) -> list[int]:
        """The tables of a variable in an order that does not depend on names, as far as that is easy."""
        return sorted(self.mentions[variable], key=lambda n: (self.tables[n][0], self.tables[n][2].index(variable), n))

    def form(self, variable: int) -> tuple[Form, tuple[int, ...]]:
        """Batch and axes of each table of a variable, neighbours numbered as they appear; and the neighbours."""
        near: dict[int, int] = {}
        form = []
        self.meter.tick(len(self.mentions[variable]))
        for number in self.ordered(variable):
            batch, _, scope = self.tables[number]
            form.append((batch, tuple([-1 if v == variable else near.setdefault(v, len(near)) for v in scope])))
        return tuple(form), tuple(near)

    def eliminate(self, variables: Sequence[int]) -> Step:
        """All of these variables, which have one form and no table in common."""
        columns = [self.ordered(v) for v in variables]
        form, near = self.form(variables[0])
        operands = tuple(
            Operand(batch, tuple(self.tables[column[i]][1] for column in columns), labels)
            for i, (batch, labels) in enumerate(form)
        )
        scopes = [self.form(v)[1] for v in variables]
        for variable, column in zip(variables, columns, strict=True):
            for number in column:
                for v in self.tables.pop(number)[2]:
                    if v != variable:
                        self.mentions[v].discard(number)
            del self.mentions[variable]
        self.add(scopes)
        for scope in scopes:  # a neighbour keeps at least the new table
            assert all(self.mentions[v] for v in scope)
        return Step(operands, self.sizes[variables[0]], tuple(self.sizes[v] for v in near), len(variables))


class TooWide(Exception):
    """No order was found whose joins stay within the limit: the entries of one, and its variables."""


def best_order(batches: Sequence[Sequence[tuple[int, ...]]], sizes: Sequence[int], limit: int, meter: Meter) -> Order:
    """The cheapest order for batches of tables, given by their scopes; no join has more than ``limit`` entries."""
    orders, failures = [], []
    for strategy in STRATEGIES:
        try:
            orders.append(find_order(batches, sizes, limit, strategy, meter))
        except TooWide as error:
            failures.append(error)
        except BudgetError as error:
            if error.field == "seconds" or not orders:
                raise
            break  # one order was found; there is no budget left to look for a better one
        else:
            # Nothing beats a parallel order all of whose joins are small: skip the search for another.
            if strategy == "parallel" and orders[0].widest <= SMALL:
                break
    if not orders:
        raise min(failures, key=lambda failure: failure.args[0])
    return min(orders, key=lambda order: order.cost)


def find_order(
    batches: Sequence[Sequence[tuple[int, ...]]], sizes: Sequence[int], limit: int, strategy: Strategy, meter: Meter
) -> Order:
    """An order by one strategy."""
    state = _State(sizes, meter)
    for scopes in batches:
        state.add(scopes)
    keys = {v: _key(state, v, strategy) for v in state.mentions}
    forms: dict[Form, dict[int, None]] = {}
    form_of: dict[int, Form] = {}
    for v in sorted(state.mentions):
        form_of[v] = state.form(v)[0]
        forms.setdefault(form_of[v], {})[v] = None
    steps: list[Step] = []
    widest, bottleneck = 0, tuple[int, ...]()
    while state.mentions:
        meter.spend(len(keys) + 4 * len(forms))
        chosen = _choose(state, keys, forms, form_of, strategy)
        join = keys[chosen[0]][-1]
        if join > widest:
            widest, bottleneck = join, (chosen[0], *sorted(state.neighbours(chosen[0])))
        if join > limit:
            raise TooWide(join, bottleneck)
        near = set().union(*[state.neighbours(v) for v in chosen])
        touched = near if strategy != "min-fill" else near.union(*[state.neighbours(v) for v in near])
        steps.append(state.eliminate(chosen))
        for v in touched.union(chosen):
            members = forms[form_of[v]]
            del members[v]
            if not members:
                del forms[form_of[v]]
        for v in chosen:
            del keys[v], form_of[v]
        for v in touched.difference(chosen):
            keys[v] = _key(state, v, strategy)
            form_of[v] = state.form(v)[0]
            forms.setdefault(form_of[v], {})[v] = None
    return Order(strategy, tuple(steps), widest, bottleneck)


def _key(state: _State, variable: int, strategy: Strategy) -> tuple[int, ...]:
    join = state.join(variable)
    return (state.fill(variable), join) if strategy == "min-fill" else (join,)


def _choose(
    state: _State,
    keys: dict[int, tuple[int, ...]],
    forms: dict[Form, dict[int, None]],
    form_of: dict[int, Form],
    strategy: Strategy,
) -> list[int]:
    """Variables of one form without common tables, to be eliminated next."""
    if strategy == "parallel":
        small = [members for members in forms.values() if keys[next(iter(members))][-1] <= SMALL]
        if small:
            members = max(small, key=lambda members: (len(members), -keys[next(iter(members))][-1]))
            return _independent(state, sorted(members))
    variable = min(keys, key=lambda v: (keys[v], v))
    equal = [v for v in sorted(forms[form_of[variable]]) if keys[v] == keys[variable]]
    return _independent(state, equal)


def _independent(state: _State, candidates: list[int]) -> list[int]:
    blocked: set[int] = set()
    chosen = []
    for v in candidates:
        if v not in blocked:
            chosen.append(v)
            blocked |= state.neighbours(v)
    return chosen
