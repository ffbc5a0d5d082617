"""Handwritten digits as the experiments read them, a network that knows nothing, and a digit classifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from doxa.data import MNIST, Batches, digits_task, normalize, split_indices, sudoku_problem, visual_sudoku
from doxa.problem import Belief, Problem, addition
from doxa.reproduce._experiment import Entry, Given, Settings, Training, descend, train
from doxa.train import Row, Run, results_table
from doxa.train.report._report import Section, draw_confusion, draw_metric, figure, picture, write_page
from doxa.train.runs._results import ResultsTable
from doxa.train.runs._state import seeded
from doxa.train.tasks._find import digit_network

PAIRINGS = 100
"""Accuracies are averages over so many ways to make sums of the test digits, each digit being in one sum of each."""
FEWER_PAIRINGS = 10
"""Of the network that knows nothing, over so many of them."""


DROPOUT = 0.2
"""The share that rows called dropout have, found on training digits held out."""


def perception(values: int = 10, *, dropout: float = 0.0) -> nn.Sequential:
    """The network that reads digits below ``values``; channels last, which is twice as fast for so few of them.

    ``dropout`` is the share of inputs that each linear layer is trained without, anew in every step.
    """
    network = digit_network()
    if values != 10:
        network[-1] = nn.Linear(84, values)
    if dropout:
        parts = [(nn.Dropout(dropout), part) if isinstance(part, nn.Linear) else (part,) for part in network]
        network = nn.Sequential(*[layer for part in parts for layer in part])
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def believe(network: nn.Module, images: Tensor) -> Belief:
    """What a network believes of rows of grey images ``(rows, K, 28, 28)``."""
    logits: Tensor = network(normalize(images.flatten(0, 1).unsqueeze(1)))
    return Belief.from_logits(torch.unflatten(logits, 0, images.shape[:2]))


def read(network: nn.Module, images: Tensor) -> Tensor:
    """The logits of grey images ``(n, 28, 28)``, a thousand at a time."""
    return torch.cat([network(normalize(part.unsqueeze(1))) for part in torch.split(images, 1000)])


def percent(right: Tensor) -> float:
    """How many of a hundred are right."""
    return 100 * right.double().mean().item()


def held_out(mnist: MNIST, count: int, *, seed: int) -> MNIST:
    """MNIST's training digits alone, of which so many are for testing; with 0, MNIST as it is."""
    if not count:
        return mnist
    tested, rest = split_indices(len(mnist.train_labels), count, seed=seed)
    images, labels = mnist.train_images, mnist.train_labels
    return MNIST(images[rest], labels[rest], images[tested], labels[tested])


def shifted(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Images ``(..., h, w)``, each moved by its own whole number of pixels; what comes in at the border is 0."""
    if not most:
        return images
    height, width = images.shape[-2:]
    flat = nn.functional.pad(images.reshape(-1, height, width), [most] * 4)
    moves = torch.randint(2 * most + 1, (2, len(flat), 1), generator=generator)
    rows, columns = moves[0] + torch.arange(height), moves[1] + torch.arange(width)
    places = rows.unsqueeze(2) * flat.shape[2] + columns.unsqueeze(1)
    return flat.flatten(1).gather(1, places.flatten(1)).view(images.shape)


def pairings(mnist: MNIST, problem: Problem) -> Iterator[Tensor]:
    """Ways to make sums of the test digits: int64 ``(sums, 2N)``, which digits."""
    count, width = len(mnist.test_labels), len(problem.world)
    for seed in range(PAIRINGS):
        yield split_indices(count, count // width * width, seed=seed)[0].reshape(-1, width)


def reference(digits: int) -> str:
    """What to compare with: a network that reads 99 of 100 digits right adds up so many in a hundred sums."""
    return f"0.99^{2 * digits}: {100 * 0.99 ** (2 * digits):.2f}"


class DigitsBaseline(nn.Module):
    """A purely neural answer to `doxa.data.digits_task`: the images are read by one network, their features joined.

        L = - Σ_j log softmax(g(f(x_1), …, f(x_K)))_j[y_j],

    with f the network that perceives digits, without its last layer, and g two linear layers. It must learn the
    function as well as the digits; whatever reasons is to be compared with it. Of the problem only the numbers of
    values are looked at; g has a layer of width ``hidden``.
    """

    def __init__(self, problem: Problem, hidden: int = 256) -> None:
        super().__init__()
        self.sizes = problem.output
        self.features = digit_network()[:-1]
        self.join = nn.Sequential(
            nn.Linear(84 * len(problem.world), hidden), nn.ReLU(), nn.Linear(hidden, sum(problem.output))
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The logits of each output, ``(n, values)``, from normalised images ``(n, K, 28, 28)``."""
        features = self.features(images.reshape(-1, 1, *images.shape[-2:])).reshape(len(images), -1)
        logits: Tensor = self.join(features)
        return torch.split(logits, list(self.sizes), -1)

    def loss(self, images: Tensor, outputs: Tensor) -> Tensor:
        """The cross entropy of all outputs ``(n, Y)``, averaged over the rows."""
        found = self(images)
        return torch.stack([cross_entropy(x, y) for x, y in zip(found, outputs.unbind(-1), strict=True)]).sum()

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The most probable value of each output, int64 ``(n, Y)``."""
        return torch.stack([x.argmax(-1) for x in self(images)], -1)


@dataclass(frozen=True)
class NeuralConfig(Settings):
    """Learn the sum of two numbers, or whether a grid is a Sudoku, straight from the images."""

    task: Literal["addition", "sudoku"] = "addition"  # what to learn
    size: int = 1  # the digits of each number, or the cells on a side of a grid
    steps: int = 3000  # batches to learn from
    batch_size: int = 64  # rows in a batch
    learning_rate: float = 1e-3  # of Adam
    hidden: int = 256  # the width of the layer that joins what is seen in the images
    puzzles: int = 200  # grids to train on, and as many to test on; half of them are correct
    save_every: int = 500  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        problem = addition(self.size) if self.task == "addition" else sudoku_problem(self.size)
        if self.task == "addition":
            task = digits_task(mnist, problem, seed=given.seed)
            images, outputs = task.images, task.outputs
            ways = islice(pairings(mnist, problem), FEWER_PAIRINGS)
            tests = [(mnist.test_images[rows], problem(mnist.labels("test")[rows])) for rows in ways]
        else:
            known, unknown = visual_sudoku(mnist, self.size, puzzles=self.puzzles, seed=given.seed)
            images, outputs = known.images, known.correct.long().unsqueeze(1)
            tests = [(unknown.images, unknown.correct.long().unsqueeze(1))]
        batches = Batches((images, outputs), min(self.batch_size, len(images)), seed=given.seed, drop_last=True)
        network = DigitsBaseline(problem, self.hidden)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)

        def step(i: int) -> Tensor:
            rows, labels = batches.next()
            return descend(network.loss(normalize(rows), labels), optimizer)

        def right(images: Tensor, outputs: Tensor) -> float:
            found = torch.cat([network.predict(normalize(part)) for part in torch.split(images, 100)])
            return (found == outputs).all(-1).double().mean().item()

        return Training(
            step,
            {"network": network, "optimizer": optimizer, "batches": batches},
            lambda run: {"accuracy": 100 * sum([right(*test) for test in tests]) / len(tests)},
        )


NEURAL_ADDITION = tuple(
    Entry(f"neural/n-{digits}", NeuralConfig("addition", digits, steps=steps), {}, reference(digits))
    for digits, steps in ((1, 9380), (2, 4680), (4, 2340), (15, 620))
)
"""20 epochs each."""
NEURAL_SUDOKU = tuple(
    Entry(
        f"neural/{size}x{size}",
        NeuralConfig("sudoku", size, steps=1000, batch_size=20),
        {"accuracy": published},
        "a CNN, Chapter 6",
    )
    for size, published in ((4, 51.5), (9, 51.2))
)
"""100 epochs each."""


_SHOWN = 12  # pictures of digits in a row


@dataclass(frozen=True)
class DigitsConfig(Settings):
    """What `train_digits` does."""

    steps: int = 5000  # how many batches are learned from; the default takes about a minute on one core
    batch_size: int = 64  # digits in a batch
    learning_rate: float = 1e-3  # of Adam
    validation: int = 10_000  # how many training digits are held out to choose the best checkpoint by
    evaluate_every: int = 500  # steps between two looks at them

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        held_out, rest = mnist.split(self.validation, seed=given.seed)
        images, labels = mnist.images("train"), mnist.labels("train")
        batches = Batches((images[rest], labels[rest]), self.batch_size, seed=given.seed)
        network = digit_network().to(images.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)

        def step(_: int) -> Tensor:
            x, y = batches.next()
            return descend(cross_entropy(network(x), y), optimizer)

        @torch.inference_mode()
        def right(images: Tensor, labels: Tensor) -> Tensor:
            return (read(network, images).argmax(1) == labels).double().mean()

        def evaluate() -> dict[str, Tensor]:
            return {"validation_accuracy": right(mnist.train_images[held_out], labels[held_out])}

        def measure(run: Run) -> dict[str, float]:
            network.load_state_dict(run.load("best").state["network"])
            return {"test_accuracy": right(mnist.test_images, mnist.labels("test")).item()}

        state = {"network": network, "optimizer": optimizer, "batches": batches}
        return Training(step, state, measure, evaluate=evaluate, best="validation_accuracy")


def train_digits(
    mnist: MNIST,
    path: str | Path,
    config: DigitsConfig | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
) -> ResultsTable:
    """Train a digit classifier in a run folder, or go on with it, and write the report.

    Args:
        mnist: the digits.
        path: the run folder; ``report.html``, ``results.md`` and ``result.json`` in it are written at the end.
        config: see `DigitsConfig`.
        seed: of the first parameters, the validation split and the order of the data.
        progress: show how far it is.

    Returns:
        The accuracy on the test digits, of the checkpoint that was best on the validation digits.

    >>> import tempfile
    >>> grey = torch.randint(256, (40, 28, 28), dtype=torch.uint8)
    >>> mnist = MNIST(grey, torch.arange(40) % 10, grey, torch.arange(40) % 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = train_digits(mnist, folder, DigitsConfig(steps=2, validation=10), progress=False)
    ...     (Path(folder) / "report.html").exists()
    True
    >>> table.rows[0].metric
    'test accuracy (%)'
    """
    config = config or DigitsConfig()
    result = train(config, Path(path), seed=seed, data=None, progress=progress, digits=mnist)
    run, result = Run.open(path), replace(result, experiment="digits")
    shown = replace(result, metrics={"test accuracy (%)": 100 * result.metrics["test_accuracy"]})
    row = Row.of([shown], "test accuracy (%)", published=99.05, source="LeNet-5, LeCun et al. 1998")
    table = results_table([row])
    table.write(run.path / "results")
    result.write(run.path / "result.json")
    with seeded(seed), torch.inference_mode():
        network = digit_network()
        network.load_state_dict(run.load("best").state["network"])
        log_probs = read(network, mnist.test_images.cpu()).log_softmax(1)
    write_report(run, table, mnist.test_images.cpu(), mnist.labels("test").cpu(), log_probs)
    return table


def write_report(run: Run, table: ResultsTable, images: Tensor, labels: Tensor, log_probs: Tensor) -> None:
    """Write ``report.html`` and its figures into the folder of a run that is done, for test images ``(n, 28, 28)``."""
    row = table.rows[0]
    result = {
        row.metric: f"{row.mean:.2f}",
        "published": f"{row.published} ({row.source})",
        "budget": row.budget,
        "CPU time": f"{row.cpu_seconds[0]:.0f} s",
    }
    guesses = log_probs.argmax(1)
    wrong = (guesses != labels).nonzero().flatten()
    surest = wrong[log_probs[wrong].max(1).values.argsort(descending=True)]
    counts = torch.bincount(10 * labels + guesses, minlength=100).reshape(10, 10)
    confusion, (axes,) = figure(1, 1, size=(6, 6))
    draw_confusion(axes, counts, [[str(count) for count in row] for row in counts.tolist()])
    first = _digits(images, labels, log_probs, torch.arange(min(_SHOWN, len(labels))))
    misread = f"{len(wrong):,} of {len(labels):,} test digits are misread. In brackets, the true digit."
    mistakes, curve = _digits(images, labels, log_probs, surest[:_SHOWN]), _curve(run.metrics())
    sections = [Section("Result", table=result)]
    learnt = "The loss on each logged batch, and the accuracy on digits held out."
    read_as = "How often each digit (row) is read as each digit (column), on the test set."
    for title, text, name, drawing in (
        ("Learning curve", learnt, "learning-curve", curve),
        ("Confusion", read_as, "confusion", confusion),
        ("The first test digits", "Above each, what the network reads and how sure it is.", "digits", first),
        ("Its surest mistakes", misread, "mistakes", mistakes),
    ):
        sections.append(Section(title, text, png=picture(drawing, run.figures / f"{name}.png")))
    write_page(run.path / "report.html", "A digit classifier", sections, run)


def _curve(metrics: list[dict[str, Any]]) -> Any:
    drawing, (left, right) = figure(1, 2, size=(9, 3))
    draw_metric(left, metrics, "loss")
    draw_metric(right, metrics, "validation_accuracy", 100, marker="o")
    left.set(title="loss", yscale="log")
    right.set_title("validation accuracy (%)")
    return drawing


def _digits(images: Tensor, labels: Tensor, log_probs: Tensor, chosen: Tensor) -> Any:
    drawing, cells = figure(2, _SHOWN // 2, size=(9, 3.6))
    for axes in cells:
        axes.axis("off")
    for axes, i in zip(cells, chosen.tolist(), strict=False):
        axes.imshow(255 - images[i].numpy(), cmap="gray", vmin=0, vmax=255)
        guess, truth = int(log_probs[i].argmax()), int(labels[i])
        sure = f"{100 * float(log_probs[i].max().exp()):.0f} %"
        axes.set_title(f"{guess}, {sure}" if guess == truth else f"{guess}, {sure} [{truth}]", fontsize=9)
    return drawing
