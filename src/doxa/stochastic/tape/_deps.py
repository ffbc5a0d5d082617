"""Is a cost really independent of the nodes that its ``deps`` leave out?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.stochastic.tape._nodes import Node

__all__ = ["check_axes", "check_by_perturbation"]

PERTURBATIONS = 3


def check_axes(cost: Tensor, others: list[Node], batch_dims: int) -> None:
    """A node left out must have an axis, along which the cost does not change: its samples are the perturbation."""
    for node in others:
        if node.axis is None or node.draw.m == 1:
            raise ConfigError(
                f"deps leaves out {node.name}, which has one sample only, so nothing can be compared; give the cost "
                "as a function, tape.cost(lambda: ..., deps=...), so that it can be computed again with other samples"
            )
        dim = cost.dim() - batch_dims - node.axis - 1
        if dim >= 0 and cost.shape[dim] > 1:
            first = cost.detach().narrow(dim, 0, 1)
            if not torch.allclose(cost.detach(), first.expand_as(cost), equal_nan=True):
                raise ConfigError(_wrong(node))


def check_by_perturbation(cost: Callable[[], Tensor], value: Tensor, others: list[Node]) -> None:
    """Compute the cost again with other samples of each node left out; the samples are put back in any case."""
    for node in others:
        kept = [v.detach().clone() for v in node.values]
        try:
            for _ in range(PERTURBATIONS):
                other = node.estimator.propose(node.draw.distribution, node.count).value
                parts = node.split(other if node.axis is not None else other.squeeze(0))
                for held, new in zip(node.values, parts, strict=True):
                    # .data, because the graph may have saved these samples: they come back unchanged.
                    held.data.copy_(new.detach())
                with torch.no_grad():
                    again = cost()
                if not torch.allclose(again, value.detach(), equal_nan=True):
                    raise ConfigError(_wrong(node))
        finally:
            for held, old in zip(node.values, kept, strict=True):
                held.data.copy_(old)


def _wrong(node: Node) -> str:
    return (
        f"deps leaves out {node.name}, but the cost changes with it; its gradient would be biased. "
        f"Add the sample of {node.name} to deps, or leave deps away"
    )
