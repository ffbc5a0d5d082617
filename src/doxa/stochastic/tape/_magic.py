r"""The magic box, the guard that counts derivatives, and whether a function is being traced.

The magic box (DiCE; dissertation, "Formalizing AD libraries and DiCE") is

    □(l) = exp(l − ⊥l),      value 1,      ∇□(l) = □(l) ∇l,

where ⊥ is ``detach``. It puts a factor into the derivatives of an expression and leaves its value alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError


def magic_box(l: Tensor) -> Tensor:
    """□(l) = exp(l − ⊥l): the value is 1, the derivative that of l.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> y = magic_box(2 * x) * x ** 2                     # ∇[□(2x) f] = □(2x) (f' + 2 f)
    >>> y.item(), torch.autograd.grad(y, x)[0].item()
    (9.0, 24.0)
    """
    return torch.exp(l - l.detach())


class _Guard(torch.autograd.Function):
    """The identity in x, whose derivative is an identity that may be differentiated once less.

    The anchor ties the derivative to the parameters even where that is constant; its own is a guarded zero.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, anchor: Tensor | None, left: int) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, anchor, left = inputs
        ctx.left, ctx.first = left, anchor is None
        kept = x if anchor is None else anchor
        ctx.save_for_backward(kept)
        ctx.save_for_forward(kept)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor = _anchor(ctx)
        zero = None if ctx.first else _apply(torch.zeros_like(anchor), anchor, ctx.left - 1)
        return _apply(grads[0], anchor, ctx.left - 1), zero, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _apply(tangents[0], _anchor(ctx), ctx.left - 1)


class _PlainGuard(torch.autograd.Function):
    """The same for ordinary autograd: torch needs much longer to call a function that torch.func can transform."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor | None, left: int) -> Tensor:
        _Guard.setup_context(ctx, (x, anchor, left), x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return _Guard.backward(ctx, *grads)
        _anchor(ctx)
        return grads[0], None, None  # nobody can differentiate this result again


def _anchor(ctx: Any) -> Tensor:
    if ctx.left == 0:
        said = "the surrogate was differentiated more often than declared"
        raise ConfigError(f"{said}; call tape.surrogate(order=n) with n the number of times you differentiate it")
    anchor: Tensor = ctx.saved_tensors[0]
    return anchor


def _apply(x: Tensor, anchor: Tensor | None, left: int) -> Tensor:
    function = _Guard if torch._C._are_functorch_transforms_active() else _PlainGuard
    result: Tensor = function.apply(x, anchor, left)  # type: ignore[no-untyped-call]
    return result


def guard(x: Tensor, order: int) -> Tensor:
    """``x``, which raises when it is differentiated more than ``order`` times.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> (slope,) = torch.autograd.grad(guard(x ** 3, 1), x, create_graph=True)
    >>> torch.autograd.grad(slope, x)
    Traceback (most recent call last):
    doxa.errors.ConfigError: the surrogate was differentiated more often than declared; ...
    """
    # Compiled graphs are left alone: torch itself refuses their second derivative.
    return x if torch.compiler.is_compiling() else _apply(x, None, order)


def is_wrapped(x: Tensor) -> bool:
    """Whether a tensor belongs to a transformation of torch.func."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def is_traced(x: Tensor) -> bool:
    """Whether a tensor has no values to look at: inside torch.compile, or one of many in vmap."""
    if torch.compiler.is_compiling():
        return True
    while is_wrapped(x):
        if torch._C._functorch.is_batchedtensor(x):
            return True
        x = torch._C._functorch.get_unwrapped(x)
    return False
