"""Training a task under a semantics, in a run folder."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from doxa.data import Batches
from doxa.errors import ConfigError, RunError
from doxa.logic import Ragged
from doxa.semantics import Model, Semantics
from doxa.train.runs._checkpoint import Checkpoint
from doxa.train.runs._config import config_values, load_config
from doxa.train.runs._files import write_json
from doxa.train.runs._run import Run
from doxa.train.runs._state import seeded
from doxa.train.runs._steps import discard_unlearnt
from doxa.train.tasks._find import find_task
from doxa.train.tasks._fit import Fitting, fit
from doxa.train.tasks._labelled import TRIED, Labelled, best_start, kept_open, start_seed
from doxa.train.tasks._labels import Labels, read_labels
from doxa.train.tasks._measure import mean_entropy, measure
from doxa.train.tasks._task import Task, columns, nearest

LOOKED_AT = 500
"""Learning curves are of so many rows, the first ones: of what is held out, else of the test rows."""


@dataclass(frozen=True)
class Fingerprint:
    """SHA-256 of the data of a task, and of the shapes of its parameters; empty in runs from before there were any.

    >>> Fingerprint("a", "b", "c").changes(Fingerprint("a", "d", "c")), Fingerprint().changes(Fingerprint("a"))
    (['its test data have changed'], [])
    """

    train: str = ""
    test: str = ""
    networks: str = ""
    labels: str = ""

    @classmethod
    def of(cls, task: Task, model: Model) -> Fingerprint:
        """The fingerprint of a task as it is now, with a model of it."""
        shapes = {
            name: "not known yet" if nn.parameter.is_lazy(parameter) else list(parameter.shape)
            for name, parameter in model.named_parameters()
        }
        labels = _hashed(task.labels) if task.labels else ""
        return cls(_hashed(task.train), _hashed(task.test), _hashed(shapes), labels)

    def changes(self, now: Fingerprint) -> list[str]:
        """What is another thing now; of what was not noted nothing is known."""
        said = {"train": "its training data", "test": "its test data", "networks": "the shapes of its networks"}
        changed = [name for name in said if getattr(self, name) not in ("", getattr(now, name))]
        told = ["its concept labels have changed"] * (self.labels != now.labels)
        return [*[f"{said[name]} have changed" for name in changed], *told]


@dataclass(frozen=True)
class TaskConfig:
    """What a run folder keeps of a task that was trained.

    Of ``validation`` training rows held out are the learning curves, patience looks at them, and the checkpoint that
    was best on them counts: by task accuracy where there is a target, else by satisfaction, and of equals the first.
    With 0 the last checkpoint counts. ``diversity`` times `Model.diversity` is added to the loss, and logged apart.
    So is, in the first half of the steps and less and less, -``spread`` times `mean_entropy`.
    """

    task: str  # its name, or the file it is in
    semantics: str  # the word that was given, or the object as text
    meaning: str  # what the word meant
    knowledge: str  # as text
    data: str = ""  # a folder, where one was given
    batch_size: int = 64
    validation: int = 0
    diversity: float = 0.0
    spread: float = 0.0
    fitting: Fitting = field(default_factory=Fitting)
    concepts: str = ""  # a table of concept labels, where one was given
    fingerprint: Fingerprint = field(default_factory=Fingerprint)  # to notice that data and networks have changed

    def __post_init__(self) -> None:
        if self.validation < 0:
            raise ConfigError(f"validation is {self.validation}, expected 0 or more training rows to hold out")
        for name in ("diversity", "spread"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected a weight of 0 or more")
        if self.fitting.patience and not self.validation:
            raise ConfigError("patience needs rows to look at that are not for testing; hold some out: validation=500")


class _Objective(nn.Module):
    """The loss of a batch: that of the knowledge, and the task's own beside it."""

    done: Tensor  # steps, where spread becomes less with them

    def __init__(self, task: Task, model: Model, config: TaskConfig) -> None:
        super().__init__()
        self.model, self.diversity, self.spread = model, config.diversity, config.spread
        if self.spread:
            self.register_buffer("done", torch.zeros(()))
            self._half = config.fitting.steps / 2

        def whole(batch: Mapping[str, Any]) -> dict[str, Any]:
            return task.with_rows(task.train, batch)

        labelled = Labelled(task)
        # functions, for a copy of the module (a moving average of it) must not copy the data
        self._whole, self._supervised, self.labelled = whole, task.supervised, labelled.loss if labelled else None
        self._concepts = {symbol: list(places) for symbol, places in task.concepts.items()}

    def forward(self, /, **batch: Any) -> dict[str, Tensor]:
        data = self._whole(batch)
        losses = self.model.losses(**data)
        metrics = {"loss": losses.total}
        if len(losses.names) > 1:
            metrics.update({f"loss of {name}": value for name, value in losses.by_name().items()})
        if self.labelled is not None:
            told = self.labelled(self.model)
            metrics |= {**told, "loss": metrics["loss"] + sum(told.values())}
        if self._supervised is not None:
            metrics["supervised"] = _loss(self._supervised(self.model, data))
            metrics["loss"] = metrics["loss"] + metrics["supervised"]
        if self.diversity:
            metrics["diversity"] = self.model.diversity(**data).total
            metrics["loss"] = metrics["loss"] + self.diversity * metrics["diversity"]
        if self.spread and self.done < self._half:
            metrics["entropy"] = mean_entropy(self.model, self._concepts, batch)
            metrics["loss"] = metrics["loss"] - self.spread * (1 - self.done / self._half) * metrics["entropy"]
        return metrics

    def prepare(self, batch: Mapping[str, Any]) -> None:
        """Count the step, and let the inference models of an amortised semantics learn; others have none."""
        if self.spread:
            self.done += 1
        self.model.inference_step(**self._whole(batch))

    def blame(self, /, **batch: Any) -> str:
        return self.model.find_nonfinite(**self._whole(batch))


def _loss(returned: Any) -> Tensor:
    """What the function of a user returned as a loss, checked."""
    if isinstance(returned, int | float):
        return torch.tensor(float(returned))
    if not isinstance(returned, Tensor) or returned.ndim > 0:
        kind = f"a tensor {tuple(returned.shape)}" if isinstance(returned, Tensor) else type(returned).__name__
        remedy = "take its mean" if isinstance(returned, Tensor) else "does it end with return?"
        raise ConfigError(f"supervised returned {kind}, expected a loss: a tensor of one number; {remedy}")
    return returned


def train_task(
    task: Task,
    semantics: str | Semantics,
    path: str | Path,
    *,
    seed: int = 0,
    settings: Iterable[str] = (),
    source: str = "",
    data: str = "",
    concepts: str = "",
    progress: bool = True,
) -> Run:
    """Train a task in a run folder, or go on with it.

    Started again after it was killed, it ends with the same bits as if it had not been.

    Args:
        task: what to learn.
        semantics: how to reason: a word, see `Task.semantics_of`, or any semantics.
        path: the run folder.
        seed: of the first parameters, the order of the rows and all that is sampled.
        settings: changes of the fitting and of the configuration, such as ``"steps=100"``, ``"batch_size=16"``,
            ``"validation=500"``.
        source: where the task is found again: its name or file; by default its name.
        data: the folder of data that it was made from.
        concepts: the file that its labels were read from, see `read_labels`; it is only noted.
        progress: show how far it is.

    >>> import doxa, tempfile, torch
    >>> x = torch.randn(256, 2)
    >>> data = {"points": {"x": x, "label": (x[:, 0] > 0).long()}}
    >>> task = Task(
    ...     "signs", "Is the first number positive?",
    ...     '''sort Point; sort Bit = 0..1; data points(x: Point, label: Bit); func sign(Point) -> Bit
    ...        [told] forall p in points. s := sign(p.x) (s = p.label)''',
    ...     lambda: {"sign": doxa.logits(torch.nn.Linear(2, 2))}, data, data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train_task(task, "exact", folder, settings=["steps=100", "learning_rate=0.1"], progress=False)
    ...     run.metrics_at(100)["loss"] < 0.2
    ...     doxa.train.evaluate_run(folder, task).satisfaction > 0.9
    ...     doxa.train.write_task_report([folder]).name
    True
    True
    'report.html'
    """
    chosen = task.semantics_of(semantics) if isinstance(semantics, str) else semantics
    config = replace(configured(task, semantics, settings, source=source, data=data), concepts=concepts)
    task.check_values()
    learnt, looked_at = task.held_out(config.validation, seed=seed) if config.validation else (task, task)
    rows = columns(learnt.train, task.rows, "train")
    size = min(config.batch_size, learnt.size("train"))
    batches = Batches(rows, size, seed=seed, drop_last=True)
    model = task.model(chosen, seed=seed)
    config = replace(config, fingerprint=Fingerprint.of(task, model))
    if (Path(path) / "run.json").exists():
        kept = task_config(begun := Run.open(path))
        if config_values(kept) != config_values(config) and discard_unlearnt(begun):
            kept = config  # it failed before it had learnt anything, and has been mended: begin anew
        _check_unchanged(begun, kept, config)
        config = replace(config, fingerprint=kept.fingerprint)  # an old run has none
    objective = _Objective(learnt, model, config)
    if (task.starts > 1 or objective.labelled is not None) and not _has_begun(path):
        objective = _best_objective(learnt, lambda k: task.model(chosen, seed=start_seed(seed, k)), config, seed)

    def look(judged: nn.Module) -> dict[str, float]:
        with _parameters_of(objective.model, judged):
            measured = measure(looked_at, objective.model, None if config.validation else LOOKED_AT, seed=seed)
        return measured.scores()

    run = fit(
        objective,
        batches,
        path,
        config,
        fitting=config.fitting,
        seed=seed,
        evaluate=look,
        best=("task_accuracy" if task.target else "satisfaction") if config.validation else None,
        progress=progress,
    )
    most = max(noted_memory(run), round(peak_megabytes(), 1))
    write_json(run.path / "memory.json", config_values(Memory(most)))
    return run


def _has_begun(path: str | Path) -> bool:
    """Is there a checkpoint to go on from?"""
    return (Path(path) / "run.json").exists() and bool(Run.open(path).saved_steps())


def _best_objective(task: Task, make: Callable[[int], Model], config: TaskConfig, seed: int) -> _Objective:
    """The best of several starts; where a run goes on, its checkpoint has one already."""
    size = min(config.batch_size, task.size("train"))

    def loss(objective: _Objective) -> Callable[[float], Tensor]:
        batches = Batches(columns(task.train, task.rows, "train"), size, seed=seed, drop_last=True)

        def step(left: float) -> Tensor:
            batch = batches.next()
            objective.prepare(batch)
            if config.spread:
                objective.done.zero_()  # these steps come before the first
            found: Tensor = objective(**batch)["loss"]
            return found + (kept_open(objective.model, task.with_rows(task.train, batch), left) if labels else 0)

        return step

    labels = bool(Labelled(task))
    starts = (_Objective(task, make(k), config) for k in range(task.label_starts if labels else task.starts))
    with seeded(seed):
        tried = TRIED if labels else max(TRIED, config.fitting.steps // 4)
        return best_start(starts, loss, config.fitting.make_optimizer, tried)


@contextmanager
def _parameters_of(model: Model, judged: nn.Module) -> Iterator[None]:
    """The model, with the parameters of what is judged: itself, or a moving average of it.

    An average is a copy of parameters only. What else a model has learnt, such as how to infer, it has not got.
    """
    assert isinstance(judged, _Objective)
    own, others = [*model.parameters()], [*judged.model.parameters()]
    saved, training = [parameter.detach().clone() for parameter in own], model.training
    for parameter, other in zip(own, others, strict=True):
        parameter.data.copy_(other.data)
    model.eval()
    try:
        yield
    finally:
        model.train(training)
        for parameter, value in zip(own, saved, strict=True):
            parameter.data.copy_(value)


def configured(
    task: Task, semantics: str | Semantics, settings: Iterable[str] = (), *, source: str = "", data: str = ""
) -> TaskConfig:
    """The configuration of a run, with changes such as ``"steps=100"``."""
    chosen = task.semantics_of(semantics) if isinstance(semantics, str) else semantics
    word = semantics if isinstance(semantics, str) else repr(semantics)
    config = TaskConfig(
        source or task.name,
        word,
        repr(chosen),
        task.text,
        data,
        task.batch_size,
        task.validation,
        task.diversity,
        task.spread,
        task.fitting,
    )
    of_fitting = [f.name for f in fields(Fitting)]
    known = [*of_fitting, "batch_size", "validation", "diversity", "spread"]
    changes = []
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if "=" in setting and key not in known:
            raise ConfigError(f"unknown key {key!r}; {nearest(key, known, 'there are the keys')}")
        changes.append(f"fitting.{setting}" if key in of_fitting else setting)
    return load_config(TaskConfig, config_values(config), overrides=changes)


def run_folder(
    out: Path, task: Task, word: str, *, seed: int, settings: Iterable[str] = (), concepts: Path | None = None
) -> Path:
    """Where a run goes by default: ``out/addition/exact/2000-steps/seed-0``.

    >>> import torch
    >>> from doxa.train.tasks._find import addition_task
    >>> from doxa.data import MNIST
    >>> grey = torch.zeros(20, 28, 28, dtype=torch.uint8)
    >>> task = addition_task(MNIST(grey, torch.arange(20) % 10, grey, torch.arange(20) % 10))
    >>> run_folder(Path("runs"), task, "fuzzy:godel", seed=1, settings=["steps=9", "batch_size=4"]).as_posix()
    'runs/addition/fuzzy-godel+batch_size=4/9-steps/seed-1'
    """
    steps = configured(task, word, settings).fitting.steps
    others = [setting for setting in settings if not setting.startswith("steps=")]
    others += [] if concepts is None else [f"concepts={concepts.stem}"]
    name = re.sub(r"[^\w.+=-]+", "-", "+".join((word, *others)))
    return out / task.name / name / f"{steps}-steps" / f"seed-{seed}"


def open_run(path: str | Path, task: Task | None = None, semantics: Semantics | None = None) -> tuple[Run, Task, Model]:
    """A run of a task, its task, and the model as it was trained.

    Args:
        path: the run folder.
        task: where the folder does not say how to find it: one that was trained from Python.
        semantics: likewise, where it was no word.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open_run(folder)
    Traceback (most recent call last):
    doxa.errors.RunError: ... is not a run: it has no run.json; train one with doxa train
    """
    run = Run.open(path)
    config = task_config(run)
    if task is None:
        task = find_task(_from_run(config.task, run.path), data=_from_run(config.data, run.path) or None)
    if semantics is None:
        try:
            semantics = task.semantics_of(config.semantics)
        except ConfigError as error:
            raise ConfigError(f"{run.path} was trained with {config.semantics}: give it again") from error
    model = task.model(semantics, seed=run.seed)
    now = replace(Fingerprint.of(task, model), labels=config.fingerprint.labels)  # what was told is not asked again
    _check_unchanged(run, config, replace(config, knowledge=task.text, fingerprint=now))
    state = checkpoint_that_counts(run).state
    saved = state.get("objective", {}).items()
    trained = {name.removeprefix("model."): value for name, value in saved if name != "done"}
    parameters = dict(model.named_parameters())
    for name, value in state.get("average", {}).items():  # where parameters were averaged, the averages count
        if (own := name.removeprefix("module.model.")) in parameters:
            trained[own] = value
    try:
        model.load_state_dict(trained)
    except RuntimeError as error:
        raise RunError(
            f"the networks of {config.task} are not those that {run.path} was trained with "
            f"({' '.join(str(error).split())}); train it elsewhere with --out, or delete the folder"
        ) from error
    return run, task, model.eval()


def labels_of_run(run: Run, task: Task) -> Labels:
    """The concept labels that a run learnt from, read from its table again; an error if that is gone or has changed."""
    config = task_config(run)
    if not config.fingerprint.labels:
        return {}
    file = _from_run(config.concepts, run.path)
    origin = config.concepts or "given from Python"
    give = f"{run.path} learnt from concept labels ({origin}); give them with --concepts"
    if not config.concepts or not Path(file).is_file():
        raise RunError(f"{give}: they cannot be found from here")
    labels = read_labels(file, task)
    if _hashed(labels) != config.fingerprint.labels:
        raise RunError(f"{give}: {file} is not what it was then")
    return labels


def _check_unchanged(run: Run, before: TaskConfig, now: TaskConfig) -> None:
    """An error if the knowledge, the data or the networks are not those that the run began with."""
    if changes := _changes(before, now):
        seed = "; data that are drawn need a fixed seed" * any("data" in change for change in changes)
        raise RunError(
            f"the run in {run.path} is of another version of {before.task} ({', '.join(changes)}); train it elsewhere "
            f"with --out, or delete the folder{seed}"
        )


def _changes(before: TaskConfig, now: TaskConfig) -> list[str]:
    changes = ["its knowledge has changed"] * (before.knowledge != now.knowledge)
    return changes + before.fingerprint.changes(now.fingerprint)


def _from_run(name: str, folder: Path) -> str:
    """A file or folder that was named where the run was started, as it is found from here.

    What is not here is looked for from the folders that the run lies in: one of them is where it was started.
    """
    if not (name.endswith((".py", ".csv")) or os.sep in name) or Path(name).is_absolute() or Path(name).exists():
        return name
    around = [parent / name for parent in folder.resolve().parents]
    return str(next((file for file in around if file.exists()), name))


def task_config(run: Run) -> TaskConfig:
    """The configuration of a run; an error if it is not a run of a task."""
    if not {"task", "semantics", "knowledge"} <= set(run.config):
        raise RunError(f"{run.path} is no run of a task; doxa train makes one")
    return load_config(TaskConfig, run.config)


def checkpoint_that_counts(run: Run) -> Checkpoint:
    """The best on what was held out; the last where nothing was."""
    return run.load("best" if task_config(run).validation else "last")


@dataclass(frozen=True)
class Memory:
    """What ``memory.json`` holds: the most memory that a process needed that trained in the folder."""

    peak_megabytes: float = 0.0


def noted_memory(run: Run) -> float:
    """The most memory that a process needed that trained here; 0 if that is not known."""
    return (run.read_aside(Memory, "memory.json") or Memory()).peak_megabytes


def peak_megabytes() -> float:
    """The most memory that this process has had, in megabytes."""
    try:  # unlike getrusage, this does not count the process that started this one
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # not on this system
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 2**10


def _hashed(value: Any, found: Any = None) -> str:
    """The SHA-256 of data, fed to one that is under way where it is given."""
    found = found or hashlib.sha256()
    if isinstance(value, Tensor):
        whole = value.detach().cpu()
        whole = whole if whole.layout == torch.strided else whole.to_dense()
        found.update(f"tensor {value.dtype} {tuple(value.shape)} ".encode())
        found.update(whole.contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray):
        plain = value.tolist() if value.dtype == object else torch.from_numpy(np.ascontiguousarray(value))
        _hashed(plain, found)
    elif isinstance(value, Ragged):
        _hashed([value.values, value.lengths], found)
    elif isinstance(value, Mapping):
        found.update(f"mapping {len(value)} ".encode())
        for key in sorted(value, key=str):
            _hashed(str(key), found)
            _hashed(value[key], found)
    elif isinstance(value, list | tuple):
        found.update(f"list {len(value)} ".encode())
        for item in value:
            _hashed(item, found)
    elif value is None or isinstance(value, str | int | float):
        found.update(f"{value!r} ".encode())
    else:
        found.update(f"{type(value).__name__} ".encode())  # its text may hold an address, which changes
    return str(found.hexdigest())
