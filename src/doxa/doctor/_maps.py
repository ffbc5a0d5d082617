"""Which maps of concepts explain everything: a SAT solver proposes maps, and learns from the worlds they get wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from pysat.card import ITotalizer
from pysat.examples.hitman import Hitman
from pysat.solvers import Glucose4
from torch import Tensor

from doxa.doctor._scenes import Mapped, seconds_left
from doxa.doctor._symbolic import SymbolicWorlds
from doxa.errors import BudgetError, ProblemError
from doxa.exact.circuits import compile_cnf
from doxa.logic import CNF
from doxa.problem import Budget
from doxa.problem._budget import Meter

COMPILED = 1 << 17  # pairs of a world and a world it may be taken for, written out as clauses to count by a circuit
LISTED = 200  # maps, before a circuit is compiled
CLAUSES = 1 << 22  # that say what a map is
CONFLICTS = 20_000  # of the solver, for each map it looks for
BLOCK = 1 << 16  # worlds that are looked at together
LEARNED = 64  # clauses from one wrong map
LEAST = 1 << 10  # operations that looking at one map costs, however few worlds there are
HITTING = 200  # shortcuts that are looked at to find the fewest labels
Moves = dict[int, int]
Told = tuple[int, int, tuple[int, ...]]
"""That an object, which a concept truly has this value of, is read as one of these values."""


class MapSearch:
    """Maps α as models of clauses: variable (k, v, u) says that concept k, with so many values, takes value v for u."""

    def __init__(
        self,
        sizes: Sequence[int],
        scenes: Sequence[Mapped],
        meter: Meter,
        told: Iterable[Sequence[Sequence[Told]]] = (),
    ) -> None:
        """``told``: of each labelled row, what the labels say under each world that it may truly be; one of these."""
        self.sizes, self.scenes, self.meter = sizes, scenes, meter
        if sum(n**3 for n in sizes) > 2 * CLAUSES:
            said = f"maps of a concept with {max(sizes):,} values take more than {CLAUSES:,} clauses"
            raise BudgetError("entries", f"could not decide: {said}")
        self.starts = [sum(n * n for n in sizes[:k]) for k in range(len(sizes))]
        # A value that never occurs may be taken for anything; the identity stands for all of that.
        occurs: list[set[int]] = [set() for _ in sizes]
        self.unlisted = [self._unlisted(scene) for scene in scenes]
        for scene, unlisted in zip(scenes, self.unlisted, strict=True):
            for place, concept in enumerate(scene.concepts):
                occurs[concept] |= set() if unlisted is None else set(unlisted.occurring(place))
        for scene in scenes:
            for concept, column in zip(scene.concepts, scene.worlds.unbind(-1), strict=True):
                occurs[concept] |= set(torch.unique(column).tolist())
        if sizes and not any(occurs):
            raise ProblemError(
                "could not decide: no world has to be explained, for the knowledge holds in none, or there are no "
                "data; `doxa solve` says whether it can hold"
            )
        self.base: list[list[int]] = []
        for k, size in enumerate(sizes):
            for value in range(size):
                row = [self.variable(k, value, u) for u in range(size)]
                if value not in occurs[k]:
                    self.base += [[row[value]], *[[-v] for v in row if v != row[value]]]
                    continue
                self.base.append(row)
                self.base += [[-a, -b] for i, a in enumerate(row) for b in row[i + 1 :]]
        self.identity = [self.variable(k, v, v) for k, size in enumerate(sizes) for v in range(size)]
        self.labelled = {self.variable(k, v, v): (k, v) for k, values in enumerate(occurs) for v in values}
        self.variables = self.top = sum(n * n for n in sizes)
        self.base += [clause for scene in scenes for clause in self._alike(scene)]
        for alternatives in told:
            self._tell(alternatives)
        self.numbered = self.top  # variables that clauses of the base have
        self.solver = Glucose4(bootstrap_with=self.base)
        self.solver.set_phases(self.identity)  # maps that move little say most clearly what is wrong with them
        self.shortcut = self.new_variable()  # assumed: the map is not the identity
        self.solver.add_clause([-self.shortcut, *[-v for v in self.identity]])

    def _unlisted(self, scene: Mapped) -> SymbolicWorlds | None:
        if scene.unlisted is None:
            return None
        posed, error = scene.unlisted
        try:
            return SymbolicWorlds(posed, [self.sizes[k] for k in scene.concepts], scene.decode, self.meter)
        except ProblemError:
            raise error from None

    def _alike(self, scene: Mapped) -> Iterator[list[int]]:
        """What a value cannot be taken for, from the worlds in which all variables have that value."""
        if len(set(scene.concepts)) > 1 or not len(scene.worlds):
            return
        size = self.sizes[scene.concepts[0]]
        rows = (scene.worlds == scene.worlds[:, :1]).all(-1).nonzero().squeeze(1)
        rows = rows[: self.meter.budget.worlds // size].repeat_interleave(size)
        taken_for = torch.arange(size).repeat(len(rows) // size)
        bad = self.mistaken(scene, taken_for.unsqueeze(-1).expand(-1, scene.worlds.shape[-1]), rows)
        for value, other in torch.stack([scene.worlds[rows[bad], 0], taken_for[bad]], -1).tolist():
            yield [-self.variable(scene.concepts[0], value, other)]

    def _tell(self, alternatives: Sequence[Sequence[Told]]) -> None:
        """One of these holds. Where there are several, a variable for each, which is true just if it does."""
        readings = [[[self.variable(k, v, u) for u in allowed] for k, v, allowed in one] for one in alternatives]
        if len(readings) == 1:
            self.base += readings[0]
            return
        chosen = [self._all_of([self._any_of(reading) for reading in one]) for one in readings]
        self.base.append(chosen)

    def _any_of(self, literals: Sequence[int]) -> int:
        if len(literals) == 1:
            return literals[0]
        found = self.new_variable()
        self.base += [[-found, *literals], *[[found, -literal] for literal in literals]]
        return found

    def _all_of(self, literals: Sequence[int]) -> int:
        return -self._any_of([-literal for literal in literals])

    def __enter__(self) -> MapSearch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.solver.delete()
        for unlisted in self.unlisted:
            if unlisted is not None:
                unlisted.close()
        if "keyboard interrupt" in str(error):  # Ctrl-C, caught and renamed by the solver
            raise KeyboardInterrupt from None

    def variable(self, concept: int, value: int, taken_for: int) -> int:
        return 1 + self.starts[concept] + value * self.sizes[concept] + taken_for

    def new_variable(self) -> int:
        self.top += 1
        return self.top

    def mistaken(self, scene: Mapped, taken_for: Tensor, rows: Tensor) -> Tensor:
        """Which of these worlds do not explain the rows that they are taken for; looked at in blocks."""
        found = []
        for start in range(0, len(rows), BLOCK):
            self.meter.check_clock()
            fine = scene.explains(taken_for[start : start + BLOCK], rows[start : start + BLOCK])
            found.append((~fine).nonzero().squeeze(1) + start)
        return torch.cat(found) if found else rows

    def solve(self, assumptions: Sequence[int]) -> bool:
        """Is there a model? Asked a few conflicts at a time, so that the clock is seen."""
        for _ in range(CONFLICTS // 1000):
            self.meter.check_clock()
            self.solver.conf_budget(1000)
            answer = self.solver.solve_limited(assumptions=assumptions)
            if answer is not None:
                return bool(answer)
        raise BudgetError("operations", f"the SAT solver met more than {CONFLICTS:,} conflicts")

    def find(self, *assumptions: int) -> list[int] | None:
        """A map that explains everything, as its true variables; None if there is none."""
        while True:
            if not self.solve(assumptions):
                return None
            model = [v for v in self.solver.get_model()[: self.variables] if v > 0]
            forbidden = self.wrong(model)
            if not forbidden:
                return model
            for clause in forbidden:
                self.solver.add_clause(clause)

    def table(self, model: Sequence[int]) -> list[Tensor]:
        """What each concept takes each value for."""
        taken = iter(model)  # sorted: one variable for each value
        return [
            torch.tensor([(next(taken) - 1 - start) % size for _ in range(size)])
            for start, size in zip(self.starts, self.sizes, strict=True)
        ]

    def moves(self, model: Sequence[int]) -> tuple[Moves, ...]:
        return tuple({v: u for v, u in enumerate(row.tolist()) if u != v} for row in self.table(model))

    def wrong(self, model: Sequence[int]) -> list[list[int]]:
        """Clauses that forbid what the map does to worlds it gets wrong; none if it explains everything."""
        table = self.table(model)
        for scene, unlisted in zip(self.scenes, self.unlisted, strict=True):
            if unlisted is not None:
                self.meter.spend(LEAST)
                if (found := unlisted.counterexample(scene.concepts, table)) is not None:
                    return [self.clause(scene, *found)]
                continue
            self.meter.spend(max(len(scene.worlds), LEAST))
            columns = zip(scene.concepts, scene.worlds.unbind(-1), strict=True)
            mapped = torch.stack([table[k][column] for k, column in columns], -1)
            bad = self.mistaken(scene, mapped, torch.arange(len(mapped)))
            if len(bad):
                # Worlds of few different values forbid more.
                different = (scene.worlds[bad].sort(-1).values.diff(dim=-1) != 0).sum(-1)
                bad = bad[different.argsort(stable=True)[:LEARNED]]
                pairs = zip(scene.worlds[bad].tolist(), mapped[bad].tolist(), strict=True)
                return [self.clause(scene, world, taken_for) for world, taken_for in pairs]
        return []

    def clause(self, scene: Mapped, world: Sequence[int], taken_for: Sequence[int]) -> list[int]:
        """Not all values of a world are taken for these."""
        triples = zip(scene.concepts, world, taken_for, strict=True)
        return sorted({-self.variable(k, v, u) for k, v, u in triples})

    def simplest(self, show: int) -> Iterator[list[int]]:
        """Shortcuts that move the fewest values, in order."""
        moved = [-v for v in self.labelled]
        bound = 0
        with ITotalizer(lits=moved, ubound=min(8, len(moved)), top_id=self.top) as totalizer:
            self._add(totalizer.cnf.clauses, totalizer.top_id)
            blocked = self.new_variable()
            while show:
                if bound >= len(totalizer.rhs) - 1 and len(totalizer.rhs) < len(moved):
                    totalizer.increase(ubound=min(2 * bound + 2, len(moved)), top_id=self.top)
                    self._add(totalizer.cnf.clauses[-totalizer.nof_new :], totalizer.top_id)
                at_most = [-totalizer.rhs[bound]] if bound < len(totalizer.rhs) else []
                model = self.find(self.shortcut, blocked, *at_most)
                if model is not None:
                    yield model
                    show -= 1
                    self.solver.add_clause([-blocked, *[-v for v in model]])
                elif at_most:
                    bound += 1
                else:
                    return

    def _add(self, clauses: Sequence[Sequence[int]], top: int) -> None:
        for clause in clauses:
            self.solver.add_clause(clause)
        self.top = max(self.top, top)

    def maps(self, limit: int) -> tuple[list[list[Tensor]], bool]:
        """Maps that explain everything, what each takes each value of each concept for; and whether these are all."""
        found: list[list[Tensor]] = []
        for model in self._models():
            if len(found) == limit:
                return found, False
            found.append(self.table(model))
        return found, True

    def count(self, limit: int) -> tuple[int, bool]:
        """How many maps explain everything, and whether that is all: listed where they are few, else by a circuit."""
        found = 0
        for found, _ in enumerate(self._models(), 1):
            if found > limit:
                return limit, False
            if found == LISTED and (exact := self._compiled()) is not None:
                return exact, True
        return found, True

    def _models(self) -> Iterator[list[int]]:
        blocked = self.new_variable()
        while (model := self.find(blocked)) is not None:
            yield model
            self.solver.add_clause([-blocked, *[-v for v in model]])

    def _compiled(self) -> int | None:
        pairs = sum(len(s.worlds) * math.prod([self.sizes[k] for k in s.concepts]) for s in self.scenes)
        if pairs > COMPILED or any(unlisted is not None for unlisted in self.unlisted):
            return None
        clauses = [*self.base, *[clause for scene in self.scenes for clause in self._forbidden(scene)]]
        try:
            budget = Budget(seconds=seconds_left(self.meter))
            return compile_cnf(CNF.from_clauses(clauses, self.numbered), budget).count()
        except BudgetError:
            return None

    def _forbidden(self, scene: Mapped) -> Iterator[list[int]]:
        """Every way in which a world is taken for one with another output."""
        ranges = [torch.arange(self.sizes[k]) for k in scene.concepts]
        everything = torch.cartesian_prod(*ranges).reshape(-1, len(ranges))
        for number, world in enumerate(scene.worlds.tolist()):
            self.meter.check_clock()
            # two variables of one concept with one value are taken for one value
            key = list(zip(scene.concepts, world, strict=True))
            first = [key.index(k) for k in key]
            candidates = everything[(everything == everything[:, first]).all(-1)]
            fine = scene.explains(candidates, torch.full((len(candidates),), number))
            for taken_for in candidates[~fine].tolist():
                yield self.clause(scene, world, taken_for)

    def labels(self) -> tuple[tuple[int, int], ...]:
        """The fewest labels, as concept and value, that leave only the identity: every shortcut moves one of them."""
        chosen: list[int] = []
        with Hitman(solver="g4", htype="sorted") as hitting:
            for _ in range(HITTING):
                model = self.find(self.shortcut, *chosen)
                if model is None:
                    return tuple(sorted(self.labelled[v] for v in chosen))
                hitting.hit(sorted(set(self.labelled) - set(model)))
                chosen = list(hitting.get())
        raise BudgetError("operations", f"more than {HITTING} shortcuts have to be ruled out")
