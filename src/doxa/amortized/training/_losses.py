"""What an inference model is trained on, and what it trains a perception network with."""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.amortized._decoding import draw
from doxa.amortized._logspace import NEG_INF, log_world
from doxa.amortized.models._model import InferenceModel, frozen
from doxa.amortized.pruners._pruner import Pruner
from doxa.amortized.training._divergences import Divergence, sampled_divergence
from doxa.errors import ConfigError
from doxa.problem import Belief


def prediction_loss(
    model: InferenceModel,
    belief: Belief,
    worlds: Tensor,
    pruner: Pruner | None = None,
    *,
    given: Tensor | None = None,
) -> Tensor:
    """-log q(c(w) | P), ``(*batch,)``, for worlds ``(*batch, W)`` drawn from the belief (dissertation, "L_Pred").

    Its expectation is the cross entropy of p(y | P) and q(y | P), smallest where they are equal.

    >>> from doxa.amortized import FactorMLPs
    >>> from doxa.problem import addition
    >>> belief = Belief.uniform((10, 10), batch=(4,))
    >>> prediction_loss(FactorMLPs(addition(1), hidden=8), belief, belief.sample()[0]).shape
    torch.Size([4])
    """
    return -model.log_prob(belief, model.problem(worlds, given), pruner, given=given)


def joint_matching_loss(
    model: InferenceModel,
    belief: Belief,
    worlds: Tensor,
    pruner: Pruner | None = None,
    *,
    kind: Divergence = "matching",
    given: Tensor | None = None,
) -> Tensor:
    """(log q(w, c(w) | P) - log p(w | P))², ``(*batch,)``, for worlds drawn from the belief (dissertation, "L_Expl").

    This is off policy. ``kind`` chooses another divergence of p(w, y | P) and q(w, y | P).

    >>> from doxa.amortized import FactorMLPs
    >>> from doxa.problem import addition
    >>> belief = Belief.uniform((10, 10), batch=(4,))
    >>> joint_matching_loss(FactorMLPs(addition(1), hidden=8), belief, belief.sample()[0]).shape
    torch.Size([4])
    """
    _explaining(model)
    log_q = model.log_prob(belief, torch.cat([model.problem(worlds, given), worlds], -1), pruner, given=given)
    return sampled_divergence(log_q, log_world(belief.log_probs, worlds).to(log_q), kind, "off")


def on_policy_loss(
    model: InferenceModel,
    belief: Belief,
    pruner: Pruner | None = None,
    *,
    output: Tensor | None = None,
    samples: int = 1,
    kind: Divergence = "matching",
    given: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """E_q[(log q(w, y | P) - log p(w, y | P))²], ``(*batch,)``, estimated by sampling the model itself.

    For knowledge that hardly ever holds, worlds drawn from the belief are of little use, and a complete pruner makes
    the model draw only worlds that give their output (dissertation, "on-policy joint matching loss"). Samples that do
    not, which an incomplete pruner lets pass, have p = 0 and are left out: q learns to avoid them off policy.

    Args:
        model: which explains.
        belief: what to condition on; detached.
        pruner: for the sampling and for the probabilities.
        output: sample worlds of these outputs only, such as 1 for "the knowledge holds"; by default outputs too.
        samples: per belief.
        kind: the divergence.
        given: what the data decide, int64 ``(*batch, G)``.
        generator: of the sampling.

    >>> from doxa.amortized import AdditionPruner, FactorMLPs
    >>> from doxa.problem import addition
    >>> model, belief = FactorMLPs(addition(1), hidden=8), Belief.uniform((10, 10), batch=(4,))
    >>> on_policy_loss(model, belief, AdditionPruner(1)).shape
    torch.Size([4])
    """
    _explaining(model)
    belief = belief.detach()
    problem, outputs = model.problem, len(model.problem.output)
    tokens = draw(model, belief, samples, prefix=output, given=given, pruner=pruner, generator=generator).tokens
    tokens = tokens.movedim(-2, 0)  # (samples, *batch, T)
    worlds = tokens[..., outputs:].clamp(min=0)
    valid = (problem(worlds, given) == tokens[..., :outputs]).all(-1)
    repeated = Belief(belief.log_probs.expand(samples, *belief.log_probs.shape), belief.sizes, validate=False)
    seen = None if given is None else given.expand(*repeated.batch_shape, -1)
    log_q = model.log_prob(repeated, tokens.clamp(min=0), pruner, given=seen)
    log_p = log_world(repeated.log_probs, worlds).to(log_q)
    usable = valid & (log_q > NEG_INF)
    log_q = torch.where(usable, log_q, log_p)  # a difference of 0: no loss, no gradient
    loss = sampled_divergence(log_q, log_p, kind, "on")
    return torch.where(usable, loss, torch.zeros_like(loss)).mean(0)


def supervised_loss(
    model: InferenceModel,
    belief: Belief,
    worlds: Tensor,
    pruner: Pruner | None = None,
    *,
    given: Tensor | None = None,
) -> Tensor:
    """-log q(w | c(w), P), ``(*batch,)``, for structured outputs w that were observed themselves.

    The strongly supervised loss of "Constrained structured output prediction", where y = c(w) = 1 says that w satisfies
    the constraint. The model is held fixed.

    >>> from doxa.amortized import FactorMLPs
    >>> from doxa.problem import exactly_k
    >>> logits = torch.zeros(4, 3, 2, requires_grad=True)
    >>> model = FactorMLPs(exactly_k(1, 3), hidden=8)
    >>> supervised_loss(model, Belief.from_logits(logits), torch.tensor([0, 1, 0])).shape
    torch.Size([4])
    """
    _explaining(model)
    outputs = len(model.problem.output)
    worlds = worlds.expand(*belief.batch_shape, worlds.shape[-1])
    tokens = torch.cat([model.problem(worlds, given), worlds], -1)
    with frozen(model):
        log_probs = model.log_probs(belief, tokens, pruner, given=given)
    chosen = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return -chosen[..., outputs:].sum(-1)


def _explaining(model: InferenceModel) -> None:
    if not model.explains:
        raise ConfigError("the model predicts outputs only; make it with explain=True to have it explain them")
