"""What keeps the inference models of several processes equal: one rank order, one average, one start."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


def several() -> bool:
    """Whether more than one process trains together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@torch.no_grad()
def gathered(rows: Tensor) -> Tensor:
    """The rows ``(n, …)`` of all processes, in the order of their ranks; each may have a different number of them."""
    if not several():
        return rows
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, count)
    most = max(int(c) for c in counts)
    padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])]).contiguous()
    found = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(found, padded)
    return torch.cat([part[: int(c)] for part, c in zip(found, counts, strict=True)])


@torch.no_grad()
def average(parameters: Iterable[Tensor], loss: Tensor) -> Tensor:
    """Put the average over all processes into the gradients of ``parameters``, and return that of the loss."""
    loss = loss.detach()
    if not several():
        return loss
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([loss.reshape(1), *(g.reshape(-1).to(loss.dtype) for g in grads)])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, torch.split(flat[1:], [g.numel() for g in grads]), strict=True):
        grad.copy_(part.reshape(grad.shape))
    return flat[0]


@torch.no_grad()
def start_equal(tensors: Iterable[Tensor]) -> None:
    """Give every process what the first one has."""
    if several():
        for tensor in tensors:
            dist.broadcast(tensor.data, 0)
