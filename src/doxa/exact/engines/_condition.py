"""What is learnt about the world, put into the belief."""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.exact.circuits._semirings import FLOOR, NEG_INF, log_sum, restore
from doxa.problem import Belief
from doxa.problem._logspace import is_traced


def condition(belief: Belief, evidence: Tensor) -> Belief:
    """The belief after learning something about the world; every query can then be asked of it.

    Args:
        belief: what was believed before.
        evidence: int64 ``(*batch, W)``, the values of the world variables, -1 where nothing was learnt; or bool
            ``(*batch, W, D)``, which values are still possible. Without the batch axes, it holds for all rows.

    >>> belief = condition(Belief.uniform((4, 2)), torch.tensor([-1, 1]))
    >>> belief.probs
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.0000, 1.0000, 0.0000, 0.0000]])
    """
    values = torch.arange(belief.log_probs.shape[-1], device=belief.log_probs.device)
    sizes = torch.tensor(belief.sizes, device=evidence.device)
    if evidence.dtype == torch.bool and tuple(evidence.shape[-2:]) == tuple(belief.log_probs.shape[-2:]):
        allowed = evidence
    elif evidence.dtype == torch.int64 and evidence.ndim and evidence.shape[-1] == len(belief.sizes):
        if not is_traced(evidence) and ((evidence < -1) | (evidence >= sizes)).any():
            raise ProblemError(f"evidence is {evidence.tolist()}, expected values within {belief.sizes}, or -1")
        allowed = (values == evidence.unsqueeze(-1)) | (evidence.unsqueeze(-1) < 0)
    else:
        raise ProblemError(
            f"evidence has dtype {evidence.dtype} and shape {tuple(evidence.shape)}, expected int64 (..., "
            f"{len(belief.sizes)}) with -1 for unknown, or bool (..., {len(belief.sizes)}, {len(values)})"
        )
    kept = belief.log_probs.masked_fill(~allowed, NEG_INF)
    total = restore(log_sum(kept.clamp(min=FLOOR).movedim(-1, 0)))
    if not is_traced(total) and (total == NEG_INF).any():
        *row, variable = (total == NEG_INF).nonzero()[0].tolist()
        raise ProblemError(
            f"the evidence on variable {variable} in row {tuple(row)} has probability 0 in the belief; mend the "
            "evidence, or build the belief with eps > 0"
        )
    return Belief(kept - total.clamp(min=torch.finfo(total.dtype).min).unsqueeze(-1), belief.sizes, validate=False)
