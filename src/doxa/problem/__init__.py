"""What all probabilistic reasoning shares: beliefs, problems, and the face of a reasoner.

A network looks at some input and forms a *belief* P: a probability for each value of each *world* variable, such as
the digits in two images. A known function c maps a world w to an *output* y, such as the digits of the sum. Only
the output is observed, and reasoning connects it with the belief (dissertation, chapter 6, "Problem setup"):

    p(w | P) = ∏_i P[i, w_i]                    the belief in a world
    p(y | P) = E_{p(w|P)}[c(w) = y]             weighted model counting: the belief in an output
    p(w | y, P) ∝ p(w | P) [c(w) = y]           which worlds explain an output

``Belief`` is P, ``Problem`` is c with its domains, and a ``Reasoner`` answers the questions. ``BruteForce`` answers
them all by going through every world, exactly and differentiably; it is the yardstick for every other engine. A
``Mixture`` is a weighted sum of beliefs, for worlds whose variables depend on each other.

A ``Problem`` may also give its function as ``factors``, relations between few variables, which lets engines reason over
worlds far too many to list: the sum of two 1000-digit numbers is a chain of 1000 small factors.

>>> import torch
>>> problem = addition(1)
>>> belief = Belief.from_logits(torch.randn(64, 2, 10))
>>> loss = BruteForce(problem).loss(belief, torch.tensor([1, 3])).mean()         # all these pairs sum to 13
"""

from doxa.problem._belief import Belief
from doxa.problem._brute_force import BruteForce
from doxa.problem._budget import Budget
from doxa.problem._definition import Impossible
from doxa.problem._factors import Factor, Variable, tabulate
from doxa.problem._library import addition, cnf, comparison, exactly_k, majority, multiplication, parity, remainder
from doxa.problem._mixture import Mixture
from doxa.problem._paths import Paths, cheapest_paths, path_cells, path_moves, shortest_path
from doxa.problem._problem import Problem
from doxa.problem._reasoner import Explanations, Reasoner

__all__ = [
    "Belief",
    "BruteForce",
    "Budget",
    "Explanations",
    "Factor",
    "Impossible",
    "Mixture",
    "Paths",
    "Problem",
    "Reasoner",
    "Variable",
    "addition",
    "cheapest_paths",
    "cnf",
    "comparison",
    "exactly_k",
    "majority",
    "multiplication",
    "parity",
    "path_cells",
    "path_moves",
    "remainder",
    "shortest_path",
    "tabulate",
]
