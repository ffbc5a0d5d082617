"""Parameters of operators: plain floats, or learnt within bounds, as in ``Yager(Learnable(2.0, low=1.0))``."""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import torch
from torch import Tensor, nn

from doxa._numerics import lift, lower
from doxa.errors import ConfigError


class Learnable(nn.Module):
    r"""A number that trains but stays strictly between ``low`` and ``high``.

    The free parameter ``raw`` is mapped by ``low + softplus(raw)``, ``high - softplus(raw)``,
    ``low + (high - low) σ(raw)``, or not at all if there are no bounds. It starts at ``value``.

    Args:
        value: where to start, strictly inside the bounds.
        low: lower bound, or None.
        high: upper bound, or None.

    >>> p = Learnable(2.0, low=1.0)
    >>> p(), list(p.state_dict())
    (tensor(2., grad_fn=<AddBackward0>), ['raw'])
    >>> Learnable(1.0, low=1.0)
    Traceback (most recent call last):
    doxa.errors.ConfigError: a learnable parameter starts at 1.0, expected a number strictly above 1.0; ...
    """

    def __init__(self, value: float, low: float | None = None, high: float | None = None) -> None:
        super().__init__()
        self.low = -math.inf if low is None else float(low)
        self.high = math.inf if high is None else float(high)
        if not self.low < value < self.high:
            wanted = " and ".join(
                [f"above {low}"] * (low is not None) + [f"below {high}"] * (high is not None) or ["finite"]
            )
            came = f"a learnable parameter starts at {value}, expected a number strictly {wanted}"
            raise ConfigError(f"{came}; move the start inside, or widen the bounds")
        if low is not None and high is not None:
            raw = math.log((value - low) / (high - value))
        elif low is not None:
            raw = _softplus_inverse(value - low)
        elif high is not None:
            raw = _softplus_inverse(high - value)
        else:
            raw = value
        self.raw = nn.Parameter(torch.tensor(float(raw)))

    def forward(self) -> Tensor:
        """The current value, a tensor without axes."""
        raw = self.raw
        # Rounding may reach a bound; keep clear of it, with a derivative that leads away from it.
        if math.isfinite(self.low) and math.isfinite(self.high):
            return self.low + (self.high - self.low) * lower(lift(torch.sigmoid(raw), 1e-6), 1 - 1e-6)
        if math.isfinite(self.low):
            return self.low + lift(nn.functional.softplus(raw), 1e-6)
        if math.isfinite(self.high):
            return self.high - lift(nn.functional.softplus(raw), 1e-6)
        return raw

    def extra_repr(self) -> str:
        return f"{self().item():.4g} in ({self.low:g}, {self.high:g})"


def _softplus_inverse(y: float) -> float:
    return y + math.log(-math.expm1(-y))


Parameter = float | Learnable
"""What an operator takes for p, λ, s or b₀."""


def current(p: Parameter) -> float | Tensor:
    """The value now, a tensor if learnable; floats within 1e-20 of 0 or beyond 1e20 become these, for float32."""
    if isinstance(p, Learnable):
        return cast(Tensor, p())
    return math.copysign(min(max(abs(p), 1e-20), 1e20), p) if p else p


def number(p: Parameter) -> float:
    """The value of a parameter now, as a float."""
    return float(p().detach()) if isinstance(p, Learnable) else p


def bounds(p: Parameter) -> tuple[float, float]:
    """The smallest and the largest value a parameter can have."""
    return (p.low, p.high) if isinstance(p, Learnable) else (p, p)


def function(name: str, x: float | Tensor) -> float | Tensor:
    """``log``, ``exp``, ``log1p`` or ``expm1`` of a float (by :mod:`math`) or a tensor (by torch)."""
    return cast("float | Tensor", getattr(torch if isinstance(x, Tensor) else math, name)(x))


def require(
    what: str,
    p: Parameter,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    closed: bool = False,
    one_side: float | None = None,
    hole: str = "",
) -> None:
    """Refuse a parameter that is, or may become, no number between ``low`` (``closed``: or at it) and ``high``.

    With ``one_side`` it may not learn its way past that number, and with ``hole``, what has that place, not
    be it either.
    """
    smallest, largest = bounds(p)
    learns = isinstance(p, Learnable)
    inside = (smallest >= low if closed or learns else smallest > low) and (
        largest <= high if learns else largest < high
    )
    if not inside:
        wanted = f"{'>=' if closed else '>'} {low:g}" + (f" and < {high:g}" if math.isfinite(high) else " and finite")
        came = f"may learn values in ({smallest:g}, {largest:g})" if learns else f"is {p}"
        mend = f"give Learnable a bound, low={low:g}" if learns else "choose a value in that range"
        raise ConfigError(f"{what} {came}, expected a number {wanted}; {mend}")
    if one_side is not None and smallest < one_side < largest:
        came = f"{what} may learn values in ({smallest:g}, {largest:g}), on both sides of {one_side:g}"
        raise ConfigError(f"{came}; give Learnable low={one_side:g} or high={one_side:g}")
    if hole and p == one_side:
        raise ConfigError(f"{what} is {p}, expected a number other than {one_side:g}, which is {hole}'s")


def learnables(operator: object) -> dict[str, Learnable]:
    """Every learnable parameter inside an operator or a :class:`~doxa.fuzzy.Logic`, once, by where it stands first."""
    found: dict[str, Learnable] = {}
    if dataclasses.is_dataclass(operator):
        for field in dataclasses.fields(operator):
            value = getattr(operator, field.name)
            inner = {"": value} if isinstance(value, Learnable) else learnables(value)
            for name, parameter in inner.items():
                if all(parameter is not known for known in found.values()):
                    found[f"{field.name}_{name}".rstrip("_")] = parameter
    return found
