"""Functions from worlds ``(..., W)`` (and given values ``(..., G)``) to outputs, which can be pickled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import KnowledgeError, ProblemError
from doxa.logic import Count, Expr, postorder
from doxa.logic.syntax._simplify import evaluate
from doxa.logic.unfold._propositional import Propositional
from doxa.problem._belief import Belief
from doxa.problem._factors import Factor, Program, Variable
from doxa.problem._logspace import common_batch


def together(worlds: Tensor, given: Tensor | None) -> Tensor:
    """Worlds and given values side by side."""
    if given is None:
        return worlds
    batch = common_batch(worlds, given)
    return torch.cat([worlds.expand(*batch, -1), given.expand(*batch, -1)], -1)


@dataclass(frozen=True, eq=False)
class EachWorld:
    """A Python function of one world, applied to each in turn; ``spread`` passes its values as arguments."""

    function: Callable[..., Any]
    worlds: int
    outputs: int
    spread: bool = False

    def __call__(self, worlds: Tensor, given: Tensor | None = None) -> Tensor:
        both = together(worlds, given)
        rows = [tuple(row) for row in both.reshape(-1, both.shape[-1]).tolist()]
        values = [self._ints(row) for row in rows]
        return torch.tensor(values, dtype=torch.int64, device=both.device).reshape(*both.shape[:-1], self.outputs)

    def _ints(self, row: tuple[int, ...]) -> list[int]:
        world, given = row[: self.worlds], row[self.worlds :]
        returned = self.function(*row) if self.spread else self.function(world, *([given] if given else []))
        try:
            values = [index(value) for value in (returned if isinstance(returned, Iterable) else (returned,))]
        except TypeError:
            values = []
        if len(values) != self.outputs:
            wanted = f"{self.outputs} int(s): one per output"
            raise ProblemError(f"the function returned {returned!r} for world {world}, expected {wanted}")
        return values


@dataclass(frozen=True, eq=False)
class EachArgument:
    """A function of one tensor per world and given variable that returns a tensor, or a sequence of one per output."""

    function: Callable[..., Any]

    def __call__(self, worlds: Tensor, given: Tensor | None = None) -> Tensor:
        outputs = self.function(*together(worlds, given).unbind(-1))
        return torch.stack([outputs] if isinstance(outputs, Tensor) else list(outputs), -1)


class Columns(ABC):
    """A function whose outputs come one by one, each in the smallest shape that it needs."""

    @abstractmethod
    def columns(self, worlds: Tensor, given: Tensor | None) -> list[Tensor]:
        """The output variables; the batch axes of worlds, given and the columns broadcast against each other."""

    def __call__(self, worlds: Tensor, given: Tensor | None = None) -> Tensor:
        batch = common_batch(worlds, given)
        return torch.stack([column.long().expand(batch) for column in self.columns(worlds, given)], -1)


@dataclass(frozen=True, eq=False)
class FromProgram(Columns):
    """The function that factors stand for."""

    program: Program
    outputs: int

    def columns(self, worlds: Tensor, given: Tensor | None) -> list[Tensor]:
        first = self.program.worlds
        known = dict(enumerate(worlds.unbind(-1)))
        if given is not None:
            known.update(enumerate(given.unbind(-1), first + self.outputs))
        values, allowed = self.program.run(known)
        if allowed is not None and not allowed.all():
            both = together(worlds, given)
            row = both[~allowed.expand(both.shape[:-1])][0].tolist()
            world = f"{tuple(row[:first])}" + (f" with {tuple(row[first:])} given" if row[first:] else "")
            raise ProblemError(f"the factors allow no output for world {world}; every world needs exactly one")
        return values[first : first + self.outputs]


@dataclass(frozen=True, eq=False)
class Holds(Columns):
    """Whether a formula is true. ``places``: the variable of each atom, given ones last, and its value there."""

    formula: Expr
    places: Mapping[Expr, tuple[int, int]]

    @cached_property
    def edges(self) -> int:
        """The nodes of the formula, with their children."""
        return sum(1 + len(node.children) for node in postorder(self.formula))

    def columns(self, worlds: Tensor, given: Tensor | None) -> list[Tensor]:
        values = [*worlds.unbind(-1), *([] if given is None else given.unbind(-1))]
        truth = evaluate(self.formula, {atom: values[v] == value for atom, (v, value) in self.places.items()})
        return [truth if isinstance(truth, Tensor) else torch.tensor(bool(truth), device=worlds.device)]


class Atoms(NamedTuple):
    """Ground atoms as variables: an atom alone has the values false and true, the atoms f(t) = v are values of f(t)."""

    variables: Sequence[tuple[Expr, ...]]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, theory: Propositional) -> Atoms:
        """The variables of ground knowledge, in order of appearance."""
        family = {atom: c.children for c in theory.constraints if isinstance(c, Count) for atom in c.children}
        variables = list(dict.fromkeys(family.get(atom, (atom,)) for atom in theory.atoms))
        return cls(variables, tuple(len(atoms) if atoms[0] in family else 2 for atoms in variables))

    @property
    def places(self) -> dict[Expr, tuple[int, int]]:
        """For each atom its variable, and the value at which it is true."""
        both = enumerate(zip(self.variables, self.sizes, strict=True))
        return {x: (v, i if len(atoms) == size else 1) for v, (atoms, size) in both for i, x in enumerate(atoms)}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the functions and of the other atoms."""
        both = zip(self.variables, self.sizes, strict=True)
        return tuple(str(x[0]).rsplit(" = ", 1)[0] if len(x) == size else str(x[0]) for x, size in both)


class OverAtoms:
    """What has ground atoms for a world: beliefs and worlds in terms of them."""

    variables: Sequence[tuple[Expr, ...]]
    value_of: Mapping[Expr, tuple[int, int]]

    def belief(self, probs: Mapping[Expr, Tensor | float]) -> Belief:
        """A belief from the probability of each atom, by atom; the values of a function must sum to 1.

        >>> from doxa.exact import Constraint
        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a | b).belief({a: torch.tensor([0.5, 0.1]), b: torch.tensor([0.5, 0.2])})
        Belief(batch=(2,), sizes=(2, 2), dtype=torch.float32)
        >>> Constraint(a | b).belief({a: 0.5, b: 0.25})
        Belief(batch=(), sizes=(2, 2), dtype=torch.float32)
        """
        came: object = probs
        if not isinstance(came, Mapping):
            raise KnowledgeError(f"a {type(came).__name__} came, expected a dict with one probability for each atom")
        missing = [atom for atom in self.value_of if atom not in probs]
        unknown: list[object] = [atom for atom in probs if atom not in self.value_of]
        if missing or unknown:
            lacks, has = (", ".join(map(str, atoms[:5])) or "nothing" for atoms in (missing, unknown))
            wrong = f"the belief lacks {lacks} and has {has} that the knowledge does not mention"
            strings = [atom for atom in unknown if isinstance(atom, str)]
            remedy = "; the keys are atoms, not strings: {str(a): a for a in constraint.value_of} has them by name"
            wanted = f"give one probability for each of its {len(self.value_of)} atoms"
            raise KnowledgeError(f"{wrong}; {wanted}" + remedy * bool(strings))
        columns = []
        for atoms in self.variables:
            parts = [_probability(atom, probs[atom]) for atom in atoms]
            alone = len(atoms) == 1 and self.value_of[atoms[0]][1] == 1
            columns.append(torch.stack([1 - parts[0], parts[0]] if alone else parts, -1))
        return Belief.from_probs(columns)

    def true_atoms(self, world: Tensor) -> tuple[Expr, ...]:
        """The atoms that are true in a world ``(W,)``.

        >>> from doxa.exact import Constraint
        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a | b).true_atoms(torch.tensor([0, 1]))
        (<Call b>,)
        """
        values = world.tolist()
        return tuple(atom for atom, (variable, value) in self.value_of.items() if values[variable] == value)


def _probability(atom: Expr, given: object) -> Tensor:
    try:
        return torch.as_tensor(given)
    except (RuntimeError, TypeError, ValueError):
        came = f"the probability of {atom} is a {type(given).__name__}"
        raise KnowledgeError(f"{came}, expected a number or a tensor (*batch)") from None


@dataclass(frozen=True, eq=False)
class Run:
    """Run the machine on a word, one symbol after the other."""

    transitions: Tensor
    start: int
    labels: Tensor
    every_step: bool

    def __call__(self, worlds: Tensor) -> Tensor:
        transitions = self.transitions.to(worlds.device)
        state = torch.full_like(worlds[..., 0], self.start)
        states = []
        for symbol in worlds.unbind(-1):
            state = transitions[state, symbol]
            states.append(state)
        return self.labels.to(worlds.device)[torch.stack(states if self.every_step else states[-1:], -1)]


def machine_parts(
    transitions: Tensor | Sequence[Sequence[int]],
    steps: int,
    start: int,
    labels: Tensor | Sequence[int] | None,
    every_step: bool,
) -> tuple[Any, ...]:
    """The parts of ``Problem.from_machine``. Auxiliary variable t is the state after symbol t; their sizes are last."""
    table = torch.as_tensor(transitions)
    fits = not table.dtype.is_floating_point and table.ndim == 2 and 0 not in table.shape
    if not fits or bool(((table < 0) | (table >= len(table))).any()):
        wanted = "integers (states, symbols), each the number of a state"
        raise ProblemError(f"transitions has shape {tuple(table.shape)} and values {table.tolist()}, expected {wanted}")
    count, symbols = table.shape
    label = torch.arange(count) if labels is None else torch.as_tensor(labels)
    if label.dtype.is_floating_point or label.shape != (count,) or (label < 0).any():
        raise ProblemError(f"labels is {label.tolist()}, expected one integer from 0 up for each of {count} states")
    if steps < 1 or not 0 <= start < count:
        raise ProblemError(f"steps is {steps} and start is {start}, expected at least 1 step and a state below {count}")
    table, label = table.long(), label.long()

    w, y, state = Variable.world, Variable.output, Variable.auxiliary
    states = torch.arange(count)
    move = table.unsqueeze(-1) == states  # (state, symbol, next state)
    emit = label.unsqueeze(-1) == torch.arange(int(label.max()) + 1)  # (state, output)
    finish = emit[table]  # (state, symbol, output)
    between = steps if every_step else steps - 1  # states that are variables
    factors = [Factor((w(0), state(0)), move[start])] if between else [Factor((w(0), y(0)), finish[start])]
    factors += [Factor((state(t - 1), w(t), state(t)), move) for t in range(1, between)]
    if every_step:
        factors += [Factor((state(t), y(t)), emit) for t in range(steps)]
    elif between:
        factors.append(Factor((state(steps - 2), w(steps - 1), y(0)), finish))
    output = (emit.shape[1],) * (steps if every_step else 1)
    return (symbols,) * steps, output, Run(table, start, label, every_step), tuple(factors), (count,) * between
