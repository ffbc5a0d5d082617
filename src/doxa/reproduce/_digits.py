"""A digit classifier: the smallest experiment that uses real data, a run folder and a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from doxa.data import MNIST, Batches
from doxa.reproduce._experiment import Given, Settings, Training, descend, train
from doxa.reproduce._reading import read
from doxa.train import Row, Run, results_table
from doxa.train.report._page import Section, figure, picture, write_page
from doxa.train.runs._results import ResultsTable
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network

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
    run = Run.open(path)
    row = Row(
        "digits",
        "test accuracy (%)",
        measured=(100 * result.metrics["test_accuracy"],),
        seeds=(seed,),
        cpu_seconds=(run.load().cpu_seconds,),
        budget=f"{config.steps:,} steps",
        published=99.05,
        source="LeNet-5, LeCun et al. 1998",
    )
    table = results_table([row])
    table.write(run.path / "results")
    replace(result, experiment="digits").write(run.path / "result.json")
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
    shown = {
        "Learning curve": (
            "The loss on each logged batch, and the accuracy on digits held out.",
            _curve(run.metrics()),
            "learning-curve",
        ),
        "Confusion": (
            "How often each digit (row) is read as each digit (column), on the test set.",
            confusion,
            "confusion",
        ),
        "The first test digits": ("Above each, what the network reads and how sure it is.", first, "digits"),
        "Its surest mistakes": (misread, _digits(images, labels, log_probs, surest[:_SHOWN]), "mistakes"),
    }
    pictures = [
        Section(title, text, png=picture(drawing, run.figures / f"{name}.png"))
        for title, (text, drawing, name) in shown.items()
    ]
    sections = [Section("Result", table=result), *pictures]
    write_page(run.path / "report.html", "A digit classifier", sections, run)


def _curve(metrics: list[dict[str, Any]]) -> Any:
    drawing, (left, right) = figure(1, 2, size=(9, 3))
    for axes, name, title in [(left, "loss", "loss"), (right, "validation_accuracy", "validation accuracy (%)")]:
        points = [(line["step"], line[name]) for line in metrics if name in line]
        values = [100 * value if axes is right else value for _, value in points]
        axes.plot([step for step, _ in points], values, marker="o" if axes is right else None, linewidth=1)
        axes.set(xlabel="step", title=title)
        axes.grid(alpha=0.3)
    left.set_yscale("log")
    return drawing


def draw_confusion(axes: Any, counts: Tensor, cells: list[list[str]]) -> None:
    """How often each digit (row) is read as each digit (column), with what is written into the cells."""
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the root makes rare mistakes visible
    for row in range(10):
        for column in range(10):
            colour = "white" if shares[row, column] > 0.3 else "black"
            axes.text(column, row, cells[row][column], ha="center", va="center", color=colour, fontsize=7)
    axes.set(xlabel="read as", ylabel="is", xticks=range(10), yticks=range(10))


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
