"""Exact semantics: the probability that an axiom holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.exact import Budget
from doxa.logic import Axiom, Interpretation
from doxa.pose import KnowledgeReasoner
from doxa.semantics._instances import instances, outer
from doxa.semantics._semantics import Compiled

__all__ = ["Exact"]

Impossible = Literal["raise", "inf", "finite"]


@dataclass(frozen=True)
class Exact:
    """Weighted model counting: the loss of an axiom is -log p(φ), over the number of its instances.

    Atoms and neural functions are independent given the data; whatever occurs twice is counted once
    (:class:`doxa.pose.KnowledgeReasoner`).

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

    impossible: Impossible = "raise"
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if self.impossible not in get_args(Impossible):
            raise ConfigError(f"impossible is {self.impossible!r}, expected one of {', '.join(get_args(Impossible))}")

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        impossible: Impossible = "finite" if self.impossible == "finite" else "inf"  # an error names axiom and rows
        reasoners = [
            KnowledgeReasoner(axiom, interpretation, impossible=impossible, budget=self.budget) for axiom in axioms
        ]
        rows = [
            KnowledgeReasoner(axiom, interpretation, keep=outer(axiom, interpretation), budget=self.budget)
            for axiom in axioms
        ]
        return _Compiled(axioms, reasoners, rows, self.impossible)


class _Compiled:
    def __init__(
        self,
        axioms: Sequence[Axiom],
        reasoners: list[KnowledgeReasoner],
        rows: list[KnowledgeReasoner],
        impossible: Impossible,
    ) -> None:
        self.axioms, self.reasoners, self.rows, self.impossible = axioms, reasoners, rows, impossible

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        found = []
        for axiom, reasoner, rows in zip(self.axioms, self.reasoners, self.rows, strict=True):
            loss = reasoner.loss(**data)
            if self.impossible == "raise" and bool(loss.isinf()):
                raise _impossible(axiom, rows, data)
            found.append(loss / instances(axiom, reasoner.interpretation, data))
        return torch.stack(found)

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return torch.stack([reasoner.log_prob(**data).exp() for reasoner in self.reasoners])

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        found = [reasoner.log_prob(**data).exp() for reasoner in self.rows]
        return [truth if truth.ndim else truth.reshape(1) for truth in found]

    def explain(self, data: Mapping[str, Any]) -> str:
        return "\n".join(reasoner.explain(**data) for reasoner in self.reasoners)


def _impossible(axiom: Axiom, rows: KnowledgeReasoner, data: Mapping[str, Any]) -> ProblemError:
    """Names the rows that cannot hold, where it is a matter of single rows."""
    dead = rows.log_prob(**data).isneginf().nonzero()
    where = " in rows " + ", ".join([str(tuple(row.tolist())) for row in dead[:10]]) if rows.keep and len(dead) else ""
    return ProblemError(
        f"axiom {axiom.name!r} cannot hold{where}: every world in which it does has probability 0; correct the data, "
        "or for a loss that passes over them say Exact(impossible='finite')"
    )
