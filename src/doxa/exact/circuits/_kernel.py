"""The kernel in C: a circuit as sums of products, evaluated with its derivatives a few rows at a time."""

from __future__ import annotations

import ctypes
import math
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
from doxa.errors import ProblemError
from doxa.exact.circuits._circuit import OR, Circuit

Mode = Literal["log", "real", "best"]
MODES: dict[Mode, int] = {"log": 0, "real": 1, "best": 2}
LANES, WIDTHS = 8, (4, 2, 1)  # rows in a vector, and vectors that the kernel may take at a time
NEAR = 3 << 18  # bytes that stay near the processor: most of a cache of the second level
WORK = 1 << 26  # about as many edges times rows as take a tenth of a second: so soon Ctrl-C is answered
SHARED = 1 << 20  # fewer are not worth a second thread


@dataclass(frozen=True, eq=False)
class Program:
    """A circuit as sums of products: node i adds up the products ``sums[i]`` to ``sums[i + 1]``, product t multiplies
    the nodes ``factors[products[t]:products[t + 1]]``. The literals come first, the root is the last node.

    A conjunction that only one node needs is a product of that node, and a disjunction within a disjunction is a part
    of it: neither has a number of its own to be kept.
    """

    literals: int
    sums: NDArray[np.int32]
    products: NDArray[np.int32]
    factors: NDArray[np.int32]
    bound: float  # the log of the value at weights of 1, times that of the edges

    @property
    def nodes(self) -> int:
        """How many numbers are kept for each row, beside those of the literals."""
        return len(self.sums) - 1


def make_program(circuit: Circuit) -> Program:
    """Sums of products from conjunctions and disjunctions."""
    literals = circuit.literals
    parents = np.bincount(circuit.children, minlength=literals + len(circuit)).tolist()
    multiplied = [False] * (literals + len(circuit))  # whether a conjunction needs it
    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        if kind != OR:
            for child in children:
                multiplied[child] = True
    made: list[list[list[int]]] = [[[i]] for i in range(literals)]  # the products of each node
    kept: list[list[list[int]]] = []
    for number, (kind, children) in enumerate(zip(circuit.kinds.tolist(), circuit.arguments, strict=True), literals):
        if kind == OR:
            terms = [term for child in children for term in made[child]]
        else:
            terms = [[factor for child in children for factor in made[child][0]]]
        alone = parents[number] == 1 and (len(terms) == 1 or not multiplied[number])
        if not alone and not (len(terms) == 1 == len(terms[0]) and parents[number]):
            kept.append(terms)
            terms = [[literals + len(kept) - 1]]
        made.append(terms)
    flat = [term for terms in kept for term in terms]
    sums, products = ([0, *accumulate(map(len, rows))] for rows in (kept, flat))
    values = [1.0] * literals
    for terms in kept:
        values.append(math.fsum(_product([values[f] for f in term]) for term in terms))
    bound = math.log(values[-1]) if values[-1] > 0 else 0.0
    arrays = (np.array(x, np.int32) for x in (sums, products, [f for term in flat for f in term]))
    return Program(literals, *arrays, bound + math.log(len(flat) + products[-1] + 1))


def _product(numbers: list[float]) -> float:
    return math.inf if math.inf in numbers else math.prod(numbers)


class _Fields(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("literals", "nodes", "longest")),
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
        nodes = (program.literals + program.nodes) * (2 if slopes and mode != "best" else 1)
        fitting = (w for w in WIDTHS if 8 * LANES * w * nodes <= NEAR and LANES * w < 2 * rows)
        width = next(fitting, 1)
        threads = torch.get_num_threads() if rows * edges > SHARED else 1
        wide = LANES * width
        step = wide * max(1, WORK * threads // (wide * edges))
        pointers = (program.sums, program.products, program.factors)
        longest = int(np.diff(program.products).max(initial=1))
        addresses = (array.ctypes.data for array in pointers)
        fields = _Fields(program.literals, program.nodes, longest, *addresses, program.bound)
        for first in range(0, rows, step):
            wrong = self._library.evaluate(
                ctypes.byref(fields),
                *(ctypes.c_int(x) for x in (MODES[mode], weights.dtype == torch.float32, width, threads)),
                *(ctypes.c_int64(x) for x in (rows, first, min(first + step, rows))),
                ctypes.c_void_p(weights.data_ptr()),
                *(ctypes.c_int64(x) for x in weights.stride()),
                ctypes.c_void_p(roots.data_ptr()),
                ctypes.c_void_p(None if found is None else found.data_ptr()),
            )
            if wrong == 1:
                raise MemoryError("no memory for the values of a circuit")
            if wrong:
                raise ProblemError("the circuit is not decomposable: children of a conjunction share a variable")
        return roots, found


@cache
def native_kernel() -> Kernel | None:
    """The kernel, or None where there is no C compiler or it does not do its work.

    Set the environment variable ``DOXA_NATIVE=0`` to do without.

    >>> kernel = native_kernel()                                     # compiled once, then kept in a private directory
    """
    library = native_library(Path(__file__).with_name("_kernel.c"))
    return None if library is None else Kernel(library)
