"""One epoch of shuffled MNIST batches, against plain loops over the tensors."""

from __future__ import annotations

import torch

from doxa.data import MNIST, Batches
from harness import Row, compare

SIZE = 64


def rows() -> list[Row]:
    mnist = MNIST.load()
    x, y = mnist.images("train"), mnist.labels("train")
    batches = Batches((x, y), SIZE, seed=0)

    def ours() -> None:
        for _ in batches:
            pass

    def indexed() -> None:
        order = torch.randperm(len(x))
        for start in range(0, len(x), SIZE):
            chosen = order[start : start + SIZE]
            _ = x[chosen], y[chosen]

    def selected() -> None:
        order = torch.randperm(len(x))
        for start in range(0, len(x), SIZE):
            chosen = order[start : start + SIZE]
            _ = x.index_select(0, chosen), y.index_select(0, chosen)

    epoch = f"an epoch of MNIST in batches of {SIZE}: time against"
    return [
        compare(f"{epoch} an indexed tensor", ours, indexed, goal=1.1, better="lower"),
        compare(f"{epoch} index_select by hand", ours, selected, goal=1.1, better="lower"),
    ]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
