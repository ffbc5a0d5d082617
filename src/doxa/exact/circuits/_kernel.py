"""The kernel in C: a circuit as sums of products, evaluated with its derivatives a few rows at a time."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
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
MANY = 127  # best worlds that the kernel can find
WORK = 1 << 26  # about as many edges times rows as take a tenth of a second: so soon Ctrl-C is answered
SHARED = 1 << 20  # fewer are not worth a second thread


class _Fields(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("literals", "nodes", "derived", "extra", "longest")),
        *((name, ctypes.c_void_p) for name in ("places", "sums", "products", "factors", "models")),
        ("bound", ctypes.c_double),
    )


Terms = list[tuple[int, ...]]
"""The products that a node adds up, each of the numbers of its factors."""


@dataclass(frozen=True, eq=False)
class Program:
    """A circuit as sums of products: node i adds up the products ``sums[i]`` to ``sums[i + 1]``, product t multiplies
    the nodes ``factors[products[t]:products[t + 1]]``. The literals come first; the root is the last of ``nodes``.

    Those after the root, in ``with_derivatives``, are its derivatives, sums of products as well. The last ones are the
    derivatives with respect to the logarithms of the literals, times the root. A derivative takes the place of another
    one that nobody needs any more, so that few of them have to stay near; factors are places.
    """

    literals: int
    nodes: int
    places: NDArray[np.int32]  # where a node is kept
    sums: NDArray[np.int32]
    products: NDArray[np.int32]
    factors: NDArray[np.int32]
    models: NDArray[np.int32]  # how many models a node has, at least 1, or many
    bound: float  # the log of the value at weights of 1, times that of the edges

    @property
    def derived(self) -> int:
        """How many nodes there are after the root."""
        return len(self.places) - self.nodes

    @cached_property
    def extra(self) -> int:
        """How many places there are after that of the root."""
        return int(self.places[-1]) + 1 - self.literals - self.nodes

    @cached_property
    def longest(self) -> int:
        """The most factors of a product."""
        return int(np.diff(self.products).max(initial=1))

    @cached_property
    def with_derivatives(self) -> Program:
        """The same program, and what follows the root."""
        begin = self.literals + self.nodes
        ends, flat = self.products.tolist(), self.factors.tolist()
        terms = [tuple(flat[a:b]) for a, b in pairwise(ends)]
        nodes = [terms[a:b] for a, b in pairwise(self.sums.tolist())]
        derived = _derivatives(self.literals, nodes)
        places = np.array([*range(begin), *_places(begin, derived, self.literals)], np.int32)
        sums, products, factors = _flat(derived)
        return replace(
            self,
            places=places[self.literals :],
            sums=np.concatenate([self.sums, sums[1:] + self.sums[-1]]),
            products=np.concatenate([self.products, products[1:] + self.products[-1]]),
            factors=np.concatenate([self.factors, places[factors]]),
        )

    @property
    def fields(self) -> ctypes.Structure:
        """What the kernel sees of it."""
        arrays = (self.places, self.sums, self.products, self.factors, self.models)
        sizes = (self.literals, self.nodes, self.derived, self.extra, self.longest)
        return _Fields(*sizes, *(x.ctypes.data for x in arrays), self.bound)


def make_program(circuit: Circuit) -> Program:
    """Sums of products from conjunctions and disjunctions."""
    literals, nodes = circuit.literals, _sums_of_products(circuit)
    values = [1.0] * literals
    for terms in nodes:
        values.append(sum(_product([values[f] for f in term]) for term in terms))
    bound = math.log(values[-1]) if values[-1] > 0 else 0.0
    sums, products, factors = _flat(nodes)
    lengths = np.diff(products)
    # The derivatives have no more edges: of a product of k factors, k products of k factors, or a few for each.
    edges = (
        len(products) + len(factors) + int(np.maximum(lengths * (lengths + 1), 2 * lengths + 3).sum()) + 3 * literals
    )
    bound += math.log(edges)
    places = np.arange(literals, literals + len(nodes), dtype=np.int32)
    models = np.array([int(min(max(x, 1), MANY)) for x in values], np.int32)
    return Program(literals, len(nodes), places, sums, products, factors, models, bound)


def _flat(nodes: Sequence[Terms]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The products of each node, the factors of each product, and all factors in a row."""
    terms = [term for own in nodes for term in own]
    sums, products = (np.array([0, *accumulate(map(len, rows))], np.int32) for rows in (nodes, terms))
    return sums, products, np.array([f for term in terms for f in term], np.int32)


def _sums_of_products(circuit: Circuit) -> list[Terms]:
    """The terms of every node that is kept.

    A conjunction that only one node needs is a product of that node, and a disjunction within a disjunction is a part
    of it: neither has a number of its own to be kept. But a product has two factors that are not literals at most, and
    its literals, all together, where there are several.
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

    def joined(factors: tuple[int, ...]) -> int:
        if len(factors) == 1:
            return factors[0]
        if factors not in together:
            kept.append([factors])
            together[factors] = literals + len(kept) - 1
        return together[factors]

    def split(term: tuple[int, ...]) -> tuple[int, ...]:
        first = bisect_left(term, literals)  # literals come first
        own, rest = term[:first], term[first:]
        while len(rest) > 2:
            rest = tuple(joined(rest[i : i + 2]) for i in range(0, len(rest), 2))
        return (joined(own), *rest) if len(own) + len(rest) > 3 else own + rest

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

    That with respect to a factor is the product of the others: nothing is divided, so factors may be 0. With respect to
    logarithms, times the root, it is the same for all literals of a product: its value times its derivative.
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
                for k, x in enumerate(term):
                    parts[x].append((slope, *term[:k], *term[k + 1 :]))
        for x in ready.get(i, ()):
            if parts[x]:
                flows[x].append((add(*parts[x]), x))
    return made + flows


def _places(begin: int, derived: list[Terms], kept: int) -> list[int]:
    """Where derivatives are kept, from ``begin`` on: the last ones, which are asked for, in places of their own."""
    last = {x: i for i, terms in enumerate(derived) for term in terms for x in term if x >= begin}
    places: list[int] = []
    free: list[int] = []
    most = begin
    for i, terms in enumerate(derived[: len(derived) - kept]):
        free += [places[x - begin] for x in {x for term in terms for x in term} if last.get(x) == i]
        if not free:
            free.append(most)
            most += 1
        places.append(free.pop())
    return [*places, *range(most, most + kept)]


def _product(numbers: list[float]) -> float:
    return math.inf if math.inf in numbers else math.prod(numbers)


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
        program = program.with_derivatives if slopes and mode != "best" else program
        roots = weights.new_empty(weights.shape[1])
        found = torch.empty(weights.shape, dtype=weights.dtype) if slopes else None
        numbers = program.literals + program.nodes + program.extra
        outputs = (_at(roots), _at(found))
        self._run("evaluate", MODES[mode], program, numbers, len(program.factors), weights, outputs)
        return roots, found

    def best(
        self, program: Program, weights: Tensor, k: int, variables: int, places: NDArray[np.int32]
    ) -> tuple[Tensor, Tensor]:
        """The k best models of each row as worlds, int64 ``(R, k, variables)``, and their log-weights ``(k, R)``.

        ``places`` ``(2, 2 · variables)`` says which variable a literal speaks of, or -1, and which value it gives it. A
        variable of which no literal is in a model is 0. Where there are fewer models, worlds are -1, log-weights -inf.
        """
        rows = weights.shape[1]
        scores, worlds = weights.new_empty(k, rows), torch.empty(rows, k, variables, dtype=torch.int64)
        numbers = int(np.minimum(program.models, 1 << (k - 1).bit_length()).sum())
        outputs = (_at(scores), _at(worlds), ctypes.c_int64(variables), *(_at(x) for x in places))
        self._run("best_worlds", k, program, numbers, k * k * len(program.factors), weights, outputs)
        return worlds, scores

    def _run(
        self,
        function: str,
        what: int,
        program: Program,
        numbers: int,
        work: int,
        weights: Tensor,
        outputs: tuple[Any, ...],
    ) -> None:
        """Call a function for as many rows at a time as Ctrl-C can wait for: ``work`` for a row, with ``numbers``."""
        rows = weights.shape[1]
        width = next((w for w in WIDTHS if 8 * LANES * w * numbers <= NEAR and rows > LANES), 1)
        threads = torch.get_num_threads() if rows * work > SHARED else 1
        step = LANES * width * max(1, WORK * threads // (LANES * width * max(work, 1)))
        for first in range(0, rows, step):
            done = getattr(self._library, function)(
                ctypes.byref(program.fields),
                *(ctypes.c_int(x) for x in (what, weights.dtype == torch.float32, width, threads)),
                *(ctypes.c_int64(x) for x in (rows, first, min(first + step, rows))),
                _at(weights),
                *(ctypes.c_int64(x) for x in weights.stride()),
                *outputs,
            )
            if not done:
                raise MemoryError("no memory for the values of a circuit")


def _at(array: Tensor | NDArray[Any] | None) -> ctypes.c_void_p:
    """Where the numbers are."""
    return ctypes.c_void_p(
        None if array is None else array.data_ptr() if isinstance(array, Tensor) else array.ctypes.data
    )


@cache
def native_kernel() -> Kernel | None:
    """The kernel, or None where there is no C compiler or it does not do its work.

    Set the environment variable ``DOXA_NATIVE=0`` to do without.

    >>> kernel = native_kernel()                                     # compiled once, then kept in a private directory
    """
    library = native_library(Path(__file__).with_name("_kernel.c"))
    return None if library is None else Kernel(library)
