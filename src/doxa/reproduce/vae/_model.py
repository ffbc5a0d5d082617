"""The discrete variational autoencoder of Chapter 5: its networks, its evidence lower bound, and a control variate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, OneHotCategorical
from torch.nn.functional import leaky_relu, linear, logsigmoid, softplus

Latents = Literal["bernoulli", "categorical"]

LATENTS = 20
VALUES: dict[Latents, int] = {"bernoulli": 2, "categorical": 10}
SLOPE = 0.1  # of leaky_relu below 0


class DiscreteVAE(nn.Module):
    """Binary images x explained by 20 discrete variables z, each with a uniform prior p(z).

    The encoder 784-512-256 gives q(z|x), the decoder 256-512-784 gives p(x|z), with leaky ReLUs between. The negative
    evidence lower bound is an expectation over q and a divergence that is known exactly:

        −ELBO(x) = E_{z ~ q(z|x)}[ −log p(x|z) ] + KL(q(z|x) ‖ p(z)).
    """

    def __init__(self, latents: Latents) -> None:
        super().__init__()
        self.binary = latents == "bernoulli"
        self.values = VALUES[latents]
        self.width = LATENTS * (1 if self.binary else self.values)
        self.encoder = nn.ModuleList([nn.Linear(784, 512), nn.Linear(512, 256), nn.Linear(256, self.width)])
        self.decoder = nn.ModuleList([nn.Linear(self.width, 256), nn.Linear(256, 512), nn.Linear(512, 784)])

    def logits(self, x: Tensor) -> Tensor:
        """The parameters of q(z|x), (batch, 20) or (batch, 20, 10)."""
        out = _layers(self.encoder, x)
        return out if self.binary else out.reshape(-1, LATENTS, self.values)

    def posterior(self, logits: Tensor) -> Distribution:
        """q(z|x)."""
        base = Bernoulli if self.binary else OneHotCategorical
        return Independent(base(logits=logits, validate_args=False), 1, validate_args=False)

    def reconstruction(self, z: Tensor, x: Tensor, *, frozen: bool = False) -> Tensor:
        """−log p(x|z) for values z (samples, batch, …), which may be relaxed, as (samples, batch).

        With logits o it is Σ log(1 + exp((1 − 2x) o)). ``frozen`` keeps the decoder out of the gradient.
        """
        out = _layers(self.decoder, z if self.binary else z.flatten(-2), frozen=frozen)
        return softplus((1 - 2 * x) * out).sum(-1)

    def divergence(self, logits: Tensor) -> Tensor:
        """KL(q(z|x) ‖ p(z)) = Σ q log q + 20 log C, (batch,)."""
        if self.binary:
            log_q = torch.stack([logsigmoid(-logits), logsigmoid(logits)], -1)
        else:
            log_q = logits.log_softmax(-1)
        return (log_q.exp() * log_q).sum((-2, -1)) + LATENTS * math.log(self.values)


class ControlVariate(nn.Module):
    """What RELAX learns: c(z) = η f(z/τ) + r(z/τ), the cost of a relaxed sample and a small network beside it.

    Both see σ(z/τ) or softmax(z/τ); η, τ and r are trained to lower the variance of the gradient.
    """

    def __init__(self, cost: Callable[[Tensor], Tensor], model: DiscreteVAE) -> None:
        super().__init__()
        self.cost, self.binary = cost, model.binary
        self.log_temperature = nn.Parameter(torch.tensor(0.5).log())
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.network = nn.Sequential(nn.Linear(model.width, 50), nn.LeakyReLU(SLOPE), nn.Linear(50, 1))

    def forward(self, z: Tensor) -> Tensor:
        z = z / self.log_temperature.exp()
        soft = torch.sigmoid(z) if self.binary else torch.softmax(z, -1)
        free: Tensor = self.network(soft if self.binary else soft.flatten(-2)).squeeze(-1)
        return self.scale * self.cost(soft) + free


def _layers(layers: nn.ModuleList, x: Tensor, *, frozen: bool = False) -> Tensor:
    for i, layer in enumerate(layers):
        assert isinstance(layer, nn.Linear)
        weight, bias = (layer.weight.detach(), layer.bias.detach()) if frozen else (layer.weight, layer.bias)
        x = linear(leaky_relu(x, SLOPE) if i else x, weight, bias)
    return x
