"""What all semantics share that ask how probable an axiom is, instance by instance."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.logic import Axiom, Interpretation
from doxa.logic.bind._joint import refuse
from doxa.pose import PosedAxiom, ProblemBatch, pose
from doxa.problem import Belief, Mixture
from doxa.problem._logspace import is_traced, without_autocast
from doxa.semantics._learners import Learners, digest
from doxa.semantics._semantics import Compiled, Data, Generator, Reduction, Semantics, reduced, require_mean


class Probabilistic(Compiled):
    """Axioms posed as problems; a subclass says what it computes for a batch of equal ones."""

    learns = False
    """Whether there are inference models."""
    takes_joint = False
    """Whether it can reason with symbols that depend on each other, as in a mixture."""

    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation, how: Semantics) -> None:
        self.axioms, self.interpretation, self.how = axioms, interpretation, how
        self.learners = Learners()

    def adopt(self, learners: Learners) -> None:
        """Keep all learners and decisions there from now on."""
        self.learners = learners

    def digest(self, batch: ProblemBatch) -> str:
        """What a problem is, in a few letters."""
        key = ("digest", batch.problem, batch.outputs)
        found: str = self.interpretation.plans.find(key, lambda: digest(batch.problem, batch.outputs))
        return found

    def engine(self, batch: ProblemBatch) -> Probabilistic:
        """Who computes for a batch."""
        return self

    def engine_for(self, batch: ProblemBatch) -> Probabilistic:
        """Who computes for a batch; an error if it cannot take what is believed."""
        engine = self.engine(batch)
        if not isinstance(batch.belief, Belief) and not engine.takes_joint:
            refuse(f"{type(engine.how).__name__}()", self.interpretation.joint_symbols)
        return engine

    @abstractmethod
    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        """The logarithm of how true each instance of a batch is, ``(instances,)``; -inf where it cannot be true.

        By rounding it may be above 0.
        """

    def batch_losses(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        """The loss of each instance of a batch, ``(instances,)``; infinite where it cannot be true."""
        found = self.log_truths(posed, batch, generator)
        return found.detach().clamp(min=0.0) - found  # not -0.0, nor less by rounding

    def together(self, truths: Tensor) -> Tensor:
        """The truth of an axiom, from those of its instances: as if they were independent."""
        return truths.prod()

    @abstractmethod
    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        """What is computed for a batch."""

    def worst(self, dtype: torch.dtype) -> float:
        """The loss of an instance that cannot hold, where it is to be finite."""
        return -math.log(torch.finfo(dtype).tiny) if self.is_log else 1.0

    def posed(self, data: Data, generator: Generator = None, *, whole: bool = False) -> list[PosedAxiom]:
        """The problems of the axioms."""
        limit = self.how.budget.join
        return pose(self.axioms, self.interpretation, data, whole=whole, limit=limit, generator=generator)

    def losses(self, data: Data, generator: Generator, reduction: Reduction) -> list[Tensor]:
        whole = self.how.quantifier == "logic"
        if whole:
            require_mean(reduction)
        found = []
        for posed in self.posed(data, generator, whole=whole):
            parts = self._parts("batch_losses", posed, generator)
            each = self._possible(posed, posed.gather(parts, true=0.0, false=math.inf))
            if posed.joint:
                found.append(each.sum() if self.is_log else 1 - (1 - each).prod())
            else:
                passes = None if bool(posed.passes.all()) else posed.passes
                found.append(reduced(each, passes, posed.shape, reduction))
        return found

    def _possible(self, posed: PosedAxiom, each: Tensor) -> Tensor:
        """What the option ``impossible`` makes of instances that cannot hold."""
        if self.how.impossible == "inf":
            return each
        stops = self.how.impossible == "raise" and not is_traced(each)
        if stops and each.detach().sum().item() < math.inf:  # then all of them are finite
            return each
        dead = each.detach() == math.inf
        if stops:
            if bool(dead.any()):
                raise impossible(posed, dead.nonzero().squeeze(1))
            return each
        return each.masked_fill(dead, self.worst(each.dtype))

    def truths(self, data: Data, generator: Generator) -> Tensor:
        found = [self.together(self.of_rows(posed, generator)) for posed in self.posed(data, generator)]
        return torch.stack(found) if found else torch.zeros(0)

    def rows(self, data: Data, generator: Generator) -> list[Tensor]:
        return [self.of_rows(posed, generator).reshape(posed.shape) for posed in self.posed(data, generator)]

    def of_rows(self, posed: PosedAxiom, generator: Generator) -> Tensor:
        """How true each instance is, ``(instances,)``; what a guard excludes is true."""
        return posed.gather(self._parts("batch_truths", posed, generator), true=1.0, false=0.0)

    def _parts(self, what: str, posed: PosedAxiom, generator: Generator) -> list[Tensor]:
        """What is computed for each batch; under autocast the logic stays in the precision of the belief."""
        found = []
        for batch in posed.batches:
            with without_autocast(batch.belief.device):
                found.append(getattr(self.engine_for(batch), what)(posed, batch, generator))
        return found

    def learn(self, data: Data, generator: Generator) -> int:
        if not self.learns:
            return 0
        with torch.no_grad():
            asked = self.posed(data, generator, whole=self.how.quantifier == "logic")
        pairs = [(posed, batch) for posed in asked for batch in posed.batches]
        return sum([self.engine_for(batch).learn_from(posed, batch, generator) for posed, batch in pairs])

    def learn_from(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> int:
        """Updates of the inference model of one batch."""
        return 0

    def batch_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        """How true each instance of a batch is, ``(instances,)``."""
        return self.log_truths(posed, batch, generator).clamp(max=0.0).exp()

    def explain(self, data: Data) -> str:
        lines = []
        for posed in self.posed(data, whole=self.how.quantifier == "logic"):
            certain = int(posed.passes.sum()) - sum(len(batch.instances) for batch in posed.batches)
            lines.append(f"{posed.axiom.name}: {int(posed.passes.sum()):,} instances, {certain:,} of them certain")
            if posed.listed is not None and posed.listed.plan:
                lines.append(f"joined: {posed.listed.plan}")
            names = list(dict.fromkeys(n for b in posed.batches for n in b.problem.names[: len(b.problem.world)]))
            if names:
                shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
                mixed = any(isinstance(batch.belief, Mixture) for batch in posed.batches)
                known = "the data and the component of each row" if mixed else "the data"
                lines.append(f"assumes that {shown} are independent, given {known}; one that occurs twice counts once")
            for batch in posed.batches:
                lines.append(f"{len(batch.instances):,} times {batch.problem}")
                lines += self.describe(posed, batch).splitlines()
        return "\n".join(lines)


def impossible(posed: PosedAxiom, dead: Tensor) -> ProblemError:
    """The error for instances that cannot hold."""
    where = ""
    if posed.shape:
        places = zip(*[at.tolist() for at in torch.unravel_index(dead[:10], posed.shape)], strict=True)
        where = f" in rows {', '.join(map(str, places))}"
    return ProblemError(
        f"axiom {posed.axiom.name!r} cannot hold{where}: every world in which it does has probability 0; correct the "
        "data, or for a loss that passes over them say so to the semantics, as in Exact(impossible='finite')"
    )
