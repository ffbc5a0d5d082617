"""What a model has learnt or decided besides its networks: kept in ``state_dict``, but not among its parameters."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from doxa._cache import for_later
from doxa.problem import Problem


class Learners(nn.Module):
    """The learners of a model, by name, and which problems were found too hard to be exact about.

    The parameters of learners are none of the module's, for they have an optimiser of their own and the loss of a model
    is not theirs; ``state_dict`` has them with that optimiser and all that the prior has seen, so that a run goes on to
    the bit. A learner that was loaded, copied or moved is made anew when it is next needed, for only then its problem
    is known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decisions: dict[str, str] = {}
        """By problem, why it is not treated exactly; empty where it is."""
        self._live: dict[str, Any] = {}
        self._stored: dict[str, dict[str, Any]] = {}

    def find(self, name: str, make: Callable[[], Any]) -> Any:
        """The learner of a name, made if there is none: the same in every process, and at no cost of randomness."""
        if name not in self._live:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:12], 16))
                made = self._live[name] = for_later(make)
            state = self._stored.pop(name, None)
            if state is not None:
                for_later(partial(made.load, state))
        return self._live[name]

    def known(self, start: str) -> dict[str, int]:
        """How many updates the learners have had whose names start so."""
        stored = {name: state["updates"] for name, state in self._stored.items()}
        live = {name: learner.updates for name, learner in self._live.items()}
        return {name: updates for name, updates in {**stored, **live}.items() if name.startswith(start) and updates}

    def get_extra_state(self) -> dict[str, Any]:
        """What ``state_dict`` has of the learners."""
        learners = {**self._stored, **{name: learner.state() for name, learner in self._live.items()}}
        return {"learners": learners, "decisions": dict(self.decisions)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` had."""
        state = copy.deepcopy(state)
        self._live, self._stored, self.decisions = {}, state["learners"], state["decisions"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": {}, "_stored": self.get_extra_state()["learners"]}

    def _apply(self, *args: Any, **kwargs: Any) -> Learners:
        self.set_extra_state(self.get_extra_state())  # made anew where the beliefs are
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self


def digest(problem: Problem, labels: tuple[Any, ...]) -> str:
    """What a problem is, in a few letters: the same for equal problems, in every process."""
    found = hashlib.sha256(repr((problem.world, problem.output, problem.given, problem.auxiliary, labels)).encode())
    found.update(str(getattr(problem.function, "formula", "")).encode())
    for factor in problem.factors or ():
        relation = factor.relation
        found.update(repr((factor.scope, relation.comparison)).encode())
        table = relation.codes if relation.codes is not None else relation.dense
        if table is not None:
            found.update(repr(table.flatten().tolist()).encode())
    return found.hexdigest()[:12]
