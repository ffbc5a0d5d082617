"""Do the parts of a problem agree? And which inputs does an output depend on?"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._definition import Definition, random_values, values_of
from doxa.problem._functions import FromProgram

CHUNK = 1 << 14  # worlds evaluated at a time


class CheckReport(NamedTuple):
    """How many worlds were tried, whether those were all, and whether there were factors and a declared dependence."""

    worlds: int
    exhaustive: bool
    factors: bool
    depends: bool


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
