r"""`same` and `sum9`: semi-supervised learning of digits with differentiable fuzzy logics (Chapter 3).

The loss of "Experimental Methodology" is

.. math:: L = - w \cdot \frac1m \sum_{g} e(φ_g)
    \;-\; \frac{1}{|D_l|} \sum_{x, y ∈ D_l} \log p(y | x) \;+\; \text{BCE of the relation on labelled pairs},

with a group of rules :math:`φ_g` valued on all pairs of unlabelled images, and m groups whether all are used or not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from doxa import fuzzy
from doxa.data import Batches, normalize
from doxa.errors import ConfigError, DataError
from doxa.logic import Interpretation, KnowledgeBase, logits, parse
from doxa.reproduce._experiment import Given, Settings, Training, descend
from doxa.train import GlobalRandom, Run

FORMULAS = {"same": ("same_if_equal", "equal_if_same", "symmetry"), "sum9": ("partner", "definition")}
"""The groups of rules of each problem, in the order of the dissertation."""
MEASURES = ("cons", "cu_cons", "cu_ant")
"""The consequent ratio, and how much of what moves consequents and antecedents moves them rightly."""
LOG_EVERY = 100
SPLIT = 1
"""The seed of the split into labelled and unlabelled images, which is one for all runs."""
EMBEDDING, SLICES = 50, 10
Dims = int | tuple[int, ...] | None


@dataclass(frozen=True)
class MeanLogProduct(fuzzy.Aggregator):
    r"""The log-product as a mean, :math:`\frac1n \sum_i \log(x_i + 10^{-6})`.

    >>> MeanLogProduct()(torch.tensor([0.8, 0.7, 0.9]))
    tensor(-0.2284)
    """

    eps: float = 1e-6
    kind = "forall"
    is_log = True
    bounded = False

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return fuzzy.LogProduct("mean")(x + self.eps, dim, mask, weight)


@dataclass(frozen=True)
class NoisyMinimum(fuzzy.Aggregator):
    """The minimum of ``x`` plus Gaussian noise from torch's own generator, so that ties are broken at random.

    >>> x = torch.tensor([0.4, 0.4, 0.9], requires_grad=True)
    >>> NoisyMinimum()(x).backward()
    >>> x.grad.sum(), x.grad[2]
    (tensor(1.), tensor(0.))
    """

    noise: float = 1e-3
    operator: ClassVar[fuzzy.TNorm | fuzzy.TConorm] = fuzzy.Godel()
    kind = "forall"
    bounded = False

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return self.operator.reduce(x + self.noise * torch.randn_like(x), dim, mask, weight)


@dataclass(frozen=True)
class NoisyMaximum(NoisyMinimum):
    """The same for the maximum.

    >>> abs(NoisyMaximum()(torch.tensor([0.4, 0.9])) - 0.9) < 1e-3
    tensor(True)
    """

    noise: float = 1e-4
    operator = fuzzy.Godel().dual
    kind = "exists"  # type: ignore[assignment]


@dataclass(frozen=True)
class PairsConfig(Settings):
    """A run on `same` or `sum9`. The defaults are the operators that Chapter 3 fixes while it varies one of them.

    Connectives are named as `doxa.fuzzy.logic` names logics: ``"yager(1.5)"``, or ``"product:r"`` for an R-implication.

    >>> config = PairsConfig(implication="product:r", s=0)
    >>> config.logic().implies == fuzzy.logic("product:r").implies
    True
    >>> PairsConfig(forall="mean_eror(2)")
    Traceback (most recent call last):
    doxa.errors.ConfigError: forall is 'mean_eror(2)': expected a t-norm, 'log_product' or 'mean_error(p)'; ...
    """

    zero = ("s", "weight", "momentum")
    # the binary predicate to be learnt beside the digits, and with it the knowledge
    relation: Literal["same", "sum9"] = "same"
    conjunction: str = "yager(1.5)"  # the t-norm; disjunction is its dual
    implication: str = "product"  # the S-implication of a t-norm, or with ``:r`` its R-implication
    s: float = 9.0  # of the sigmoidal transform of the implication; s = 0 leaves it as it is
    b0: float = -0.5
    forall: str = "log_product"  # a t-norm, ``"log_product"``, or ``"mean_error(p)"``
    exists: str = "mean(1.5)"  # a t-norm, whose dual is meant, or ``"mean(p)"``
    formulas: tuple[int, ...] = ()  # which groups of rules to use, counted from 1; none given is all of them
    weight: float = 10.0  # of the knowledge, beside the labels; 0 learns from labels only
    relation_labels: bool = True  # learn the relation from labelled pairs too
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.5  # of SGD
    steps: int = 70_000  # a step is a batch of labelled and one of unlabelled images
    batch_size: int = 64  # images in each of the two
    labelled: int = 600  # how many of the training images have labels
    evaluate_every: int = 1000  # steps between two looks at the test images

    def __post_init__(self) -> None:
        super().__post_init__()
        known = range(1, len(FORMULAS[self.relation]) + 1)
        if any(number not in known for number in self.formulas) or len(set(self.formulas)) < len(self.formulas):
            raise ConfigError(f"formulas are {self.formulas}, expected different numbers from 1 to {known[-1]}")
        self.logic()

    def logic(self) -> fuzzy.Logic:
        """The operators."""
        connectives, implies = fuzzy.logic(self.conjunction), fuzzy.logic(self.implication).implies
        return fuzzy.Logic(
            connectives.neg,
            connectives.conj,
            connectives.disj,
            fuzzy.sigmoidal(implies, self.s, self.b0) if self.s else implies,
            self._aggregator("forall"),
            self._aggregator("exists"),
            name=f"{self.conjunction}, {self.implication}, {self.forall}, {self.exists}",
        )

    def _aggregator(self, kind: Literal["forall", "exists"]) -> fuzzy.Aggregator:
        """The aggregator of a quantifier; Chapter 3 has its log-product as a mean, and minimum and maximum noisy."""
        text: str = getattr(self, kind)
        mean = re.fullmatch(r"mean_error\(([\d.]+)\)" if kind == "forall" else r"mean\(([\d.]+)\)", text)
        if mean:
            return (fuzzy.GeneralizedMeanError if kind == "forall" else fuzzy.GeneralizedMean)(float(mean[1]))
        if kind == "forall" and text == "log_product":
            return MeanLogProduct()
        if text == "godel":
            return NoisyMinimum() if kind == "forall" else NoisyMaximum()
        try:
            return getattr(fuzzy.logic(text), kind)  # type: ignore[no-any-return]
        except ConfigError as error:
            wanted = "a t-norm, 'log_product' or 'mean_error(p)'" if kind == "forall" else "a t-norm or 'mean(p)'"
            raise ConfigError(f"{kind} is {text!r}: expected {wanted}; {error}") from error

    def training(self, given: Given) -> Training:
        """The seed is that of the first parameters, the order of the images, dropout, and the pairs that are drawn.

        Measured are the accuracy on the test images in percent after the last step, and the measures, averaged over the
        second half of the run.
        """
        mnist = given.mnist()
        if (count := len(mnist.train_labels)) <= self.labelled:
            raise DataError(f"{count} training images cannot have {self.labelled} labelled among them")
        labelled, unlabelled = (
            Batches((mnist.train_images[rows], mnist.train_labels[rows]), self.batch_size, seed=2 * given.seed + part)
            for part, rows in enumerate(mnist.split(self.labelled, seed=SPLIT))
        )
        test_images, test_labels = mnist.images("test"), mnist.labels("test")
        network = PairNetwork()
        loss = PairLoss(network, self)
        optimizer = make_optimizer(network, self)

        def step(number: int) -> Mapping[str, float | Tensor]:
            network.train()
            images, labels = labelled.next()
            others, hidden = unlabelled.next() if self.weight else (images[:0], labels[:0])
            parts = loss(normalize(images).unsqueeze(1), labels, normalize(others).unsqueeze(1))
            metrics: dict[str, float | Tensor] = {
                name: getattr(parts, name).detach() for name in ("cross_entropy", "relation", "knowledge")
            }
            if (number + 1) % LOG_EVERY == 0 or number + 1 == self.steps:
                metrics |= loss.measures(parts, hidden)
            return {"loss": descend(parts.loss, optimizer), **metrics}

        state = {"network": network, "optimizer": optimizer, "labelled": labelled, "unlabelled": unlabelled}
        return Training(
            step,
            {**state, "random": GlobalRandom()},
            lambda run: second_half(run, self.steps),
            evaluate=lambda: {"accuracy": accuracy(network, test_images, test_labels)},
            log_every=LOG_EVERY,
        )


def second_half(run: Run, steps: int) -> dict[str, float]:
    """The measures, averaged over the second half of a run; those that never had a gradient are left out."""
    lines = [line for line in run.metrics() if 2 * line["step"] > steps]
    found = {name: [line[name] for line in lines if name in line] for name in MEASURES}
    return {name: sum(values) / len(values) for name, values in found.items() if values}


@torch.no_grad()
def accuracy(network: PairNetwork, images: Tensor, labels: Tensor) -> float:
    """How many of a hundred digits are read correctly, without dropout."""
    network.eval()
    guesses = torch.cat([network(some)[0].argmax(1) for some in torch.split(images, 1000)])
    return 100 * int((guesses == labels).sum()) / len(labels)


def make_optimizer(network: nn.Module, config: PairsConfig) -> torch.optim.Optimizer:
    if config.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), lr=config.learning_rate, momentum=config.momentum, fused=True)
    return torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)


class PairNetwork(nn.Module):
    r"""Two convolutions embed an image; a linear layer reads the digit, a neural tensor network a pair.

    Convolution 1→10 of width 5, max-pooling, relu, convolution 10→20 of width 5, channel dropout, max-pooling, relu,
    linear 320→50, relu: the embedding e. Digits are a linear layer 50→10 of e behind dropout; the relation is

    .. math:: u^\top \tanh(e_x^\top W_k\, e_y + V_k [e_x; e_y] + b_k) + c, \quad k = 1 … 10.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.Dropout2d(0.5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, EMBEDDING),
            nn.ReLU(),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.classify = nn.Sequential(nn.Dropout(0.5), nn.Linear(EMBEDDING, 10))
        self.relate = fuzzy.NeuralTensorNetwork(EMBEDDING, hidden=SLICES)
        # V is one layer on both embeddings, and starts as such a layer does.
        for parameter in (self.relate.left.weight, self.relate.left.bias, self.relate.right.weight):
            nn.init.uniform_(parameter, -1 / math.sqrt(2 * EMBEDDING), 1 / math.sqrt(2 * EMBEDDING))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of the ten digits, and the embeddings."""
        embedding: Tensor = self.embed(images)
        return self.classify(embedding), embedding


class Parts(NamedTuple):
    """The loss, its parts before they are weighed, and what the network said of the unlabelled images."""

    loss: Tensor
    knowledge: Tensor
    cross_entropy: Tensor
    relation: Tensor
    scores: Tensor
    embedding: Tensor


class PairLoss:
    """The loss of a network, with the knowledge compiled once."""

    def __init__(self, network: PairNetwork, config: PairsConfig) -> None:
        self.network, self.config = network, config
        self.kb = knowledge(config)
        self.logic = config.logic()
        self.groups = len(FORMULAS[config.relation])
        self.world = Interpretation(self.kb, **{config.relation: logits(network.relate)})
        self.plan = fuzzy.FuzzyPlan(self.kb, self.world, self.logic)

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
        total = fuzzy.measure(self.kb, self.world, self.logic, labels=truth, **data).total
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
    every = FORMULAS[config.relation]
    names = [every[number - 1] for number in sorted(config.formulas)] or every
    kb = parse(file.read_text(encoding="utf-8"), file=file.name)
    return KnowledgeBase.from_parts(kb.signature, [kb[name] for name in names])


def holds(relation: str, labels: Tensor) -> Tensor:
    """For which pairs the relation is true, (n, n)."""
    column = labels.unsqueeze(1)
    return column == labels if relation == "same" else column + labels == 9


def relation_loss(scores: Tensor, truth: Tensor) -> Tensor:
    """Binary cross entropy on all pairs that hold and as many that do not, drawn with replacement."""
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
