"""The discrete VAE on MNIST: one model, one line changed for each gradient estimator (Chapter 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, OneHotCategorical
from torch.nn.functional import leaky_relu, linear, logsigmoid, softplus

from doxa import stochastic
from doxa.data import MNIST, Batches
from doxa.errors import ConfigError
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, by_budget, descend, saved, train
from doxa.train import Result, Run
from doxa.train.report._report import figure

Latents = Literal["bernoulli", "categorical"]

LATENTS = 20
VALUES: dict[Latents, int] = {"bernoulli": 2, "categorical": 10}
SLOPE = 0.1  # of leaky_relu below 0


class DiscreteVAE(nn.Module):
    """Binary images x explained by 20 discrete variables z, each with a uniform prior p(z).

    The encoder 784-512-256 gives q(z|x), the decoder 256-512-784 gives p(x|z), with leaky ReLUs between. The negative
    evidence lower bound is an expectation over q and a divergence that is known exactly:

        −ELBO(x) = E_{z ~ q(z|x)}[ −log p(x|z) ] + KL(q(z|x) ‖ p(z)).
    """

    def __init__(self, latents: Latents) -> None:
        super().__init__()
        self.binary = latents == "bernoulli"
        self.values = VALUES[latents]
        self.width = LATENTS * (1 if self.binary else self.values)
        self.encoder = nn.ModuleList([nn.Linear(784, 512), nn.Linear(512, 256), nn.Linear(256, self.width)])
        self.decoder = nn.ModuleList([nn.Linear(self.width, 256), nn.Linear(256, 512), nn.Linear(512, 784)])

    def logits(self, x: Tensor) -> Tensor:
        """The parameters of q(z|x), (batch, 20) or (batch, 20, 10)."""
        out = _layers(self.encoder, x)
        return out if self.binary else out.reshape(-1, LATENTS, self.values)

    def posterior(self, logits: Tensor) -> Distribution:
        """q(z|x)."""
        base = Bernoulli if self.binary else OneHotCategorical
        return Independent(base(logits=logits, validate_args=False), 1, validate_args=False)

    def reconstruction(self, z: Tensor, x: Tensor, *, frozen: bool = False) -> Tensor:
        """−log p(x|z) for values z (samples, batch, …), which may be relaxed, as (samples, batch).

        With logits o it is Σ log(1 + exp((1 − 2x) o)). ``frozen`` keeps the decoder out of the gradient.
        """
        out = _layers(self.decoder, z if self.binary else z.flatten(-2), frozen=frozen)
        return softplus((1 - 2 * x) * out).sum(-1)

    def divergence(self, logits: Tensor) -> Tensor:
        """KL(q(z|x) ‖ p(z)) = Σ q log q + 20 log C, (batch,)."""
        if self.binary:
            log_q = torch.stack([logsigmoid(-logits), logsigmoid(logits)], -1)
        else:
            log_q = logits.log_softmax(-1)
        return (log_q.exp() * log_q).sum((-2, -1)) + LATENTS * math.log(self.values)


class ControlVariate(nn.Module):
    """What RELAX learns: c(z) = η f(z/τ) + r(z/τ), the cost of a relaxed sample and a small network beside it.

    Both see σ(z/τ) or softmax(z/τ); η, τ and r are trained to lower the variance of the gradient.
    """

    def __init__(self, cost: Callable[[Tensor], Tensor], model: DiscreteVAE) -> None:
        super().__init__()
        self.cost, self.binary = cost, model.binary
        self.log_temperature = nn.Parameter(torch.tensor(0.5).log())
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.network = nn.Sequential(nn.Linear(model.width, 50), nn.LeakyReLU(SLOPE), nn.Linear(50, 1))

    def forward(self, z: Tensor) -> Tensor:
        z = z / self.log_temperature.exp()
        soft = torch.sigmoid(z) if self.binary else torch.softmax(z, -1)
        free: Tensor = self.network(soft if self.binary else soft.flatten(-2)).squeeze(-1)
        return self.scale * self.cost(soft) + free


def _layers(layers: nn.ModuleList, x: Tensor, *, frozen: bool = False) -> Tensor:
    for i, layer in enumerate(layers):
        assert isinstance(layer, nn.Linear)
        weight, bias = (layer.weight.detach(), layer.bias.detach()) if frozen else (layer.weight, layer.bias)
        x = linear(leaky_relu(x, SLOPE) if i else x, weight, bias)
    return x


EPOCH = 938  # batches of 64 in the 60,000 training images


@dataclass(frozen=True)
class VAEConfig(Settings):
    """One row of the table of discrete VAEs."""

    zero = ("cooling",)
    latents: Latents = "bernoulli"  # 20 Bernoulli variables, or 20 categorical ones of ten values
    estimator: str = "loo@5"  # a name, and after ``@`` the number of samples
    steps: int = 100 * EPOCH  # batches to learn from; the default is the published 100 epochs
    batch_size: int = 64  # images in a batch
    learning_rate: float = 1e-3  # of Adam, for the model and for what an estimator learns
    temperature: float = 1.0  # of the Gumbel relaxations at the start
    cooling: float = 1e-5  # the share that this temperature loses in each step
    evaluate_every: int = EPOCH  # steps between two looks at the test images

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cooling >= 1:
            raise ConfigError(f"cooling is {self.cooling}, expected 0 <= cooling < 1")
        kind, _, count = self.estimator.partition("@")
        if kind not in MAKE or not count.isdigit():
            raise ConfigError(
                f"estimator is {self.estimator!r}, expected one of {', '.join(MAKE)}, then @ and a number"
            )
        if kind in ("arm", "disarm") and self.latents != "bernoulli":
            raise ConfigError(f"{kind} is for Bernoulli variables, and latents is {self.latents!r}")

    def training(self, given: Given) -> Training:
        mnist = given.mnist()
        images, unseen = binarised(mnist, "train"), binarised(mnist, "test")
        model = DiscreteVAE(self.latents)
        kind, _, count = self.estimator.partition("@")
        estimator = MAKE[kind](int(count), lambda z: model.reconstruction(z, x, frozen=True), model)
        batches = Batches((images,), self.batch_size, seed=given.seed)
        noise = torch.Generator().manual_seed(given.seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate, fused=True)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer, "batches": batches, "noise": noise}
        learnt: list[nn.Parameter] = []
        if isinstance(estimator, nn.Module):
            learnt = list(estimator.parameters())
            second = torch.optim.Adam(learnt, lr=self.learning_rate, fused=True)
            state |= {"estimator": estimator, "second": second}
        x = torch.empty(0, 784)  # the batch; control variates look at it

        def step(i: int) -> Tensor:
            nonlocal x
            x = batches.next()[0].float()
            if isinstance(estimator, stochastic.GumbelSoftmax):
                estimator.temperature = self.temperature * (1 - self.cooling) ** i
            tape = stochastic.Tape(batch_dims=1, generator=noise)
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
            found = {"test": negative_elbo(model, unseen, given.seed)}
            if isinstance(estimator, stochastic.GumbelSoftmax) and not estimator.hard:
                found["relaxed_test"] = negative_elbo(model, unseen, given.seed, estimator)
            return found

        def measure(run: Run) -> dict[str, float]:
            lowest = min(line["test"] for line in run.metrics() if "test" in line)
            return {"train": negative_elbo(model, images, given.seed), "lowest_test": lowest}

        return Training(step, state, measure, evaluate=evaluate)


Cost = Callable[[Tensor], Tensor]
MAKE: dict[str, Callable[[int, Cost, DiscreteVAE], stochastic.Estimator]] = {
    "score": lambda n, cost, model: stochastic.Score(n),
    "loo": lambda n, cost, model: stochastic.LeaveOneOut(n),
    "rebar": lambda n, cost, model: stochastic.REBAR(cost, n),
    "relax": lambda n, cost, model: stochastic.RELAX(ControlVariate(cost, model), n),
    "unordered-set": lambda n, cost, model: stochastic.UnorderedSet(n),
    "gumbel": lambda n, cost, model: stochastic.GumbelSoftmax(n=n),
    "gumbel-st": lambda n, cost, model: stochastic.GumbelSoftmax(n=n, hard=True),
    "arm": lambda n, cost, model: stochastic.ARM(n),
    "disarm": lambda n, cost, model: stochastic.DisARM(n),
    "go": lambda n, cost, model: stochastic.GO(n),
    "sum-and-sample": lambda n, cost, model: stochastic.SumAndSample(n, top=1),
}


def binarised(mnist: MNIST, split: str) -> Tensor:
    """The images of a split as 0 and 1, uint8 (n, 784): each pixel is drawn once, 1 with its grey value as probability.

    The draw is part of the data: it is the same for all runs.
    """
    grey = (mnist.train_images if split == "train" else mnist.test_images).flatten(1)
    random = torch.Generator().manual_seed(0 if split == "train" else 1)
    parts = [torch.rand(part.shape, generator=random) < part / 255 for part in torch.split(grey, 1000)]
    return torch.cat(parts).to(torch.uint8)


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
def negative_elbo(
    model: DiscreteVAE, images: Tensor, seed: int, relaxation: stochastic.Estimator | None = None
) -> float:
    """The average −ELBO of images, with one sample for each: of the posterior itself, or of a relaxation of it."""
    noise, total = torch.Generator().manual_seed(seed), 0.0
    for chunk in torch.split(images, 1000):
        x = chunk.float()
        logits = model.logits(x)
        z = stochastic.Tape(batch_dims=1, generator=noise).sample(
            model.posterior(logits), relaxation or stochastic.Score()
        )
        total += float((model.reconstruction(z, x) + model.divergence(logits)).double().sum())
    return total / len(images)


def _reconstruction(model: DiscreteVAE, z: Tensor, x: Tensor, estimator: stochastic.Estimator) -> Tensor:
    """The cost of every sample. ARM and GO give weight 0 to all after the first n: no gradient is needed there."""
    live = estimator.n if isinstance(estimator, stochastic.ARM | stochastic.GO) else len(z)
    cost = model.reconstruction(z[:live], x)
    if live == len(z):
        return cost
    with torch.no_grad():
        others = model.reconstruction(z[live:], x)
    return torch.cat([cost, others])


SOURCE = "Chapter 5, lowest of 100 epochs"
PUBLISHED = """
score@1          | 191.3 191.9  | 206.3 206.7
loo@5            | 110.8 110.4  | 111.2 110.4
rebar@1          | 220.0 1000.0 | 155.6 154.9
relax@1          | 210.6 205.9  | 202.5 201.7
unordered-set@5  | 117.1 138.4  | 115.4 117.2
gumbel@1         | 107.0 106.6  | 92.9 92.6
gumbel-st@1      | 113.0 112.9  | 98.3 98.0
arm@1            | 131.3 130.8  |
disarm@1         | 125.1 124.3  |
go@1             |              |
sum-and-sample@5 |              |
"""
"""−ELBO on training and on validation images, the lowest of 100 epochs, for Bernoulli and for categorical variables."""


def _entries(latents: Latents, column: int) -> Iterator[Entry]:
    for line in PUBLISHED.strip().splitlines():
        estimator, *columns = [part.strip() for part in line.split("|")]
        if latents == "bernoulli" or estimator not in ("arm@1", "disarm@1"):
            known = dict(zip(("train", "lowest_test"), map(float, columns[column].split()), strict=False))
            yield Entry(f"{latents}/{estimator}", VAEConfig(latents, estimator), known, SOURCE if known else "")


ENTRIES = (*_entries("bernoulli", 0), *_entries("categorical", 1))


def _draw_bounds(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw the lowest −ELBO on test images: a dot for each entry and budget, the mean over seeds; published values as
    circles.
    """
    found = {key: mean(r.metrics["lowest_test"] for r in group) for key, group in by_budget(results).items()}
    if not found:
        return []
    drawing, cells = figure(1, len(VALUES), size=(9, 4))
    for axes, table in zip(cells, VALUES, strict=True):
        rows = {f"vae/{entry.name}": i for i, entry in enumerate(e for e in ENTRIES if e.table == table)}
        published = {rows[f"vae/{e.name}"]: e.published.get("lowest_test", 1e3) for e in ENTRIES if e.table == table}
        shown = {row: value for row, value in published.items() if value < 1e3}
        axes.scatter(list(shown.values()), list(shown), facecolors="none", edgecolors="grey", label="published")
        for steps in sorted({steps for _, steps in found}):
            here = {rows[name]: value for (name, s), value in found.items() if s == steps and name in rows}
            axes.scatter(list(here.values()), list(here), label=f"{steps:,} steps", zorder=2)
        axes.set_yticks(list(rows.values()), [name.split("/")[2] for name in rows])
        axes.set(title=table, xlabel="lowest −ELBO on test images (nats)", ylim=(len(rows) - 0.5, -0.5))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
    return [saved(drawing, folder / "bounds.png")]


VAE = Experiment(
    name="vae",
    about="Discrete VAEs on MNIST: −ELBO in nats.",
    entries=ENTRIES,
    train=train,
    metrics=("train", "lowest_test", "test", "relaxed_test"),
    draw=_draw_bounds,
)
"""All metrics are averages of −ELBO over images, in nats: ``test`` and ``train``, over all test and all training images
after the last step, with one discrete sample for each image and the exact divergence; ``lowest_test``, the lowest
``test`` of all evaluations; for relaxations ``relaxed_test``, the same with relaxed samples in place of discrete ones;
``loss``, the estimate of the last batch."""
