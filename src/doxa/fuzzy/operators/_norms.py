r"""The p-norm :math:`‖z‖_p = (\sum_i z_i^p)^{1/p}`, behind Yager, Aczél-Alsina, Dombi and the generalised means.

Written naively it underflows for large p, overflows for small p, and has no derivative where z = 0. Here it is scaled
by its largest element, so that the norm of one element is that element for every p, and at z = 0 its derivative is 0
for every p ≠ 1 (errata 2.5).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, root, size_of
from doxa.fuzzy.operators._parameters import Parameter, bounds, current


def norm(
    z: Tensor,
    p: Parameter,
    dim: Dims,
    *,
    weight: Tensor | None = None,
    count: float | Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    r""":math:`(\frac{1}{\mathrm{count}} \sum_i w_i z_i^p)^{1/p}` over ``dim``, of z ≥ 0."""
    q, dims = current(p), tuple(range(z.dim())) if dim is None else dim
    scale = None
    if p not in (1, 2) and size_of(z, dim):
        top = z.detach().amax(dims, keepdim=True)
        scale = torch.where(top > 0, top, 1.0)
        z = z / scale

    if count is not None and bounds(p)[1] <= 1 and p != 1:
        return _small_mean(z, q, dims, weight, count, eps, scale)

    def of(powers: Tensor) -> Tensor:
        total = (powers if weight is None else powers * weight).sum(dims, keepdim=True)
        n = count.reshape(total.shape) if isinstance(count, Tensor) else count
        return unpower(total if n is None else total / n, p, q, eps)

    result = of(power(z, p, eps, of))
    return (result if scale is None else result * scale).squeeze(dims)


def _small_mean(
    z: Tensor,
    q: float | Tensor,
    dims: int | tuple[int, ...],
    weight: Tensor | None,
    count: float | Tensor,
    eps: float | None,
    scale: Tensor | None,
) -> Tensor:
    """A mean with p < 1 from :math:`z^p - 1`: for small p all powers are nearly 1, and their mean would be rounded."""
    if scale is None:
        return z.sum(dims)
    some = z > 0 if weight is None else (z > 0) & (weight > 0)
    share = torch.where(some, 1.0 if weight is None else weight, 0.0).to(z.dtype)
    n = count.reshape(scale.shape) if isinstance(count, Tensor) else count
    zeros = share.sum(dims, keepdim=True) / n - 1  # what is 0, and counts, is -1 in the mean

    def of(logs: Tensor) -> Tensor:
        mean = (share * torch.expm1(q * logs)).sum(dims, keepdim=True) / n + zeros
        return torch.exp(torch.log1p(lift(mean, cap(z) / 2 - 1)) / q)

    with torch.no_grad():
        whole = of(torch.log(torch.where(some, z, 1.0)))
        floor = whole * cap(z, eps) ** (1 / (1 - q))
    capped = torch.log(torch.where(some, lift(z, floor.clamp_min(torch.finfo(z.dtype).tiny)), 1.0))
    logs = capped + (torch.log(torch.where(some, z, 1.0)) - capped).detach()
    return torch.where(some.any(dims, keepdim=True), of(logs) * scale, 0.0).squeeze(dims)


def norm_pair(u: Tensor, v: Tensor, p: Parameter, eps: float | None = None) -> Tensor:
    r""":math:`(u^p + v^p)^{1/p}`."""
    if p in (1, 2):
        return unpower(power(u, p, eps) + power(v, p, eps), p, current(p), eps)
    u, v = torch.broadcast_tensors(u, v)  # type: ignore[no-untyped-call]
    return norm(torch.stack([u, v]), p, 0, eps=eps)


def norm_rest(u: Tensor, v: Tensor, p: Parameter, eps: float | None = None) -> Tensor:
    r""":math:`(u^p - v^p)^{1/p}` for u ≥ v ≥ 0: what must be joined to v to get u."""
    q = current(p)
    whole = torch.where(u > 0, u, 1.0)
    # u^p - v^p = u^p (1 - (v/u)^p), without cancellation when u and v are close.
    far = v < u / 2
    log_ratio = torch.where(far, torch.log(v / whole), torch.log1p(-(u - v) / whole)).clamp_min(-1e30)
    return u * unpower(-torch.expm1(q * log_ratio), p, q, eps)


def power(z: Tensor, p: Parameter, eps: float | None, of: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """z^p; if ``of`` makes a norm of powers, that norm has its derivatives capped at 1/ε."""
    if p == 1:
        return z
    if p == 2:
        return z.square()
    # A truth value of 1.0000001 (softmax in float32) must not become NaN.
    q, least = current(p), z.clamp_min(0)
    if bounds(p)[0] >= 1:
        return least.pow(q)
    if of is None:
        return root(z, q, eps)
    whole = of(least.pow(q)).detach()
    return root(z, q, eps, unit=torch.where(whole > 0, whole, 1.0))


def unpower(total: Tensor, p: Parameter, q: float | Tensor, eps: float | None) -> Tensor:
    """total^(1/p), q being the value of p now."""
    if bounds(p)[0] >= 1:
        return root(total, 1 / q, eps)
    # n^(1/p) of many terms and a small p may exceed the number range.
    most = torch.finfo(total.dtype).max ** 0.5
    inside = total <= most**q
    return torch.where(inside, torch.where(inside, total.clamp_min(0), 1.0).pow(1 / q), most)
