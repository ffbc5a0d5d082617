"""Labels that violate knowledge, and the nearest ones that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from doxa.sklearn._choices import MultiClass
from doxa.sklearn._heads import Head, MultiLabel, nearest_by_sat


def consistent_labels(head: Head, labels: NDArray[np.bool_], given: NDArray[Any] | None) -> NDArray[np.bool_]:
    """The consistent labels that differ in the fewest places, for each row ``(n, labels)``."""
    leaning = torch.from_numpy(np.where(labels, 1.0, -1.0))
    seen = None if given is None else torch.from_numpy(given.astype(np.int64))
    if isinstance(head, MultiLabel):
        return head.nearest(leaning, seen)
    if not isinstance(head, MultiClass):
        return nearest_by_sat(head.knowledge, leaning, seen)
    allowed = head.allowed(len(labels), seen)
    return np.asarray(np.eye(head.count, dtype=bool)[(leaning + 3 * allowed).argmax(1).numpy()])
