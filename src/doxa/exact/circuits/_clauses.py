"""The compiler of clauses in C: the same steps as ``Search`` and ``shrink``, so the same circuits and operations."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doxa._native import native_library
from doxa.exact.circuits._circuit import FALSE, Circuit, CircuitBuilder
from doxa.exact.circuits._search import WIDE, Group
from doxa.problem._budget import Meter

MOST = 61  # literals of a group: what it allows must fit in a number
STEP = 1 << 17  # operations after which it looks whether to stop: a few milliseconds
DONE, PAUSED, NODES = 0, 1, 2

_integer, _pointer = ctypes.c_int64, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "search_new": (_pointer, _integer, _integer, _integer, _pointer, _pointer, _pointer, _integer),
    "search_switch": (None, _pointer, _integer, ctypes.c_int, ctypes.c_int),
    "search_begin": (ctypes.c_int, _pointer, _pointer, _integer),
    "search_go": (ctypes.c_int, _pointer, _integer, _integer),
    "search_progress": (ctypes.c_double, _pointer),
    "search_facts": (None, _pointer, _pointer),
    "search_finish": (_pointer, _pointer, _pointer, _integer, _pointer),
    "search_free": (None, _pointer),
    "sharing_new": (_pointer, _integer, _integer, _pointer, _pointer, _pointer),
    "sharing_go": (ctypes.c_int, _pointer, _integer, _pointer),
    "sharing_graph": (_pointer, _pointer, _pointer),
    "sharing_free": (None, _pointer),
    "graph_size": (None, _pointer, _pointer),
    "graph_take": (None, _pointer, _pointer, _pointer, _pointer),
}


@cache
def native_compiler() -> ctypes.CDLL | None:
    """The compiler, or None where there is no C compiler or it does not do its work.

    Set the environment variable ``DOXA_NATIVE=0`` to do without.

    >>> library = native_compiler()                                  # compiled once, then kept in a private directory
    """
    library = native_library(Path(__file__).with_name("_clauses.c"))
    if library is not None:
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    return library


class NativeSearch:
    """As ``Search``; no group may have more than ``MOST`` literals."""

    def __init__(
        self,
        library: ctypes.CDLL,
        variables: int,
        clauses: Sequence[tuple[int, ...]],
        groups: Sequence[Group],
        meter: Meter,
    ) -> None:
        self.variables, self.meter = variables, meter
        self._library = library
        rows = [*clauses, *(group.literals for group in groups)]
        starts = _numbers([0, *accumulate(map(len, rows))])
        literals, allowed = _numbers([x for row in rows for x in row]), _numbers([group.allowed for group in groups])
        addresses = [x.ctypes.data for x in (starts, literals, allowed)]
        self._state = _held(library.search_new(variables, len(clauses), len(groups), *addresses, WIDE))
        weakref.finalize(self, library.search_free, self._state)
        self._facts = np.zeros(3, np.int64)
        self._spent = 0

    def switch(self, number: int, group: bool, change: int) -> None:
        """A clause or a group need not hold (+1), or must again (-1)."""
        self._library.search_switch(self._state, number, group, change)

    def run(self, literals: list[int]) -> int:
        """The node for what must hold, and these literals."""
        meter, library, state = self.meter, self._library, self._state
        fixed = _numbers(literals)
        meter.progress = lambda: float(library.search_progress(state))
        status = library.search_begin(state, fixed.ctypes.data, len(fixed))
        while self._look(status) != DONE:
            ahead = min(STEP, meter.budget.operations - meter.operations)
            status = library.search_go(state, self._spent + int(ahead), int(min(meter.budget.nodes, 1 << 62)))
        return int(self._facts[2])

    def _look(self, status: int) -> int:
        """Count what was done; an error if it was too much."""
        if status < 0:
            raise MemoryError("no memory to compile clauses")
        self._library.search_facts(self._state, self._facts.ctypes.data)
        operations, most, _ = self._facts.tolist()
        done, self._spent = operations - self._spent, operations
        self.meter.spend(done)
        self.meter.check_nodes(most)
        return status

    def finish(self, cases: list[int]) -> Circuit:
        """The circuit of cases that exclude each other."""
        nodes, root = _numbers(cases), _integer(FALSE)
        graph = self._library.search_finish(self._state, nodes.ctypes.data, len(nodes), ctypes.byref(root))
        return _circuit(self._library, _held(graph), self.variables, root.value)


def native_shrink(library: ctypes.CDLL, circuit: Circuit, meter: Meter) -> Circuit:
    """As ``shrink``."""
    addresses = [x.ctypes.data for x in (circuit.kinds, circuit.offsets, circuit.children)]
    state = _held(library.sharing_new(circuit.variables, len(circuit), *addresses))
    try:
        root, operations, spent, status = _integer(FALSE), _integer(0), 0, PAUSED
        while True:
            graph = library.sharing_graph(state, ctypes.byref(operations))
            meter.spend(operations.value - spent)
            spent = operations.value
            if status == DONE:
                return _circuit(library, graph, circuit.variables, root.value)
            status = library.sharing_go(state, spent + STEP, ctypes.byref(root))
            if status < 0:
                raise MemoryError("no memory to shrink a circuit")
    finally:
        library.sharing_free(state)


def _numbers(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _held(address: int | None) -> int:
    if not address:
        raise MemoryError("no memory to compile clauses")
    return address


def _circuit(library: ctypes.CDLL, graph: int, variables: int, root: int) -> Circuit:
    """The finished circuit, read from where it was made."""
    if root < 2 * variables:
        return CircuitBuilder(variables).finish(root)
    sizes = np.zeros(2, np.int64)
    library.graph_size(graph, sizes.ctypes.data)
    nodes, edges = sizes.tolist()
    kinds, offsets, children = np.empty(nodes, np.int8), np.empty(nodes + 1, np.int64), np.empty(edges, np.int64)
    library.graph_take(graph, *(x.ctypes.data for x in (kinds, offsets, children)))
    return Circuit(variables, kinds, offsets, children)
