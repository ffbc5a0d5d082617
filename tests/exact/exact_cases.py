"""Random problems with factors, and the engines that must all agree on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from hypothesis import strategies as st
from torch import Tensor

from doxa.exact import Compilation, Elimination, Enumeration, ExactReasoner
from doxa.problem import Belief, Factor, Mixture, Problem, Variable


class LookupsFirst(Elimination):
    """Elimination that goes through lookups before all else, however small their tables are."""

    worth = 0


# A new engine joins this list and inherits all checks.
ENGINES: dict[str, Callable[..., ExactReasoner]] = {
    "enumeration": Enumeration,
    "elimination": Elimination,
    "lookups": LookupsFirst,
    "compilation": partial(Compilation, native=False),
    "native": Compilation,
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Case:
    """A problem, a belief of some rows with zeros in it, outputs that may be partial or impossible, given values."""

    problem: Problem
    belief: Belief
    output: Tensor
    given: Tensor | None

    def __repr__(self) -> str:
        factors = [(repr(f), f.table.int().tolist()) for f in self.problem.factors or ()]
        seen = None if self.given is None else self.given.tolist()
        return f"Case({self.problem}, {factors}, {self.belief.probs.tolist()}, {self.output.tolist()}, {seen})"


@st.composite
def problems(draw: st.DrawFn, most: int = 3, worlds: int = 4, givens: int = 2) -> Problem:
    """A random straight-line program over mixed domains: each variable is a random function of up to 3 others.

    Factors are tables, lookups or comparisons.
    """
    world = draw(st.lists(st.integers(1, most), min_size=1, max_size=worlds))
    given = draw(st.lists(st.integers(1, most), max_size=givens))
    auxiliary = draw(st.lists(st.integers(1, most), max_size=3))
    output = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    known = [Variable.world(i) for i in range(len(world))] + [Variable.given(i) for i in range(len(given))]
    sizes = world + given
    factors: list[Factor] = []
    targets = [(Variable.auxiliary(i), n) for i, n in enumerate(auxiliary)]
    targets += [(Variable.output(i), n) for i, n in enumerate(output)]
    seen: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
    for target, size in targets:
        parents = draw(st.lists(st.integers(0, len(known) - 1), max_size=3, unique=True))
        shape = tuple(sizes[i] for i in parents)
        inputs = [known[i] for i in parents]
        kind = draw(st.sampled_from(["table", "lookup", "compare"]))
        if kind == "compare" and size == 2 and len(parents) == 2:
            factors.append(Factor.compare(*inputs, target, draw(st.sampled_from(["=", "<", "<="]))))
        else:
            if (*shape, size) in seen and draw(st.booleans()):  # factors of one form share their table
                codes, table = seen[*shape, size]
            else:
                values = draw(st.lists(st.integers(0, size - 1), min_size=math.prod(shape), max_size=math.prod(shape)))
                codes = torch.tensor(values).reshape(shape)
                table = torch.nn.functional.one_hot(codes, size).bool()
                seen[*shape, size] = codes, table
            lookup = kind == "lookup"
            factors.append(Factor.lookup(inputs, target, codes) if lookup else Factor((*inputs, target), table))
        known.append(target)
        sizes = [*sizes, size]
    order = draw(st.permutations(range(len(factors))))
    return Problem.from_factors([factors[i] for i in order], world, output, auxiliary=auxiliary, given=given)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    problem = draw(problems())
    rows = draw(st.integers(1, 3))
    weight = st.sampled_from([0, 1, 1, 2, 7])
    columns = []
    for size in problem.world:
        table = [draw(st.lists(weight, min_size=size, max_size=size).filter(any)) for _ in range(rows)]
        numbers = torch.tensor(table, dtype=torch.float64)
        columns.append(numbers / numbers.sum(-1, keepdim=True))
    value = [st.integers(-1, size - 1) for size in problem.output]
    outputs = [[draw(v) for v in value] for _ in range(rows)]
    seen = [[draw(st.integers(0, size - 1)) for size in problem.given] for _ in range(rows)]
    given = torch.tensor(seen) if problem.given else None
    return Case(problem, Belief.from_probs(columns), torch.tensor(outputs), given)


def random_belief(problem: Problem, *batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Belief:
    logits = [2 * torch.randn(*batch, n, generator=seeded(seed + i), dtype=dtype) for i, n in enumerate(problem.world)]
    return Belief.from_logits(logits)


@dataclass(frozen=True)
class MixtureCase:
    """A problem, a mixture with zeros in its components and weights, outputs that may be partial or impossible."""

    problem: Problem
    mixture: Mixture
    output: Tensor
    given: Tensor | None

    def table(self) -> Tensor:
        """p(w, y) of all worlds ``(rows, worlds)``, by adding and multiplying probabilities: independent of engines."""
        worlds, probs = self.problem.worlds(), self.mixture.components.probs
        rows, parts = probs.shape[:2]
        joint = torch.ones(rows, parts, len(worlds), dtype=probs.dtype)
        for i in range(len(self.problem.world)):
            joint = joint * probs[:, :, i, worlds[:, i]]
        table = (self.mixture.log_weights.exp().unsqueeze(-1) * joint).sum(1)
        for row, wanted in enumerate(self.output):
            given = None if self.given is None else self.given[row].expand(len(worlds), -1)
            agrees = ((self.problem(worlds, given) == wanted) | (wanted < 0)).all(-1)
            table[row] = table[row] * agrees
        return table

    def possible(self) -> MixtureCase | None:
        """The rows whose output is possible."""
        rows = self.table().sum(-1) > 0
        seen = None if self.given is None else self.given[rows]
        return MixtureCase(self.problem, self.mixture[rows], self.output[rows], seen) if rows.any() else None


@st.composite
def mixture_cases(draw: st.DrawFn) -> MixtureCase:
    problem = draw(problems(worlds=3))
    rows, parts = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    weight = st.sampled_from([0, 0, 1, 2, 7])

    def numbers(size: int) -> Tensor:
        table = [draw(st.lists(weight, min_size=size, max_size=size).filter(any)) for _ in range(rows * parts)]
        found = torch.tensor(table, dtype=torch.float64).reshape(rows, parts, size)
        return found / found.sum(-1, keepdim=True)

    components = Belief.from_probs([numbers(size) for size in problem.world])
    weights = [draw(st.lists(weight, min_size=parts, max_size=parts).filter(any)) for _ in range(rows)]
    share = torch.tensor(weights, dtype=torch.float64)
    outputs = [[draw(st.integers(-1, size - 1)) for size in problem.output] for _ in range(rows)]
    seen = [[draw(st.integers(0, size - 1)) for size in problem.given] for _ in range(rows)]
    given = torch.tensor(seen) if problem.given else None
    return MixtureCase(
        problem, Mixture(components, (share / share.sum(-1, keepdim=True)).log()), torch.tensor(outputs), given
    )
