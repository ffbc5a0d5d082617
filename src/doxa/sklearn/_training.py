"""The training loop of the estimators.

It is not ``doxa.train.fit``: an estimator keeps nothing on disk, so there is no run folder to resume from, and small
tables want whole tensors and a few microseconds a step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from doxa.errors import RunError
from doxa.train.runs._steps import Progress

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Rows(NamedTuple):
    """Features, targets and given features, row by row."""

    x: Tensor
    y: Tensor
    given: Tensor | None

    def take(self, index: Tensor | slice) -> Rows:
        """Some of the rows."""
        return Rows(self.x[index], self.y[index], None if self.given is None else self.given[index])


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int | None
    averaging: float | None
    decay: str

    def rate(self, epoch: int) -> float:
        """The factor of the learning rate in an epoch, from 0."""
        return 1.0 if self.decay == "constant" else 0.5 * (1 + math.cos(math.pi * epoch / max(self.max_epochs, 1)))


class Learner:
    """A network with its optimiser, which learns epoch by epoch."""

    def __init__(self, module: nn.Module, loss: Loss, schedule: Schedule) -> None:
        self.module, self.loss, self.schedule = module, loss, schedule
        self.optimizer = torch.optim.AdamW(
            module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
        )
        average = get_ema_multi_avg_fn(schedule.averaging) if schedule.averaging else None  # type: ignore[no-untyped-call]
        self.averaged = None if average is None else AveragedModel(module, multi_avg_fn=average)

    @property
    def best(self) -> nn.Module:
        """The network to predict with."""
        return self.module if self.averaged is None else self.averaged.module

    def epoch(self, rows: Rows, rate: float = 1.0) -> float:
        """One pass over the rows in a random order; the mean loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self.schedule.learning_rate
        count, size = len(rows.x), self.schedule.batch_size
        mixed = rows.take(torch.randperm(count))
        total = 0.0
        self.module.train()
        for first in range(0, count, size):
            part = mixed.take(slice(first, first + size))
            loss = self.loss(self.module(part.x), part.y, part.given)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            if self.averaged is not None:
                self.averaged.update_parameters(self.module)
            total += float(loss.detach()) * len(part.x)
        if not math.isfinite(total):
            raise RunError(f"the loss is {total / count}; a lower learning_rate often helps, or smaller features")
        return total / count

    def measure(self, rows: Rows) -> float:
        """The loss on rows that are not learnt from."""
        module = self.best.eval()
        with torch.no_grad():
            parts = [rows.take(slice(i, i + 1024)) for i in range(0, len(rows.x), 1024)]
            losses = [float(self.loss(module(p.x), p.y, p.given)) * len(p.x) for p in parts]
        return sum(losses) / max(len(rows.x), 1)


class History(NamedTuple):
    """The losses of each epoch, and the best epoch, from 1 (the last one where nothing was held out)."""

    train: list[float]
    validation: list[float]
    best: int


def learn(
    learner: Learner,
    rows: Rows,
    held_out: Rows | None,
    verbose: bool,
    score: Callable[[nn.Module, Rows], float] | None = None,
) -> History:
    """Learn until nothing gets better; the best weights stay. ``score`` is high where the loss would be low."""
    schedule = learner.schedule
    train: list[float] = []
    validation: list[float] = []
    best, lowest, kept = 0, math.inf, None
    with Progress(schedule.max_epochs) if verbose else nullcontext() as bar:
        for epoch in range(schedule.max_epochs):
            train.append(learner.epoch(rows, schedule.rate(epoch)))
            shown = {"loss": train[-1]}
            if held_out is not None:
                value = learner.measure(held_out) if score is None else -score(learner.best.eval(), held_out)
                validation.append(value)
                shown["validation"] = value if score is None else -value
                if value < lowest:
                    best, lowest, kept = epoch + 1, value, copy.deepcopy(learner.best.state_dict())
            if bar is not None:
                bar.show(epoch + 1, shown)
            if held_out is not None and schedule.patience is not None and epoch + 1 - best >= schedule.patience:
                break
    if kept is not None:
        learner.best.load_state_dict(kept)
    return History(train, validation, best if kept is not None else len(train))
