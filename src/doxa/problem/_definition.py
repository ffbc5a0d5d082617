"""What a reasoning problem is: the variables, and the function between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._autoregressive import WorldTable
from doxa.problem._factors import Factor, Program, Relation, Variable, compile_factors
from doxa.problem._functions import Columns, EachWorld, Holds
from doxa.problem._logspace import common_batch, is_traced, shown
from doxa.problem._mixture import AnyBelief, one_belief, require_belief

Impossible = Literal["raise", "inf", "finite"]
"""What a loss does with an output that no world of positive probability gives: an error, +inf, or a finite number."""
KINDS = ("world", "output", "given", "auxiliary")


@dataclass(frozen=True, eq=False, repr=False)
class Definition:
    """The data of a ``Problem``, checked, and its function."""

    world: tuple[int, ...]
    output: tuple[int, ...]
    function: Callable[..., Any]
    factors: tuple[Factor, ...] | None = None
    pruner: Callable[[Tensor], Tensor] | None = None
    depends: tuple[tuple[int, ...], ...] | None = None
    auxiliary: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    given: tuple[int, ...] = ()
    vectorized: InitVar[bool] = True
    program: Program | None = field(init=False, default=None)  # the factors in the order of computing

    def __post_init__(self, vectorized: bool) -> None:
        for kind in KINDS:
            sizes = tuple(getattr(self, kind))
            missing = kind in ("world", "output") and not sizes
            if missing or not all(type(size) is int and size >= 1 for size in sizes):
                raise ProblemError(f"{kind} is {sizes}, expected the number of values of each variable: (10, 10)")
            object.__setattr__(self, kind, sizes)
        kinds = zip("wyg", (self.world, self.output, self.given), strict=True)
        names = tuple(self.names) or tuple(f"{letter}{i}" for letter, sizes in kinds for i in range(len(sizes)))
        expected = len(self.world) + len(self.output) + len(self.given)
        if len(names) != expected or len(set(names)) != expected:
            wanted = f"{expected} different ones: world variables, then outputs, then given ones"
            raise ProblemError(f"names is {names}, expected {wanted}")
        object.__setattr__(self, "names", names)
        for what in (self.function, self.pruner or self.function):
            if not callable(what):
                raise ProblemError(f"function and pruner must be callable, got {what!r}")
        if not vectorized:
            object.__setattr__(self, "function", EachWorld(self.function, len(self.world), len(self.output)))
        if self.depends is not None:
            object.__setattr__(self, "depends", self._checked_depends(self.depends))
        if self.factors is not None:
            object.__setattr__(self, "factors", self._fitted(self.factors))
            object.__setattr__(self, "program", self._compile())
        elif self.auxiliary:
            raise ProblemError(f"auxiliary is {self.auxiliary}, but there are no factors that could use them")

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of values of all variables: world, then output, then given, then auxiliary."""
        return self.world + self.output + self.given + self.auxiliary

    @property
    def formula(self) -> Holds | None:
        """The formula whose truth is the output, if the problem was made from one."""
        return self.function if isinstance(self.function, Holds) else None

    @cached_property
    def _bounds(self) -> Tensor:
        return torch.tensor(self.output)

    @property
    def num_worlds(self) -> int:
        """The number of worlds, exactly."""
        return math.prod(self.world)

    def index(self, variable: Variable) -> int:
        """The place of a variable in ``sizes``.

        >>> from doxa.problem import Problem
        >>> Problem((10, 10), (2, 10), torch.neg).index(Variable.output(1))
        3
        """
        first, count = self._blocks.get(variable.kind, (0, 0))
        if 0 <= variable.index < count:
            return first + variable.index
        known = ", ".join(f"{count} {kind}" for kind, (_, count) in self._blocks.items())
        raise ProblemError(f"there is no {variable.kind} variable {variable.index}; the problem has {known} variables")

    @cached_property
    def _blocks(self) -> dict[str, tuple[int, int]]:
        """Where the variables of each kind begin in ``sizes``, and how many there are."""
        counts = [len(getattr(self, kind)) for kind in KINDS]
        return {kind: (sum(counts[:i]), counts[i]) for i, kind in enumerate(KINDS)}

    def __call__(self, worlds: Tensor, given: Tensor | None = None) -> Tensor:
        """The outputs of worlds: ``function``, with its result checked.

        Args:
            worlds: int64 ``(..., W)``.
            given: int64 ``(..., G)``, whose batch axes broadcast against those of the worlds.
        """
        if worlds.dtype != torch.int64 or worlds.ndim == 0 or worlds.shape[-1] != len(self.world):
            raise ProblemError(f"worlds has {shown(worlds)}, expected int64 (..., {len(self.world)})")
        self.require_given(given)
        batch = common_batch(worlds, given)
        if given is not None and not isinstance(self.function, Columns):  # a function of a user need not broadcast
            worlds, given = worlds.expand(*batch, -1), given.expand(*batch, -1)
        outputs = self.function(worlds) if given is None else self.function(worlds, given)
        expected = (*batch, len(self.output))
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) != expected or outputs.dtype.is_floating_point:
            got = f"{outputs.dtype} {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            came = f"{got} for worlds of shape {tuple(worlds.shape)}"
            remedy = "for a Python function of one world say vectorized=False"
            raise ProblemError(f"the function returned {came}, expected an int64 tensor of shape {expected}; {remedy}")
        outputs = outputs.to(torch.int64)
        if not is_traced(outputs):
            bad = (outputs < 0) | (outputs >= self._bounds.to(outputs.device))
            if bad.any():
                place = tuple(bad.nonzero()[0].tolist())
                came = f"{outputs[place].item()} for output {self.names[len(self.world) + place[-1]]}"
                seen = None if given is None else given.expand(*batch, -1)[place[:-1]]
                world = self.describe(worlds.expand(*batch, -1)[place[:-1]], seen)
                wanted = f"0 to {self.output[place[-1]] - 1}; the world is {world}"
                raise ProblemError(f"the function returned {came}, expected {wanted}")
        return outputs

    def columns(self, worlds: Tensor, given: Tensor | None = None) -> list[Tensor]:
        """The output variables of worlds one by one, in shapes that broadcast; Boolean ones stand for 0 and 1."""
        if isinstance(self.function, Columns):
            return self.function.columns(worlds, given)
        return list(self(worlds, given).unbind(-1))

    def worlds(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Worlds number ``start`` to ``stop`` in lexicographic order (the last variable runs fastest), ``(n, W)``.

        >>> from doxa.problem import Problem
        >>> Problem((2, 3), (2,), torch.neg).worlds(2, 5)
        tensor([[0, 2],
                [1, 0],
                [1, 1]])
        """
        stop = self.num_worlds if stop is None else min(stop, self.num_worlds)
        return self.world_of(torch.arange(start, stop))

    def world_of(self, number: Tensor) -> Tensor:
        """The worlds with these numbers in lexicographic order: int64 ``(...)`` to ``(..., W)``.

        >>> from doxa.problem import Problem
        >>> Problem((2, 3), (2,), torch.neg).world_of(torch.tensor(5))
        tensor([1, 2])
        """
        return values_of(number, self.world)

    def random_worlds(self, count: int, *, generator: torch.Generator | None = None) -> Tensor:
        """``count`` worlds, each equally probable, ``(count, W)``.

        >>> from doxa.problem import Problem
        >>> Problem((1, 1), (2,), torch.neg).random_worlds(1)
        tensor([[0, 0]])
        """
        return random_values(count, self.world, generator)

    def declared(self) -> Tensor:
        """``depends`` as bool ``(Y, W)``; everything, if nothing was declared.

        >>> from doxa.problem import Problem
        >>> Problem((2, 2), (2,), torch.neg, depends=[[1]]).declared()
        tensor([[False,  True]])
        """
        table = torch.full((len(self.output), len(self.world)), self.depends is None)
        for row, variables in zip(table, self.depends or (), strict=False):
            row[list(variables)] = True
        return table

    def require(
        self,
        belief: AnyBelief | WorldTable,
        output: Tensor | None = None,
        given: Tensor | None = None,
        *,
        mixtures: bool = False,
    ) -> None:
        """A ``ProblemError`` unless the belief, the output and the given values fit the problem and each other.

        An output is int64 ``(*batch, Y)`` with the batch of the belief, or ``(Y,)`` for all rows; -1 = unobserved.
        Given values are int64 ``(*batch, G)``, or ``(G,)`` for all rows. A `Mixture` fits only where ``mixtures`` do.

        >>> from doxa.problem import Belief, Problem
        >>> Problem((2, 2), (2,), torch.neg).require(Belief.uniform((2, 3)))
        Traceback (most recent call last):
        doxa.errors.ProblemError: the belief is over domains (2, 3), the world of the problem is (2, 2)
        """
        if not isinstance(belief, WorldTable):
            require_belief(belief)
        belief = belief if mixtures else one_belief(belief)
        if belief.sizes != self.world:
            raise ProblemError(f"the belief is over domains {belief.sizes}, the world of the problem is {self.world}")
        if output is not None:
            self.require_output(output)
        self.require_given(given)
        for kind, values, sizes in (("output", output, self.output), ("given", given, self.given)):
            if values is not None and values.ndim > 1 and tuple(values.shape[:-1]) != belief.batch_shape:
                wanted = f"{(*belief.batch_shape, len(sizes))}: the batch of the belief, then {kind} variables"
                raise ProblemError(f"{kind} has shape {tuple(values.shape)}, expected {wanted}")

    def require_output(self, output: Tensor) -> None:
        """A ``ProblemError`` unless this is an output, int64 ``(..., Y)`` with values in range or -1 for unobserved.

        >>> from doxa.problem import Problem
        >>> Problem((2, 2), (2,), torch.neg).require_output(torch.tensor([2]))
        Traceback (most recent call last):
        doxa.errors.ProblemError: output[0] is 2, expected 0 to 1 for y0, or -1 for unobserved
        """
        self._require("output", output, self._bounds, len(self.world))

    def require_given(self, given: Tensor | None) -> None:
        """A ``ProblemError`` unless these are values of the given variables, int64 ``(..., G)``, or None without any.

        >>> from doxa.problem import Problem
        >>> Problem((2,), (2,), lambda w, g: w + g, given=(2,)).require_given(None)
        Traceback (most recent call last):
        doxa.errors.ProblemError: the problem has the given variables g0; say given=, an int64 tensor (*batch, 1)
        """
        if not self.given:
            if given is not None:
                raise ProblemError("given= was passed, but the problem has no given variables; leave it out")
        elif given is None:
            named = ", ".join(self.names[-len(self.given) :])
            wanted = f"say given=, an int64 tensor (*batch, {len(self.given)})"
            raise ProblemError(f"the problem has the given variables {named}; {wanted}")
        else:
            self._require("given", given, torch.tensor(self.given), len(self.world) + len(self.output))

    def _require(self, kind: Literal["output", "given"], values: Tensor, bounds: Tensor, first: int) -> None:
        if not isinstance(values, Tensor):
            raise ProblemError(f"{kind} is {values!r}, expected an int64 tensor (..., {len(bounds)}); make one of it")
        if values.dtype != torch.int64 or values.ndim == 0 or values.shape[-1] != len(bounds):
            mend = "the last axis has the variables" if values.dtype == torch.int64 else "convert labels with .long()"
            raise ProblemError(f"{kind} has {shown(values)}, expected int64 (..., {len(bounds)}); {mend}")
        if is_traced(values):
            return
        least = -1 if kind == "output" else 0
        bad = (values < least) | (values >= bounds.to(values.device))
        if bad.any():
            place = tuple(bad.nonzero()[0].tolist())
            wanted = f"0 to {bounds[place[-1]] - 1} for {self.names[first + place[-1]]}"
            wanted += ", or -1 for unobserved" if kind == "output" else ""
            raise ProblemError(f"{kind}{list(place)} is {values[place].item()}, expected {wanted}")

    def describe(self, world: Tensor, given: Tensor | None = None) -> str:
        """A world in words, with names if it is short; and what is given.

        >>> from doxa.problem import Problem
        >>> Problem((2, 2), (2,), torch.neg, names=("rain", "sun", "bow")).describe(torch.tensor([1, 0]))
        '(rain=1, sun=0)'
        """

        def named(names: Sequence[str], values: Tensor) -> str:
            return ", ".join(f"{name}={value}" for name, value in zip(names, values.tolist(), strict=False))

        text = str(tuple(world.tolist())) if len(world) > 8 else f"({named(self.names, world)})"
        seen = self.names[len(self.world) + len(self.output) :]
        return text if given is None else f"{text} given ({named(seen, given)})"

    def describe_size(self) -> str:
        """The number of worlds in words.

        >>> from doxa.problem import Problem
        >>> Problem((10,) * 2000, (2,), torch.neg).describe_size()
        'about 10^2000'
        """
        digits = sum(math.log10(size) for size in self.world)
        return f"{self.num_worlds:,}" if digits < 15 else f"about 10^{digits:.0f}"

    def name(self, variable: int) -> str:
        """The name of a variable by its place in ``sizes``.

        >>> from doxa.problem import addition
        >>> addition(2).name(7)
        'auxiliary 0'
        """
        count = len(self.names)
        return self.names[variable] if variable < count else f"auxiliary {variable - count}"

    def __repr__(self) -> str:
        given = f", given={_short(self.given)}" if self.given else ""
        factors = "" if self.factors is None else f", factors={len(self.factors)}"
        return f"Problem(world={_short(self.world)}, output={_short(self.output)}{given}{factors})"

    def _fitted(self, factors: Sequence[Factor]) -> tuple[Factor, ...]:
        """The factors, told the sizes of their variables; equal ones keep sharing one table."""
        sizes, shared, found = self.sizes, dict[tuple[int | str | None, tuple[int, ...]], Relation](), []
        for factor in factors:
            own, shape = factor.relation, tuple(sizes[self.index(variable)] for variable in factor.scope)
            key = next((id(x) for x in (own.dense, own.codes) if x is not None), own.comparison), shape
            if key not in shared:
                try:
                    shared[key] = own.fitted(shape)
                except ProblemError as error:
                    raise ProblemError(f"the table of {factor} {error}") from None
            found.append(Factor(factor.scope, shared[key]))
        return tuple(found)

    def _compile(self) -> Program:
        numbered = [(tuple(self.index(v) for v in f.scope), f.relation) for f in self.factors or ()]
        first = len(self.world) + len(self.output)
        known = [*range(len(self.world)), *range(first, first + len(self.given))]
        return compile_factors(numbered, self.sizes, known, len(self.world), self.name)

    def _checked_depends(self, depends: Sequence[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
        tuples = tuple(tuple(variables) for variables in depends)
        if len(tuples) != len(self.output) or not all(0 <= i < len(self.world) for row in tuples for i in row):
            wanted = f"world variables, numbered 0 to {len(self.world) - 1}, for each of {len(self.output)} outputs"
            raise ProblemError(f"depends is {tuples}, expected {wanted}")
        return tuples


def values_of(number: Tensor, sizes: Sequence[int]) -> Tensor:
    """The joint values with these numbers in lexicographic order: int64 ``(...)`` to ``(..., variables)``."""
    values = []
    for size in reversed(sizes):
        values.append(number % size)
        number = number // size
    return torch.stack(values[::-1], -1) if values else number.new_empty(*number.shape, 0)


def random_values(
    count: int, sizes: Sequence[int], generator: torch.Generator | None, device: torch.device | None = None
) -> Tensor:
    """Uniform joint values, ``(count, variables)``."""
    uniform = torch.rand(count, len(sizes), dtype=torch.float64, device=device, generator=generator)
    return (uniform * torch.tensor(sizes, device=device)).long()


def _short(sizes: tuple[int, ...]) -> str:
    return str(sizes) if len(sizes) <= 6 else f"({', '.join(map(str, sizes[:3]))}, ... {len(sizes)} variables)"
