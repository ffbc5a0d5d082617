r"""Right for the wrong reasons: tasks of the literature on reasoning shortcuts, learnt in several ways.

What is told of a row does not say what its pictures show. The ways differ in what a network may believe: one
distribution for each picture, sure of one shortcut or another; a mixture of several readings of all pictures; or the
mean of five networks that were trained apart. Measured is how often conclusions and concepts are right, and how far the
confidence in concepts is from how often they are right, the expected calibration error over ten bins.

The second table learns from a few concept labels as well: those that `doxa ask` chooses, or as many at random.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from doxa.data import MNIST, Batches
from doxa.doctor import ask, certify
from doxa.errors import ConfigError
from doxa.logic import logits, mixture
from doxa.reproduce._digits import held_out
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, by_budget, descend, saved, train
from doxa.semantics import Amortized, Model, Semantics
from doxa.semantics import semantics as by_word
from doxa.train import Result
from doxa.train.report._report import figure
from doxa.train.tasks._labelled import TRIED, Labelled, best_start, kept_open, start_seed
from doxa.train.tasks._labels import Labels
from doxa.train.tasks._measure import mean_entropy, measure
from doxa.train.tasks._shortcuts import NAMES, Drawn, drawn
from doxa.train.tasks._task import Task

TaskName = Literal["evenodd", "half", "xor", "parity", "mod10", "equation", "driving", "kandinsky"]


@dataclass(frozen=True)
class ShortcutsConfig(Settings):
    """Learn concepts from what knowledge says of rows of pictures."""

    save_every = 10_000
    evaluate_every = 10_000
    task: TaskName = "xor"
    semantics: Literal["exact", "amortized", "fuzzy"] = "exact"
    components: int = 1  # of a mixture; 1 is a belief about each picture alone
    members: int = 1  # networks that are trained apart, and asked together
    starts: int = 1  # networks that are begun for each member; the one with the lowest loss goes on
    tried: int = TRIED  # steps after which the better half of the starts goes on, for as many more
    diversity: float = 0.0  # weight of `Model.diversity`: all worlds that explain a row stay open
    entropy: float = 0.0  # weight of the entropy of what is read off a batch, on average
    spread: float = 0.0  # as much more of it in the first step; it falls to 0 in the first half of the steps
    sharpness: float = 1.0  # so many times larger are the last layers at first, so that networks are surer
    pretrain: int = 200  # of amortised inference: its steps before the networks learn
    prior: Literal["mixture", "replay"] = "mixture"  # of amortised inference: of the beliefs it learns from
    labels: int = 0  # so many concept labels to learn from as well
    choice: Literal["ask", "random"] = "ask"  # who chooses them
    rows: int = 2000  # to learn from
    tested: int = 500  # rows to measure on
    steps: int = 300  # batches to learn from
    batch_size: int = 64
    learning_rate: float = 3e-3  # of Adam at its highest; it falls to 0 along half a cosine
    warmup: int = 1
    validation: int = 0  # so many training digits are held out and measured in place of the test digits

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.semantics != "exact" and (self.components > 1 or self.diversity):
            raise ConfigError(f"components and diversity need exact reasoning, but semantics is {self.semantics}")
        if self.labels and self.members > 1:
            raise ConfigError(f"labels are for one network, but members is {self.members}")

    @property
    def decay(self) -> int:  # type: ignore[override]
        """The step at which the learning rate has fallen to 0."""
        return self.steps

    def training(self, given: Given) -> Training:
        parts = self.made(given)
        task = with_choice(parts, self.labels, self.choice, seed=given.seed)
        labelled, fields = Labelled(task), task.train[task.rows]
        batches = Batches(fields, self.batch_size, seed=given.seed, drop_last=True)
        random = torch.Generator().manual_seed(given.seed)

        def loss_of(model: Model, rows: Mapping[str, Any], random: torch.Generator, i: int = 0) -> Tensor:
            found = self.loss(model, task, {task.rows: rows}, random, i)
            told = labelled.loss(model, generator=random) if labelled else {}
            return sum([*found.values(), *told.values()], torch.zeros(()))

        def tried(model: Model) -> Callable[[float], Tensor]:
            random = torch.Generator().manual_seed(given.seed)
            batches = Batches(fields, self.batch_size, seed=given.seed, drop_last=True)

            def step(left: float) -> Tensor:
                rows = batches.next()
                loss = loss_of(model, rows, random)
                return loss + kept_open(model, {task.rows: rows}, left, generator=random) if labelled else loss

            return step

        def learner(model: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.Adam(model.parameters(), lr=self.learning_rate)

        begun = task.label_starts if labelled else self.starts

        def begin(member: int) -> Model:
            seed = 100 * given.seed + member
            starts = (self.model(task, seed=start_seed(seed, k)) for k in range(begun))
            return next(starts) if begun == 1 else best_start(starts, tried, learner, self.tried)

        models = [begin(member) for member in range(self.members)]
        members = nn.ModuleList(models)
        optimizer = learner(members)

        def step(i: int) -> dict[str, Tensor]:
            rows = batches.next()
            loss = torch.stack([loss_of(model, rows, random, i) for model in models]).sum()
            descend(loss, optimizer, rate=self.rate(self.learning_rate, i))
            return {"loss": loss.detach() / len(models)}

        state = {"models": members, "optimizer": optimizer, "batches": batches, "random": random}
        return Training(step, state, lambda run: self.measured(task, models), prefix_step=50)

    def made(self, given: Given) -> Drawn:
        """The task, with what its training rows truly show."""
        seed = 2 if self.validation else 1  # of the rows that are measured
        return drawn(
            self.task,
            lambda: held_out(given.mnist(), self.validation, seed=given.seed),
            (self.rows, self.tested),
            seeds=(0, seed),
        )

    def model(self, task: Task, *, seed: int) -> Model:
        """New networks for a task."""
        how: Semantics = by_word(self.semantics)
        if isinstance(how, Amortized):
            how = replace(how, pretrain=self.pretrain, prior=self.prior)
        plain = task.symbols
        return replace(task, symbols=lambda: self.networks(plain())).model(how, seed=seed).train()

    def networks(self, symbols: Mapping[str, Any]) -> dict[str, Any]:
        """New networks: these, or a mixture of networks like these with weights from another one."""
        plain = next(iter(symbols.values())).thing
        if mixed := self.components > 1:
            symbols = {name: logits(_Heads(declared.thing, self.components)) for name, declared in symbols.items()}
        for declared in symbols.values():
            *_, last = (part for part in declared.thing.modules() if isinstance(part, nn.Linear))
            with torch.no_grad():
                last.weight.mul_(self.sharpness)
                last.bias.mul_(self.sharpness)
        if not mixed:
            return dict(symbols)
        return dict(mixture(weights=logits(_Gate(copy.deepcopy(plain), self.components)), **symbols))

    def loss(
        self, model: Model, task: Task, batch: Mapping[str, Any], random: torch.Generator, i: int = 0
    ) -> dict[str, Tensor]:
        """The parts of the loss of one network in step i."""
        model.inference_step(generator=random, **batch)
        found = {"knowledge": model.loss(generator=random, **batch)}
        if self.diversity:
            found["diversity"] = self.diversity * model.diversity(generator=random, **batch).total
        weight = self.entropy + self.spread * max(0.0, 1 - 2 * i / self.steps)
        if weight:
            found["entropy"] = -weight * mean_entropy(model, task.concepts, batch[task.rows])
        return found

    def measured(self, task: Task, models: Sequence[Model]) -> dict[str, float]:
        """Accuracies in percent; the error and the confidence between 0 and 1; shortcuts are those without labels."""
        for model in models:
            model.eval()
        found = measure(task, models)
        concepts, error, sure = found.concept_accuracy, found.concept_calibration, found.concept_confidence
        assert concepts is not None and error is not None and sure is not None
        told = found.satisfaction if found.task_accuracy is None else found.task_accuracy
        left = certify(replace(task, labels={}), {}, show=0).left
        return {
            "label_accuracy": 100 * told,
            "concept_accuracy": 100 * concepts,
            "concept_ece": error,
            "confidence": sure,
            "shortcuts": float(left.count - 1),
        }


class _Heads(nn.Module):
    """K beliefs about each picture, from a network with K times as many outputs."""

    def __init__(self, network: nn.Module, components: int, values: int = 0) -> None:
        super().__init__()
        layers: Any = network.network
        self.network, self.components, self.values = network, components, values or layers[-1].out_features
        layers[-1] = nn.Linear(layers[-1].in_features, components * self.values)

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.network(pictures).unflatten(-1, (self.components, self.values))
        return found.squeeze(-1) if self.values == 1 else found


class _Gate(nn.Module):
    """Weights of K components, from all pictures of a row: the sum of what a network says of each."""

    def __init__(self, network: nn.Module, components: int) -> None:
        super().__init__()
        self.heads = _Heads(network, components, values=1)

    def forward(self, *pictures: Tensor) -> Tensor:
        return torch.stack([self.heads(part) for part in pictures]).sum(0)


def with_choice(made: Drawn, count: int, choice: str, *, seed: int) -> Task:
    """A task with some concept labels that are true: those that are asked for, or of objects drawn at random.

    Objects are labelled with all their concepts. The answers to what is asked are looked at before more is asked, a few
    at a time; where nothing is left to ask, the rest is drawn at random.
    """
    task, truth = made.task, made.truth
    if not count:
        return task
    labels: Labels = {s: {p: torch.full_like(v, -1) for p, v in own.items()} for s, own in truth.items()}
    random = torch.Generator().manual_seed(1000 + seed)
    order = torch.randperm(task.size("train"), generator=random).tolist()
    if choice == "ask":
        task = _shuffled(task, order)
        told = 0
        while told < count:
            found = ask(task, size=min(ASKED, count - told), labels=labels).questions
            for question in found:
                row = order[question.row]
                labels[question.concept][question.field][question.row] = truth[question.concept][question.field][row]
            told += len(found)
            if not found:
                break
        back = torch.tensor(order).argsort()
        labels = {s: {p: v[back] for p, v in own.items()} for s, own in labels.items()}
        count -= told
    places = sorted({place for own in truth.values() for place in own})
    symbols = {place: [s for s, own in truth.items() if place in own] for place in places}
    for row in order:
        place = places[int(torch.randint(len(places), (), generator=random))]
        if count < len(symbols[place]):
            break
        if all(int(labels[s][place][row]) < 0 for s in symbols[place]):
            for symbol in symbols[place]:
                labels[symbol][place][row] = truth[symbol][place][row]
            count -= len(symbols[place])
    return replace(made.task, labels=labels)


ASKED = 4
"""So many labels are asked for at once."""


def _shuffled(task: Task, order: Sequence[int]) -> Task:
    at = torch.tensor(order)
    return replace(task, train={task.rows: {name: column[at] for name, column in task.train[task.rows].items()}})


WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "mixture": {"components": 8, "diversity": 0.3},
    "entropy": {"entropy": 0.3},
    "ensemble": {"members": 5},
    "amortized": {"semantics": "amortized"},
    "fuzzy": {"semantics": "fuzzy"},
}
"""Ways to learn; ``exact`` believes something of each picture alone."""
OF_TASK: dict[str, dict[str, Any]] = {
    "evenodd": {"steps": 800, "spread": 3.0},
    "half": {"steps": 300},
    "xor": {"steps": 200},
    "parity": {"steps": 600},
    "mod10": {"rows": 10_000, "steps": 1500, "spread": 3.0, "starts": 4, "tried": 250},
    "equation": {"steps": 200},
    "driving": {"steps": 200},
    "kandinsky": {"tested": 300, "steps": 800, "spread": 10.0, "starts": 4, "tried": 150},
}
"""Settings that a task needs, found on held-out digits and boards: as few steps as it takes to learn what is told;
``spread`` and ``starts`` where networks otherwise take several digits, shapes or colours for one."""
OF_BOTH: dict[tuple[str, str], dict[str, Any]] = {
    ("evenodd", "mixture"): {"diversity": 1.0, "starts": 4, "spread": 0.0},
    ("evenodd", "amortized"): {"pretrain": 1000},
    ("half", "mixture"): {"starts": 4},
    ("xor", "mixture"): {"starts": 4},
    ("parity", "mixture"): {"diversity": 0.03, "starts": 4, "sharpness": 30.0},
    ("parity", "entropy"): {"starts": 4, "sharpness": 10.0},
    ("mod10", "mixture"): {"diversity": 0.05, "spread": 0.0, "tried": TRIED},
    ("mod10", "amortized"): {"pretrain": 1000},
    ("equation", "amortized"): {"steps": 600, "prior": "replay", "starts": 4},
    ("driving", "mixture"): {"starts": 4},
    ("driving", "fuzzy"): {"spread": 3.0},
    ("kandinsky", "mixture"): {"components": 4, "diversity": 0.01},
    ("kandinsky", "amortized"): {"prior": "replay"},
}
"""Settings that a way needs for a task: as much diversity as leaves what is told learnt; several starts where mixtures
learn it, but may settle on one reading; and sure networks at first where it is a saddle to be sure of nothing."""
COUNTS = (1, 2, 4, 8, 16)
"""Concept labels, of which the curve shows how much they help."""
LABELLED = ("half",)
"""Here sums say which rows show a digit that is open; in ``evenodd`` every sum leaves the same open."""


def _entries() -> tuple[Entry, ...]:
    table = [
        Entry(
            f"{task}/{way}",
            ShortcutsConfig(**{"task": task, **OF_TASK[task], **changes, **OF_BOTH.get((task, way), {})}),
        )
        for task in NAMES
        for way, changes in WAYS.items()
    ]
    curve = [
        Entry(
            f"labels-{task}/{choice}-{count}",
            ShortcutsConfig(**{"task": task, **OF_TASK[task], "steps": 200, "labels": count, "choice": choice}),
        )
        for task in LABELLED
        for choice in ("ask", "random")
        for count in COUNTS
    ]
    return (*table, *curve)


def needed(results: Sequence[Result], task: str, choice: str, accuracy: float = 95.0) -> int | None:
    """The fewest labels from which on concepts are read right so often, on average over seeds; None if there are none.

    >>> def result(count, value):
    ...     name = f"shortcuts/labels-xor/ask-{count}"
    ...     return Result(name, config={}, seed=0, steps=1, metrics={"concept_accuracy": value}, prefix={})
    >>> needed([result(1, 97.0), result(2, 90.0), result(4, 96.0)], "xor", "ask")
    4
    """
    reached = None
    for count, values in sorted(_curve(results, task, choice).items()):
        good = sum(values) / len(values) >= accuracy
        reached = (count if reached is None else reached) if good else None
    return reached


def _curve(results: Sequence[Result], task: str, choice: str) -> dict[int, list[float]]:
    """Concept accuracies of all seeds, by the number of labels."""
    found: dict[int, list[float]] = {}
    for result in results:
        table, _, row = result.experiment.removeprefix("shortcuts/").partition("/")
        if table == f"labels-{task}" and row.startswith(f"{choice}-") and row.rpartition("-")[2].isdigit():
            found.setdefault(int(row.rpartition("-")[2]), []).append(result.metrics["concept_accuracy"])
    return found


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """How many labels concepts need, chosen by asking and at random; how wrong confidence is, by task and way; and what
    is drawn for the tasks without digits.
    """
    return [*_draw_labels(results, folder), *_draw_calibration(results, folder), *_draw_pictures(folder)]


def _draw_labels(results: Sequence[Result], folder: Path) -> list[Path]:
    tasks = [task for task in LABELLED if _curve(results, task, "ask")]
    if not tasks:
        return []
    drawing, cells = figure(1, len(tasks), size=(4.6 * len(tasks), 3.4))
    for axes, task in zip(cells, tasks, strict=True):
        for choice, word in (("ask", "chosen by doxa ask"), ("random", "drawn at random")):
            curve = sorted(_curve(results, task, choice).items())
            counts = [count for count, _ in curve]
            means = [sum(values) / len(values) for _, values in curve]
            axes.plot(counts, means, marker="o", label=word)
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.fill_between(counts, [min(v) for _, v in curve], [max(v) for _, v in curve], alpha=0.15)
        axes.axhline(95, color="grey", linewidth=0.8, linestyle="--")
        axes.set(title=task, xlabel="concept labels", ylabel="concepts read right, %", ylim=(0, 102))
        axes.legend(loc="lower right")
    return [saved(drawing, folder / "labels.png")]


def _draw_calibration(results: Sequence[Result], folder: Path) -> list[Path]:
    groups = {name.removeprefix("shortcuts/"): group for (name, _), group in by_budget(results).items()}
    tasks = [task for task in NAMES if f"{task}/exact" in groups]
    if not tasks:
        return []
    drawing, (axes,) = figure(1, 1, size=(9, 3.4))
    width = 0.8 / len(WAYS)
    for place, way in enumerate(WAYS):
        shown = [(i, groups[f"{task}/{way}"]) for i, task in enumerate(tasks) if f"{task}/{way}" in groups]
        heights = [sum(r.metrics["concept_ece"] for r in group) / len(group) for _, group in shown]
        axes.bar([i + place * width for i, _ in shown], heights, width, label=way)
    axes.set(xticks=[i + 0.4 - width / 2 for i in range(len(tasks))], ylabel="concept calibration error", ylim=(0, 1))
    axes.set_xticklabels(tasks)
    axes.legend(ncol=len(WAYS), fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return [saved(drawing, folder / "calibration.png")]


def _draw_pictures(folder: Path) -> list[Path]:
    """The first streets and boards, with what is told of them."""
    streets, boards = (drawn(name, _no_digits, (8, 1)).task for name in ("driving", "kandinsky"))
    drawing, cells = figure(2, 6, size=(9, 3.6))
    for i, axes in enumerate(cells[:6]):
        rows = streets.train["streets"]
        axes.imshow(rows["view"][i].permute(1, 2, 0).numpy())
        axes.set_title(("stop", "go")[int(rows["action"][i])], fontsize=9)
    for i, axes in enumerate(cells[6:]):
        rows = boards.train["boards"]
        figures = [torch.cat([rows[f"{name}{n}"][i] for n in (1, 2, 3)], 2) for name in "abc"]
        axes.imshow(torch.cat(figures, 1).permute(1, 2, 0).numpy())
        axes.set_title(("no pattern", "pattern")[int(rows["pattern"][i])], fontsize=9)
    for axes in cells:
        axes.set_axis_off()
    return [saved(drawing, folder / "pictures.png")]


def _no_digits() -> MNIST:
    raise ConfigError("drawn pictures need no digits")


SHORTCUTS = Experiment(
    name="shortcuts",
    about="Right for the wrong reasons: tasks with reasoning shortcuts",
    entries=_entries(),
    train=train,
    metrics=("label_accuracy", "concept_accuracy", "concept_ece", "confidence", "shortcuts"),
    draw=_draw,
)
"""Entries ``xor/mixture`` (task and way), and ``labels-half/ask-4`` (task, who chooses, how many labels)."""
