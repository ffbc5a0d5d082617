r"""The loss of differentiable fuzzy logic, :math:`L = -\sum_φ w_φ\, e(φ)` (Chapter 3, Eq. lossrl; errata 2.2)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.fuzzy._logic import Logic
from doxa.fuzzy._plan import STACK, FuzzyPlan, Valuation, as_logic
from doxa.logic import Axiom, Interpretation, KnowledgeBase

__all__ = ["FuzzyLoss"]


class FuzzyLoss(nn.Module):
    r"""The loss :math:`-\sum_φ w_φ\, e(φ)` of a knowledge base, an ``nn.Module`` like any other.

    Axioms have the weights they were given. Weights that learn (``weight ?``) are a softmax over their axioms, times
    the sum they start with: :math:`-w\,e` alone would send every weight to infinity, and so only their shares learn. A
    single weight that learns therefore stays where it is.

    Parameters of the networks (``interpretation``), of the operators (``operators``) and of the weights (``scores``)
    are registered, trained and saved together.

    Args:
        kb: the knowledge.
        interpretation: the meaning of its symbols.
        logic: the operators, or the name of a logic.
        chunk, stack: see :class:`FuzzyPlan`.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("pred rain; pred wet; [soaked] rain -> wet; [dry, weight 0.5] !wet")
    >>> seen = Interpretation(kb, rain=probs(torch.tensor(0.9)), wet=probs(torch.tensor(0.3)))
    >>> loss = FuzzyLoss(kb, seen, "product")
    >>> loss(), loss.evaluate().values
    (tensor(-0.7200), tensor([0.3700, 0.7000]))
    """

    fixed: Tensor

    def __init__(
        self,
        kb: KnowledgeBase,
        interpretation: Interpretation,
        logic: Logic | str,
        *,
        chunk: int = 2**22,
        stack: int = STACK,
    ) -> None:
        super().__init__()
        self.kb = kb
        self.interpretation = interpretation
        self.logic = as_logic(logic)
        self._limits = chunk, stack
        self.plan = self._compiled()
        self.operators = self.logic.trainable()
        learnt = [i for i, a in enumerate(kb.axioms) if a.learnable]
        starts = [_start(kb.axioms[i]) for i in learnt]
        self._learnt = learnt
        self.share = sum(starts)
        """What the weights that learn add up to."""
        self.register_buffer("fixed", torch.tensor([0.0 if a.learnable else a.weight for a in kb.axioms]), False)
        self.scores = nn.Parameter(torch.tensor([math.log(w) for w in starts])) if learnt else None

    @property
    def weights(self) -> Tensor:
        """The weight of each axiom now."""
        if self.scores is None:
            return self.fixed
        at = torch.tensor(self._learnt, device=self.fixed.device)
        return self.fixed.index_copy(0, at, (self.share * self.scores.softmax(0)).to(self.fixed.dtype))

    def evaluate(self, *, generator: torch.Generator | None = None, **data: Any) -> Valuation:
        """The value of each axiom, and their weighted sum: minus the loss."""
        values = self.plan(generator=generator, **data)
        weights = self.weights.to(values.dtype)
        return Valuation(weights @ values, values, weights, self.plan.names)

    def forward(self, *, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        """The loss on data."""
        return self.evaluate(generator=generator, **data).loss

    def __getstate__(self) -> dict[str, Any]:
        # A plan is made of closures over this very interpretation, and can be made again.
        return {name: value for name, value in self.__dict__.items() if name != "plan"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.plan = self._compiled()

    def _compiled(self) -> FuzzyPlan:
        chunk, stack = self._limits
        return FuzzyPlan(self.kb, self.interpretation, self.logic, chunk=chunk, stack=stack)

    def extra_repr(self) -> str:
        return f"{len(self.kb)} axioms, logic {self.logic.name or 'of your own'}"


def _start(axiom: Axiom) -> float:
    if not axiom.weight > 0:
        raise ConfigError(
            f"axiom {axiom.name!r} has a weight that learns from {axiom.weight}, expected a start above 0; "
            "negate the formula instead of its weight"
        )
    return axiom.weight
