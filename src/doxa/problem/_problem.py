"""A reasoning problem: worlds, outputs, and the function between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._belief import Belief
from doxa.problem._check import CheckReport, check, enumerate_dependence
from doxa.problem._factors import Factor, Program, Variable, compile_factors
from doxa.problem._functions import EachArgument, EachWorld, FromProgram
from doxa.problem._logspace import is_traced
from doxa.problem._machine import machine_parts


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Worlds, outputs and the symbolic function c: W → Y between them (dissertation, chapter 6, "Problem setup").

    A world assigns a value to each world variable, an output to each output variable; both are int64 vectors, and
    values count from 0. Given a belief P, every probabilistic engine asks for p(y | P) = E_{p(w|P)}[c(w) = y].

    Args:
        world: the number of values of each world variable.
        output: the number of values of each output variable.
        function: worlds ``(..., W)`` to outputs ``(..., Y)``. It may be a black box; it must be deterministic.
        factors: the same function as relations between few variables. They must form a straight-line program:
            each output and auxiliary variable has a factor that leaves it one value, given the world and variables
            determined before it. This is what makes exact inference cheap.
        pruner: a function from a prefix of values (outputs first, then the world), int64 ``(*batch, k)``, to the
            allowed values of variable k, bool ``(*batch, D_k)``. Kept for engines that decode value by value.
        depends: for each output variable, the world variables that it may depend on. Needed only where
            ``dependence()`` can neither enumerate the worlds nor read the factors.
        auxiliary: the number of values of each auxiliary variable in the factors.
        names: names of the world variables followed by the output variables, for messages; by default w0, …, y0, ….
        vectorized: set to False for a Python function of one world, a tuple of ints, that returns an int or a
            sequence of ints.

    >>> minimum = Problem((4, 4), (4,), lambda worlds: worlds.amin(-1, keepdim=True))
    >>> minimum
    Problem(world=(4, 4), output=(4,))
    >>> minimum(torch.tensor([[3, 1], [2, 2]]))
    tensor([[1],
            [2]])
    >>> Problem((4, 4), (4,), min, vectorized=False).check()
    CheckReport(worlds=16, exhaustive=True, factors=False, depends=False)
    """

    world: tuple[int, ...]
    output: tuple[int, ...]
    function: Callable[[Any], Any]
    factors: tuple[Factor, ...] | None = None
    pruner: Callable[[Tensor], Tensor] | None = None
    depends: tuple[tuple[int, ...], ...] | None = None
    auxiliary: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    vectorized: InitVar[bool] = True
    program: Program | None = field(init=False, default=None)  # the factors in the order of computing

    def __post_init__(self, vectorized: bool) -> None:
        for kind in ("world", "output", "auxiliary"):
            sizes = tuple(getattr(self, kind))
            if (not sizes and kind != "auxiliary") or not all(type(size) is int and size >= 1 for size in sizes):
                raise ProblemError(
                    f"{kind} is {sizes}, expected the number of values of each variable, such as (10, 10)"
                )
            object.__setattr__(self, kind, sizes)
        names = tuple(self.names) or (
            *(f"w{i}" for i in range(len(self.world))),
            *(f"y{i}" for i in range(len(self.output))),
        )
        expected = len(self.world) + len(self.output)
        if len(names) != expected or len(set(names)) != expected:
            raise ProblemError(f"names is {names}, expected {expected} different ones: world variables, then outputs")
        object.__setattr__(self, "names", names)
        for what in (self.function, *([] if self.pruner is None else [self.pruner])):
            if not callable(what):
                raise ProblemError(f"function and pruner must be callable, got {what!r}")
        if not vectorized:
            object.__setattr__(self, "function", EachWorld(self.function, len(self.output)))
        if self.depends is not None:
            object.__setattr__(self, "depends", self._checked_depends(self.depends))
        if self.factors is not None:
            object.__setattr__(self, "factors", tuple(self.factors))
            object.__setattr__(self, "program", self._compile(self.factors))
        elif self.auxiliary:
            raise ProblemError(f"auxiliary is {self.auxiliary}, but there are no factors that could use them")

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        world: Sequence[int],
        output: Sequence[int],
        *,
        vectorized: bool = False,
        depends: Sequence[Iterable[int]] | None = None,
        names: Sequence[str] = (),
    ) -> Problem:
        """A problem from a Python function with one argument per world variable.

        The function returns one int, or a sequence with one int per output variable. With ``vectorized=True`` the
        arguments are int64 tensors of one shape, and so must be each output.

        >>> Problem.from_function(lambda a, b: a * b, world=(10, 10), output=(82,))(torch.tensor([7, 8]))
        tensor([56])
        >>> divmod_ = Problem.from_function(lambda a, b: (a // (b + 1), a % (b + 1)), (10, 9), (10, 9), vectorized=True)
        >>> divmod_(torch.tensor([7, 1]))                                  # 7 divided by 1 + 1
        tensor([3, 1])
        """
        return cls(
            tuple(world),
            tuple(output),
            EachArgument(function) if vectorized else EachWorld(function, len(output), spread=True),
            depends=_tuples(depends),
            names=tuple(names),
        )

    @classmethod
    def from_factors(
        cls,
        factors: Sequence[Factor],
        world: Sequence[int],
        output: Sequence[int],
        *,
        auxiliary: Sequence[int] = (),
        names: Sequence[str] = (),
    ) -> Problem:
        """A problem from factors alone; the function looks its outputs up, factor by factor.

        >>> from doxa.problem import tabulate
        >>> implication = tabulate((2, 2, 2), lambda a, b, y: y == (a <= b))
        >>> w, y = Variable.world, Variable.output
        >>> Problem.from_factors([Factor((w(0), w(1), y(0)), implication)], world=(2, 2), output=(2,))
        Problem(world=(2, 2), output=(2,), factors=1)
        """
        problem = cls(
            tuple(world), tuple(output), _unset, tuple(factors), auxiliary=tuple(auxiliary), names=tuple(names)
        )
        assert problem.program is not None
        object.__setattr__(problem, "function", FromProgram(problem.program, len(output)))
        return problem

    @classmethod
    def from_machine(
        cls,
        transitions: Tensor | Sequence[Sequence[int]],
        steps: int,
        *,
        start: int = 0,
        labels: Tensor | Sequence[int] | None = None,
        every_step: bool = False,
        names: Sequence[str] = (),
    ) -> Problem:
        """A problem from a finite-state machine that reads ``steps`` symbols.

        The world is the word that is read; the factors are a chain through the states.

        Args:
            transitions: ``transitions[state][symbol]`` is the next state.
            steps: the length of the word.
            start: the first state.
            labels: the output of each state; by default its number.
            every_step: whether there is an output after each symbol, or only one after the last.
            names: names of the symbols, then of the outputs.

        >>> light = [[1, 0], [2, 0], [2, 0]]           # symbol 0 presses the switch, symbol 1 resets it
        >>> Problem.from_machine(light, steps=3, every_step=True)(torch.tensor([0, 0, 1]))
        tensor([1, 2, 0])
        """
        parts = machine_parts(transitions, steps, start, labels, every_step)
        return cls(
            parts.world, parts.output, parts.function, parts.factors, auxiliary=parts.auxiliary, names=tuple(names)
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of values of all variables: world, then output, then auxiliary."""
        return self.world + self.output + self.auxiliary

    @cached_property
    def _bounds(self) -> Tensor:
        return torch.tensor(self.output)

    @property
    def num_worlds(self) -> int:
        """The number of worlds, exactly."""
        return math.prod(self.world)

    def index(self, variable: Variable) -> int:
        """The place of a variable in ``sizes``.

        >>> Problem((10, 10), (2, 10), torch.neg).index(Variable.output(1))
        3
        """
        count = {"world": self.world, "output": self.output, "auxiliary": self.auxiliary}
        if variable.kind not in count or not 0 <= variable.index < len(count[variable.kind]):
            known = ", ".join(f"{len(sizes)} {kind}" for kind, sizes in count.items())
            raise ProblemError(
                f"there is no {variable.kind} variable {variable.index}; the problem has {known} variables"
            )
        first = {"world": 0, "output": len(self.world), "auxiliary": len(self.world) + len(self.output)}
        return first[variable.kind] + variable.index

    def __call__(self, worlds: Tensor) -> Tensor:
        """The outputs of worlds: ``function``, with its result checked."""
        if worlds.dtype != torch.int64 or worlds.ndim == 0 or worlds.shape[-1] != len(self.world):
            raise ProblemError(
                f"worlds has dtype {worlds.dtype} and shape {tuple(worlds.shape)}, expected int64 "
                f"(..., {len(self.world)})"
            )
        outputs = self.function(worlds)
        expected = (*worlds.shape[:-1], len(self.output))
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) != expected or outputs.dtype.is_floating_point:
            got = f"{outputs.dtype} {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ProblemError(
                f"the function returned {got} for worlds of shape {tuple(worlds.shape)}, expected an int64 tensor of "
                f"shape {expected}; for a Python function of one world say vectorized=False"
            )
        outputs = outputs.to(torch.int64)
        if not is_traced(outputs):
            bad = (outputs < 0) | (outputs >= self._bounds.to(outputs.device))
            if bad.any():
                place = tuple(bad.nonzero()[0].tolist())
                name = self.names[len(self.world) + place[-1]]
                raise ProblemError(
                    f"the function returned {outputs[place].item()} for output {name}, "
                    f"expected 0 to {self.output[place[-1]] - 1}; the world is {self.describe(worlds[place[:-1]])}"
                )
        return outputs

    def evaluate_factors(self, worlds: Tensor) -> Tensor:
        """The outputs of worlds, as the factors have them.

        >>> Problem.from_machine([[0, 1], [1, 0]], steps=3).evaluate_factors(torch.tensor([1, 1, 1]))
        tensor([1])
        """
        if self.program is None:
            raise ProblemError("the problem has no factors; pass factors= or build it with Problem.from_factors")
        return FromProgram(self.program, len(self.output))(worlds)

    def worlds(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Worlds number ``start`` to ``stop`` in lexicographic order (the last variable runs fastest), ``(n, W)``.

        >>> Problem((2, 3), (2,), torch.neg).worlds(2, 5)
        tensor([[0, 2],
                [1, 0],
                [1, 1]])
        """
        stop = self.num_worlds if stop is None else min(stop, self.num_worlds)
        return self.world_of(torch.arange(start, stop))

    def world_of(self, number: Tensor) -> Tensor:
        """The worlds with these numbers in lexicographic order: int64 ``(...)`` to ``(..., W)``.

        >>> Problem((2, 3), (2,), torch.neg).world_of(torch.tensor(5))
        tensor([1, 2])
        """
        values = []
        for size in reversed(self.world):
            values.append(number % size)
            number = number // size
        return torch.stack(values[::-1], -1)

    def random_worlds(self, count: int, *, generator: torch.Generator | None = None) -> Tensor:
        """``count`` worlds, each equally probable, ``(count, W)``.

        >>> Problem((1, 1), (2,), torch.neg).random_worlds(1)
        tensor([[0, 0]])
        """
        uniform = torch.rand(count, len(self.world), dtype=torch.float64, generator=generator)
        return (uniform * torch.tensor(self.world)).long()

    def check(
        self, *, max_worlds: int = 100_000, samples: int = 1000, generator: torch.Generator | None = None
    ) -> CheckReport:
        """Test that the parts of the problem agree; the first disagreement is a ``ProblemError``.

        The function must return values in range, be deterministic and treat each row by itself; the factors must
        give the same outputs; outputs must depend on no other world variables than declared. All worlds are
        tried if there are at most ``max_worlds``, else ``samples`` random ones (more if there are more outputs).

        >>> from doxa.problem import tabulate
        >>> wrong = tabulate((2, 2, 2), lambda a, b, y: y == a + b - a * b)
        >>> factor = Factor((Variable.world(0), Variable.world(1), Variable.output(0)), wrong)
        >>> Problem((2, 2), (2,), lambda w: w.prod(-1, keepdim=True), [factor]).check()
        Traceback (most recent call last):
        doxa.errors.ProblemError: function and factors disagree on world (w0=0, w1=1): function (0,), factors (1,)
        """
        return check(self, max_worlds, samples, generator)

    def dependence(self, *, max_worlds: int = 100_000) -> Tensor:
        """Which world variables each output variable may depend on: bool ``(Y, W)``.

        Enumerated, and so exact, for at most ``max_worlds`` worlds. Otherwise what ``depends`` declares; else what the
        factors compute each output from. Never guessed from samples.

        >>> swap = Problem((3, 3, 3), (3, 3), lambda w: w[..., :2].flip(-1))
        >>> swap.dependence()
        tensor([[False,  True, False],
                [ True, False, False]])
        """
        if self.num_worlds <= max_worlds:
            return enumerate_dependence(self)
        if self.depends is not None:
            return self.declared()
        if self.program is not None:
            return self.program.ancestors()[len(self.world) : len(self.world) + len(self.output)]
        raise ProblemError(
            f"which of {len(self.world)} variables the outputs depend on cannot be enumerated over "
            f"{self.describe_size()} worlds; declare it with depends="
        )

    def declared(self) -> Tensor:
        """``depends`` as bool ``(Y, W)``; everything, if nothing was declared.

        >>> Problem((2, 2), (2,), torch.neg, depends=[[1]]).declared()
        tensor([[False,  True]])
        """
        if self.depends is None:
            return torch.ones(len(self.output), len(self.world), dtype=torch.bool)
        table = torch.zeros(len(self.output), len(self.world), dtype=torch.bool)
        for row, variables in zip(table, self.depends, strict=True):
            row[list(variables)] = True
        return table

    def require(self, belief: Belief, output: Tensor | None = None) -> None:
        """A ``ProblemError`` unless the belief, and the output if given, fit the problem.

        An output is int64 ``(*batch, Y)`` with the batch of the belief, or ``(Y,)`` for all rows; -1 = unobserved.

        >>> Problem((2, 2), (2,), torch.neg).require(Belief.uniform((2, 3)))
        Traceback (most recent call last):
        doxa.errors.ProblemError: the belief is over domains (2, 3), the world of the problem is (2, 2)
        """
        if belief.sizes != self.world:
            raise ProblemError(f"the belief is over domains {belief.sizes}, the world of the problem is {self.world}")
        if output is None:
            return
        self.require_output(output)
        if output.ndim > 1 and tuple(output.shape[:-1]) != belief.batch_shape:
            raise ProblemError(
                f"output has shape {tuple(output.shape)}, expected {(*belief.batch_shape, len(self.output))}: the "
                f"batch of the belief, then {len(self.output)} output variables"
            )

    def require_output(self, output: Tensor) -> None:
        """A ``ProblemError`` unless this is an output, int64 ``(..., Y)`` with values in range or -1 for unobserved.

        >>> Problem((2, 2), (2,), torch.neg).require_output(torch.tensor([2]))
        Traceback (most recent call last):
        doxa.errors.ProblemError: output[0] is 2, expected 0 to 1 for y0, or -1 for unobserved
        """
        if output.dtype != torch.int64 or output.ndim == 0 or output.shape[-1] != len(self.output):
            raise ProblemError(
                f"output has dtype {output.dtype} and shape {tuple(output.shape)}, expected int64 (..., "
                f"{len(self.output)}); convert labels with .long()"
            )
        if is_traced(output):
            return
        bad = (output < -1) | (output >= self._bounds.to(output.device))
        if bad.any():
            place = tuple(bad.nonzero()[0].tolist())
            raise ProblemError(
                f"output[{', '.join(map(str, place))}] is {output[place].item()}, expected 0 to "
                f"{self.output[place[-1]] - 1} for {self.names[len(self.world) + place[-1]]}, or -1 for unobserved"
            )

    def describe(self, world: Tensor) -> str:
        """A world in words, with names if it is short.

        >>> Problem((2, 2), (2,), torch.neg, names=("rain", "sun", "bow")).describe(torch.tensor([1, 0]))
        '(rain=1, sun=0)'
        """
        values = world.tolist()
        if len(values) > 8:
            return str(tuple(values))
        return f"({', '.join(f'{name}={value}' for name, value in zip(self.names, values, strict=False))})"

    def describe_size(self) -> str:
        """The number of worlds in words.

        >>> Problem((10,) * 2000, (2,), torch.neg).describe_size()
        'about 10^2000'
        """
        digits = sum(math.log10(size) for size in self.world)
        return f"{self.num_worlds:,}" if digits < 15 else f"about 10^{digits:.0f}"

    def __repr__(self) -> str:
        factors = "" if self.factors is None else f", factors={len(self.factors)}"
        return f"Problem(world={_short(self.world)}, output={_short(self.output)}{factors})"

    def _compile(self, factors: Sequence[Factor]) -> Program:
        sizes, numbered = self.sizes, []
        for factor in factors:
            scope = tuple(self.index(variable) for variable in factor.scope)
            expected = tuple(sizes[i] for i in scope)
            if tuple(factor.table.shape) != expected:
                raise ProblemError(f"the table of {factor} has shape {tuple(factor.table.shape)}, expected {expected}")
            numbered.append((scope, factor.table))

        def name(i: int) -> str:
            return self.names[i] if i < len(self.names) else f"auxiliary {i - len(self.names)}"

        return compile_factors(numbered, sizes, len(self.world), name)

    def _checked_depends(self, depends: Sequence[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
        tuples = tuple(tuple(variables) for variables in depends)
        if len(tuples) != len(self.output) or not all(0 <= i < len(self.world) for row in tuples for i in row):
            raise ProblemError(
                f"depends is {tuples}, expected for each of {len(self.output)} outputs a list of world variables, "
                f"numbered 0 to {len(self.world) - 1}"
            )
        return tuples


def _tuples(depends: Sequence[Iterable[int]] | None) -> tuple[tuple[int, ...], ...] | None:
    return None if depends is None else tuple(tuple(variables) for variables in depends)


def _unset(worlds: Tensor) -> Tensor:
    raise AssertionError("replaced before use")


def _short(sizes: tuple[int, ...]) -> str:
    return str(sizes) if len(sizes) <= 6 else f"({', '.join(map(str, sizes[:3]))}, ... {len(sizes)} variables)"
