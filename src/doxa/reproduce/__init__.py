"""The dissertation's experiments and figures, measured again.

An `Experiment` is a list of named configurations (`Entry`) with what was published of each; `reproduce` runs some of
them in run folders (`doxa.train`), `collect` finds what has been run, and ``doxa reproduce`` is the command that does
both. Whatever is shown is computed from what the folders hold: it can be interrupted, continued and shown again.

The smallest one, `train_digits`, fits the network f with which A-NeSI perceives digits to the labels of MNIST by
minimising the cross entropy

    L = - (1/b) Σ_i log softmax(f(x_i))[y_i],

and keeps the parameters that are best on 10,000 training digits held out.

A `Gallery` is a set of named figures (`Illustration`) that `write_gallery` draws into a folder with a page around them:
`fuzzy_figures` are those of Chapter 3, and ``doxa figures`` is the command. `draw_operators` draws single operators.
"""

from __future__ import annotations

from doxa.reproduce._experiment import Entry, Experiment, collect, reproduce
from doxa.reproduce.addition._amortized import AmortizedAdditionConfig
from doxa.reproduce.addition._exact import ExactAdditionConfig
from doxa.reproduce.addition._experiment import ADDITION
from doxa.reproduce.addition._explanations import explanation_figures
from doxa.reproduce.addition._refine import RefineAdditionConfig, addition_layer
from doxa.reproduce.digits._baselines import DigitsBaseline
from doxa.reproduce.digits._digits import DigitsConfig, train_digits
from doxa.reproduce.figures._fuzzy import fuzzy_figures
from doxa.reproduce.figures._gallery import Gallery, Illustration, write_gallery
from doxa.reproduce.figures._operator import draw_operators
from doxa.reproduce.figures._refine import refine_figures
from doxa.reproduce.paths._experiment import PATHS, PathsConfig
from doxa.reproduce.same._config import PairsConfig
from doxa.reproduce.same._experiment import SAME, SUM9
from doxa.reproduce.sat._experiment import SAT, SatConfig
from doxa.reproduce.sudoku._experiment import SUDOKU, SudokuConfig
from doxa.reproduce.sudoku._pairs import SudokuPairsConfig
from doxa.reproduce.vae._experiment import VAE, VAEConfig

__all__ = [
    "ADDITION",
    "PATHS",
    "SAME",
    "SAT",
    "SUDOKU",
    "SUM9",
    "VAE",
    "AmortizedAdditionConfig",
    "DigitsBaseline",
    "DigitsConfig",
    "Entry",
    "ExactAdditionConfig",
    "Experiment",
    "Gallery",
    "Illustration",
    "PairsConfig",
    "PathsConfig",
    "RefineAdditionConfig",
    "SatConfig",
    "SudokuConfig",
    "SudokuPairsConfig",
    "VAEConfig",
    "addition_layer",
    "collect",
    "draw_operators",
    "explanation_figures",
    "fuzzy_figures",
    "refine_figures",
    "reproduce",
    "train_digits",
    "write_gallery",
]
