"""Exact probabilistic reasoning: weighted model counting, as far as it goes.

A belief P gives each world w a probability, and a known function c gives it an output. What is asked for is

    p(y | P) = Σ_w p(w | P) [c(w) = y]              (dissertation, chapter 6, "Weighted Model Counting")

a sum over all worlds. There may be too many of them to list, but not too many to sum: ``Enumeration`` lists them,
``Elimination`` adds up one variable after the other within the problem's factors, ``Compilation`` turns them into a
circuit of products and sums. ``plan`` picks one and says why. ``Constraint`` reasons with knowledge, and
``ConstrainedLayer`` makes a network obey it.

All engines compute log p(y | P) in log space, batched, in float32 or float64, and any number of times differentiable.
The derivative with respect to a log-probability is the posterior probability of that value, so training moves the
belief towards the worlds that explain what was observed. The same sum answers every other question: marginals of the
outputs and of the world, the k most probable explanations, exact samples, entropy, divergence, expectations.

>>> import torch
>>> from doxa.problem import Belief, addition
>>> reasoner = Elimination(addition(15))                                # 10^30 worlds
>>> belief = Belief.from_logits(torch.randn(64, 30, 10))
>>> loss = reasoner.loss(belief, torch.randint(1, 2, (64, 16))).mean()
"""

from doxa.exact._constraint import ConstrainedLayer, Constraint
from doxa.exact.engines._compilation import Compilation
from doxa.exact.engines._counterfactual import condition, counterfactual, describe
from doxa.exact.engines._elimination import Elimination, Enumeration
from doxa.exact.engines._plan import ExactPlan, plan
from doxa.exact.engines._reasoner import ExactReasoner

__all__ = [
    "Compilation",
    "ConstrainedLayer",
    "Constraint",
    "Elimination",
    "Enumeration",
    "ExactPlan",
    "ExactReasoner",
    "condition",
    "counterfactual",
    "describe",
    "plan",
]
