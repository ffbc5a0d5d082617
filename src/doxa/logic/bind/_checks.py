"""What can be said of a tensor before it is used: how messages show it, and whether its numbers are good ones."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError
from doxa.logic.bind._bindings import Returns


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def dtype_of(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def describe(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = "a tensor" if value.layout == torch.strided else f"a {str(value.layout).removeprefix('torch.')} tensor"
        return f"{kind} of shape {shape_of(value)} and dtype {dtype_of(value)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"


def has_values(tensor: Tensor) -> bool:
    """Can the entries be looked at? Not while a function is compiled or mapped, nor on fake and meta tensors."""
    if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return not (tensor.is_meta or hasattr(tensor, "fake_mode"))


def check_alike(sort: str, first: str, one: Tensor, second: str, other: Tensor) -> None:
    """Refuse objects of one sort that differ in shape or dtype; ``first`` and ``second`` say where they came from."""
    if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
        shown = [f"{shape_of(t)[1:]} and dtype {dtype_of(t)}" for t in (one, other)]
        raise BindingError(
            f"{sort}: all objects of a sort need features of the same shape and dtype, but those in {first} have shape "
            f"{shown[0]}, and those in {second} have shape {shown[1]}"
        )


def is_finite(numbers: Tensor) -> bool:
    """Is the sum of all numbers finite, so that all of them are? True also where they cannot be looked at."""
    if not numbers.is_floating_point() or not has_values(numbers):
        return True
    return math.isfinite(numbers.detach().sum().item())


def check_finite(name: str, thing: str, numbers: Tensor, *, distribution: bool) -> None:
    """Refuse NaN and +inf, and logits of one ``distribution`` that are all -inf; other -inf are probabilities of 0."""
    if is_finite(numbers):
        return
    numbers = numbers.detach()
    for what, wrong in (("NaN (not a number)", numbers.isnan()), ("+inf", numbers.isposinf())):
        if bool(wrong.any()):
            raise BindingError(
                f"{name}: {what} in {int(wrong.sum())} of the {numbers.numel()} numbers of {thing}; finite ones are "
                f"wanted; mend what {name} is bound to, or let it pass: Interpretation(kb, check_finite=False)"
            )
    if distribution and bool(numbers.isneginf().all(-1).any()):
        raise BindingError(
            f"{name}: {thing} is -inf for all values of some object, so that none has a probability; at least one "
            f"finite logit is wanted; mend what {name} is bound to"
        )


def check_probabilities(name: str, thing: str, numbers: Tensor, returns: Returns, *, distribution: bool) -> None:
    """Refuse numbers that are no probabilities or logarithms of such, or do not add up in a ``distribution``."""
    if returns not in ("prob", "log_prob") or not numbers.numel() or not has_values(numbers):
        return
    numbers = numbers.detach()
    slack = math.sqrt(torch.finfo(numbers.dtype).eps)
    low, high = (end.item() for end in numbers.aminmax())
    if low != low:
        raise BindingError(f"{name}: {thing} holds NaN (not a number); mend what {name} is bound to")
    if returns == "log_prob":
        if high > slack:
            raise BindingError(
                f"{name}: logarithms of probabilities are at most 0, but {thing} reaches up to {high:.4g}; if these "
                "are logits, say logits(...), or take log_softmax"
            )
    elif low < 0 or high > 1 + slack:
        raise BindingError(
            f"{name}: truth values lie in [0, 1], but {thing} reaches from {low:.4g} to {high:.4g}; if these are "
            "logits, say logits(...)"
        )
    if distribution:
        total = numbers.exp().sum(-1) if returns == "log_prob" else numbers.sum(-1)
        wrong = (total - 1).abs() > 10 * slack
        if bool(wrong.any()):
            raise BindingError(
                f"{name}: the probabilities of all values must add up to 1, but {thing} has some that add up to "
                f"{total[wrong][0].item():.4g}; if these are logits, say logits(...), else divide by their sum"
            )
