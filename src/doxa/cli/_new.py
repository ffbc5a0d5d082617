"""``doxa new`` and ``doxa lsp``: a beginning, and help while writing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from doxa._files import write_atomic
from doxa.cli._output import Command
from doxa.errors import ConfigError

TEMPLATE = '''"""{title}: data, a network and knowledge in one file. Change each part into your own.

    doxa check {name}.py                        is the knowledge right?
    doxa train {name}.py --semantics exact      learn, in a folder under runs/
    doxa evaluate runs/{name}/exact/*/seed-0    how good is it, and which axioms hold?
    doxa compare {name}.py --semantics exact,fuzzy,sampled
    doxa shortcuts {name}.py                    could it be right for the wrong reasons?
"""

import torch
from torch import nn

import doxa
from doxa.train import Fitting

# The knowledge. Two images are seen, and only the sum of their digits is told; what each shows is to be learnt.
KNOWLEDGE = """
sort Image                                           # an open sort: its objects come with the data
sort Digit = 0..3                                    # a finite sort: its values are known
data pairs(left: Image, right: Image, sum: Int)      # rows of data, with the sort of each field
func digit(Image) -> Digit                           # what the network below says

[sum] forall p in pairs. digit(p.left) + digit(p.right) = p.sum
"""


def pairs(count: int, seed: int):
    """The data: bars of four heights in noisy 8 x 8 images. Take your own; draw with a fixed seed."""
    random = torch.Generator().manual_seed(seed)
    digits = torch.randint(4, (count, 2), generator=random)
    rows = torch.arange(8)[:, None].expand(8, 8)
    bars = (rows >= 7 - 2 * digits[..., None, None]).float()
    images = bars + 0.3 * torch.randn(bars.shape, generator=random)
    return {{"left": images[:, 0], "right": images[:, 1], "sum": digits.sum(1)}}, digits


def networks():
    """The network for each symbol that is learnt, new for every run; say what it returns: logits, probs, log_probs."""
    return {{"digit": doxa.logits(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4)))}}


def task() -> doxa.Task:
    (train, _), (test, digits) = pairs(2000, seed=0), pairs(500, seed=1)
    return doxa.Task(
        name="{name}",
        about="Digits, learnt from the sums of two.",
        knowledge=KNOWLEDGE,
        symbols=networks,
        train={{"pairs": train}},
        test={{"pairs": test}},
        target="pairs.sum",  # what is predicted
        values=range(7),  # what it can be
        concepts={{"digit": {{"pairs.left": digits[:, 0], "pairs.right": digits[:, 1]}}}},  # only to measure
        images=("pairs.left", "pairs.right"),  # shown in the report
        fitting=Fitting(steps=400, learning_rate=3e-3, evaluate_every=100),
    )
'''


@dataclass(frozen=True)
class New(Command):
    """Write a commented task file with data, a network and knowledge, which trains at once."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """What to call the task: a word such as my_task. The file is my_task.py in this folder."""

    def run(self) -> int:
        file = Path(self.name.removesuffix(".py") + ".py")
        if not file.stem.isidentifier():
            raise ConfigError(f"the name is {self.name!r}, expected letters, digits and _, such as my_task")
        if file.exists():
            raise ConfigError(f"{file} exists already; choose another name, or move it away")
        title = file.stem.replace("_", " ").capitalize()
        write_atomic(file, TEMPLATE.format(name=file.stem, title=title).encode())
        return self.answer({"file": str(file)}, f"wrote {file}; next: doxa train {file} --semantics exact")


@dataclass(frozen=True)
class Lsp:
    """Serve an editor on standard input and output: mistakes, completion and hover for knowledge files."""

    def run(self) -> int:
        from doxa.editor import serve

        serve()
        return 0
