r"""World diversity: how far a belief, given the knowledge, is from holding all worlds that fit equally probable.

.. math:: KL(p(w | φ) \| u_φ) = \log N - H(p(w | φ)) \ge 0

where N is the number of worlds in which the knowledge holds of a row, and :math:`u_φ` is uniform over them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic import Axiom, Interpretation
from doxa.pose import ProblemBatch, pose
from doxa.problem import Belief
from doxa.problem._autoregressive import WorldTable
from doxa.problem._logspace import NEG_INF, without_autocast
from doxa.semantics._combine import joint_axiom
from doxa.semantics._exact import exactly
from doxa.semantics._probabilistic import impossible
from doxa.semantics._semantics import Data, Generator, Semantics, reduced
from doxa.semantics._worlds import chosen


@dataclass(frozen=True, eq=False)
class Diversity:
    """How far each row is from believing all worlds equally that fit the knowledge: log N - H, in nats.

    It is 0 where all worlds are equally probable in which the knowledge holds, and log N where one of N is certain.
    For independent symbols it is exact, and ``low`` and ``high`` are the same; for a mixture of several components,
    whose entropy has no formula, it lies between them.

    Attributes:
        low, high: for each row, with an axis for each variable of the outermost ``forall``; 0 for rows of which nothing
            is said, and of which the knowledge cannot hold where that is no error.
        log_count: log N, the logarithm of the number of worlds that fit.
        total: the mean of ``high`` over the rows, to minimise beside a loss.

    >>> Diversity(torch.zeros(2), torch.tensor([0.0, 0.5]), torch.ones(2), torch.tensor(0.25)).total
    tensor(0.2500)
    """

    low: Tensor
    high: Tensor
    log_count: Tensor
    total: Tensor


def diversity(
    axiom: str | None, interpretation: Interpretation, how: Semantics, generator: Generator, data: Data
) -> Diversity:
    """See :meth:`Model.diversity`; for all axioms together, of each row where all speak of the same."""
    axioms = interpretation.kb.axioms if axiom is None else [chosen(interpretation.kb, axiom)]
    if not axioms:
        raise KnowledgeError("the knowledge base has no axioms that a belief could be diverse under")
    together = joint_axiom([replace(a, weight=1.0, learnable=False) for a in axioms])
    (posed,) = pose([together], interpretation, data, limit=how.budget.join, generator=generator)
    dead = ~posed.holds
    parts = []
    for batch in posed.batches:
        with without_autocast(batch.belief.device):
            found, possible = _of_batch(interpretation, posed.axiom, batch, how)
        parts.append(found)
        dead[batch.instances] = ~possible.cpu()
    if how.impossible == "raise" and bool(dead.any()):
        raise impossible(posed, dead.nonzero().squeeze(1))
    low, high, count = (posed.gather([part[i] for part in parts], true=0.0, false=0.0) for i in range(3))
    passes = None if bool(posed.passes.all()) else posed.passes
    shape = posed.shape or low.shape
    return Diversity(
        low.reshape(shape), high.reshape(shape), count.reshape(shape), reduced(high, passes, posed.shape, "mean")
    )


def _of_batch(
    interpretation: Interpretation, axiom: Axiom, batch: ProblemBatch, how: Semantics
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Bounds and log N of each instance, 0 where it cannot hold; and where it can."""
    reasoner, belief = exactly(interpretation, batch, how.budget, axiom)
    observed, given = batch.observed, batch.given
    with torch.no_grad():
        possible = reasoner.log_prob(belief.detach(), observed, given=given) > NEG_INF
        at = possible.nonzero().squeeze(1)
    if len(at) < len(possible):
        belief, observed, given = belief[at], observed[at], None if given is None else given[at]
    if isinstance(belief, WorldTable):
        lower = upper = reasoner.entropy(belief, observed, given=given)
    else:
        lower, upper = reasoner.entropy_bounds(belief, observed, given=given)
    count = _log_counts(reasoner, batch, observed, given).to(lower)
    found = [(count - upper).clamp(min=0.0), (count - lower).clamp(min=0.0), count]
    if len(at) < len(possible):
        found = [x.new_zeros(len(possible)).index_put((at,), x) for x in found]
    return (found[0], found[1], found[2]), possible


def _log_counts(reasoner: Any, batch: ProblemBatch, observed: Tensor, given: Tensor | None) -> Tensor:
    """log N of each instance: that many times as probable as one world if all are equally probable."""
    problem = batch.problem
    seen = observed if given is None else torch.cat([observed, given], -1)
    distinct, index = torch.unique(seen, dim=0, return_inverse=True)
    outputs, known = distinct[:, : observed.shape[1]], None if given is None else distinct[:, observed.shape[1] :]
    uniform = Belief.uniform(problem.world, (len(distinct),), dtype=torch.float64, device=observed.device)
    with torch.no_grad():
        shares: Tensor = reasoner.log_prob(uniform, outputs, given=known)
    return (shares + sum(math.log(size) for size in problem.world)).clamp(min=0.0)[index]
