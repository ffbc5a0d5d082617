"""Training: run folders that can be stopped at any moment, and tasks that are trained in them.

A `Task` is knowledge, networks and data; `train_task` trains it under any semantics, `evaluate_run` measures what came
of it, `compare_task` does both for several semantics side by side, and `write_task_report` makes a page of the runs.
``doxa train``, ``doxa compare`` and the others are the commands; ``python -m doxa.train`` compares five semantics on
MNIST addition.

Training is a sequence of states, each a function of the one before:

    s_{i+1} = step(s_i),    s = (parameters, optimiser, schedule, random generators, place in the data)

If all of s is stored at step k, then what follows is determined: killed at any moment and started again from s_k, a
run gives on one thread the same bits as one that was left alone. A `Run` is a folder that keeps this promise. It
holds the configuration (`load_config`: a frozen dataclass, where a typo is an error), seed, versions and command;
the metrics, one line of JSON each; and checkpoints, as safetensors and JSON, which are data and never code. A
checkpoint is written beside the old ones and renamed into place when it is whole on the disk; a damaged one is
noticed by its SHA-256 and passed over.

`run_steps` is the loop over ``step`` and nothing more: model and optimiser remain yours. `Result` keeps what a run
measured and `results_table` sets it beside what others published.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doxa.train.report._report import write_task_report
    from doxa.train.runs._config import config_values, load_config, read_config
    from doxa.train.runs._results import Result, Row, check_prefix, results_table
    from doxa.train.runs._run import Run
    from doxa.train.runs._state import GlobalRandom
    from doxa.train.runs._steps import clean_exit, run_steps
    from doxa.train.tasks._evaluate import compare_task, evaluate_run, evaluate_together
    from doxa.train.tasks._find import find_task
    from doxa.train.tasks._fit import Fitting, fit
    from doxa.train.tasks._labels import read_labels, write_labels
    from doxa.train.tasks._task import Task
    from doxa.train.tasks._train import open_run, train_task

__all__ = [
    "Fitting",
    "GlobalRandom",
    "Result",
    "Row",
    "Run",
    "Task",
    "check_prefix",
    "clean_exit",
    "compare_task",
    "config_values",
    "evaluate_run",
    "evaluate_together",
    "find_task",
    "fit",
    "load_config",
    "open_run",
    "read_config",
    "read_labels",
    "results_table",
    "run_steps",
    "train_task",
    "write_labels",
    "write_task_report",
]

_HOMES = {
    "report._report": ("write_task_report",),
    "runs._config": ("config_values", "load_config", "read_config"),
    "runs._results": ("Result", "Row", "check_prefix", "results_table"),
    "runs._run": ("Run",),
    "runs._state": ("GlobalRandom",),
    "runs._steps": ("clean_exit", "run_steps"),
    "tasks._evaluate": ("compare_task", "evaluate_run", "evaluate_together"),
    "tasks._find": ("find_task",),
    "tasks._fit": ("Fitting", "fit"),
    "tasks._labels": ("read_labels", "write_labels"),
    "tasks._task": ("Task",),
    "tasks._train": ("open_run", "train_task"),
}
"""The file of each name. Only what is asked for is loaded: a `Task` needs no reports."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"doxa.train.{home}"), name)
            globals()[name] = value  # looked up once
            return value
    raise AttributeError(f"module 'doxa.train' has no attribute {name!r}")
