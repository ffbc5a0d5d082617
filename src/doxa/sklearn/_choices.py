"""Heads that choose one of a list of label sets: a class for each row, or the sets that training rows have."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from doxa.errors import ConfigError, KnowledgeError
from doxa.sklearn._heads import Decision, Head, Way, impossible
from doxa.sklearn._knowledge import LabelKnowledge

_ENTRIES = 2**24
"""Scores that are held at a time."""


class Choices(Head):
    r"""A row has one of a list of label sets: :math:`p(c) ∝ e^{s_c}`, over those that the knowledge allows for it.

    The knowledge is evaluated on each of them, and everything is exact: constrained and layer normalise over the
    allowed sets A, loss adds :math:`-w \log p(A)`, repair looks at A only in predicting.
    """

    sets: NDArray[np.bool_]
    """``(choices, labels)``."""

    def __init__(self, knowledge: LabelKnowledge, way: Way) -> None:
        super().__init__(knowledge, way)
        self.count = len(knowledge.names)
        self._good: dict[bytes, NDArray[np.bool_]] = {}

    @property
    def outputs(self) -> int:
        return self.count

    @abstractmethod
    def scores(self, raw: Tensor) -> Tensor:
        """s, ``(n, choices)``."""

    @abstractmethod
    def chosen(self, target: Tensor) -> Tensor:
        """The number of each row's set, ``(n,)``; -1 where it is none of them."""

    @property
    def conditions(self) -> bool:
        """Whether what is believed and predicted is among what is allowed."""
        return self.knows and (self.way.guarantee or self.way.learn in ("constrained", "layer"))

    def allowed(self, rows: int, given: Tensor | None) -> Tensor:
        """Which sets the knowledge allows for each row, bool ``(rows, choices)``."""
        if given is None:
            return torch.from_numpy(self.allowed_by(np.zeros(0, dtype=np.int64))).expand(rows, -1)
        kinds, which = np.unique(given.numpy(), axis=0, return_inverse=True)
        good = np.stack([self.allowed_by(kind) for kind in kinds])[which.reshape(-1)]
        if not good.any(1).all():
            raise self.none_allowed(np.flatnonzero(~good.any(1)).tolist())
        return torch.from_numpy(good)

    def allowed_by(self, kind: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which sets are allowed where the given features are these, ``(choices,)``."""
        if (key := kind.tobytes()) not in self._good:
            seen = np.tile(kind, (len(self.sets), 1)) if len(kind) else None
            self._good[key] = np.asarray(~self.knowledge.violations(self.sets, seen).any(1))
        return self._good[key]

    def none_allowed(self, rows: list[int]) -> KnowledgeError:
        """The error for rows that are left with no choice."""
        return impossible(self.knowledge, rows)

    def loss(self, raw: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        scores, index = self.scores(raw), self.chosen(target)
        if not self.knows or self.way.learn == "repair":
            return cross_entropy(scores, index, ignore_index=-1)
        allowed = self.allowed(len(raw), given)
        if self.way.learn in ("constrained", "layer"):
            return cross_entropy(scores.masked_fill(~allowed, -torch.inf), index, ignore_index=-1)
        share = torch.where(allowed, scores.log_softmax(-1), -torch.inf).logsumexp(-1)
        return cross_entropy(scores, index, ignore_index=-1) - self.way.weight * share.mean()

    def _known(self, raw: Tensor, given: Tensor | None) -> Tensor:
        scores = self.scores(raw)
        return scores.masked_fill(~self.allowed(len(raw), given), -torch.inf) if self.conditions else scores

    def _of_labels(self, choices: Tensor) -> Tensor:
        """The probability of each label, from that of each choice."""
        return (choices @ torch.from_numpy(self.sets).to(choices.dtype)).clamp(0, 1)

    def raw_probs(self, raw: Tensor) -> Tensor:
        return self._of_labels(self.scores(raw).softmax(-1))

    def raw_labels(self, raw: Tensor) -> NDArray[np.bool_]:
        return np.asarray(self.sets[self.scores(raw).argmax(-1).numpy()])

    def probs(self, raw: Tensor, given: Tensor | None) -> Tensor:
        return self._of_labels(self._known(raw, given).softmax(-1))

    def decide(self, raw: Tensor, given: Tensor | None) -> Decision:
        labels = self.sets[self._known(raw, given).argmax(-1).numpy()]
        return Decision(labels, ~self.violated(labels, given) if self.knows else np.ones(len(raw), dtype=bool))


class MultiClass(Choices):
    """A row has exactly one class, with a score each from the network."""

    def __init__(self, knowledge: LabelKnowledge, way: Way) -> None:
        super().__init__(knowledge, way)
        if way.components or way.seen:
            what = "beliefs='seen'" if way.seen else "mixture"
            raise ConfigError(f"one class for each row needs no {what}: any distribution is possible; drop beliefs=")
        self.sets = np.eye(self.count, dtype=bool)
        if self.knows and not knowledge.given and not bool(self.allowed(1, None).any()):
            listed = "; ".join(r.text for r in knowledge.requirements[:8])
            raise KnowledgeError(f"a row has exactly one class, and the knowledge allows none of them: {listed}")

    def scores(self, raw: Tensor) -> Tensor:
        return raw

    def chosen(self, target: Tensor) -> Tensor:
        return target

    def _of_labels(self, choices: Tensor) -> Tensor:
        return choices


class SeenSets(Choices):
    r"""A row has one of the label sets y that training rows have, :math:`p(y \mid x) ∝ n_y \exp(z(x) · y)`.

    :math:`n_y` is how many training rows have the set, and z one number for each label, from the network. At z = 0
    every set is as probable as it is frequent. There is no circuit, and labels that go together in training rows go
    together here. But a set that no training row has, has no probability and is never predicted.
    """

    def __init__(self, knowledge: LabelKnowledge, way: Way) -> None:
        super().__init__(knowledge, way)
        self.sets = np.zeros((0, self.count), dtype=bool)
        self.counts = np.zeros(0, dtype=np.int64)
        self._places: dict[bytes, int] = {}

    def observe(self, target: Tensor) -> None:
        """Count the sets of more training rows, ``(n, labels)``."""
        sets, counts = np.unique(target.numpy() > 0.5, axis=0, return_counts=True)
        places = self._look_up(sets)
        np.add.at(self.counts, places[places >= 0], counts[places >= 0])
        new = sets[places < 0]
        self._places |= {key: len(self.sets) + i for i, key in enumerate(_keys(new))}
        self.sets = np.concatenate([self.sets, new])
        self.counts = np.concatenate([self.counts, counts[places < 0]])
        self._good = {}
        self.chunk = max(1, min(Head.chunk, _ENTRIES // len(self.sets)))

    def _look_up(self, sets: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.array([self._places.get(key, -1) for key in _keys(sets)], dtype=np.int64)

    def scores(self, raw: Tensor) -> Tensor:
        return raw @ torch.from_numpy(self.sets.T).to(raw.dtype) + torch.from_numpy(np.log(self.counts)).to(raw.dtype)

    def chosen(self, target: Tensor) -> Tensor:
        return torch.from_numpy(self._look_up(target.numpy() > 0.5))

    def none_allowed(self, rows: list[int]) -> KnowledgeError:
        listed = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
        given = ", ".join(self.knowledge.given)
        came = f"no label set of a training row is consistent with the features ({given}) of rows {listed}"
        return KnowledgeError(f"{came}; beliefs='seen' predicts no other: use beliefs='independent'")


def _keys(sets: NDArray[np.bool_]) -> list[bytes]:
    return [row.tobytes() for row in np.packbits(sets, axis=1)]
