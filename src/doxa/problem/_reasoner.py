"""The face that every reasoner wears."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import index
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from doxa.errors import ConfigError, DoxaError, ProblemError
from doxa.problem._autoregressive import WorldTable
from doxa.problem._belief import Belief
from doxa.problem._budget import Budget, Meter
from doxa.problem._definition import Impossible
from doxa.problem._logspace import NEG_INF, is_traced
from doxa.problem._mixture import AnyBelief, refuse, rows_of
from doxa.problem._problem import Problem


class _Ranked(NamedTuple):
    worlds: Tensor
    scores: Tensor


class Explanations(_Ranked):
    """The best worlds that explain an output, best first; a pair ``worlds, scores`` with one more attribute.

    Attributes:
        worlds: int64 ``(*batch, k, W)``; -1 throughout where there are fewer than k.
        scores: ``(*batch, k)``, decreasing; -inf where there are fewer than k. From a reasoner whose ``exactness`` is
            not "none", this is log p(w | y, P); otherwise only the order has a meaning.
        optimal: bool ``(*batch, k)``, whether it is proven that no world that is not listed before is more probable;
            None from a reasoner that proves nothing. Always true of exact reasoning with a `Belief`; with a `Mixture`
            it may be false, for the worlds are then the best that were found.

    >>> import torch
    >>> Explanations(worlds=torch.tensor([[5, 8], [8, 5]]), scores=torch.tensor([-0.1, -2.4])).worlds[0]
    tensor([5, 8])
    """

    optimal: Tensor | None

    def __new__(cls, worlds: Tensor, scores: Tensor, optimal: Tensor | None = None) -> Explanations:
        """A pair of worlds and scores, which it unpacks into, with ``optimal`` beside them."""
        found = super().__new__(cls, worlds, scores)
        found.optimal = optimal
        return found


@runtime_checkable
class Reasoner(Protocol):
    """What exact, fuzzy, refined, sampled and amortised reasoning have in common.

    ``exactness`` says what the numbers are: "exact" and "approximate" reasoners have probabilities and also a method
    ``log_prob(belief, output)`` that returns log p(y | P) or its estimate, ``(*batch,)``; a reasoner with "none", such
    as a fuzzy one, has truth values, which are not probabilities, and no such method.

    Outputs are int64 ``(*batch, Y)``, or ``(Y,)`` for all rows, with -1 for unobserved variables; values of given
    variables, of a problem that has such, are int64 ``(*batch, G)`` or ``(G,)``.

    >>> from doxa.problem import BruteForce, addition
    >>> isinstance(BruteForce(addition(1)), Reasoner)
    True
    """

    @property
    def problem(self) -> Problem:
        """What is reasoned about."""

    @property
    def exactness(self) -> Literal["exact", "approximate", "none"]:
        """What the numbers are."""

    def loss(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """One number per row, ``(*batch,)``, to be made small by training."""

    def predict(self, belief: Belief, *, given: Tensor | None = None) -> Tensor:
        """The best output for each row, int64 ``(*batch, Y)``."""

    def explain(self, belief: Belief, output: Tensor, k: int = 1, *, given: Tensor | None = None) -> Explanations:
        """The k best worlds that give the output."""


def how_many(k: object, error: type[DoxaError] = ProblemError) -> int:
    """How many worlds were asked for; an error unless that is a whole number of at least 1."""
    try:
        count = 0 if isinstance(k, bool) else index(k)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise error(f"k is {k!r}, expected at least 1, a whole number")
    return count


class Probabilistic(nn.Module):
    """What reasoners with a ``log_prob`` share: the loss, and answering in parts that fit in memory."""

    budget: Budget = Budget()
    lists_worlds = False
    """Whether it goes through all worlds, and so can take any list of them."""

    def __init__(self, problem: Problem, impossible: Impossible, rows_at_once: int = 1) -> None:
        super().__init__()
        if impossible not in get_args(Impossible):
            raise ConfigError(f"impossible is {impossible!r}, expected 'raise', 'inf' or 'finite'")
        self.problem = problem
        self.impossible: Impossible = impossible
        self._rows_at_once = rows_at_once

    def log_prob(self, belief: AnyBelief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """log p(y | P), ``(*batch,)``."""
        raise NotImplementedError

    def possible(self, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """Whether some world gives the (observed part of the) output: bool ``(*batch,)``."""
        raise NotImplementedError

    def loss(self, belief: AnyBelief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """-log p(y | P), ``(*batch,)``. What happens to impossible outputs is an option of the reasoner.

        >>> from doxa.problem import BruteForce, addition
        >>> BruteForce(addition(1)).loss(Belief.uniform((10, 10), batch=(2,)), torch.tensor([[1, 8], [1, 9]]))
        Traceback (most recent call last):
        doxa.errors.ProblemError: impossible outputs in rows (1,): no world gives (1, 9), ...
        """
        log_prob = self.log_prob(belief, output, given=given)
        if self.impossible == "finite":
            return -log_prob.masked_fill(log_prob == NEG_INF, math.log(torch.finfo(log_prob.dtype).tiny))
        if self.impossible == "raise":
            self._require_possible(log_prob, output, given)
        return -log_prob

    def _require_possible(self, log_prob: Tensor, output: Tensor, given: Tensor | None) -> None:
        """A ``ProblemError`` that says which rows are impossible, why, and what to do."""
        if is_traced(log_prob) or not bool((log_prob == NEG_INF).any()):
            return
        rows = (log_prob == NEG_INF).nonzero()
        named = ", ".join(str(tuple(row.tolist())) for row in rows[:10]) + (" ..." if len(rows) > 10 else "")
        first = output.expand(*log_prob.shape, output.shape[-1])[tuple(rows[0])]
        seen = None if given is None else given.expand(*log_prob.shape, given.shape[-1])[tuple(rows[0])]
        remedy = "correct the rows, or for a loss that passes over them make the reasoner with impossible='finite'"
        where = f"impossible outputs in rows {named}" if log_prob.dim() else "the output is impossible"
        remedy = remedy if log_prob.dim() else remedy.replace("the rows", "it").replace("over them", "over it")
        raise ProblemError(f"{where}: {self._why_impossible(first, seen)}; {remedy}")

    def _why_impossible(self, output: Tensor, given: Tensor | None) -> str:
        fits = self.possible(output, given=given)
        why = "the belief gives probability 0 to every world that gives" if fits else "no world gives"
        wanted = f"{tuple(output.tolist())}" + ("" if given is None else f" with {tuple(given.tolist())} given")
        return f"{why} {wanted}, for one"

    def _observed(self, belief: AnyBelief | WorldTable, output: Tensor | None) -> Tensor:
        """The output; without one, nothing is observed."""
        none = torch.full((len(self.problem.output),), -1, device=belief.device)
        return none if output is None else output

    def _rows_of_log_prob(self, output: Tensor, given: Tensor | None) -> int:
        """How many rows fit in memory where these outputs are observed."""
        return self._rows_at_once

    def _by_rows(
        self,
        query: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, ...]],
        belief: AnyBelief | WorldTable,
        output: Tensor | None,
        given: Tensor | None,
        *,
        recompute: bool = False,
        shrink: int = 1,
        checked: bool = False,
    ) -> tuple[Tensor, ...]:
        """Answer a query about rows, outputs and given values of a flat batch, in parts that fit in memory.

        Rows are ``(R, W, D)``; those of a mixture ``(R, K, W, D)``, of a list of worlds ``(R, worlds)``: ``rows_of``.
        """
        if isinstance(belief, WorldTable) and not self.lists_worlds:
            refuse("a WorldTable lists all worlds", "BruteForce takes it")
        if not checked:
            self.problem.require(belief, output, given, mixtures=True)
        output = self._observed(belief, output)
        if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():
            # Questions are answered by derivatives, which that mode forbids.
            with torch.inference_mode(False), torch.no_grad():
                seen = None if given is None else given.clone()
                return self._by_rows(query, belief._clone(), output.clone(), seen, shrink=shrink, checked=True)
        batch, rows = belief.batch_shape, rows_of(belief)
        width, mixed = max(self.problem.world), rows.ndim - len(batch) == 3
        widest = rows if rows.shape[-1] == width or isinstance(belief, WorldTable) else rows[..., :width]
        flat = [widest if len(batch) == 1 else widest.reshape(math.prod(batch), *widest.shape[len(batch) :])]
        for values in (output,) if given is None else (output, given):
            every = values if len(batch) == 1 and values.ndim == 2 else values.expand(*batch, -1)
            flat.append(every if len(batch) == 1 else every.reshape(len(flat[0]), values.shape[-1]))

        def ask(rows: Tensor, out: Tensor, seen: Tensor | None = None) -> tuple[Tensor, ...]:
            return query(rows, out, seen)

        most = self._rows_of_log_prob(*flat[1:3], *[None] * (3 - len(flat))) if recompute else self._rows_at_once
        step = max(1, most // (shrink * rows.shape[len(batch)] if mixed else shrink))
        if len(flat[0]) == 0:  # the shapes of the answers are those for one row
            one = [x.new_zeros(1, *x.shape[1:]) for x in flat]
            one[1] = one[1] - 1
            answers = tuple(x[:0] + flat[0].sum() if x.is_floating_point() else x[:0] for x in ask(*one))
        elif len(flat[0]) <= step:
            answers = ask(*flat)
        else:
            meter = Meter(self.budget, f"a question about {len(flat[0]):,} rows")
            # Recomputing a part in its backward pass keeps only one part's numbers alive; torch.func cannot do it.
            again = recompute and torch.is_grad_enabled() and flat[0].requires_grad and not is_traced(flat[0])
            chunks = []
            for part in zip(*(torch.split(x, step) for x in flat), strict=True):
                meter.check_clock()
                chunks.append(checkpoint(ask, *part, use_reentrant=False) if again else ask(*part))
            answers = tuple(torch.cat(pieces) for pieces in zip(*chunks, strict=True))
        return answers if len(batch) == 1 else tuple(x.reshape((*batch, *x.shape[1:])) for x in answers)
