r"""Refinement of n-ary operators: t-norms by their own formulas, t-conorms by duality.

.. math::  ρ_S(t, C, \hat t) = 1 - ρ_T(1 - t, 1 - C, 1 - \hat t)

(Chapter 4, Prop. dual-t-conorm, with the constants complemented too: errata 3.0.) A family gives :meth:`Junction.up`
and :meth:`Junction.down` for its t-norm, and its own shorter forms for the t-conorm where there are any.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.fuzzy import TConorm, TNorm
from doxa.refine._base import Direction, Pick, Refinement

__all__ = ["Dual", "Junction", "joined"]


Change = Callable[[Tensor, Tensor | None, Tensor, Any, Tensor, int, Pick], Tensor]


def joined(t: Tensor, c: Tensor | None, dim: int) -> Tensor:
    """Propositions and constants in one tensor."""
    return t if c is None else torch.cat([t, c], dim)


class _Both(Refinement):
    """Up where the target is above the value, down where it is below, nothing where it is met."""

    @abstractmethod
    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        """The change towards a target ≥ value; whatever it likes where they are equal."""

    @abstractmethod
    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        """The change towards a target ≤ value; whatever it likes where they are equal."""

    still_up: bool = False
    """Whether ``up`` is 0 by itself where the target is not above the value."""
    still_down: bool = False
    """Whether ``down`` is 0 by itself where the target is not below the value."""

    def delta(
        self,
        t: Tensor,
        c: Tensor | None,
        value: Tensor,
        aux: Any,
        target: Tensor,
        dim: int,
        direction: Direction,
        pick: Pick,
    ) -> Tensor:
        up = down = None
        if direction != "down":
            up = self.up(t, c, value, aux, target, dim, pick)
            if not self.still_up:
                up = torch.where((target > value).unsqueeze(dim), up, 0.0)
        if direction != "up":
            down = self.down(t, c, value, aux, target, dim, pick)
            if not self.still_down:
                down = torch.where((target < value).unsqueeze(dim), down, 0.0)
        if up is None or down is None:
            return up if down is None else down  # type: ignore[return-value]
        return up + down


class Junction(_Both):
    """Refinement of a t-norm.

    >>> from doxa.fuzzy import Godel
    >>> from doxa.refine import refinement
    >>> isinstance(refinement(Godel()), Junction)
    True
    """

    tnorm: TNorm

    @property
    def operator(self) -> TNorm:
        """The operator that is refined."""
        return self.tnorm

    @property
    def dual(self) -> Refinement:
        """Refinement of the dual t-conorm."""
        return Dual(self)

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return self.tnorm.reduce(joined(t, c, dim), dim), None

    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        target = target.clamp(0, 1)
        return target if c is None else torch.minimum(target, self.forward(c, None, dim)[0])

    # The t-conorm, on t itself; families with shorter forms override these.

    def dual_forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        """The truth of the t-conorm."""
        return self.tnorm.dual.reduce(joined(t, c, dim), dim), None

    def dual_clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        """As :meth:`clamp`, for the t-conorm."""
        target = target.clamp(0, 1)
        return target if c is None else torch.maximum(target, self.dual_forward(c, None, dim)[0])

    def dual_rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor | None:
        """As :meth:`rise`, for the t-conorm."""
        return None

    def dual_up(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        """The change that raises the t-conorm."""
        return self._turned(self.down, t, c, value, target, dim, pick)

    def dual_down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        """The change that lowers the t-conorm."""
        return self._turned(self.up, t, c, value, target, dim, pick)

    def _turned(
        self, way: Change, t: Tensor, c: Tensor | None, value: Tensor, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        turned = self._complement(t)
        change = way(turned, None if c is None else self._complement(c), 1 - value, None, 1 - target, dim, pick)
        # 1 - (1 - t) may be off by a rounding: what became 1 has to become 0 here, and what stayed has to stay.
        return torch.where(change == 0, 0.0, 1 - (turned + change) - t)

    def _complement(self, x: Tensor) -> Tensor:
        """1 - x, as far as this t-norm can tell."""
        return 1 - x


@dataclass(frozen=True)
class Dual(_Both):
    """Refinement of the t-conorm that is dual to a refined t-norm.

    >>> from doxa.fuzzy import Godel
    >>> from doxa.refine import refinement
    >>> refinement(Godel().dual)(torch.tensor([0.3, 0.6, 0.4]), 0.8)
    tensor([0.3000, 0.8000, 0.4000])
    """

    junction: Junction

    @property
    def norms(self) -> tuple[float, float] | None:  # type: ignore[override]
        return self.junction.norms

    @property
    def numerical(self) -> bool:  # type: ignore[override]
        return self.junction.numerical

    @property
    def turns(self) -> bool:  # type: ignore[override]
        return self.junction.turns

    @property
    def still_up(self) -> bool:  # type: ignore[override]
        return self.junction.still_down

    @property
    def still_down(self) -> bool:  # type: ignore[override]
        return self.junction.still_up

    @property
    def operator(self) -> TConorm:
        """The operator that is refined."""
        return self.junction.tnorm.dual

    @property
    def dual(self) -> Junction:
        """Refinement of the t-norm."""
        return self.junction

    def forward(self, t: Tensor, c: Tensor | None, dim: int) -> tuple[Tensor, Any]:
        return self.junction.dual_forward(t, c, dim)

    def clamp(self, target: Tensor, c: Tensor | None, dim: int) -> Tensor:
        return self.junction.dual_clamp(target, c, dim)

    def rise(self, t: Tensor, aux: Any, change: Tensor, dim: int, pick: Pick) -> Tensor | None:
        return self.junction.dual_rise(t, aux, change, dim, pick)

    def up(self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick) -> Tensor:
        return self.junction.dual_up(t, c, value, aux, target, dim, pick)

    def down(
        self, t: Tensor, c: Tensor | None, value: Tensor, aux: Any, target: Tensor, dim: int, pick: Pick
    ) -> Tensor:
        return self.junction.dual_down(t, c, value, aux, target, dim, pick)
