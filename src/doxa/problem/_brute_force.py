"""The reference reasoner: every world, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.errors import ProblemError
from doxa.problem._autoregressive import WorldTable
from doxa.problem._belief import Belief
from doxa.problem._definition import Impossible, values_of
from doxa.problem._logspace import NEG_INF, added_pairwise, common_batch, draw, logsumexp, segment_logsumexp
from doxa.problem._mixture import AnyBelief, rows_of
from doxa.problem._problem import Problem
from doxa.problem._reasoner import Explanations, Probabilistic, how_many


class BruteForce(Probabilistic):
    """Exact inference by enumerating all worlds: the oracle that other engines are tested against.

        p(y | P) = Σ_w p(w | P) [c(w) = y]         (dissertation, chapter 6, "Weighted Model Counting")

    The function is evaluated once, when the reasoner is made, on all worlds and all given values. All queries are
    differentiable, any number of times, with finite gradients. In an output, -1 stands for unobserved: the probability
    is then that of the observed part. All queries take a `Belief`, a `Mixture`, or any belief as a list of worlds.

    An output may be *impossible*: no world gives it, or only worlds that the belief gives probability 0. Its
    ``log_prob`` is -inf with gradient 0, and it has no explanations.

    Args:
        problem: what to reason about.
        max_worlds: refuse problems with more worlds (times joint values of the given variables) than this.
        impossible: what ``loss`` does with impossible outputs. "raise" (an error that names the rows), "inf" (+inf,
            gradient 0) or "finite" (minus the log of the smallest normal number of the dtype, gradient 0). Where
            values cannot be looked at (``torch.compile``, ``torch.func``), "raise" acts like "inf".
        max_entries: memory bound: at most so many pairs of row and world are held at a time (at least one row).
            A batch that needs more is computed in parts, twice when there are gradients.

    >>> from doxa.problem import addition
    >>> reasoner = BruteForce(addition(1))
    >>> belief = Belief.from_logits(torch.zeros(2, 10))
    >>> (reasoner.log_prob(belief, torch.tensor([1, 3])).exp() * 100).round()       # 6 of 100 worlds sum to 13
    tensor(6.)
    >>> reasoner.predict(belief)
    tensor([0, 9])
    """

    exactness: Literal["exact"] = "exact"
    lists_worlds = True
    numbers: Tensor
    outputs: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        max_worlds: int = 1 << 20,
        impossible: Impossible = "raise",
        max_entries: int = 1 << 24,
    ) -> None:
        super().__init__(problem, impossible, max_entries // problem.num_worlds)
        if problem.num_worlds * math.prod(problem.given) > max_worlds:
            times = f" times {math.prod(problem.given):,} given values" if problem.given else ""
            many = f"{problem.describe_size()} worlds{times}, more than max_worlds={max_worlds:,}"
            remedy = "raise max_worlds if memory allows, or use exact inference over factors, or an approximate engine"
            raise ProblemError(f"the problem has {many}; {remedy}")
        numbers, outputs = _distinct_outputs(problem)
        # numbers[g, n] is the row of ``outputs`` that world n gives for joint given values g; rows are distinct and in
        # lexicographic order.
        self.register_buffer("numbers", numbers, persistent=False)
        self.register_buffer("outputs", outputs, persistent=False)

    def log_prob(self, belief: AnyBelief | WorldTable, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """log p(y | P), ``(*batch,)``; -inf with gradient 0 for an impossible output.

        >>> from doxa.problem import parity
        >>> belief = Belief.from_bernoulli(probs=torch.tensor([0.5, 0.9]))
        >>> BruteForce(parity(2)).log_prob(belief, torch.tensor([1])).exp()
        tensor(0.5000)
        """
        return self._rowwise(lambda *rows: logsumexp(self._table(*rows), -1), belief, output, given)

    def possible(self, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """Whether some world gives the (observed part of the) output: bool ``(*batch,)``.

        >>> from doxa.problem import addition
        >>> BruteForce(addition(1)).possible(torch.tensor([[1, 8], [1, 9], [-1, 9]]))
        tensor([ True, False,  True])
        """
        self.problem.require_output(output)
        self.problem.require_given(given)
        numbers = self._numbers(given)
        batch = common_batch(output, numbers)
        return self._matches(output).expand(*batch, -1).gather(-1, numbers.expand(*batch, -1)).any(-1)

    def joint(self, belief: AnyBelief | WorldTable, *, given: Tensor | None = None) -> Tensor:
        """log p(y | P) of every output that some world gives, ``(*batch, K)``, in the order of ``outputs`` ``(K, Y)``.

        >>> from doxa.problem import exactly_k
        >>> reasoner = BruteForce(exactly_k(1, 2))
        >>> reasoner.outputs, reasoner.joint(Belief.uniform((2, 2))).exp()
        (tensor([[0],
                [1]]), tensor([0.5000, 0.5000]))
        """
        return self._rowwise(lambda rows, _, seen: self._joint(rows, seen), belief, None, given)

    def marginals(self, belief: AnyBelief | WorldTable, *, given: Tensor | None = None) -> Belief:
        """p(y_j | P) for each output variable, as a belief over the output.

        >>> from doxa.problem import addition
        >>> BruteForce(addition(1)).marginals(Belief.uniform((10, 10))).probs[0, :2]       # is there a carry?
        tensor([0.5500, 0.4500])
        """
        width = max(self.problem.output)

        def query(rows: Tensor, _: Tensor, seen: Tensor | None) -> Tensor:
            joint = self._joint(rows, seen)
            return torch.stack([segment_logsumexp(joint, column, width) for column in self.outputs.unbind(-1)], -2)

        return Belief(self._rowwise(query, belief, None, given), self.problem.output, validate=False)

    def predict(self, belief: AnyBelief | WorldTable, *, given: Tensor | None = None) -> Tensor:
        """The most probable output, int64 ``(*batch, Y)``: argmax over y of the sum of the worlds that give y.

        The argmax is joint, not variable by variable; of equally probable outputs the lexicographically first.

        >>> from doxa.problem import majority
        >>> BruteForce(majority(3)).predict(Belief.from_bernoulli(probs=torch.tensor([0.9, 0.2, 0.6])))
        tensor([1])
        """
        return self.outputs[self.joint(belief.detach(), given=given).argmax(-1)]

    def expectation(
        self, belief: AnyBelief | WorldTable, function: Callable[[Tensor], Tensor], *, given: Tensor | None = None
    ) -> Tensor:
        """E[f(y)] = Σ_y p(y | P) f(y), for f from outputs ``(K, Y)`` to values ``(K, *shape)``; ``(*batch, *shape)``.

        >>> from doxa.problem import addition
        >>> mean = BruteForce(addition(1)).expectation(Belief.uniform((10, 10)), lambda y: 10 * y[:, 0] + y[:, 1])
        >>> round(mean.item(), 4)
        9.0
        """
        values = function(self.outputs)
        if values.ndim == 0 or values.shape[0] != len(self.outputs):
            came = f"{tuple(values.shape)} for outputs of shape {tuple(self.outputs.shape)}"
            raise ProblemError(f"the function returned shape {came}, expected one value for each, on the first axis")
        joint = self.joint(belief, given=given)
        result: Tensor = torch.tensordot(joint.exp(), values.to(joint), dims=1)
        return result

    def explain(
        self, belief: AnyBelief | WorldTable, output: Tensor, k: int = 1, *, given: Tensor | None = None
    ) -> Explanations:
        """The k most probable worlds that give the output, with log p(w | y, P), best first.

        Of equally probable worlds the lexicographically first comes first. Worlds of probability 0 explain nothing.

        >>> from doxa.problem import addition
        >>> left, right = torch.zeros(10), torch.zeros(10)
        >>> left[4], left[5], right[8], right[9] = 0.4, 0.6, 0.5, 0.5
        >>> best = BruteForce(addition(1)).explain(Belief.from_probs([left, right]), torch.tensor([1, 3]), k=2)
        >>> best.worlds
        tensor([[5, 8],
                [4, 9]])
        >>> best.scores.exp()
        tensor([0.6000, 0.4000])
        """
        k = how_many(k)

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            scores, numbers = self._conditioned(rows, out, seen)[0].sort(dim=-1, descending=True, stable=True)
            missing = (0, max(k - self.problem.num_worlds, 0))
            return pad(scores[:, :k], missing, value=NEG_INF), pad(numbers[:, :k], missing)

        scores, numbers = self._by_rows(query, belief, output, given, recompute=True)
        worlds = self.problem.world_of(numbers)
        listed = worlds.masked_fill((scores == NEG_INF).unsqueeze(-1), -1)
        return Explanations(listed, scores, torch.ones_like(scores, dtype=torch.bool))

    def posterior(self, belief: AnyBelief | WorldTable, output: Tensor, *, given: Tensor | None = None) -> Belief:
        """p(w_i | y, P) for each world variable, as a belief; impossible outputs are an error.

        >>> from doxa.problem import addition
        >>> BruteForce(addition(1)).posterior(Belief.uniform((10, 10)), torch.tensor([0, 1])).probs[:, :3]
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000]])
        """
        sizes = self.problem.world
        width = max(sizes) if isinstance(belief, WorldTable) else rows_of(belief).shape[-1]

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            table, total = self._conditioned(rows, out, seen)
            columns = []
            for i, size in enumerate(sizes):
                blocks = table.reshape(len(table), math.prod(sizes[:i]), size, math.prod(sizes[i + 1 :]))
                columns.append(pad(logsumexp(blocks, (1, 3)), (0, width - size), value=NEG_INF))
            return torch.stack(columns, -2), total

        log_probs, total = self._by_rows(query, belief, output, given, recompute=True)
        self._require_possible(total, output, given)
        return Belief(log_probs, sizes, validate=False)

    def entropy(self, belief: AnyBelief | WorldTable, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """-Σ_w p(w | y, P) log p(w | y, P) in nats, ``(*batch,)``; impossible outputs are an error.

        >>> from doxa.problem import addition
        >>> entropy = BruteForce(addition(1)).entropy(Belief.uniform((10, 10)), torch.tensor([1, 3]))
        >>> round(entropy.exp().item(), 4)                                                            # 6 worlds
        6.0
        """

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            table, total = self._conditioned(rows, out, seen)
            return -(table.exp() * table.masked_fill(table == NEG_INF, 0.0)).sum(-1), total

        entropy, total = self._by_rows(query, belief, output, given, recompute=True)
        self._require_possible(total, output, given)
        return entropy

    def sample(
        self,
        belief: AnyBelief | WorldTable,
        output: Tensor,
        count: int = 1,
        *,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Worlds drawn from p(w | y, P), int64 ``(count, *batch, W)``; impossible outputs are an error.

        >>> from doxa.problem import addition
        >>> BruteForce(addition(1)).sample(Belief.uniform((10, 10)), torch.tensor([1, 8]))
        tensor([[9, 9]])
        """

        def query(rows: Tensor, out: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
            table, total = self._conditioned(rows, out, seen)
            return draw(table.exp(), count, generator).movedim(0, -1), total

        numbers, total = self._by_rows(query, belief.detach(), output, given, recompute=True)
        self._require_possible(total, output, given)
        return self.problem.world_of(numbers.movedim(-1, 0))

    def world_log_probs(
        self, belief: AnyBelief | WorldTable, output: Tensor | None = None, *, given: Tensor | None = None
    ) -> Tensor:
        """log p(w, y | P) of all worlds in lexicographic order, ``(*batch, worlds)``: everything follows from it.

        >>> from doxa.problem import parity
        >>> BruteForce(parity(2)).world_log_probs(Belief.uniform((2, 2)), torch.tensor([1])).exp()
        tensor([0.0000, 0.2500, 0.2500, 0.0000])
        """
        return self._rowwise(self._table, belief, output, given)

    def _rowwise(
        self, query: Callable[..., Tensor], belief: AnyBelief | WorldTable, output: Tensor | None, given: Tensor | None
    ) -> Tensor:
        return self._by_rows(lambda *rows: (query(*rows),), belief, output, given, recompute=True)[0]

    def _table(self, rows: Tensor, output: Tensor, given: Tensor | None) -> Tensor:
        """log p(w, y | P) for rows ``(R, W, D)`` and outputs ``(R, Y)``: ``(R, worlds)``, -inf where c(w) is not y."""
        mask = self._matches(output).to(rows.dtype).log()
        return self._priors(rows) + mask.gather(1, self._numbers(given).expand(len(mask), -1))

    def _numbers(self, given: Tensor | None) -> Tensor:
        """For each row ``(..., G)`` and world the number of its output, ``(..., worlds)``."""
        if given is None:
            return self.numbers[0]
        code = torch.zeros_like(given[..., 0])
        for size, value in zip(self.problem.given, given.unbind(-1), strict=True):
            code = code * size + value
        return self.numbers[code]

    def _conditioned(self, rows: Tensor, output: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
        """log p(w | y, P), ``(R, worlds)``, all -inf for an impossible output; and log p(y | P), ``(R,)``."""
        table = self._table(rows, output, given)
        total = logsumexp(table, -1)
        return table - total.masked_fill(total == NEG_INF, 0.0).unsqueeze(-1), total

    def _joint(self, rows: Tensor, given: Tensor | None) -> Tensor:
        return segment_logsumexp(self._priors(rows), self._numbers(given), len(self.outputs))

    def _priors(self, rows: Tensor) -> Tensor:
        """log p(w | P) of all worlds, ``(R, worlds)``."""
        if rows.ndim == 2:  # listed as they are
            return rows
        if rows.ndim == 4:  # a mixture
            return logsumexp(self._priors(rows.flatten(0, 1)).view(*rows.shape[:2], -1), 1)
        return added_pairwise([row[:, :size] for row, size in zip(rows.unbind(1), self.problem.world, strict=True)])

    def _matches(self, output: Tensor) -> Tensor:
        """Which of the distinct outputs agree with ``(..., Y)`` where it is observed: bool ``(..., K)``."""
        matches = torch.ones(*output.shape[:-1], len(self.outputs), dtype=torch.bool, device=output.device)
        for value, column in zip(output.unsqueeze(-2).unbind(-1), self.outputs.unbind(-1), strict=True):
            matches = matches & ((value == column) | (value < 0))
        return matches


def _distinct_outputs(problem: Problem) -> tuple[Tensor, Tensor]:
    """For each joint given value and world the number of its output, ``(givens, worlds)``; and the distinct outputs
    ``(K, Y)`` in lexicographic order."""
    step, givens = 1 << 16, math.prod(problem.given)
    parts = []
    for start in range(0, problem.num_worlds * givens, step):
        number = torch.arange(start, min(start + step, problem.num_worlds * givens))
        given = values_of(number // problem.num_worlds, problem.given) if problem.given else None
        parts.append(problem(problem.world_of(number % problem.num_worlds), given))
    outputs = torch.cat(parts)
    code, bound = torch.zeros(len(outputs), dtype=torch.int64), 1
    for size, column in zip(problem.output, outputs.unbind(-1), strict=True):
        if bound * size >= 1 << 62:  # renumber the prefixes that occur, which keeps their order
            code = torch.unique(code, return_inverse=True)[1]
            bound = len(outputs)
        code, bound = code * size + column, bound * size
    numbers = torch.unique(code, return_inverse=True)[1]
    distinct = outputs.new_empty(int(numbers.max()) + 1, outputs.shape[1])
    distinct[numbers] = outputs
    return numbers.reshape(givens, problem.num_worlds), distinct
