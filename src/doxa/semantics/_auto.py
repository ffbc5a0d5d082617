"""Let the problem decide: exact where that is affordable, sampled or amortised elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.exact import Budget
from doxa.logic import Axiom, Interpretation
from doxa.semantics._exact import Exact
from doxa.semantics._learners import Learners, Learns
from doxa.semantics._sampled import Sampled
from doxa.semantics._semantics import Compiled, Semantics

__all__ = ["Auto"]


@dataclass(frozen=True)
class Auto:
    """Exact reasoning where it is affordable; else, axiom by axiom, what is given instead. ``Model.plan`` says why.

    Args:
        otherwise: for axioms that are too hard to be exact about, such as ``Sampled()`` or ``Amortized()``.
        budget: what exact reasoning may cost; by default ten seconds of compiling.

    >>> import doxa, torch
    >>> model = doxa.Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Auto())
    {'wet': tensor(0.3000)}
    """

    otherwise: Semantics = field(default_factory=Sampled)
    budget: Budget = field(default_factory=lambda: Budget(seconds=10.0))

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        exact = Exact(impossible="finite", budget=self.budget)
        return _Compiled(
            [(exact.compile([a], interpretation), self.otherwise.compile([a], interpretation)) for a in axioms]
        )


class _Compiled:
    def __init__(self, pairs: list[tuple[Compiled, Compiled]]) -> None:
        self.pairs = pairs
        self.reasons: dict[int, str] = {}

    def adopt(self, learners: Learners) -> None:
        """Keep all learners there from now on."""
        for _, otherwise in self.pairs:
            if isinstance(otherwise, Learns):
                otherwise.adopt(learners)

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return torch.cat([self._ask(i, "losses", data, generator) for i in range(len(self.pairs))])

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        return [self._ask(i, "each", data, generator)[0] for i in range(len(self.pairs))]

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        return torch.cat([self._ask(i, "truths", data, generator) for i in range(len(self.pairs))])

    def _ask(self, number: int, what: str, data: Mapping[str, Any], generator: torch.Generator | None) -> Any:
        exact, otherwise = self.pairs[number]
        if number not in self.reasons:
            try:
                return getattr(exact, what)(data, generator)
            except ProblemError as error:  # nothing fits the budget
                self.reasons[number] = str(error)
        return getattr(otherwise, what)(data, generator)

    def explain(self, data: Mapping[str, Any]) -> str:
        lines = []
        for number, (exact, otherwise) in enumerate(self.pairs):
            self._ask(number, "truths", data, None)
            if number in self.reasons:
                lines.append(f"not exact: {self.reasons[number]}\n{otherwise.explain(data)}")
            else:
                lines.append(f"exact, which is affordable\n{exact.explain(data)}")
        return "\n".join(lines)
