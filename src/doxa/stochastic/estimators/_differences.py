r"""Differences of costs: measure-valued derivatives, and simultaneous perturbation of the parameters.

With ∇_θ p = c_θ (p⁺ − p⁻), one parameter at a time and D parameters in all (errata 4.2),

    x⁺ ~ p⁺, x⁻ ~ p⁻,      w = ⊥(p/(p⁺+p⁻)) / D,      l = ± θ ⊥(c_θ / w),      a = 0,

so that the first derivative is Σ_θ ∇θ c_θ (f(x⁺) − f(x⁻)). All other dimensions of a pair are one common sample. The
triples:

    Bernoulli p         1                δ₁                     δ₀
    categorical logit   p_k (1 − p_k)    δ_k                    p given x ≠ k
    Poisson rate        1                1 + Poisson            Poisson
    exponential rate    1/λ              Exponential            Gamma(2, λ)
    Gaussian mean       1/(σ√(2π))       μ + σ Rayleigh         μ − σ Rayleigh
    Gaussian scale      1/σ              μ + σ double Maxwell   Gaussian

For the Gaussian mean the weights p/p^± have no finite variance; there the pairs enter as a control variate of the score
function (dissertation, "Measure Valued Derivatives").
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Distribution, Exponential, Gamma, Normal, Poisson

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator, gumbel, require_positive, uniform
from doxa.stochastic.estimators._factors import (
    MOST_OUTCOMES,
    all_indices,
    each_alone,
    factors,
    has_factors,
    is_bernoulli,
    log_prob,
    parameters_of,
    plain,
    rebuilt,
    repeat_batch,
    support,
    total_size,
)
from doxa.stochastic.estimators._lifted import padded


class MeasureValued(Estimator):
    """The measure-valued (weak) derivative, by 2n evaluations for each parameter.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> p = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Bernoulli(p), MeasureValued())
    >>> _ = tape.cost(torch.where(z > 0, 2 * p.cos() + 0.4 * p, -0.7 * p.cos()))
    >>> loss = tape.surrogate(); loss.item(), torch.autograd.grad(loss, p)[0].item()     # without variance
    (0.141087..., 2.78690...)
    """

    distributions = "Bernoulli, categorical, Poisson, Exponential, Normal"
    evaluations = "2n × parameters"
    order = 1

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution) or isinstance(plain(distribution)[0], Poisson | Exponential | Normal)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        base = plain(distribution)[0]
        sample = distribution.sample(torch.Size([n]))
        with torch.no_grad():
            if has_factors(distribution):
                return self._finite(distribution, sample, None)
            x = _flat(sample, distribution, 1)
            if isinstance(base, Poisson):
                rate = _flat(base.rate, distribution, 0)
                halves = [x + 1, x]
                weights = [torch.where(_usable(rate), rate / (y + rate), 0.0) for y in halves]
            elif isinstance(base, Exponential):
                rate = _flat(base.rate, distribution, 0)
                longer = Gamma(torch.full_like(rate, 2.0), rate).sample(torch.Size([n]))
                halves = [x, longer]
                weights = [1 / (1 + rate * x), 1 / (1 + rate * longer)]
            elif isinstance(base, Normal):
                return self._gaussian(distribution, base, x)
            else:
                raise ConfigError(f"MeasureValued knows {self.distributions}, got {type(base).__name__}; use Score")
            value = torch.cat([each_alone(x, y).flatten(0, 1) for y in halves])
            weight = torch.cat([w.movedim(-1, 0).flatten(0, 1) for w in weights])
            shape = (-1, *distribution.batch_shape, *distribution.event_shape)
            return Draw(value.reshape(shape), distribution, weight=weight)

    def _finite(self, distribution: Distribution, sample: Tensor, below: Tensor | None) -> Draw:
        """All pairs of a finite distribution; ``below`` are the draws from p given x ≠ k, (n, *batch, R, C)."""
        f = factors(distribution)
        index = f.index(sample)
        p = f.log_probs.exp()
        if is_bernoulli(distribution):
            halves = [each_alone(index, v) for v in (1, 0)]
            weights = [p[..., 1], p[..., 0]]
        else:
            if below is None:
                below = _others(f.log_probs, index.shape[0])
            halves, weights = [], []
            last = torch.tensor(f.sizes, device=index.device) - 1
            for k in range(p.shape[-1]):
                halves += [each_alone(index, last.clamp_max(k)), each_alone(index, below[..., k])]
                weights += [p[..., k], 1 - p[..., k]]
        value = f.value(torch.cat([h.flatten(0, 1) for h in halves]))
        wide = [w.expand(index.shape).movedim(-1, 0).flatten(0, 1) for w in weights]
        return Draw(value, distribution, weight=torch.cat(wide))

    def _gaussian(self, distribution: Distribution, base: Normal, x: Tensor) -> Draw:
        mean, scale = (_flat(t, distribution, 0) for t in (base.loc, base.scale))
        rayleigh = (-2 * torch.log(uniform(x))).sqrt()
        # A double-sided Maxwell variable: the length of three normal ones, with a random sign.
        maxwell = torch.randn((3, *x.shape), dtype=x.dtype, device=x.device).square().sum(0).sqrt()
        maxwell = torch.where(torch.rand_like(x) < 0.5, -maxwell, maxwell)
        halves = [mean + scale * rayleigh, mean - scale * rayleigh, mean + scale * maxwell, x]
        value = torch.cat([x, *(each_alone(x, y).flatten(0, 1) for y in halves)])
        return Draw(value.reshape(-1, *distribution.batch_shape, *distribution.event_shape), distribution)

    def _split(self, draw: Draw) -> tuple[int, int]:
        """n, and the number of pairs for each sample."""
        d = draw.distribution
        if has_factors(d):
            f = factors(d)
            pairs = len(f.sizes) * (1 if is_bernoulli(d) else f.log_probs.shape[-1])
            return draw.m // (2 * pairs), pairs
        pairs = max(1, d.event_shape.numel())
        if isinstance(plain(d)[0], Normal):
            return draw.m // (1 + 4 * pairs), 2 * pairs
        return draw.m // (2 * pairs), pairs

    def weight(self, draw: Draw) -> Tensor:
        n, pairs = self._split(draw)
        if isinstance(plain(draw.distribution)[0], Normal):
            return draw.first(n)
        return draw.notes["weight"] / (n * pairs)

    def gradient(self, draw: Draw) -> Tensor:
        d = draw.distribution
        n, pairs = self._split(draw)
        base = plain(d)[0]
        if isinstance(base, Normal):
            return padded(log_prob(d, draw.value[:n]), draw.m)
        # l' = ± c ∇θ / w, written without the quotient: a weight may be too small to divide by.
        if is_bernoulli(d):
            table = factors(d).log_probs
            parts = [table[..., 1], table[..., 0]]  # ∇p / p, and −∇p / (1 − p)
        elif has_factors(d):
            table = factors(d).log_probs
            p = table.detach().exp()
            parts = []
            for k in range(p.shape[-1]):
                parts += [table[..., k] * (1 - p[..., k]), -table[..., k] * p[..., k]]
        else:
            assert isinstance(base, Poisson | Exponential)
            rate = _flat(base.rate, d, 0)
            log_rate = torch.where(_usable(rate), rate, 1.0).log()
            values = torch.unflatten(_flat(draw.value, d, 1), 0, (2, pairs, n))
            x = values.diagonal(dim1=1, dim2=-1)  # (2, n, *batch, R)
            ahead = x + rate.detach() if isinstance(base, Poisson) else 1 + rate.detach() * x
            parts = [log_rate * ahead[0], -log_rate * ahead[1]]
        # A value without probability has weight 0, and −inf as its logarithm.
        finite = [torch.where(part.isfinite(), part, 0.0) for part in parts]
        wide = [part.expand(n, *part.shape[-len(d.batch_shape) - 1 :]).movedim(-1, 0).flatten(0, 1) for part in finite]
        return torch.cat(wide) * torch.where(draw.notes["weight"] > 0, float(pairs), 0.0)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor | None:
        base = plain(draw.distribution)[0]
        if not isinstance(base, Normal):
            return None
        n, _ = self._split(draw)
        mean, scale = (_flat(t, draw.distribution, 0) for t in (base.loc, base.scale))
        halves = cost[n:].reshape(4, -1, n, *cost.shape[1:]).movedim(1, -1)  # (4, n, …, R)
        slope = (halves[0] - halves[1]) / (scale.detach() * math.sqrt(2 * math.pi))
        spread = (halves[2] - halves[3]) / scale.detach()
        h = (mean * slope + scale * spread).sum(-1)
        return padded(h - h.detach() - cost[:n] * (box[:n] - 1), draw.m)

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        if n > 1 or not has_factors(distribution):
            return None
        f = factors(distribution)
        values = support(distribution)
        with torch.no_grad():
            log_p = log_prob(distribution, values).double()
            if is_bernoulli(distribution):
                wide = repeat_batch(distribution, len(values))
                return self._finite(wide, values.unsqueeze(0), None), log_p.exp()
            count, width = f.log_probs.shape[-2:]
            if len(values) * (width - 1) ** (count * width) > MOST_OUTCOMES or len(set(f.sizes)) > 1:
                return None
            choice = all_indices((len(values), *(width - 1,) * (count * width)), values.device)
            k = torch.arange(width, device=values.device)
            below = choice[:, 1:].reshape(-1, count, width)
            below = below + (below >= k).long()  # skip k itself
            batch = len(distribution.batch_shape)
            below = below.reshape(-1, *(1,) * batch, count, width).expand(-1, *f.log_probs.shape)
            others = f.log_probs.double().unsqueeze(-2).expand(*f.log_probs.shape, width)
            others = others.masked_fill(torch.eye(width, dtype=torch.bool, device=k.device), float("-inf"))
            given = f.log_probs.double().expand(below.shape).gather(-1, below) - others.logsumexp(-1)
            prob = (log_p[choice[:, 0]] + given.flatten(-2).sum(-1)).exp().nan_to_num(0.0)
            wide = repeat_batch(distribution, len(choice))
        return self._finite(wide, values[choice[:, 0]].unsqueeze(0), below.unsqueeze(0)), prob


def _flat(x: Tensor, distribution: Distribution, leading: int) -> Tensor:
    """(leading, *batch, *event) as (leading, *batch, R)."""
    return x.reshape((*x.shape[: leading + len(distribution.batch_shape)], -1))


def _usable(rate: Tensor) -> Tensor:
    """Whether a rate is large enough to be divided by."""
    return rate >= torch.finfo(rate.dtype).tiny


def _others(log_probs: Tensor, n: int) -> Tensor:
    """For every factor and category k a draw from the other categories, (n, *batch, R, C)."""
    width = log_probs.shape[-1]
    masked = log_probs.unsqueeze(-2).expand(*log_probs.shape[:-1], width, width)
    masked = masked.masked_fill(torch.eye(width, dtype=torch.bool, device=log_probs.device), float("-inf"))
    return (masked + gumbel(masked.expand(n, *masked.shape))).argmax(-1)


class SPSA(Estimator):
    r"""SPSA: with ε = ±1 at random, x₁ ~ p_{θ+cε} and x₂ ~ p_{θ−cε}. The gradient has a bias of order c².

        w = ½ ⊥(p(x)/p_±(x)),      l = ± Σ_d θ_d ⊥(p_±(x) / (c ε_d p(x))),      a = 0      (errata 4.2)

    θ are logits, locations, and logarithms of positive parameters.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), SPSA(n=4, step=0.1))
    >>> _ = tape.cost(z)
    >>> (g,) = torch.autograd.grad(tape.surrogate(allow_biased=True), logits)
    """

    distributions = "with real or positive parameters"
    evaluations = "2n"
    order = 1
    biased = True

    def __init__(self, n: int = 1, step: float = 0.1) -> None:
        super().__init__(n)
        require_positive("step", step)
        self.step = step

    def fits(self, distribution: Distribution) -> bool:
        try:
            return bool(parameters_of(distribution))
        except ConfigError:
            return False

    def propose(self, distribution: Distribution, n: int) -> Draw:
        with torch.no_grad():
            theta = {k: t.expand(n, *t.shape) for k, t in parameters_of(distribution).items()}
            signs = {k: torch.where(torch.rand_like(t) < 0.5, -1.0, 1.0).to(t.dtype) for k, t in theta.items()}
            moved = self._moved(distribution, signs)
            return self._complete(distribution, [d.sample() for d in moved], moved, signs)[0]

    def _moved(self, distribution: Distribution, signs: dict[str, Tensor]) -> list[Distribution]:
        theta = parameters_of(distribution)
        return [rebuilt(distribution, {k: theta[k] + c * signs[k] for k in theta}) for c in (self.step, -self.step)]

    def _complete(
        self, distribution: Distribution, values: list[Tensor], moved: list[Distribution], signs: dict[str, Tensor]
    ) -> tuple[Draw, Tensor]:
        """The draw, and the log-probabilities of both halves."""
        value = torch.cat(values)
        logs = torch.cat([log_prob(d, v) for d, v in zip(moved, values, strict=True)])
        log_ratio = log_prob(distribution, value) - logs
        # ±1/(cε) for the two halves, and 1/ε = ε.
        notes = {k: torch.cat([s, -s]) / self.step for k, s in signs.items()}
        # The gradient function divides by the ratio again, so where it is extreme only the product matters.
        return Draw(value, distribution, ratio=log_ratio.clamp(-40.0, 40.0).exp(), **notes), logs

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["ratio"] / draw.m

    def gradient(self, draw: Draw) -> Tensor:
        keep = 1 + len(draw.distribution.batch_shape)
        parts = []
        for name, theta in parameters_of(draw.distribution).items():
            part = torch.where(theta.isinf(), 0.0, theta) * draw.notes[name]  # an infinite logit has no derivative
            parts.append(part.flatten(keep).sum(-1) if part.dim() > keep else part)
        return torch.stack(parts).sum(0) / draw.notes["ratio"]

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        size = total_size(distribution)
        with torch.no_grad():
            theta = parameters_of(distribution)
            batch = len(distribution.batch_shape)
            if size is None or n > 1 or set(theta) != {"logits"}:
                return None
            logits = theta["logits"]
            count = logits.shape[batch:].numel()
            if size * size * 2**count > MOST_OUTCOMES:
                return None
            choice = all_indices((2,) * count + (size, size), logits.device)  # (O, count + 2)
            signs = (choice[:, :count] * 2 - 1).to(logits.dtype)
            signs = signs.reshape(1, -1, *(1,) * batch, *logits.shape[batch:]).expand(1, -1, *logits.shape)
            both = {"logits": signs}
            pair = [support(distribution)[choice[:, count + i]].unsqueeze(0) for i in (0, 1)]
            wide = repeat_batch(distribution, choice.shape[0])
            draw, logs = self._complete(wide, pair, self._moved(distribution, both), both)
        return draw, logs.double().sum(0).exp() / 2**count
