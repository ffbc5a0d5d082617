"""A function as local pieces: factors over few variables, and how to compute with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from doxa.errors import ProblemError


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a problem: which kind, and the how-manieth of its kind.

    *World* variables are what a network believes about, *output* variables are what the function returns, and
    *auxiliary* variables stand for intermediate results, such as the carry of an addition.

    >>> Variable.world(0), Variable.output(2)
    (Variable(kind='world', index=0), Variable(kind='output', index=2))
    """

    kind: Literal["world", "output", "auxiliary"]
    index: int

    @classmethod
    def world(cls, index: int) -> Variable:
        """World variable number ``index``."""
        return cls("world", index)

    @classmethod
    def output(cls, index: int) -> Variable:
        """Output variable number ``index``."""
        return cls("output", index)

    @classmethod
    def auxiliary(cls, index: int) -> Variable:
        """Auxiliary variable number ``index``."""
        return cls("auxiliary", index)


@dataclass(frozen=True, eq=False)
class Factor:
    """A relation between a few variables: which of their joint values are allowed.

    Tables are Boolean. All weights live in the belief, so a product of factors is 0 or 1 and log-space engines use
    ``log_table``. Factors of the same form should share one table: they then cost no memory, and an engine can
    treat them together.

    Args:
        scope: the variables, each once.
        table: Boolean (or 0/1), one axis per variable of the scope, in that order.

    >>> conjunction = tabulate((2, 2, 2), lambda a, b, c: c == a * b)
    >>> Factor((Variable.world(0), Variable.world(1), Variable.output(0)), conjunction)
    Factor(world 0, world 1, output 0)
    """

    scope: tuple[Variable, ...]
    table: Tensor

    def __post_init__(self) -> None:
        scope, table = tuple(self.scope), torch.as_tensor(self.table)
        if len(set(scope)) != len(scope) or table.ndim != len(scope) or not scope:
            raise ProblemError(
                f"a factor over {_names(scope) or 'nothing'} has a table of shape {tuple(table.shape)}, expected "
                "different variables and one axis for each"
            )
        if table.dtype != torch.bool:
            if not ((table == 0) | (table == 1)).all():
                raise ProblemError(
                    f"the table of the factor over {_names(scope)} has entries other than 0 and 1; weights belong "
                    "in the belief"
                )
            table = table.bool()
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "table", table)

    def log_table(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The table in log space: 0 where the values are allowed, -inf where not.

        >>> Factor((Variable.world(0),), [False, True]).log_table()
        tensor([-inf, 0.])
        """
        return self.table.to(dtype).log()

    def __repr__(self) -> str:
        return f"Factor({_names(self.scope)})"


def tabulate(sizes: Sequence[int], relation: Callable[..., Tensor]) -> Tensor:
    """The table of a relation, given as a function of one integer tensor per variable (they broadcast).

    >>> tabulate((2, 3), lambda a, b: a == b)
    tensor([[ True, False, False],
            [False,  True, False]])
    """
    axes = torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")
    return relation(*axes).bool()


def _names(scope: Sequence[Variable]) -> str:
    return ", ".join(f"{variable.kind} {variable.index}" for variable in scope)


class Step(NamedTuple):
    """Look up variable ``target`` from the values of ``inputs``; ``table`` has -1 where nothing is allowed."""

    target: int
    inputs: tuple[int, ...]
    table: Tensor


@dataclass(frozen=True, eq=False)
class Program:
    """Factors read as a straight-line program from the world to all other variables.

    Each step looks one variable up from variables known before, so a world has exactly one completion or, when a
    lookup or a check fails, none. Hence the sum over the auxiliary variables of the product of all factors is 0 or 1.
    """

    sizes: tuple[int, ...]
    worlds: int
    steps: tuple[Step, ...]
    checks: tuple[tuple[tuple[int, ...], Tensor], ...]  # (variables, table): factors that no step accounts for

    def run(self, worlds: Tensor) -> tuple[Tensor, Tensor]:
        """Values of all variables ``(..., V)`` and whether the factors allow them ``(...)``."""
        values = list(worlds.unbind(-1)) + [worlds.new_empty(0)] * (len(self.sizes) - self.worlds)
        allowed = torch.ones(worlds.shape[:-1], dtype=torch.bool, device=worlds.device)
        for target, inputs, table in self.steps:
            value = self._entry(table, inputs, values, allowed)
            allowed = allowed & (value >= 0)
            values[target] = value.clamp(min=0)
        for inputs, table in self.checks:
            allowed = allowed & self._entry(table, inputs, values, allowed)
        return torch.stack(values, -1), allowed

    def _entry(self, table: Tensor, inputs: tuple[int, ...], values: list[Tensor], like: Tensor) -> Tensor:
        index = torch.zeros_like(like, dtype=torch.int64)
        for variable in inputs:
            index = index * self.sizes[variable] + values[variable]
        return table.to(index.device)[index]

    def ancestors(self) -> Tensor:
        """Bool ``(V, worlds)``: which world variables each variable is computed from."""
        found = torch.zeros(len(self.sizes), self.worlds, dtype=torch.bool)
        found[: self.worlds] = torch.eye(self.worlds, dtype=torch.bool)
        for target, inputs, _ in self.steps:
            if inputs:
                found[target] = found[list(inputs)].any(0)
        return found


def compile_factors(
    factors: Sequence[tuple[tuple[int, ...], Tensor]], sizes: tuple[int, ...], worlds: int, name: Callable[[int], str]
) -> Program:
    """Order the factors, given with numbered variables, into a program; linear in their number."""
    containing: dict[int, list[int]] = {}
    for number, (scope, _) in enumerate(factors):
        for variable in scope:
            containing.setdefault(variable, []).append(number)
    known = set(range(worlds))
    cache: dict[tuple[int, tuple[bool, ...], int], Tensor | None] = {}  # equal factors share their lookups
    steps: list[Step] = []
    accounted: set[int] = set()
    queue = deque(range(len(factors)))
    while queue:
        number = queue.popleft()
        scope, table = factors[number]
        for position, target in enumerate(scope):
            if target in known:
                continue
            given = tuple(variable in known for variable in scope)
            key = id(table), given, position
            if key not in cache:
                cache[key] = _lookup(table, given, position)
            lookup = cache[key]
            if lookup is None:
                continue
            steps.append(Step(target, tuple(v for v in scope if v in known), lookup))
            if sum(given) == len(scope) - 1:
                accounted.add(number)
            known.add(target)
            queue.extend(containing[target])
    unknown = [variable for variable in range(len(sizes)) if variable not in known]
    if unknown:
        named = ", ".join(map(name, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
        raise ProblemError(
            f"the factors do not determine {named} from the world: each output and auxiliary variable "
            "needs a factor that leaves it one value, given the world and variables determined before it"
        )
    checks = tuple(
        (scope, table.reshape(-1)) for number, (scope, table) in enumerate(factors) if number not in accounted
    )
    return Program(sizes, worlds, tuple(steps), checks)


def _lookup(table: Tensor, given: tuple[bool, ...], position: int) -> Tensor | None:
    """The variable at ``position`` as a flat function of the given ones, -1 where impossible; None if it is none."""
    free = [axis for axis, known in enumerate(given) if not known and axis != position]
    projected = table.movedim(position, -1)
    axes = tuple(axis - (axis > position) for axis in free)
    projected = projected.any(axes) if axes else projected
    count = projected.sum(-1)
    if (count > 1).any():
        return None
    value = projected.to(torch.int64).argmax(-1)
    return torch.where(count == 1, value, -1).reshape(-1)
