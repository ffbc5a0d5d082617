r"""Numerics that every room shares: one named cap, and what follows from it.

Truth values live on the closed interval [0, 1], where logarithms, roots and quotients are singular. doxa has one
rule for all of them, the *cap* ε:

* a logarithm is :math:`\log\max(x, ε)`;
* a singular derivative is capped at 1/ε;
* away from the cap, values and derivatives are exact.

ε is the machine epsilon of the tensor's dtype unless an operator is given another one. The tool behind the rule is
:func:`lift`: it raises the value of a tensor to a floor and leaves the derivative through it at 1, so that
``log(lift(x, ε))`` has the value :math:`\log\max(x, ε)` and the derivative :math:`1/\max(x, ε)`, never 0 and never
infinite. Everything here is made of plain differentiable operations, apart from :func:`with_derivatives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from doxa.errors import ConfigError

Dims = int | tuple[int, ...] | None


def cap(x: Tensor, eps: float | None = None) -> float:
    """The cap ε for a tensor: ``eps`` if given, else the machine epsilon of its dtype.

    >>> cap(torch.zeros(1)) == torch.finfo(torch.float32).eps, cap(torch.zeros(1), 1e-3)
    (True, 0.001)
    """
    if eps is None:
        return torch.finfo(x.dtype).eps
    if not 0 < eps < 1:
        raise ConfigError(f"eps is {eps}, expected a number between 0 and 1, or None for the dtype's own")
    return eps


def truth(x: Tensor) -> Tensor:
    """Truth values ready to compute with: float32 and float64 stay, anything else (half, bool, integer) is float32.

    Logic in half precision would lose a truth value of 0.999, so under autocast it stays in float32.

    >>> truth(torch.tensor([True, False])), truth(torch.ones(1, dtype=torch.bfloat16)).dtype
    (tensor([1., 0.]), torch.float32)
    """
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def lift(x: Tensor, low: float | Tensor) -> Tensor:
    """``max(x, low)`` in value, but with derivative 1 everywhere."""
    return x + (low - x.detach()).clamp_min_(0)


def lower(x: Tensor, high: float | Tensor) -> Tensor:
    """``min(x, high)`` in value, but with derivative 1 everywhere: for results that rounding puts above ``high``."""
    return x - (x.detach() - high).clamp_min_(0)


def safe_log(x: Tensor, eps: float | None = None) -> Tensor:
    r""":math:`\log\max(x, ε)`, with derivative :math:`1/\max(x, ε)`.

    >>> x = torch.tensor([0.0, 0.5], requires_grad=True)
    >>> y = safe_log(x, 0.01); y.sum().backward(); y.detach(), x.grad
    (tensor([-4.6052, -0.6931]), tensor([100.,   2.]))
    """
    return torch.log(lift(x, cap(x, eps)))


def log1mexp(x: Tensor) -> Tensor:
    r""":math:`\log(1 - e^{-x})` for x > 0, accurate at both ends.

    Mächler 2012, "Accurately computing log(1 - exp(-|a|))".
    It is its own inverse up to sign: ``-log1mexp(-log1mexp(x)) == x``.

    >>> log1mexp(torch.tensor([1e-6, 1.0, 20.0]))
    tensor([-1.3816e+01, -4.5868e-01, -2.0612e-09])
    """
    small = x < 0.6931471805599453
    one = torch.ones((), dtype=x.dtype, device=x.device)
    # Each branch sees a harmless 1 where the other one is used, so that no derivative is 0 * inf.
    near = torch.log(-torch.expm1(-torch.where(small, x, one)))
    far = torch.log1p(-torch.exp(-torch.where(small, one, x)))
    return torch.where(small, near, far)


def root(x: Tensor, q: float | Tensor, eps: float | None = None, unit: Tensor | float = 1.0) -> Tensor:
    r""":math:`x^q` for x ≥ 0 and 0 < q ≤ 1, with its derivative :math:`q x^{q-1}` capped at q/ε.

    The value is exact at 0 and wherever the derivative is not capped, and within ε elsewhere. With a ``unit`` u the
    cap is that of x/u: :math:`q u^{q-1}/ε`.

    >>> x = torch.tensor([0.0, 0.25], requires_grad=True)
    >>> y = root(x, 0.5, 1e-3); y.sum().backward(); y.detach(), x.grad
    (tensor([0.0000, 0.5000]), tensor([500.0000,   1.0000]))
    """
    if isinstance(q, float) and q == 1:
        return x
    tiny = torch.finfo(x.dtype).tiny
    # With q near 1 the floor is less than any float, and at the smallest float the slope is below its cap. A learnable
    # q is in float32, where the smallest float64 would be 0.
    floor = unit * cap(x, eps) ** (1 / (1 - (q.detach().to(x.dtype) if isinstance(q, Tensor) else q)))
    capped = lift(x, floor.clamp_min(tiny) if isinstance(floor, Tensor) else max(floor, tiny)).pow(q)
    if isinstance(q, float) and q >= 0.5 and isinstance(unit, float):
        # below the floor x^q < ε, so 0 is the only value to put right
        return capped - capped.detach() * (x.detach() <= 0)
    return capped + (x.detach().clamp_min(0).pow(q) - capped).detach()


def size_of(x: Tensor, dim: Dims) -> int:
    """How many elements a reduction of ``x`` over ``dim`` joins (``None``: all of them)."""
    if dim is None:
        return x.numel()
    return math.prod([x.shape[d] for d in ((dim,) if isinstance(dim, int) else dim)])  # a list: dynamo follows it


def merge_dims(x: Tensor, dim: Dims) -> tuple[Tensor, int]:
    """``x`` with the dimensions to be reduced made into one, and which one that is.

    >>> y, d = merge_dims(torch.zeros(2, 3, 4), (0, 2)); y.shape, d
    (torch.Size([3, 8]), -1)
    """
    if isinstance(dim, int) and x.dim():
        return x, dim
    if dim is None or not x.dim():
        return x.reshape(-1), 0
    assert not isinstance(dim, int)
    if len(dim) == 1:
        return x, dim[0]
    if not dim:
        return x.unsqueeze(-1), -1
    return x.movedim(dim, tuple(range(-len(dim), 0))).flatten(-len(dim)), -1


class _Backward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, derivatives: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.derivatives = inputs[1]
        ctx.save_for_backward(output, *inputs[2:])
        ctx.save_for_forward(output, *inputs[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        output, *inputs = ctx.saved_tensors
        return grad, None, *(grad * d for d in ctx.derivatives(output, *inputs))


class _BackwardAndForward(_Backward):
    """With forward-mode derivatives too, which torch.compile cannot trace."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        output, *inputs = ctx.saved_tensors
        slopes = ctx.derivatives(output, *inputs)
        given = [(d, t) for d, t in zip(slopes, tangents[2:], strict=True) if t is not None]
        parts = [(d * t).sum_to_size(output.shape) for d, t in given]
        if tangents[0] is not None:
            parts.append(tangents[0])
        return torch.stack(parts).sum(0)


def with_derivatives(value: Tensor, derivatives: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> Tensor:
    """``value``, made to depend on ``inputs`` with the partial derivatives ``derivatives(value, *inputs)``.

    For implicit functions, whose derivative is known in closed form while the derivative of each step of their
    evaluation overflows. The derivatives are differentiable functions themselves, so the second derivative is right
    too. All inputs have one shape, that of ``value`` but for axes that it has been summed over to length 1.

    >>> x = torch.tensor([4.0], requires_grad=True)
    >>> y = with_derivatives(x.detach().sqrt(), lambda y, x: (0.5 / y,), x)
    >>> torch.autograd.grad(y, x)
    (tensor([0.2500]),)
    """
    if has_torch_function(inputs):  # such as a mode that records operations
        return handle_torch_function(with_derivatives, inputs, value, derivatives, *inputs)
    function = _Backward if torch.compiler.is_compiling() else _BackwardAndForward
    result: Tensor = function.apply(value, derivatives, *inputs)  # type: ignore[no-untyped-call]
    return result
