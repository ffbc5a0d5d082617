"""Knowledge as a layer: what networks believe, conditioned on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic import Interpretation, KnowledgeBase
from doxa.pose import pose
from doxa.problem import Budget
from doxa.semantics._combine import joint_axiom
from doxa.semantics._exact import planned
from doxa.semantics._explain import renamed
from doxa.semantics._probabilistic import impossible
from doxa.semantics._turns import Turn, one_at_a_time

__all__ = ["ConditionedBeliefs", "KnowledgeLayer"]


@dataclass(frozen=True, eq=False)
class ConditionedBeliefs:
    """What is believed given that the knowledge holds, for every row.

    Attributes:
        probs: by variable, such as ``digit(p.left)``: of a predicate its probability ``(rows,)``, of a function the
            probabilities of its values ``(rows, values)``. Derivatives flow through them.
        values: by variable, its value in the most probable world in which the knowledge holds, int64 ``(rows,)``: all
            of them together satisfy the knowledge for certain.
        log_prob: how probable the knowledge was before, ``(rows,)``.

    >>> ConditionedBeliefs({"rain": torch.tensor([0.3])}, {"rain": torch.tensor([0])}, torch.zeros(1)).probs["rain"]
    tensor([0.3000])
    """

    probs: dict[str, Tensor]
    values: dict[str, Tensor]
    log_prob: Tensor


class KnowledgeLayer(nn.Module):
    r"""A network's beliefs, conditioned on knowledge: :math:`p(w | φ) = p(w) [φ(w)] / p(φ)`, row by row.

    Made by :meth:`doxa.Model.layer`, for the same knowledge and bindings. All axioms must speak of the same rows or
    objects. The answer in ``values`` satisfies all of them, whatever the networks say.

    Args:
        kb: the knowledge.
        interpretation: the meaning of its symbols.
        target: how probable the knowledge is to be made: a target t < 1 mixes p(w | φ) and p(w | ¬φ) by t and 1 - t
            where p(φ) < t.
        budget: limits of exact reasoning.

    >>> import doxa
    >>> model = doxa.Model("sort Day; pred rain(Day); pred wet(Day); forall d: Day. rain(d) -> wet(d)",
    ...                    rain=doxa.probs(torch.tensor([0.9])), wet=doxa.probs(torch.tensor([0.1])))
    >>> found = model.layer()(Day=1)
    >>> {name: bool(value) for name, value in found.values.items()}
    {'rain(d)': False, 'wet(d)': False}
    """

    def __init__(
        self, kb: KnowledgeBase, interpretation: Interpretation, *, target: float = 1.0, budget: Budget | None = None
    ) -> None:
        super().__init__()
        if not 0 < target <= 1:
            raise ConfigError(f"target is {target}, expected a probability above 0")
        if not kb.axioms:
            raise KnowledgeError("the knowledge base has no axioms to condition on")
        self.interpretation, self.target, self.budget = interpretation, target, budget or Budget()
        self.axiom, self.turn = joint_axiom(kb.axioms), Turn()

    @one_at_a_time
    def forward(self, **data: Any) -> ConditionedBeliefs:
        """The beliefs of every row of the data, given that all axioms hold of it."""
        (posed,) = pose([self.axiom], self.interpretation, data, limit=self.budget.join)
        certain = posed.holds & posed.passes
        if len(posed.batches) != 1 or bool((~certain).sum() != len(posed.batches[0].instances)):
            dead = ~posed.holds
            for batch in posed.batches:
                dead[batch.instances] = False
            if bool(dead.any()):
                raise impossible(posed, dead.nonzero().squeeze(1))
            raise KnowledgeError(
                "the rows of the data do not look alike, so there is no one layer for them; give rows of one shape at "
                "a time"
            )
        (batch,) = posed.batches
        reasoner = planned(self.interpretation, batch.problem, self.budget).reasoner
        log_prob = reasoner.log_prob(batch.belief, batch.observed, given=batch.given)
        dead = log_prob == -torch.inf
        if bool(dead.any()):
            raise impossible(posed, batch.instances[dead.cpu()])
        probs = reasoner.posterior(batch.belief, batch.observed, given=batch.given).probs
        if self.target < 1:
            share = self.target
            p = log_prob.exp().unsqueeze(-1).unsqueeze(-1)
            denied = (batch.belief.probs - p * probs) / (1 - p).clamp(min=torch.finfo(probs.dtype).eps)
            probs = torch.where(p < share, share * probs + (1 - share) * denied.clamp(0, 1), batch.belief.probs)
        best = reasoner.explain(batch.belief, batch.observed, 1, given=batch.given).worlds[..., 0, :]
        order = batch.instances.argsort().to(probs.device)
        found: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}
        for i, (name, of) in enumerate(zip(batch.problem.names[: len(batch.values)], batch.values, strict=True)):
            name = renamed(name, self.axiom, posed.variables).replace("'", "")
            own = probs[order, i, : len(of)]
            found[name] = own[:, 1] if of[0] is False else own
            values[name] = best[order, i]
        return ConditionedBeliefs(found, values, log_prob[order])
