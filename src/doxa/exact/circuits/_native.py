"""The native kernel: the same evaluation in C, compiled on first use where there is a C compiler. Never required."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from doxa._native import native_library
from doxa.exact.circuits._circuit import Circuit

SOURCE = Path(__file__).with_name("_kernel.c")
NAMES = {torch.float32: "float", torch.float64: "double"}
BLOCK = 128  # rows that the kernel takes at a time
WORK = 1 << 24  # about as many edges times rows as take a tenth of a second: so soon Ctrl-C is answered


class Kernel:
    """A compiled kernel."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def accepts(self, weights: Tensor) -> bool:
        """Whether these are numbers that the kernel computes with: on the CPU, in single or double precision."""
        return weights.device.type == "cpu" and weights.dtype in NAMES

    def values(self, circuit: Circuit, weights: Tensor, *, real: bool = False) -> Tensor:
        """The (log-)weight of every node ``(nodes, R)`` from those of the literals ``(2 · variables, R)``."""
        values = torch.empty(circuit.literals + len(circuit), weights.shape[1], dtype=weights.dtype)
        values[: circuit.literals] = weights
        self._call("products" if real else "values", circuit, values)
        return values

    def derivatives(self, circuit: Circuit, values: Tensor, grad: Tensor, *, real: bool = False) -> Tensor:
        """The derivative of the root, times ``grad`` ``(R,)``, with respect to the literals."""
        slopes = torch.zeros_like(values)
        slopes[-1] = grad
        done = self._call("product_slopes" if real else "slopes", circuit, values, slopes)
        if real and not done:
            raise MemoryError("no memory for the products of a conjunction")
        return slopes[: circuit.literals]

    def _call(self, what: str, circuit: Circuit, *tensors: Tensor) -> bool:
        arrays = (circuit.kinds, circuit.offsets, circuit.children)
        kinds, offsets, children = (ctypes.c_void_p(np.ascontiguousarray(a).ctypes.data) for a in arrays)
        sizes = (ctypes.c_int64(circuit.literals), ctypes.c_int64(len(circuit)))
        rows = tensors[0].shape[1]
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        function = getattr(self._library, f"{what}_{NAMES[tensors[0].dtype]}")
        edges = max(circuit.edges, 1)
        step = BLOCK * max(1, WORK // (BLOCK * edges)) if BLOCK * edges < 4 * WORK else max(1, 4 * WORK // edges)
        done = []
        for first in range(0, rows, step):
            part = (ctypes.c_int64(x) for x in (rows, first, min(first + step, rows)))
            done.append(function(*sizes, kinds, offsets, children, *part, *pointers))
        return all(done)


@cache
def native_kernel() -> Kernel | None:
    """The kernel, or None where there is no C compiler or it does not do its work.

    Set the environment variable ``DOXA_NATIVE=0`` to do without.

    >>> kernel = native_kernel()                                     # compiled once, then kept in a private directory
    """
    library = native_library(SOURCE)
    return None if library is None else Kernel(library)
