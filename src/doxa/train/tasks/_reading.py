r"""How values were read, beside what they truly were: accuracy, calibration, and whether a wrong map explains them.

Let :math:`n_{ij}` count the objects that are i and are read as j, N of them in all. The accuracy is
:math:`\frac1N \sum_i n_{ii}`. A reader that has settled on a map α of the values, reading every i as α(i), is right
by its own lights on

.. math:: \frac1N \sum_i n_{i,α(i)}, \qquad α(i) = \arg\max_j n_{ij},

which the accuracy falls short of exactly if α is not the identity. Where it falls far short, knowledge was satisfied
by concepts that are not the intended ones: a reasoning shortcut, or a local minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Reading"]

BINS = 10
MIN_EXAMPLES, MIN_GAIN = 10, 0.2
"""Where a value has fewer objects, it is settled by chance; then a map has to explain this much more than the truth."""
HARDLY = 0.1
"""A value is missed where it is read right less often than this."""


@dataclass(frozen=True)
class Reading:
    r"""Objects with finitely many values: what they are, what they were read as, and how sure the reader was.

    Args:
        name: of what was read, such as ``"digit"`` or ``"pairs.sum"``.
        values: their names.
        counts: how many objects have value i and were read as value j, for each i and j.
        bins: for each tenth of confidence the number of objects, their mean confidence, and the share read right.

    >>> reading = Reading.of("bit", ["0", "1"], torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0]), torch.ones(3))
    >>> reading.accuracy, reading.calibration_error
    (0.0, 1.0)
    >>> print(reading.warning())
    bit: 0.0 % are read right, but 100.0 % are read by a map of the values: 0 → 1, 1 → 0 (off by one)
    """

    name: str
    values: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    bins: tuple[tuple[int, float, float], ...]

    @classmethod
    def of(cls, name: str, values: Sequence[str], labels: Tensor, read: Tensor, confidence: Tensor) -> Reading:
        """From the positions of true and read values and the confidence in the latter, each ``(n,)``."""
        size = len(values)
        counts = torch.bincount(size * labels + read, minlength=size * size).reshape(size, size)
        right, confidence = (labels == read).double(), confidence.double()
        which = (confidence * BINS).long().clamp(0, BINS - 1)
        bins = []
        for b in range(BINS):
            inside = which == b
            count = int(inside.sum())
            bins.append(
                (count, float(confidence[inside].sum()) / max(1, count), float(right[inside].sum()) / max(1, count))
            )
        return cls(name, tuple(values), tuple(map(tuple, counts.tolist())), tuple(bins))

    @property
    def total(self) -> int:
        """How many objects there are."""
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """The share of objects read right."""
        return sum(row[i] for i, row in enumerate(self.counts)) / max(1, self.total)

    @property
    def calibration_error(self) -> float:
        """The expected calibration error Σ_b n_b/N |right_b - confidence_b| over ten bins of confidence."""
        return sum(count * abs(right - sure) for count, sure, right in self.bins) / max(1, self.total)

    @property
    def map(self) -> dict[int, int]:
        """α: as what each value that occurs is mostly read."""
        return {i: max(range(len(row)), key=row.__getitem__) for i, row in enumerate(self.counts) if sum(row)}

    @property
    def mapped_accuracy(self) -> float:
        """The share of objects that are read as α says."""
        return sum(self.counts[i][j] for i, j in self.map.items()) / max(1, self.total)

    @property
    def moved(self) -> dict[int, int]:
        """The part of α that is settled and wrong: values of which most objects are taken for another value."""
        return {i: j for i, j in self.map.items() if j != i and 2 * self.counts[i][j] > sum(self.counts[i])}

    def warning(self) -> str:
        """Words about a reading that is wrong by rule and not by chance; empty if it is not."""
        alpha, moved = self.map, self.moved
        rarest = min((sum(self.counts[i]) for i in moved), default=0)
        if not moved or (rarest < MIN_EXAMPLES and self.mapped_accuracy - self.accuracy < MIN_GAIN):
            return self._missed()
        facts = (
            f"{self.name}: {100 * self.accuracy:.1f} % are read right, but {100 * self.mapped_accuracy:.1f} % are read"
        )
        if len(set(alpha.values())) == 1 and len(alpha) > 1:
            return f"{facts} by one rule: everything is {self.values[next(iter(alpha.values()))]}"
        shown = ", ".join(f"{self.values[i]} → {self.values[j]}" for i, j in moved.items())
        others = ", the others as they are" if len(moved) < len(alpha) else ""
        return f"{facts} by a map of the values: {shown}{others}{self._kind(moved)}"

    def _missed(self) -> str:
        """Words about values that are hardly ever read where they are, and not always taken for the same other one."""
        parts = []
        for i, row in enumerate(self.counts):
            if sum(row) >= MIN_EXAMPLES and row[i] < HARDLY * sum(row):
                others = sorted((j for j in range(len(row)) if j != i), key=row.__getitem__, reverse=True)
                taken = [self.values[j] for j in others if row[j] >= HARDLY * sum(row)]
                parts.append(f"{self.values[i]} is taken for {' or '.join(taken) or 'others'}")
        facts = f"{self.name}: {100 * self.accuracy:.1f} % are read right, but {', '.join(parts)}"
        return facts if parts else ""

    def _kind(self, moved: dict[int, int]) -> str:
        moves = {j - i for i, j in moved.items()}
        if len(moves) == 1:
            by = next(iter(moves))
            return f" ({abs(by)} too {'high' if by > 0 else 'low'})"
        if moves <= {-1, 1}:
            return " (off by one)"
        return " (a relabelling)" if len(set(self.map.values())) == len(self.map) else ""
