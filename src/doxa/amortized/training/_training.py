"""Perception and inference trained together: one step, and a ready loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from doxa.amortized._reasoner import AmortizedReasoner
from doxa.amortized.training._processes import average
from doxa.errors import ConfigError
from doxa.problem import Belief


class JointTraining:
    """Perception, engine and optimiser with a step and a state: Algorithm "A-NeSI training loop" of the dissertation.

    A step observes the belief, and lowers the sum of two losses that each train one side: -log q(y | P) trains
    perception, the inference loss trains q. Everything that changes is in ``state_dict``, the generator included, so a
    run that is stopped goes on to the bit. With several processes wrap perception in ``DistributedDataParallel``; the
    engine keeps itself equal.

    Args:
        engine: the amortised reasoner.
        perception: from inputs to a ``Belief``, or to logits ``(*batch, W, D)``.
        optimizer: of the parameters of both; by default Adam.
        lr: the rate of the default optimiser.
        samples: beliefs per step for the inference model.
        train_inference: whether the inference model goes on learning.
        generator: of the sampling.

    >>> from doxa.problem import addition
    >>> perception = nn.Sequential(nn.Linear(3, 20), nn.Unflatten(-1, (2, 10)))
    >>> training = JointTraining(AmortizedReasoner(addition(1)), perception, samples=20)
    >>> metrics = training.step(torch.randn(4, 3), torch.tensor([[1, 3]]).expand(4, 2))
    >>> sorted(metrics)
    ['inference', 'loss', 'perception']
    """

    def __init__(
        self,
        engine: AmortizedReasoner,
        perception: Callable[[Any], Belief | Tensor],
        optimizer: torch.optim.Optimizer | None = None,
        *,
        lr: float = 1e-3,
        samples: int = 600,
        train_inference: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        self.engine, self.perception, self.samples = engine, perception, samples
        self.train_inference, self.generator = train_inference, generator
        if optimizer is None:
            own = list(perception.parameters()) if isinstance(perception, nn.Module) else []
            optimizer = torch.optim.Adam([*own, *engine.model.parameters()], lr, fused=True)
        self.optimizer = optimizer

    def belief(self, inputs: Any) -> Belief:
        """What perception believes about inputs."""
        found = self.perception(inputs)
        return found if isinstance(found, Belief) else Belief.from_logits(found, self.engine.problem.world)

    def step(self, inputs: Any, output: Tensor, given: Tensor | None = None) -> dict[str, float]:
        """One update; returns the losses by name."""
        self.optimizer.zero_grad()
        belief = self.belief(inputs)
        perception, inference = self.engine.loss(belief, output, given=given).mean(), belief.log_probs.new_zeros(())
        if self.train_inference:
            self.engine.start_equal()
            self.engine.observe(belief, given=given)
            inference = self.engine.inference_loss(self.samples, generator=self.generator)
        torch.autograd.backward(perception + inference)
        if self.train_inference:
            inference = average(self.engine.model.parameters(), inference)
            self.engine.updates += 1
        self.optimizer.step()
        found = perception.item(), inference.item()
        return {"loss": sum(found), "perception": found[0], "inference": found[1]}

    def train(self, batches: Iterable[tuple[Any, ...]], *, pretrain: int = 0) -> list[dict[str, float]]:
        """Updates of the inference model alone, then one step for every batch of inputs, outputs (and given values).

        >>> from doxa.problem import addition
        >>> perception = nn.Sequential(nn.Linear(3, 20), nn.Unflatten(-1, (2, 10)))
        >>> training = JointTraining(AmortizedReasoner(addition(1)), perception, samples=20)
        >>> len(training.train([(torch.randn(4, 3), torch.ones(4, 2, dtype=torch.int64))] * 3, pretrain=2))
        3
        """
        self.engine.update(pretrain, self.optimizer, samples=self.samples, generator=self.generator)
        return [self.step(*batch) for batch in batches]

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes in training."""
        state = {name: part.state_dict() for name, part in self._parts().items()}
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        expected = set(self.state_dict())
        if set(state) != expected:
            raise ConfigError(f"the state is of {sorted(state)}, expected {sorted(expected)}")
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        if self.generator is not None:
            self.generator.set_state(state["generator"])

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"engine": self.engine, "optimizer": self.optimizer}
        return {**parts, "perception": self.perception} if isinstance(self.perception, nn.Module) else parts
