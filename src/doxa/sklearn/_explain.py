"""What knowledge did to predictions: for one row, and for many as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score

from doxa._html import bar, box, line, page, pairs, span, table
from doxa.errors import visible
from doxa.sklearn._knowledge import LabelKnowledge
from doxa.train.tasks._measure import Reading

_SCORES = ("label", "rows", "predicted", "precision", "recall", "F1", "average precision")
_ALONE = "The network alone is the same network without the last step."
_RELIES = (
    "Trained with knowledge it relies on that step, so this is not what a network would do that was trained without "
    "knowledge."
)
_SHOWN = 20
"""Requirements on a page."""


class Change(NamedTuple):
    """A label that knowledge changed: what the network alone says, with which probability, and what is predicted."""

    name: str
    before: bool
    probability: float
    after: bool


@dataclass(frozen=True)
class Explanation:
    """Why a row has the labels that it has; ``print`` shows it.

    >>> print(Explanation(("cat",), ("cat -> animal",), (Change("cat", True, 0.6, False),), True))
    predicted: cat
    the network alone would violate: cat -> animal
    changed: cat to false (it has probability 0.6 without knowledge)
    """

    labels: tuple[str, ...]
    """The labels that are predicted."""
    violated: tuple[str, ...]
    """The requirements that the network alone would violate."""
    changed: tuple[Change, ...]
    """The labels that are predicted otherwise than by the network alone."""
    optimal: bool
    """Whether the labels are proven to be the most probable consistent ones."""

    def __str__(self) -> str:
        lines = [f"predicted: {', '.join(self.labels) or 'no label'}"]
        if not self.violated:
            lines.append("the network alone violates nothing")
        lines += [f"the network alone would violate: {text}" for text in self.violated]
        for name, _, probability, after in self.changed:
            turned = "true" if after else "false"
            lines.append(f"changed: {name} to {turned} (it has probability {probability:.3g} without knowledge)")
        if not self.optimal:
            lines.append("the best that was found; there may be more probable consistent labels")
        return visible("\n".join(lines), keep="\n")

    def _repr_html_(self) -> str:
        said = str(self).split("\n")
        rows = [
            (c.name, bar(c.probability), "→", span("good" if c.after else "bad", str(c.after))) for c in self.changed
        ]
        changes = [table(("changed", "probability without knowledge", "", "predicted"), rows)] if rows else []
        return box(*[line(text) for text in said if not text.startswith("changed: ")], *changes)


def explanation(
    knowledge: LabelKnowledge,
    before: NDArray[np.bool_],
    probs: NDArray[np.float64],
    after: NDArray[np.bool_],
    violated: NDArray[np.bool_],
    optimal: bool,
) -> Explanation:
    """From the labels without knowledge ``(labels,)``, their probabilities, those predicted, and what was violated."""
    names = knowledge.names
    each = zip(names, before, probs, after, strict=True)
    changed = [Change(name, bool(was), float(p), bool(now)) for name, was, p, now in each if was != now]
    texts = [r.text for r, broken in zip(knowledge.requirements, violated, strict=True) if broken]
    labels = [name for name, true in zip(names, after, strict=True) if true]
    return Explanation(tuple(labels), tuple(texts), tuple(changed), optimal)


@dataclass(frozen=True, eq=False)
class Judged:
    """Rows with true labels, what was predicted, and what the network alone would have."""

    knowledge: LabelKnowledge
    truth: NDArray[np.bool_]
    labels: NDArray[np.bool_]
    probs: NDArray[np.float64]
    alone: NDArray[np.bool_]
    before: NDArray[np.bool_]
    after: NDArray[np.bool_]
    many: bool

    def html(self, about: dict[str, object]) -> str:
        """The page."""
        parts = [
            f"<p>{len(self.truth):,} rows, {len(self.knowledge.names):,} labels, "
            f"{len(self.knowledge.requirements):,} requirements.</p>",
            self._free(),
            "<h2>Results</h2>",
            _numbers(("", "with knowledge", "network alone"), self._summary()),
            f"<p>{_ALONE} {'' if about.get('learn') == 'repair' else _RELIES}</p>",
            "<h2>Requirements that the network alone violates most</h2>",
            self._violations(),
            "<h2>Calibration</h2>",
            self._calibration(),
            "<h2>Labels</h2>",
            _numbers(("label", "rows", "predicted", "precision", "recall", "F1", "average precision"), self._labels()),
            "<h2>How it was made</h2>",
            pairs(about),
        ]
        return page("A classifier and what it knows", "\n".join(parts))

    def _free(self) -> str:
        """Labels of which nothing is known, where of others something is."""
        free = self.knowledge.free if self.knowledge.requirements else ()
        more = f" and {len(free) - _SHOWN:,} more" if len(free) > _SHOWN else ""
        return line(f"No requirement mentions {', '.join(free[:_SHOWN])}{more}.") if free else ""

    def _summary(self) -> list[Sequence[object]]:
        rows: list[Sequence[object]] = []
        both = (self.labels, self.alone)
        rows.append(("exact match", *[_percent((found == self.truth).all(1).mean()) for found in both]))
        rows.append(("labels that are right", *[_percent((found == self.truth).mean()) for found in both]))
        f1 = [f1_score(self.truth, found, average="micro", zero_division=0) for found in both]
        rows.append(("F1 (micro)", *[f"{value:.3f}" for value in f1]))
        broken = (self.after, self.before)
        rows.append(("rows that violate something", *[_percent(x.any(1).mean()) for x in broken]))
        rows.append(("violations", *[f"{int(x.sum()):,}" for x in broken]))
        return rows

    def _violations(self) -> str:
        before, after = self.before.sum(0), self.after.sum(0)
        order = [i for i in np.argsort(-before, kind="stable").tolist() if before[i] or after[i]]
        if not order:
            return "<p>None.</p>"
        rows = [(self.knowledge.requirements[i].text, f"{before[i]:,}", f"{after[i]:,}") for i in order[:_SHOWN]]
        more = f"<p>and {len(order) - _SHOWN:,} more</p>" if len(order) > _SHOWN else ""
        return _numbers(("requirement", "network alone", "with knowledge"), rows) + more

    def _calibration(self) -> str:
        """By tenths of the confidence in what each label, or the class, is taken for."""
        if self.many:
            likely = self.probs > 0.5
            sure, right = np.maximum(self.probs, 1 - self.probs), likely == self.truth
        else:
            sure = self.probs.max(1)
            right = self.truth[np.arange(len(sure)), self.probs.argmax(1)]
        ones = torch.ones(right.size, dtype=torch.int64)
        read = torch.from_numpy(right.reshape(-1).astype(np.int64))
        reading = Reading.of("labels", ("wrong", "right"), ones, read, torch.from_numpy(sure.reshape(-1).copy()))
        rows = [(f"{s:.3f}", f"{n:,}", f"{r:.3f}") for n, s, r in reading.bins if n]
        error = line(f"expected calibration error {reading.calibration_error:.4f}")
        return error + _numbers(("mean confidence", "labels", "share right"), rows)

    def _labels(self) -> list[Sequence[object]]:
        rows: list[Sequence[object]] = []
        for i, name in enumerate(self.knowledge.names):
            true, found = self.truth[:, i], self.labels[:, i]
            scores = [score(true, found, zero_division=0) for score in (precision_score, recall_score, f1_score)]
            ranked = f"{average_precision_score(true, self.probs[:, i]):.3f}" if true.any() else "no row has it"
            rows.append((name, f"{int(true.sum()):,}", f"{int(found.sum()):,}", *[f"{s:.3f}" for s in scores], ranked))
        return rows


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _numbers(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    return table(head, rows, numbers=True, limit=len(rows))
