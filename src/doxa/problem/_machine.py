"""Finite-state machines as chains of factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._factors import Factor, Variable


@dataclass(frozen=True, eq=False)
class Run:
    """Run the machine on a word, one symbol after the other."""

    transitions: Tensor
    start: int
    labels: Tensor
    every_step: bool

    def __call__(self, worlds: Tensor) -> Tensor:
        transitions = self.transitions.to(worlds.device)
        state = torch.full_like(worlds[..., 0], self.start)
        states = []
        for symbol in worlds.unbind(-1):
            state = transitions[state, symbol]
            states.append(state)
        return self.labels.to(worlds.device)[torch.stack(states if self.every_step else states[-1:], -1)]


class Parts(NamedTuple):
    """The parts of the problem that a machine makes."""

    world: tuple[int, ...]
    output: tuple[int, ...]
    function: Run
    factors: tuple[Factor, ...]
    auxiliary: tuple[int, ...]


def machine_parts(
    transitions: Tensor | Sequence[Sequence[int]],
    steps: int,
    start: int,
    labels: Tensor | Sequence[int] | None,
    every_step: bool,
) -> Parts:
    """See ``Problem.from_machine``. Auxiliary variable t is the state after symbol t."""
    table = torch.as_tensor(transitions)
    if table.dtype.is_floating_point or table.ndim != 2 or 0 in table.shape or not _within(table, table.shape[0]):
        raise ProblemError(
            f"transitions has shape {tuple(table.shape)} and values {table.tolist()}, expected integers "
            "(states, symbols), each the number of a state"
        )
    count, symbols = table.shape
    label = torch.arange(count) if labels is None else torch.as_tensor(labels)
    if label.dtype.is_floating_point or label.shape != (count,) or (label < 0).any():
        raise ProblemError(f"labels is {label.tolist()}, expected one integer from 0 up for each of {count} states")
    if steps < 1 or not 0 <= start < count:
        raise ProblemError(f"steps is {steps} and start is {start}, expected at least 1 step and a state below {count}")
    table, label = table.long(), label.long()

    w, y, state = Variable.world, Variable.output, Variable.auxiliary
    states = torch.arange(count)
    move = table.unsqueeze(-1) == states  # (state, symbol, next state)
    emit = label.unsqueeze(-1) == torch.arange(int(label.max()) + 1)  # (state, output)
    finish = emit[table]  # (state, symbol, output)
    if every_step:
        factors = [Factor((w(0), state(0)), move[start])]
        factors += [Factor((state(t - 1), w(t), state(t)), move) for t in range(1, steps)]
        factors += [Factor((state(t), y(t)), emit) for t in range(steps)]
    else:
        factors = [Factor((w(0), state(0)), move[start])] if steps > 1 else [Factor((w(0), y(0)), finish[start])]
        factors += [Factor((state(t - 1), w(t), state(t)), move) for t in range(1, steps - 1)]
        factors += [Factor((state(steps - 2), w(steps - 1), y(0)), finish)] if steps > 1 else []
    outputs = steps if every_step else 1
    auxiliary = (count,) * (steps if every_step else steps - 1)
    function = Run(table, start, label, every_step)
    return Parts((symbols,) * steps, (emit.shape[1],) * outputs, function, tuple(factors), auxiliary)


def _within(table: Tensor, bound: int) -> bool:
    return bool(((table >= 0) & (table < bound)).all())
