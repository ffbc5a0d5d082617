"""What circuits cost: compiling, size and evaluation, against PySDD with automatic minimisation and KLay.

Knowledge is compiled by doxa and by PySDD, each within 20 CPU-seconds; doxa evaluates its own circuit, KLay that
of PySDD, both smooth, forward and backward in log space for a batch of 64. Beside the rows there is a table with the
numbers themselves, ``results/circuits.md``. Addition is there as clauses, whose outputs are free, and as factors,
which need no circuit.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from doxa.data import random_ksat
from doxa.errors import BudgetError
from doxa.exact import Elimination
from doxa.exact.circuits import Circuit, cardinality, native_kernel
from doxa.exact.circuits._compiler import Backend, compile_with
from doxa.exact.circuits._encoding import encode
from doxa.exact.circuits._layers import evaluate, make_layers
from doxa.logic import CNF
from doxa.problem import Belief, Budget, addition, exactly_k
from doxa.problem._budget import Meter
from exact import klay_module, sudoku
from harness import RESULTS, Row, cpu_seconds, summary

SECONDS, BATCH, REPEATS = 20, 64, 5


def three_sat(variables: int) -> CNF:
    return random_ksat(variables, round(4.2 * variables), generator=torch.Generator().manual_seed(variables))


def hierarchy(branches: int, depth: int) -> CNF:
    """Classes in a tree: a class implies the one above it, and classes beside each other exclude each other."""
    clauses, level, count = [[1]], [1], 1
    for _ in range(depth):
        below: list[int] = []
        for parent in level:
            children = list(range(count + 1, count + branches + 1))
            count += branches
            clauses += [[-child, parent] for child in children]
            clauses += [[-a, -b] for a, b in combinations(children, 2)]
            below += children
        level = below
    return CNF.from_clauses(clauses, count)


def sums(digits: int) -> CNF:
    return encode(addition(digits), Meter(Budget(operations=1 << 40), "encoding")).cnf


KNOWLEDGE: dict[str, Callable[[], CNF]] = {
    "sudoku 4×4": sudoku,
    **{f"random 3-SAT, n={n}": partial(three_sat, n) for n in (20, 30, 40, 50, 60)},
    **{f"addition N={n}, clauses": partial(sums, n) for n in (1, 2, 3, 4, 8, 15)},
    **{f"exactly {k} of {n}": lambda k=k, n=n: encode(exactly_k(k, n)).cnf for k, n in ((5, 10), (10, 20), (20, 40))},  # type: ignore[misc]
    "hierarchy of 2⁶ leaves": partial(hierarchy, 2, 6),
    "hierarchy of 5³ leaves": partial(hierarchy, 5, 3),
}


@dataclass
class Measured:
    """CPU seconds to compile, the smooth circuit, CPU seconds to evaluate it; None where it took too long."""

    compile: float | None = None
    circuit: Circuit | None = None
    evaluate: float | None = None
    again: tuple[float, ...] = ()


def within_limit(backend: Backend, cnf: CNF) -> tuple[float, Circuit] | None:
    """Compile in a process of its own, which is ended after a while: PySDD cannot be stopped otherwise."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_compile, args=(backend, cnf, sending))
    process.start()
    sending.close()
    answer = None
    # Wall time is allowed to be a few times CPU time, for other processes may be running.
    if receiving.poll(2 * SECONDS):
        try:
            answer = receiving.recv()
        except EOFError:
            answer = None
    process.terminate()
    process.join()
    return answer if answer is not None and answer[0] <= SECONDS else None


def _compile(backend: Backend, cnf: CNF, sending: Connection) -> None:
    start = time.process_time()
    try:
        circuit, _ = compile_with(backend, cnf, Budget(seconds=SECONDS, operations=1 << 40, nodes=10**8))
    except BudgetError:
        sending.close()
        return
    sending.send((time.process_time() - start, circuit))


def timed(function: Callable[[], object]) -> tuple[float, ...]:
    function()
    loops = max(1, round(0.05 / max(cpu_seconds(function, 1), 1e-6)))
    return tuple(cpu_seconds(function, loops) for _ in range(REPEATS))


def weights_of(circuit: Circuit) -> Tensor:
    return torch.randn(2, circuit.variables, BATCH).log_softmax(0).requires_grad_()


def ours(cnf: CNF, native: bool) -> Callable[[Circuit], tuple[float, ...]]:
    def run(circuit: Circuit) -> tuple[float, ...]:
        layers, weights = make_layers(circuit), weights_of(circuit)
        kernel = native_kernel() if native else None

        def once() -> None:
            flat = weights.transpose(0, 1).reshape(-1, BATCH)
            torch.autograd.grad(evaluate(layers, flat, kernel=kernel).sum(), weights)

        return timed(once)

    return run


def theirs(circuit: Circuit) -> tuple[float, ...]:
    module, weights = klay_module(circuit, "log"), weights_of(circuit)
    return timed(lambda: torch.autograd.grad(module(weights[0].T, weights[1].T).sum(), weights))


def measured(backend: Backend, cnf: CNF, run: Callable[[Circuit], tuple[float, ...]]) -> Measured:
    found = within_limit(backend, cnf)
    if found is None:
        return Measured()
    seconds, circuit = found
    smooth = circuit.smooth()
    times = run(smooth)
    return Measured(seconds, smooth, min(times), times)


def show(seconds: float | None) -> str:
    if seconds is None:
        return f"> {SECONDS} s"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"


def rows() -> list[Row]:
    peers = all(importlib.util.find_spec(name) is not None for name in ("pysdd", "klay"))
    if not peers:
        print("only doxa is measured: the packages PySDD and klaycircuits are not installed")
    found: list[Row] = []
    table = [
        f"What circuits cost (CPU time, one thread; evaluation is forward and backward in log space, batch {BATCH}). "
        "PySDD minimises automatically; KLay evaluates PySDD's circuit. Written by `python benchmarks/circuits.py`.",
        "",
        "| knowledge | compiled by doxa | edges | evaluated | native | compiled by PySDD | edges | evaluated by KLay |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, make in KNOWLEDGE.items():
        cnf = make()
        mine = measured("doxa", cnf, ours(cnf, native=False))
        native = ours(cnf, native=True)(mine.circuit) if mine.circuit is not None and native_kernel() else None
        peer = measured("pysdd", cnf, theirs) if peers else Measured()
        table.append(
            f"| {name} | {show(mine.compile)} | {_edges(mine)} | {_evaluated(mine)} | "
            f"{show(min(native)) if native else '–'} | {show(peer.compile) if peers else '–'} | {_edges(peer)} | "
            f"{_evaluated(peer)} |"
        )
        print(table[-1], flush=True)
        if mine.compile is not None and peer.compile is not None:
            ratio = mine.compile / peer.compile
            found.append(Row(f"compile {name}: time against PySDD", ratio, 1.0, "lower"))
            best = native or mine.again
            ratios = [p / m for p, m in zip(peer.again, best, strict=True)]
            found.append(
                summary(
                    f"evaluate {name}: times faster than KLay on PySDD's circuit", ratios, goal=1.0, better="higher"
                )
            )
    table += ["", "| without clauses | made | numbers a row | evaluated |", "| --- | ---: | ---: | ---: |"]
    for digits in (1, 2, 4, 8, 15):
        start = time.process_time()
        reasoner = Elimination(addition(digits))
        made = time.process_time() - start
        logits = torch.randn(BATCH, 2 * digits, 10, requires_grad=True)
        label = reasoner.problem(reasoner.problem.random_worlds(BATCH))

        def once(reasoner: Elimination = reasoner, logits: Tensor = logits, label: Tensor = label) -> None:
            torch.autograd.grad(reasoner.loss(Belief.from_logits(logits), label).sum(), logits)

        table.append(
            f"| addition N={digits}, factors | {show(made)} | {reasoner.entries:,} | {show(min(timed(once)))} |"
        )
    for k, n in ((5, 10), (10, 20), (20, 40)):
        start = time.process_time()
        circuit = cardinality(n, k, k)
        made = time.process_time() - start
        times = ours(CNF.from_clauses([], n), native=native_kernel() is not None)(circuit)
        table.append(f"| exactly {k} of {n}, built | {show(made)} | {circuit.edges:,} | {show(min(times))} |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "circuits.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    return found


def _edges(m: Measured) -> str:
    return "–" if m.circuit is None else f"{m.circuit.edges:,}"


def _evaluated(m: Measured) -> str:
    return "–" if m.evaluate is None else show(m.evaluate)


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
