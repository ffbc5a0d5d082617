"""A task of your own: data, a network and knowledge in one file.

Bars of four heights are drawn into small noisy images. Of two images only the difference of the heights is told; the
network learns the heights themselves from that.

    doxa train examples/my_task.py --semantics exact
    doxa compare examples/my_task.py --semantics exact,fuzzy,sampled
"""

import sys
import tempfile

import torch
from torch import nn

import doxa
from doxa.train import Fitting, evaluate_run, train_task

KNOWLEDGE = """
sort Image
sort Height = 0..3
data pairs(left: Image, right: Image, difference: Int)
func height(Image) -> Height

[difference] forall p in pairs. a := height(p.left), b := height(p.right) (a - b = p.difference)
"""


def pairs(count: int, seed: int) -> tuple[dict[str, dict[str, torch.Tensor]], torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    heights = torch.randint(4, (count, 2), generator=random)
    rows = torch.arange(8)[:, None].expand(8, 8)
    bars = (rows >= 7 - 2 * heights[..., None, None]).float()
    images = bars + 0.3 * torch.randn(bars.shape, generator=random)
    difference = heights[:, 0] - heights[:, 1]
    return {"pairs": {"left": images[:, 0], "right": images[:, 1], "difference": difference}}, heights


def task() -> doxa.Task:
    (train, _), (test, heights) = pairs(2000, seed=0), pairs(500, seed=1)
    return doxa.Task(
        name="heights",
        about="Heights of bars, learnt from the differences of two.",
        knowledge=KNOWLEDGE,
        symbols=lambda: {"height": doxa.logits(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)))},
        train=train,
        test=test,
        target="pairs.difference",
        values=range(-3, 4),
        concepts={"height": {"pairs.left": heights[:, 0], "pairs.right": heights[:, 1]}},
        images=("pairs.left", "pairs.right"),
        fitting=Fitting(steps=400, learning_rate=3e-3, evaluate_every=100),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train_task(task(), "exact", folder, settings=["steps=10"] if "--smoke" in sys.argv else [], progress=False)
        print(evaluate_run(folder, task()).json())
