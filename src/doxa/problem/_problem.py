"""A reasoning problem, and the ways to make one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError, ProblemError
from doxa.logic import Expr
from doxa.logic.syntax._simplify import atoms_of
from doxa.problem._check import CheckReport, check, enumerate_dependence
from doxa.problem._definition import Definition
from doxa.problem._factors import Factor
from doxa.problem._functions import Atoms, EachArgument, EachWorld, FromProgram, Holds, machine_parts


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
