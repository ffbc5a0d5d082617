"""Visual Sudoku: digits are learnt from whether grids are correct; by exact inference here (Chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches, SudokuPuzzles, is_sudoku, normalize, visual_sudoku
from doxa.data._sudoku import sudoku_pairs
from doxa.errors import ConfigError
from doxa.exact import Constraint
from doxa.logic import And, Constant, Function, Sort, ground
from doxa.logic.unfold._propositional import Propositional
from doxa.problem import Belief
from doxa.reproduce._experiment import Entry, Experiment, by_config, descend, moving_average, run_experiment
from doxa.reproduce.digits._neural import NEURAL_SUDOKU, NeuralConfig, train_neural
from doxa.reproduce.sudoku._pairs import PAIRS_ENTRIES, SudokuPairsConfig, train_sudoku_pairs
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._settings import half_cosine, require_decay, require_nonnegative, require_positive


@dataclass(frozen=True)
class SudokuConfig:
    """Learn the digits of grids from whether these are Sudokus, by exact inference.

    Args:
        size: of the grids; 4, for the circuit of 9 × 9 is out of reach.
        steps: batches to learn from; the published number is 300 epochs.
        puzzles: to train on, and as many to test on; half of them are correct.
        batch_size: puzzles in a batch.
        learning_rate: of Adam at its highest.
        decay: the step at which the learning rate has fallen to 0, along half a cosine; 0 leaves it as it is.
        average: decay of the moving average of the parameters that is tested; 0 tests the last parameters themselves.
        save_every: steps between two checkpoints; the last one counts.

    >>> SudokuConfig().steps
    3000
    """

    size: int = 4
    steps: int = 3000
    puzzles: int = 200
    batch_size: int = 20
    learning_rate: float = 1e-3
    decay: int = 0
    average: float = 0.0
    save_every: int = 500

    def __post_init__(self) -> None:
        require_positive(self, "steps", "puzzles", "batch_size", "learning_rate", "save_every")
        if self.size != 4:
            raise ConfigError(f"size is {self.size}, expected 4: exact inference does not reach larger grids")
        require_nonnegative(self, "decay")
        require_decay(self, "average")

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.learning_rate * half_cosine(step, self.decay)


def sudoku_constraint(size: int) -> Constraint:
    """That a grid is a Sudoku, as knowledge about its cells: world variable i is the digit in cell i."""
    cells = [Constant(f"c{i}", Sort("Cell")).term for i in range(size * size)]
    digit = Function("digit", (Sort("Cell"),), Sort.range("Digit", 0, size - 1))
    rules = [digit(cells[a]).ne(digit(cells[b])) for a, b in sudoku_pairs(size).tolist()]
    found = ground(And(*rules))
    ordered = tuple([digit(cell).eq(value) for cell in cells for value in range(size)])
    return Constraint(Propositional({"sudoku": found.formula}, (), found.constraints, ordered), impossible="finite")


def train_sudoku(config: SudokuConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Train in a run folder, or go on with it. The loss of a correct grid is -log p, of an incorrect one -log(1 - p).

    The seed is also that of the puzzles, so each seed is a split of its own. Metrics of the result, in percent of the
    test puzzles: ``accuracy``, those that are told right by whether p is above 1/2; ``symbolic_accuracy``, by whether
    the digits read one by one are a Sudoku. ``loss`` is that of the last batch, in nats.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    known, unknown = visual_sudoku(mnist, config.size, puzzles=config.puzzles, seed=seed)
    constraint = sudoku_constraint(config.size)
    batches = Batches((known.images, known.correct), config.batch_size, seed=seed)
    with seeded(seed):
        network = digit_network()
        network[-1] = nn.Linear(84, config.size)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = moving_average(network, config.average)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)

    def step(i: int) -> Tensor:
        images, correct = batches.next()
        loss = constraint.loss(believe(network, images), correct.long().unsqueeze(-1)).mean()
        loss = descend(loss, optimizer, rate=config.rate(i))
        average.update_parameters(network)
        return loss

    state = {"network": network, "average": average, "optimizer": optimizer, "batches": batches}
    _, result = run_experiment(config, path, step, state, seed=seed, save_every=config.save_every, progress=progress)
    return replace(result, metrics={**result.metrics, **measure(average, unknown, constraint)})


def believe(network: nn.Module, images: Tensor) -> Belief:
    """What a network believes of the digits in grids ``(puzzles, cells, 28, 28)``."""
    return Belief.from_logits(network(normalize(images.flatten(0, 1).unsqueeze(1))).unflatten(0, images.shape[:2]))


@torch.inference_mode()
def measure(network: nn.Module, puzzles: SudokuPuzzles, constraint: Constraint) -> dict[str, float]:
    """How many puzzles are told right, in percent."""
    belief = believe(network, puzzles.images)
    likely = constraint.probability(belief) > 0.5
    read = is_sudoku(belief.mode())
    return {
        "accuracy": 100 * (likely == puzzles.correct).double().mean().item(),
        "symbolic_accuracy": 100 * (read == puzzles.correct).double().mean().item(),
    }


SUDOKU = Experiment(
    name="sudoku",
    about="Visual Sudoku: telling correct grids of digits from incorrect ones.",
    entries=(
        Entry("exact/4x4", SudokuConfig(), {"accuracy": 86.7}, "exact inference, Chapter 6"),
        Entry(
            "exact/4x4-averaged",
            SudokuConfig(decay=3000, average=0.99),
            {"accuracy": 89.8},
            "A-NeSI, Chapter 6",
        ),
        *PAIRS_ENTRIES,
        *NEURAL_SUDOKU,
    ),
    train=by_config({SudokuConfig: train_sudoku, SudokuPairsConfig: train_sudoku_pairs, NeuralConfig: train_neural}),
    metrics=("accuracy", "symbolic_accuracy"),
)
