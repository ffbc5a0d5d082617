"""The questions that every exact engine answers, written once.

An engine computes log Z(θ, η) = log Σ_w Π_i exp θ[i, w_i] Π_j exp η[j, c(w)_j]. With θ the belief and η = 0 where an
output agrees with what was observed, else -inf, this is log p(y | P). Its derivatives are marginal probabilities; with
a maximum or a random choice in place of the sum they are the most probable world or an exact sample.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from doxa.errors import BudgetError, ProblemError
from doxa.exact.circuits._semirings import BEST, NEG_INF, SUM, Reduce
from doxa.exact.engines._mixture import drawn, entropy_of_mixture, joined, over_components, pooled_best
from doxa.exact.engines._search import contract, derivatives, finite, k_best, log_of, most_probable_output
from doxa.problem import Belief, Explanations, Impossible, Mixture, Problem
from doxa.problem._budget import Budget, Meter
from doxa.problem._logspace import common_batch
from doxa.problem._mixture import AnyBelief, refuse, require_belief
from doxa.problem._reasoner import Probabilistic, how_many


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

    Every question may be asked of a `Belief` or of a `Mixture`, whose components are answered for in one call: sums
    over worlds are linear, so they are as exact. Only ``entropy`` and ``kl`` have no formula for a mixture;
    ``entropy_bounds`` has.

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

    def _total(self, rows: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        """``_log_prob`` of the rows of a belief or a mixture."""
        return joined(lambda w, y, g: self._log_prob(w, y, g, reduce), reduce, rows, output, given)

    def _weigh(self, rows: Tensor, output: Tensor, given: Tensor | None, reduce: Reduce) -> Tensor:
        """``_log_weight`` of the rows of a belief or a mixture."""
        return joined(lambda w, y, g: self._log_weight(w, y, g, reduce), reduce, rows, output, given)

    def log_prob(self, belief: AnyBelief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """log p(y | P), ``(*batch,)``; -inf with derivative 0 for an impossible output.

        >>> from doxa import exact, problem
        >>> belief = Belief.from_bernoulli(probs=torch.tensor([0.5, 0.9]))
        >>> exact.Enumeration(problem.parity(2)).log_prob(belief, torch.tensor([1])).exp()
        tensor(0.5000)
        """

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor]:
            return (self._total(rows, out, seen, SUM),)

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

    def marginals(self, belief: AnyBelief, output: Tensor | None = None, *, given: Tensor | None = None) -> Belief:
        """p(y_j | P) for each output variable, as a belief over the output; given the observed part, if any.

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> Elimination(addition(1)).marginals(Belief.uniform((10, 10))).probs[0, :2]         # is there a carry?
        tensor([0.5500, 0.4500])
        """

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            agreeing = self._agreeing(out, rows.dtype)
            total, (_, shares) = derivatives(lambda w, y: self._weigh(w, y, seen, SUM), rows, agreeing)
            return log_of(shares), total

        log_probs, total = self._by_rows(query, belief, output, given)
        self._require_possible(total, self._observed(belief, output), given)
        return Belief(log_probs, self.problem.output, validate=False)

    def posterior(self, belief: AnyBelief, output: Tensor, *, given: Tensor | None = None) -> Belief:
        """p(w_i | y, P) for each world variable, as a belief; impossible outputs are an error.

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> Elimination(addition(1)).posterior(Belief.uniform((10, 10)), torch.tensor([0, 1])).probs[:, :3]
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000]])
        """
        return Belief(log_of(self._shares(belief, output, given)[0]), self.problem.world, validate=False)

    def predict(self, belief: AnyBelief, *, given: Tensor | None = None, width: int = 8) -> Tensor:
        """The most probable output, int64 ``(*batch, Y)``: argmax over y of p(y | P), found by ``most_probable``.

        >>> from doxa import exact, problem
        >>> exact.Elimination(problem.majority(3)).predict(Belief.from_bernoulli(probs=torch.tensor([0.9, 0.2, 0.6])))
        tensor([1])
        """
        return self.most_probable(belief, given=given, width=width)[0]

    def most_probable(self, belief: AnyBelief, *, given: Tensor | None = None, width: int = 8) -> tuple[Tensor, Tensor]:
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

    def explain(
        self, belief: AnyBelief, output: Tensor, k: int = 1, *, given: Tensor | None = None, width: int = 4
    ) -> Explanations:
        """The k most probable worlds that give the output, with log p(w | y, P), best first.

        Worlds of probability 0 explain nothing. The order of equally probable worlds is not defined. For a mixture they
        are found among the k best worlds of each component, or up to ``width`` where it takes more to prove that these
        are the best; ``optimal`` says for which of them that was proven.

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> left, right = torch.zeros(10), torch.zeros(10)
        >>> left[4], left[5], right[8], right[9] = 0.4, 0.6, 0.5, 0.5
        >>> best = Elimination(addition(1)).explain(Belief.from_probs([left, right]), torch.tensor([1, 3]), k=2)
        >>> best.worlds, best.scores.exp()
        (tensor([[5, 8],
                [4, 9]]), tensor([0.6000, 0.4000]))
        """
        require_belief(belief)
        k = how_many(k)
        meter = Meter(self.budget, f"finding the {k:,} best worlds")

        def search(rows: Tensor, out: Tensor, seen: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
            return self._best_worlds(rows, out, seen, count, meter)

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            return pooled_best(search, rows, out, seen, k, width)

        worlds, proven, total = self._by_rows(query, belief, output, given, recompute=True, shrink=k)
        missing = worlds[..., 0] < 0
        prior = belief._gather(worlds.clamp(min=0).movedim(-2, 0)).movedim(0, -1)
        scores = (prior - total.masked_fill(total == NEG_INF, 0.0).unsqueeze(-1)).masked_fill(missing, NEG_INF)
        if k == 1 or bool((scores[..., 1:] <= scores[..., :-1]).all()):
            return Explanations(worlds, scores, proven)
        order = scores.detach().argsort(dim=-1, descending=True, stable=True)
        ranked = worlds.gather(-2, order.unsqueeze(-1).expand_as(worlds)), scores.gather(-1, order)
        return Explanations(*ranked, proven.gather(-1, order))

    def sample(
        self,
        belief: AnyBelief,
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
            many = drawn(lambda w, y, g: self._log_prob(w, y, g, SUM), rows, count, generator, out, seen)
            outs = out.repeat_interleave(count, 0)
            seens = None if seen is None else seen.repeat_interleave(count, 0)
            total, (choices,) = derivatives(lambda w: self._log_prob(w, outs, seens, reduce), many)
            worlds = choices.argmax(-1).reshape(len(rows), count, -1)
            return worlds, total.reshape(len(rows), count).amax(-1) if count else total.new_zeros(len(rows))

        with torch.no_grad():
            worlds, total = self._by_rows(query, belief.detach(), output, given, shrink=max(count, 1))
        self._require_possible(total, output, given)
        return worlds.movedim(-2, 0)

    def entropy(self, belief: AnyBelief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """-Σ_w p(w | y, P) log p(w | y, P) in nats, ``(*batch,)``; impossible outputs are an error.

        Equals log p(y | P) - Σ_i Σ_v p(w_i = v | y, P) log P[i, v].

        >>> from doxa.exact import Elimination
        >>> from doxa.problem import addition
        >>> Elimination(addition(1)).entropy(Belief.uniform((10, 10)), torch.tensor([1, 3])).exp()   # 6 worlds
        tensor(6.)
        """
        if isinstance(belief, Mixture):
            refuse("the entropy of a mixture has no formula", "entropy_bounds says between which numbers it lies")
        shares, total = self._shares(belief, output, given)
        log_probs = belief.log_probs[..., : shares.shape[-1]]
        return total - (shares * finite(log_probs)).sum((-1, -2))

    def entropy_bounds(
        self, belief: AnyBelief, output: Tensor, *, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Two numbers ``(*batch,)`` between which the entropy of p(w | y, P) lies; equal for a `Belief`.

        They are those of `Mixture.entropy_bounds`, for the components given y, and take K² questions to the engine.

        >>> from doxa import exact, problem
        >>> belief = problem.Mixture.from_logits(torch.zeros(3, 2, 10), torch.zeros(3))
        >>> low, high = exact.Elimination(problem.addition(1)).entropy_bounds(belief, torch.tensor([1, 3]))
        >>> round(low.exp().item(), 4), round(high.exp().item(), 4)
        (6.0, 6.0)
        """
        if isinstance(belief, Belief):
            entropy = self.entropy(belief, output, given=given)
            return entropy, entropy

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            return entropy_of_mixture(lambda w, y, g: self._log_prob(w, y, g, SUM), rows, out, seen)

        shrink = belief.log_weights.shape[-1]
        low, high, total = self._by_rows(query, belief, output, given, shrink=shrink)
        self._require_possible(total, output, given)
        return low, high

    def kl(
        self, belief: AnyBelief, output: Tensor, other: Belief, *, given: Tensor | None = None, posterior: bool = False
    ) -> Tensor:
        """KL(p(w | y, P) ‖ p(w | Q)) in nats, ``(*batch,)``; with ``posterior=True`` KL(p(w | y, P) ‖ p(w | y, Q)).

        For Q = P it is -log p(y | P), or 0. It is +inf, with derivative 0, where Q excludes a world that P and y allow.

        >>> from doxa import exact, problem
        >>> belief = Belief.uniform((10, 10))
        >>> reasoner = exact.Elimination(problem.addition(1))
        >>> torch.allclose(reasoner.kl(belief, torch.tensor([1, 3]), belief), torch.tensor(100 / 6).log())
        True
        """
        if isinstance(belief, Mixture):
            refuse(
                "the divergence of a mixture has no formula", "ask for entropy_bounds, or for that of its components"
            )
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
        belief: AnyBelief,
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
            probs = self.marginals(belief, given=given).probs
            return contract(probs.flatten(-2), function.to(probs).flatten(-2).movedim(-1, 0))
        if math.prod(sizes) > max_outputs:
            refused = f"there are {math.prod(sizes):,} outputs, more than max_outputs={max_outputs:,}"
            raise ProblemError(f"{refused}; give the function as a tensor of numbers to add up, one for each value")
        outputs = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
        values = function(outputs)
        if values.ndim == 0 or len(values) != len(outputs):
            came = f"{tuple(values.shape)} for outputs of shape {tuple(outputs.shape)}"
            raise ProblemError(f"the function returned shape {came}, expected one value for each, on the first axis")
        many = belief.expand(len(outputs), *belief.batch_shape)
        shape = (len(outputs), *[1] * len(belief.batch_shape), len(sizes))
        every = outputs.reshape(shape).expand(len(outputs), *belief.batch_shape, -1)
        seen = None if given is None else given.expand(*every.shape[:-1], -1)
        probs = self.log_prob(many, every, given=seen).exp()
        return contract(probs.movedim(0, -1), values.to(probs))

    def _shares(self, belief: AnyBelief, output: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """p(w_i = v | y, P), ``(*batch, W, D)``, and log p(y | P); an error for impossible outputs."""

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            shares, total = self._marginal(rows, out, seen)
            return over_components(shares), total

        shares, total = self._by_rows(query, belief, output, given)
        self._require_possible(total, output, given)
        return shares, total

    def _marginal(self, rows: Tensor, out: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """The derivatives of log Z with respect to the rows of a belief or a mixture, and log Z."""
        total, (shares,) = derivatives(lambda w: self._total(w, out, given, SUM), rows)
        return shares, total

    def _best_world(self, rows: Tensor, out: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        score, (choices,) = derivatives(lambda w: self._log_prob(w, out, given, BEST), rows)
        return choices.argmax(-1), score

    def _best_worlds(
        self, rows: Tensor, out: Tensor, given: Tensor | None, k: int, meter: Meter
    ) -> tuple[Tensor, Tensor]:
        """The k best worlds ``(R, k, W)``, by asking for the best again and again, of W rows for each; and log Z."""

        def find(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            meter.check_clock()
            return self._best_world(rows, out, seen)

        step = max(1, self._rows_at_once // (len(self.problem.world) if k > 1 else 1))
        found, known = [], rows.detach()
        for i in range(0, len(rows), step):
            seen = None if given is None else given[i : i + step]
            found.append(k_best(find, known[i : i + step], out[i : i + step], seen, self.problem.world, k))
        return torch.cat(found), self._log_prob(rows, out, given, SUM)

    def _best_for(self, rows: Tensor, weights: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """The best world for log-weights of the world and of the output."""
        score, (choices,) = derivatives(lambda w: self._log_weight(w, weights, given, BEST), rows)
        return choices.argmax(-1), score

    def _next_value(self, rows: Tensor, out: Tensor, given: Tensor | None, variable: int) -> Tensor:
        """log p(observed part, y_variable = v | P) for each value v, ``(R, E)``."""
        agreeing = self._agreeing(out, rows.dtype)
        total, (shares,) = derivatives(lambda y: self._weigh(rows, y, given, SUM), agreeing)
        return log_of(shares[:, variable]) + total.unsqueeze(-1)

    def _agreeing(self, output: Tensor, dtype: torch.dtype, domains: tuple[int, ...] | None = None) -> Tensor:
        """0 for the values that agree with an output ``(R, Y)`` (of ``domains``), -inf for others: ``(R, Y, E)``."""
        domains = self.problem.output if domains is None else domains
        sizes = torch.tensor(domains, device=output.device).unsqueeze(-1)
        values = torch.arange(max(domains), device=output.device)
        seen = output.unsqueeze(-1)
        agrees = (values == seen) | ((seen < 0) & (values < sizes))
        return torch.zeros(agrees.shape, dtype=dtype, device=output.device).masked_fill(~agrees, NEG_INF)
