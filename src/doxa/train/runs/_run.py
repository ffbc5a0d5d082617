"""A run is a folder."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, TypeVar

import numpy as np
import torch

from doxa._version import __version__
from doxa.errors import ConfigError, RunError, RunWarning
from doxa.train.runs import _checkpoint, _files
from doxa.train.runs._checkpoint import Checkpoint
from doxa.train.runs._config import config_values, load_config, read_config
from doxa.train.runs._state import Stateful, capture, restore

T = TypeVar("T")

NAMED = 8
"""So many runs below a folder are named, where it is none itself."""


@dataclass(frozen=True)
class About:
    """What ``run.json`` holds, and nothing private: no host, user or folder names, and no path of the program."""

    config: Mapping[str, Any]
    seed: int
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    command: tuple[str, ...]
    started: str

    @classmethod
    def now(cls, config: Mapping[str, Any], seed: int) -> About:
        """About a run that begins here and now."""
        versions = {"doxa": __version__, "numpy": np.__version__, "python": platform.python_version()}
        system, threads = f"{platform.system()} {platform.machine()}", torch.get_num_threads()
        return cls(
            config,
            seed,
            versions={**versions, "torch": str(torch.__version__)},
            machine={"platform": system, "cpus": os.cpu_count(), "threads": threads},
            command=(_program(), *sys.argv[1:]),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )


class Run:
    """A folder that holds everything about one training run, and from which it continues exactly.

    - ``run.json``: configuration, seed, versions, machine, command and date; written once.
    - ``metrics.jsonl``: one line of JSON per logged event. No times, so that it is the same for an interrupted and an
      uninterrupted run.
    - ``checkpoints/``: the last checkpoint, the one before it, and the best.
    - ``figures/``: whatever is drawn.

    Make one with `Run.start` (create or continue), `Run.create` (must be new) or `Run.open` (must exist). One
    process writes to a folder at a time; any number may read.

    Args:
        path: a folder with a ``run.json``.

    >>> import dataclasses, tempfile, torch
    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     rate: float = 0.1
    >>> folder = tempfile.TemporaryDirectory()
    >>> model = torch.nn.Linear(2, 1)
    >>> run = Run.create(Path(folder.name) / "first", Config(), seed=1)
    >>> run.log(10, {"loss": 0.5})
    >>> run.save(10, {"model": model})
    >>> again = Run.start(run.path, Config(), seed=1)
    >>> again.resume({"model": torch.nn.Linear(2, 1)}).step
    10
    >>> again.metrics()
    [{'step': 10, 'loss': 0.5}]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        file = self.path / "run.json"
        try:
            about = read_config(About, file)
        except (ConfigError, OSError) as error:
            if not file.exists():
                raise RunError(f"{self.path} is not a run: it has no run.json; {_nearby(self.path)}") from error
            raise RunError(f"{file} is damaged ({error}); put back a copy of it") from error
        self.config, self.seed, self.versions = dict(about.config), about.seed, dict(about.versions)
        self.machine, self.command, self.started = dict(about.machine), list(about.command), about.started
        self._checkpoints = self.path / "checkpoints"
        self._metrics = self.path / "metrics.jsonl"
        self._last: Checkpoint | None = None  # where the run stands: what was resumed from or saved last
        self._resumed = self._repaired = False
        self._begin_clock()

    @classmethod
    def create(cls, path: str | Path, config: object, *, seed: int) -> Run:
        """Make a new run in a folder that does not exist yet, or is empty; its parents are made too.

        The configuration is a frozen dataclass, see `load_config`. The seed is noted; nothing is seeded here.

        Raises:
            RunError: there is something in the folder already, or it cannot be written.
            ConfigError: the configuration cannot be stored.
        """
        path = Path(path)
        about = About.now(config_values(config), _whole("seed", seed))
        if path.exists() and (not path.is_dir() or any(entry.suffix != ".tmp" for entry in path.iterdir())):
            what = "holds a run already; continue it with Run.start" if (path / "run.json").exists() else "is not empty"
            raise RunError(f"{path} {what}; for a new run choose another folder (--out)")
        _files.make_folder(path)
        _files.write_json(path / "run.json", config_values(about))
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run, to read it or to go on with it.

        Raises:
            RunError: there is no run in the folder.
        """
        return cls(path)

    @classmethod
    def start(cls, path: str | Path, config: object, *, seed: int) -> Run:
        """Create a run, or continue the one in the folder if it has the same configuration and seed.

        Keys that the configuration has got since the run began are taken at their defaults. Other versions of torch
        or doxa than those that began the run give a warning, since results may then differ in the last bits.

        Raises:
            ConfigError: the run in the folder has another configuration or seed; the message says where they differ.
            RunError: as `create`.
        """
        if not (Path(path) / "run.json").exists():
            return cls.create(path, config, seed=seed)
        run = cls(path)
        now = About.now(config_values(config), _whole("seed", seed))
        differences = _differences(config_values(load_config(type(config), run.config)), now.config)
        differences += _differences({"seed": run.seed}, {"seed": seed})
        if differences:
            raise ConfigError(
                f"{path} holds another run ({'; '.join(differences)}); choose another folder (--out), or continue "
                "that one"
            )
        versions = now.versions.items()
        changed = [f"{name} {old} is now {new}" for name, new in versions if (old := run.versions.get(name)) != new]
        if changed:
            warnings.warn(f"{path} goes on with other versions: {', '.join(changed)}", RunWarning, stacklevel=2)
        return run

    @property
    def figures(self) -> Path:
        """The folder for figures; it is made when first asked for."""
        _files.make_folder(self.path / "figures")
        return self.path / "figures"

    def read_aside(self, cls: type[T], name: str) -> T | None:
        """What a file of the folder holds that a run can do without: a frozen dataclass; None if there is no such file.

        A damaged one is set aside under another name, with a warning.
        """
        file = self.path / name
        if not file.exists():
            return None
        try:
            return read_config(cls, file)
        except (ConfigError, OSError) as error:
            _files.set_aside(file, str(error))
            return None

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a line to the metrics of a step: numbers, or tensors of one number, by name."""
        if not self._repaired:
            _files.cut(self._metrics)
            self._repaired = True
        _files.append_line(self._metrics, _whole("step", step), _files.plain_numbers(metrics))

    def metrics(self) -> list[dict[str, Any]]:
        """All metrics, a dict per line; a last line torn by a kill is left out."""
        return _files.read_lines(self._metrics)

    def metrics_at(self, step: int) -> dict[str, float]:
        """The metrics logged at one step, of all its lines together; empty if there are none."""
        lines = [line for line in self.metrics() if line["step"] == step]
        return {name: value for line in lines for name, value in line.items() if name != "step"}

    def save(self, step: int, state: Mapping[str, Stateful], *, score: float | None = None) -> None:
        """Write a checkpoint, and remove those that are neither the last two nor the best.

        Args:
            step: how many steps were done; more than at the last checkpoint.
            state: whatever has a state, by name: modules, optimisers, schedulers, batches, generators, dicts.
            score: of an evaluation at this step, higher is better; the checkpoint with the highest is kept.

        Raises:
            RunError: the disk is full, say, or something in the state cannot be stored. Older checkpoints are intact.
        """
        step, last = _whole("step", step), self._last
        if last is None and not self._resumed and (existing := _checkpoint.steps(self._checkpoints)):
            raise RunError(f"{self.path} has checkpoints up to step {existing[-1]}; call resume() before save()")
        if last is not None and step <= last.step:
            raise RunError(f"the last checkpoint is of step {last.step}, cannot save one of step {step} after it")
        score = None if score is None or not math.isfinite(score) else float(score)
        best = (last.best_step, last.best_score) if last else (None, None)
        if score is not None and (best[1] is None or score > best[1]):
            best = (step, score)
        checkpoint = Checkpoint(
            step=step,
            state=capture(state),
            score=score,
            best_step=best[0],
            best_score=best[1],
            cpu_seconds=time.process_time() - self._began[0],
            wall_seconds=time.perf_counter() - self._began[1],
            metrics_size=_files.sync(self._metrics),  # lines up to here are on the disk before the checkpoint says so
        )
        _checkpoint.write(self._checkpoints, checkpoint)
        self._last = replace(checkpoint, state={})
        # Should the last turn out damaged, the one before it must find its own best.
        keep = {step, checkpoint.best_step} | ({last.step, last.best_step} if last else set())
        _checkpoint.keep_only(self._checkpoints, {kept for kept in keep if kept is not None})

    def resume(self, state: Mapping[str, Stateful]) -> Checkpoint | None:
        """Put everything back as it was at the last good checkpoint, and the metrics with it.

        Metrics of later steps are removed, since those steps will be done again. Without a checkpoint the run stands
        at its beginning: the metrics are emptied and the state is left alone.

        Args:
            state: the objects that were saved, under the same names, built in the same way.

        Returns:
            The checkpoint, or None if there is none yet.

        Raises:
            RunError: all checkpoints are damaged, or they do not fit the objects.
        """
        checkpoint = self.follow(state)
        missing = _files.cut(self._metrics, checkpoint.metrics_size if checkpoint else 0)
        if missing:
            warnings.warn(f"{self._metrics} has lost {missing} bytes of older lines", RunWarning, stacklevel=2)
        _files.mend_lines(self._metrics)
        for folder in (self.path, self._checkpoints):
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()
        if checkpoint:
            _checkpoint.remove_superseded(self._checkpoints, checkpoint)
        self._resumed = self._repaired = True
        self._last = replace(checkpoint, state={}) if checkpoint else None
        self._begin_clock()
        return checkpoint

    def follow(self, state: Mapping[str, Stateful]) -> Checkpoint | None:
        """Put everything back as `resume` does, in a process that writes nothing into the folder."""
        checkpoint = _checkpoint.read_last(self._checkpoints)
        if checkpoint is not None:
            restore(state, checkpoint.state, f"the checkpoint of step {checkpoint.step} in {self.path}")
        return checkpoint

    def saved_steps(self) -> list[int]:
        """The steps of which there are checkpoints, damaged ones too."""
        return list(_checkpoint.steps(self._checkpoints))

    def load(self, which: str = "last") -> Checkpoint:
        """Read a checkpoint without going on from it.

        Args:
            which: ``"last"``, or ``"best"`` for the one with the highest score.

        Raises:
            RunError: there is no such checkpoint, or it is damaged.
        """
        if which not in ("last", "best"):
            raise RunError(f"which is {which!r}, wanted 'last' or 'best'")
        last = _checkpoint.read_last(self._checkpoints)
        if last is None:
            raise RunError(f"{self.path} has no checkpoint yet; train it first")
        if which == "last" or last.best_step == last.step:
            return last
        if last.best_step is None:
            raise RunError(f"{self.path} has no best checkpoint: no checkpoint was saved with a score")
        return _checkpoint.read(self._checkpoints, last.best_step)

    def _begin_clock(self) -> None:
        before = (self._last.cpu_seconds, self._last.wall_seconds) if self._last else (0.0, 0.0)
        self._began = time.process_time() - before[0], time.perf_counter() - before[1]

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> list[str]:
    """Where two configurations with the same keys differ; texts of several lines are not shown."""
    found = []
    for key, new in now.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += _differences(old, new, f"{path}{key}.")
        elif old != new:
            long = any(isinstance(text, str) and "\n" in text for text in (old, new))
            found.append(f"{path}{key} is another text" if long else f"{path}{key} was {old!r}, now {new!r}")
    return found


def _nearby(folder: Path) -> str:
    """What to name in place of a folder that is no run: the runs below it, as deep as doxa train puts them."""
    below = [file.parent for depth in range(1, 5) for file in sorted(folder.glob("*/" * depth + "run.json"))]
    if not below:
        return "train one with doxa train"
    shown = ", ".join(map(str, below[:NAMED])) + (f" and {len(below) - NAMED:,} more" if len(below) > NAMED else "")
    return f"below it {'is' if len(below) == 1 else 'are'} {shown}"


def _program() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:  # started by `python -m`
        return f"python -m {spec.name.removesuffix('.__main__')}"
    return PurePath(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"


def _whole(name: str, value: int) -> int:
    if type(value) is not int or value < 0:
        raise RunError(f"{name} is {value!r}, wanted an int of at least 0")
    return value
