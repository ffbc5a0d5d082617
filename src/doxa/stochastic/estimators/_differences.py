r"""Differences of costs: measure-valued derivatives, and simultaneous perturbation of the parameters.

With ∇_θ p = c_θ (p⁺ − p⁻), one parameter at a time and D parameters in all (errata 4.2),

    x⁺ ~ p⁺, x⁻ ~ p⁻,      w = ⊥(p/(p⁺+p⁻)) / D,      l = ± θ ⊥(c_θ / w),      a = 0,

so that the first derivative is Σ_θ ∇θ c_θ (f(x⁺) − f(x⁻)). All other dimensions of a pair are one common sample. The
triples:

    Bernoulli p         1                δ₁                     δ₀
    categorical logit   p_k (1 − p_k)    δ_k                    p given x ≠ k

For families over numbers the weights p/p^± may have no finite variance; there the differences enter as a control
variate of the score function (dissertation, "Measure Valued Derivatives"). ``_weak`` has their table.
"""

from __future__ import annotations

from itertools import product
from math import inf

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator, gumbel, require_positive
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
from doxa.stochastic.estimators._weak import FAMILIES, Mixture, Weak, flat, inside, log_density, weak_derivatives


class MeasureValued(Estimator):
    """The measure-valued (weak) derivative: differences of costs where a parameter puts more and less probability.

    For finite distributions by 2n evaluations for each parameter, to first order. For families over numbers the first
    derivative comes from such differences, higher ones from the score function, at any order; with ``second`` the
    second derivatives in one parameter come from differences, too (not for Beta and the shape of Weibull). The
    concentration of a Gamma distribution is left to the score function.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> p = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Bernoulli(p), MeasureValued())
    >>> _ = tape.cost(torch.where(z > 0, 2 * p.cos() + 0.4 * p, -0.7 * p.cos()))
    >>> loss = tape.surrogate(); loss.item(), torch.autograd.grad(loss, p)[0].item()     # without variance
    (0.141087..., 2.78690...)
    """

    distributions = "Bernoulli, categorical, Poisson, Binomial, Exponential, Gamma, Beta, Weibull, Normal"
    evaluations = "about 2n × parameters"
    order = 1

    def __init__(self, n: int = 1, second: bool = False) -> None:
        super().__init__(n)
        self.second = second

    def order_for(self, distribution: Distribution) -> float:
        return 1 if has_factors(distribution) else inf

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution) or isinstance(plain(distribution)[0], FAMILIES)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        base = plain(distribution)[0]
        if not self.fits(distribution):
            raise ConfigError(f"MeasureValued knows {self.distributions}, got {type(base).__name__}; use Score")
        sample = distribution.sample(torch.Size([n]))
        with torch.no_grad():
            if has_factors(distribution):
                return self._finite(distribution, sample, None)
            x = inside(base, flat(sample, distribution, 1))
            value = [x]
            for part in weak_derivatives(base, distribution, x):
                points = part.points()[: self._points(part)]
                value += [each_alone(x, inside(base, y)).flatten(0, 1) for y in points]
            shape = (*distribution.batch_shape, *distribution.event_shape)
            return Draw(torch.cat([v.reshape(len(v), *shape) for v in value]), distribution)

    def _points(self, part: Weak) -> int:
        """How many points the derivatives in one parameter need beside x."""
        return len((part.second if self.second and part.second else part.first).weights) - 1

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

    def _parts(self, draw: Draw) -> tuple[int, list[Weak]]:
        """n, and the weak derivatives of all parameters at the n samples themselves."""
        d, base = draw.distribution, plain(draw.distribution)[0]
        values = flat(draw.value, d, 1)
        each = sum(self._points(part) for part in weak_derivatives(base, d, values[:1]))
        n = draw.m // (1 + each * values.shape[-1])
        return n, weak_derivatives(base, d, values[:n])

    def _pairs(self, distribution: Distribution) -> int:
        f = factors(distribution)
        return len(f.sizes) * (1 if is_bernoulli(distribution) else f.log_probs.shape[-1])

    def weight(self, draw: Draw) -> Tensor:
        if not has_factors(draw.distribution):
            return draw.first(self._parts(draw)[0])
        return draw.notes["weight"] / (draw.m // 2)

    def gradient(self, draw: Draw) -> Tensor:
        d = draw.distribution
        if not has_factors(d):
            n, _ = self._parts(draw)
            base = plain(d)[0]
            each = log_density(base, draw.value[:n])
            return padded(flat(each, d, 1).sum(-1), draw.m)
        pairs = self._pairs(d)
        n = draw.m // (2 * pairs)
        table = factors(d).log_probs
        # l' = ± c ∇θ / w, written without the quotient: a weight may be too small to divide by.
        if is_bernoulli(d):
            parts = [table[..., 1], table[..., 0]]  # ∇p / p, and −∇p / (1 − p)
        else:
            p = table.detach().exp()
            parts = []
            for k in range(p.shape[-1]):
                parts += [table[..., k] * (1 - p[..., k]), -table[..., k] * p[..., k]]
        # A value without probability has weight 0, and −inf as its logarithm.
        finite = [torch.where(part.isfinite(), part, 0.0) for part in parts]
        wide = [part.expand(n, *part.shape[-len(d.batch_shape) - 1 :]).movedim(-1, 0).flatten(0, 1) for part in finite]
        return torch.cat(wide) * torch.where(draw.notes["weight"] > 0, float(pairs), 0.0)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor | None:
        """Σ_θ Δ (Σ α_i f_i − f ∂p/p) + ½ Δ² (Σ β_i f_i − f ∂²p/p) with Δ = θ − ⊥θ: zero on average at any order."""
        if has_factors(draw.distribution):
            return None
        n, parts = self._parts(draw)
        main = cost[:n].unsqueeze(-1)
        each = parts[0].theta.shape[-1]
        others = cost[n:].reshape((len(cost) - n) // max(each * n, 1), each, n, *cost.shape[1:]).movedim(1, -1)
        total = torch.zeros_like(cost[:n])
        for part in parts:
            mine, others = others[: self._points(part)], others[self._points(part) :]
            delta = part.theta - part.theta.detach()
            total = total + (delta * _instead(part.first, main, mine)).sum(-1)
            if self.second and part.second:
                total = total + 0.5 * (delta.square() * _instead(part.second, main, mine)).sum(-1)
        return padded(total, draw.m)

    def __repr__(self) -> str:
        return f"MeasureValued({self.n}, second={self.second})"

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


def _instead(derivative: Mixture, main: Tensor, others: Tensor) -> Tensor:
    """What the differences of costs say about a derivative, minus what the score function does."""
    found = (derivative.weights[0] - derivative.score) * main
    for weight, f in zip(derivative.weights[1:], others, strict=False):  # the first derivative needs fewer points
        found = found + weight * f
    return found


def _others(log_probs: Tensor, n: int) -> Tensor:
    """For every factor and category k a draw from the other categories, (n, *batch, R, C)."""
    width = log_probs.shape[-1]
    masked = log_probs.unsqueeze(-2).expand(*log_probs.shape[:-1], width, width)
    masked = masked.masked_fill(torch.eye(width, dtype=torch.bool, device=log_probs.device), float("-inf"))
    return (masked + gumbel(masked.expand(n, *masked.shape))).argmax(-1)


class SPSA(Estimator):
    r"""SPSA: with ε = ±1 at random, x₁ ~ p_{θ+cε} and x₂ ~ p_{θ−cε}. The gradient has a bias of order c².

        w = ½ ⊥(p(x)/p_±(x)),      l = ± Σ_d θ_d ⊥(p_±(x) / (c ε_d p(x))),      a = 0      (errata 4.2)

    For second derivatives two directions ε, ε̃ and their four sums, after Spall (2000): x_{st} ~ p_{θ + c(sε + tε̃)}, and

        w = ¼ ⊥(p/p_{st}),      □(l) = 1 + ⊥(p_{st}/p) [(sε + tε̃)ᵀΔ / (2c) + (sεᵀΔ) (tε̃ᵀΔ) / (2c²)],      Δ = θ − ⊥θ.

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
    evaluations = "2n, or 4n"
    order = 1
    biased = True

    def __init__(self, n: int = 1, step: float = 0.1, order: int = 1) -> None:
        super().__init__(n)
        require_positive("step", step)
        if order not in (1, 2):
            raise ConfigError(f"order is {order}, expected 1 (two evaluations) or 2 (four evaluations)")
        self.step, self.order = step, order

    def fits(self, distribution: Distribution) -> bool:
        try:
            return bool(parameters_of(distribution))
        except ConfigError:
            return False

    def propose(self, distribution: Distribution, n: int) -> Draw:
        with torch.no_grad():
            theta = {k: t.expand(n, *t.shape) for k, t in parameters_of(distribution).items()}
            signs = [
                {k: torch.where(torch.rand_like(t) < 0.5, -1.0, 1.0).to(t.dtype) for k, t in theta.items()}
                for _ in range(int(self.order))
            ]
            moves = self._moves(signs)
            moved = self._moved(distribution, moves)
            return self._complete(distribution, [d.sample() for d in moved], moved, moves)[0]

    def _moves(self, signs: list[dict[str, Tensor]]) -> list[list[dict[str, Tensor]]]:
        """Which directions lead to each point: (ε) and (−ε), or (±ε, ±ε̃)."""
        chosen = product((1, -1), repeat=len(signs))
        return [[{k: s * v for k, v in one.items()} for s, one in zip(c, signs, strict=True)] for c in chosen]

    def _moved(self, distribution: Distribution, moves: list[list[dict[str, Tensor]]]) -> list[Distribution]:
        theta = parameters_of(distribution)
        whole = [{k: torch.stack([one[k] for one in move]).sum(0) for k in theta} for move in moves]
        return [rebuilt(distribution, {k: theta[k] + self.step * move[k] for k in theta}) for move in whole]

    def _complete(
        self,
        distribution: Distribution,
        values: list[Tensor],
        moved: list[Distribution],
        moves: list[list[dict[str, Tensor]]],
    ) -> tuple[Draw, Tensor]:
        """The draw, and the log-probabilities of all its parts."""
        value = torch.cat(values)
        logs = torch.cat([log_prob(d, v) for d, v in zip(moved, values, strict=True)])
        log_ratio = log_prob(distribution, value) - logs
        notes = {
            f"{i} {k}": torch.cat([move[i][k] for move in moves]) for i in range(len(moves[0])) for k in moves[0][0]
        }
        # The gradient function divides by the ratio again, so where it is extreme only the product matters.
        most = 40.0 / self.order
        return Draw(value, distribution, ratio=log_ratio.clamp(-most, most).exp(), **notes), logs

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["ratio"] / draw.m

    def gradient(self, draw: Draw) -> Tensor:
        keep = 1 + len(draw.distribution.batch_shape)
        along: list[Tensor] = []
        for i in range(int(self.order)):
            parts = []
            for name, theta in parameters_of(draw.distribution).items():
                finite = torch.where(theta.isinf(), 0.0, theta)  # an infinite logit has no derivative
                part = (finite - finite.detach()) * draw.notes[f"{i} {name}"] / self.step
                parts.append(part.flatten(keep).sum(-1) if part.dim() > keep else part)
            along.append(torch.stack(parts).sum(0))
        rise = along[0] if len(along) == 1 else (along[0] + along[1] + along[0] * along[1]) / 2
        return torch.log1p(rise / draw.notes["ratio"])

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        size, directions = total_size(distribution), int(self.order)
        with torch.no_grad():
            theta = parameters_of(distribution)
            batch = len(distribution.batch_shape)
            if size is None or n > 1 or set(theta) != {"logits"}:
                return None
            logits = theta["logits"]
            count, points = logits.shape[batch:].numel(), 2**directions
            if size**points * 2 ** (count * directions) > MOST_OUTCOMES:
                return None
            choice = all_indices((2,) * (count * directions) + (size,) * points, logits.device)
            signs = []
            for i in range(directions):
                one = (choice[:, i * count : (i + 1) * count] * 2 - 1).to(logits.dtype)
                one = one.reshape(1, -1, *(1,) * batch, *logits.shape[batch:]).expand(1, -1, *logits.shape)
                signs.append({"logits": one})
            values = [support(distribution)[choice[:, i - points]].unsqueeze(0) for i in range(points)]
            wide, moves = repeat_batch(distribution, choice.shape[0]), self._moves(signs)
            draw, logs = self._complete(wide, values, self._moved(distribution, moves), moves)
        return draw, logs.double().sum(0).exp() / 2 ** (count * directions)

    def __repr__(self) -> str:
        return f"SPSA({self.n}, step={self.step}, order={self.order})"
