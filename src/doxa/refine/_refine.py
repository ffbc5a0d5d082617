r"""Iterative Local Refinement as a layer (Chapter 4, Algorithm ILR, as corrected by errata 3.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from doxa._numerics import truth as as_truth
from doxa.errors import ConfigError
from doxa.fuzzy import Learnable, Logic
from doxa.fuzzy import logic as logic_by_name
from doxa.logic import CNF, And, Expr, KnowledgeBase, ground
from doxa.logic.syntax._simplify import atoms_of
from doxa.logic.unfold._propositional import Propositional
from doxa.refine._base import Direction, Pick, first, random_pick, require_numbers
from doxa.refine._engine import COMBINATIONS, Engine, State, explain
from doxa.refine._plan import Compiler
from doxa.refine._result import Progress, RefineResult, nearest_model

Formulas = Expr | CNF | Propositional | KnowledgeBase | Sequence[Expr] | Mapping[str, Expr]
Target = float | Learnable | Sequence[float | Learnable] | Mapping[str, float | Learnable] | None
_SAME = 1e-7


class Refine(nn.Module):
    r"""Truth values in, refined truth values out: a layer that makes predictions satisfy formulas.

    Each pass evaluates the formula graph upwards and then hands targets downwards: the root's is
    :math:`\hat t' = f(t') + α(\hat t - f(t'))`, and each operator's minimal refinement function turns its own target
    into those of its arguments. Atoms that stand in several places combine the changes they are asked for.

    Args:
        formula: a propositional formula, several of them (a sequence or a mapping by name), clauses, or ground
            knowledge; a knowledge base is grounded over its finite sorts.
        logic: a :class:`doxa.fuzzy.Logic` with the standard negation, or its name.
        target: the wanted truth: a number, a :class:`doxa.fuzzy.Learnable`, one of these for each formula, or None if
            it is given with each call (per example).
        schedule: α in (0, 1], how much of the way to the target each pass goes.
        steps: a fixed number of passes (which can be compiled and exported), or None to go on until each row has
            reached its target, stands still, goes in a two-cycle, or comes no nearer; the best iterate is returned.
        combine: ``"max"``, the largest absolute change; ``"mean"`` and ``"min"`` of those that are not 0; ``"sum"``.
        atoms: what the last axis of the input stands for; by default the atoms in the order in which they appear.
        constants: atoms that stay as they are.
        p: the norm in which single operators are refined minimally, None for closed forms; see ``refinement``.
        ties: a generator to break ties at random; by default the first of equals is taken.
        gradient: ``"all"`` differentiates through every pass, ``"last"`` through the last one only.
        tolerance, patience, max_steps: a row has arrived when its truth is within ``tolerance`` of the target; it is
            given up when it came no nearer for ``patience`` passes, or after ``max_steps``.
        guarantee: ``"sat"`` asks a MaxSAT solver for the nearest satisfying assignment wherever the refined values,
            rounded at 0.5, do not satisfy the formulas.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> layer = Refine(~a & (b | c), "godel")
    >>> layer(torch.tensor([0.5, 0.25, 0.75]))
    tensor([0.0000, 0.2500, 1.0000])
    >>> model = nn.Sequential(nn.Linear(8, 3), nn.Sigmoid(), layer)
    >>> model(torch.rand(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        formula: Formulas,
        logic: str | Logic = "godel",
        target: Target = 1.0,
        schedule: float = 1.0,
        steps: int | None = None,
        combine: str = "max",
        *,
        atoms: Iterable[Expr] | None = None,
        constants: Collection[Expr] = (),
        p: float | None = None,
        ties: torch.Generator | None = None,
        gradient: Literal["all", "last"] = "all",
        tolerance: float = 1e-4,
        patience: int = 10,
        max_steps: int = 500,
        guarantee: Literal["sat"] | None = None,
    ) -> None:
        super().__init__()
        self.formulas, found = _formulas(formula)
        self.atoms: tuple[Expr, ...] = tuple(dict.fromkeys(found if atoms is None else atoms))
        if missing := [a for a in constants if a not in set(self.atoms)]:
            raise ConfigError(f"constants has {missing[0]}, which is not among the atoms; give it in atoms too")
        if not 0 < schedule <= 1:
            raise ConfigError(f"schedule is {schedule}, expected a number above 0 and at most 1")
        if steps is not None and (not isinstance(steps, int) or steps < 1):
            raise ConfigError(f"steps is {steps!r}, expected a positive whole number, or None to run until converged")
        if combine not in COMBINATIONS:
            raise ConfigError(f"combine is {combine!r}, expected one of {', '.join(map(repr, COMBINATIONS))}")
        if gradient not in ("all", "last"):
            raise ConfigError(f"gradient is {gradient!r}, expected 'all' or 'last'")
        if guarantee not in (None, "sat"):
            raise ConfigError(f"guarantee is {guarantee!r}, expected None or 'sat'")
        self.logic = logic_by_name(logic) if isinstance(logic, str) else logic
        self.schedule, self.steps, self.combine, self.gradient = schedule, steps, combine, gradient
        self.tolerance, self.patience, self.max_steps, self.guarantee = tolerance, patience, max_steps, guarantee
        self.constants = frozenset(constants)
        self._pick: Pick = first if ties is None else random_pick(ties)
        self._set_target(target)
        self.operators = self.logic.trainable()
        compiler = Compiler(self.atoms, self.constants, self.logic, p)
        self.engine = Engine(compiler.plan(self.formulas.values(), self._root_directions()), combine)
        pull = torch.tensor(0.0 if self._common is None else schedule * self._common, dtype=torch.float32)
        self.register_buffer("_pull", pull, persistent=False)

    # -- targets ----------------------------------------------------------------------------------------------------

    def _set_target(self, target: Target) -> None:
        names = list(self.formulas)
        self.learnable = nn.ModuleDict()
        self._given = target is None
        if isinstance(target, Mapping):
            if set(target) != set(names):
                raise ConfigError(f"target names {sorted(target)}, expected one for each formula: {names}")
            listed = [target[n] for n in names]
        elif isinstance(target, Sequence):
            if len(target) != len(names):
                raise ConfigError(f"target has {len(target)} entries, expected one for each of {len(names)} formulas")
            listed = list(target)
        else:
            listed = [0.0 if target is None else target] * len(names)
        for i, t in enumerate(listed):
            if isinstance(t, Learnable):
                self.learnable[str(i)] = t
            elif not 0 <= t <= 1:
                raise ConfigError(f"a target is {t}, expected a truth value between 0 and 1")
        self._fixed = [None if isinstance(t, Learnable) else float(t) for t in listed]
        self._common = self._fixed[0] if len(set(self._fixed)) == 1 else None

    def _root_directions(self) -> list[Direction]:
        if self._given:
            return ["both"] * len(self._fixed)
        return ["up" if t == 1 else "down" if t == 0 else "both" for t in self._fixed]

    def _goals(self, x: Tensor, target: Tensor | float | None) -> Tensor:
        """The targets as (formulas, *batch), for x of (atoms, *batch)."""
        batch, count = x.shape[1:], len(self._fixed)
        if self._given != (target is not None):
            own = "has a target of its own; make it with target=None to give one with each call"
            none = "was made with target=None: give the target with each call"
            raise ConfigError(f"this layer {none if self._given else own}")
        if target is not None:
            goal = torch.as_tensor(target, dtype=x.dtype, device=x.device).clamp(0, 1)
            if goal.dim() == len(batch) + 1 and goal.shape[-1] == count:
                return goal.movedim(-1, 0).expand(count, *batch)
            if goal.dim() > len(batch):
                wanted = f"{tuple(batch)} or {(*batch, count)}: one for each row, or for each row and formula"
                raise ConfigError(f"target has shape {tuple(goal.shape)}, expected {wanted}")
            return goal.expand(count, *batch)
        if self._common is not None:
            return x.new_full((count, *batch), self._common)
        values = [
            self.learnable[str(i)]().to(x.dtype) if t is None else x.new_full((), t) for i, t in enumerate(self._fixed)
        ]
        return torch.stack(values).view(count, *[1] * len(batch)).expand(count, *batch)

    # -- passes -----------------------------------------------------------------------------------------------------

    def _first(self, x: Tensor) -> Tensor:
        if not x.dim() or x.shape[-1] != len(self.atoms):
            shown = ", ".join(map(str, self.atoms[:6])) + (", ..." if len(self.atoms) > 6 else "")
            wanted = f"(*batch, {len(self.atoms)}): the atoms are {shown}"
            raise ConfigError(f"the truth values have shape {tuple(x.shape)}, expected {wanted}")
        # rows of atoms in memory too, so that picking rows copies rows
        return _atoms_first(as_truth(require_numbers(x))).contiguous()

    def _wanted(self, state: State, goal: Tensor) -> Tensor:
        goal = goal.unsqueeze(1)
        return goal if self.schedule == 1 else torch.lerp(state.roots, goal, self.schedule)

    def _pass(self, engine: Engine, x: Tensor, state: State, goal: Tensor | float) -> Tensor:
        truth, a = state.roots, self.schedule
        if not isinstance(goal, float):
            wanted = self._wanted(state, goal)
        elif a == 1:
            wanted = torch.full_like(truth, goal)
        else:  # a·goal + (1 - a)·truth, in one operation, the first of them as a tensor if that says it exactly
            pull = cast(Tensor, self._buffers["_pull"])
            exact = pull.dtype == truth.dtype == torch.float32
            wanted = torch.sub(pull, truth, alpha=a - 1) if exact else torch.rsub(truth, a * goal, alpha=a - 1)
        return (x + engine.refine(x, state, wanted, self._pick)).clamp(0, 1)

    def forward(self, x: Tensor, target: Tensor | float | None = None) -> Tensor:
        """RefineResult truth values, ``(*batch, atoms)`` like the input."""
        start = self._first(x)
        if self.steps is None or self.guarantee:
            return self._run(start, self._goals(start, target), False).values
        one_number = target is None and not self._given and self._common is not None
        goal = self._common if one_number else self._goals(start, target)
        assert goal is not None
        now, engine = start, self.engine
        for k in range(self.steps):
            if self.gradient == "last" and k == self.steps - 1:
                now = start + (now - start).detach()
            now = self._pass(engine, now, engine.evaluate(now), goal)
        return now.t() if now.dim() == 2 else now.movedim(0, -1)

    def run(self, x: Tensor, target: Tensor | float | None = None, *, trajectory: bool = False) -> RefineResult:
        """Refine, and tell what happened.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> found = Refine(~a & (b | a), "godel").run(torch.tensor([0.8, 0.2]), trajectory=True)
        >>> found.trajectory
        tensor([[0.8000, 0.2000],
                [0.0000, 0.2000],
                [0.0000, 1.0000]])
        """
        start = self._first(x)
        if start.numel() and not bool(((start >= 0) & (start <= 1)).all()):
            came = f"truth values run from {float(start.min()):g} to {float(start.max()):g}"
            raise ConfigError(f"{came}, expected [0, 1]; did you forget a sigmoid?")
        return self._run(start, self._goals(start, target), trajectory)

    def _gap(self, state: State, goal: Tensor) -> Tensor:
        return (state.formulas.detach() - goal.detach()).abs().amax(0)

    def _run(self, start: Tensor, goal: Tensor, trajectory: bool) -> RefineResult:
        if torch.compiler.is_compiling():
            raise ConfigError("stopping when converged cannot be compiled or exported; give Refine a number of steps")
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.gradient == "all"):
            progress = self._iterate(start, goal, trajectory)
        if self.gradient == "last":
            entry = start + (progress.before_best - start).detach()
            redone = self._pass(self.engine, entry, self.engine.evaluate(entry), goal)
            progress.best = torch.where((progress.best == start).all(0), start, redone)
        return self._report(start, progress)

    def _iterate(self, start: Tensor, goal: Tensor, trajectory: bool) -> Progress:
        """Passes until every row is frozen (or as many as were asked for)."""
        state = self.engine.evaluate(start)
        progress = Progress(start, self._gap(state, goal), self.tolerance, self.patience, trajectory)
        previous = start
        for k in range(self.max_steps if self.steps is None else self.steps):
            frozen, now = progress.status > 0, progress.now
            if self.steps is None and self._all(frozen):
                break
            moved = self._pass(self.engine, now, state, goal)
            if self.steps is None:
                moved = torch.where(frozen, now, moved)
            stuck = torch.full_like(progress.status, 2)
            if len(now):
                step, back = ((moved - x).detach().abs().amax(0) for x in (now, previous))
                stuck = torch.where(step <= _SAME, 2, torch.where((back <= _SAME) & (k > 0), 3, 0))
            state = self.engine.evaluate(moved)
            progress.record(moved, self._gap(state, goal), frozen, k + 1, stuck)
            previous = now
        return progress

    def _all(self, frozen: Tensor) -> bool:
        try:
            return bool(frozen.all())
        except RuntimeError as problem:
            wrong = "stopping when converged depends on the data, which vmap cannot follow"
            raise ConfigError(f"{wrong}; give Refine a number of steps") from problem

    def _report(self, start: Tensor, progress: Progress) -> RefineResult:
        best, status = progress.best, progress.status
        with torch.no_grad():
            satisfied = self.satisfied(best.movedim(0, -1))
        if self.guarantee == "sat":
            best, satisfied, status = nearest_model(
                self.formulas.values(), self.atoms, self.constants, start, best, satisfied, status
            )
        truth = self.truth(best.movedim(0, -1))
        return RefineResult(
            best.movedim(0, -1),
            progress.now.movedim(0, -1),
            truth,
            satisfied,
            (best - start).detach().abs().sum(0),
            progress.iterations,
            status,
            torch.stack(progress.path).movedim(1, -1) if progress.path else None,
        )

    def truth(self, x: Tensor) -> Tensor:
        """The fuzzy truth of the formulas: ``(*batch)`` for one, ``(*batch, formulas)`` for several.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Refine(a & b, "product").truth(torch.tensor([0.5, 0.5]))
        tensor(0.2500)
        """
        values = self.engine.evaluate(self._first(x)).formulas
        return values[0] if len(self._fixed) == 1 else values.movedim(0, -1)

    def satisfied(self, x: Tensor) -> Tensor:
        """Whether the values, rounded at 0.5, satisfy every formula: on 0 and 1 every logic is classical.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Refine(a >> b).satisfied(torch.tensor([[0.9, 0.2], [0.4, 0.2]]))
        tensor([False,  True])
        """
        rounded = (self._first(x) > 0.5).to(torch.float64)
        return (self.engine.evaluate(rounded).formulas > 0.5).all(0)

    def explain(self, x: Tensor, target: float | None = None) -> str:
        """Both passes of the first iteration, node by node, as the dissertation's figure shows them.

        Args:
            x: the truth values of one row, ``(atoms)``.

        >>> from doxa.logic import propositions
        >>> a, b, c = propositions("a b c")
        >>> print(Refine(~a & (b | c), "godel", schedule=0.5).explain(torch.tensor([0.4, 0.3, 0.55])))
                       truth      target
        a             0.4000  ->  0.2250
        !a            0.6000  ->  0.7750
        b             0.3000      0.3000
        c             0.5500  ->  0.7750
        b | c         0.5500  ->  0.7750
        !a & (b | c)  0.5500  ->  0.7750
        """
        if x.dim() != 1:
            raise ConfigError(f"the truth values have shape {tuple(x.shape)}, expected one row, ({len(self.atoms)},)")
        now = self._first(x)
        state = self.engine.evaluate(now)
        wanted = self._wanted(state, self._goals(now, target))
        return explain(self.engine, self.formulas.values(), now, state, wanted, self._pick)

    def extra_repr(self) -> str:
        steps = "until converged" if self.steps is None else f"{self.steps} steps"
        return f"{len(self.formulas)} formulas, {len(self.atoms)} atoms, {self.logic.name or self.logic}, {steps}"


def _atoms_first(x: Tensor) -> Tensor:
    return x.t() if x.dim() == 2 else x.movedim(-1, 0)  # the same, the first for less


def _formulas(formula: Formulas) -> tuple[dict[str, Expr], tuple[Expr, ...]]:
    """Formulas by name, and the atoms in order."""
    named: dict[str, Any]
    if isinstance(formula, KnowledgeBase):
        formula = ground(formula)
    if isinstance(formula, Propositional):
        named = dict(formula.axioms)
        if formula.facts:
            named["facts"] = And(*formula.facts)
        if formula.constraints:
            named["constraints"] = And(*formula.constraints)
        return named, tuple(formula.atoms)
    if isinstance(formula, CNF):
        if None in formula.atoms:
            raise ConfigError("the clauses have auxiliary variables, which are no predictions; give the formula itself")
        return {"formula": formula.formula()}, cast("tuple[Expr, ...]", formula.atoms)
    if isinstance(formula, Expr | str):
        named = {"formula": formula}
    elif isinstance(formula, Mapping):
        named = dict(formula)
    else:
        named = {f"formula {i}": f for i, f in enumerate(formula, 1)}
    if not named:
        raise ConfigError("there is no formula to refine towards; give at least one")
    for name, part in named.items():
        if not isinstance(part, Expr):
            found = f"{name} is {part!r}, expected formulas, as `doxa.logic.propositions` and `parse_formula` make them"
            raise ConfigError(f"{found}; a knowledge base is made with `doxa.parse`")
    return named, atoms_of(*named.values())
