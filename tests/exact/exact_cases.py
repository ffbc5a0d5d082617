"""Random problems with factors, and the engines that must all agree on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from hypothesis import strategies as st
from torch import Tensor

from doxa.exact import Compilation, Elimination, Enumeration, ExactReasoner
from doxa.problem import Belief, Factor, Problem, Variable

# A new engine joins this list and inherits all checks.
ENGINES: dict[str, Callable[..., ExactReasoner]] = {
    "enumeration": Enumeration,
    "elimination": Elimination,
    "compilation": partial(Compilation, native=False),
    "native": Compilation,
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Case:
    """A problem, a belief of some rows with zeros in it, and outputs that may be partial or impossible."""

    problem: Problem
    belief: Belief
    output: Tensor

    def __repr__(self) -> str:
        factors = [(repr(f), f.table.int().tolist()) for f in self.problem.factors or ()]
        return f"Case({self.problem}, {factors}, {self.belief.probs.tolist()}, {self.output.tolist()})"


@st.composite
def problems(draw: st.DrawFn, most: int = 3, worlds: int = 4) -> Problem:
    """A random straight-line program over mixed domains: each variable is a random function of up to 3 others."""
    world = draw(st.lists(st.integers(1, most), min_size=1, max_size=worlds))
    auxiliary = draw(st.lists(st.integers(1, most), max_size=3))
    output = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    known = [Variable.world(i) for i in range(len(world))]
    sizes = list(world)
    factors: list[Factor] = []
    targets = [(Variable.auxiliary(i), n) for i, n in enumerate(auxiliary)]
    targets += [(Variable.output(i), n) for i, n in enumerate(output)]
    seen: dict[tuple[int, ...], Tensor] = {}
    for target, size in targets:
        parents = draw(st.lists(st.integers(0, len(known) - 1), max_size=3, unique=True))
        shape = tuple(sizes[i] for i in parents)
        count = len(list(itertools.product(*map(range, shape))))
        if (*shape, size) in seen and draw(st.booleans()):  # factors of one form share their table
            table = seen[*shape, size]
        else:
            values = draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))
            table = torch.nn.functional.one_hot(torch.tensor(values), size).bool().reshape(*shape, size)
            seen[*shape, size] = table
        factors.append(Factor((*(known[i] for i in parents), target), table))
        known.append(target)
        sizes.append(size)
    order = draw(st.permutations(range(len(factors))))
    return Problem.from_factors([factors[i] for i in order], world, output, auxiliary=auxiliary)


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
    return Case(problem, Belief.from_probs(columns), torch.tensor(outputs))


def random_belief(problem: Problem, *batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Belief:
    logits = [2 * torch.randn(*batch, n, generator=seeded(seed + i), dtype=dtype) for i, n in enumerate(problem.world)]
    return Belief.from_logits(logits)
