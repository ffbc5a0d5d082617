"""Fuzzy semantics: an axiom has a truth value between 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.fuzzy import FuzzyPlan, Logic
from doxa.fuzzy import logic as logic_by_name
from doxa.logic import Axiom, Interpretation
from doxa.semantics._instances import outer
from doxa.semantics._semantics import Compiled

__all__ = ["Fuzzy"]


@dataclass(frozen=True)
class Fuzzy:
    r"""Differentiable fuzzy logic: the loss of an axiom is :math:`-e(φ)`, minus its truth value (Chapter 3).

    A statement x := f(t) (φ) is read as ∃_d T(p(d), φ(d)). Nothing is assumed to be independent, and nothing is a
    probability.

    Args:
        logic: the operators: a :class:`doxa.fuzzy.Logic` or its name. Where its ∀ gives logarithms, so does the loss.
        chunk: intermediate tensors have at most this many elements.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.loss(semantics=Fuzzy("product"))
    tensor(-0.3700)
    """

    logic: Logic | str = "product"
    chunk: int = 2**22

    def __post_init__(self) -> None:
        if isinstance(self.logic, str):
            logic_by_name(self.logic)  # complains about a name that there is not

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        chosen = logic_by_name(self.logic) if isinstance(self.logic, str) else self.logic
        formulas: Any = [(a.name, a.formula) for a in axioms]
        plan = FuzzyPlan(formulas, interpretation, chosen, chunk=self.chunk)
        rows = [FuzzyPlan(a, interpretation, chosen, chunk=self.chunk, keep=outer(a, interpretation)) for a in axioms]
        return _Compiled(plan, rows)


class _Compiled:
    def __init__(self, plan: FuzzyPlan, rows: list[FuzzyPlan]) -> None:
        self.plan, self.rows = plan, rows

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return -self.plan(generator=generator, **data)

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        values = self.plan(generator=generator, **data)
        return values.exp() if self.plan.is_log else values

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        found = []
        for plan in self.rows:
            value = plan(generator=generator, **data)
            truth = value.exp() if plan.is_log else value
            found.append(truth if truth.ndim else truth.reshape(1))
        return found

    def explain(self, data: Mapping[str, Any]) -> str:
        return f"truth values, not probabilities; no independence is assumed\n{self.plan.explain(**data)}"
