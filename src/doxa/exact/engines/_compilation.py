"""Exact inference by compiled circuits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from doxa._cache import Lock, for_later
from doxa._native import cache_directory
from doxa.errors import ConfigError
from doxa.exact.circuits._circuit import Circuit
from doxa.exact.circuits._compiler import Backend, compile_with
from doxa.exact.circuits._encoding import Encoding, encode, encode_formula
from doxa.exact.circuits._files import Kept, key_of, load, save
from doxa.exact.circuits._kernel import MANY, Kernel, native_kernel
from doxa.exact.circuits._layers import evaluate, make_layers
from doxa.exact.circuits._semirings import FLOOR, NEG_INF, SUM, Reduce, restore
from doxa.exact.engines._reasoner import ExactReasoner
from doxa.problem import Impossible, Problem
from doxa.problem._budget import Budget, Meter
from doxa.problem._logspace import is_traced

Ask = Callable[[int, Tensor, Tensor | None], tuple[Tensor, ...]]
"""What is asked of rows and given values where a formula has the same truth value in all of them."""


class Compilation(ExactReasoner):
    """Exact inference by a circuit, compiled once from the factors or the formula of a problem.

    The clauses that these stand for become a circuit in which products and sums count models (chapter 6,
    "Weighted Model Counting"). This goes where variables are too entangled for ``Elimination`` but the knowledge
    leaves few possibilities, as in a Sudoku. Compiled circuits are kept on disk. Given values choose literals.

    That a formula does not hold is a circuit of its own, made when it is first asked for: one minus the probability
    that it holds would lose every digit where that is nearly 1.

    Args:
        problem: what to reason about; it must have factors or come from ``Problem.from_formula``.
        budget: what compiling may cost, and the numbers to hold at a time.
        backend: who compiles: "doxa", or "pysdd" or "dd" where these packages are installed.
        native: use the kernel in C: True, False, or None for where there is one.
        cache: keep the circuit on disk, and look for it there.
        impossible: what ``loss`` does with impossible outputs: "raise", "inf" or "finite".

    >>> from doxa.problem import Belief, cnf
    >>> reasoner = Compilation(cnf([[1, 2], [-1, 3]]))
    >>> reasoner.log_prob(Belief.uniform((2, 2, 2)), torch.tensor([1])).exp()
    tensor(0.5000)
    """

    def __init__(
        self,
        problem: Problem,
        *,
        budget: Budget | None = None,
        backend: Backend = "doxa",
        native: bool | None = None,
        cache: bool = True,
        impossible: Impossible = "raise",
    ) -> None:
        limits = budget or Budget()
        meter = Meter(limits, f"encoding {problem} as clauses")
        encoding = encode(problem, meter) if problem.formula is None else encode_formula(problem, True, meter)
        kernel = None if native is False else native_kernel()
        if native and kernel is None:
            raise ConfigError("native=True, but there is no working C compiler; install one, or say native=None")
        options = backend, cache, kernel, (len(problem.world), max(problem.world))
        compiled = Compiled(encoding, meter, *options)
        super().__init__(problem, impossible=impossible, budget=limits, entries=compiled.layers.entries)
        self._compiled = compiled
        self._negated: Compiled | None = None  # made when it is first asked for
        self._lock = Lock()
        self._options = options

    @property
    def circuit(self) -> Circuit:
        """The circuit; of a formula, the one that says that it holds."""
        return self._compiled.layers.circuit

    def _log_weight(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        if self.problem.formula is None:
            return self._compiled.value(self._weights(given, world, output), reduce)
        values = torch.stack([self._truth(world, given, value, reduce) for value in (0, 1)])
        return restore(reduce(values.clamp(min=FLOOR) + output.squeeze(1).T.clamp(min=FLOOR)))

    def _log_prob(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        if self.problem.formula is None or is_traced(output):
            return super()._log_prob(world, output, given, reduce)

        def ask(value: int, rows: Tensor, seen: Tensor | None) -> tuple[Tensor]:
            return (self._truth(rows, seen, value, reduce),)

        return self._by_truth(ask, world, output, given)[0]

    def _by_truth(self, ask: Ask, rows: Tensor, output: Tensor, given: Tensor | None) -> tuple[Tensor, ...]:
        """Ask for rows of which a formula holds, does not hold, or may do either, and put the answers together."""
        least, most = (int(x) for x in output.aminmax()) if len(output) else (1, 1)
        if least == most:
            return ask(least, rows, given)
        places, parts = [], []
        for value in torch.unique(output).tolist():
            own = (output.squeeze(1) == value).nonzero().squeeze(1)
            parts.append(ask(value, rows[own], None if given is None else given[own]))
            places.append(own)
        order = torch.cat(places).argsort()
        return tuple(torch.cat(answers)[order] for answers in zip(*parts, strict=True))

    def _truth(self, world: Tensor, given: Tensor | None, value: int, reduce: Reduce) -> Tensor:
        """log Z over the worlds in which a formula holds (1), does not hold (0), or all of them (-1)."""
        if value < 0:
            return restore(reduce(world.clamp(min=FLOOR).movedim(-1, 0)).sum(-1))
        return self._circuit(value).value(self._weights(given, world), reduce)

    def _best_worlds(
        self, rows: Tensor, out: Tensor, given: Tensor | None, k: int, meter: Meter
    ) -> tuple[Tensor, Tensor]:
        if not self._compiled.runs(rows) or k > MANY:
            return super()._best_worlds(rows, out, given, k, meter)
        if self.problem.formula is None:
            return self._compiled.best(self._weights(given, rows, self._agreeing(out, rows.dtype)), rows.shape[1], k)

        def ask(value: int, rows: Tensor, seen: Tensor | None) -> tuple[Tensor, ...]:
            if value < 0:
                return super(Compilation, self)._best_worlds(rows, out.new_full((len(rows), 1), value), seen, k, meter)
            meter.check_clock()
            return self._circuit(value).best(self._weights(seen, rows), rows.shape[1], k)

        worlds, total = self._by_truth(ask, rows, out, given)
        return worlds, total

    def _marginal(self, rows: Tensor, out: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        recorded = torch.is_grad_enabled() and rows.requires_grad
        if recorded or rows.ndim != 3 or not self._compiled.runs(rows):
            return super()._marginal(rows, out, given)
        if self.problem.formula is None:
            return self._compiled.shares(self._weights(given, rows, self._agreeing(out, rows.dtype)), rows)

        def ask(value: int, rows: Tensor, seen: Tensor | None) -> tuple[Tensor, ...]:
            if value < 0:
                return super(Compilation, self)._marginal(rows, out.new_full((len(rows), 1), value), seen)
            return self._circuit(value).shares(self._weights(seen, rows), rows)

        shares, total = self._by_truth(ask, rows, out, given)
        return shares, total

    def _circuit(self, value: int) -> Compiled:
        """The circuit of the worlds in which a formula holds (1) or does not (0)."""
        return self._compiled if value else self._negation()

    def _negation(self) -> Compiled:
        if self._negated is None:
            with self._lock:  # one thread makes it, the others wait
                if self._negated is None:
                    meter = Meter(self.budget, f"encoding the negation of {self.problem} as clauses")
                    encoding = encode_formula(self.problem, False, meter, breaking=self._options[0] == "doxa")
                    self._negated = Compiled(encoding, meter, *self._options)
        return self._negated

    def _weights(self, given: Tensor | None, *weights: Tensor) -> Tensor:
        """All log-weights, ``(n, R)``: those given are evidence; the last one is 0."""
        parts = [x.flatten(1) for x in weights]
        if given is not None:
            parts.append(self._agreeing(given, weights[0].dtype, self.problem.given).flatten(1))
        return torch.cat([*parts, weights[0].new_zeros(len(weights[0]), 1)], 1).T


class _World(NamedTuple):
    """Where the kernel finds a world among the literals, and the other way round."""

    literals: Tensor  # of each place of the world; one more than there are, where it has none
    complete: bool  # whether each has one
    certain: Tensor  # the places that every world has
    places: NDArray[np.int32]  # the variable and the value of each literal

    @classmethod
    def of(cls, sources: Tensor, always: Tensor, width: int, domain: int) -> _World:
        own = (sources < width * domain).nonzero().squeeze(1)  # no two literals have the same place
        literals = torch.full((width * domain,), len(sources)).index_copy(0, sources[own], own)
        places = np.full((2, len(sources)), -1, np.int32)
        places[:, own] = np.divmod(sources[own].numpy(), domain)
        return cls(literals, len(own) == len(literals), always[always < len(literals)], places)


class Compiled(nn.Module):
    """A circuit with the places of its weights, the first of which are those of a world: ``shape`` (W, D)."""

    sources: Tensor
    always: Tensor

    def __init__(
        self,
        encoding: Encoding,
        meter: Meter,
        backend: Backend,
        cache: bool,
        kernel: Kernel | None,
        shape: tuple[int, int],
    ) -> None:
        super().__init__()
        circuit = find_circuit(encoding, meter, backend, cache, native=kernel is not None)
        # With a kernel, layers are for torch where that cannot evaluate; few ask for them.
        self.layers = make_layers(circuit, meter=meter if kernel is None else None)
        self.kernel = kernel
        self.register_buffer("sources", encoding.sources, persistent=False)
        self.register_buffer("always", torch.tensor(encoding.always, dtype=torch.int64), persistent=False)
        self._shape = shape

    @cached_property
    def _world(self) -> _World:
        return for_later(partial(_World.of, self.sources.cpu(), self.always.cpu(), *self._shape))

    def value(self, weights: Tensor, reduce: Reduce) -> Tensor:
        """The log-weight of the circuit, ``(R,)``, with the sum that ``reduce`` stands for."""
        return self._value(weights, self._chosen(weights), reduce)

    def _chosen(self, weights: Tensor) -> Tensor:
        """The log-weights of the literals."""
        return weights.index_select(0, self.sources.to(weights.device))

    def _value(self, weights: Tensor, literals: Tensor, reduce: Reduce) -> Tensor:
        root = evaluate(self.layers, literals, reduce=reduce, kernel=self.kernel)
        return root + weights.index_select(0, self.always.to(weights.device)).sum(0) if len(self.always) else root

    def runs(self, rows: Tensor) -> bool:
        """Whether the kernel takes such rows."""
        return self.kernel is not None and not is_traced(rows) and self.kernel.accepts(rows)

    def shares(self, weights: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of ``value`` with respect to rows ``(R, W, D)``, which come first; and ``value``."""
        assert self.kernel is not None
        total, slopes = self.kernel.evaluate(self.layers.program, self._chosen(weights), slopes=True)
        assert slopes is not None
        literals, complete, certain, _ = self._world
        found = (slopes if complete else pad(slopes, (0, 0, 0, 1))).index_select(0, literals)
        if len(self.always):
            total = total + weights.index_select(0, self.always).sum(0)
            found[certain] = (total > NEG_INF).to(found.dtype)
        return found.reshape(*rows.shape[1:], len(rows)).permute(2, 0, 1), total

    def best(self, weights: Tensor, variables: int, k: int) -> tuple[Tensor, Tensor]:
        """The k best worlds ``(R, k, variables)``, and ``value``."""
        assert self.kernel is not None
        literals = self._chosen(weights)
        worlds = self.kernel.best(self.layers.program, literals, k, variables, self._world.places)[0]
        if len(self.always):  # what every world has may be impossible
            never = weights.index_select(0, self.always).amin(0) == NEG_INF
            worlds.masked_fill_(never[:, None, None], -1)
        return worlds, self._value(weights, literals, SUM)


def find_circuit(encoding: Encoding, meter: Meter, backend: Backend, cache: bool, native: bool) -> Circuit:
    """The finished circuit of an encoding, from disk if it is there; a budget means the same in both cases."""
    finish = f"forget {encoding.forget} smooth {encoding.smooth} broken {encoding.broken}"
    key = key_of(encoding.cnf, finish, backend)
    folder = None
    if cache:
        with contextlib.suppress(OSError):  # on a disk that cannot be written to
            folder = cache_directory()
    found = None if folder is None else load(key, folder)
    if found is not None:
        meter.task = f"compiling {len(encoding.cnf):,} clauses"
        meter.check_operations(found.operations)
        meter.check_nodes(found.nodes)
        return found.circuit
    circuit, meter = compile_with(backend, encoding.cnf, meter.budget, encoding.broken, meter, native)
    circuit = circuit.forget(encoding.forget, meter).smooth(encoding.smooth, meter)
    if folder is not None:
        save(key, Kept(circuit, meter.operations, meter.nodes), folder)
    return circuit
