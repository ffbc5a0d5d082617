"""Classical truth: the algebra of Boolean tensors.

A network counts as saying what it thinks most likely: a predicate is true when its probability exceeds one half, a
neural function takes its most probable value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import log
from typing import Literal

import torch
from torch import Tensor

from doxa.logic.tensor._algebra import Accumulator, Kind, Monoid

__all__ = ["CLASSICAL", "Classical"]

_ALL, _ANY = Monoid("all"), Monoid("any")


@dataclass(frozen=True)
class Classical:
    """True and false.

    >>> CLASSICAL.and_([torch.tensor([True, True]), torch.tensor([True, False])])
    tensor([ True, False])
    >>> CLASSICAL.atom(torch.tensor([-1.0, 2.0]), "logit", torch.float32)
    tensor([False,  True])
    """

    name: str = "classical"
    statements: Literal["mode", "axis"] = "mode"
    associative: bool = True

    def atom(self, raw: Tensor, kind: Kind, dtype: torch.dtype) -> Tensor:
        if kind == "bool":
            return raw
        return raw > {"prob": 0.5, "logit": 0.0, "log_prob": log(0.5)}[kind]

    def not_(self, x: Tensor) -> Tensor:
        return ~x

    # Where one side is spread along an axis, bytes are combined more than ten times faster than bools.

    def and_(self, xs: Sequence[Tensor]) -> Tensor:
        return reduce(torch.bitwise_and, [x.view(torch.uint8) for x in xs]).view(torch.bool)

    def or_(self, xs: Sequence[Tensor]) -> Tensor:
        return reduce(torch.bitwise_or, [x.view(torch.uint8) for x in xs]).view(torch.bool)

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        return a <= b

    def iff(self, a: Tensor, b: Tensor) -> Tensor:
        return a == b

    def xor(self, a: Tensor, b: Tensor) -> Tensor:
        return a != b

    def connective(self, kind: Literal["and", "or"]) -> Accumulator:
        return _ALL if kind == "and" else _ANY

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        if kind in ("forall", "exists"):
            return _ALL if kind == "forall" else _ANY
        assert count is not None
        return Monoid("sum", finish=_COUNTING[kind](count))

    def draw(self) -> Accumulator:
        return _ANY


_COUNTING = {
    "exactly": lambda k: lambda found, n: found == k,
    "at most": lambda k: lambda found, n: found <= k,
    "at least": lambda k: lambda found, n: found >= k,
}

CLASSICAL = Classical()
