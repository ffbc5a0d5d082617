"""Worlds that are equally right, and that no independent belief can hold possible together."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["Mixture", "mixtures"]

_PLACES = 8  # so many variables are tried on both sides
_PAIRS = 4096  # so many pairs of worlds are tried for an example

World = tuple[int, ...]
Mixture = tuple[World, World, World]
"""Two worlds that are right, and one between them that is not."""


def mixtures(right: Iterable[Tensor]) -> tuple[int, Mixture | None]:
    """How many sets of worlds are no box, and an example.

    An independent belief that holds two worlds possible holds everything between them possible: every world that has
    each of its values from one of the two. A set of worlds can be mixed freely only if it is a product of sets.

    Args:
        right: sets of different worlds, int64 ``(n, W)``, such as the worlds that give one output.
    """
    count, example = 0, None
    for members in right:
        spread = 1
        for column in members.unbind(-1):
            spread *= len(torch.unique(column))
        if spread == len(members) or not len(members):
            continue
        count += 1
        if example is None:
            example = _between(members)
    return count, example


def _between(members: Tensor) -> Mixture | None:
    """Two worlds that differ in as few variables as possible, and one between them that is not right."""
    right = set(map(tuple, members.tolist()))
    tried = 0
    for first in members:
        distance = (members != first).sum(-1)
        for second in members[distance.argsort(stable=True)]:
            tried += 1
            if tried > _PAIRS:
                return None
            places = (first != second).nonzero().flatten().tolist()[:_PLACES]
            for choice in range(1, 2 ** len(places) - 1):
                between = first.clone()
                for bit, place in enumerate(places):
                    if choice >> bit & 1:
                        between[place] = second[place]
                if tuple(between.tolist()) not in right:
                    return tuple(first.tolist()), tuple(second.tolist()), tuple(between.tolist())
    return None
