"""Experiments: training runs that end in a table, a few pictures and a page to read.

An experiment is a frozen configuration, a seed and a run folder (`doxa.runs`); whatever it shows is computed from what
the folder holds, so it can be interrupted, continued and shown again at any time. The first one, `train_digits`, fits
the network f with which A-NeSI perceives digits (`digit_network`) to the labels of MNIST by minimising the cross
entropy

    L = - (1/b) Σ_i log softmax(f(x_i))[y_i],

and keeps the parameters that are best on 10,000 training digits held out.

A `Task` is knowledge, networks and data; `train_task` trains it under any semantics, `evaluate_run` measures what came
of it, `compare_task` does both for several semantics side by side, and `write_task_report` makes a page of the runs.
``doxa train``, ``doxa compare`` and the others are the commands; ``python -m doxa.experiments`` compares five semantics
on MNIST addition.

An `Experiment` is a list of named configurations (`Entry`) with what was published of each; `reproduce` runs some of
them in run folders, `collect` finds what has been run, and ``doxa reproduce`` is the command that does both.

A `Gallery` is a set of named figures (`Illustration`) that `write_gallery` draws into a folder with a page around them:
`fuzzy_figures` are those of Chapter 3, and ``doxa figures`` is the command. `draw_operators` draws single operators.
"""

from __future__ import annotations

from doxa.experiments._addition import ADDITION
from doxa.experiments._addition_amortized import AmortizedAdditionConfig
from doxa.experiments._addition_exact import ExactAdditionConfig
from doxa.experiments._addition_refine import RefineAdditionConfig, addition_layer
from doxa.experiments._baselines import DigitsBaseline
from doxa.experiments._digits import DigitsConfig, digit_network, train_digits
from doxa.experiments._experiment import Entry, Experiment, collect, reproduce
from doxa.experiments._explanations import explanation_figures
from doxa.experiments._figures_operator import draw_operators
from doxa.experiments._fit import Fitting, fit
from doxa.experiments._fuzzy_figures import fuzzy_figures
from doxa.experiments._gallery import Gallery, Illustration, write_gallery
from doxa.experiments._paths import PATHS, PathsConfig
from doxa.experiments._refine_figures import refine_figures
from doxa.experiments._same import SAME, SUM9
from doxa.experiments._same_config import PairsConfig
from doxa.experiments._sat import SAT, SatConfig
from doxa.experiments._sudoku import SUDOKU, SudokuConfig
from doxa.experiments._sudoku_pairs import SudokuPairsConfig
from doxa.experiments._task import SEMANTICS, Task
from doxa.experiments._task_compare import Comparison, compare_task
from doxa.experiments._task_evaluate import Evaluation, evaluate_run, read_evaluation
from doxa.experiments._task_find import find_task
from doxa.experiments._task_report import write_task_report
from doxa.experiments._task_train import TaskConfig, open_run, run_folder, train_task
from doxa.experiments._tasks_builtin import BUILT_IN
from doxa.experiments._vae import VAE, VAEConfig

__all__ = [
    "ADDITION",
    "BUILT_IN",
    "PATHS",
    "SAME",
    "SAT",
    "SEMANTICS",
    "SUDOKU",
    "SUM9",
    "VAE",
    "AmortizedAdditionConfig",
    "Comparison",
    "DigitsBaseline",
    "DigitsConfig",
    "Entry",
    "Evaluation",
    "ExactAdditionConfig",
    "Experiment",
    "Fitting",
    "Gallery",
    "Illustration",
    "PairsConfig",
    "PathsConfig",
    "RefineAdditionConfig",
    "SatConfig",
    "SudokuConfig",
    "SudokuPairsConfig",
    "Task",
    "TaskConfig",
    "VAEConfig",
    "addition_layer",
    "collect",
    "compare_task",
    "digit_network",
    "draw_operators",
    "evaluate_run",
    "explanation_figures",
    "find_task",
    "fit",
    "fuzzy_figures",
    "open_run",
    "read_evaluation",
    "refine_figures",
    "reproduce",
    "run_folder",
    "train_digits",
    "train_task",
    "write_gallery",
    "write_task_report",
]
