"""The dissertation's experiments and figures, measured again.

An `Experiment` is a list of named configurations with what was published of each; `reproduce` runs some of
them in run folders (`doxa.train`), `collect` finds what has been run, and ``doxa reproduce`` is the command that does
both. Whatever is shown is computed from what the folders hold: it can be interrupted, continued and shown again.

The smallest one, `train_digits`, fits the network f with which A-NeSI perceives digits to the labels of MNIST by
minimising the cross entropy

    L = - (1/b) Σ_i log softmax(f(x_i))[y_i],

and keeps the parameters that are best on 10,000 training digits held out.

A gallery is a set of named figures that `write_gallery` draws into a folder with a page around them: `fuzzy_figures`
are those of Chapter 3, `refine_figures` those of Chapter 4, `timing_figures` of how long inference takes, and
``doxa figures`` is the command.
"""

from doxa.reproduce._addition import ADDITION
from doxa.reproduce._aggregates import AGGREGATES
from doxa.reproduce._counting import COUNTING
from doxa.reproduce._digits import train_digits
from doxa.reproduce._experiment import Experiment, collect, reproduce
from doxa.reproduce._graphs import GRAPHS
from doxa.reproduce._kinship import KINSHIP
from doxa.reproduce._labels import GRID, HMC, PREFERENCES
from doxa.reproduce._paths import PATHS
from doxa.reproduce._road import ROAD
from doxa.reproduce._same_tables import SAME, SUM9
from doxa.reproduce._sat import SAT
from doxa.reproduce._scale import SCALE
from doxa.reproduce._shortcuts import SHORTCUTS
from doxa.reproduce._sudoku import SUDOKU
from doxa.reproduce._times import TIMES
from doxa.reproduce._vae import VAE
from doxa.reproduce.figures._fuzzy import fuzzy_figures
from doxa.reproduce.figures._gallery import write_gallery
from doxa.reproduce.figures._refinement import refine_figures
from doxa.reproduce.figures._timings import timing_figures

__all__ = [
    "ADDITION",
    "AGGREGATES",
    "COUNTING",
    "GRAPHS",
    "GRID",
    "HMC",
    "KINSHIP",
    "PATHS",
    "PREFERENCES",
    "ROAD",
    "SAME",
    "SAT",
    "SCALE",
    "SHORTCUTS",
    "SUDOKU",
    "SUM9",
    "TIMES",
    "VAE",
    "Experiment",
    "collect",
    "fuzzy_figures",
    "refine_figures",
    "reproduce",
    "timing_figures",
    "train_digits",
    "write_gallery",
]
