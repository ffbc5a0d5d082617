"""The weights of axioms, some of which may learn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.logic import Axiom

__all__ = ["AxiomWeights"]


class AxiomWeights(nn.Module):
    """One weight per axiom. Those that learn (``weight ?``) are a softmax over their axioms times the sum they start
    with: a loss w·l alone would send every weight to 0, or to infinity where l is negative.
    """

    fixed: Tensor

    def __init__(self, axioms: Sequence[Axiom]) -> None:
        super().__init__()
        self.learnt = [i for i, a in enumerate(axioms) if a.learnable]
        starts = [axioms[i].weight for i in self.learnt]
        for i in self.learnt:
            if not axioms[i].weight > 0:
                raise ConfigError(
                    f"axiom {axioms[i].name!r} has a weight that learns from {axioms[i].weight}, expected a start "
                    "above 0; negate the formula instead of its weight"
                )
        self.share = sum(starts)
        self.register_buffer("fixed", torch.tensor([0.0 if a.learnable else a.weight for a in axioms]), False)
        self.scores = nn.Parameter(torch.tensor([math.log(w) for w in starts])) if starts else None

    def forward(self) -> Tensor:
        """The weight of each axiom now."""
        if self.scores is None:
            return self.fixed
        at = torch.tensor(self.learnt, device=self.fixed.device)
        return self.fixed.index_copy(0, at, (self.share * self.scores.softmax(0)).to(self.fixed.dtype))
