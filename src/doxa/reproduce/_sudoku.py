"""Visual Sudoku: digits are learnt from whether grids are correct (Chapter 6).

By exact inference, or pair by pair: amortised inference, or the closed form, of whether two cells differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from doxa._numerics import lift, log1mexp
from doxa.amortized import AmortizedReasoner, FittedDirichlet, MixtureDirichlet, PairsModel, Prior
from doxa.data import Batches, SudokuPuzzles, is_sudoku, sudoku_problem, visual_sudoku
from doxa.data._digits import sudoku_pairs
from doxa.errors import ConfigError
from doxa.exact import Constraint
from doxa.logic import And, Constant, Function, Sort, ground
from doxa.logic.unfold._propositional import Propositional
from doxa.problem import Belief, Problem
from doxa.reproduce._digits import NEURAL_SUDOKU, believe, percent, perception
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, train
from doxa.train.tasks._fit import moving_average

ALMOST = 1e-6
"""-log q counts as no less than this where a grid is told to be incorrect, so that its loss is finite."""


def told_right(likely: Iterable[Tensor], beliefs: Iterable[Belief], puzzles: SudokuPuzzles) -> dict[str, float]:
    """In percent of the puzzles: ``accuracy``, those told right by the reasoner; ``symbolic_accuracy``, those told
    right by whether the digits read one by one are a Sudoku.
    """
    read = is_sudoku(torch.cat([belief.mode() for belief in beliefs]))
    return {
        "accuracy": percent(torch.cat([*likely]) == puzzles.correct),
        "symbolic_accuracy": percent(read == puzzles.correct),
    }


@dataclass(frozen=True)
class SudokuConfig(Settings):
    """Learn the digits of grids from whether these are Sudokus, by exact inference."""

    size: int = 4  # of the grids; 4, for the circuit of 9 × 9 is out of reach
    steps: int = 3000  # batches to learn from; the published number is 300 epochs
    puzzles: int = 200  # to train on, and as many to test on; half of them are correct
    batch_size: int = 20  # puzzles in a batch
    learning_rate: float = 1e-3  # of Adam at its highest
    decay: int = 0  # the step at which the learning rate has fallen to 0, along half a cosine; 0 leaves it as it is
    average: float = 0.0  # decay of the moving average of the parameters that is tested; 0 tests the last ones
    save_every: int = 500  # steps between two checkpoints; the last one counts

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size != 4:
            raise ConfigError(f"size is {self.size}, expected 4: exact inference does not reach larger grids")

    def training(self, given: Given) -> Training:
        """The seed is also that of the puzzles, so each is a split of its own. The loss is -log p or -log(1 - p)."""
        known, unknown = visual_sudoku(given.mnist(), self.size, puzzles=self.puzzles, seed=given.seed)
        constraint = sudoku_constraint(self.size)
        batches = Batches((known.images, known.correct), self.batch_size, seed=given.seed)
        network = perception(self.size)
        average = moving_average(network, self.average)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)

        def step(i: int) -> Tensor:
            images, correct = batches.next()
            loss = constraint.loss(believe(network, images), correct.long().unsqueeze(-1)).mean()
            loss = descend(loss, optimizer, rate=self.rate(self.learning_rate, i))
            average.update_parameters(network)
            return loss

        @torch.inference_mode()
        def measure(_: object) -> dict[str, float]:
            belief = believe(average, unknown.images)
            return told_right([constraint.probability(belief) > 0.5], [belief], unknown)

        state = {"network": network, "average": average, "optimizer": optimizer, "batches": batches}
        return Training(step, state, measure)


def sudoku_constraint(size: int) -> Constraint:
    """That a grid is a Sudoku, as knowledge about its cells: world variable i is the digit in cell i."""
    cells = [Constant(f"c{i}", Sort("Cell")).term for i in range(size * size)]
    digit = Function("digit", (Sort("Cell"),), Sort.range("Digit", 0, size - 1))
    rules = [digit(cells[a]).ne(digit(cells[b])) for a, b in sudoku_pairs(size).tolist()]
    found = ground(And(*rules))
    ordered = tuple([digit(cell).eq(value) for cell in cells for value in range(size)])
    return Constraint(Propositional({"sudoku": found.formula}, (), found.constraints, ordered), impossible="finite")


@dataclass(frozen=True)
class SudokuPairsConfig(Settings):
    """Learn the digits of grids from whether these are Sudokus, as if all pairs of cells were independent:

    q(correct | P) = ∏_k q(the cells i_k and j_k differ | P[i_k], P[j_k]).
    """

    size: int = 4  # of the grids, 4 or 9
    closed_form: bool = False  # take 1 - Σ_v P[i, v] P[j, v] for each pair, instead of a network that learns it
    steps: int = 10_000  # in all, those of pretraining included
    pretrain: int = 0  # the first so many steps train the network of pairs alone
    puzzles: int = 200  # to train on, and as many to test on; half of them are correct
    batch_size: int = 20  # puzzles in a batch
    samples: int = 500  # pairs of beliefs drawn from the prior in a step
    # the prior: a mixture of Dirichlet distributions, or one that is fitted to what is believed of pairs, as published
    fitted: bool = False
    hidden: int = 100  # the width of the network of pairs, which has two hidden layers
    # the first weights of perception's last layer are larger by this factor. Where all cells are believed to be alike,
    # the loss has a saddle, from which small differences between nine digits do not lead away
    spread: float = 1.0
    learning_rate: float = 1e-3  # of perception, by Adam, at its highest
    inference_rate: float = 3e-3  # of the network of pairs, by Adam, at its highest
    decay: int = 0  # the step at which both have fallen to 0, along half a cosine; 0 leaves them as they are
    average: float = 0.0  # decay of the moving average of the parameters that is tested; 0 tests the last ones
    save_every: int = 500  # steps between two checkpoints; the last one counts

    def __post_init__(self) -> None:
        if self.size not in (4, 9):
            raise ConfigError(f"size is {self.size}, expected 4 or 9")
        if self.pretrain < 0 or (self.pretrain and self.closed_form):
            raise ConfigError(f"pretrain is {self.pretrain}, expected 0 or more, and 0 for the closed form")
        super().__post_init__()

    def training(self, given: Given) -> Training:
        """The seed is also that of the puzzles, so each is a split of its own. ``perception`` and ``inference`` are the
        losses of a batch, in nats, and ``loss`` is their sum.
        """
        known, unknown = visual_sudoku(given.mnist(), self.size, puzzles=self.puzzles, seed=given.seed)
        batches = Batches((known.images, known.correct), self.batch_size, seed=given.seed)
        noise = torch.Generator().manual_seed(given.seed)
        learner = PairsLearner(self)
        pair = single_pair(learner.inference, fitted=self.fitted)
        average = moving_average(learner, self.average)
        perceive = torch.optim.Adam(learner.perception.parameters(), lr=self.learning_rate, fused=True)
        state: dict[str, Any] = {"learner": learner, "average": average, "perceive": perceive}
        if not self.closed_form:
            infer = torch.optim.Adam(learner.inference.parameters(), lr=self.inference_rate, fused=True)
            state["infer"] = infer

        def step(i: int) -> dict[str, Tensor]:
            inference = loss = torch.zeros(())
            if i >= self.pretrain:
                images, correct = batches.next()
                learner.inference.requires_grad_(False)  # held fixed while perception learns from it
                belief = believe(learner.perception, images)
                if self.fitted:
                    seen = belief.log_probs.detach()[:, learner.inference.pairs].flatten(0, 1)
                    pair.observe(Belief(seen, pair.problem.world, validate=False))
                loss = learner.loss(belief, correct)
                loss = descend(loss, perceive, rate=self.rate(self.learning_rate, i))
                learner.inference.requires_grad_(True)
            if not self.closed_form:
                inference = pair.inference_loss(self.samples, generator=noise)
                inference = descend(inference, infer, rate=self.rate(self.inference_rate, i))
            average.update_parameters(learner)
            return {"loss": loss + inference, "perception": loss, "inference": inference}

        if self.fitted:
            state["prior"] = pair.prior
        return Training(
            step, {**state, "batches": batches, "noise": noise}, lambda run: measure_pairs(average.module, unknown)
        )


class PairsLearner(nn.Module):
    """Perception of the cells and inference about their pairs."""

    def __init__(self, config: SudokuPairsConfig) -> None:
        super().__init__()
        self.perception = perception(config.size)
        last = self.perception[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.mul_(config.spread)
        problem = sudoku_problem(config.size, by_pairs=True)
        pairs = [(a, b) for a, b in sudoku_pairs(config.size).tolist()]
        self.inference = PairsModel(problem, pairs, hidden=config.hidden, closed_form=config.closed_form)

    def log_correct(self, belief: Belief) -> Tensor:
        """log q(all pairs differ | P), ``(puzzles,)``."""
        return self.inference.log_prob(belief, torch.ones(len(self.inference.problem.output), dtype=torch.int64))

    def predict(self, belief: Belief) -> Tensor:
        """Whether grids seem correct, bool ``(puzzles,)``: whether argmax_y q(y | P) has all pairs differ.

        The pairs being independent, each is more likely to differ than not. The probability that all of them do may
        still be small: 0.99 for each of 810 pairs is 0.0003 for the grid.
        """
        tokens = torch.ones(*belief.batch_shape, len(self.inference.problem.output), dtype=torch.int64)
        return self.inference.log_probs(belief, tokens).argmax(-1).bool().all(-1)

    def loss(self, belief: Belief, correct: Tensor) -> Tensor:
        """-log q of the correct grids and -log(1 - q) of the others, averaged."""
        log_q = self.log_correct(belief)
        return -torch.where(correct, log_q, log1mexp(lift(-log_q, ALMOST))).mean()


def single_pair(model: PairsModel, *, fitted: bool = False) -> AmortizedReasoner:
    """The reasoner about two cells alone that shares the network of a model of many: it is what has to be trained.

    Its prior is a mixture, or fitted with the settings of the appendix.
    """
    values = model.problem.world[0]
    problem = Problem((values, values), (2,), lambda w: (w[..., :1] != w[..., 1:]).long())
    one = PairsModel(problem, [(0, 1)], closed_form=model.network is None)
    one.network = model.network
    prior: Prior = MixtureDirichlet(problem.world, per="variable")
    if fitted:
        prior = FittedDirichlet(problem.world, initial=0.02, l2=2_500_000.0, rate=0.0029, iterations=18)
    return AmortizedReasoner(problem, one, prior)


@torch.inference_mode()
def measure_pairs(learner: PairsLearner, puzzles: SudokuPuzzles) -> dict[str, float]:
    """How many puzzles are told right, in percent: by `PairsLearner.predict`, and by the digits read one by one."""
    beliefs = [believe(learner.perception, images) for images in torch.split(puzzles.images, 20)]
    return told_right([learner.predict(belief) for belief in beliefs], beliefs, puzzles)


def _config(size: int, closed_form: bool) -> SudokuPairsConfig:
    pretrain = 0 if closed_form else 1000
    steps = pretrain + (3000 if size == 4 else 6000)
    config = SudokuPairsConfig(size, closed_form, steps, pretrain, decay=steps, average=0.999)
    return config if size == 4 else replace(config, spread=10.0, batch_size=5, learning_rate=2e-3)


def _published(size: int) -> SudokuPairsConfig:
    """The settings of the appendix: 5,000 epochs of ten batches, the first 50 for the network of pairs alone.

    Only that pairs are drawn one by one from the prior, and not whole grids, is ours.
    """
    return SudokuPairsConfig(size, steps=50_000, pretrain=500, learning_rate=0.00055, fitted=True)


SUDOKU = Experiment(
    name="sudoku",
    about="Visual Sudoku: telling correct grids of digits from incorrect ones.",
    entries=(
        Entry("exact/4x4", SudokuConfig(), {"accuracy": 86.7}, "exact inference, Chapter 6"),
        Entry("exact/4x4-averaged", SudokuConfig(decay=3000, average=0.99), {"accuracy": 89.8}, "A-NeSI, Chapter 6"),
        *[
            Entry(
                f"{table}/{size}x{size}",
                _config(size, table == "pairs"),
                {"accuracy": neural, "symbolic_accuracy": symbolic},
                "A-NeSI, Chapter 6",
            )
            for table in ("amortized", "pairs")
            for size, neural, symbolic in ((4, 89.80, 89.70), (9, 62.25, 62.15))
        ],
        *[
            Entry(
                f"published/{size}x{size}",
                _published(size),
                {"accuracy": neural, "symbolic_accuracy": symbolic},
                "A-NeSI, Chapter 6",
            )
            for size, neural, symbolic in ((4, 89.80, 89.70), (9, 62.25, 62.15))
        ],
        *NEURAL_SUDOKU,
    ),
    train=train,
    metrics=("accuracy", "symbolic_accuracy"),
)
"""Table ``amortized`` learns the probability that two cells differ, table ``pairs`` has it in closed form; table
``published`` is the first with the dissertation's settings."""
