"""From the numbers of a network to labels: what is minimised, what is believed, what is decided."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from doxa._numerics import safe_log
from doxa.errors import BudgetError, ConfigError, DoxaWarning, KnowledgeError, users_line
from doxa.exact import ConstrainedLayer, Constraint
from doxa.logic import Call
from doxa.problem import Belief, Mixture
from doxa.refine import Refine, Rules
from doxa.refine._result import nearest_model
from doxa.sklearn._knowledge import LabelKnowledge

Learn = Literal["constrained", "loss", "layer", "repair"]
Meaning = Literal["exact", "fuzzy"]
_ONE = torch.ones(1, dtype=torch.int64)


class Way(NamedTuple):
    """How knowledge is used: the words of the classifier."""

    learn: Learn = "constrained"
    semantics: Meaning = "exact"
    guarantee: bool = True
    components: int = 0
    """Of the mixture; 0 for independent labels."""
    weight: float = 1.0
    seen: bool = False
    """Whether only the label sets of training rows have a probability."""

    def check(self) -> None:
        """An error for a word that is not known."""
        if self.learn not in get_args(Learn):
            raise ConfigError(f"learn is {self.learn!r}, expected one of {', '.join(get_args(Learn))}")
        if self.semantics not in get_args(Meaning):
            raise ConfigError(f"semantics is {self.semantics!r}, expected 'exact' or 'fuzzy'")
        refines = self.learn == "layer" or (self.learn == "loss" and self.semantics == "fuzzy")
        if refines and (self.components or self.seen):
            what = "learn='layer'" if self.learn == "layer" else "semantics='fuzzy'"
            other = "whole label sets" if self.seen else "a mixture"
            raise ConfigError(f"{what} refines one truth value for each label, not {other}; use beliefs='independent'")


class Decision(NamedTuple):
    """Labels ``(n, labels)``, and whether each row is proven to be the most probable consistent one."""

    labels: NDArray[np.bool_]
    optimal: NDArray[np.bool_]


class Head(nn.Module, ABC):
    """What stands behind the network."""

    chunk = 1024
    """Rows to decide at a time."""

    def __init__(self, knowledge: LabelKnowledge, way: Way) -> None:
        super().__init__()
        way.check()
        self.knowledge, self.way = knowledge, way

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many numbers the network gives for a row."""

    @abstractmethod
    def loss(self, raw: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        """What is minimised, the mean over the rows."""

    @abstractmethod
    def raw_probs(self, raw: Tensor) -> Tensor:
        """The probability of each label without knowledge, ``(n, labels)``."""

    @abstractmethod
    def probs(self, raw: Tensor, given: Tensor | None) -> Tensor:
        """The probability of each label, ``(n, labels)``."""

    @abstractmethod
    def decide(self, raw: Tensor, given: Tensor | None) -> Decision:
        """The labels that are predicted."""

    @abstractmethod
    def raw_labels(self, raw: Tensor) -> NDArray[np.bool_]:
        """The labels that would be predicted without knowledge."""

    @property
    def knows(self) -> bool:
        """Whether there is any requirement."""
        return bool(self.knowledge.requirements)

    def violated(self, labels: NDArray[np.bool_], given: Tensor | None) -> NDArray[np.bool_]:
        """Which rows violate something."""
        return np.asarray(self.knowledge.violations(labels, None if given is None else given.numpy()).any(1))


class MultiLabel(Head):
    r"""A row has any number of labels.

    With logits z the labels are independent, :math:`p(y) = ∏_i σ(z_i)^{y_i} (1 - σ(z_i))^{1 - y_i}`, or a mixture of
    such. What is minimised, divided by the number of labels:

    - constrained: :math:`-\log p(y \mid K) = -\log p(y) + \log p(K)`;
    - loss: :math:`-\log p(y) - w \log p(K)`, or with fuzzy semantics the negative log-truth of each requirement;
    - layer: cross-entropy of the refined probabilities; repair: :math:`-\log p(y)`.
    """

    def __init__(self, knowledge: LabelKnowledge, way: Way) -> None:
        super().__init__(knowledge, way)
        self.count = len(knowledge.names)
        self.circuit: Constraint | None = None
        self.fuzzy: Refine | None = None
        self.layer: nn.Module | None = None
        if not (self.knows or way.components):
            return
        needed = way.learn == "constrained" or (way.learn == "loss" and way.semantics == "exact") or way.components
        if needed or way.guarantee:
            try:
                self.circuit = knowledge.constraint
            except BudgetError as error:
                if needed:
                    remedy = (
                        "use learn='repair', learn='layer', or learn='loss' with semantics='fuzzy'; or raise budget"
                    )
                    raise BudgetError(error.field, f"{error}. For this classifier: {remedy}") from error
                message = (
                    "no circuit for the knowledge fits the budget: predictions obey it by MaxSAT, but probabilities "
                    "are those of the network alone; raise budget to have them given the knowledge"
                )
                warnings.warn(DoxaWarning(message), stacklevel=users_line())
        if way.learn == "layer":
            # Łukasiewicz shares a change among labels, so that all of them learn; Gödel's gives it to one
            self.layer = knowledge.rules or self._refine("lukasiewicz")
        if way.learn == "loss" and way.semantics == "fuzzy":
            self.fuzzy = self._refine("product")

    def _refine(self, logic: str) -> Refine:
        atoms = self.knowledge.atoms
        formulas = [r.formula for r in self.knowledge.requirements]
        held = [Call(name) for name in self.knowledge.given]
        return Refine(formulas, logic, steps=1, atoms=atoms, constants=held)

    @property
    def outputs(self) -> int:
        k = self.way.components
        return k * (self.count + 1) if k else self.count

    def _split(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of a mixture's weights ``(n, K)`` and of its labels ``(n, K, labels)``."""
        k = self.way.components
        return raw[:, :k], raw[:, k:].reshape(len(raw), k, self.count)

    def belief(self, raw: Tensor) -> Belief | Mixture:
        """What the network believes of the labels."""
        if not self.way.components:
            return Belief.from_bernoulli(logits=raw, validate=False)
        weights, logits = self._split(raw)
        return Mixture.from_bernoulli(logits=logits, weights=weights, validate=False)

    def _nll(self, raw: Tensor, target: Tensor) -> Tensor:
        if not self.way.components:
            return binary_cross_entropy_with_logits(raw, target, reduction="none").sum(-1)
        weights, logits = self._split(raw)
        every = target.unsqueeze(1).expand_as(logits)
        each = binary_cross_entropy_with_logits(logits, every, reduction="none").sum(-1)
        return -(weights.log_softmax(-1) - each).logsumexp(-1)

    def loss(self, raw: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        if self.layer is not None:
            return self._layer_loss(raw, target, given)
        loss = self._nll(raw, target)
        if self.fuzzy is not None:
            truth = self.fuzzy.truth(self._with(raw.sigmoid(), given))
            terms = -safe_log(truth).reshape(len(raw), -1)
            loss = loss + self.way.weight * terms.sum(-1)
        elif self.circuit is not None and self.knows and self.way.learn in ("constrained", "loss"):
            log_prob = self.circuit.log_prob(self.belief(raw), _ONE, given=given)
            loss = loss + (log_prob if self.way.learn == "constrained" else -self.way.weight * log_prob)
        return loss.mean() / self.count

    def _layer_loss(self, raw: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        probs = raw.sigmoid()
        if isinstance(self.layer, Rules):
            refined = self.layer.toward(self._with(probs, given), self._with(target, given))[:, : self.count]
        else:
            refined = self._refined(probs, given)
        return binary_cross_entropy(refined.clamp(0, 1), target)

    def _refined(self, probs: Tensor, given: Tensor | None) -> Tensor:
        assert self.layer is not None
        return self.layer(self._with(probs, given))[:, : self.count]  # type: ignore[no-any-return]

    @staticmethod
    def _with(probs: Tensor, given: Tensor | None) -> Tensor:
        return probs if given is None else torch.cat([probs, given.to(probs.dtype)], -1)

    def raw_probs(self, raw: Tensor) -> Tensor:
        if not self.way.components:
            return raw.sigmoid()
        weights, logits = self._split(raw)
        return (weights.softmax(-1).unsqueeze(-1) * logits.sigmoid()).sum(1)

    def raw_labels(self, raw: Tensor) -> NDArray[np.bool_]:
        return (self.raw_probs(raw) > 0.5).numpy()

    def probs(self, raw: Tensor, given: Tensor | None) -> Tensor:
        if self.layer is not None:
            return self._refined(raw.sigmoid(), given)
        if self.circuit is None or not self.knows or not (self.way.guarantee or self.way.learn == "constrained"):
            return self.raw_probs(raw)
        return self.circuit.posterior(self.belief(raw), _ONE, given=given).probs[..., 1].clamp(0, 1)

    def decide(self, raw: Tensor, given: Tensor | None) -> Decision:
        """The most probable consistent labels: of independent labels, the likely ones where they are consistent.

        Elsewhere the circuit finds them, or weighted MaxSAT where there is no circuit: with weight |z_i| for each label
        it minimises the log-odds that are given up, to one part in a million, which proves nothing. For a mixture the
        circuit looks among the best of each component, and says where it cannot prove that there is none better.
        """
        if self.way.components and self.way.guarantee:
            assert self.circuit is not None
            best = ConstrainedLayer(self.circuit).decode(self.belief(raw), given=given)
            return Decision(best.worlds.bool().numpy(), best.optimal.numpy())
        if self.layer is not None:
            raw = torch.logit(self._refined(raw.sigmoid(), given), eps=torch.finfo(raw.dtype).eps)
        labels = self.raw_labels(raw) if self.way.components else (raw > 0).numpy()
        if not self.knows:
            return Decision(labels, np.ones(len(raw), dtype=bool))
        optimal = ~self.violated(labels, given)
        wrong = np.flatnonzero(~optimal)
        if len(wrong) and self.way.guarantee:
            some = torch.from_numpy(wrong)
            labels[wrong] = self.nearest(raw[some], None if given is None else given[some])
            optimal[wrong] = self.circuit is not None
        return Decision(labels, optimal)

    def nearest(self, raw: Tensor, given: Tensor | None) -> NDArray[np.bool_]:
        """The consistent labels with the largest sum of log-odds."""
        if self.circuit is not None:
            belief = Belief.from_bernoulli(logits=raw, validate=False)
            return ConstrainedLayer(self.circuit).decode(belief, given=given).worlds.bool().numpy()
        return nearest_by_sat(self.knowledge, raw, given)


def nearest_by_sat(knowledge: LabelKnowledge, raw: Tensor, given: Tensor | None) -> NDArray[np.bool_]:
    """The most probable consistent labels by weighted MaxSAT, from log-odds ``(n, labels)``."""
    most = raw.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(raw.dtype).tiny)
    truth = 0.5 + 0.5 * raw / most
    start = (truth if given is None else torch.cat([truth, given.to(truth.dtype)], -1)).T
    unsolved = torch.zeros(len(raw), dtype=torch.bool)
    formulas = [r.formula for r in knowledge.requirements]
    held = [Call(name) for name in knowledge.given]
    found, solved, _ = nearest_model(formulas, knowledge.atoms, held, start, start, unsolved, unsolved.long())
    if not bool(solved.all()):
        raise impossible(knowledge, (~solved).nonzero().flatten().tolist())
    return (found.T[:, : len(knowledge.names)] > 0.5).numpy()


def impossible(knowledge: LabelKnowledge, rows: list[int]) -> KnowledgeError:
    """The error for rows whose features leave no consistent labels."""
    listed = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
    given = ", ".join(knowledge.given)
    return KnowledgeError(
        f"no labels are consistent with the features ({given}) of rows {listed}; correct the features"
    )
