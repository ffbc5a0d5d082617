"""doxa: background knowledge for neural networks, written once, reasoned with in one word.

A neural network has opinions (in Greek, *doxa*); knowledge says which of them can be true. A knowledge base says it in
a first-order language with sorts:

    forall x, y: Person. friends(x, y) & smokes(x) -> smokes(y)

:func:`parse` reads such text and checks it; an :class:`Interpretation` binds its symbols to networks, tensors, tables
and functions; the engines turn the two into truth values, losses, corrections, probabilities and explanations. The
rooms of the library (``doxa.logic``, ``doxa.problem``, ...) hold everything; the names that most programs need are here
too.

Nothing is loaded before it is used: ``import doxa`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from doxa._version import __version__

if TYPE_CHECKING:
    from doxa.errors import (
        BindingError,
        BudgetError,
        ConfigError,
        DataError,
        DoxaError,
        DoxaWarning,
        KnowledgeError,
        KnowledgeWarning,
        ProblemError,
        RunError,
    )
    from doxa.logic import (
        Axiom,
        Constant,
        Fact,
        Function,
        Interpretation,
        KnowledgeBase,
        Predicate,
        Ragged,
        Rows,
        Sort,
        aggregate,
        all_models,
        at_least,
        at_most,
        autoregressive,
        define,
        entails,
        exactly,
        exists,
        forall,
        fresh,
        function,
        let,
        load,
        log_probs,
        logits,
        mixture,
        parse,
        parse_formula,
        probs,
        proofs,
        propositions,
        sample,
        satisfaction,
        satisfiable,
        table,
        trainable,
        truth,
        values,
        variables,
        within,
    )
    from doxa.problem import Belief, BruteForce, Budget, Problem, Reasoner
    from doxa.semantics import Amortized, Auto, Classical, Exact, Fuzzy, Model, Refined, Sampled
    from doxa.train import Task

__all__ = [
    "Amortized",
    "Auto",
    "Axiom",
    "Belief",
    "BindingError",
    "BruteForce",
    "Budget",
    "BudgetError",
    "Classical",
    "ConfigError",
    "Constant",
    "DataError",
    "DoxaError",
    "DoxaWarning",
    "Exact",
    "Fact",
    "Function",
    "Fuzzy",
    "Interpretation",
    "KnowledgeBase",
    "KnowledgeError",
    "KnowledgeWarning",
    "Model",
    "Predicate",
    "Problem",
    "ProblemError",
    "Ragged",
    "Reasoner",
    "Refined",
    "Rows",
    "RunError",
    "Sampled",
    "Sort",
    "Task",
    "__version__",
    "aggregate",
    "all_models",
    "at_least",
    "at_most",
    "autoregressive",
    "define",
    "entails",
    "exactly",
    "exists",
    "forall",
    "fresh",
    "function",
    "let",
    "load",
    "log_probs",
    "logits",
    "mixture",
    "parse",
    "parse_formula",
    "probs",
    "proofs",
    "propositions",
    "sample",
    "satisfaction",
    "satisfiable",
    "table",
    "trainable",
    "truth",
    "values",
    "variables",
    "within",
]

_ROOMS = (
    "amortized",
    "data",
    "doctor",
    "editor",
    "errors",
    "exact",
    "fuzzy",
    "lightning",
    "logic",
    "nn",
    "pose",
    "problem",
    "refine",
    "reproduce",
    "semantics",
    "sklearn",
    "stochastic",
    "train",
)
_HOMES = ("errors", "semantics", "logic", "problem", "train")
"""The rooms of the public names, each after those that it needs."""


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"doxa.{name}")
    if name in __all__:
        homes = (import_module(f"doxa.{room}") for room in _HOMES)
        value = next(getattr(home, name) for home in homes if name in home.__all__)
        globals()[name] = value  # looked up once
        return value
    raise AttributeError(f"module 'doxa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
