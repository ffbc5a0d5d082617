"""Exact semantics: the probability that an axiom holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.exact import Budget, KnowledgeReasoner
from doxa.logic import Axiom, Interpretation
from doxa.semantics._instances import instances, outer
from doxa.semantics._semantics import Compiled

__all__ = ["Exact"]


@dataclass(frozen=True)
class Exact:
    """Weighted model counting: the loss of an axiom is -log p(φ), over the number of its instances.

    Atoms and neural functions are independent given the data; whatever occurs twice is counted once
    (:class:`doxa.exact.KnowledgeReasoner`).

    Args:
        impossible: what happens where an axiom cannot hold: "raise" an error that names the rows, an infinite loss, or
            a "finite" one; its derivative is 0.
        budget: what compiling a circuit may cost.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Exact())                             # 1 - .9 · .7
    {'soaked': tensor(0.3700)}
    """

    impossible: Literal["raise", "inf", "finite"] = "raise"
    budget: Budget | None = None

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        reasoners = [
            KnowledgeReasoner(axiom, interpretation, impossible=self.impossible, budget=self.budget) for axiom in axioms
        ]
        rows = [
            KnowledgeReasoner(axiom, interpretation, keep=outer(axiom, interpretation), budget=self.budget)
            for axiom in axioms
        ]
        return _Compiled(axioms, reasoners, rows)


class _Compiled:
    def __init__(
        self, axioms: Sequence[Axiom], reasoners: list[KnowledgeReasoner], rows: list[KnowledgeReasoner]
    ) -> None:
        self.axioms, self.reasoners, self.rows = axioms, reasoners, rows

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        found = []
        for axiom, reasoner in zip(self.axioms, self.reasoners, strict=True):
            found.append(reasoner.loss(**data) / instances(axiom, reasoner.interpretation, data))
        return torch.stack(found)

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return torch.stack([reasoner.log_prob(**data).exp() for reasoner in self.reasoners])

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        found = [reasoner.log_prob(**data).exp() for reasoner in self.rows]
        return [truth if truth.ndim else truth.reshape(1) for truth in found]

    def explain(self, data: Mapping[str, Any]) -> str:
        return "\n".join(reasoner.explain(**data) for reasoner in self.reasoners)
