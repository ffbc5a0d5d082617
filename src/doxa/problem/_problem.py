"""A reasoning problem, the ways to make one, and whether its parts agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import KnowledgeError, ProblemError
from doxa.logic import Expr
from doxa.logic.syntax._simplify import atoms_of
from doxa.problem._definition import Definition, random_values, values_of
from doxa.problem._factors import Factor
from doxa.problem._functions import Atoms, EachArgument, EachWorld, FromProgram, Holds, machine_parts


class CheckReport(NamedTuple):
    """How many worlds were tried, whether those were all, and whether there were factors and a declared dependence."""

    worlds: int
    exhaustive: bool
    factors: bool
    depends: bool


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Definition):
    """Worlds, outputs and the symbolic function c: W → Y between them (dissertation, chapter 6, "Problem setup").

    A world assigns a value to each world variable, an output to each output variable; both are int64 vectors, and
    values count from 0. Given a belief P, every probabilistic engine asks for p(y | P) = E_{p(w|P)}[c(w) = y].

    What the data decide, such as the label that a sum is compared with, is a *given* variable: its value comes with
    each question, it is neither believed nor listed nor sampled, and p(y | P, g) = E_{p(w|P)}[c(w, g) = y].

    Args:
        world: the number of values of each world variable.
        output: the number of values of each output variable.
        function: worlds ``(..., W)`` to outputs ``(..., Y)``; with given variables, worlds and given values
            ``(..., G)`` to outputs. It may be a black box; it must be deterministic.
        factors: the same function as relations between few variables. They must form a straight-line program:
            each output and auxiliary variable has a factor that leaves it one value, given the world and variables
            determined before it. This is what makes exact inference cheap.
        pruner: a function from a prefix of values (outputs first, then the world), int64 ``(*batch, k)``, to the
            allowed values of variable k, bool ``(*batch, D_k)``. Kept for engines that decode value by value.
        depends: for each output variable, the world variables that it may depend on. Needed only where
            ``dependence()`` can neither enumerate the worlds nor read the factors.
        auxiliary: the number of values of each auxiliary variable in the factors.
        names: names of the world variables, then the output variables, then the given ones, for messages; by default
            w0, …, y0, …, g0, ….
        given: the number of values of each given variable.
        vectorized: set to False for a Python function of one world, a tuple of ints (and a tuple of given values),
            that returns an int or a sequence of ints.

    >>> minimum = Problem((4, 4), (4,), lambda worlds: worlds.amin(-1, keepdim=True))
    >>> minimum
    Problem(world=(4, 4), output=(4,))
    >>> minimum(torch.tensor([[3, 1], [2, 2]]))
    tensor([[1],
            [2]])
    >>> Problem((4, 4), (4,), min, vectorized=False).check()
    CheckReport(worlds=16, exhaustive=True, factors=False, depends=False)
    >>> equal = Problem((10, 10), (2,), lambda w, g: (w.sum(-1, keepdim=True) == g).long(), given=(19,))
    >>> equal(torch.tensor([[3, 1], [2, 2]]), torch.tensor([4]))
    tensor([[1],
            [1]])
    """

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
        given: Sequence[int] = (),
    ) -> Problem:
        """A problem from a Python function with one argument per world variable, then one per given variable.

        The function returns one int, or a sequence with one int per output variable. With ``vectorized=True`` the
        arguments are int64 tensors of one shape, and so must be each output.

        >>> Problem.from_function(lambda a, b: a * b, world=(10, 10), output=(82,))(torch.tensor([7, 8]))
        tensor([56])
        >>> divmod_ = Problem.from_function(lambda a, b: (a // (b + 1), a % (b + 1)), (10, 9), (10, 9), vectorized=True)
        >>> divmod_(torch.tensor([7, 1]))                                  # 7 divided by 1 + 1
        tensor([3, 1])
        """
        each = EachArgument(function) if vectorized else EachWorld(function, len(world), len(output), spread=True)
        chosen = None if depends is None else tuple(map(tuple, depends))
        return cls(tuple(world), tuple(output), each, depends=chosen, names=tuple(names), given=tuple(given))

    @classmethod
    def from_factors(
        cls,
        factors: Sequence[Factor],
        world: Sequence[int],
        output: Sequence[int],
        *,
        auxiliary: Sequence[int] = (),
        names: Sequence[str] = (),
        given: Sequence[int] = (),
    ) -> Problem:
        """A problem from factors alone; the function looks its outputs up, factor by factor.

        >>> from doxa.problem import Variable, tabulate
        >>> implication = tabulate((2, 2, 2), lambda a, b, y: y == (a <= b))
        >>> w, y = Variable.world, Variable.output
        >>> Problem.from_factors([Factor((w(0), w(1), y(0)), implication)], world=(2, 2), output=(2,))
        Problem(world=(2, 2), output=(2,), factors=1)
        """
        more = tuple(auxiliary), tuple(names), tuple(given)
        problem = cls(tuple(world), tuple(output), torch.neg, tuple(factors), None, None, *more)
        assert problem.program is not None  # and the function is that of the program, not torch.neg
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
        world, output, function, factors, auxiliary = parts
        return cls(world, output, function, factors, auxiliary=auxiliary, names=tuple(names))

    @classmethod
    def from_formula(
        cls,
        formula: Expr,
        variables: Sequence[Sequence[Expr]],
        *,
        given: Sequence[Sequence[Expr]] = (),
        names: Sequence[str] = (),
    ) -> Problem:
        """The problem whether a ground propositional formula holds: one output, 0 or 1.

        Args:
            formula: connectives and counting constraints over atoms.
            variables: for each world variable its atoms. One atom is a Boolean variable with the values false and
                true; several are the values of a function, exactly one of which is true.
            given: the same for the given variables.
            names: names of the world variables, "holds", names of the given variables; by default the atoms.

        >>> from doxa.logic import propositions
        >>> a, b, c = propositions("a b c")
        >>> problem = Problem.from_formula((a >> b) & ~c, [[a], [b]], given=[[c]])
        >>> problem, problem.names
        (Problem(world=(2, 2), output=(2,), given=(2,)), ('a', 'b', 'holds', 'c'))
        >>> problem(torch.tensor([1, 1]), torch.tensor([[0], [1]]))
        tensor([[1],
                [0]])
        """
        every = [tuple(atoms) for atoms in (*variables, *given)]
        atoms, count = Atoms(every, tuple(max(2, len(row)) for row in every)), len(variables)
        places = atoms.places
        unknown = [atom for atom in atoms_of(formula) if atom not in places]
        if unknown or len(places) != sum(map(len, every)) or not all(every):
            lacks = f"{', '.join(map(str, unknown[:5])) or 'nothing'} of the formula"
            wanted = "every atom once, among those of a world variable or of a given one"
            raise KnowledgeError(f"the variables lack {lacks}; expected {wanted}")
        return cls._over_atoms(formula, atoms, count, names)

    @classmethod
    def _over_atoms(cls, formula: Expr, atoms: Atoms, count: int, names: Sequence[str] = ()) -> Problem:
        """The problem over these atoms, the first ``count`` variables being the world."""
        names = tuple(names) or (*atoms.names[:count], "holds", *atoms.names[count:])
        function, given = Holds(formula, atoms.places), atoms.sizes[count:]
        return cls(atoms.sizes[:count], (2,), function, names=tuple(names), given=given)

    def evaluate_factors(self, worlds: Tensor, given: Tensor | None = None) -> Tensor:
        """The outputs of worlds, as the factors have them.

        >>> Problem.from_machine([[0, 1], [1, 0]], steps=3).evaluate_factors(torch.tensor([1, 1, 1]))
        tensor([1])
        """
        if self.program is None:
            raise ProblemError("the problem has no factors; pass factors= or build it with Problem.from_factors")
        return FromProgram(self.program, len(self.output))(worlds, given)

    def check(
        self, *, max_worlds: int = 100_000, samples: int = 1000, generator: torch.Generator | None = None
    ) -> CheckReport:
        """Test that the parts of the problem agree; the first disagreement is a ``ProblemError``.

        The function must return values in range, be deterministic and treat each row by itself; the factors must
        give the same outputs; outputs must depend on no other world variables than declared. All worlds are
        tried, with all given values, if there are at most ``max_worlds``, else ``samples`` random ones (more if there
        are more outputs).

        >>> from doxa.problem import Variable, tabulate
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
        over = f"cannot be enumerated over {self.describe_size()} worlds; declare it with depends="
        raise ProblemError(f"which of {len(self.world)} variables the outputs depend on {over}")


CHUNK = 1 << 14  # worlds evaluated at a time


def check(problem: Definition, max_worlds: int, samples: int, generator: torch.Generator | None) -> CheckReport:
    """See ``Problem.check``."""
    total = problem.num_worlds * math.prod(problem.given)
    exhaustive = total <= max_worlds
    # Declared dependence is tested one output per sampled world, so there must be at least one world per output.
    count = total if exhaustive else max(samples, len(problem.output))
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        worlds, given = _listed(problem, start, stop) if exhaustive else _drawn(problem, stop - start, generator)
        kept = worlds.clone()
        outputs = problem(worlds, given)
        if not torch.equal(kept, worlds):
            raise ProblemError("the function changes its argument; let it work on worlds.clone() instead")
        if start == 0:
            _check_calls(problem, worlds[:8], outputs[:8], None if given is None else given[:8])
        again = problem(worlds.flip(0), None if given is None else given.flip(0)).flip(0)
        _compare(problem, worlds, outputs, again, "two calls of the function", "first", "second")
        if problem.program is not None:
            factored = FromProgram(problem.program, len(problem.output))(worlds, given)
            _compare(problem, worlds, outputs, factored, "function and factors", "function", "factors")
        if problem.depends is not None and not exhaustive:
            _check_perturbed(problem, worlds, given, outputs, start, generator)
    if problem.depends is not None and exhaustive:
        for output, variable in (enumerate_dependence(problem) & ~problem.declared()).nonzero().tolist():
            found = f"{problem.names[variable]} (world variable {variable})"
            listed = f"which depends= does not list; it lists {problem.depends[output]}"
            raise ProblemError(f"output {problem.name(len(problem.world) + output)} depends on {found}, {listed}")
    return CheckReport(count, exhaustive, problem.factors is not None, problem.depends is not None)


def enumerate_dependence(problem: Definition) -> Tensor:
    """Bool ``(Y, W)``: whether changing world variable i alone ever changes output j."""
    count = problem.num_worlds * math.prod(problem.given)
    outputs = torch.cat([problem(*_listed(problem, start, start + CHUNK)) for start in range(0, count, CHUNK)])
    grid = outputs.reshape(*problem.world, -1)
    axes = range(len(problem.world))
    columns = [(grid != grid.narrow(axis, 0, 1)).reshape(count, -1).any(0) for axis in axes]
    return torch.stack(columns, -1)


def _listed(problem: Definition, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
    """Worlds with given values, by number; the given values run fastest."""
    givens = math.prod(problem.given)
    number = torch.arange(start, min(stop, problem.num_worlds * givens))
    given = values_of(number % givens, problem.given) if problem.given else None
    return problem.world_of(number // givens), given


def _drawn(problem: Definition, count: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
    worlds = problem.random_worlds(count, generator=generator)
    return worlds, random_values(count, problem.given, generator) if problem.given else None


def _check_calls(problem: Definition, worlds: Tensor, outputs: Tensor, given: Tensor | None) -> None:
    """The function takes worlds of any batch shape."""
    again = problem(worlds.unsqueeze(0), None if given is None else given.unsqueeze(0)).squeeze(0)
    rows = [None] * len(worlds) if given is None else list(given)
    single = torch.stack([problem(world, row) for world, row in zip(worlds, rows, strict=True)])
    _compare(problem, worlds, outputs, again, "the function's results with and without an axis", "without", "with")
    _compare(problem, worlds, outputs, single, "the function's results in a batch and alone", "batch", "alone")


def _compare(problem: Definition, worlds: Tensor, one: Tensor, two: Tensor, what: str, name: str, other: str) -> None:
    differ = (one != two).any(-1)
    if differ.any():
        row = int(differ.nonzero()[0])
        both = f"{name} {tuple(one[row].tolist())}, {other} {tuple(two[row].tolist())}"
        raise ProblemError(f"{what} disagree on world {problem.describe(worlds[row])}: {both}")


def _check_perturbed(
    problem: Definition,
    worlds: Tensor,
    given: Tensor | None,
    outputs: Tensor,
    start: int,
    generator: torch.Generator | None,
) -> None:
    """Redraw all variables that one output is said not to depend on; taking turns, each output is tried."""
    turn = (start + torch.arange(len(worlds))) % len(problem.output)
    relevant = problem.declared()[turn]
    other = torch.where(relevant, worlds, problem.random_worlds(len(worlds), generator=generator))
    changed = problem(other, given)
    pairs = (outputs, worlds), (changed, other)
    differ = (outputs != changed).gather(-1, turn.unsqueeze(-1)).squeeze(-1)
    if differ.any():
        row = int(differ.nonzero()[0])
        name = problem.names[len(problem.world) + int(turn[row])]
        one, two = (f"{y[row, turn[row]]} for world {problem.describe(w[row])}" for y, w in pairs)
        differing = "which differ only in variables that it is declared not to depend on"
        raise ProblemError(f"output {name} depends on more than declared: it is {one} and {two}, {differing}")
