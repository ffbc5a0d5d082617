"""Results: what a run measured, kept with all that is needed to measure it again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doxa.errors import ConfigError, RunError
from doxa.train.runs._config import config_values, read_config
from doxa.train.runs._files import make_folder, write_json
from doxa.train.runs._run import Run

PREFIX_STEP = 5
"""After so many steps another processor differs by far less than a changed operator, seed, split or learning rate."""


@dataclass(frozen=True)
class Result:
    """The outcome of one run with one seed.

    ``prefix`` holds the metrics at an early step. Rerunning just those steps and comparing (`check_prefix`) shows that
    the code still does what it did when the result was made, at a small part of the cost.

    Args:
        experiment: what was run, such as ``"same/reichenbach"``.
        config: the configuration as plain values.
        seed: the seed of the run.
        steps: how many steps were done: the budget.
        metrics: the metrics at the last step.
        prefix_step: an early step.
        prefix: the metrics at that step.
        cpu_seconds: CPU time of the steps, over all resumptions.
        command: the command line.
        machine: platform, number of CPUs and threads.
        versions: of doxa, torch, NumPy and Python.
        started: when the run began.

    >>> result = Result("demo", config={}, seed=1, steps=500, metrics={"accuracy": 0.9}, prefix={"accuracy": 0.5})
    >>> result.prefix_step, result.prefix
    (5, {'accuracy': 0.5})
    """

    experiment: str
    config: Mapping[str, Any]
    seed: int
    steps: int
    metrics: Mapping[str, float]
    prefix: Mapping[str, float]
    prefix_step: int = PREFIX_STEP
    cpu_seconds: float = 0.0
    command: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""

    @classmethod
    def of(cls, run: Run, experiment: str, *, prefix_step: int = PREFIX_STEP) -> Result:
        """The result of a run, as it stands at its last checkpoint.

        Raises:
            RunError: there is no checkpoint, or nothing was logged at that step or at ``prefix_step``.
        """
        last = run.load()
        metrics, prefix = run.metrics_at(last.step), run.metrics_at(prefix_step)
        for step, found in [(last.step, metrics), (prefix_step, prefix)]:
            if not found:
                raise RunError(f"{run.path} has no metrics at step {step}; train up to it, and let run_steps log it")
        about = {key: getattr(run, key) for key in ("config", "seed", "machine", "versions", "started")}
        return cls(
            experiment,
            **about,
            steps=last.step,
            metrics=metrics,
            prefix=prefix,
            prefix_step=prefix_step,
            cpu_seconds=round(last.cpu_seconds, 1),
            command=tuple(run.command),
        )

    def write(self, path: str | Path) -> None:
        """Write the result as a JSON file, with sorted keys so that changes read well."""
        make_folder(Path(path).parent)
        write_json(Path(path), config_values(self), sort_keys=True)

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a result from its JSON file.

        Raises:
            RunError: the file is missing, or is not a result.
        """
        if not Path(path).exists():
            raise RunError(f"there is no result {path}")
        try:
            return read_config(cls, path)
        except ConfigError as error:
            raise RunError(f"{path} is not a result ({error})") from error


def check_prefix(result: Result, rerun: Mapping[str, float], *, rtol: float = 0.01, atol: float = 1e-5) -> None:
    """Compare a rerun of a result's first steps with the metrics stored then.

    On the same machine, versions and number of threads a rerun gives the same bits. Another processor rounds sums in
    another order, about 1e-7 a step in float32; some hundred steps of training multiply that to several percent, the
    handful up to ``prefix_step`` to a tenth of a percent at most. So a metric agrees when it differs by at most
    ``atol + rtol·|stored|``. A changed operator, seed, split or learning rate moves some metric more than that.

    Args:
        result: the stored result.
        rerun: metrics by name at step ``result.prefix_step``, as ``run.metrics_at`` gives them, of a run with the same
            configuration and seed; those that were not stored do not count.
        rtol: relative tolerance.
        atol: absolute tolerance.

    Raises:
        RunError: a stored metric differs by more or is missing; the message lists all of them.

    >>> result = Result("demo", config={}, seed=1, steps=500, metrics={}, prefix={"loss": 0.5})
    >>> check_prefix(result, {"loss": 0.501})
    >>> check_prefix(result, {"loss": 0.6})
    Traceback (most recent call last):
    doxa.errors.RunError: demo, seed 1, differs at step 5: loss was 0.5, is 0.6 (within 0.005 would do)
    """
    wrong = []
    for name, stored in result.prefix.items():
        now, within = rerun.get(name), atol + rtol * abs(stored)
        if now is None:
            wrong.append(f"{name} was {stored:g}, is missing")
        elif not (stored == now or abs(stored - now) <= within < math.inf or (math.isnan(stored) and math.isnan(now))):
            wrong.append(f"{name} was {stored:g}, is {now:g} (within {within:.2g} would do)")
    if wrong:
        raise RunError(
            f"{result.experiment}, seed {result.seed}, differs at step {result.prefix_step}: {'; '.join(wrong)}"
        )
