"""Classical truth where symbols depend on each other: true or false in the most probable world of each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from doxa.logic import Axiom, Interpretation, SatisfactionReport
from doxa.logic.tensor._report import AxiomReport
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.pose._poser import undefined
from doxa.problem import Belief
from doxa.problem._autoregressive import Autoregressive
from doxa.semantics._combine import FactRows
from doxa.semantics._exact import Exact, planned
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._semantics import Data, Generator, Reduction, no_loss
from doxa.semantics._worlds import names_of, place_of

LISTED = 1024
"""Among so many worlds the most probable is found by looking at all of them."""


class MostProbableWorld(Probabilistic):
    """Axioms judged in the most probable world of each row."""

    takes_joint = True

    def losses(self, data: Data, generator: Generator, reduction: Reduction) -> list[Tensor]:
        raise no_loss()

    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        return self.batch_truths(posed, batch, generator).log()

    def batch_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        with torch.no_grad():
            outputs = batch.problem(self._best(posed, batch), batch.given)
        for output in batch.partial:
            if bool((outputs[..., output] == len(batch.outputs[output]) - 1).any()):
                raise undefined(posed.axiom)
        return (outputs == batch.observed).all(-1).to(torch.get_default_dtype())

    def _best(self, posed: PosedAxiom, batch: ProblemBatch) -> Tensor:
        belief, problem = batch.belief.detach(), batch.problem
        if isinstance(belief, Belief):
            return belief.log_probs.argmax(-1)
        if isinstance(belief, Autoregressive):
            return problem.world_of(belief.listed(self.how.budget).log_probs.argmax(-1))
        if problem.num_worlds <= LISTED:
            every = problem.worlds().to(belief.device)
            scores = belief._gather(every.unsqueeze(1).expand(-1, len(batch.instances), -1))  # (worlds, instances)
            return every[scores.argmax(0)]
        reasoner = planned(self.interpretation, problem, self.how.budget, posed.axiom).reasoner
        unseen = torch.full_like(batch.observed, -1)
        return reasoner.explain(belief, unseen, 1, given=batch.given).worlds[..., 0, :]

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        return "true or false in the most probable world"


def report(
    axioms: Sequence[Axiom],
    facts: Sequence[FactRows],
    interpretation: Interpretation,
    examples: int,
    generator: Generator,
    data: Data,
) -> SatisfactionReport:
    """See :meth:`Model.satisfaction`."""
    found: list[AxiomReport] = []
    judge = MostProbableWorld(axioms, interpretation, Exact())
    with torch.no_grad():
        for posed in judge.posed(data, generator):
            fails = (judge.of_rows(posed, generator).cpu() == 0).nonzero().squeeze(1)
            instances = int(posed.passes.sum())
            names = names_of(interpretation, posed.axiom, data)
            shown = tuple([place_of(posed, int(at), names) for at in fails[:examples]])
            found.append(AxiomReport(posed.axiom.name, instances, instances - len(fails), None, shown))
        if facts:
            held = torch.cat([_held(own, interpretation, generator, data) for own in facts])
            found.append(AxiomReport("facts", len(held), int(held.sum())))
    return SatisfactionReport(tuple(found))


def _held(facts: FactRows, interpretation: Interpretation, generator: Generator, data: Data) -> Tensor:
    judge = MostProbableWorld([facts.axiom], interpretation, Exact())
    (rows,) = judge.rows({**data, **facts.data(interpretation, data)}, generator)
    return rows.reshape(-1).cpu()
