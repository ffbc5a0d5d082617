"""ROAD-R: 243 requirements over 41 labels, on generated scores. Compiling, the constrained layer, and the most probable
consistent labels, against PySDD and KLay, and against one call of weighted MaxSAT (RC2) for each row.

The requirements are not ours: the environment variable ``DOXA_ROAD`` names the folder that has them, see
``doxa.data.read_road``; without it nothing is measured.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
from functools import partial

import torch
from pysat.examples.rc2 import RC2
from pysat.formula import WCNF
from torch import Tensor

from doxa.data import read_road
from doxa.exact import ConstrainedLayer, Constraint
from doxa.exact.circuits import Circuit, compile_cnf
from doxa.exact.circuits._compiler import compile_with
from doxa.logic import CNF
from doxa.problem import Belief, Budget
from exact import klay_module
from harness import Row, compare, cpu_seconds, main

BATCH, UNIT = 256, 10**6
FOLDER = os.environ.get("DOXA_ROAD")


def by_maxsat(clauses: list[list[int]], scores: Tensor) -> Tensor:
    """The most probable consistent labels of one row, by RC2: it gives up as little log-odds as it can."""
    problem = WCNF()
    problem.extend(clauses)
    for i, score in enumerate(scores.tolist(), 1):
        if weight := round(UNIT * abs(score)):
            problem.append([i if score > 0 else -i], weight=weight)
    with RC2(problem) as solver:
        model = solver.compute()
    return torch.tensor([literal > 0 for literal in model[: len(scores)]])


def our_rows(clauses: CNF, scores: Tensor) -> list[Row]:
    def compiled() -> Constraint:
        return Constraint(clauses, cache=False)

    layer = ConstrainedLayer(compiled())

    def once() -> Tensor:
        belief = Belief.from_bernoulli(logits=scores)
        layer(belief)
        return layer.decode(belief).worlds

    once()
    compiling = [cpu_seconds(compiled, 1) for _ in range(7)]
    applying = [cpu_seconds(once, 3) for _ in range(9)]
    found = [
        Row("road: compile 243 requirements over 41 labels, CPU seconds", statistics.median(compiling), 0.1, "lower"),
        Row(
            f"road: constrained layer and decode, batch {BATCH}, CPU seconds",
            statistics.median(applying),
            0.05,
            "lower",
        ),
    ]
    # One row at a time for RC2, so that a measurement is short; the batch is shared out over its rows.
    literals, some = clauses.clauses, scores[:8]
    expected = torch.stack([by_maxsat(literals, row) for row in some])
    decoded = layer.decode(Belief.from_bernoulli(logits=some)).worlds.bool()
    lost = [torch.where(labels != (some > 0), some.abs(), 0).sum(-1) for labels in (decoded, expected)]
    torch.testing.assert_close(*lost, rtol=1e-4, atol=1e-4)

    def peer() -> None:
        for row in some:
            by_maxsat(literals, row)

    ratios = []
    for _ in range(9):
        ours = cpu_seconds(lambda: layer.decode(Belief.from_bernoulli(logits=scores)), 3) / BATCH
        ratios.append(cpu_seconds(peer, 1) / len(some) / ours)
    low, _, high = statistics.quantiles(ratios, n=4)
    title = f"road: most probable consistent labels, batch {BATCH}: times faster than one MaxSAT call (RC2) a row"
    found.append(Row(title, statistics.median(ratios), 20, "higher", (low, high)))
    return found


def peer_rows(clauses: CNF, scores: Tensor) -> list[Row]:
    if not all(importlib.util.find_spec(name) for name in ("pysdd", "klay")):
        print("no rows against PySDD and KLay: the packages PySDD and klaycircuits are not installed")
        return []

    def theirs() -> Circuit:
        return compile_with("pysdd", clauses, Budget())[0]

    title = "road: compile 243 requirements, time against PySDD with automatic minimisation"
    found = [compare(title, partial(compile_cnf, clauses), theirs, goal=1.0, better="lower", repeats=5)]
    module, layer = klay_module(theirs().smooth(), "log"), ConstrainedLayer(Constraint(clauses))
    logits = scores.clone().requires_grad_()

    def by_klay() -> Tensor:
        """Probabilities of the labels given the requirements: p(y_i | K) = p(y_i) + ∂ log p(K) / ∂ z_i."""
        positive, negative = torch.nn.functional.logsigmoid(logits), torch.nn.functional.logsigmoid(-logits)
        (slopes,) = torch.autograd.grad(module(positive, negative).sum(), logits)
        return logits.detach().sigmoid() + slopes

    def ours() -> Tensor:
        return layer(Belief.from_bernoulli(logits=scores)).probs[..., 1]

    torch.testing.assert_close(ours(), by_klay(), rtol=1e-3, atol=1e-5)
    title = f"road: constrained layer, batch {BATCH}: times faster than KLay on PySDD's circuit"
    found.append(compare(title, ours, by_klay, goal=1.0, better="higher", repeats=15))
    return found


def rows() -> list[Row]:
    assert FOLDER is not None
    clauses = read_road(FOLDER).clauses
    scores = 2 * torch.randn(BATCH, clauses.variables, generator=torch.Generator().manual_seed(0))
    return our_rows(clauses, scores) + peer_rows(clauses, scores)


if __name__ == "__main__":
    if FOLDER is None:
        print("nothing is measured: DOXA_ROAD names no folder with the requirements of ROAD-R")
    else:
        main(__file__, rows)
