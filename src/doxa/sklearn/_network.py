"""The network of an estimator: mean for missing values, scaling, and layers; all of it one module, so it exports."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from doxa.errors import ConfigError

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


class Standardise(nn.Module):
    """Missing values become the mean; then every feature has mean 0 and deviation 1 over the training rows.

    A feature that is missing everywhere, or that never changes, becomes 0.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, rows: NDArray[np.floating[Any]]) -> None:
        super().__init__()
        seen = ~np.isnan(rows)
        count = np.maximum(seen.sum(0), 1)
        mean = np.where(seen, rows, 0.0).sum(0, dtype=np.float64) / count
        gap = np.where(seen, rows - mean, 0.0)
        deviation = np.sqrt(np.square(gap).sum(0, dtype=np.float64) / count)
        # what is left of rounding in a constant column must not be blown up
        constant = deviation <= 10 * np.finfo(np.float64).eps * np.maximum(np.abs(mean), 1e-300)
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("scale", torch.from_numpy(np.where(constant, 0.0, 1 / np.where(constant, 1, deviation))))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean.to(x.dtype)
        return (torch.where(x.isnan(), mean, x) - mean) * self.scale.to(x.dtype)


class Whole(nn.Module):
    """Scaling, then the network."""

    def __init__(self, scaling: Standardise, network: nn.Module) -> None:
        super().__init__()
        self.scaling, self.network = scaling, network

    def forward(self, x: Tensor) -> Tensor:
        """``(n, features)`` to ``(n, outputs)``."""
        raw: Tensor = self.network(self.scaling(x))
        return raw


def mlp(features: int, outputs: int, hidden: int, layers: int, dropout: float, activation: str) -> nn.Module:
    """A plain network: ``layers`` hidden layers of one width."""
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation is {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(features, hidden), ACTIVATIONS[activation](), nn.Dropout(dropout)]
        features = hidden
    return nn.Sequential(*parts, nn.Linear(features, outputs))


def make_network(
    network: str | nn.Module | Callable[[int, int], nn.Module],
    features: int,
    outputs: int,
    *,
    hidden: int,
    layers: int,
    dropout: float,
    activation: str,
) -> nn.Module:
    """The network by name, a copy of one, or what a function of features and outputs makes."""
    if network == "mlp":
        return mlp(features, outputs, hidden, layers, dropout, activation)
    if isinstance(network, nn.Module):
        made = copy.deepcopy(network)
    elif callable(network):
        made = network(features, outputs)
    else:
        wanted = "'mlp', a torch.nn.Module, or a function of (features, outputs) that makes one"
        raise ConfigError(f"network is {network!r}, expected {wanted}")
    with torch.no_grad():
        made = made.float()
        was = made.training
        try:
            shape = tuple(made.eval()(torch.zeros(2, features)).shape)
        except RuntimeError as error:
            raise ConfigError(f"the network does not take rows of {features} features: {error}") from error
        made.train(was)
    if shape != (2, outputs):
        raise ConfigError(f"the network makes {shape} of 2 rows, expected (2, {outputs}): one number for each label")
    return made
