"""A run is a folder."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doxa.errors import ConfigError, RunError, RunWarning
from doxa.train.runs import _checkpoint, _metrics
from doxa.train.runs._checkpoint import Checkpoint
from doxa.train.runs._config import config_values, load_config
from doxa.train.runs._facts import facts
from doxa.train.runs._files import make_folder, read_object, write_file
from doxa.train.runs._state import Stateful, capture, restore

__all__ = ["Run"]

NAMED = 8
"""So many runs below a folder are named, where it is none itself."""


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
        try:
            about = read_object(self.path / "run.json")
            self.config: dict[str, Any] = about["config"]
            self.seed: int = about["seed"]
            self.versions: dict[str, str] = about["versions"]
            self.machine: dict[str, Any] = about["machine"]
            self.command: list[str] = about["command"]
            self.started: str = about["started"]
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunError(f"{self.path} is not a run: it has no run.json; {_nearby(self.path)}") from error
        except (ValueError, KeyError) as error:
            raise RunError(f"{self.path / 'run.json'} is damaged ({error}); put back a copy of it") from error
        self._checkpoints = self.path / "checkpoints"
        self._metrics = self.path / "metrics.jsonl"
        self._last: Checkpoint | None = None  # where the run stands: what was resumed from or saved last
        self._resumed = self._repaired = False
        self._begin_clock()

    @classmethod
    def create(cls, path: str | Path, config: object, *, seed: int) -> Run:
        """Make a new run in a folder that does not exist yet, or is empty.

        Args:
            path: the folder; its parents are made too.
            config: an instance of a frozen dataclass, see `load_config`.
            seed: the seed of the run, to be noted; nothing is seeded here.

        Raises:
            RunError: there is something in the folder already, or it cannot be written.
            ConfigError: the configuration cannot be stored.
        """
        path = Path(path)
        about = {"config": config_values(config), "seed": _whole("seed", seed), **facts()}
        if path.exists() and (not path.is_dir() or any(entry.suffix != ".tmp" for entry in path.iterdir())):
            what = "holds a run already; continue it with Run.start" if (path / "run.json").exists() else "is not empty"
            raise RunError(f"{path} {what}; for a new run choose another folder (--out)")
        make_folder(path)
        write_file(path / "run.json", json.dumps(about, indent=2, allow_nan=False).encode() + b"\n")
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
        before = config_values(load_config(type(config), run.config))
        now = config_values(config)
        differences = _differences(before, now)
        if run.seed != _whole("seed", seed):
            differences.append(f"seed was {run.seed}, now {seed}")
        if differences:
            raise ConfigError(
                f"{path} holds another run ({'; '.join(differences)}); choose another folder (--out), or continue "
                "that one"
            )
        versions = facts()["versions"].items()
        changed = [
            f"{name} {run.versions.get(name)} is now {new}" for name, new in versions if run.versions.get(name) != new
        ]
        if changed:
            warnings.warn(f"{path} goes on with other versions: {', '.join(changed)}", RunWarning, stacklevel=2)
        return run

    @property
    def figures(self) -> Path:
        """The folder for figures; it is made when first asked for."""
        make_folder(self.path / "figures")
        return self.path / "figures"

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a line to the metrics.

        Args:
            step: how many steps were done.
            metrics: numbers, or tensors of one number, by name.
        """
        if not self._repaired:
            _metrics.cut(self._metrics)
            self._repaired = True
        _metrics.append_line(self._metrics, _whole("step", step), _metrics.plain_numbers(metrics))

    def metrics(self) -> list[dict[str, Any]]:
        """All metrics, a dict per line; a last line torn by a kill is left out."""
        return _metrics.read_lines(self._metrics)

    def metrics_at(self, step: int) -> dict[str, float]:
        """The metrics logged at one step, of all its lines together; empty if there are none."""
        merged: dict[str, float] = {}
        for line in self.metrics():
            if line.pop("step") == step:
                merged.update(line)
        return merged

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
        cpu, wall = self._clock()
        checkpoint = Checkpoint(
            step=step,
            state=capture(state),
            score=score,
            best_step=best[0],
            best_score=best[1],
            cpu_seconds=cpu,
            wall_seconds=wall,
            metrics_size=_metrics.sync(self._metrics),  # lines up to here are on the disk before the checkpoint says so
        )
        _checkpoint.write(self._checkpoints, checkpoint)
        self._last = _without_state(checkpoint)
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
        missing = _metrics.cut(self._metrics, checkpoint.metrics_size if checkpoint else 0)
        if missing:
            warnings.warn(f"{self._metrics} has lost {missing} bytes of older lines", RunWarning, stacklevel=2)
        for folder in (self.path, self._checkpoints):
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()
        self._resumed = self._repaired = True
        self._last = _without_state(checkpoint) if checkpoint else None
        self._begin_clock()
        return checkpoint

    def follow(self, state: Mapping[str, Stateful]) -> Checkpoint | None:
        """Put everything back as `resume` does, in a process that writes nothing into the folder.

        Returns:
            The checkpoint, or None if there is none yet.
        """
        checkpoint = _checkpoint.read_last(self._checkpoints)
        if checkpoint is not None:
            restore(state, checkpoint.state, f"the checkpoint of step {checkpoint.step} in {self.path}")
        return checkpoint

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
        self._cpu_start, self._wall_start = time.process_time(), time.perf_counter()
        self._before = (self._last.cpu_seconds, self._last.wall_seconds) if self._last else (0.0, 0.0)

    def _clock(self) -> tuple[float, float]:
        cpu, wall = self._before
        return cpu + time.process_time() - self._cpu_start, wall + time.perf_counter() - self._wall_start

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def _without_state(checkpoint: Checkpoint) -> Checkpoint:
    return Checkpoint(**{**vars(checkpoint), "state": {}})


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


def _whole(name: str, value: int) -> int:
    if type(value) is not int or value < 0:
        raise RunError(f"{name} is {value!r}, wanted an int of at least 0")
    return value
