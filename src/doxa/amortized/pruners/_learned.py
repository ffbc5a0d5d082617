"""A pruner that is learnt: an inference model at the belief that knows nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.amortized.models._model import InferenceModel
from doxa.amortized.pruners._pruner import Pruner
from doxa.errors import ConfigError
from doxa.problem import Belief


class LearnedPruner(Pruner):
    """Allows the values to which a model gives at least ``threshold``, at the uniform belief, and always the best one.

    (Dissertation, "Learn the pruner": reuse the inference model trained on the belief that distributes mass uniformly
    over all worlds.) It may allow too much and forbid too much, so it is not complete and guarantees nothing.

    >>> from doxa.amortized import FactorMLPs
    >>> from doxa.problem import parity
    >>> pruner = LearnedPruner(FactorMLPs(parity(3), hidden=8), threshold=0.9)
    >>> pruner.complete, pruner(torch.tensor([1])).sum() >= 1
    (False, tensor(True))
    """

    def __init__(self, model: InferenceModel, threshold: float = 1e-3) -> None:
        if not model.explains:
            raise ConfigError("the model does not explain, so it knows nothing of worlds; make it with explain=True")
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold is {threshold}, expected a probability between 0 and 1")
        super().__init__(model.sizes, complete=False)
        self.model = model
        self.threshold = threshold

    @torch.no_grad()
    def allowed(self, prefix: Tensor) -> Tensor:
        k, size = prefix.shape[-1], self.sizes[prefix.shape[-1]]
        tokens = torch.cat([prefix, torch.zeros_like(prefix[:, :1]) if k else prefix.new_zeros(len(prefix), 1)], -1)
        belief = Belief.uniform(self.model.problem.world, (len(prefix),), device=prefix.device)
        probs = self.model.log_probs(belief, tokens)[:, -1, :size].exp()
        best = torch.arange(size, device=prefix.device) == probs.argmax(-1, keepdim=True)
        return (probs >= self.threshold) | best
