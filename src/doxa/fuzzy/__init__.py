r"""Differentiable fuzzy logic: truth values in [0, 1], connectives and quantifiers as differentiable functions.

A formula gets a truth value by replacing each connective with an operator (Chapter 3, Def. val):

.. math::
    e(¬φ) = N(e(φ)), \quad e(φ ∧ ψ) = T(e(φ), e(ψ)), \quad e(φ ∨ ψ) = S(e(φ), e(ψ)), \quad
    e(φ → ψ) = I(e(φ), e(ψ)), \quad e(∀x φ) = A_{o} e(φ[x:o]), \quad e(∃x φ) = E_{o} e(φ[x:o])

Which operators one takes decides what the gradient does: whether it reaches the antecedent or the consequent, one
instance or all of them, or nothing at all. So this room has them all, small frozen objects called on tensors:

* negations N, t-norms T with their duals S (``T.dual``), additive generators (``T.generator``) and n-ary reductions
  (``T.reduce(x, dim, mask, weight)``);
* implications I: ``SImplication(S)`` and ``T.residuum``; :func:`sigmoidal` bends any operator;
* aggregators A and E, with masks and weights;
* a :class:`Logic` picks one of each, :func:`logic` has them by name;
* the :func:`valuation` of a formula or a knowledge base on data, compiled into a :class:`FuzzyPlan`; relation heads
  that are fast on all pairs;
* :func:`measure`: what the gradients of implications do on data, beside what guessing would do;
* analysis: which laws an operator satisfies, and on how much of its domain its gradient vanishes, found by trying.

Everything is finite on the closed cube: logarithms are those of max(x, ε) and singular derivatives are capped at 1/ε,
ε being the machine epsilon of the dtype unless an operator is told otherwise. Elsewhere values and derivatives are
exact. At kinks the derivative is one of the one-sided ones: at the edge of a plateau it is the plateau's, 0; of
arguments that tie for a minimum or maximum the first has it whole; a p-norm of zeros has derivative 0.

Parameters (p, λ, s, b₀) are floats, or :class:`Learnable` and then trained within their bounds.

>>> import torch
>>> L = logic("product")
>>> raven, black = torch.tensor([0.9, 0.2], requires_grad=True), torch.tensor([0.3, 0.4])
>>> truth = L.forall(L.implies(raven, black))
>>> truth, torch.autograd.grad(truth, raven)
(tensor(0.3256, ...), (tensor([-0.6160, -0.2220]),))
"""

from doxa.fuzzy._heads import Bilinear, NeuralTensorNetwork, SquaredDistance
from doxa.fuzzy._logic import (
    AGGREGATORS,
    DUBOIS_PRADE,
    FODOR,
    GOGUEN,
    IMPLICATIONS,
    KLEENE_DIENES,
    LOGICS,
    NEGATIONS,
    REICHENBACH,
    TNORMS,
    WEBER,
    Connective,
    Logic,
    log_space,
    logic,
    recommended,
    stable_product,
    symmetric,
    tnorm_logic,
)
from doxa.fuzzy._plan import FuzzyPlan, valuation
from doxa.fuzzy.analysis._laws import (
    Fraction,
    cone_increasing,
    contrapositive_derivatives,
    implication_laws,
    irwin_hall_cdf,
    nonvanishing_fraction,
    single_passing,
    tconorm_properties,
    tnorm_properties,
    yager_fraction,
)
from doxa.fuzzy.analysis._measures import GradientMeasures, measure
from doxa.fuzzy.operators._basic import (
    AczelAlsina,
    Dombi,
    Drastic,
    Godel,
    Lukasiewicz,
    NilpotentMinimum,
    Product,
    Yager,
)
from doxa.fuzzy.operators._connectives import (
    STANDARD,
    Archimedean,
    Implication,
    IntuitionisticNegation,
    Negation,
    RImplication,
    SImplication,
    StandardNegation,
    SugenoNegation,
    TConorm,
    TNorm,
    YagerNegation,
)
from doxa.fuzzy.operators._families import (
    Frank,
    FrankGenerator,
    Hamacher,
    SchweizerSklar,
    SchweizerSklarGenerator,
    SugenoWeber,
    SugenoWeberGenerator,
)
from doxa.fuzzy.operators._generators import Generator
from doxa.fuzzy.operators._logspace import LogDisjunction, LogExists, LogForall
from doxa.fuzzy.operators._parameters import Learnable
from doxa.fuzzy.operators._wrapped import SigmoidalAggregator, SigmoidalImplication, StableConnective, sigmoidal
from doxa.fuzzy.quantifiers._aggregators import (
    Aggregator,
    GeneralizedMean,
    GeneralizedMeanError,
    LogProbabilisticSum,
    LogProduct,
    TConormAggregator,
    TNormAggregator,
    UnboundedYager,
    UnboundedYagerSum,
)

__all__ = [
    "AGGREGATORS",
    "DUBOIS_PRADE",
    "FODOR",
    "GOGUEN",
    "IMPLICATIONS",
    "KLEENE_DIENES",
    "LOGICS",
    "NEGATIONS",
    "REICHENBACH",
    "STANDARD",
    "TNORMS",
    "WEBER",
    "AczelAlsina",
    "Aggregator",
    "Archimedean",
    "Bilinear",
    "Connective",
    "Dombi",
    "Drastic",
    "Fraction",
    "Frank",
    "FrankGenerator",
    "FuzzyPlan",
    "GeneralizedMean",
    "GeneralizedMeanError",
    "Generator",
    "Godel",
    "GradientMeasures",
    "Hamacher",
    "Implication",
    "IntuitionisticNegation",
    "Learnable",
    "LogDisjunction",
    "LogExists",
    "LogForall",
    "LogProbabilisticSum",
    "LogProduct",
    "Logic",
    "Lukasiewicz",
    "Negation",
    "NeuralTensorNetwork",
    "NilpotentMinimum",
    "Product",
    "RImplication",
    "SImplication",
    "SchweizerSklar",
    "SchweizerSklarGenerator",
    "SigmoidalAggregator",
    "SigmoidalImplication",
    "SquaredDistance",
    "StableConnective",
    "StandardNegation",
    "SugenoNegation",
    "SugenoWeber",
    "SugenoWeberGenerator",
    "TConorm",
    "TConormAggregator",
    "TNorm",
    "TNormAggregator",
    "UnboundedYager",
    "UnboundedYagerSum",
    "Yager",
    "YagerNegation",
    "cone_increasing",
    "contrapositive_derivatives",
    "implication_laws",
    "irwin_hall_cdf",
    "log_space",
    "logic",
    "measure",
    "nonvanishing_fraction",
    "recommended",
    "sigmoidal",
    "single_passing",
    "stable_product",
    "symmetric",
    "tconorm_properties",
    "tnorm_logic",
    "tnorm_properties",
    "valuation",
    "yager_fraction",
]
