r"""Gradients of expectations through sampling, at any order: stochastic computation graphs.

A model samples and then pays a cost; training wants the derivatives of the *expected* cost,

    ∇ⁿ_θ E_{x ~ p_θ}[ f(x, θ) ],

and automatic differentiation does not see through the sampling. A :class:`Tape` records samples and costs and returns a
surrogate loss: its value is an estimate of the expected cost, and its n-th derivative one of the n-th derivative
(dissertation, chapter 5). How good an estimate is chosen at every sampling step: an estimator is a tuple of four
functions,

    proposal q,   weight w,   gradient function l,   control variate a,          □(l) = exp(l − ⊥l),
    SL = Σ_{x_1} w_1 [ a_1 + Σ_{x_2} w_2 [ □(l_1) a_2 + … □(l_1 + … + l_k) f ] ].

Estimators that are not unbiased at the order asked for are refused, and :func:`check_unbiased` proves or tests the
claim for your own, on one node or on a whole tape. There is no global state: the tape is an object, samples are
plain tensors.

>>> import torch
>>> from torch.distributions import OneHotCategorical
>>> logits = torch.zeros(8, 3, requires_grad=True)
>>> tape = Tape(batch_dims=1)
>>> z = tape.sample(OneHotCategorical(logits=logits), LeaveOneOut(5))           # (5, 8, 3)
>>> _ = tape.cost((z @ torch.tensor([1.0, 2.0, 4.0])).square())
>>> tape.surrogate().backward()
"""

from doxa.stochastic._check import Verdict, check_tape, check_unbiased
from doxa.stochastic._profile import profile_variance
from doxa.stochastic.estimators._catalogue import catalogue
from doxa.stochastic.estimators._differences import SPSA, MeasureValued
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._lifted import GO, FromGradient, IndeCateR, RaoBlackwell
from doxa.stochastic.estimators._noise import ARM, ARMS, ARSM, LAX, REBAR, RELAX, DisARM
from doxa.stochastic.estimators._pathwise import IMLE, GumbelSoftmax, Implicit, Reparameterise, StraightThrough
from doxa.stochastic.estimators._score import (
    VIMCO,
    Enumerate,
    ImportanceSampling,
    LearnedBaseline,
    LeaveOneOut,
    MovingAverage,
    PerturbAndMAP,
    Score,
    SelfCritical,
    SelfNormalised,
)
from doxa.stochastic.estimators._sequences import Sequences
from doxa.stochastic.estimators._sum_and_sample import MAPO, StochasticSumAndSample, SumAndSample
from doxa.stochastic.estimators._without_replacement import ScoreWithoutReplacement, UnorderedSet
from doxa.stochastic.tape._magic import magic_box
from doxa.stochastic.tape._tape import Tape

__all__ = [
    "ARM",
    "ARMS",
    "ARSM",
    "GO",
    "IMLE",
    "LAX",
    "MAPO",
    "REBAR",
    "RELAX",
    "SPSA",
    "VIMCO",
    "DisARM",
    "Draw",
    "Enumerate",
    "Estimator",
    "FromGradient",
    "GumbelSoftmax",
    "Implicit",
    "ImportanceSampling",
    "IndeCateR",
    "LearnedBaseline",
    "LeaveOneOut",
    "MeasureValued",
    "MovingAverage",
    "PerturbAndMAP",
    "RaoBlackwell",
    "Reparameterise",
    "Score",
    "ScoreWithoutReplacement",
    "SelfCritical",
    "SelfNormalised",
    "Sequences",
    "StochasticSumAndSample",
    "StraightThrough",
    "SumAndSample",
    "Tape",
    "UnorderedSet",
    "Verdict",
    "catalogue",
    "check_tape",
    "check_unbiased",
    "magic_box",
    "profile_variance",
]
