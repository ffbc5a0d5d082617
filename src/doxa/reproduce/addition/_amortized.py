"""MNIST addition by amortised inference, A-NeSI: the answers to sums are learnt as well (Chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from doxa.amortized import (
    AdditionPruner,
    AmortizedReasoner,
    FactorMLPs,
    FittedDirichlet,
    InferenceModel,
    MixtureDirichlet,
    Prior,
    Replay,
    ScanModel,
)
from doxa.data import MNIST, Batches, digits_task, normalize
from doxa.errors import ConfigError, RunError
from doxa.exact import Elimination
from doxa.problem import Belief, Problem, addition
from doxa.reproduce._experiment import Entry, moving_average, run_experiment
from doxa.reproduce.addition._exact import held_out, pairings, reference, shifted
from doxa.train import Result, Run, load_config
from doxa.train.runs._state import seeded
from doxa.train.tasks._network import digit_network
from doxa.train.tasks._settings import half_cosine, require_decay, require_nonnegative, require_one_of, require_positive

Variant = Literal["predict", "explain", "prune", "no-prior"]
ModelName = Literal["mlp", "scan"]
NEURAL_PAIRINGS = 10
"""Sums are predicted by search for so many ways to make them of the test digits; read digit by digit, for 100 ways."""
CALIBRATED = 100
"""The divergence from exact inference is measured on the beliefs about so many sums."""


@dataclass(frozen=True)
class AmortizedAdditionConfig:
    """Learn digits from sums of two numbers, by -log q(sum) of an inference model that is learnt too.

    Args:
        digits: N, of each number; the training digits make 60,000 / 2N sums, each digit being in one of them.
        variant: ``"predict"`` learns q(y | P) only, ``"explain"`` also q(w | y, P), ``"prune"`` that with the pruner of
            sums; ``"no-prior"`` predicts only, and learns from the beliefs of perception instead of a prior.
        model: ``"mlp"``, a network for each digit, with a Dirichlet prior that is fitted, as published; or ``"scan"``,
            one cell for all columns, with a mixture of Dirichlet priors.
        steps: in all, those of pretraining included.
        pretrain: the first so many steps train the inference model alone.
        batch_size: sums in a batch.
        samples: beliefs drawn from the prior in a step.
        hidden: the width of the inference model.
        learning_rate: of perception, by AdamW, at its highest.
        inference_rate: of the inference model, by Adam, at its highest.
        warmup: so many steps in which each of the two rises along a line.
        decay: the step at which both have fallen to 0, along half a cosine; 0 leaves them as they are.
        weight_decay: of AdamW.
        average: decay of the moving average of all parameters that is tested; 0 tests the last parameters themselves.
        shift: each training image is moved by at most so many pixels up or down and left or right, anew every time.
        beams: the width of the search for the most probable sum.
        curve: so many steps between two looks at the accuracies, which choose nothing; 0 takes none but the last.
        validation: so many training digits are held out and measured instead of the test digits, to choose settings.
        save_every: steps between two checkpoints; the last one counts.

    >>> AmortizedAdditionConfig(digits=15, variant="explain").model
    'scan'
    """

    digits: int = 1
    variant: Variant = "predict"
    model: ModelName = "scan"
    steps: int = 10_000
    pretrain: int = 0
    batch_size: int = 16
    samples: int = 600
    hidden: int = 64
    learning_rate: float = 1e-3
    inference_rate: float = 1e-3
    warmup: int = 1
    decay: int = 0
    weight_decay: float = 0.0
    average: float = 0.0
    shift: int = 0
    beams: int = 8
    curve: int = 0
    validation: int = 0
    save_every: int = 500

    def __post_init__(self) -> None:
        require_positive(
            self,
            "digits",
            "steps",
            "batch_size",
            "samples",
            "hidden",
            "learning_rate",
            "inference_rate",
            "warmup",
            "beams",
            "save_every",
        )
        require_nonnegative(self, "pretrain", "decay", "weight_decay", "shift", "curve", "validation")
        require_one_of(self, "variant", Variant)
        require_one_of(self, "model", ModelName)
        require_decay(self, "average")

    def rate(self, highest: float, step: int, first: int = 0) -> float:
        """The learning rate of a step for what starts to learn at the step ``first``, both counted from 0."""
        done = step - first
        return highest * min(1.0, (done + 1) / self.warmup) * half_cosine(done, self.decay - first)


def make_engine(config: AmortizedAdditionConfig, problem: Problem) -> AmortizedReasoner:
    """The inference model of a configuration with its prior and its pruner."""
    explain = config.variant in ("explain", "prune")
    model: InferenceModel = (
        FactorMLPs(problem, hidden=config.hidden, explain=explain)
        if config.model == "mlp"
        else ScanModel(problem, hidden=config.hidden, explain=explain)
    )
    prior: Prior
    if config.variant == "no-prior":
        prior = Replay(problem.world)
    elif config.model == "mlp":
        prior = FittedDirichlet(problem.world)
    else:
        prior = MixtureDirichlet(problem.world)
    return AmortizedReasoner(problem, model, prior, _pruner(config), beams=config.beams)


def _pruner(config: AmortizedAdditionConfig) -> AdditionPruner | None:
    return AdditionPruner(config.digits) if config.variant == "prune" else None


class Learner(nn.Module):
    """Perception and inference as one module, of which one moving average is kept."""

    def __init__(self, engine: AmortizedReasoner) -> None:
        super().__init__()
        self.perception = digit_network()
        self.perception.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster: few channels
        self.inference = engine.model

    def believe(self, images: Tensor) -> Belief:
        """What perception believes of rows of grey images ``(b, 2N, 28, 28)``."""
        logits = self.perception(normalize(images.flatten(0, 1).unsqueeze(1)))
        return Belief.from_logits(logits.view(*images.shape[:2], 10))

    def reasoner(self, config: AmortizedAdditionConfig) -> AmortizedReasoner:
        """What has been learnt about sums, to be asked."""
        return AmortizedReasoner(self.inference.problem, self.inference, pruner=_pruner(config), beams=config.beams)


def train_amortized_addition(
    config: AmortizedAdditionConfig, path: Path, *, seed: int, data: Path | None, progress: bool
) -> Result:
    """Train in a run folder, or go on with it, and test the moving average of the parameters at the last step.

    Metrics of the result, in percent of the test digits' sums: ``accuracy``, those whose digits read one by one add up
    right (the symbolic prediction), averaged over 100 ways to make sums of them; ``neural``, those whose most probable
    sum under the inference model, found by beam search, is right, averaged over the first 10 of these ways;
    ``first_pairing`` and ``first_neural``, the same for the first way. ``digit_accuracy`` is in percent of the test
    digits, ``divergence`` is KL(p(y | P) ‖ q(y | P)) in nats, averaged over beliefs about test sums. ``perception``,
    ``inference`` and their sum ``loss`` are those of the last batch.
    """
    mnist = MNIST.load(data, verify=data is None, progress=progress)
    if config.validation:
        mnist = held_out(mnist, config.validation, seed=seed)
    problem = addition(config.digits)
    task = digits_task(mnist, problem, seed=seed)
    batches = Batches((task.images, task.outputs), min(config.batch_size, len(task)), seed=seed, drop_last=True)
    noise = torch.Generator().manual_seed(seed)
    with seeded(seed):
        engine = make_engine(config, problem)
        learner = Learner(engine)
    average = moving_average(learner, config.average)
    perceive = torch.optim.AdamW(
        learner.perception.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    infer = torch.optim.Adam(learner.inference.parameters(), lr=config.inference_rate, fused=True)

    def step(i: int) -> dict[str, Tensor]:
        infer.param_groups[0]["lr"] = config.rate(config.inference_rate, i)
        perceive.param_groups[0]["lr"] = config.rate(config.learning_rate, i, config.pretrain)
        infer.zero_grad()
        perceive.zero_grad()
        perception = torch.zeros(())
        if i >= config.pretrain:
            images, sums = batches.next()
            if config.shift:
                images = shifted(images, config.shift, noise)
            belief = learner.believe(images)
            engine.observe(belief)
            perception = engine.loss(belief, sums).mean()
        inference = engine.inference_loss(config.samples, generator=noise)
        torch.autograd.backward(perception + inference)  # each reaches one side only
        infer.step()
        if i >= config.pretrain:
            perceive.step()
        average.update_parameters(learner)
        return {
            "loss": (perception + inference).detach(),
            "perception": perception.detach(),
            "inference": inference.detach(),
        }

    learnt: Any = average.module  # a Learner

    def look() -> dict[str, float]:
        return {f"{name} on the way": value for name, value in measure(config, learnt, mnist, 1).items()}

    state = {"learner": learner, "average": average, "prior": engine.prior, "batches": batches, "noise": noise}
    run, result = run_experiment(
        config,
        path,
        step,
        {**state, "perceive": perceive, "infer": infer},
        seed=seed,
        evaluate=look if config.curve else None,
        evaluate_every=config.curve or config.steps,
        save_every=config.save_every,
        progress=progress,
    )
    curve = {
        f"{name} at {step}": value
        for step in range(config.curve, config.steps, config.curve or 1)
        for name, value in run.metrics_at(step).items()
        if config.curve and name.endswith("on the way")
    }
    return replace(
        result,
        metrics={
            **{name: result.metrics[name] for name in ("loss", "perception", "inference")},
            **{name.replace(" on the way", ""): value for name, value in curve.items()},
            **measure(config, learnt, mnist, NEURAL_PAIRINGS),
        },
    )


@torch.inference_mode()
def measure(config: AmortizedAdditionConfig, learner: Learner, mnist: MNIST, searches: int) -> dict[str, float]:
    """The accuracies of perception and inference, in percent, and how far inference is from exact."""
    engine = learner.reasoner(config)
    problem = engine.problem
    parts = torch.split(mnist.test_images, 1000)
    logits = torch.cat([learner.perception(normalize(part.unsqueeze(1))) for part in parts])
    read, labels = logits.argmax(1), mnist.labels("test")
    symbolic = [_right(problem(read[rows]), problem(labels[rows])) for rows in pairings(mnist, problem)]
    neural: list[float] = []
    divergence = 0.0
    for rows in islice(pairings(mnist, problem), searches):
        belief = Belief.from_logits(logits[rows])
        if not neural:
            draws = torch.Generator().manual_seed(0)
            few = Belief.from_logits(logits[rows[:CALIBRATED]].double())
            divergence = engine.divergence(few, Elimination(problem), samples=100, generator=draws).mean
        neural.append(_right(_predicted(engine, belief), problem(labels[rows])))
    return {
        "accuracy": 100 * sum(symbolic) / len(symbolic),
        "neural": 100 * sum(neural) / len(neural),
        "first_pairing": 100 * symbolic[0],
        "first_neural": 100 * neural[0],
        "digit_accuracy": 100 * float((read == labels).double().mean()),
        "divergence": divergence,
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
    average = moving_average(Learner(make_engine(config, addition(config.digits))), config.average)
    average.load_state_dict(run.load().state["average"])
    learnt: Any = average.module
    return config, learnt


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
    return Entry(
        f"amortized/{config.model}-{variant}-n-{digits}" + "-shifted" * bool(config.shift),
        config,
        {"accuracy": symbolic, "neural": neural},
        f"A-NeSI ({variant.replace('-', ' ')}), Chapter 6; {reference(digits)}",
    )


AMORTIZED_ENTRIES = tuple(
    [_entry(digits, variant, _our_own(digits, variant)) for variant, table in PUBLISHED.items() for digits in table]
    + [_entry(15, "predict", replace(_our_own(15, "predict"), shift=2))]
    + [
        _entry(digits, variant, _as_published(digits, variant))
        for variant, table in PUBLISHED.items()
        for digits in table
    ]
)
