"""Knowledge for scikit-learn: a classifier that learns from what is known about its labels, and never contradicts it.

Labels obey rules: a cat is an animal, a form is not both paid and open. A network that is unsure of its labels spends
probability on combinations that cannot be. `KnowledgeClassifier` takes the rules by the names of the labels and learns

    −log p(y | x, knowledge) = −log p(y | x) + log Σ_{y' consistent} p(y' | x),

so that only consistent outputs have probability, and predicts the most probable of them. `LabelKnowledge` reads rules
as text, formulas, hierarchies, DIMACS clauses, and lists of forbidden or allowed combinations.

It needs scikit-learn: ``pip install 'doxa[sklearn]'``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doxa.sklearn._classifier import Certificate, KnowledgeClassifier
    from doxa.sklearn._explain import Explanation
    from doxa.sklearn._knowledge import LabelKnowledge
    from doxa.sklearn._read import Allowed

__all__ = ["Allowed", "Certificate", "Explanation", "KnowledgeClassifier", "LabelKnowledge"]

_HOMES = {
    "Allowed": "_read",
    "Certificate": "_classifier",
    "Explanation": "_explain",
    "KnowledgeClassifier": "_classifier",
    "LabelKnowledge": "_knowledge",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'doxa.sklearn' has no attribute {name!r}")
    try:
        return getattr(import_module(f"doxa.sklearn.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "sklearn":
            raise ModuleNotFoundError(
                f"{name} needs scikit-learn: pip install 'doxa[sklearn]'", name="sklearn"
            ) from None
        raise


def __dir__() -> list[str]:
    return sorted(__all__)
