"""Classical semantics: an axiom holds or it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation, TensorPlan
from doxa.semantics._instances import outer
from doxa.semantics._semantics import Compiled

__all__ = ["Classical"]


@dataclass(frozen=True)
class Classical:
    """True or false: an atom is true when it is more probable than not, a neural function has its most probable value.

    Nothing can be learned from it; it is what a satisfaction rate means.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Classical())
    {'soaked': tensor(0.)}
    """

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation)


class _Compiled:
    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> None:
        self.plan = TensorPlan([(a.name, a.formula) for a in axioms], interpretation)
        self.rows = [TensorPlan(a, interpretation, keep=outer(a, interpretation)) for a in axioms]

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        raise ConfigError(
            "classical truth has no derivative to learn from; choose Exact(), Fuzzy(...), Refined(), Sampled(...) or "
            "Amortized(...) for the loss, and Classical() to judge what was learned"
        )

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return self.plan(generator=generator, **data).to(torch.get_default_dtype())

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        found = [plan(generator=generator, **data).to(torch.get_default_dtype()) for plan in self.rows]
        return [truth if truth.ndim else truth.reshape(1) for truth in found]

    def explain(self, data: Mapping[str, Any]) -> str:
        return self.plan.explain(**data)
