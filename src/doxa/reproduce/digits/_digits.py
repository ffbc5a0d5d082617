"""A digit classifier: the smallest experiment that uses real data, a run folder and a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from doxa.data import MNIST, Batches
from doxa.reproduce._experiment import Given, Settings, Training, descend, train
from doxa.reproduce.digits._digits_report import write_report
from doxa.reproduce.digits._reading import read
from doxa.train import Row, Run, results_table
from doxa.train.runs._state import seeded
from doxa.train.runs._table import ResultsTable
from doxa.train.tasks._network import digit_network


@dataclass(frozen=True)
class DigitsConfig(Settings):
    """What `train_digits` does.

    >>> DigitsConfig(steps=100).learning_rate
    0.001
    """

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
    result = replace(
        train(config, Path(path), seed=seed, data=None, progress=progress, digits=mnist), experiment="digits"
    )
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
