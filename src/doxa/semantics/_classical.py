"""Classical semantics: an axiom holds or it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.logic import Axiom, Interpretation
from doxa.logic.syntax._binders import first_forall
from doxa.logic.tensor._plan import TensorPlan
from doxa.semantics._semantics import Compiled, Data, Generator, Reduction, Semantics, no_loss


@dataclass(frozen=True)
class Classical(Semantics):
    """True or false: an atom is true when it is more probable than not, a neural function has its most probable value.

    Nothing can be learned from it; it is what a satisfaction rate means. With symbols that depend on each other, as in
    :func:`doxa.mixture`, an instance is judged in the most probable world of its row (of those that were found, where
    there are too many to list): for independent symbols that is the same.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Classical())
    {'soaked': tensor(0.)}
    """

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        if interpretation.shared_in(*[axiom.formula for axiom in axioms]):
            from doxa.semantics._most_probable import MostProbableWorld

            return MostProbableWorld(axioms, interpretation, self)
        return _Compiled(axioms, interpretation)


class _Compiled(Compiled):
    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> None:
        self.plan = TensorPlan([(a.name, a.formula) for a in axioms], interpretation)
        self.row_plans = [TensorPlan(a, interpretation, keep=outermost(a)) for a in axioms]

    def losses(self, data: Data, generator: Generator, reduction: Reduction) -> list[Tensor]:
        raise no_loss()

    def truths(self, data: Data, generator: Generator) -> Tensor:
        return self.plan(generator=generator, **data).to(torch.get_default_dtype())

    def rows(self, data: Data, generator: Generator) -> list[Tensor]:
        return [plan(generator=generator, **data).to(torch.get_default_dtype()) for plan in self.row_plans]

    def explain(self, data: Data) -> str:
        return self.plan.explain(**data)


def outermost(axiom: Axiom) -> tuple[str, ...]:
    """The variables of the outermost ``forall``."""
    found = first_forall(axiom.formula)
    return () if found is None else found.names
