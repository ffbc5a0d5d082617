"""Worlds that are too many to list: a SAT solver looks for one that a map of concepts does not explain.

Its clauses say of two worlds w and v and an observation y that φ(w, y) holds and φ(v, y) does not, and that v = α(w).
The map α is assumed. A model is a world that α gets wrong; if there is none, α explains every world.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from pysat.solvers import Glucose4
from torch import Tensor

from doxa.doctor._right_worlds import RightWorlds
from doxa.doctor._scenes import Decoded
from doxa.errors import BudgetError, ProblemError
from doxa.exact.circuits._encoding import Booleans, encode
from doxa.problem import Problem
from doxa.problem._budget import Meter

CONFLICTS = 100_000  # of the solver, for each world it looks for


class SymbolicWorlds:
    """Looks for worlds that maps do not explain.

    An object has one of so many joint values, of which the variables about it are parts.

    Raises:
        ProblemError: what the knowledge says is no function of worlds that is defined everywhere.
    """

    def __init__(self, right: RightWorlds, objects: Sequence[int], decode: Decoded, meter: Meter) -> None:
        self.meter = meter
        self.top, self.clauses = 0, list[list[int]]()
        self.active = self._new()  # assumed: the second world is not right
        numbers = right.possible.nonzero().squeeze(1).tolist()
        chosen = {number: self._new() for number in numbers}
        self._one_of(list(chosen.values()))
        self.values = [[[self._new() for _ in range(size)] for size in objects] for _ in range(2)]
        for world in self.values:
            for own in world:
                self._one_of(own)
        wrong: dict[int, list[int]] = {number: [-chosen[number], -self.active] for number in numbers}
        variables = [[self._parts(world, *decode[i]) for i in range(len(decode))] for world in self.values]
        for part in right.parts:
            for side in range(2):
                outputs, given = self._copy(part.problem, [variables[side][i] for i in part.columns])
                for number in numbers:
                    place = int(part.places[number])
                    if place < 0:
                        continue
                    if part.given is not None:
                        self.clauses += [
                            [-chosen[number], own[v]] for own, v in zip(given, part.given[place].tolist(), strict=True)
                        ]
                    for own, v in zip(outputs, part.observed[place].tolist(), strict=True):
                        if v < 0:
                            continue
                        if side == 0:
                            self.clauses.append([-chosen[number], own[v]])
                        else:
                            wrong[number].append(-own[v])
        self.clauses += list(wrong.values())
        self.solver = Glucose4(bootstrap_with=self.clauses)
        self.links: dict[tuple[int, int, int], int] = {}

    def close(self) -> None:
        """Free the solver."""
        self.solver.delete()

    def occurring(self, column: int) -> list[int]:
        """The joint values that an object has in some right world."""
        return [v for v, literal in enumerate(self.values[0][column]) if self._solve([literal])]

    def counterexample(self, concepts: Sequence[int], table: Sequence[Tensor]) -> tuple[list[int], list[int]] | None:
        """A world that is not explained when it is taken for another, and that other; None if there is none."""
        assumed = [self.active]
        for k in set(concepts):
            for value, taken_for in enumerate(table[k].tolist()):
                assumed.append(self._link(concepts, k, value, taken_for))
        if not self._solve(assumed):
            return None
        true = set(self.solver.get_model())
        first, second = [[next(v for v, x in enumerate(own) if x in true) for own in side] for side in self.values]
        return first, second

    def _link(self, concepts: Sequence[int], k: int, value: int, taken_for: int) -> int:
        """A literal that says that a concept takes a value for another."""
        key = (k, value, taken_for)
        if key not in self.links:
            self.links[key] = self._new()
            for column, concept in enumerate(concepts):
                if concept == k:
                    pair = [-self.values[0][column][value], self.values[1][column][taken_for]]
                    self.solver.add_clause([-self.links[key], *pair])
        return self.links[key]

    def _solve(self, assumed: Sequence[int]) -> bool:
        for _ in range(CONFLICTS // 1000):
            self.meter.check_clock()
            self.solver.conf_budget(1000)
            if (answer := self.solver.solve_limited(assumptions=assumed)) is not None:
                return bool(answer)
        raise BudgetError("operations", f"the SAT solver met more than {CONFLICTS:,} conflicts")

    def _new(self) -> int:
        self.top += 1
        return self.top

    def _one_of(self, literals: list[int]) -> None:
        self.meter.tick(len(literals) ** 2)
        self.clauses.append(literals)
        self.clauses += [[-a, -b] for a, b in combinations(literals, 2)]

    def _parts(self, side: list[list[int]], column: int, stride: int, size: int) -> list[int]:
        """A literal for each value of a variable that is a part of an object."""
        own = side[column]
        if stride == 1 and len(own) == size:
            return own
        found = [self._new() for _ in range(size)]
        self._one_of(found)
        self.clauses += [[-literal, found[v // stride % size]] for v, literal in enumerate(own)]
        return found

    def _copy(self, problem: Problem, world: Sequence[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
        """The clauses of a problem about a world; literals for each value of its outputs and of what is given."""
        program = problem.program
        if program is None or program.checks or not all(step.total for step in program.steps):
            raise ProblemError("the problem is no program that is defined everywhere")
        found, sizes = encode(problem, self.meter).cnf, problem.sizes
        booleans, start = Booleans(sizes), self._shifted([list(clause) for clause in found.clauses], found.variables)
        every = [[self._literal(booleans, start, i, v) for v in range(size)] for i, size in enumerate(sizes)]
        count, told = len(problem.world), len(problem.world) + len(problem.output)
        outputs, given = every[count:told], every[told : told + len(problem.given)]
        for mine, its in zip(world, every, strict=False):
            for a, b in zip(mine, its, strict=True):
                self.clauses += [[-a, b], [a, -b]]
        return outputs, given

    def _shifted(self, clauses: list[list[int]], variables: int) -> int:
        start = self.top
        self.top += variables
        self.meter.tick(len(clauses))
        self.clauses += [[x + start if x > 0 else x - start for x in clause] for clause in clauses]
        return start

    def _literal(self, booleans: Booleans, start: int, variable: int, value: int) -> int:
        literal = booleans.literal(variable, value)
        if literal is None:  # it always has this value
            literal_true = self._new()
            self.clauses.append([literal_true])
            return literal_true
        return literal + start if literal > 0 else literal - start
