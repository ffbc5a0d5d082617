"""Simultaneous perturbation: a finite difference in a random direction."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import all_indices, log_prob, repeat_batch, support, total_size
from doxa.stochastic.estimators._outcomes import MOST_OUTCOMES
from doxa.stochastic.estimators._parameters import flat_sum, parameters_of, rademacher, rebuilt

__all__ = ["SPSA"]


class SPSA(Estimator):
    r"""SPSA: with ε = ±1 at random, x₁ ~ p_{θ+cε} and x₂ ~ p_{θ−cε}. The gradient has a bias of order c².

        w = ½ ⊥(p(x)/p_±(x)),      l = ± Σ_d θ_d ⊥(p_±(x) / (c ε_d p(x))),      a = 0      (errata 4.2)

    θ are logits, locations, and logarithms of positive parameters.

    >>> import torch
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
        if not step > 0:
            raise ConfigError(f"step is {step}, expected a positive number")
        self.step = step

    def fits(self, distribution: Distribution) -> bool:
        try:
            return bool(parameters_of(distribution))
        except ConfigError:
            return False

    def propose(self, distribution: Distribution, n: int) -> Draw:
        with torch.no_grad():
            theta = parameters_of(distribution)
            signs = {k: rademacher(t.expand(n, *t.shape)) for k, t in theta.items()}
            moved = [
                rebuilt(distribution, {k: theta[k] + c * signs[k] for k in theta}) for c in (self.step, -self.step)
            ]
            return self._complete(distribution, [d.sample() for d in moved], moved, signs)

    def _complete(
        self, distribution: Distribution, values: list[Tensor], moved: list[Distribution], signs: dict[str, Tensor]
    ) -> Draw:
        value = torch.cat(values)
        log_ratio = log_prob(distribution, value) - torch.cat(
            [log_prob(d, v) for d, v in zip(moved, values, strict=True)]
        )
        # ±1/(cε) for the two halves, and 1/ε = ε.
        notes = {k: torch.cat([s, -s]) / self.step for k, s in signs.items()}
        # The gradient function divides by the ratio again, so where it is extreme only the product matters.
        return Draw(value, distribution, ratio=log_ratio.clamp(-40.0, 40.0).exp(), **notes)

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["ratio"] / draw.m

    def gradient(self, draw: Draw) -> Tensor:
        theta = parameters_of(draw.distribution)
        # An infinite logit has no derivative.
        finite = {k: torch.where(t.isinf(), 0.0, t) for k, t in theta.items()}
        parts = [flat_sum(finite[k] * draw.notes[k], draw.distribution, 1) for k in theta]
        total = torch.stack(parts).sum(0)
        return total / draw.notes["ratio"]

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
            signs = signs.reshape(-1, *(1,) * batch, *logits.shape[batch:]).expand(-1, *logits.shape)
            values = support(distribution)
            moved = [rebuilt(distribution, {"logits": logits + c * signs}) for c in (self.step, -self.step)]
            pair = [values[choice[:, count]], values[choice[:, count + 1]]]
            logs = torch.stack([log_prob(d, v) for d, v in zip(moved, pair, strict=True)])
            prob = logs.double().sum(0).exp() / 2**count
            wide = repeat_batch(distribution, choice.shape[0])
            moved = [
                rebuilt(distribution, {"logits": (logits + c * signs).unsqueeze(0)}) for c in (self.step, -self.step)
            ]
            draw = self._complete(wide, [v.unsqueeze(0) for v in pair], moved, {"logits": signs.unsqueeze(0)})
        return draw, prob
