r"""Time to accuracy: CPU-seconds until digits learnt from sums are read so well that enough sums are right.

Every way of reasoning has the same network, batches, optimiser and clock. A step is taken apart,

.. math:: x \xrightarrow{\text{network}} P \xrightarrow{\text{reasoning}} L, \qquad
    \partial L / \partial P \text{ is reasoning, } \partial P / \partial θ \text{ the network,}

so the clock also says where the time goes. It stands still while held-out training digits are looked at, which happens
every ``look`` steps; the first look at which enough of their sums are right ends the run. Test digits are measured
after that, and decide nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent
from torch.nn.functional import cross_entropy

from doxa._files import write_atomic
from doxa._numerics import safe_log
from doxa.data import MNIST, Batches, digits_task, normalize
from doxa.exact import Elimination
from doxa.logic import probs
from doxa.problem import Belief, Problem, addition
from doxa.reproduce._addition import addition_layer
from doxa.reproduce._amortized import AmortizedAdditionConfig, make_engine
from doxa.reproduce._digits import held_out, pairings, perception, read, shifted
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, by_budget, saved, train
from doxa.semantics import Fuzzy, Model
from doxa.stochastic import Estimator, IndeCateR, LeaveOneOut, MovingAverage, Tape, UnorderedSet
from doxa.train import Result
from doxa.train.report._report import figure
from doxa.train.runs._results import markdown_table
from doxa.train.tasks._fit import moving_average

How = Literal["exact", "scan", "mlp", "score", "loo", "unordered-set", "indecater", "fuzzy", "refined"]
PARTS = ("network", "reasoning", "optimiser")
DRAWS = 32
"""Worlds drawn apart, to say how probable it is that a digit of a sum is right."""
PAIRINGS = 20
"""The accuracy of held-out sums is an average over so many ways to make them."""


@dataclass(frozen=True)
class TimesConfig(Settings):
    """Learn digits from sums of two numbers until so many held-out sums are right, or the time is over."""

    zero = ("weight_decay",)
    digits: int = 1  # N, of each number
    how: How = "exact"  # the way of reasoning
    target: float = 97.0  # percent of held-out sums
    cap: float = 60.0  # CPU-seconds of learning after which a run has not reached it
    hopeless: float = (
        0.0  # a run that reads less than this percentage of held-out digits at a third of the cap ends there
    )
    steps: int = 20_000  # at most
    batch_size: int = 64  # sums in a batch
    learning_rate: float = 1e-3  # of AdamW
    warmup: int = 50
    decay: int = 0
    weight_decay: float = 0.01
    average: float = 0.99  # decay of the moving average of the parameters that is looked at
    shift: int = 0  # each training image is moved by at most so many pixels each way, anew every time
    whole: bool = False  # sampled reasoning looks at whole sums, not at each of their digits
    samples: int = 32  # worlds drawn for a row; of amortised reasoning, beliefs drawn from the prior
    hidden: int = 64  # the width of the inference model
    inference_rate: float = 5e-3  # of the inference model, by Adam
    pretrain: int = 0  # the first so many steps train the inference model alone; they are on the clock
    look: int = 100  # steps between two looks at the held-out digits
    validation: int = 10_000  # held-out digits
    save_every: int = 1000

    def training(self, given: Given) -> Training:
        whole = given.mnist()
        mnist = held_out(whole, self.validation, seed=given.seed)
        problem = addition(self.digits)
        task = digits_task(mnist, problem, seed=given.seed)
        batches = Batches((task.images, task.outputs), min(self.batch_size, len(task)), seed=given.seed, drop_last=True)
        network, way = perception(), WAYS[self.how](self, problem)
        average = moving_average(network, self.average)
        perceive = torch.optim.AdamW(
            network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, fused=True
        )
        noise = torch.Generator().manual_seed(given.seed)
        clock = Clock()
        state: dict[str, Any] = {"network": network, "average": average, "perceive": perceive, "batches": batches}
        state |= {"noise": noise, "clock": clock, "way": way}
        if own := list(way.parameters()):
            state["infer"] = torch.optim.Adam(own, lr=self.inference_rate, fused=True)

        def step(i: int) -> dict[str, Any]:
            if clock.over:
                return clock.said()
            images, sums = batches.next()
            learn(i, images, sums)
            clock.steps = i + 1
            if clock.steps % self.look == 0 or clock.total >= self.cap:
                average.eval()
                clock.look(accuracies(average, mnist, problem), self)
            return clock.said()

        def learn(i: int, images: Tensor, sums: Tensor) -> None:
            with clock("reasoning"):
                inference = way.learn(noise)
                if inference is not None:
                    torch.autograd.backward(inference)
            if i >= self.pretrain:
                with clock("network"):
                    seen = network(normalize(shifted(images, self.shift, noise).flatten(0, 1).unsqueeze(1)))
                with clock("reasoning"):
                    scores = seen.detach().unflatten(0, images.shape[:2]).requires_grad_()
                    loss = way(scores, sums, noise)
                    (slope,) = torch.autograd.grad(loss, scores)
                    clock.loss = loss.item()
                with clock("network"):
                    torch.autograd.backward(seen, slope.flatten(0, 1))
            with clock("optimiser"):
                perceive.param_groups[0]["lr"] = self.rate(self.learning_rate, i, self.pretrain)
                if i >= self.pretrain:
                    perceive.step()
                    perceive.zero_grad()
                    average.update_parameters(network)
                if own:
                    state["infer"].param_groups[0]["lr"] = self.rate(self.inference_rate, i)
                    state["infer"].step()
                    state["infer"].zero_grad()

        return Training(step, state, lambda run: clock.measured(accuracies(average.eval(), whole, problem)))


@dataclass
class Clock:
    """CPU-seconds by what they were spent on, and what the last look at held-out digits said; has a state to save."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    steps: int = 0
    loss: float = 0.0
    accuracy: float = 0.0  # of held-out sums
    digits: float = 0.0  # of held-out digits
    over: bool = False
    reached: bool = False

    @property
    def total(self) -> float:
        """CPU-seconds so far."""
        return sum(self.seconds.values())

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Note how long something takes."""
        start = time.process_time()
        yield
        self.seconds[part] += time.process_time() - start

    def look(self, found: tuple[float, float], config: TimesConfig) -> None:
        """Take note of accuracies; the run may be over then."""
        self.accuracy, self.digits = found
        self.reached = self.accuracy >= config.target
        hopeless = self.digits < config.hopeless and self.total >= config.cap / 3
        self.over = self.reached or hopeless or self.total >= config.cap

    def said(self) -> dict[str, float]:
        """What is logged at a step."""
        return {"loss": self.loss, "held_out": self.accuracy, "held_out_digits": self.digits}

    def measured(self, test: tuple[float, float]) -> dict[str, float]:
        """What a result has: ``seconds`` only where the target was reached."""
        found = {"seconds": self.total} if self.reached else {}
        found |= {"reached": float(self.reached), "spent": self.total, "steps_taken": float(self.steps)}
        found |= {"accuracy": test[0], "digit_accuracy": test[1]}
        return found | {f"{part} of a step": 1000 * self.seconds[part] / self.steps for part in PARTS}

    def state_dict(self) -> dict[str, Any]:
        """All of it, in numbers."""
        return {**vars(self), "seconds": dict(self.seconds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        vars(self).update(state)


@torch.inference_mode()
def accuracies(network: nn.Module, mnist: MNIST, problem: Problem) -> tuple[float, float]:
    """In percent: the sums of test digits that are right if these are read one by one, and the digits."""
    seen, labels = read(network, mnist.test_images).argmax(1), mnist.labels("test")
    ways = islice(pairings(mnist, problem), PAIRINGS)
    right = [(problem(seen[rows]) == problem(labels[rows])).all(-1).double().mean().item() for rows in ways]
    return 100 * sum(right) / len(right), 100 * (seen == labels).double().mean().item()


class Way(nn.Module):
    """A way of reasoning: a loss of what the network says, ``(rows, 2N, 10)``, and of the digits of the sums."""

    def __init__(self, config: TimesConfig, problem: Problem) -> None:
        super().__init__()
        self.config, self.problem = config, problem

    def forward(self, scores: Tensor, sums: Tensor, noise: torch.Generator) -> Tensor:
        """The loss, averaged over the rows."""
        raise NotImplementedError

    def learn(self, noise: torch.Generator) -> Tensor | None:
        """The loss of what is learnt beside the network, if there is such a thing."""
        return None


class ExactWay(Way):
    """-log p(sum), by elimination along the carries."""

    def __init__(self, config: TimesConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        self.reasoner = Elimination(problem)

    def forward(self, scores: Tensor, sums: Tensor, noise: torch.Generator) -> Tensor:
        return self.reasoner.loss(Belief.from_logits(scores), sums).mean()


class AmortizedWay(Way):
    """-log q(sum) of an inference model: a cell for all columns ("scan"), or a network for each digit ("mlp")."""

    def __init__(self, config: TimesConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        model: Literal["scan", "mlp"] = "mlp" if config.how == "mlp" else "scan"
        self.engine = make_engine(AmortizedAdditionConfig(config.digits, model=model, hidden=config.hidden), problem)

    def forward(self, scores: Tensor, sums: Tensor, noise: torch.Generator) -> Tensor:
        belief = Belief.from_logits(scores)
        self.engine.observe(belief)
        return self.engine.loss(belief, sums).mean()

    def learn(self, noise: torch.Generator) -> Tensor | None:
        return self.engine.inference_loss(self.config.samples, generator=noise)


class SampledWay(Way):
    r"""Of each digit j of the sum, -log of how probable it is that a drawn world gets it right; or of the whole sum.

    The derivative :math:`-\sum_j \nabla p_j / \hat p_j` is that of the expected cost
    :math:`-\sum_j [c(w)_j = y_j] / \hat p_j`, by an estimator; :math:`\hat p_j` is a share of worlds drawn apart. Whole
    sums of long numbers are never right at first, and would say nothing.
    """

    def __init__(self, config: TimesConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        self.estimator: Estimator = ESTIMATORS[config.how](config.samples)

    def forward(self, scores: Tensor, sums: Tensor, noise: torch.Generator) -> Tensor:
        with torch.no_grad():
            apart = torch.multinomial(scores.softmax(-1).flatten(0, 1), DRAWS, replacement=True, generator=noise)
            shares = self.right(apart.T.view(DRAWS, *scores.shape[:2]), sums, scores.dtype).mean(0).clamp(0.5 / DRAWS)
        tape = Tape(batch_dims=1, generator=noise)
        worlds = tape.sample(Independent(Categorical(logits=scores, validate_args=False), 1), self.estimator)
        tape.cost(-(self.right(worlds, sums, scores.dtype) / shares).sum(-1))
        surrogate = tape.surrogate()
        return surrogate - surrogate.detach() - shares.log().sum(-1).mean()

    def right(self, worlds: Tensor, sums: Tensor, dtype: torch.dtype) -> Tensor:
        """Which digits of the sum are right, 0 or 1; or whether all of them are."""
        found = self.problem(worlds) == sums
        return (found.all(-1, keepdim=True) if self.config.whole else found).to(dtype)


ESTIMATORS: dict[str, Callable[[int], Estimator]] = {
    "score": MovingAverage,
    "loo": LeaveOneOut,
    "unordered-set": UnorderedSet,
    "indecater": IndeCateR,
}


class FuzzyWay(Way):
    """One axiom in fuzzy logic: there are carries, and digits in each column that fit them."""

    def __init__(self, config: TimesConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        self.model = Model(carried(config.digits), Fuzzy(), **{"is": probs(nn.Identity())})

    def forward(self, scores: Tensor, sums: Tensor, noise: torch.Generator) -> Tensor:
        read = scores.double().softmax(-1).unbind(1)  # truths of long sums are below what float32 tells from 0
        names = [f"{number}{i}" for number in "ab" for i in range(self.config.digits)]
        columns = {f"s{i}": digit for i, digit in enumerate(sums.unbind(1))}
        return self.model.loss(sums=columns | dict(zip(names, read, strict=True)))


def carried(digits: int) -> str:
    """Addition in the language. Each carry is said to exist just outside of what it matters to, so that a formula of N
    columns has tables of two carries and no more.

    >>> print(carried(2).strip().splitlines()[-1].split(". ", 1)[1].replace(" & (", chr(10) + "& ("))
    exists c1: Carry. (exists d, e: Digit where d + e + c1 = p.s1 + 10 * p.s0. is(p.a0, d) & is(p.b0, e))
    & (exists d, e: Digit where d + e = p.s2 + 10 * c1. is(p.a1, d) & is(p.b1, e))
    """
    fields = [f"{number}{i}: Image" for number in "ab" for i in range(digits)]
    fields += [f"s{i}: Int" for i in range(digits + 1)]
    formula = ""
    for i in range(digits):  # the most significant column is innermost
        into, out = f" + c{i + 1}" if i < digits - 1 else "", f"c{i}" if i else "p.s0"
        guard = f"d + e{into} = p.s{i + 1} + 10 * {out}"
        column = f"(exists d, e: Digit where {guard}. is(p.a{i}, d) & is(p.b{i}, e))"
        formula = f"(exists c{i}: Carry. {formula} & {column})" if i else column
    carry = "sort Carry = 0..1" if digits > 1 else ""
    return f"""
    sort Image
    sort Digit = 0..9
    {carry}
    data sums({", ".join(fields)})
    pred is(Image, Digit)
    [sum] forall p in sums. {formula[1:-1]}
    """


class RefinedWay(Way):
    """Cross entropy of what one Gödel refinement step infers of a sum of two digits."""

    def __init__(self, config: TimesConfig, problem: Problem) -> None:
        super().__init__(config, problem)
        self.layer = addition_layer()

    def forward(self, scores: Tensor, sums: Tensor, noise: torch.Generator) -> Tensor:
        truths = scores.softmax(-1).flatten(1)
        refined = self.layer(torch.cat([truths, truths.new_zeros(len(truths), 19)], -1))[:, 20:]
        return cross_entropy(safe_log(refined), 10 * sums[:, 0] + sums[:, 1])


WAYS: dict[str, Callable[[TimesConfig, Problem], Way]] = {
    "exact": ExactWay,
    "scan": AmortizedWay,
    "mlp": AmortizedWay,
    **dict.fromkeys(ESTIMATORS, SampledWay),
    "fuzzy": FuzzyWay,
    "refined": RefinedWay,
}


CANNOT = {
    **dict.fromkeys(("n-15/refined", "n-15-shifted/refined"), "lists the worlds, of which there are 10³⁰"),
    "n-4/refined": "lists the worlds, of which there are 10⁸",
}
"""What there is no entry for, and why."""


@dataclass(frozen=True)
class Cell:
    """The runs of one way on one table."""

    runs: Sequence[Result]

    @property
    def seconds(self) -> list[float]:
        """CPU-seconds of the runs that reached the target, sorted."""
        return sorted([run.metrics["seconds"] for run in self.runs if "seconds" in run.metrics])

    def shown(self) -> str:
        """Median, least and most of the seeds; or how many of them reached the target, or how near they came."""
        found, count = self.seconds, len(self.runs)
        if not found:
            best = max(run.metrics["held_out"] for run in self.runs)
            spent = max(run.metrics["spent"] for run in self.runs)
            return f"not reached in {spent:.0f} s (at best {best:.1f} %)"
        spread = f"{found[0]:.3g} to {found[-1]:.3g}" if len(found) > 1 else f"{found[0]:.3g}"
        if len(found) < count:
            return f"{len(found)} of {count} seeds: {spread}"
        return f"{median(found):.3g} ({spread})"


def times_table(results: Sequence[Result]) -> str:
    """CPU-seconds to accuracy as a Markdown table: a row for each way, a column for each size."""
    cells = {name: Cell(runs) for (name, _), runs in by_budget(results).items()}
    rows = []
    for how in WAYS:
        row = [NAMES.get(how, how)]
        for table in TABLES:
            name = f"{table}/{how}"
            cell = cells.get(f"times/{name}")
            row.append(cell.shown() if cell else CANNOT.get(name, "not run"))
        rows.append(row)
    return markdown_table(["way of reasoning", *TABLES.values()], rows)


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Seconds to accuracy, and where the time of a step goes; the first also as a table."""
    if not results:
        return []
    drawing, (seconds, short, long) = figure(1, 3, size=(15, 4.2))
    _draw_seconds(seconds, results)
    _draw_parts(short, results, ("n-1",))
    _draw_parts(long, results, ("n-15-shifted", "n-15"))
    for axes in (seconds, short, long):
        axes.set(yticks=range(len(WAYS)), ylim=(len(WAYS) - 0.4, -0.6))
        axes.set_yticklabels([NAMES.get(how, how) for how in WAYS], fontsize=8)
        axes.grid(alpha=0.3, axis="x")
    table = folder / "times.md"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(table, (times_table(results) + "\n").encode())
    return [saved(drawing, folder / "times.png"), table]


def _draw_seconds(axes: Any, results: Sequence[Result]) -> None:
    """A dot for each seed, and a hollow triangle at the time that did not suffice."""
    for colour, (table, title) in enumerate(TABLES.items()):
        axes.plot([], [], "o", color=f"C{colour}", label=title)
        for y, how in enumerate(WAYS):
            for run in _runs(results, table, how):
                done = "seconds" in run.metrics
                style = {"color": f"C{colour}", "markersize": 5, "fillstyle": "full" if done else "none"}
                axes.plot([run.metrics["spent"]], [y + 0.15 * (colour - 1.5)], "o" if done else ">", **style)
    axes.set(title="CPU-seconds to accuracy; > not reached", xscale="log")
    axes.legend(fontsize=7, ncol=2, loc="upper left", bbox_to_anchor=(0, -0.08))


def _draw_parts(axes: Any, results: Sequence[Result], tables: tuple[str, ...]) -> None:
    """A bar for each way: of the time of a step the shares of its parts, from the first table that has it."""
    for y, how in enumerate(WAYS):
        runs = next((found for table in tables if (found := _runs(results, table, how))), [])
        parts = [median([run.metrics[f"{part} of a step"] for run in runs]) for part in PARTS] if runs else []
        for i, part in enumerate(parts):
            axes.barh(y, 100 * part / sum(parts), left=100 * sum(parts[:i]) / sum(parts), color=f"C{i}")
        if parts:
            axes.text(101, y, f"{sum(parts):.3g} ms", va="center", fontsize=7)
    for i, name in enumerate(PARTS):
        axes.barh(0, 0, color=f"C{i}", label=name)
    axes.set(title=f"where the time of a step goes, %: N = {tables[0].split('-')[1]}", xlim=(0, 118))
    axes.legend(fontsize=7, ncol=3, loc="upper left", bbox_to_anchor=(0, -0.08))


def _runs(results: Sequence[Result], table: str, how: str) -> list[Result]:
    return [run for run in results if run.experiment == f"times/{table}/{how}"]


TABLES = {
    "n-1": "N = 1, 97 %",
    "n-4": "N = 4, 92 %",
    "n-15": "N = 15, 76.8 %",
    "n-15-shifted": "N = 15 shifted, 76.8 %",
}
NAMES = {
    "scan": "amortised, scan",
    "mlp": "amortised, MLP",
    "score": "sampled, score function",
    "loo": "sampled, leave one out",
    "unordered-set": "sampled, unordered set",
    "indecater": "sampled, IndeCateR",
}
OWN: dict[str, dict[str, Any]] = {
    "score": {"samples": 16},
    "loo": {"samples": 16},
    "unordered-set": {"samples": 8},
    "indecater": {"samples": 1},
}
"""What a way has besides the settings of its table."""
SIZES: dict[str, dict[str, Any]] = {
    "n-1": {"digits": 1, "target": 97.0, "cap": 60.0, "batch_size": 32, "steps": 10_000, "whole": True},
    "n-4": {"digits": 4, "target": 92.0, "cap": 120.0, "batch_size": 16, "steps": 10_000},
    "n-15": {"digits": 15, "target": 76.8, "cap": 240.0, "batch_size": 8, "steps": 15_000},
}
SIZES["n-15-shifted"] = SIZES["n-15"] | {"shift": 2}
INFERENCE: dict[str, dict[str, dict[str, Any]]] = {
    "scan": {
        "n-1": {"samples": 100, "pretrain": 200, "steps": 3000},
        "n-4": {"samples": 50, "pretrain": 300, "steps": 3500},
        "n-15": {"samples": 32, "pretrain": 300, "steps": 8000, "inference_rate": 1e-2},
    },
    "mlp": {
        "n-1": {"samples": 128, "hidden": 128, "pretrain": 200, "steps": 3000, "inference_rate": 1e-3},
        "n-4": {"samples": 128, "hidden": 128, "pretrain": 500, "steps": 5000, "inference_rate": 1e-3},
        "n-15": {"samples": 128, "hidden": 128, "pretrain": 500, "steps": 5000, "inference_rate": 1e-3},
    },
}
"""Of amortised reasoning also the length of the schedule, at whose end both rates have fallen to 0."""


def _entry(table: str, how: How) -> Entry:
    settings = {"learning_rate": 2e-3, "hopeless": 20.0, **SIZES[table], **OWN.get(how, {})}
    if how in INFERENCE:
        settings |= INFERENCE[how][table.removesuffix("-shifted")]
        settings["decay"] = settings["steps"]
    if (table, how) == ("n-15-shifted", "scan"):
        settings["cap"] = 360.0
    return Entry(f"{table}/{how}", TimesConfig(how=how, **settings))


TIMES = Experiment(
    name="times",
    about="CPU-seconds until digits learnt from sums are read well enough",
    entries=tuple([_entry(t, how) for t in TABLES for how in get_args(How) if f"{t}/{how}" not in CANNOT]),
    train=train,
    metrics=("held_out", "reached", "seconds", "spent", "accuracy", "digit_accuracy"),
    draw=_draw,
)
"""Entries ``n-1/exact``, ``n-15-shifted/scan``: the digits of each number, and the way of reasoning."""
