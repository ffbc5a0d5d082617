"""The discrete VAE on MNIST: one model, one line changed for each gradient estimator (Chapter 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches
from doxa.errors import ConfigError
from doxa.reproduce._experiment import Entry, Experiment, descend, run_experiment
from doxa.reproduce.vae._figures import draw_bounds
from doxa.reproduce.vae._model import ControlVariate, DiscreteVAE, Latents
from doxa.stochastic import (
    ARM,
    GO,
    REBAR,
    RELAX,
    DisARM,
    Estimator,
    GumbelSoftmax,
    LeaveOneOut,
    Score,
    SumAndSample,
    Tape,
    UnorderedSet,
)
from doxa.train import Result
from doxa.train.runs._state import seeded
from doxa.train.tasks._settings import require_positive

EPOCH = 938  # batches of 64 in the 60,000 training images


@dataclass(frozen=True)
class VAEConfig:
    """One row of the table of discrete VAEs.

    Args:
        latents: 20 Bernoulli variables, or 20 categorical ones of ten values.
        estimator: a name, and after ``@`` the number of samples.
        steps: batches to learn from; the default is the published 100 epochs.
        batch_size: images in a batch.
        learning_rate: of Adam, for the model and for what an estimator learns.
        temperature: of the Gumbel relaxations at the start.
        cooling: the share that this temperature loses in each step.
        evaluate_every: steps between two looks at the test images.

    >>> VAEConfig("categorical", "loo@5").steps
    93800
    """

    latents: Latents = "bernoulli"
    estimator: str = "loo@5"
    steps: int = 100 * EPOCH
    batch_size: int = 64
    learning_rate: float = 1e-3
    temperature: float = 1.0
    cooling: float = 1e-5
    evaluate_every: int = EPOCH

    def __post_init__(self) -> None:
        require_positive(self, "steps", "batch_size", "learning_rate", "temperature", "evaluate_every")
        if not 0 <= self.cooling < 1:
            raise ConfigError(f"cooling is {self.cooling}, expected 0 <= cooling < 1")
        kind, _, count = self.estimator.partition("@")
        if kind not in MAKE or not count.isdigit():
            raise ConfigError(
                f"estimator is {self.estimator!r}, expected one of {', '.join(MAKE)}, then @ and a number"
            )
        if kind in ("arm", "disarm") and self.latents != "bernoulli":
            raise ConfigError(f"{kind} is for Bernoulli variables, and latents is {self.latents!r}")


Cost = Callable[[Tensor], Tensor]
MAKE: dict[str, Callable[[int, Cost, DiscreteVAE], Estimator]] = {
    "score": lambda n, cost, model: Score(n),
    "loo": lambda n, cost, model: LeaveOneOut(n),
    "rebar": lambda n, cost, model: REBAR(cost, n),
    "relax": lambda n, cost, model: RELAX(ControlVariate(cost, model), n),
    "unordered-set": lambda n, cost, model: UnorderedSet(n),
    "gumbel": lambda n, cost, model: GumbelSoftmax(n=n),
    "gumbel-st": lambda n, cost, model: GumbelSoftmax(n=n, hard=True),
    "arm": lambda n, cost, model: ARM(n),
    "disarm": lambda n, cost, model: DisARM(n),
    "go": lambda n, cost, model: GO(n),
    "sum-and-sample": lambda n, cost, model: SumAndSample(n, top=1),
}


def binarised(mnist: MNIST, split: str) -> Tensor:
    """The images of a split as 0 and 1, uint8 (n, 784): each pixel is drawn once, 1 with its grey value as probability.

    The draw is part of the data: it is the same for all runs.
    """
    grey = (mnist.train_images if split == "train" else mnist.test_images).flatten(1)
    random = torch.Generator().manual_seed(0 if split == "train" else 1)
    parts = [torch.rand(part.shape, generator=random) < part / 255 for part in torch.split(grey, 1000)]
    return torch.cat(parts).to(torch.uint8)


def train_vae(config: VAEConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Train a discrete VAE in a run folder, or go on with it.

    Metrics of the result, all of them averages of −ELBO over images, in nats: ``test`` and ``train``, over all test and
    all training images after the last step, with one discrete sample for each image and the exact divergence;
    ``lowest_test``, the lowest ``test`` of all evaluations; for relaxations ``relaxed_test``, the same with relaxed
    samples in place of discrete ones; ``loss``, the estimate of the last batch.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    images, unseen = binarised(mnist, "train"), binarised(mnist, "test")
    with seeded(seed):
        model = DiscreteVAE(config.latents)
        kind, _, count = config.estimator.partition("@")
        estimator = MAKE[kind](int(count), lambda z: model.reconstruction(z, x, frozen=True), model)
    batches = Batches((images,), config.batch_size, seed=seed)
    noise = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "batches": batches, "noise": noise}
    learnt: list[nn.Parameter] = []
    if isinstance(estimator, nn.Module):
        learnt = list(estimator.parameters())
        second = torch.optim.Adam(learnt, lr=config.learning_rate, fused=True)
        state |= {"estimator": estimator, "second": second}
    x = torch.empty(0, 784)  # the batch; control variates look at it

    def step(i: int) -> Tensor:
        nonlocal x
        x = batches.next()[0].float()
        if isinstance(estimator, GumbelSoftmax):
            estimator.temperature = _temperature(config, i)
        tape = Tape(batch_dims=1, generator=noise)
        logits = model.logits(x)
        z = tape.sample(model.posterior(logits), estimator)
        tape.cost(_reconstruction(model, z, x, estimator))
        tape.cost(model.divergence(logits))
        if not learnt:
            return descend(tape.surrogate(allow_biased=True), optimizer)
        loss = tape.surrogate(order=2)
        optimizer.zero_grad()
        backward_with_variance(loss, logits, list(model.decoder.parameters()), learnt)
        second.step()
        optimizer.step()
        return loss.detach()

    def evaluate() -> dict[str, float]:
        found = {"test": negative_elbo(model, unseen, seed)}
        if isinstance(estimator, GumbelSoftmax) and not estimator.hard:
            found["relaxed_test"] = negative_elbo(model, unseen, seed, estimator)
        return found

    run, result = run_experiment(
        config,
        path,
        step,
        state,
        seed=seed,
        evaluate=evaluate,
        evaluate_every=config.evaluate_every,
        save_every=config.evaluate_every,
        progress=progress,
    )
    lowest = min(line["test"] for line in run.metrics() if "test" in line)
    return replace(
        result, metrics={**result.metrics, "train": negative_elbo(model, images, seed), "lowest_test": lowest}
    )


def backward_with_variance(
    loss: Tensor, logits: Tensor, decoder: list[nn.Parameter], learnt: list[nn.Parameter]
) -> None:
    """``loss.backward()``, and for what the control variate learns the gradient of Σ g², with g that of an image at its
    logits (`Tape.variance_objective`). Only there does the control variate change anything: one pass serves both.
    """
    slope, *rest = torch.autograd.grad(loss, [logits, *decoder], create_graph=True)
    variance = torch.autograd.grad((len(logits) * slope).square().sum(), learnt, retain_graph=True)
    for parameter, gradient in zip([*decoder, *learnt], [*rest, *variance], strict=True):
        parameter.grad = gradient.detach()
    torch.autograd.backward(logits, slope.detach())


@torch.no_grad()
def negative_elbo(model: DiscreteVAE, images: Tensor, seed: int, relaxation: Estimator | None = None) -> float:
    """The average −ELBO of images, with one sample for each: of the posterior itself, or of a relaxation of it."""
    noise, total = torch.Generator().manual_seed(seed), 0.0
    for chunk in torch.split(images, 1000):
        x = chunk.float()
        logits = model.logits(x)
        z = Tape(batch_dims=1, generator=noise).sample(model.posterior(logits), relaxation or Score())
        total += float((model.reconstruction(z, x) + model.divergence(logits)).double().sum())
    return total / len(images)


def _temperature(config: VAEConfig, i: int) -> float:
    return config.temperature * (1 - config.cooling) ** i


def _reconstruction(model: DiscreteVAE, z: Tensor, x: Tensor, estimator: Estimator) -> Tensor:
    """The cost of every sample. ARM and GO give weight 0 to all after the first n: no gradient is needed there."""
    live = estimator.n if isinstance(estimator, ARM | GO) else len(z)
    cost = model.reconstruction(z[:live], x)
    if live == len(z):
        return cost
    with torch.no_grad():
        others = model.reconstruction(z[live:], x)
    return torch.cat([cost, others])


SOURCE = "Chapter 5, lowest of 100 epochs"
PUBLISHED: dict[Latents, dict[str, tuple[float, float] | None]] = {  # −ELBO on training and on validation images
    "bernoulli": {
        "score@1": (191.3, 191.9),
        "loo@5": (110.8, 110.4),
        "rebar@1": (220.0, 1000.0),
        "relax@1": (210.6, 205.9),
        "unordered-set@5": (117.1, 138.4),
        "gumbel@1": (107.0, 106.6),
        "gumbel-st@1": (113.0, 112.9),
        "arm@1": (131.3, 130.8),
        "disarm@1": (125.1, 124.3),
        "go@1": None,
        "sum-and-sample@5": None,
    },
    "categorical": {
        "score@1": (206.3, 206.7),
        "loo@5": (111.2, 110.4),
        "rebar@1": (155.6, 154.9),
        "relax@1": (202.5, 201.7),
        "unordered-set@5": (115.4, 117.2),
        "gumbel@1": (92.9, 92.6),
        "gumbel-st@1": (98.3, 98.0),
        "go@1": None,
        "sum-and-sample@5": None,
    },
}


def _entry(latents: Latents, estimator: str, published: tuple[float, float] | None) -> Entry:
    name, config = f"{latents}/{estimator}", VAEConfig(latents, estimator)
    if published is None:
        return Entry(name, config)
    return Entry(name, config, {"train": published[0], "test": published[1]}, SOURCE)


ENTRIES = tuple(_entry(latents, *row) for latents, rows in PUBLISHED.items() for row in rows.items())

VAE = Experiment(
    name="vae",
    about="Discrete VAEs on MNIST: −ELBO in nats.",
    entries=ENTRIES,
    train=train_vae,
    metrics=("test", "train", "relaxed_test"),
    draw=lambda results, folder: draw_bounds(results, ENTRIES, folder),
)
