r"""The loss of `same` and `sum9` (Chapter 3, "Experimental Methodology").

.. math:: L = - w \cdot \frac1m \sum_{g} e(φ_g)
    \;-\; \frac{1}{|D_l|} \sum_{x, y ∈ D_l} \log p(y | x) \;+\; \text{BCE of the relation on labelled pairs},

with a group of rules :math:`φ_g` valued on all pairs of unlabelled images, and m groups whether all are used or not.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from doxa.fuzzy import FuzzyPlan, measure
from doxa.logic import Interpretation, KnowledgeBase, logits, parse
from doxa.reproduce.same._config import FORMULAS, PairsConfig
from doxa.reproduce.same._network import PairNetwork

__all__ = ["PairLoss", "Parts", "holds", "knowledge", "relation_loss"]


class Parts(NamedTuple):
    """The loss, its parts before they are weighed, and what the network said of the unlabelled images."""

    loss: Tensor
    knowledge: Tensor
    cross_entropy: Tensor
    relation: Tensor
    scores: Tensor
    embedding: Tensor


class PairLoss:
    """The loss of a network, with the knowledge compiled once.

    >>> config = PairsConfig(batch_size=4)
    >>> loss = PairLoss(PairNetwork(), config)
    >>> parts = loss(torch.zeros(3, 1, 28, 28), torch.tensor([1, 2, 2]), torch.zeros(4, 1, 28, 28))
    >>> bool(torch.isfinite(parts.loss)), sorted(loss.measures(parts, torch.tensor([1, 2, 2, 3])))
    (True, ['cons', 'cu_ant', 'cu_cons'])
    """

    def __init__(self, network: PairNetwork, config: PairsConfig) -> None:
        self.network, self.config = network, config
        self.kb = knowledge(config)
        self.logic = config.logic()
        self.groups = len(FORMULAS[config.relation])
        self.world = Interpretation(self.kb, **{config.relation: logits(network.relate)})
        self.plan = FuzzyPlan(self.kb, self.world, self.logic)

    def __call__(self, images: Tensor, labels: Tensor, unlabelled: Tensor) -> Parts:
        """The loss on a batch of labelled and one of unlabelled images; the latter may be empty without knowledge."""
        n = len(labels)
        scores, embedding = self.network(torch.cat([images, unlabelled]))
        digits = cross_entropy(scores[:n], labels)
        pairs = known = digits.new_zeros(())
        if self.config.relation_labels:
            known_pairs = self.network.relate.pairwise(embedding[:n], embedding[:n])
            pairs = relation_loss(known_pairs, holds(self.config.relation, labels))
        scores, embedding = scores[n:], embedding[n:]
        if self.config.weight:
            values = self.plan(**_data(embedding, scores))
            known = -values.sum() / self.groups
        return Parts(self.config.weight * known + digits + pairs, known, digits, pairs, scores, embedding)

    def measures(self, parts: Parts, labels: Tensor) -> dict[str, float]:
        """What the gradients of the implications do on the unlabelled images, whose labels are told only here.

        A ratio without any gradient is left out.
        """
        if not self.config.weight or self.kb.axioms[-1].name == "partner":
            return {}
        truth = {"is": one_hot(labels, 10).bool(), self.config.relation: holds(self.config.relation, labels)}
        data = _data(parts.embedding.detach(), parts.scores.detach())
        total = measure(self.kb, self.world, self.logic, labels=truth, **data).total
        found = {
            "cons": total.consequent_ratio,
            "cu_cons": total.consequent_update_ratio,
            "cu_ant": total.antecedent_update_ratio,
        }
        return {name: value for name, value in found.items() if value == value}


def knowledge(config: PairsConfig) -> KnowledgeBase:
    """The groups of rules that a run uses.

    >>> [axiom.name for axiom in knowledge(PairsConfig(formulas=(1, 3))).axioms]
    ['same_if_equal', 'symmetry']
    """
    file = files("doxa.train") / "tasks" / "knowledge" / f"{config.relation}.doxa"
    kb = parse(file.read_text(encoding="utf-8"), file=file.name)
    return KnowledgeBase.from_parts(kb.signature, [kb[name] for name in config.names()])


def holds(relation: str, labels: Tensor) -> Tensor:
    """For which pairs the relation is true, (n, n).

    >>> holds("sum9", torch.tensor([4, 5]))
    tensor([[False,  True],
            [ True, False]])
    """
    column = labels.unsqueeze(1)
    return column == labels if relation == "same" else column + labels == 9


def relation_loss(scores: Tensor, truth: Tensor) -> Tensor:
    """Binary cross entropy on all pairs that hold and as many that do not, drawn with replacement.

    >>> relation_loss(torch.zeros(2, 2), torch.eye(2, dtype=torch.bool))
    tensor(0.6931)
    """
    scores, truth = scores.flatten(), truth.flatten()
    positive, negative = truth.nonzero().squeeze(1), truth.logical_not().nonzero().squeeze(1)
    if len(negative):
        negative = negative[torch.randint(len(negative), (len(positive),), device=truth.device)]
    chosen = torch.cat([positive, negative])
    if not len(chosen):
        return scores.sum() * 0
    return binary_cross_entropy_with_logits(scores[chosen], truth[chosen].to(scores.dtype))


def _data(embedding: Tensor, scores: Tensor) -> dict[str, Any]:
    """The images as the relation sees them, and which digit each is."""
    return {"Image": embedding, "is": logits(scores, exclusive=True)}
