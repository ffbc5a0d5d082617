"""The kernel in C: a circuit as sums of products, evaluated with its derivatives a few rows at a time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doxa._native import native_library
from doxa.exact.circuits._circuit import OR, Circuit

Mode = Literal["log", "real", "best"]
MODES: dict[Mode, int] = {"log": 0, "real": 1, "best": 2}
LANES, WIDTHS = 8, (4, 2, 1)  # rows in a vector, and vectors that the kernel may take at a time
NEAR = 1 << 23  # bytes that stay near the processor: in a cache of the third level, or nearly in the second
SHORT = 3  # factors of a product whose derivatives are written out
WORK = 1 << 26  # about as many edges times rows as take a tenth of a second: so soon Ctrl-C is answered
SHARED = 1 << 20  # fewer are not worth a second thread


Terms = list[tuple[int, ...]]
"""The products that a node adds up, each of the numbers of its factors."""


@dataclass(frozen=True, eq=False)
class Program:
    """A circuit as sums of products: node i adds up the products ``sums[i]`` to ``sums[i + 1]``, product t multiplies
    the nodes ``factors[products[t]:products[t + 1]]``. The literals come first; the root is the last of ``nodes``.

    Those after the root are its derivatives, sums of products as well. The last ones are the derivatives with respect
    to the logarithms of the literals, times the root.
    """

    literals: int
    nodes: int
    sums: NDArray[np.int32]
    products: NDArray[np.int32]
    factors: NDArray[np.int32]
    bound: float  # the log of the value at weights of 1, times that of the edges

    @property
    def derived(self) -> int:
        """How many nodes there are after the root."""
        return len(self.sums) - 1 - self.nodes


def make_program(circuit: Circuit) -> Program:
    """Sums of products from conjunctions and disjunctions."""
    literals, nodes = circuit.literals, _sums_of_products(circuit)
    values = [1.0] * literals
    for terms in nodes:
        values.append(math.fsum(_product([values[f] for f in term]) for term in terms))
    bound = math.log(values[-1]) if values[-1] > 0 else 0.0
    every = nodes + _derivatives(literals, nodes)
    flat = [term for terms in every for term in terms]
    sums, products = ([0, *accumulate(map(len, rows))] for rows in (every, flat))
    arrays = (np.array(x, np.int32) for x in (sums, products, [f for term in flat for f in term]))
    return Program(literals, len(nodes), *arrays, bound + math.log(len(flat) + products[-1] + 1))


def _sums_of_products(circuit: Circuit) -> list[Terms]:
    """The terms of every node that is kept.

    A conjunction that only one node needs is a product of that node, and a disjunction within a disjunction is a part
    of it: neither has a number of its own to be kept. But the literals of a long product have, all together.
    """
    literals = circuit.literals
    parents = np.bincount(circuit.children, minlength=literals + len(circuit)).tolist()
    multiplied = [False] * (literals + len(circuit))  # whether a conjunction needs it
    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        if kind != OR:
            for child in children:
                multiplied[child] = True
    made: list[Terms] = [[(i,)] for i in range(literals)]
    kept: list[Terms] = []
    together: dict[tuple[int, ...], int] = {}

    def split(term: tuple[int, ...]) -> tuple[int, ...]:
        own = tuple(x for x in term if x < literals)
        if len(term) <= SHORT or len(own) < 2:
            return term
        if own not in together:
            kept.append([own])
            together[own] = literals + len(kept) - 1
        return together[own], *term[len(own) :]

    for number, (kind, children) in enumerate(zip(circuit.kinds.tolist(), circuit.arguments, strict=True), literals):
        if kind == OR:
            terms = [term for child in children for term in made[child]]
        else:
            terms = [tuple(sorted(factor for child in children for factor in made[child][0]))]
        alone = parents[number] == 1 and (len(terms) == 1 or not multiplied[number])
        if not alone:
            terms = [split(term) for term in terms]
            if len(terms) != 1 or len(terms[0]) != 1 or not parents[number]:
                kept.append(terms)
                terms = [(literals + len(kept) - 1,)]
        made.append(terms)
    return kept


def _derivatives(literals: int, nodes: list[Terms]) -> list[Terms]:
    """What follows the root: the derivative of every node from those of the nodes that need it, then of the literals.

    That with respect to a factor is the product of the others: of those before it, times those after it. Nothing is
    divided, so factors may be 0. With respect to logarithms, times the root, it is the same for all literals of a
    product: its value times its derivative.
    """
    made: list[Terms] = []
    begin = literals + len(nodes)
    parts: list[Terms] = [[] for _ in range(begin)]  # of each derivative
    flows: list[Terms] = [[] for _ in range(literals)]  # and of what is asked for, of each literal
    parts[-1].append(())

    def add(*terms: tuple[int, ...]) -> int:
        if len(terms) == 1 == len(terms[0]):
            return terms[0][0]
        made.append(list(terms))
        return begin + len(made) - 1

    def share(first: int, factors: Sequence[int]) -> None:
        """Give ``first`` times the others to each factor."""
        if len(factors) <= SHORT:
            for k, x in enumerate(factors):
                parts[x].append((first, *factors[:k], *factors[k + 1 :]))
            return
        after = [factors[-1]]
        for x in reversed(factors[1:-1]):
            after.append(add((x, after[-1])))
        for x, rest in zip(factors, reversed(after), strict=False):
            parts[x].append((first, rest))
            first = add((first, x))
        parts[factors[-1]].append((first,))

    first = {x: i for i in reversed(range(len(nodes))) for term in nodes[i] for x in term if x < literals}
    ready: dict[int, list[int]] = {}  # literals whose derivatives are known after this node, and still near
    for x, i in first.items():
        ready.setdefault(i, []).append(x)
    for i in reversed(range(len(nodes))):
        slope = add(*parts[literals + i])
        if len(nodes[i]) == 1 and all(x < literals for x in nodes[i][0]):
            flow = add((slope, literals + i))
            for x in nodes[i][0]:
                flows[x].append((flow,))
        else:
            for term in nodes[i]:
                share(slope, term)
        for x in ready.get(i, ()):
            if parts[x]:
                flows[x].append((add(*parts[x]), x))
    return made + flows


def _product(numbers: list[float]) -> float:
    return math.inf if math.inf in numbers else math.prod(numbers)


class _Fields(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("literals", "nodes", "derived", "longest")),
        *((name, ctypes.c_void_p) for name in ("sums", "products", "factors")),
        ("bound", ctypes.c_double),
    )


class Kernel:
    """A compiled kernel. It takes as many threads as torch does: ``torch.set_num_threads``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __reduce__(self) -> tuple[Any, ...]:  # where a copy is opened, the kernel is that of the machine, if any
        return native_kernel, ()

    def accepts(self, weights: Tensor) -> bool:
        """Whether these are numbers that the kernel computes with: on the CPU, in single or double precision."""
        return weights.device.type == "cpu" and weights.dtype in (torch.float32, torch.float64)

    def evaluate(
        self, program: Program, weights: Tensor, mode: Mode = "log", *, slopes: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The root ``(R,)`` from the weights of the literals ``(2 · variables, R)``, and its derivatives with respect
        to them; of the best, these are 1 for the literals of the best model, else 0.

        Logarithms may be -inf: so are the roots of rows that are impossible, whose derivatives are 0.
        """
        rows = weights.shape[1]
        roots, found = weights.new_empty(rows), torch.empty(weights.shape, dtype=weights.dtype) if slopes else None
        edges = len(program.factors) + len(program.products)
        nodes = program.literals + program.nodes + (program.derived if slopes and mode != "best" else 0)
        fitting = (w for w in WIDTHS if 8 * LANES * w * nodes <= NEAR and LANES * w < 2 * rows)
        width = next(fitting, 1)
        threads = torch.get_num_threads() if rows * edges > SHARED else 1
        wide = LANES * width
        step = wide * max(1, WORK * threads // (wide * edges))
        pointers = (program.sums, program.products, program.factors)
        addresses = (array.ctypes.data for array in pointers)
        longest = int(np.diff(program.products).max(initial=1))
        fields = _Fields(program.literals, program.nodes, program.derived, longest, *addresses, program.bound)
        for first in range(0, rows, step):
            done = self._library.evaluate(
                ctypes.byref(fields),
                *(ctypes.c_int(x) for x in (MODES[mode], weights.dtype == torch.float32, width, threads)),
                *(ctypes.c_int64(x) for x in (rows, first, min(first + step, rows))),
                ctypes.c_void_p(weights.data_ptr()),
                *(ctypes.c_int64(x) for x in weights.stride()),
                ctypes.c_void_p(roots.data_ptr()),
                ctypes.c_void_p(None if found is None else found.data_ptr()),
            )
            if not done:
                raise MemoryError("no memory for the values of a circuit")
        return roots, found


@cache
def native_kernel() -> Kernel | None:
    """The kernel, or None where there is no C compiler or it does not do its work.

    Set the environment variable ``DOXA_NATIVE=0`` to do without.

    >>> kernel = native_kernel()                                     # compiled once, then kept in a private directory
    """
    library = native_library(Path(__file__).with_name("_kernel.c"))
    return None if library is None else Kernel(library)
