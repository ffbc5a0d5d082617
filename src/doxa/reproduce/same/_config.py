"""What a run on `same` or `sum9` does: operators, weights, schedule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from doxa.errors import ConfigError
from doxa.fuzzy import Aggregator, GeneralizedMean, GeneralizedMeanError, Logic, logic, sigmoidal
from doxa.reproduce.same._operators import MeanLogProduct, NoisyMaximum, NoisyMinimum
from doxa.train.tasks._settings import require_nonnegative, require_positive

__all__ = ["PairsConfig"]

FORMULAS = {"same": ("same_if_equal", "equal_if_same", "symmetry"), "sum9": ("partner", "definition")}
"""The groups of rules of each problem, in the order of the dissertation."""


@dataclass(frozen=True)
class PairsConfig:
    """A run on `same` or `sum9`. The defaults are the operators that Chapter 3 fixes while it varies one of them.

    Connectives are named as `doxa.fuzzy.logic` names logics: ``"yager(1.5)"``, or ``"product:r"`` for an R-implication.

    Args:
        relation: the binary predicate to be learnt beside the digits, and with it the knowledge.
        conjunction: the t-norm; disjunction is its dual.
        implication: the S-implication of a t-norm, or with ``:r`` its R-implication.
        s, b0: of the sigmoidal transform of the implication; s = 0 leaves it as it is.
        forall: a t-norm, ``"log_product"``, or ``"mean_error(p)"``.
        exists: a t-norm, whose dual is meant, or ``"mean(p)"``.
        formulas: which groups of rules to use, counted from 1; none given is all of them.
        weight: of the knowledge, beside the labels; 0 learns from labels only.
        relation_labels: learn the relation from labelled pairs too.
        optimizer, learning_rate, momentum: the last is SGD's.
        steps: a step is a batch of labelled and one of unlabelled images.
        batch_size: images in each of the two.
        labelled: how many of the training images have labels.
        evaluate_every: steps between two looks at the test images.

    >>> config = PairsConfig(implication="product:r", s=0)
    >>> config.logic().implies == logic("product:r").implies
    True
    >>> PairsConfig(forall="mean_eror(2)")
    Traceback (most recent call last):
    doxa.errors.ConfigError: forall is 'mean_eror(2)': expected a t-norm, 'log_product' or 'mean_error(p)'; ...
    """

    relation: Literal["same", "sum9"] = "same"
    conjunction: str = "yager(1.5)"
    implication: str = "product"
    s: float = 9.0
    b0: float = -0.5
    forall: str = "log_product"
    exists: str = "mean(1.5)"
    formulas: tuple[int, ...] = ()
    weight: float = 10.0
    relation_labels: bool = True
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.5
    steps: int = 70_000
    batch_size: int = 64
    labelled: int = 600
    evaluate_every: int = 1000

    def __post_init__(self) -> None:
        require_positive(self, "steps", "batch_size", "labelled", "evaluate_every", "learning_rate")
        require_nonnegative(self, "weight")
        known = range(1, len(FORMULAS[self.relation]) + 1)
        if any(number not in known for number in self.formulas) or len(set(self.formulas)) < len(self.formulas):
            raise ConfigError(f"formulas are {self.formulas}, expected different numbers from 1 to {known[-1]}")
        self.logic()

    def names(self) -> tuple[str, ...]:
        """The groups of rules that are used."""
        every = FORMULAS[self.relation]
        return tuple([every[number - 1] for number in sorted(self.formulas)]) or every

    def logic(self) -> Logic:
        """The operators."""
        connectives, implies = logic(self.conjunction), logic(self.implication).implies
        return Logic(
            connectives.neg,
            connectives.conj,
            connectives.disj,
            sigmoidal(implies, self.s, self.b0) if self.s else implies,
            self._forall(),
            self._exists(),
            name=f"{self.conjunction}, {self.implication}, {self.forall}, {self.exists}",
        )

    def _forall(self) -> Aggregator:
        if self.forall == "log_product":
            return MeanLogProduct()
        if (p := _parameter("mean_error", self.forall)) is not None:
            return GeneralizedMeanError(p)
        found = self._aggregators("forall", "a t-norm, 'log_product' or 'mean_error(p)'").forall
        return NoisyMinimum() if self.forall == "godel" else found

    def _exists(self) -> Aggregator:
        if (p := _parameter("mean", self.exists)) is not None:
            return GeneralizedMean(p)
        found = self._aggregators("exists", "a t-norm or 'mean(p)'").exists
        return NoisyMaximum() if self.exists == "godel" else found

    def _aggregators(self, name: str, wanted: str) -> Logic:
        try:
            return logic(getattr(self, name))
        except ConfigError as error:
            raise ConfigError(f"{name} is {getattr(self, name)!r}: expected {wanted}; {error}") from error


def _parameter(name: str, text: str) -> float | None:
    """p, of ``name(p)``."""
    match = re.fullmatch(rf"{name}\(([\d.]+)\)", text)
    return float(match[1]) if match else None
