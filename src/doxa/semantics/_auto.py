"""Let the problem decide: exact where that is affordable, sampled or amortised elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from doxa.errors import BudgetError, ConfigError, ProblemError
from doxa.logic import Axiom, Interpretation
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.problem._autoregressive import Autoregressive
from doxa.semantics._exact import ExactCompiled, lister, planned
from doxa.semantics._learners import Learners
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._sampled import Sampled
from doxa.semantics._semantics import Compiled, Data, Generator, Semantics


@dataclass(frozen=True)
class Auto(Semantics):
    """Exact reasoning where the budget allows it; else, problem by problem, what is given instead.

    Operations and entries are counted, never timed, so that the same problem is always treated alike. ``Model.plan``
    says what was decided and why; ``state_dict`` and run folders keep it.

    Args:
        otherwise: for problems that are too hard to be exact about: ``Sampled()``, ``Amortized()`` or ``Refined()``.
        quantifier, impossible, budget: see `Semantics`.

    >>> import doxa, torch
    >>> model = doxa.Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
    >>> model.truth(semantics=Auto())
    {'wet': tensor(0.3000)}
    """

    otherwise: Semantics = field(default_factory=Sampled)

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation, self)


class _Compiled(Probabilistic):
    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation, how: Auto) -> None:
        super().__init__(axioms, interpretation, how)
        otherwise = how.otherwise.compile(axioms, interpretation)
        if not isinstance(otherwise, Probabilistic):
            raise ConfigError(f"otherwise is {how.otherwise}, expected Sampled(), Amortized() or Refined()")
        self.exact, self.otherwise = ExactCompiled(axioms, interpretation, how), otherwise
        self.learns = otherwise.learns

    def adopt(self, learners: Learners) -> None:
        self.learners = learners
        self.otherwise.adopt(learners)

    def _reason(self, batch: ProblemBatch) -> str:
        """Why a problem is not treated exactly; empty if it is."""
        key, decisions = f"{self.digest(batch)} within {self.how.budget}", self.learners.decisions
        if key not in decisions:
            try:
                if isinstance(batch.belief, Autoregressive):
                    lister(self.interpretation, batch, self.how.budget)
                else:
                    planned(self.interpretation, batch.problem, self.how.budget)
                decisions[key] = ""
            except ProblemError as error:
                if isinstance(error, BudgetError) and error.field == "seconds":  # no clock decides
                    raise
                decisions[key] = str(error)
        return decisions[key]

    def engine(self, batch: ProblemBatch) -> Probabilistic:
        return self.otherwise if self._reason(batch) else self.exact

    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        return self.engine(batch).log_truths(posed, batch, generator)

    def truths(self, data: Data, generator: Generator) -> Tensor:
        """Of axioms as a whole, where the budget allows it; else as if instances were independent."""
        whole = self.posed(data, generator, whole=True)
        if any(self._reason(batch) for posed in whole for batch in posed.batches):
            return super().truths(data, generator)
        return self.exact.truths(data, generator)

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        reason = self._reason(batch)
        said = self.engine(batch).describe(posed, batch)
        return f"not exact: {reason}\n{said}" if reason else f"exact, which the budget allows\n{said}"
