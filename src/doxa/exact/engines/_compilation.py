"""Exact inference by compiled circuits."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from doxa._native import cache_directory
from doxa.errors import ConfigError
from doxa.exact.circuits._backends import Backend, compile_with
from doxa.exact.circuits._circuit import Circuit
from doxa.exact.circuits._compiler import Budget
from doxa.exact.circuits._encoding import Encoding, encode
from doxa.exact.circuits._layers import Layers, Mode, evaluate, make_layers
from doxa.exact.circuits._native import Kernel, native_kernel
from doxa.exact.circuits._semirings import Drawn, Reduce, best
from doxa.exact.circuits._store import key_of, load, save
from doxa.exact.engines._reasoner import ExactReasoner, Impossible
from doxa.problem import Problem


class Compilation(ExactReasoner):
    """Exact inference by a circuit, compiled once from the factors of a problem.

    The clauses that the factors stand for become a circuit in which products and sums count models (chapter 6,
    "Weighted Model Counting"). This goes where variables are too entangled for ``Elimination`` but the knowledge
    leaves few possibilities, as in a Sudoku. Compiled circuits are kept on disk.

    Args:
        problem: what to reason about; it must have factors.
        budget: what compiling may cost.
        backend: who compiles: "doxa", or "pysdd" or "dd" where these packages are installed.
        native: use the kernel in C: True, False, or None for where there is one.
        cache: keep the circuit on disk, and look for it there.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".
        max_entries: memory bound: batches that need more numbers at a time are computed in parts.

    >>> from doxa.problem import Belief, cnf
    >>> reasoner = Compilation(cnf([[1, 2], [-1, 3]]))
    >>> reasoner.log_prob(Belief.uniform((2, 2, 2)), torch.tensor([1])).exp()
    tensor(0.5000)
    """

    sources: Tensor
    always: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        budget: Budget | None = None,
        backend: Backend = "doxa",
        native: bool | None = None,
        cache: bool = True,
        impossible: Impossible = "raise",
        max_entries: int = 1 << 26,
    ) -> None:
        encoding = encode(problem)
        layers = make_layers(compiled(encoding, budget, backend, cache))
        super().__init__(problem, impossible=impossible, max_entries=max_entries, entries=layers.entries)
        self.layers = layers
        self.kernel = choose_kernel(native)
        self.register_buffer("sources", encoding.sources, persistent=False)
        self.register_buffer("always", torch.tensor(encoding.always, dtype=torch.int64), persistent=False)

    @property
    def circuit(self) -> Circuit:
        """The circuit."""
        return self.layers.circuit

    def _log_weight(self, world: Tensor, output: Tensor, reduce: Reduce) -> Tensor:
        flat = torch.cat([world.flatten(1), output.flatten(1), world.new_zeros(len(world), 1)], 1).T
        root = run(self.layers, flat.index_select(0, self.sources), reduce, self.kernel)
        return root + flat.index_select(0, self.always).sum(0) if len(self.always) else root


def compiled(encoding: Encoding, budget: Budget | None, backend: Backend, cache: bool) -> Circuit:
    """The finished circuit of an encoding, from disk if it is there."""
    key = key_of(encoding.cnf, encoding.name, backend)
    folder = _folder() if cache else None
    circuit = None if folder is None else load(key, folder)
    if circuit is None:
        circuit = encoding.finish(compile_with(backend, encoding.cnf, budget or Budget()))
        if folder is not None:
            save(key, circuit, folder)
    return circuit


def _folder() -> Path | None:
    """Where circuits are kept; None on a disk that cannot be written to."""
    try:
        return cache_directory()
    except OSError:
        return None


def choose_kernel(native: bool | None) -> Kernel | None:
    """The kernel, if it is wanted and there is one."""
    kernel = None if native is False else native_kernel()
    if native and kernel is None:
        raise ConfigError("native=True, but there is no working C compiler; install one, or say native=None")
    return kernel


def run(layers: Layers, weights: Tensor, reduce: Reduce, kernel: Kernel | None) -> Tensor:
    """Evaluate a circuit with the sum that ``reduce`` stands for."""
    mode: Mode = "best" if reduce is best else "drawn" if isinstance(reduce, Drawn) else "sum"
    generator = reduce.generator if isinstance(reduce, Drawn) else None
    return evaluate(layers, weights, mode=mode, generator=generator, kernel=kernel)
