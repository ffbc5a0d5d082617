"""Outputs that each depend on two world variables, such as whether two cells of a Sudoku differ."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from doxa._numerics import safe_log
from doxa.amortized.models._model import Carry, InferenceModel, dense
from doxa.errors import ConfigError
from doxa.problem import Problem


class PairsModel(InferenceModel):
    """One network for all pairs, each pair by itself (dissertation, "Visual Sudoku Puzzle Classification"):

        q(y | P) = ∏_k q(y_k | P[i_k], P[j_k]),      q(y_k | ·) = softmax(MLP(P[i_k], P[j_k])).

    That outputs are independent is wrong in general, and enough to train perception. The pairs of a training batch are
    many: ``on_pairs`` trains the network on single pairs, which is all it sees.

    With ``closed_form=True`` there is nothing to learn: the outputs say whether two values differ, and

        q(y_k = 1 | P) = 1 - Σ_v P[i_k, v] P[j_k, v]             (errata 5.6).

    Args:
        problem: what to infer; every output depends on two world variables.
        pairs: the two world variables of each output; by default read off ``problem.dependence()``.
        hidden: the width of the network.
        layers: its hidden layers.
        closed_form: use the exact probability that two values differ.

    >>> from doxa.problem import Belief
    >>> differ = Problem((3, 3, 3), (2, 2), lambda w: torch.stack([w[..., 0] != w[..., 1], w[..., 1] != w[..., 2]], -1))
    >>> model = PairsModel(differ, closed_form=True)
    >>> model.log_prob(Belief.uniform((3, 3, 3)), torch.tensor([1, 1])).exp()          # 2/3 · 2/3
    tensor(0.4444)
    """

    def __init__(
        self,
        problem: Problem,
        pairs: Sequence[tuple[int, int]] | None = None,
        *,
        hidden: int = 100,
        layers: int = 2,
        closed_form: bool = False,
    ) -> None:
        super().__init__(problem, explain=False)
        chosen = _pairs(problem) if pairs is None else [tuple(pair) for pair in pairs]
        count = len(problem.world)
        if len(chosen) != len(problem.output) or not all(len(p) == 2 and 0 <= min(p) <= max(p) < count for p in chosen):
            raise ConfigError(f"pairs has {len(chosen)} entries, expected two world variables for each output")
        if closed_form and set(problem.output) != {2}:
            raise ConfigError(f"outputs are {problem.output[:4]}..., expected 0 and 1 (they differ) for closed_form")
        if closed_form and problem.given:
            raise ConfigError("closed_form: whether two values differ, nothing given decides; use hidden layers")
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tensor(chosen), persistent=False)
        inputs = 2 * max(problem.world) + len(problem.given) * max(self.seen)
        self.network = None if closed_form else dense(inputs, hidden, layers, self.width)

    def on_pairs(self, left: Tensor, right: Tensor, *given: Tensor) -> Tensor:
        """Scores ``(..., D)`` of one output from the distributions ``(..., D)`` of its two variables; ``given`` too.

        >>> from doxa.problem import Problem
        >>> differ = Problem((3, 3), (2,), lambda w: (w[..., :1] != w[..., 1:]).long())
        >>> PairsModel(differ).on_pairs(torch.rand(7, 3), torch.rand(7, 3)).shape
        torch.Size([7, 2])
        """
        if self.network is not None:
            logits: Tensor = self.network(torch.cat([left, right, *given], -1))
            return logits
        same = (left * right).sum(-1)
        return safe_log(torch.stack([same, 1 - same], -1))

    def _all(self, probs: Tensor) -> Tensor:
        count = len(self.problem.world)
        world = probs[:, :count, : max(self.problem.world)]
        left, right = world[:, self.pairs[:, 0]], world[:, self.pairs[:, 1]]
        given = probs[:, count:].flatten(1).unsqueeze(1).expand(-1, len(self.pairs), -1)
        return self.on_pairs(left, right, *([given] if self.problem.given else []))

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return (self._all(probs),), (torch.arange(len(probs), device=probs.device),)

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (logits,), (rows,), t = carry.shared, carry.state, carry.position
        return logits[rows, t], Carry(t + 1, carry.shared, carry.state)

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        return self._all(probs)[:, : tokens.shape[-1]]


def _pairs(problem: Problem) -> list[tuple[int, ...]]:
    found = [tuple(row.nonzero().flatten().tolist()) for row in problem.dependence()]
    for output, pair in enumerate(found):
        if len(pair) != 2:
            came = f"output {problem.name(len(problem.world) + output)} depends on {len(pair)} world variables"
            raise ConfigError(f"{came}, expected two; use ScanModel or CausalTransformer")
    return found
