r"""A-NeSI: inference that is learnt, for problems where exact reasoning is hopeless.

A belief P gives each world w a probability, and a known function c gives it an output y. Two networks learn the answers
that exact inference would have to sum for (dissertation, chapter 6):

    q(y | P) ≈ p(y | P) = Σ_w p(w | P) [c(w) = y]                       the prediction model
    q(w | y, P) ≈ p(w | y, P)                                           the explanation model

Their training data cost nothing: draw a belief from a prior, a world from the belief, and compute its output,

    P ~ p(P),   w ~ p(w | P),   y = c(w),        L_Pred = -log q(y | P),   L_Expl = (log q(w, y | P) / p(w | P))².

Then -log q(y | P) trains a perception network, with no sum over worlds: a step takes time proportional to the length of
y and w. What q gets wrong is bias in that gradient; ``divergence`` measures it, and ``AmortizedControl`` removes it.

Everything is decoded value by value, outputs first. A *pruner* forbids values that cannot be completed, so that what is
decoded is valid whatever the networks have learnt. A new task is its ``Problem`` and a few lines:

>>> import torch
>>> from doxa.problem import Belief, Problem
>>> problem = Problem.from_function(lambda a, b: (a * b // 10, a * b % 10), world=(10, 10), output=(9, 10))
>>> engine = AmortizedReasoner(problem)
>>> losses = engine.update(steps=3, samples=100)                       # some thousands, in earnest
>>> logits = torch.randn(16, 2, 10, requires_grad=True)                # what a network says about two images
>>> loss = engine.loss(Belief.from_logits(logits), torch.tensor([5, 6])).mean()     # the product is 56
>>> loss.backward()
>>> engine.predict(Belief.from_logits(logits)).shape
torch.Size([16, 2])
"""

from doxa.amortized._control import AmortizedControl, with_sampling, worlds_of
from doxa.amortized._knowledge import KnowledgeProblem
from doxa.amortized._reasoner import AmortizedReasoner
from doxa.amortized.models._graph import FactorGraphModel
from doxa.amortized.models._grid import GridCNN, MoveResNet
from doxa.amortized.models._model import Carry, InferenceModel
from doxa.amortized.models._networks import CausalTransformer, FactorMLPs, PairsModel
from doxa.amortized.models._outcomes import CategoricalOutcomes, GaussianOutcomes
from doxa.amortized.models._scan import Columns, ScanModel
from doxa.amortized.pruners._derived import LearnedPruner, SatPruner, SupportPruner
from doxa.amortized.pruners._pruner import AdditionPruner, FunctionPruner, PathPruner, Pruner
from doxa.amortized.training._priors import FittedDirichlet, FixedDirichlet, MixtureDirichlet, Prior, Replay
from doxa.amortized.training._training import JointTraining

__all__ = [
    "AdditionPruner",
    "AmortizedControl",
    "AmortizedReasoner",
    "Carry",
    "CategoricalOutcomes",
    "CausalTransformer",
    "Columns",
    "FactorGraphModel",
    "FactorMLPs",
    "FittedDirichlet",
    "FixedDirichlet",
    "FunctionPruner",
    "GaussianOutcomes",
    "GridCNN",
    "InferenceModel",
    "JointTraining",
    "KnowledgeProblem",
    "LearnedPruner",
    "MixtureDirichlet",
    "MoveResNet",
    "PairsModel",
    "PathPruner",
    "Prior",
    "Pruner",
    "Replay",
    "SatPruner",
    "ScanModel",
    "SupportPruner",
    "with_sampling",
    "worlds_of",
]
