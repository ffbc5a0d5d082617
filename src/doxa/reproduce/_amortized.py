"""MNIST addition by amortised inference, A-NeSI: the answers to sums are learnt as well (Chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from doxa import amortized
from doxa.amortized import AdditionPruner, AmortizedReasoner
from doxa.data import MNIST, Batches, digits_task
from doxa.errors import ConfigError, RunError
from doxa.exact import Elimination
from doxa.problem import Belief, Problem, addition
from doxa.reproduce._digits import (
    DROPOUT,
    believe,
    held_out,
    pairings,
    percent,
    perception,
    read,
    reference,
    shifted,
)
from doxa.reproduce._experiment import Entry, Given, Settings, Training
from doxa.train import GlobalRandom, Run, load_config
from doxa.train.tasks._fit import moving_average

Variant = Literal["predict", "explain", "prune", "no-prior"]
ModelName = Literal["mlp", "scan"]
NEURAL_PAIRINGS = 10
"""Sums are predicted by search for so many ways to make them of the test digits; read digit by digit, for 100 ways."""
CALIBRATED = 100
"""The divergence from exact inference is measured on the beliefs about so many sums."""


@dataclass(frozen=True)
class AmortizedAdditionConfig(Settings):
    """Learn digits from sums of two numbers, by -log q(sum) of an inference model that is learnt too."""

    digits: int = 1  # N, of each number; the training digits make 60,000 / 2N sums, each digit being in one of them
    # ``"predict"`` learns q(y | P) only, ``"explain"`` also q(w | y, P), ``"prune"`` that with the pruner of sums;
    # ``"no-prior"`` predicts only, and learns from the beliefs of perception instead of a prior
    variant: Variant = "predict"
    # ``"mlp"``, a network for each digit, with a Dirichlet prior that is fitted, as published; or ``"scan"``, one cell
    # for all columns, with a mixture of Dirichlet priors
    model: ModelName = "scan"
    steps: int = 10_000  # in all, those of pretraining included
    pretrain: int = 0  # the first so many steps train the inference model alone
    batch_size: int = 16  # sums in a batch
    samples: int = 600  # beliefs drawn from the prior in a step
    predicting: float = 0.0  # the share of the prediction loss in that of a model that explains
    hidden: int = 64  # the width of the inference model
    learning_rate: float = 1e-3  # of perception, by AdamW, at its highest
    inference_rate: float = 1e-3  # of the inference model, by Adam, at its highest
    warmup: int = 1  # so many steps in which each of the two rises along a line
    decay: int = 0  # the step at which both have fallen to 0, along half a cosine; 0 leaves them as they are
    weight_decay: float = 0.0  # of AdamW
    average: float = 0.0  # decay of the moving average of the parameters that is tested; 0 tests the last ones
    shift: int = 0  # each training image is moved by at most so many pixels each way, anew every time
    dropout: float = 0.0  # the share of its inputs that each linear layer of perception is trained without
    beams: int = 8  # the width of the search for the most probable sum
    curve: int = 0  # so many steps between two looks at the accuracies, which choose nothing; 0 takes none but the last
    validation: int = 0  # so many training digits are held out and measured in place of the test digits
    save_every: int = 500  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        mnist = held_out(given.mnist(), self.validation, seed=given.seed)
        problem = addition(self.digits)
        task = digits_task(mnist, problem, seed=given.seed)
        batches = Batches((task.images, task.outputs), min(self.batch_size, len(task)), seed=given.seed, drop_last=True)
        noise = torch.Generator().manual_seed(given.seed)
        engine = make_engine(self, problem)
        learner = Learner(engine, self.dropout)
        average = moving_average(learner, self.average)
        perceive = torch.optim.AdamW(
            learner.perception.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, fused=True
        )
        infer = torch.optim.Adam(learner.inference.parameters(), lr=self.inference_rate, fused=True)

        def step(i: int) -> dict[str, Tensor]:
            infer.param_groups[0]["lr"] = self.rate(self.inference_rate, i)
            perceive.param_groups[0]["lr"] = self.rate(self.learning_rate, i, self.pretrain)
            infer.zero_grad()
            perceive.zero_grad()
            loss = torch.zeros(())
            if i >= self.pretrain:
                images, sums = batches.next()
                belief = believe(learner.perception, shifted(images, self.shift, noise))
                engine.observe(belief)
                loss = engine.loss(belief, sums).mean()
            inference = engine.inference_loss(self.samples, generator=noise)
            torch.autograd.backward(loss + inference)  # each reaches one side only
            infer.step()
            if i >= self.pretrain:
                perceive.step()
            average.update_parameters(learner)
            parts = {"loss": loss + inference, "perception": loss, "inference": inference}
            return {name: value.detach() for name, value in parts.items()}

        def look() -> dict[str, float]:
            return {f"{name} on the way": value for name, value in measure(self, average.module, mnist, 1).items()}

        def final(run: Run) -> dict[str, float]:
            curve = {
                f"{name.removesuffix(' on the way')} at {step}": value
                for step in range(self.curve, self.steps, self.curve or self.steps)
                for name, value in run.metrics_at(step).items()
                if self.curve and name.endswith(" on the way")
            }
            return {**curve, **measure(self, average.module, mnist, NEURAL_PAIRINGS)}

        state: dict[str, Any] = {
            "learner": learner,
            "average": average,
            "prior": engine.prior,
            "batches": batches,
            "noise": noise,
        }
        if self.dropout:
            state["random"] = GlobalRandom()
        return Training(
            step,
            {**state, "perceive": perceive, "infer": infer},
            final,
            keep=("loss", "perception", "inference"),
            evaluate=look if self.curve else None,
            evaluate_every=self.curve or self.steps,
        )


def make_engine(config: AmortizedAdditionConfig, problem: Problem) -> AmortizedReasoner:
    """The inference model of a configuration with its prior and its pruner."""
    model = amortized.FactorMLPs if config.model == "mlp" else amortized.ScanModel
    prior: amortized.Prior
    if config.variant == "no-prior":
        prior = amortized.Replay(problem.world)
    else:
        prior = (amortized.FittedDirichlet if config.model == "mlp" else amortized.MixtureDirichlet)(problem.world)
    inference = model(problem, hidden=config.hidden, explain=config.variant in ("explain", "prune"))
    share = config.predicting
    return AmortizedReasoner(problem, inference, prior, _pruner(config), beams=config.beams, predicting=share)


def _pruner(config: AmortizedAdditionConfig) -> AdditionPruner | None:
    return AdditionPruner(config.digits) if config.variant == "prune" else None


class Learner(nn.Module):
    """Perception and inference as one module, of which one moving average is kept."""

    def __init__(self, engine: AmortizedReasoner, dropout: float = 0.0) -> None:
        super().__init__()
        self.perception = perception(dropout=dropout)
        self.inference = engine.model

    def reasoner(self, config: AmortizedAdditionConfig) -> AmortizedReasoner:
        """What has been learnt about sums, to be asked."""
        return AmortizedReasoner(self.inference.problem, self.inference, pruner=_pruner(config), beams=config.beams)


@torch.inference_mode()
def measure(config: AmortizedAdditionConfig, learner: Learner, mnist: MNIST, searches: int) -> dict[str, float]:
    """The accuracies of perception and inference, in percent of the test digits' sums, and how far it is from exact.

    ``accuracy``: those whose digits read one by one add up right (the symbolic prediction), averaged over 100 ways to
    make sums of them; ``neural``: those whose most probable sum under the inference model, found by beam search, is
    right, averaged over the first ``searches`` of these ways; ``first_pairing`` and ``first_neural``: the same for the
    first way. ``digit_accuracy`` is in percent of the test digits, ``divergence`` is KL(p(y | P) ‖ q(y | P)) in nats,
    averaged over beliefs about test sums.
    """
    engine = learner.eval().reasoner(config)
    problem = engine.problem
    logits, labels = read(learner.perception, mnist.test_images), mnist.labels("test")
    seen = logits.argmax(1)
    symbolic = [_right(problem(seen[rows]), problem(labels[rows])) for rows in pairings(mnist, problem)]
    neural = [
        _right(_predicted(engine, Belief.from_logits(logits[rows])), problem(labels[rows]))
        for rows in islice(pairings(mnist, problem), searches)
    ]
    few = Belief.from_logits(logits[next(pairings(mnist, problem))[:CALIBRATED]].double())
    draws = torch.Generator().manual_seed(0)
    return {
        "accuracy": 100 * sum(symbolic) / len(symbolic),
        "neural": 100 * sum(neural) / len(neural),
        "first_pairing": 100 * symbolic[0],
        "first_neural": 100 * neural[0],
        "digit_accuracy": percent(seen == labels),
        "divergence": engine.divergence(few, Elimination(problem), samples=100, generator=draws).mean,
    }


def load_learner(path: Path) -> tuple[AmortizedAdditionConfig, Learner]:
    """What a run has learnt: its configuration, and the moving average at its last checkpoint.

    Raises:
        RunError: there is no such run, or it is of something else.
    """
    run = Run.open(path)
    try:
        config = load_config(AmortizedAdditionConfig, run.config)
    except ConfigError as error:
        raise RunError(f"{path} is no run of addition by amortised inference ({error})") from error
    learner = Learner(make_engine(config, addition(config.digits)), config.dropout)
    average = moving_average(learner.eval(), config.average)
    average.load_state_dict(run.load().state["average"])
    return config, average.module


def _predicted(engine: AmortizedReasoner, belief: Belief) -> Tensor:
    return torch.cat([engine.predict(belief[i : i + 500]) for i in range(0, belief.batch_shape[0], 500)])


def _right(found: Tensor, wanted: Tensor) -> float:
    return float((found == wanted).all(-1).double().mean())


PUBLISHED: dict[Variant, dict[int, tuple[float, float]]] = {
    "predict": {1: (97.66, 97.66), 2: (95.96, 95.95), 4: (92.56, 92.48), 15: (75.90, 54.66)},
    "explain": {1: (97.37, 97.37), 2: (96.04, 96.05), 4: (92.11, 92.14), 15: (76.84, 61.77)},
    "prune": {1: (97.57, 97.57), 2: (95.82, 95.82), 4: (92.40, 92.38), 15: (76.46, 59.88)},
    "no-prior": {1: (76.54, 76.54), 2: (95.67, 95.28), 4: (44.58, 40.76), 15: (0.03, 0.00)},
}
"""Symbolic and neural prediction of each variant, for numbers of so many digits."""


def _as_published(digits: int, variant: Variant) -> AmortizedAdditionConfig:
    """One network for each digit, with the settings of the dissertation's appendix: 100 epochs."""
    steps = 100 * (60_000 // (2 * digits) // 16)
    return AmortizedAdditionConfig(digits, variant, "mlp", steps, hidden=800, curve=steps // 100)


def _our_own(digits: int, variant: Variant) -> AmortizedAdditionConfig:
    """One cell for all columns, and as many epochs as fit into about eight minutes of one core."""
    epochs, batch_size, samples, rate = OUR_OWN[digits]
    pretrain = 500
    steps = pretrain + epochs * (60_000 // (2 * digits) // batch_size)
    return AmortizedAdditionConfig(
        digits,
        variant,
        "scan",
        steps,
        pretrain=0 if variant == "no-prior" else pretrain,  # there is nothing yet to learn from
        batch_size=batch_size,
        samples=samples,
        inference_rate=rate,
        warmup=200,
        decay=steps,
        weight_decay=0.01,
        average=0.999,
    )


OUR_OWN = {1: (30, 64, 200, 5e-3), 2: (20, 32, 150, 5e-3), 4: (40, 32, 100, 5e-3), 15: (50, 16, 64, 1e-2)}
"""Epochs, sums in a batch, samples and rate of the inference model, for numbers of so many digits."""


def _entry(digits: int, variant: Variant, config: AmortizedAdditionConfig) -> Entry:
    symbolic, neural = PUBLISHED[variant][digits]
    change = "-shifted" * (config.shift > 0) + "-dropout" * (config.dropout > 0) + "-mixed" * (config.predicting > 0)
    return Entry(
        f"amortized/{config.model}-{variant}-n-{digits}" + change,
        config,
        {"accuracy": symbolic, "neural": neural},
        f"A-NeSI ({variant.replace('-', ' ')}), Chapter 6; {reference(digits)}",
    )


AMORTIZED_ENTRIES = (
    *[_entry(digits, variant, _our_own(digits, variant)) for variant, table in PUBLISHED.items() for digits in table],
    _entry(15, "predict", replace(_our_own(15, "predict"), shift=2)),
    _entry(15, "predict", replace(_our_own(15, "predict"), dropout=DROPOUT)),
    _entry(1, "explain", replace(_our_own(1, "explain"), predicting=0.5)),
    *[_entry(digits, variant, _as_published(digits, variant)) for variant in PUBLISHED for digits in OUR_OWN],
)
