"""Perception and inference trained together: one step, and a ready loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from doxa.amortized._reasoner import Amortized
from doxa.errors import ConfigError
from doxa.problem import Belief


class JointLoss(NamedTuple):
    """The two losses of a step; each trains one side only, so their sum trains both.

    Attributes:
        perception: -log q(y | P), averaged; its derivatives reach the belief.
        inference: the loss of the inference model on fresh data; its derivatives reach the model.

    >>> JointLoss(torch.tensor(1.0), torch.tensor(2.0)).total
    tensor(3.)
    """

    perception: Tensor
    inference: Tensor

    @property
    def total(self) -> Tensor:
        """What to call ``backward`` on."""
        return self.perception + self.inference


def joint_loss(
    engine: Amortized,
    belief: Belief,
    output: Tensor,
    *,
    samples: int = 600,
    generator: torch.Generator | None = None,
) -> JointLoss:
    """One round of the training loop of A-NeSI, without the optimiser: observe, train q, train perception through q.

    >>> from doxa.problem import addition
    >>> logits = torch.zeros(16, 2, 10, requires_grad=True)
    >>> engine = Amortized(addition(1))
    >>> joint_loss(engine, Belief.from_logits(logits), torch.tensor([1, 3]), samples=50).total.backward()
    """
    engine.observe(belief)
    inference = engine.inference_loss(samples, generator=generator)
    return JointLoss(engine.loss(belief, output).mean(), inference)


class JointTraining:
    """Perception, engine and optimiser as one thing with a step and a state: a loop around it is a ready loop.

    Algorithm "A-NeSI training loop" of the dissertation. Everything that changes is in ``state_dict``, the generator
    included, so a run that is stopped goes on to the bit.

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
    >>> training = JointTraining(Amortized(addition(1)), perception, samples=20)
    >>> metrics = training.step(torch.randn(4, 3), torch.tensor([[1, 3]]).expand(4, 2))
    >>> sorted(metrics)
    ['inference', 'loss', 'perception']
    """

    def __init__(
        self,
        engine: Amortized,
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

    def step(self, inputs: Any, output: Tensor) -> dict[str, float]:
        """One update; returns the losses by name."""
        self.optimizer.zero_grad()
        belief = self.belief(inputs)
        if self.train_inference:
            losses = joint_loss(self.engine, belief, output, samples=self.samples, generator=self.generator)
        else:
            losses = JointLoss(self.engine.loss(belief, output).mean(), belief.log_probs.new_zeros(()))
        torch.autograd.backward(losses.total)
        self.optimizer.step()
        perception, inference = losses.perception.item(), losses.inference.item()
        return {"loss": perception + inference, "perception": perception, "inference": inference}

    def pretrain(self, steps: int) -> list[float]:
        """Train the inference model alone, with the same optimiser."""
        return self.engine.pretrain(steps, self.optimizer, samples=self.samples, generator=self.generator)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes in training."""
        state: dict[str, Any] = {"engine": self.engine.state_dict(), "optimizer": self.optimizer.state_dict()}
        if isinstance(self.perception, nn.Module):
            state["perception"] = self.perception.state_dict()
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where ``state_dict`` was taken."""
        expected = set(self.state_dict())
        if set(state) != expected:
            raise ConfigError(f"the state is of {sorted(state)}, expected {sorted(expected)}")
        self.engine.load_state_dict(state["engine"])
        self.optimizer.load_state_dict(state["optimizer"])
        if isinstance(self.perception, nn.Module):
            self.perception.load_state_dict(state["perception"])
        if self.generator is not None:
            self.generator.set_state(state["generator"])


def fit(training: JointTraining, batches: Iterable[tuple[Any, Tensor]], *, pretrain: int = 0) -> list[dict[str, float]]:
    """The ready loop: pretrain, then one step for every batch of inputs and outputs; returns the losses.

    >>> from doxa.problem import addition
    >>> perception = nn.Sequential(nn.Linear(3, 20), nn.Unflatten(-1, (2, 10)))
    >>> training = JointTraining(Amortized(addition(1)), perception, samples=20)
    >>> history = fit(training, [(torch.randn(4, 3), torch.ones(4, 2, dtype=torch.int64))] * 3, pretrain=2)
    >>> len(history)
    3
    """
    training.pretrain(pretrain)
    return [training.step(inputs, output) for inputs, output in batches]
