"""A digit classifier: the smallest experiment that uses real data, a run folder and a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from doxa.data import MNIST, Batches
from doxa.reproduce._experiment import descend, run_experiment
from doxa.reproduce.digits._digits_report import write_report
from doxa.train import Row, results_table
from doxa.train.runs._results import ResultsTable
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._settings import require_positive


@dataclass(frozen=True)
class DigitsConfig:
    """What `train_digits` does.

    Args:
        steps: how many batches are learned from; the default takes about a minute on one core.
        batch_size: digits in a batch.
        learning_rate: of Adam.
        validation: how many training digits are held out to choose the best checkpoint by.
        evaluate_every: steps between two looks at them.

    >>> DigitsConfig(steps=100).learning_rate
    0.001
    """

    steps: int = 5000
    batch_size: int = 64
    learning_rate: float = 1e-3
    validation: int = 10_000
    evaluate_every: int = 500

    def __post_init__(self) -> None:
        require_positive(self, "steps", "batch_size", "learning_rate", "validation", "evaluate_every")


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
    held_out, rest = mnist.split(config.validation, seed=seed)
    images, labels = mnist.images("train"), mnist.labels("train")
    batches = Batches((images[rest], labels[rest]), config.batch_size, seed=seed)
    unseen, truth = images[held_out], labels[held_out]
    with seeded(seed):
        network = digit_network()
    network.to(images.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)

    def step(_: int) -> Tensor:
        x, y = batches.next()
        return descend(cross_entropy(network(x), y), optimizer)

    def evaluate() -> dict[str, Tensor]:
        return {"validation_accuracy": (_log_probs(network, unseen).argmax(1) == truth).double().mean()}

    run, result = run_experiment(
        config,
        Path(path),
        step,
        {"network": network, "optimizer": optimizer, "batches": batches},
        seed=seed,
        experiment="digits",
        evaluate=evaluate,
        best="validation_accuracy",
        evaluate_every=config.evaluate_every,
        save_every=config.evaluate_every,
        progress=progress,
    )
    network.load_state_dict(run.load("best").state["network"])
    log_probs = _log_probs(network, mnist.images("test")).cpu()
    right = (log_probs.argmax(1) == mnist.labels("test").cpu()).double().mean().item()
    table = results_table(
        [
            Row(
                "digits",
                "test accuracy (%)",
                measured=(100 * right,),
                seeds=(seed,),
                cpu_seconds=(run.load().cpu_seconds,),
                budget=f"{config.steps:,} steps",
                published=99.05,
                source="LeNet-5, LeCun et al. 1998",
            )
        ]
    )
    table.write(run.path / "results")
    replace(result, metrics={**result.metrics, "test_accuracy": right}).write(run.path / "result.json")
    write_report(run, table, mnist.test_images.cpu(), mnist.labels("test").cpu(), log_probs)
    return table


@torch.inference_mode()
def _log_probs(network: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([network(chunk).log_softmax(1) for chunk in torch.split(images, 1000)])
