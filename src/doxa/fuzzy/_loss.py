r"""The loss of differentiable fuzzy logic, :math:`L = -\sum_φ w_φ\, e(φ)` (Chapter 3, Eq. lossrl; errata 2.2)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.fuzzy._algebra import FuzzyAlgebra
from doxa.fuzzy._logic import Logic, logic
from doxa.fuzzy._plan import STACK, FuzzyPlan, Valuation, as_logic
from doxa.fuzzy.quantifiers._aggregators import LogProduct
from doxa.logic import Axiom, Interpretation, KnowledgeBase, Plan

__all__ = ["FuzzyLoss"]

_PRODUCT, _LOG_PRODUCT = logic("product"), LogProduct()


class FuzzyLoss(nn.Module):
    r"""The loss :math:`-\sum_φ w_φ\, e(φ)` of a knowledge base, an ``nn.Module`` like any other.

    Axioms have the weights they were given. Weights that learn (``weight ?``) are a softmax over their axioms, times
    the sum they start with: :math:`-w\,e` alone would send every weight to infinity, and so only their shares learn. A
    single weight that learns therefore stays where it is.

    Facts about predicates that are bound to networks or tensors (``fact smokes(bob)``) are the supervised part of the
    loss. As in Chapter 3 ("Experimental Methodology") they are joined by the log-product, which makes them a cross
    entropy: :math:`-w \sum_i \log p(y_i | x_i)`, with w = ``facts``.

    Parameters of the networks (``interpretation``), of the operators (``operators``) and of the weights (``scores``)
    are registered, trained and saved together.

    Args:
        kb: the knowledge.
        interpretation: the meaning of its symbols.
        logic: the operators, or the name of a logic.
        facts: the weight of the labelled facts; their value is called ``facts``.
        chunk, stack, rewrite, compile, checkpoint: see :class:`FuzzyPlan`.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("pred rain; pred wet; [soaked] rain -> wet; [dry, weight 0.5] !wet")
    >>> seen = Interpretation(kb, rain=probs(torch.tensor(0.9)), wet=probs(torch.tensor(0.3)))
    >>> loss = FuzzyLoss(kb, seen, "product")
    >>> loss(), loss.evaluate().values
    (tensor(-0.7200), tensor([0.3700, 0.7000]))
    >>> kb = parse("sort P; const bob: P; const eve: P; pred smokes(P); fact smokes(bob); fact !smokes(eve)")
    >>> seen = Interpretation(kb, smokes=probs(torch.tensor([0.9, 0.4])))
    >>> FuzzyLoss(kb, seen, "product")()                 # -log 0.9 - log 0.6
    tensor(0.6162)
    """

    fixed: Tensor

    def __init__(
        self,
        kb: KnowledgeBase,
        interpretation: Interpretation,
        logic: Logic | str,
        *,
        facts: float = 1.0,
        chunk: int = 2**22,
        stack: int = STACK,
        rewrite: bool = True,
        compile: bool = False,
        checkpoint: bool = True,
    ) -> None:
        super().__init__()
        self.kb = kb
        self.interpretation = interpretation
        self.logic = as_logic(logic)
        self.facts = facts
        self._options: dict[str, Any] = {
            "chunk": chunk,
            "stack": stack,
            "rewrite": rewrite,
            "compile": compile,
            "checkpoint": checkpoint,
        }
        self._make_plans()
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
        values, weights, names = self.plan(generator=generator, **data), self.weights, self.plan.names
        if self._labelled is not None:
            truths = self._labelled(generator=generator, **data)
            values = torch.cat([values, _LOG_PRODUCT(truths).reshape(1).to(values.dtype)])
            weights = torch.cat([weights, weights.new_tensor([self.facts])])
            names = (*names, "facts")
        weights = weights.to(values.dtype)
        return Valuation(weights @ values, values, weights, names)

    def forward(self, *, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        """The loss on data."""
        return self.evaluate(generator=generator, **data).loss

    def __getstate__(self) -> dict[str, Any]:
        # A plan is made of closures over this very interpretation, and can be made again.
        return {name: value for name, value in self.__dict__.items() if name not in ("plan", "_labelled")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._make_plans()

    def _make_plans(self) -> None:
        self.plan = FuzzyPlan(self.kb, self.interpretation, self.logic, **self._options)
        # What is certain, such as a relation that has nothing but facts, has nothing to learn from them.
        learnt = [f for f in self.kb.facts if _is_soft(self.interpretation, f.atom.name)]
        literals = [(str(fact), fact.atom if fact.label else ~fact.atom) for fact in learnt]
        self._labelled = (
            Plan(literals, self.interpretation, algebra=FuzzyAlgebra(_PRODUCT), stack=2)
            if literals and self.facts
            else None
        )

    def extra_repr(self) -> str:
        return f"{len(self.kb)} axioms, logic {self.logic.name or 'of your own'}"


def _is_soft(interpretation: Interpretation, predicate: str) -> bool:
    meaning = interpretation.meaning(predicate)
    return meaning is not None and meaning.returns != "bool"


def _start(axiom: Axiom) -> float:
    if not axiom.weight > 0:
        raise ConfigError(
            f"axiom {axiom.name!r} has a weight that learns from {axiom.weight}, expected a start above 0; "
            "negate the formula instead of its weight"
        )
    return axiom.weight
