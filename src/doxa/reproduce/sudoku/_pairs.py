"""Visual Sudoku pair by pair: amortised inference, or the closed form, of whether two cells differ (Chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from doxa._numerics import lift, log1mexp
from doxa.amortized import AmortizedReasoner, MixtureDirichlet, PairsModel
from doxa.data import MNIST, Batches, SudokuPuzzles, is_sudoku, normalize, sudoku_problem, visual_sudoku
from doxa.data._sudoku import sudoku_pairs
from doxa.errors import ConfigError
from doxa.problem import Belief, Problem
from doxa.reproduce._experiment import Entry, descend, moving_average, run_experiment
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._settings import half_cosine, require_decay, require_nonnegative, require_positive

ALMOST = 1e-6
"""-log q counts as no less than this where a grid is told to be incorrect, so that its loss is finite."""


@dataclass(frozen=True)
class SudokuPairsConfig:
    """Learn the digits of grids from whether these are Sudokus, as if all pairs of cells were independent:

        q(correct | P) = ∏_k q(the cells i_k and j_k differ | P[i_k], P[j_k]).

    Args:
        size: of the grids, 4 or 9.
        closed_form: take 1 - Σ_v P[i, v] P[j, v] for each pair, instead of a network that learns it.
        steps: in all, those of pretraining included.
        pretrain: the first so many steps train the network of pairs alone.
        puzzles: to train on, and as many to test on; half of them are correct.
        batch_size: puzzles in a batch.
        samples: pairs of beliefs drawn from the prior in a step.
        hidden: the width of the network of pairs, which has two hidden layers.
        spread: the first weights of perception's last layer are larger by this factor. Where all cells are believed to
            be alike, the loss has a saddle, from which small differences between nine digits do not lead away.
        learning_rate: of perception, by Adam, at its highest.
        inference_rate: of the network of pairs, by Adam, at its highest.
        decay: the step at which both have fallen to 0, along half a cosine; 0 leaves them as they are.
        average: decay of the moving average of the parameters that is tested; 0 tests the last parameters themselves.
        save_every: steps between two checkpoints; the last one counts.

    >>> SudokuPairsConfig(size=9, closed_form=True).hidden
    100
    """

    size: int = 4
    closed_form: bool = False
    steps: int = 10_000
    pretrain: int = 0
    puzzles: int = 200
    batch_size: int = 20
    samples: int = 500
    hidden: int = 100
    spread: float = 1.0
    learning_rate: float = 1e-3
    inference_rate: float = 3e-3
    decay: int = 0
    average: float = 0.0
    save_every: int = 500

    def __post_init__(self) -> None:
        require_positive(
            self, "steps", "puzzles", "batch_size", "samples", "hidden", "spread", "learning_rate", "inference_rate",
            "save_every",
        )  # fmt: skip
        if self.size not in (4, 9):
            raise ConfigError(f"size is {self.size}, expected 4 or 9")
        require_nonnegative(self, "decay")
        require_decay(self, "average")
        if self.pretrain < 0 or (self.pretrain and self.closed_form):
            raise ConfigError(f"pretrain is {self.pretrain}, expected 0 or more, and 0 for the closed form")

    def rate(self, highest: float, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return highest * half_cosine(step, self.decay)


class PairsLearner(nn.Module):
    """Perception of the cells and inference about their pairs."""

    def __init__(self, config: SudokuPairsConfig) -> None:
        super().__init__()
        self.perception = digit_network()
        self.perception[-1] = last = nn.Linear(84, config.size)
        with torch.no_grad():
            last.weight.mul_(config.spread)
        self.perception.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        problem = sudoku_problem(config.size, by_pairs=True)
        pairs = [(a, b) for a, b in sudoku_pairs(config.size).tolist()]
        self.inference = PairsModel(problem, pairs, hidden=config.hidden, closed_form=config.closed_form)

    def believe(self, images: Tensor) -> Belief:
        """What perception believes of the digits in grids ``(puzzles, cells, 28, 28)``."""
        logits: Tensor = self.perception(normalize(images.flatten(0, 1).unsqueeze(1)))
        return Belief.from_logits(torch.unflatten(logits, 0, images.shape[:2]))

    def log_correct(self, belief: Belief) -> Tensor:
        """log q(all pairs differ | P), ``(puzzles,)``."""
        return self.inference.log_prob(belief, torch.ones(len(self.inference.problem.output), dtype=torch.int64))

    def loss(self, belief: Belief, correct: Tensor) -> Tensor:
        """-log q of the correct grids and -log(1 - q) of the others, averaged."""
        log_q = self.log_correct(belief)
        return -torch.where(correct, log_q, log1mexp(lift(-log_q, ALMOST))).mean()


def single_pair(model: PairsModel) -> AmortizedReasoner:
    """The reasoner about two cells alone that shares the network of a model of many: it is what has to be trained."""
    values = model.problem.world[0]
    problem = Problem((values, values), (2,), lambda w: (w[..., :1] != w[..., 1:]).long())
    one = PairsModel(problem, [(0, 1)], closed_form=model.network is None)
    one.network = model.network
    return AmortizedReasoner(problem, one, MixtureDirichlet(problem.world, per="variable"))


def train_sudoku_pairs(
    config: SudokuPairsConfig, path: Path, *, seed: int, data: Path | None, progress: bool
) -> Result:
    """Train in a run folder, or go on with it, and test the moving average of the parameters at the last step.

    The seed is also that of the puzzles, so each seed is a split of its own. Metrics of the result, in percent of the
    test puzzles: ``accuracy``, those that are told right by whether q is above 1/2; ``symbolic_accuracy``, by whether
    the digits read one by one are a Sudoku. ``perception`` and ``inference`` are the losses of the last batch, in nats,
    and ``loss`` is their sum.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    known, unknown = visual_sudoku(mnist, config.size, puzzles=config.puzzles, seed=seed)
    batches = Batches((known.images, known.correct), config.batch_size, seed=seed)
    noise = torch.Generator().manual_seed(seed)
    with seeded(seed):
        learner = PairsLearner(config)
        pair = single_pair(learner.inference)
    average = moving_average(learner, config.average)
    perceive = torch.optim.Adam(learner.perception.parameters(), lr=config.learning_rate, fused=True)
    state: dict[str, Any] = {
        "learner": learner,
        "average": average,
        "perceive": perceive,
        "batches": batches,
        "noise": noise,
    }
    if not config.closed_form:
        state["infer"] = infer = torch.optim.Adam(learner.inference.parameters(), lr=config.inference_rate, fused=True)

    def step(i: int) -> dict[str, Tensor]:
        inference = perception = torch.zeros(())
        if i >= config.pretrain:
            images, correct = batches.next()
            for parameter in learner.inference.parameters():  # held fixed while perception learns from it
                parameter.requires_grad_(False)
            perception = learner.loss(learner.believe(images), correct)
            perception = descend(perception, perceive, rate=config.rate(config.learning_rate, i))
            for parameter in learner.inference.parameters():
                parameter.requires_grad_(True)
        if not config.closed_form:
            inference = pair.inference_loss(config.samples, generator=noise)
            inference = descend(inference, infer, rate=config.rate(config.inference_rate, i))
        average.update_parameters(learner)
        return {"loss": perception + inference, "perception": perception, "inference": inference}

    _, result = run_experiment(config, path, step, state, seed=seed, save_every=config.save_every, progress=progress)
    return replace(result, metrics={**result.metrics, **measure(average.module, unknown)})


@torch.inference_mode()
def measure(learner: PairsLearner, puzzles: SudokuPuzzles) -> dict[str, float]:
    """How many puzzles are told right, in percent."""
    beliefs = [learner.believe(images) for images in torch.split(puzzles.images, 20)]
    likely = torch.cat([learner.log_correct(belief) for belief in beliefs]).exp() > 0.5
    read = is_sudoku(torch.cat([belief.mode() for belief in beliefs]))
    return {
        "accuracy": 100 * (likely == puzzles.correct).double().mean().item(),
        "symbolic_accuracy": 100 * (read == puzzles.correct).double().mean().item(),
    }


def _config(size: int, closed_form: bool) -> SudokuPairsConfig:
    pretrain = 0 if closed_form else 1000
    steps = pretrain + (3000 if size == 4 else 6000)
    config = SudokuPairsConfig(size, closed_form, steps, pretrain, decay=steps, average=0.999)
    return config if size == 4 else replace(config, spread=10.0, batch_size=5, learning_rate=2e-3)


PAIRS_ENTRIES = tuple(
    Entry(
        f"{table}/{size}x{size}",
        _config(size, table == "pairs"),
        {"accuracy": neural, "symbolic_accuracy": symbolic},
        "A-NeSI, Chapter 6",
    )
    for table in ("amortized", "pairs")
    for size, neural, symbolic in ((4, 89.80, 89.70), (9, 62.25, 62.15))
)
"""Table ``amortized`` learns the probability that two cells differ, table ``pairs`` has it in closed form."""
