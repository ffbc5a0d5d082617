"""The questions that every exact engine answers, written once.

An engine computes log Z(θ, η) = log Σ_w Π_i exp θ[i, w_i] Π_j exp η[j, c(w)_j]. With θ the belief and η = 0 where an
output agrees with what was observed, else -inf, this is log p(y | P). Its derivatives are marginal probabilities; with
a maximum or a random choice in place of the sum they are the most probable world or an exact sample.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.exact.circuits._semirings import BEST, NEG_INF, SUM, Reduce
from doxa.problem import Belief, Explanations, Impossible, Problem
from doxa.problem._budget import Budget, Meter
from doxa.problem._logspace import common_batch, is_traced
from doxa.problem._reasoner import Probabilistic


def too_many(what: str, budget: Budget) -> str:
    """The message for something that takes too many entries."""
    remedy = "raise Budget(entries=...), or use an approximate engine: sampled or amortized"
    return f"{what}, more than {budget.entries:,}; {remedy}"


class ExactReasoner(Probabilistic, ABC):
    """Exact inference: p(y | P) and all that follows from it, batched and differentiable any number of times.

    ``Enumeration``, ``Elimination`` and ``Compilation`` are its engines; ``plan`` picks one. Outputs are int64
    ``(*batch, Y)``, or ``(Y,)`` for all rows, with -1 for unobserved variables; what is known of the world goes
    into the belief by ``condition``. Values of the problem's given variables, if it has such, are int64 ``(*batch, G)``
    or ``(G,)``; they come with every question. An *impossible* output has ``log_prob`` -inf with derivative 0.

    >>> from doxa import exact, problem
    >>> isinstance(exact.Elimination(problem.addition(15)), ExactReasoner)
    True
    """

    exactness: Literal["exact"] = "exact"

    def __init__(self, problem: Problem, *, impossible: Impossible, budget: Budget | None, entries: int) -> None:
        limits = budget or Budget()
        super().__init__(problem, impossible, limits.entries // max(entries, 1))
        self.budget = limits
        if not self._rows_at_once:
            raise BudgetError("entries", too_many(f"one row takes {entries:,} numbers at a time", limits))

    @abstractmethod
    def _log_weight(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        """log Z for log-weights ``(R, W, D)`` of the world and ``(R, Y, E)`` of the output: ``(R,)``."""

    def _log_prob(self, world: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        """log Z for observed outputs ``(R, Y)``, for engines that need not look at the other values."""
        return self._log_weight(world, self._agreeing(output, world.dtype), given, reduce)

    def log_prob(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """log p(y | P), ``(*batch,)``; -inf with derivative 0 for an impossible output.

        >>> from doxa import exact, problem
        >>> belief = Belief.from_bernoulli(probs=torch.tensor([0.5, 0.9]))
        >>> exact.Enumeration(problem.parity(2)).log_prob(belief, torch.tensor([1])).exp()
        tensor(0.5000)
        """

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor]:
            return (self._log_prob(rows, out, seen, SUM),)

        return self._by_rows(query, belief, output, given, recompute=True)[0]

    def possible(self, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """Whether some world gives the (observed part of the) output: bool ``(*batch,)``.

        >>> from doxa import exact, problem
        >>> exact.Elimination(problem.addition(1)).possible(torch.tensor([[1, 8], [1, 9], [-1, 9]]))
        tensor([ True, False,  True])
        """
        self.problem.require_output(output)
        self.problem.require_given(given)
        batch = common_batch(output, given)
        belief = Belief.uniform(self.problem.world, batch, device=output.device)
        seen = None if given is None else given.expand(*batch, -1)
        return self.log_prob(belief, output.expand(*batch, -1), given=seen) > NEG_INF

    def marginals(self, belief: Belief, output: Tensor | None = None, *, given: Tensor | None = None) -> Belief:
        """p(y_j | P) for each output variable, as a belief over the output; given the observed part, if any.

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> Elimination(addition(1)).marginals(Belief.uniform((10, 10))).probs[0, :2]         # is there a carry?
        tensor([0.5500, 0.4500])
        """

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            agreeing = self._agreeing(out, rows.dtype)
            total, (_, shares) = derivatives(lambda w, y: self._log_weight(w, y, seen, SUM), rows, agreeing)
            return log_of(shares), total

        log_probs, total = self._by_rows(query, belief, output, given)
        self._require_possible(total, self._observed(belief, output), given)
        return Belief(log_probs, self.problem.output, validate=False)

    def posterior(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Belief:
        """p(w_i | y, P) for each world variable, as a belief; impossible outputs are an error.

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> Elimination(addition(1)).posterior(Belief.uniform((10, 10)), torch.tensor([0, 1])).probs[:, :3]
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000]])
        """
        return Belief(log_of(self._shares(belief, output, given)[0]), self.problem.world, validate=False)

    def predict(self, belief: Belief, *, given: Tensor | None = None, width: int = 8) -> Tensor:
        """The most probable output, int64 ``(*batch, Y)``: argmax over y of p(y | P), found by ``most_probable``.

        >>> from doxa import exact, problem
        >>> exact.Elimination(problem.majority(3)).predict(Belief.from_bernoulli(probs=torch.tensor([0.9, 0.2, 0.6])))
        tensor([1])
        """
        return self.most_probable(belief, given=given, width=width)[0]

    def most_probable(self, belief: Belief, *, given: Tensor | None = None, width: int = 8) -> tuple[Tensor, Tensor]:
        """The most probable output ``(*batch, Y)``, and whether it is proven to be, bool ``(*batch,)``.

        The outputs are searched value by value, keeping the ``width`` most probable beginnings; their probabilities are
        exact, and no output is more probable than its beginning. When no dropped beginning was more probable
        than the output that was found, this output is the best of all. Raise ``width`` where that fails.

        >>> from doxa import exact, problem
        >>> exact.Elimination(problem.addition(1)).most_probable(Belief.uniform((10, 10)))
        (tensor([0, 9]), tensor(True))
        """
        if width < 1:
            raise ProblemError(f"width is {width}, expected at least 1")

        meter = Meter(self.budget, "finding the most probable output")

        def next_value(rows: Tensor, out: Tensor, seen: Tensor | None, variable: int) -> Tensor:
            meter.check_clock()
            return self._next_value(rows, out, seen, variable)

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            return most_probable_output(next_value, rows, seen, self.problem.output, width)

        output, proven = self._by_rows(query, belief.detach(), None, given, shrink=width)
        return output, proven

    def explain(self, belief: Belief, output: Tensor, k: int = 1, *, given: Tensor | None = None) -> Explanations:
        """The k most probable worlds that give the output, with log p(w | y, P), best first.

        Worlds of probability 0 explain nothing. The order of equally probable worlds is not defined.

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> left, right = torch.zeros(10), torch.zeros(10)
        >>> left[4], left[5], right[8], right[9] = 0.4, 0.6, 0.5, 0.5
        >>> best = Elimination(addition(1)).explain(Belief.from_probs([left, right]), torch.tensor([1, 3]), k=2)
        >>> best.worlds, best.scores.exp()
        (tensor([[5, 8],
                [4, 9]]), tensor([0.6000, 0.4000]))
        """
        if k < 1:
            raise ProblemError(f"k is {k}, expected at least 1")
        sizes, meter = self.problem.world, Meter(self.budget, f"finding the {k:,} best worlds")

        def find(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            meter.check_clock()
            return self._best_world(rows, out, seen)

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor]:
            return (k_best(find, rows, out, seen, sizes, k),)

        (worlds,) = self._by_rows(query, belief.detach(), output, given, shrink=len(sizes) if k > 1 else 1)
        missing = worlds[..., 0] < 0
        prior = belief.log_prob(worlds.clamp(min=0).movedim(-2, 0)).movedim(0, -1)
        total = self.log_prob(belief, output, given=given).unsqueeze(-1)
        scores = (prior - total.masked_fill(total == NEG_INF, 0.0)).masked_fill(missing, NEG_INF)
        order = scores.detach().argsort(dim=-1, descending=True, stable=True)
        return Explanations(worlds.gather(-2, order.unsqueeze(-1).expand_as(worlds)), scores.gather(-1, order))

    def sample(
        self,
        belief: Belief,
        output: Tensor,
        count: int = 1,
        *,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Worlds drawn from p(w | y, P), int64 ``(count, *batch, W)``; impossible outputs are an error.

        >>> from doxa import exact, problem
        >>> exact.Elimination(problem.addition(1)).sample(Belief.uniform((10, 10)), torch.tensor([1, 8]))
        tensor([[9, 9]])
        """
        reduce = Reduce("drawn", generator)

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            many, outs = (x.repeat_interleave(count, 0) for x in (rows, out))
            seens = None if seen is None else seen.repeat_interleave(count, 0)
            total, (choices,) = derivatives(lambda w: self._log_prob(w, outs, seens, reduce), many)
            worlds = choices.argmax(-1).reshape(len(rows), count, -1)
            return worlds, total.reshape(len(rows), count).amax(-1) if count else total.new_zeros(len(rows))

        with torch.no_grad():
            worlds, total = self._by_rows(query, belief.detach(), output, given, shrink=max(count, 1))
        self._require_possible(total, output, given)
        return worlds.movedim(-2, 0)

    def entropy(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """-Σ_w p(w | y, P) log p(w | y, P) in nats, ``(*batch,)``; impossible outputs are an error.

        Equals log p(y | P) - Σ_i Σ_v p(w_i = v | y, P) log P[i, v].

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> Elimination(addition(1)).entropy(Belief.uniform((10, 10)), torch.tensor([1, 3])).exp()   # 6 worlds
        tensor(6.)
        """
        shares, total = self._shares(belief, output, given)
        log_probs = belief.log_probs[..., : shares.shape[-1]]
        return total - (shares * log_probs.masked_fill(log_probs == NEG_INF, 0.0)).sum((-1, -2))

    def kl(
        self, belief: Belief, output: Tensor, other: Belief, *, given: Tensor | None = None, posterior: bool = False
    ) -> Tensor:
        """KL(p(w | y, P) ‖ p(w | Q)) in nats, ``(*batch,)``; with ``posterior=True`` KL(p(w | y, P) ‖ p(w | y, Q)).

        For Q = P it is -log p(y | P), or 0. It is +inf, with derivative 0, where Q excludes a world that P and y allow.

        >>> from doxa import exact, problem
        >>> belief = Belief.uniform((10, 10))
        >>> reasoner = exact.Elimination(problem.addition(1))
        >>> torch.allclose(reasoner.kl(belief, torch.tensor([1, 3]), belief), torch.tensor(100 / 6).log())
        True
        """
        self.problem.require(other, output, given)
        shares, total = self._shares(belief, output, given)
        width = shares.shape[-1]
        ours, theirs = belief.log_probs[..., :width], other.log_probs[..., :width]
        excluded = (shares > 0) & (theirs == NEG_INF)
        used = (shares > 0) & ~excluded
        ratio = torch.where(used, ours, 0.0) - torch.where(used, theirs, 0.0)
        divergence = (shares * ratio).sum((-1, -2)) - total
        if posterior:
            divergence = divergence + self.log_prob(other, output, given=given)
        return divergence.masked_fill(excluded.flatten(-2).any(-1), math.inf)

    def expectation(
        self,
        belief: Belief,
        function: Callable[[Tensor], Tensor] | Tensor,
        *,
        given: Tensor | None = None,
        max_outputs: int = 4096,
    ) -> Tensor:
        """E[f(y)] = Σ_y p(y | P) f(y), ``(*batch, *shape)``.

        Args:
            belief: what is believed of the world.
            function: f from outputs ``(K, Y)`` to values ``(K, *shape)``, which is tried on every output; or, for
                any number of outputs, a tensor ``(*shape, Y, E)`` of numbers to add up, f(y) = Σ_j values[..., j, y_j].
            given: values of the given variables.
            max_outputs: refuse a function when there are more outputs than this.

        >>> from doxa import exact, problem
        >>> reasoner, belief = exact.Elimination(problem.addition(1)), Belief.uniform((10, 10))
        >>> round(reasoner.expectation(belief, lambda y: 10 * y[:, 0] + y[:, 1]).item(), 4)
        9.0
        >>> round(reasoner.expectation(belief, torch.arange(10.0) * torch.tensor([[10.0], [1.0]])).item(), 4)
        9.0
        """
        sizes = self.problem.output
        if isinstance(function, Tensor):
            if tuple(function.shape[-2:]) != (len(sizes), max(sizes)):
                wanted = f"(..., {len(sizes)}, {max(sizes)}): one number for each value of each output variable"
                raise ProblemError(f"the values have shape {tuple(function.shape)}, expected {wanted}")
            values = function.to(belief.log_probs)
            probs = self.marginals(belief, given=given).probs
            return contract(probs.flatten(-2), values.flatten(-2).movedim(-1, 0))
        if math.prod(sizes) > max_outputs:
            refused = f"there are {math.prod(sizes):,} outputs, more than max_outputs={max_outputs:,}"
            raise ProblemError(f"{refused}; give the function as a tensor of numbers to add up, one for each value")
        outputs = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
        values = function(outputs)
        if values.ndim == 0 or len(values) != len(outputs):
            came = f"{tuple(values.shape)} for outputs of shape {tuple(outputs.shape)}"
            raise ProblemError(f"the function returned shape {came}, expected one value for each, on the first axis")
        many = Belief(belief.log_probs.unsqueeze(0).expand(len(outputs), *belief.log_probs.shape), belief.sizes, False)
        shape = (len(outputs), *[1] * len(belief.batch_shape), len(sizes))
        every = outputs.reshape(shape).expand(len(outputs), *belief.batch_shape, -1)
        seen = None if given is None else given.expand(*every.shape[:-1], -1)
        probs = self.log_prob(many, every, given=seen).exp()
        return contract(probs.movedim(0, -1), values.to(belief.log_probs))

    def _shares(self, belief: Belief, output: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """p(w_i = v | y, P), ``(*batch, W, D)``, and log p(y | P); an error for impossible outputs."""

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            total, (shares,) = derivatives(lambda w: self._log_prob(w, out, seen, SUM), rows)
            return shares, total

        shares, total = self._by_rows(query, belief, output, given)
        self._require_possible(total, output, given)
        return shares, total

    def _best_world(self, rows: Tensor, out: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        score, (choices,) = derivatives(lambda w: self._log_prob(w, out, given, BEST), rows)
        return choices.argmax(-1), score

    def _best_for(self, rows: Tensor, weights: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """The best world for log-weights of the world and of the output."""
        score, (choices,) = derivatives(lambda w: self._log_weight(w, weights, given, BEST), rows)
        return choices.argmax(-1), score

    def _next_value(self, rows: Tensor, out: Tensor, given: Tensor | None, variable: int) -> Tensor:
        """log p(observed part, y_variable = v | P) for each value v, ``(R, E)``."""
        agreeing = self._agreeing(out, rows.dtype)
        total, (shares,) = derivatives(lambda y: self._log_weight(rows, y, given, SUM), agreeing)
        return log_of(shares[:, variable]) + total.unsqueeze(-1)

    def _agreeing(self, output: Tensor, dtype: torch.dtype, domains: tuple[int, ...] | None = None) -> Tensor:
        """0 for the values that agree with an output ``(R, Y)`` (of ``domains``), -inf for others: ``(R, Y, E)``."""
        domains = self.problem.output if domains is None else domains
        sizes = torch.tensor(domains, device=output.device).unsqueeze(-1)
        values = torch.arange(max(domains), device=output.device)
        seen = output.unsqueeze(-1)
        agrees = (values == seen) | ((seen < 0) & (values < sizes))
        return torch.zeros(agrees.shape, dtype=dtype, device=output.device).masked_fill(~agrees, NEG_INF)


def derivatives(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The rows of a function and their derivatives, which are differentiable in turn where gradients are recorded."""
    if any(is_traced(x) for x in inputs):
        value, pull = torch.func.vjp(function, *inputs)[:2]
        return value, pull(torch.ones_like(value))
    recording = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    with torch.enable_grad():
        points = [x if recording and x.requires_grad else x.detach().requires_grad_() for x in inputs]
        value = function(*points)
        slopes = torch.autograd.grad(value.sum(), points, create_graph=recording)
    return (value if recording else value.detach()), slopes


def log_of(probs: Tensor) -> Tensor:
    """log p, -inf at 0; the derivative of a vanishing probability is taken as 0, for it cannot be represented."""
    floor = torch.finfo(probs.dtype).tiny / torch.finfo(probs.dtype).eps
    value = probs.clamp(min=floor).log()
    return torch.where(probs > floor, value, probs.detach().clamp(min=0).log())


def contract(probs: Tensor, values: Tensor) -> Tensor:
    """Σ_k probs[..., k] values[k, ...]"""
    rows = probs.reshape(math.prod(probs.shape[:-1]), probs.shape[-1])
    return (rows @ values.reshape(len(values), -1)).reshape((*probs.shape[:-1], *values.shape[1:]))


def k_best(
    best_world: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]],
    rows: Tensor,
    output: Tensor,
    given: Tensor | None,
    sizes: tuple[int, ...],
    k: int,
) -> Tensor:
    """The k best worlds of each row ``(R, W, D)``, int64 ``(R, k, W)``, best first; -1 where there are fewer.

    Lawler 1972: beside the best world of a set there are those that agree with it before variable i and differ at i.
    """
    count, width = len(rows), rows.shape[1]
    found = torch.full((count, k, width), -1, dtype=torch.int64, device=rows.device)
    worlds, scores = best_world(rows, output, given)
    # Each heap holds (-score, tie, world, first free variable, values excluded there)
    heaps: list[list[tuple[float, int, Tensor, int, frozenset[int]]]] = [[] for _ in range(count)]
    ties = 0
    for row, (world, score) in enumerate(zip(worlds, scores.tolist(), strict=True)):
        if score > NEG_INF:
            heaps[row].append((-score, ties, world, 0, frozenset()))
    for rank in range(k):
        parts: list[tuple[int, Tensor, int, frozenset[int]]] = []
        for row, heap in enumerate(heaps):
            if not heap:
                continue
            _, _, world, free, excluded = heapq.heappop(heap)
            found[row, rank] = world
            if rank == k - 1:
                continue
            values = world.tolist()
            for i in range(free, width):
                without = (excluded if i == free else frozenset()) | {values[i]}
                if len(without) < sizes[i]:
                    parts.append((row, world, i, without))
        if not parts:
            continue
        source = torch.tensor([part[0] for part in parts], device=rows.device)
        limited = rows[source] + _restriction(parts, rows)
        worlds, scores = best_world(limited, output[source], None if given is None else given[source])
        for (row, _, i, without), world, score in zip(parts, worlds, scores.tolist(), strict=True):
            if score > NEG_INF:
                ties += 1
                heapq.heappush(heaps[row], (-score, ties, world, i, without))
    return found


def _restriction(parts: list[tuple[int, Tensor, int, frozenset[int]]], rows: Tensor) -> Tensor:
    """0 for worlds that agree with the part's world before variable i and avoid the excluded values at i, else -inf."""
    width, domain = rows.shape[1:]
    worlds = torch.stack([part[1] for part in parts])
    first = torch.tensor([part[2] for part in parts], device=rows.device)
    before = torch.arange(width, device=rows.device) < first.unsqueeze(-1)
    other = worlds.unsqueeze(-1) != torch.arange(domain, device=rows.device)
    forbidden = before.unsqueeze(-1) & other
    places = [(n, part[2], value) for n, part in enumerate(parts) for value in part[3]]
    forbidden[tuple(torch.tensor(places, device=rows.device).T)] = True
    return torch.zeros(forbidden.shape, dtype=rows.dtype, device=rows.device).masked_fill(forbidden, NEG_INF)


def most_probable_output(
    next_value: Callable[[Tensor, Tensor, Tensor | None, int], Tensor],
    rows: Tensor,
    given: Tensor | None,
    sizes: tuple[int, ...],
    width: int,
) -> tuple[Tensor, Tensor]:
    """The best output ``(R, Y)`` that a beam of exact probabilities finds, and whether it is the best of all."""
    count = len(rows)
    beam = torch.full((count, 1, len(sizes)), -1, dtype=torch.int64, device=rows.device)
    dropped = rows.new_full((count,), NEG_INF)
    scores = rows.new_zeros(count, 1)
    for variable, size in enumerate(sizes):
        kept = beam.shape[1]
        seen = None if given is None else given.repeat_interleave(kept, 0)
        tables = next_value(rows.repeat_interleave(kept, 0), beam.flatten(0, 1), seen, variable)[:, :size]
        ranked, order = tables.reshape(count, kept * size).sort(dim=-1, descending=True, stable=True)
        keep = min(width, kept * size)
        if keep < kept * size:
            dropped = torch.maximum(dropped, ranked[:, keep])
        scores, order = ranked[:, :keep], order[:, :keep]
        beam = beam.gather(1, (order // size).unsqueeze(-1).expand(-1, -1, len(sizes))).clone()
        beam[:, :, variable] = order % size
    return beam[:, 0], scores[:, 0] >= dropped
