r"""Refinement: predictions corrected by knowledge, at training and at test time, by the smallest change that does it.

A loss asks a network to respect what is known; refinement makes it so. For a formula with fuzzy truth f, the *minimal
refinement function* finds the vector nearest to the prediction t that has the wanted truth (Chapter 4):

.. math::  ρ(t, \hat t) = \arg\min_{z ∈ [0,1]^n} ‖z - t‖ \quad\text{such that}\quad f(z) = \hat t

* For one operator it has a closed form: :func:`refinement` gives it for every t-norm, t-conorm, S-implication and
  residuum, says in which norms it is minimal, and falls back to a numerical search where no closed form is.
* For whole formulas :class:`Refine` iterates: truth values go up the formula graph, targets come down it, each operator
  turning its own target into those of its arguments, and an atom that several subformulas want to change takes the
  largest change. It is an ``nn.Module``: ``nn.Sequential(net, Refine(knowledge))``.
* What refinement is measured against, and what helps it where it gets stuck: :class:`GradientRefine`, :func:`restarts`,
  :func:`hybrid`, and ``Refine(..., guarantee="sat")``.
* Ready-made: :class:`Hierarchy`, :class:`Rules`, :func:`mutual_exclusion`, :func:`exactly_one`, :class:`ClauseWeights`.

>>> import torch
>>> from doxa.logic import propositions
>>> rain, sprinkler, wet = propositions("rain sprinkler wet")
>>> layer = Refine((rain | sprinkler) >> wet, "lukasiewicz")
>>> layer(torch.tensor([0.5, 0.25, 0.25]))
tensor([0.3750, 0.1250, 0.5000])
"""

from __future__ import annotations

from doxa.refine._base import Refinement
from doxa.refine._catalogue import refinement
from doxa.refine._layers import ClauseWeights, Hierarchy, exactly_one, mutual_exclusion
from doxa.refine._linear import LinearCertificate, LinearProjection
from doxa.refine._linear_proof import Contradiction
from doxa.refine._linear_system import LinearSystem
from doxa.refine._refine import Refine
from doxa.refine._result import RefineResult
from doxa.refine._rules import Rules
from doxa.refine._search import GradientRefine, hybrid, restarts

__all__ = [
    "ClauseWeights",
    "Contradiction",
    "GradientRefine",
    "Hierarchy",
    "LinearCertificate",
    "LinearProjection",
    "LinearSystem",
    "Refine",
    "RefineResult",
    "Refinement",
    "Rules",
    "exactly_one",
    "hybrid",
    "mutual_exclusion",
    "refinement",
    "restarts",
]
