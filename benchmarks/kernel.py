"""The native kernel against what memory and cache allow, and what questions cost in forward passes.

*Every value once*: an evaluation that keeps the value of every node moves each of them at least once into memory and
once back, as a copy does: (literals + nodes) · rows numbers, forward, and as many again for derivatives. The bound is
the time of so large a copy. That of 100 to 200 of 300 goes through memory, 370 MB at a time. The kernel keeps no values
of whole batches, so it may stay below. All values of the other circuits are 4 to 12 MB, which a cache holds: no memory
limits them, so they are held against the next bound alone.

*Every edge once*: where all values are at hand, every edge still reads a number and every node writes one:
(edges + nodes) · rows forward, (3 · edges + 2 · nodes) · rows with derivatives, in which an edge reads a value and a
derivative more. The bound is the time to move as many bytes by copies within 256 KB, half read and half written. It
leaves out the exponential of each weight: for the Sudoku, with 128 literals and 556 products, a quarter of the forward
pass.

Numbers have the size of the weights, though the kernel computes in double precision. Nodes and edges are those of the
circuit, before the kernel makes sums of products of them. Rows for two threads compare wall time, others CPU time.

A *forward pass* is the log-weight of the root for a batch, without derivatives; for questions to ``Compilation`` it is
``log_prob``. Posterior: the derivatives. MPE: the best world, with its values; k-best: so for the k best. A question
``explain`` also finds the probability of what is explained, a forward pass of its own for the same weights.

The goal is 3 passes. The kernel keeps the k best sums of every node, as many numbers as k forward passes make, and
writes k worlds: so of k worlds each may take 3, and a row says what all of them took.

That is near what the arithmetic asks for where nothing but edges counts, as in 100 to 200 of 300. It has 60,594
products of two factors, and with derivatives 181,989: a posterior does the work of 3.003 passes, and reads values again
that have left the nearer caches. Merging a list of k for each product takes 2 + log2 k additions and comparisons for
each world, where a sum takes one multiplication and addition together; then worlds are traced downwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from circuits import hierarchy
from doxa.exact import Compilation, Constraint
from doxa.exact.circuits import Circuit, cardinality, compile_cnf, native_kernel
from doxa.exact.circuits._encoding import encode
from doxa.exact.circuits._kernel import Kernel, Program, make_program
from doxa.problem import Belief, addition
from exact import sudoku
from harness import Row, compare, exponent, summary

BATCH = 1024
FAR, NEAR = 64 << 20, 1 << 18  # bytes of a buffer out of all caches, and of one within that of the second level
CACHE = 32 << 20  # bytes: values of fewer never go through memory
GOAL = 2.0


def copying(moved: int, buffer: int) -> Callable[[], None]:
    """Move so many bytes, half of them read and half written, by copying a buffer again and again."""
    source = torch.rand(buffer // 8)  # float32, and another one beside it
    target = torch.empty_like(source)
    times, rest = divmod(moved, buffer)

    def copy() -> None:
        for _ in range(times):
            target.copy_(source)
        target[: rest // 8].copy_(source[: rest // 8])

    return copy


def log_weights(circuit: Circuit, rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randn(circuit.variables, 2, rows, dtype=dtype, generator=generator)
    return pairs.log_softmax(1).reshape(-1, rows)


def circuits() -> dict[str, Circuit]:
    return {
        "sudoku 4×4": compile_cnf(sudoku()).smooth(),
        "addition N=3": compile_cnf(encode(addition(3)).cnf).smooth(),
        "100 to 200 of 300": cardinality(300, 100, 200).smooth(),
    }


def bound_rows(kernel: Kernel) -> list[Row]:
    rows = []
    for name, circuit in circuits().items():
        program, numbers = make_program(circuit), circuit.literals + len(circuit)
        for dtype in (torch.float32, torch.float64):
            weights, size = log_weights(circuit, BATCH, dtype), torch.finfo(dtype).bits // 8
            for slopes in (False, True):
                ours = partial(kernel.evaluate, program, weights, slopes=slopes)
                far = 2 * numbers * BATCH * size * (2 if slopes else 1)
                near = ((3 * circuit.edges + 2 * numbers) if slopes else (circuit.edges + numbers)) * BATCH * size
                what = f"{name}, {'with derivatives' if slopes else 'forward'}, {str(dtype)[6:]}, batch {BATCH}"
                title = f"kernel on {what}: time against"
                repeats = 12 if len(circuit) > 10_000 else 30
                bounds = {"moving every edge once within a cache": copying(near, NEAR)}
                if far > CACHE:
                    bounds["moving every value once"] = copying(far, FAR)
                for bound, copy in bounds.items():
                    row = compare(f"{title} {bound}", ours, copy, goal=GOAL, better="lower", repeats=repeats)
                    print(row.line())
                    rows.append(row)
    return rows


def thread_rows(kernel: Kernel) -> list[Row]:
    """Two threads where torch has two: wall time, against a copy by two threads and against one thread."""
    circuit = cardinality(300, 100, 200).smooth()
    program, weights = make_program(circuit), log_weights(circuit, BATCH)
    copy = copying(4 * (circuit.literals + len(circuit)) * BATCH * 4, FAR)
    bound, gain = [], []
    for _ in range(12):
        seconds = []
        for threads, function in ((2, partial(kernel.evaluate, program, weights, slopes=True)), (2, copy),
                                  (1, partial(kernel.evaluate, program, weights, slopes=True))):  # fmt: skip
            torch.set_num_threads(threads)
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
        bound.append(seconds[0] / seconds[1])
        gain.append(seconds[2] / seconds[0])
    torch.set_num_threads(1)
    what = f"100 to 200 of 300, with derivatives, float32, batch {BATCH}, two threads"
    return [
        summary(f"kernel on {what}: time against moving every value once", bound, goal=GOAL, better="lower"),
        summary(f"kernel on {what}: times faster than one", gain, goal=1.7, better="higher", note="wall time"),
    ]


def pass_rows(kernel: Kernel) -> list[Row]:
    """Questions to a circuit, in forward passes."""
    rows = []
    for name, circuit in circuits().items():
        program, n = make_program(circuit), circuit.variables
        places = np.array([[i // 2 for i in range(2 * n)], [1 - i % 2 for i in range(2 * n)]], np.int32)
        for batch in (64, BATCH):
            weights = log_weights(circuit, batch)
            forward = partial(kernel.evaluate, program, weights)
            asked: dict[str, Callable[[], object]] = {
                "posterior": partial(kernel.evaluate, program, weights, slopes=True),
                "entropy": partial(entropy, kernel, program, weights),
                **{f"{k}-best": partial(kernel.best, program, weights, k, n, places) for k in (1, 2, 4, 8)},
            }
            times = []
            for question, function in asked.items():
                what = "MPE (1-best)" if question == "1-best" else question
                title = f"circuit of {name}, batch {batch}: {what} in forward passes"
                row = compare(title, function, forward, goal=3.0, better="lower", repeats=10)
                times.append(row.ratio)
                rows.append(for_each(row, int(question[0])) if question[0].isdigit() else row)
                print(rows[-1].line())
            found = exponent([1.0, 2.0, 4.0, 8.0], times[2:])
            rows.append(Row(f"circuit of {name}, batch {batch}: exponent of k-best in k, 1 to 8", found, 2.0, "lower"))
    return rows


def for_each(row: Row, worlds: int) -> Row:
    """The same for each of so many worlds."""
    if worlds == 1:
        return row
    assert row.spread is not None
    spread = (row.spread[0] / worlds, row.spread[1] / worlds)
    note = f"{row.ratio:.3g} for all {worlds}"
    return replace(row, name=f"{row.name}, for each world", ratio=row.ratio / worlds, spread=spread, note=note)


def entropy(kernel: Kernel, program: Program, weights: Tensor) -> Tensor:
    root, slopes = kernel.evaluate(program, weights, slopes=True)
    assert slopes is not None
    return root - torch.linalg.vecdot(slopes, weights, dim=0)


def question_rows() -> list[Row]:
    """The same through ``Compilation`` and ``Constraint``, with all that they check and arrange."""
    rows = []
    known = {
        "sudoku 4×4": Constraint(sudoku()),
        "addition N=3": Compilation(addition(3)),
        "hierarchy of 5³ leaves": Constraint(hierarchy(5, 3)),
    }
    for name, reasoner in known.items():
        for batch in (64, BATCH):
            belief = Belief.from_logits(torch.randn(batch, len(reasoner.problem.world), max(reasoner.problem.world)))
            holds = isinstance(reasoner, Constraint)
            output = torch.tensor([1]) if holds else reasoner.problem(reasoner.problem.random_worlds(batch))
            forward = partial(reasoner.log_prob, belief, output)
            asked: dict[str, Callable[[], object]] = {
                "posterior": partial(reasoner.posterior, belief, output),
                "entropy": partial(reasoner.entropy, belief, output),
                **{f"explain(k={k})": partial(reasoner.explain, belief, output, k) for k in (1, 2)},
            }
            for question, function in asked.items():
                title = f"reasoner for {name}, batch {batch}: {question} in calls of log_prob"
                row = compare(title, function, forward, goal=3.0, better="lower", repeats=12)
                rows.append(for_each(row, 2 if "k=2" in question else 1))
                print(rows[-1].line())
    return rows


def rows() -> list[Row]:
    kernel = native_kernel()
    if kernel is None:
        print("no rows: there is no C compiler")
        return []
    return bound_rows(kernel) + pass_rows(kernel) + question_rows() + thread_rows(kernel)


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
