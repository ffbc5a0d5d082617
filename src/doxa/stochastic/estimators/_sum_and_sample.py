r"""Sum-and-sample: some values are summed over exactly, the rest is sampled; with a memory it is MAPO.

With S the enumerated values (the most probable, random ones, or a memory of the best) and n − |S| independent draws
from p(x | x ∉ S), two forms are unbiased at any order, and equal without a baseline (errata 4.2):

    form A:   w = ⊥p(x) on S, ⊥p(∉S)/(n−|S|) on draws;    l = log p(x) everywhere
    form B:   the same weights, live;                      l = 0 on S, log p(x | x∉S) on draws

The baseline of a draw is the average cost of the other draws; in form A the enumerated values take the average of
all draws, which has the same mean: otherwise Σ w ∇l over the draws would not vanish.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from doxa.errors import ConfigError, ProblemError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import MOST_OUTCOMES, combine, log_prob, repeat_batch, support, total_size
from doxa.stochastic.estimators._score import refuse_tracing
from doxa.stochastic.estimators._search import (
    Tokens,
    all_orders,
    has_tokens,
    outside,
    stochastic_beam,
    tokens_of,
    top_k,
)


class _Mixed(Estimator):
    distributions = "independent finite factors, Sequences"
    form: str
    baseline: bool
    summed: int

    def fits(self, distribution: Distribution) -> bool:
        return has_tokens(distribution, self.n)

    def chosen(self, model: Tokens, distribution: Distribution) -> tuple[Tensor, Tensor]:
        """The tokens of the values to sum over (rows, s, T), and which of them count (rows, s)."""
        raise NotImplementedError

    def propose(self, distribution: Distribution, n: int) -> Draw:
        model = tokens_of(distribution, type(self).__name__)
        if model.size is not None and model.size <= self.summed:
            raise ConfigError(f"{self!r} sums over as many values as the distribution has; use Enumerate()")
        with torch.no_grad():
            tokens, valid = self.chosen(model, distribution)
            drawn, _ = outside(model, tokens, valid, n - self.summed)
            filled = torch.where(valid.unsqueeze(-1), tokens, drawn[:, :1])
            value = model.values(torch.cat([filled, drawn], 1))
        counts = valid.T.reshape(self.summed, *distribution.batch_shape)
        return self._draw(distribution, value, counts)

    def _draw(self, distribution: Distribution, value: Tensor, counts: Tensor) -> Draw:
        draws = torch.ones((value.shape[0] - self.summed, *counts.shape[1:]), dtype=torch.bool, device=counts.device)
        return Draw(value, distribution, counts=torch.cat([counts, draws]))

    def _parts(self, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        """log p of every sample, the probabilities of the summed values, and log p(∉S); all live."""
        log_p = log_prob(draw.distribution, draw.value)
        s = self.summed
        p = torch.where(draw.notes["counts"][:s], log_p[:s].exp(), 0.0)
        rest = torch.log1p(-p.sum(0).clamp_max(1 - torch.finfo(p.dtype).eps))
        return log_p, p, rest

    def weight(self, draw: Draw) -> Tensor:
        log_p, p, rest = self._parts(draw)
        draws = draw.m - self.summed
        tail = (rest.exp() / draws).expand(draws, *log_p.shape[1:])
        weight = torch.cat([p, tail])
        return weight.detach() if self.form == "A" else weight

    def gradient(self, draw: Draw) -> Tensor:
        log_p, _, rest = self._parts(draw)
        log_p = torch.where(log_p.isinf(), 0.0, log_p)  # an impossible value is summed over with weight 0
        if self.form == "A":
            return log_p
        s = self.summed
        return torch.cat([torch.zeros_like(log_p[:s]), log_p[s:] - rest])

    @property
    def controls(self) -> bool:
        return self.baseline

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor | None:
        s = self.summed
        draws = draw.m - s
        if draws < 2:
            return None
        total = cost[s:].sum(0, keepdim=True)
        b = torch.cat([(total / draws).expand_as(cost[:s]), (total - cost[s:]) / (draws - 1)])
        return (1 - box) * b

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        size, draws = total_size(distribution), n - self.summed
        if size is None or size**draws > MOST_OUTCOMES:
            return None
        with torch.no_grad():
            values = support(distribution)
            log_p = log_prob(distribution, values).double()
            kept, counts, chance = self.sets(distribution, values, log_p)
            if len(chance) * size**draws > MOST_OUTCOMES:
                return None
            axes = tuple(range(-len(distribution.event_shape), 0))
            same = kept.unsqueeze(2) == values  # (s, sets, S, *batch)
            same = same.all(axes) if axes else same
            inside = (same & counts.unsqueeze(2)).any(0)
            rest = torch.where(inside, 0.0, log_p.exp()).sum(1, keepdim=True)
            outer = torch.where(inside & (rest > 0), float("-inf"), log_p - torch.where(rest > 0, rest, 1.0).log())
            drawn, prob = combine(values, outer.movedim(0, -1), draws)
            prob = prob.movedim(-1, 0) * chance.unsqueeze(1)  # (sets, S^draws, *batch)
            shape = (*prob.shape, *distribution.event_shape)
            drawn = drawn.unsqueeze(1).expand(draws, *shape)
            wide = counts.unsqueeze(2).expand(self.summed, *prob.shape)
            known = wide.reshape((*wide.shape, *(1,) * len(axes)))
            value = torch.cat([torch.where(known, kept.unsqueeze(2), drawn[:1]).expand(self.summed, *shape), drawn])
            prob = prob.flatten(0, 1)
        return self._draw(repeat_batch(distribution, len(prob)), value.flatten(1, 2), wide.flatten(1, 2)), prob

    def sets(self, distribution: Distribution, values: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All sets that may be summed over (s, sets, *batch, *event), what counts in them, and their probabilities."""
        model = tokens_of(distribution, type(self).__name__)
        tokens, valid = self.chosen(model, distribution)
        kept = model.values(torch.where(valid.unsqueeze(-1), tokens, 0))
        counts = valid.T.reshape(self.summed, 1, *distribution.batch_shape)
        return kept.unsqueeze(1), counts, torch.ones_like(log_p[:1])


class SumAndSample(_Mixed):
    """Sums over the ``top`` most probable values and draws the other n − top from what is left.

    With ``top=n-1`` this is the Rao-Blackwellised estimator of Liu et al. (2019).

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(torch.tensor([0.1, 0.6, 0.1, 0.2])), SumAndSample(n=3, top=2))
    >>> z[:2]
    tensor([1, 3])
    """

    least = 2

    def __init__(self, n: int = 3, top: int = 1, form: Literal["A", "B"] = "A", baseline: bool = True) -> None:
        if form not in ("A", "B"):
            raise ConfigError(f"form is {form!r}, expected 'A' or 'B'")
        if top < 1:
            raise ConfigError(f"top is {top}, expected at least one value to sum over; use LeaveOneOut for none")
        self.summed, self.form, self.baseline = top, form, baseline
        super().__init__(n)

    def checked(self, n: int) -> int:
        if super().checked(n) <= self.summed:
            raise ConfigError(f"SumAndSample needs n > top, so that something is sampled; got n={n}, top={self.summed}")
        return n

    def chosen(self, model: Tokens, distribution: Distribution) -> tuple[Tensor, Tensor]:
        tokens = top_k(model, self.summed)
        return tokens, torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n}, top={self.summed}, form={self.form!r}, baseline={self.baseline})"


class StochasticSumAndSample(SumAndSample):
    """Sum-and-sample over a random set: ``top`` values drawn without replacement, and n − top from what is left.

    Given any set the estimator is unbiased, hence also on average (Kool, van Hoof and Welling 2020). Likely values are
    likely summed over, and no search for the most probable ones is needed.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(torch.tensor([0.1, 0.6, 0.1, 0.2])), StochasticSumAndSample(n=3, top=2))
    >>> len(set(z.tolist()))                                         # none of the two is drawn again
    3
    """

    def chosen(self, model: Tokens, distribution: Distribution) -> tuple[Tensor, Tensor]:
        tokens = stochastic_beam(model, self.summed)[0]
        return tokens, torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)

    def sets(self, distribution: Distribution, values: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        orders, chance, _ = all_orders(log_p, self.summed)
        kept = values[orders]
        return kept, torch.ones((self.summed, *chance.shape), dtype=torch.bool, device=kept.device), chance


class MAPO(nn.Module, _Mixed):
    """Sum-and-sample over a memory of the best values found so far (memory augmented policy optimisation).

    Every element of the batch has its own memory of ``capacity`` different values, so the batch must stay the same
    from tape to tape. The memory grows after each surrogate, is saved with ``state_dict``, and is given to the next
    tape.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> estimator = MAPO(capacity=1, draws=2)
    >>> for _ in range(20):
    ...     tape = Tape()
    ...     z = tape.sample(Categorical(torch.ones(5)), estimator)
    ...     _ = tape.cost((z - 3.0) ** 2)
    ...     loss = tape.surrogate()
    >>> estimator.values                                             # almost surely the best value, 3
    tensor([3])
    """

    stateful = True
    evaluations = "capacity + draws"

    def __init__(self, capacity: int = 2, draws: int = 2, form: Literal["A", "B"] = "A", baseline: bool = True) -> None:
        nn.Module.__init__(self)
        if capacity < 1 or draws < 1:
            raise ConfigError(f"capacity and draws must be at least 1, got {capacity} and {draws}")
        self.summed, self.form, self.baseline = capacity, form, baseline
        Estimator.__init__(self, capacity + draws)
        self.values: Tensor | None = None
        self.costs: Tensor | None = None

    def chosen(self, model: Tokens, distribution: Distribution) -> tuple[Tensor, Tensor]:
        shape = (self.summed, *distribution.batch_shape)
        if self.values is None or self.costs is None:
            nothing = torch.zeros(model.rows, self.summed, model.length, dtype=torch.long)
            return nothing, torch.zeros(model.rows, self.summed, dtype=torch.bool)
        costs = self.costs.reshape(self.summed, -1)
        if costs.shape[1] not in (1, model.rows):
            mine = f"the memory belongs to a batch of {costs.shape[1]}"
            raise ProblemError(f"{mine}, the distribution has batch shape {shape[1:]}; use one MAPO for each batch")
        values = self.values.reshape((self.summed, costs.shape[1], *distribution.event_shape))
        values = values.expand(self.summed, model.rows, *distribution.event_shape)
        tokens = model.tokens(values.reshape((*shape, *distribution.event_shape)))
        return tokens, torch.isfinite(costs).T.expand(model.rows, self.summed)

    def observe(self, draw: Draw, cost: Tensor) -> None:
        refuse_tracing(self, cost)
        with torch.no_grad():
            batch = len(draw.distribution.batch_shape)
            value = draw.value.detach()
            cost = torch.where(draw.notes["counts"], cost.detach(), float("inf")).expand(value.shape[: batch + 1])
            order = cost.argsort(0)
            cost = cost.gather(0, order)
            event = value.dim() - batch - 1
            value = value.gather(0, order.reshape((*order.shape, *(1,) * event)).expand_as(value))
            equal = value.unsqueeze(0) == value.unsqueeze(1)
            equal = equal.flatten(batch + 2).all(-1) if event else equal
            earlier = torch.ones(draw.m, draw.m, dtype=torch.bool, device=cost.device).tril(-1)
            again = (equal & earlier.reshape(draw.m, draw.m, *(1,) * batch)).any(1)
            cost = torch.where(again, float("inf"), cost)
            best = cost.argsort(0)[: self.summed]
            self.costs = cost.gather(0, best)
            self.values = value.gather(0, best.reshape((*best.shape, *(1,) * event)).expand(-1, *value.shape[1:]))

    def get_extra_state(self) -> dict[str, Any]:
        return {"values": self.values, "costs": self.costs}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.values, self.costs = state["values"], state["costs"]

    def __repr__(self) -> str:
        return f"MAPO({self.summed}, {self.n - self.summed}, form={self.form!r}, baseline={self.baseline})"
