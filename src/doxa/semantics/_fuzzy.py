"""Fuzzy semantics: an axiom has a truth value between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from doxa.errors import ConfigError, DoxaError
from doxa.logic import Axiom, Field, Interpretation, postorder
from doxa.problem._logspace import is_traced
from doxa.semantics._classical import outermost
from doxa.semantics._semantics import Compiled, Data, Generator, Reduction, Semantics, reduced, require_mean

if TYPE_CHECKING:  # the engine is loaded when a semantics is made, not when its name is looked up
    from doxa.fuzzy import FuzzyPlan, Logic

CHUNK = 2**22
"""Elements of an intermediate tensor, unless the budget says less."""
_SUSPECT = 1e-6
"""Rows less true than this are looked at, whether they can hold at all."""


@dataclass(frozen=True)
class Fuzzy(Semantics):
    r"""Differentiable fuzzy logic (Chapter 3): the loss of an instance is 1 - e(φ), where e is its truth value.

    For logics in log space it is :math:`-\log e(φ)`. The default multiplies truth values and minimises
    :math:`-\log e`. A statement x := f(t) (φ) is read as ∃_d T(p(d), φ(d)). Nothing is assumed to be independent, and
    nothing is a probability.

    Args:
        logic: the operators: a :class:`doxa.fuzzy.Logic` or its name.
        quantifier: "mean" takes the mean of the losses of the instances of the outermost ``forall``; "logic" takes the
            logic's own ∀ (a p-mean, the minimum, a product), as Logic Tensor Networks and the dissertation do.
        depth: how often the clauses of recursive definitions are evaluated, at most; ``explain`` reports what the last
            time still changed.
        impossible, budget: see `Semantics`.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> model.loss(semantics=Fuzzy("product")), model.loss(semantics=Fuzzy())        # 1 - .37 and -log .37
    (tensor(0.6300), tensor(0.9943))
    """

    logic: Logic | str = "log_product"
    depth: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 1:
            what = "a whole number of at least 1: how often recursive definitions are evaluated"
            raise ConfigError(f"depth is {self.depth!r}, expected {what}")
        if isinstance(self.logic, str):
            from doxa.fuzzy import logic as logic_by_name

            logic_by_name(self.logic)  # complains about a name that there is not

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return _Compiled(axioms, interpretation, self)


def _can_hold(batch: Any) -> Tensor:
    """Is some value of the only variable of a problem possible, under which it holds? ``(instances,)``."""
    worlds = batch.problem.worlds().to(batch.observed.device)
    given = None if batch.given is None else batch.given.unsqueeze(1)
    holds = (batch.problem(worlds.unsqueeze(0), given) == batch.observed.unsqueeze(1)).all(-1)
    found: Tensor = (holds & (batch.belief.log_probs[:, 0] > -math.inf)).any(-1)
    return found


class _Compiled(Compiled):
    def __init__(self, axioms: Sequence[Axiom], interpretation: Interpretation, how: Fuzzy) -> None:
        from doxa.fuzzy import FuzzyPlan, GeneralizedMeanError, LogProduct
        from doxa.fuzzy import logic as logic_by_name

        logic = logic_by_name(how.logic) if isinstance(how.logic, str) else how.logic
        self.axioms, self.interpretation, self.how = axioms, interpretation, how
        self.is_log = logic.is_log or logic.forall.is_log or logic.exists.is_log
        chunk = min(CHUNK, how.budget.entries)
        formulas: Any = [(a.name, a.formula) for a in axioms]
        mean = LogProduct("mean") if self.is_log else GeneralizedMeanError(1.0)
        self.plan = FuzzyPlan(formulas, interpretation, logic, chunk=chunk, depth=how.depth)
        self.mean_plan = FuzzyPlan(formulas, interpretation, logic, outermost=mean, chunk=chunk, depth=how.depth)
        self.row_plans = [
            FuzzyPlan(a, interpretation, logic, keep=outermost(a), chunk=chunk, depth=how.depth) for a in axioms
        ]
        self.of_rows = [any(isinstance(node, Field) for node in postorder(a.formula)) for a in axioms]

    def losses(self, data: Data, generator: Generator, reduction: Reduction) -> list[Tensor]:
        if self.how.quantifier == "logic":
            require_mean(reduction)
            return list(self._losses(self.plan, self.plan(generator=generator, **data)).unbind())
        if reduction == "mean" and not any(self.of_rows):
            return list(self._losses(self.mean_plan, self.mean_plan(generator=generator, **data)).unbind())
        found = []
        for axiom, plan in zip(self.axioms, self.row_plans, strict=True):
            values, passes = plan.value_and_guard(generator=generator, **data)
            each = self._possible(axiom, self._losses(plan, values).reshape(-1), data)
            found.append(reduced(each, None if passes is None else passes.reshape(-1), tuple(values.shape), reduction))
        return found

    def _losses(self, plan: FuzzyPlan, values: Tensor) -> Tensor:
        if plan.is_log:
            return 0.0 - values  # not -0.0
        if not self.is_log:
            return 1 - values
        return 0.0 - values.clamp(min=torch.finfo(values.dtype).eps).log()

    def _possible(self, axiom: Axiom, each: Tensor, data: Data) -> Tensor:
        """What the option ``impossible`` makes of rows that cannot hold, whatever the networks say."""
        if self.how.impossible == "finite" or is_traced(each):
            return each
        least = -math.log(_SUSPECT) if self.is_log else 1 - _SUSPECT
        if not bool((each.detach() > least).any()):
            return each
        from doxa.pose import pose
        from doxa.semantics._combine import Label
        from doxa.semantics._probabilistic import impossible

        label = isinstance(axiom, Label)  # of a fact, what the network says decides
        try:
            with torch.no_grad():
                (posed,) = pose([axiom], self.interpretation, data, believe=label, limit=self.how.budget.join)
        except DoxaError:  # it cannot be decided
            return each
        open_ = torch.zeros_like(posed.holds)
        for batch in posed.batches:
            open_[batch.instances] = _can_hold(batch).cpu() if label else True
        dead = posed.passes & ~posed.holds & ~open_
        if not bool(dead.any()):
            return each
        if self.how.impossible == "raise":
            raise impossible(posed, dead.nonzero().squeeze(1))
        return each.masked_fill(dead.to(each.device), math.inf)

    def truths(self, data: Data, generator: Generator) -> Tensor:
        values = self.plan(generator=generator, **data)
        return values.exp() if self.plan.is_log else values

    def rows(self, data: Data, generator: Generator) -> list[Tensor]:
        values = [(plan.is_log, plan(generator=generator, **data)) for plan in self.row_plans]
        return [value.exp() if is_log else value for is_log, value in values]

    def explain(self, data: Data) -> str:
        plan = self.plan if self.how.quantifier == "logic" else self.mean_plan
        return f"truth values, not probabilities; no independence is assumed\n{plan.explain(**data)}"
