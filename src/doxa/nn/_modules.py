"""Losses and layers that take logits or data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from doxa import exact
from doxa.errors import ConfigError, ProblemError
from doxa.exact import Constraint
from doxa.logic import CNF, Expr, KnowledgeBase
from doxa.logic.unfold._propositional import Propositional
from doxa.problem import Belief, Budget
from doxa.semantics import AxiomLosses, Model, Semantics
from doxa.semantics._semantics import Combine, Reduction

Knowledge = KnowledgeBase | Propositional | Expr | CNF
Input = Tensor | Belief


def _constraint(
    knowledge: Knowledge | Constraint, domains: Mapping[str, Any] | None, budget: Budget | None
) -> Constraint:
    if not isinstance(knowledge, Constraint):
        return Constraint(knowledge, domains=domains, budget=budget)
    if domains is not None or budget is not None:
        raise ConfigError("domains and budget are for knowledge; this constraint is made already")
    return knowledge


def _belief(constraint: Constraint, given: Input) -> Belief:
    """Logits ``(*batch, atoms)`` as a belief; a belief stays what it is."""
    if isinstance(given, Belief):
        return given
    names = ", ".join(str(atoms[-1]) for atoms in constraint.variables[:8])
    if any(size != 2 for size in constraint.problem.world):
        raise ProblemError(f"a function has more than two values; give a Belief over {names}, not logits")
    if given.ndim == 0 or given.shape[-1] != len(constraint.variables):
        came = tuple(given.shape)
        raise ProblemError(
            f"logits have shape {came}, expected (*, {len(constraint.variables)}): one for each of {names}"
        )
    return Belief.from_bernoulli(logits=given)


class SemanticLoss(nn.Module):
    r"""How improbable it is that knowledge holds: :math:`-\log p(φ)`, exactly (Xu et al. 2018).

    The input is logits ``(*batch, atoms)``, one for each of :attr:`atoms`, which are taken to be independent; or a
    :class:`doxa.Belief`, where functions have more than two values.

    Args:
        knowledge: a formula, a knowledge base, clauses, or a :class:`doxa.exact.Constraint`.
        reduction: "mean", "sum" or "none", over the batch.
        domains: the objects of open sorts, as in ``doxa.logic.ground``.
        budget: what compiling may cost.

    >>> import torch
    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> loss = SemanticLoss(a ^ b)
    >>> loss.atoms
    ('a', 'b')
    >>> round(loss(torch.zeros(8, 2)).item(), 4)            # each of four worlds has probability 1/4, two are right
    0.6931
    """

    def __init__(
        self,
        knowledge: Knowledge | Constraint,
        *,
        reduction: Reduction = "mean",
        domains: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ConfigError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
        self.constraint, self.reduction = _constraint(knowledge, domains, budget), reduction

    @property
    def atoms(self) -> tuple[str, ...]:
        """What the last axis of the logits stands for."""
        return tuple(str(atoms[-1]) for atoms in self.constraint.variables)

    def forward(self, logits: Input) -> Tensor:
        """The loss of a batch."""
        each = self.constraint.semantic_loss(_belief(self.constraint, logits))
        return each if self.reduction == "none" else each.mean() if self.reduction == "mean" else each.sum()


class ConstrainedLayer(exact.ConstrainedLayer):
    """Probabilities that know: p(atom | knowledge), from logits; see :class:`doxa.exact.ConstrainedLayer`.

    Logits ``(*batch, atoms)`` become probabilities of the same shape, a :class:`doxa.Belief` a belief.

    Args:
        knowledge: a formula, a knowledge base, clauses, or a :class:`doxa.exact.Constraint`.
        target: how probable the knowledge is made.
        domains: the objects of open sorts, as in ``doxa.logic.ground``.
        budget: what compiling may cost.

    >>> import torch
    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> ConstrainedLayer(a >> b)(torch.zeros(2))            # of three worlds, b holds in two, a in one
    tensor([0.3333, 0.6667])
    """

    def __init__(
        self,
        knowledge: Knowledge | Constraint,
        *,
        target: float = 1.0,
        domains: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(_constraint(knowledge, domains, budget), target=target)

    def forward(self, logits: Any, *, given: Tensor | None = None) -> Any:
        """The probabilities of all atoms, given that the knowledge holds."""
        found = super().forward(_belief(self.constraint, logits) if isinstance(logits, Tensor) else logits, given=given)
        return found.probs[..., 1] if isinstance(logits, Tensor) else found


class KnowledgeLoss(nn.Module):
    """Knowledge about networks as a loss: :class:`doxa.Model` with one way to reason, called on data.

    Args:
        kb: the knowledge, its text, or the file it is in.
        semantics: how to reason: a word such as "exact", an object, or one for each axiom.
        reduction, combine: see :meth:`doxa.Model.losses`.
        symbols: what predicates, functions and constants mean.

    >>> import doxa, torch
    >>> loss = KnowledgeLoss("sort Day; pred rain(Day); pred wet(Day); [soaked] forall d: Day. rain(d) -> wet(d)",
    ...     rain=doxa.logits(torch.nn.Linear(4, 1)), wet=doxa.logits(torch.nn.Linear(4, 1)))
    >>> loss(Day=torch.randn(8, 4)).backward()
    >>> list(loss.losses(Day=torch.randn(8, 4)).by_name())
    ['soaked']
    """

    def __init__(
        self,
        kb: KnowledgeBase | str | Path,
        semantics: str | Semantics | Mapping[str, str | Semantics] = "exact",
        /,
        reduction: Reduction = "mean",
        combine: Combine = "sum",
        **symbols: Any,
    ) -> None:
        super().__init__()
        self.model, self.reduction, self.combine = Model(kb, semantics, **symbols), reduction, combine

    def losses(self, **data: Any) -> AxiomLosses:
        """The loss of each axiom, and of all together."""
        return self.model.losses(reduction=self.reduction, combine=self.combine, **data)

    def forward(self, **data: Any) -> Tensor:
        """All axioms and facts as one number to minimise."""
        return self.losses(**data).total
