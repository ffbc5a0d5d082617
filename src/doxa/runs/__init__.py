"""Run folders: training that can be stopped at any moment and goes on as if it had not been.

Training is a sequence of states, each a function of the one before:

    s_{i+1} = step(s_i),    s = (parameters, optimiser, schedule, random generators, place in the data)

If all of s is stored at step k, then what follows is determined: killed at any moment and started again from s_k, a
run gives on one thread the same bits as one that was left alone. A `Run` is a folder that keeps this promise. It
holds the configuration (`load_config`: a frozen dataclass, where a typo is an error), seed, versions and command;
the metrics, one line of JSON each; and checkpoints, as safetensors and JSON, which are data and never code. A
checkpoint is written beside the old ones and renamed into place when it is whole on the disk; a damaged one is
noticed by its SHA-256 and passed over.

`train` is the loop over ``step`` and nothing more: model and optimiser remain yours. `Result` keeps what a run
measured and `results_table` sets it beside what others published.

The files, to be read in this order: ``_run`` (the folder), ``_train`` (the loop), ``_checkpoint`` and ``_tree``
(the format), ``_state`` (who has a state), ``_config``, ``_metrics``, ``_progress``, ``_results``, ``_table``.
"""

from __future__ import annotations

from doxa.runs._checkpoint import Checkpoint
from doxa.runs._config import config_values, load_config, read_config
from doxa.runs._progress import Progress
from doxa.runs._results import Result, check_prefix
from doxa.runs._run import Run
from doxa.runs._state import GlobalRandom
from doxa.runs._table import ResultsTable, Row, results_table
from doxa.runs._train import clean_exit, train
from doxa.runs._tree import pack, unpack

__all__ = [
    "Checkpoint",
    "GlobalRandom",
    "Progress",
    "Result",
    "ResultsTable",
    "Row",
    "Run",
    "check_prefix",
    "clean_exit",
    "config_values",
    "load_config",
    "pack",
    "read_config",
    "results_table",
    "train",
    "unpack",
]
