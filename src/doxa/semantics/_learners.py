"""What inference models have learnt: kept beside the networks of a model, but not among its parameters."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from doxa.amortized import AmortizedReasoner as Engine
from doxa.problem import Belief, Problem

__all__ = ["Learner", "Learners", "Learns", "digest"]


class Learner:
    """An amortised engine and the optimiser of its inference model."""

    def __init__(self, engine: Engine, learning_rate: float) -> None:
        self.engine = engine
        self.optimizer = torch.optim.Adam(engine.model.parameters(), learning_rate, fused=True)
        self.updates = 0

    def learn(self, steps: int, samples: int, generator: torch.Generator | None) -> None:
        """Some updates on beliefs from the prior."""
        self.engine.update(steps, self.optimizer, samples=samples, generator=generator)
        self.updates += steps

    def observe(self, belief: Belief) -> None:
        """Tell the prior what is believed."""
        self.engine.observe(belief)

    def state(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "engine": self.engine.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.engine.load_state_dict(state["engine"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]


class Learners(nn.Module):
    """The learners of a model, by name.

    Their parameters are none of the module's, for they have an optimiser of their own and the loss of a model is not
    theirs; ``state_dict`` has them with that optimiser and all that the prior has seen, so that a run goes on to the
    bit. A learner that was loaded, copied or moved is made anew when it is next needed, for only then its problem is
    known.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[str, Learner] = {}
        self._stored: dict[str, dict[str, Any]] = {}

    def find(self, name: str, make: Callable[[], Learner]) -> Learner:
        """The learner of a name, made if there is none."""
        if name not in self._live:
            state = self._stored.get(name)
            if state is None:
                self._live[name] = make()
            else:
                with torch.random.fork_rng(devices=[]):  # its first weights are replaced, so they cost no randomness
                    made = make()
                made.load(state)
                del self._stored[name]
                self._live[name] = made
        return self._live[name]

    def known(self, start: str) -> dict[str, int]:
        """How many updates the learners have had whose names start so."""
        stored = {name: state["updates"] for name, state in self._stored.items()}
        live = {name: learner.updates for name, learner in self._live.items()}
        return {name: updates for name, updates in {**stored, **live}.items() if name.startswith(start)}

    def get_extra_state(self) -> dict[str, Any]:
        """What ``state_dict`` has of the learners."""
        return {**self._stored, **{name: learner.state() for name, learner in self._live.items()}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` had."""
        self._live, self._stored = {}, copy.deepcopy(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": {}, "_stored": self.get_extra_state()}

    def _apply(self, *args: Any, **kwargs: Any) -> Learners:
        self.set_extra_state(self.get_extra_state())  # made anew where the beliefs are
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self


@runtime_checkable
class Learns(Protocol):
    """Something compiled that has learners, which a model keeps for it."""

    def adopt(self, learners: Learners) -> None:
        """Keep all learners there from now on."""
        ...


def digest(problem: Problem, labels: tuple[Any, ...]) -> str:
    """What a problem is, in a few letters: the same for equal problems, in every process."""
    found = hashlib.sha256(repr((problem.world, problem.output, problem.auxiliary, labels)).encode())
    for factor in problem.factors or ():
        found.update(repr((factor.scope, tuple(factor.table.shape))).encode())
        found.update(factor.table.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:12]
