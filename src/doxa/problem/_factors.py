"""A function as local pieces: factors over few variables, and how to compute with them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._logspace import shown

Comparison = Literal["=", "<", "<="]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a problem: its kind, and its number among those of its kind.

    *World* variables are what a network believes about, *output* variables are what the function returns, *given*
    variables come with each question, and *auxiliary* variables stand for intermediate results, such as a carry.

    >>> Variable.world(0), Variable.output(2)
    (Variable(kind='world', index=0), Variable(kind='output', index=2))
    """

    kind: Literal["world", "output", "given", "auxiliary"]
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
    def given(cls, index: int) -> Variable:
        """Given variable number ``index``."""
        return cls("given", index)

    @classmethod
    def auxiliary(cls, index: int) -> Variable:
        """Auxiliary variable number ``index``."""
        return cls("auxiliary", index)


@dataclass(frozen=True, eq=False)
class Relation:
    """Which values go together: a Boolean table; or ``codes``, the value of the last variable for each value of
    the others (-1: none); or a comparison of two variables, whose truth is the third. ``shape`` is None until a problem
    says it.
    """

    shape: tuple[int, ...] | None
    dense: Tensor | None = None
    codes: Tensor | None = None
    comparison: Comparison | None = None

    @cached_property
    def table(self) -> Tensor:
        """Boolean, one axis per variable."""
        if self.dense is not None:
            return self.dense
        if self.shape is None:
            raise ProblemError("the sizes of the factor's variables are not known; take the factor from a Problem")
        values = torch.arange(self.shape[-1])
        if self.codes is not None:
            return self.codes.unsqueeze(-1) == values
        left, right = torch.arange(self.shape[0]).unsqueeze(-1), torch.arange(self.shape[1])
        return compared(self.comparison, left, right).unsqueeze(-1) == values.bool()

    @cached_property
    def tuples(self) -> int:
        """How many joint values are allowed."""
        if self.dense is not None:
            return int(self.dense.sum())
        return self.codes.numel() if self.codes is not None else math.prod((self.shape or ())[:-1])

    def fitted(self, shape: tuple[int, ...]) -> Relation:
        """The same for variables of these sizes; None where they do not fit."""
        known = self.dense if self.dense is not None else self.codes
        wanted = shape if self.dense is not None else shape[:-1]
        if known is not None and tuple(known.shape) != wanted:
            raise ProblemError(f"has shape {tuple(known.shape)}, expected {wanted}")
        if self.codes is not None and self.codes.numel() and int(self.codes.max()) >= shape[-1]:
            raise ProblemError(f"has the code {int(self.codes.max())}, expected at most {shape[-1] - 1}")
        if self.comparison is not None and shape[-1] != 2:
            raise ProblemError(f"has a target with {shape[-1]} values, expected 2: false and true")
        return Relation(shape, self.dense, self.codes, self.comparison)


def compared(comparison: Comparison | None, left: Tensor, right: Tensor) -> Tensor:
    """Whether it holds, entry by entry."""
    return left == right if comparison == "=" else left < right if comparison == "<" else left <= right


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Factor:
    """A relation between a few variables: which of their joint values are allowed.

    Tables are Boolean: all weights live in the belief, so a product of factors is 0 or 1. Factors of the same form
    should share one table: they then cost no memory, and an engine can treat them together. ``Factor.lookup`` and
    ``Factor.compare`` need no table, so their variables may have thousands of values.

    Args:
        scope: the variables, each once.
        table: Boolean (or 0/1), one axis per variable of the scope, in that order.

    >>> conjunction = tabulate((2, 2, 2), lambda a, b, c: c == a * b)
    >>> Factor((Variable.world(0), Variable.world(1), Variable.output(0)), conjunction)
    Factor(world 0, world 1, output 0)
    """

    scope: tuple[Variable, ...]
    relation: Relation

    def __init__(self, scope: Sequence[Variable], table: Tensor | Sequence[object] | Relation) -> None:
        scope = tuple(scope)
        if not isinstance(table, Relation):
            dense = torch.as_tensor(table)
            if dense.dtype != torch.bool and not ((dense == 0) | (dense == 1)).all():
                wrong = "has entries other than 0 and 1; weights belong in the belief"
                raise ProblemError(f"the table of the factor over {_names(scope)} {wrong}")
            if dense.ndim != len(scope) or not scope:
                wrong = f"has a table of shape {tuple(dense.shape)}, expected different variables and one axis for each"
                raise ProblemError(f"a factor over {_names(scope) or 'nothing'} {wrong}")
            table = Relation(tuple(dense.shape), dense.bool())
        if len(set(scope)) != len(scope):
            raise ProblemError(f"a factor is over {_names(scope)}, expected different variables")
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "relation", table)

    @classmethod
    def lookup(cls, inputs: Sequence[Variable], target: Variable, codes: Tensor) -> Factor:
        """The target is a function of the inputs: ``codes[inputs]``, int64, -1 where no value is allowed.

        >>> product = torch.arange(10).unsqueeze(1) * torch.arange(10)
        >>> Factor.lookup([Variable.world(0), Variable.world(1)], Variable.output(0), product)
        Factor(world 0, world 1, output 0)
        """
        scope = (*inputs, target)
        if codes.dtype != torch.int64 or codes.ndim != len(scope) - 1 or bool((codes < -1).any()):
            wanted = "int64 values from -1 up, one axis for each input"
            raise ProblemError(f"the codes of the factor over {_names(scope)} have {shown(codes)}, expected {wanted}")
        return cls(scope, Relation(None, codes=codes))

    @classmethod
    def compare(cls, left: Variable, right: Variable, target: Variable, comparison: Comparison) -> Factor:
        """The target, which has two values, says whether left = right (or <, or <=) as numbers.

        >>> Factor.compare(Variable.world(0), Variable.given(0), Variable.output(0), "=")
        Factor(world 0, given 0, output 0)
        """
        if comparison not in get_args(Comparison):
            raise ProblemError(f"comparison is {comparison!r}, expected '=', '<' or '<='")
        return cls((left, right, target), Relation(None, comparison=comparison))

    @property
    def table(self) -> Tensor:
        """Boolean, one axis per variable; that of a lookup or comparison is made when it is first asked for."""
        return self.relation.table

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
    """Find variable ``target`` from the values of ``inputs``: look it up, or compare two of them."""

    target: int | None  # None for a mere check
    inputs: tuple[int, ...]
    rule: Tensor | Comparison  # a flat tensor of codes, -1 where nothing is allowed
    total: bool  # whether there always is a value

    def __call__(self, sizes: Sequence[int], values: Sequence[Tensor]) -> Tensor:
        if isinstance(self.rule, str):
            return compared(self.rule, *(values[v] for v in self.inputs))
        index: Tensor | None = None
        for v in self.inputs:
            index = values[v].long() if index is None else index * sizes[v] + values[v]
        return self.rule[0].to(values[0].device) if index is None else self.rule.to(index.device)[index]


@dataclass(frozen=True, eq=False)
class Program:
    """Factors as a straight-line program from the world and what is given: each step finds one variable, so a world has
    exactly one completion or, when a lookup or a check fails, none.
    """

    sizes: tuple[int, ...]
    worlds: int
    steps: tuple[Step, ...]
    checks: tuple[Step, ...]  # factors that no step accounts for

    def run(self, known: dict[int, Tensor]) -> tuple[list[Tensor], Tensor | None]:
        """Values of all variables from the known ones, which may broadcast; and whether the factors allow them."""
        values = [known.get(v, torch.empty(0)) for v in range(len(self.sizes))]
        allowed: list[Tensor] = []
        for step in self.steps:
            value = step(self.sizes, values)
            if not step.total:
                allowed.append(value >= 0)
                value = value.clamp(min=0)
            assert step.target is not None
            values[step.target] = value
        for check in self.checks:
            found = check(self.sizes, values)
            allowed.append(found >= 0 if check.target is None else found == values[check.target])
        return values, reduce(torch.logical_and, allowed) if allowed else None

    def ancestors(self) -> Tensor:
        """Bool ``(V, worlds)``: which world variables each variable is computed from."""
        found = torch.zeros(len(self.sizes), self.worlds, dtype=torch.bool)
        found[: self.worlds] = torch.eye(self.worlds, dtype=torch.bool)
        for step in self.steps:
            if step.inputs and step.target is not None:
                found[step.target] = found[list(step.inputs)].any(0)
        return found


def compile_factors(
    factors: Sequence[tuple[tuple[int, ...], Relation]],
    sizes: tuple[int, ...],
    known: Sequence[int],
    worlds: int,
    name: Callable[[int], str],
) -> Program:
    """Order the factors, given with numbered variables, into a program; linear in their number."""
    containing: dict[int, list[int]] = {}
    for number, (scope, _) in enumerate(factors):
        for variable in scope:
            containing.setdefault(variable, []).append(number)
    found = set(known)
    cache: dict[tuple[int, tuple[bool, ...], int], Tensor | None] = {}  # equal factors share their lookups
    steps: list[Step] = []
    accounted: set[int] = set()
    queue = deque(range(len(factors)))
    while queue:
        number = queue.popleft()
        scope, relation = factors[number]
        for position, target in enumerate(scope):
            if target in found:
                continue
            seen = tuple(variable in found for variable in scope)
            if relation.dense is None:
                if not all(seen[:-1]):
                    continue
                steps.append(_rule(scope, relation))
            else:
                key = id(relation), seen, position
                if key not in cache:
                    cache[key] = _lookup(relation.dense, seen, position)
                lookup = cache[key]
                if lookup is None:
                    continue
                steps.append(Step(target, tuple(v for v in scope if v in found), lookup, bool((lookup >= 0).all())))
            if sum(seen) == len(scope) - 1:
                accounted.add(number)
            found.add(target)
            queue.extend(containing[target])
    unknown = [variable for variable in range(len(sizes)) if variable not in found]
    if unknown:
        named = ", ".join(map(name, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
        raise ProblemError(
            f"the factors do not determine {named} from the world: each output and auxiliary variable "
            "needs a factor that leaves it one value, given the world and variables determined before it"
        )
    checks = tuple(_rule(*factor) for number, factor in enumerate(factors) if number not in accounted)
    return Program(sizes, worlds, tuple(steps), checks)


def _rule(scope: tuple[int, ...], relation: Relation) -> Step:
    if relation.dense is not None:  # only whether the values are allowed
        return Step(None, scope, relation.dense.reshape(-1).long() - 1, False)
    if relation.comparison is not None:
        return Step(scope[-1], scope[:-1], relation.comparison, True)
    assert relation.codes is not None
    return Step(scope[-1], scope[:-1], relation.codes.reshape(-1), bool((relation.codes >= 0).all()))


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
