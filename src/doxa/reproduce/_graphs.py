r"""Knowledge graphs: an embedding model with and without rules whose weights are learnt.

The truth of a relation r between entities x and y is :math:`σ(\mathrm{Re} ⟨e_x, w_r, \bar e_y⟩)` (ComplEx). It learns
from the training triples by the binary cross entropy of all pairs, whatever is not known counting as false. Rules are
found in the training triples: ``r(x, y) -> s(x, y)`` and ``r(x, y) -> s(y, x)``, of which enough triples are examples
and few are not. They are axioms with weights that learn (``weight ?``), under a fuzzy semantics:

    [weight ?] forall x, y: Entity. r(x, y) -> s(y, x)

Measured is the filtered mean reciprocal rank of the test triples, for missing subjects and missing objects, at the step
where that of the validation triples is best. The files are those that the package `pykeen` ships.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from doxa.errors import DataError
from doxa.logic import logits
from doxa.logic.syntax._words import quote
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, train
from doxa.semantics import Fuzzy, Model
from doxa.train import Run

PARTS = ("train", "valid", "test")
SUPPORT = 10
"""Examples that a rule needs among the training triples."""


class Graph(NamedTuple):
    """Entities, relations, and for each part its triples ``(n, 3)``: subject, relation, object."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    parts: dict[str, Tensor]

    def table(self, *names: str) -> Tensor:
        """Bool ``(relations, entities, entities)``: the triples of these parts."""
        found = torch.zeros(len(self.relations), len(self.entities), len(self.entities), dtype=torch.bool)
        for name in names:
            subject, relation, object_ = self.parts[name].unbind(1)
            found[relation, subject, object_] = True
        return found


def read_graph(folder: Path) -> Graph:
    """Triples in ``train.txt``, ``valid.txt`` and ``test.txt``: subject, relation and object, tabs between them."""
    lines: dict[str, list[list[str]]] = {}
    for part in PARTS:
        file = folder / f"{part}.txt"
        if not file.is_file():
            raise DataError(f"there is no {file}; --data names a folder with nations/, kinships/ and umls/, each with "
                            "train.txt, valid.txt and test.txt, as the package pykeen ships them")  # fmt: skip
        lines[part] = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if line]
        if any(len(line) != 3 for line in lines[part]):
            raise DataError(
                f"{file}: expected a subject, a relation and an object in each line, with tabs between them"
            )
    every = [line for part in PARTS for line in lines[part]]
    entities = tuple(sorted({name for line in every for name in (line[0], line[2])}))
    relations = tuple(sorted({line[1] for line in every}))
    at, of = {name: i for i, name in enumerate(entities)}, {name: i for i, name in enumerate(relations)}
    parts = {part: torch.tensor([[at[s], of[r], at[o]] for s, r, o in lines[part]]) for part in PARTS}
    return Graph(entities, relations, parts)


class Rule(NamedTuple):
    """The relation r implies the relation s, perhaps of the pair turned around."""

    body: int
    head: int
    turned: bool
    confidence: float


def find_rules(known: Tensor, confidence: float, most: int) -> list[Rule]:
    """The implications between relations ``(R, E, E)`` with the highest confidence, that is, the share of their bodies'
    pairs at which the head holds as well.

    >>> known = torch.zeros(2, 4, 4, dtype=torch.bool)
    >>> known[0, :, 1:], known[1, 1:, :] = True, True
    >>> [(rule.body, rule.head, rule.turned) for rule in find_rules(known, 0.9, 9)]
    [(0, 1, True), (1, 0, True)]
    """
    flat = known.double().flatten(1)
    sizes = flat.sum(1, keepdim=True)
    found = []
    for turned in (False, True):
        heads = known.transpose(1, 2).double().flatten(1) if turned else flat
        both = flat @ heads.T
        shares = both / sizes.clamp(min=1)
        for body, head in ((both >= SUPPORT) & (shares >= confidence)).nonzero().tolist():
            if turned or body != head:
                found.append(Rule(body, head, turned, float(shares[body, head])))
    return sorted(found, key=lambda rule: (-rule.confidence, rule.body, rule.head))[:most]


def rule_knowledge(graph: Graph, rules: Sequence[Rule]) -> str:
    """The rules in the knowledge language."""
    used = sorted({r for rule in rules for r in (rule.body, rule.head)})
    lines = ["sort Entity", *[f"pred {quote(graph.relations[r])}(Entity, Entity)" for r in used]]
    for i, rule in enumerate(rules):
        body, head = quote(graph.relations[rule.body]), quote(graph.relations[rule.head])
        args = "(y, x)" if rule.turned else "(x, y)"
        lines.append(f"[rule{i}, weight ?] forall x, y: Entity. {body}(x, y) -> {head}{args}")
    return "\n".join(lines)


class Embeddings(nn.Module):
    """ComplEx: the scores of all pairs of entities under all relations, ``(R, E, E)``."""

    def __init__(self, entities: int, relations: int, size: int, dropout: float) -> None:
        super().__init__()
        self.entities = nn.Parameter(0.1 * torch.randn(2, entities, size))
        self.relations = nn.Parameter(0.1 * torch.randn(2, relations, size))
        self.dropout = nn.Dropout(dropout)

    def forward(self) -> Tensor:
        real, imaginary = self.dropout(self.entities)
        a, b = self.relations
        subject_real = real * a.unsqueeze(1) - imaginary * b.unsqueeze(1)  # (R, E, size)
        subject_imaginary = real * b.unsqueeze(1) + imaginary * a.unsqueeze(1)
        found: Tensor = subject_real @ real.T + subject_imaginary @ imaginary.T
        return found


def reciprocal_ranks(scores: Tensor, triples: Tensor, known: Tensor) -> Tensor:
    """1 / rank of each object and each subject among those with which the triple is not ``known``; ties count half.

    >>> scores = torch.tensor([[[0.0, 3.0], [1.0, 2.0]]])
    >>> reciprocal_ranks(scores, torch.tensor([[0, 0, 0]]), torch.zeros(1, 2, 2, dtype=torch.bool))
    tensor([0.5000, 0.5000])
    """
    subject, relation, object_ = triples.unbind(1)
    found = []
    for rows, others, right in (
        (scores[relation, subject], known[relation, subject], object_),
        (scores[relation, :, object_], known[relation, :, object_], subject),
    ):
        own = rows.gather(1, right.unsqueeze(1))
        rivals = ~others
        rivals[torch.arange(len(rows)), right] = False
        ahead = ((rows > own) & rivals).sum(1) + 0.5 * ((rows == own) & rivals).sum(1)
        found.append(1 / (1 + ahead))
    return torch.cat(found)


@dataclass(frozen=True)
class GraphConfig(Settings):
    """Learn the embeddings of a graph, with or without rules."""

    zero = ("rules", "dropout", "weight_decay")
    graph: Literal["nations", "kinships", "umls"] = "nations"
    rules: float = 0.0  # the weight of the rules beside the triples; 0 is without
    confidence: float = 0.5  # that a rule must have
    most: int = 40  # rules
    logic: str = "product"  # of the rules
    size: int = 32  # of an embedding's real and imaginary part
    dropout: float = 0.2  # of entities
    learning_rate: float = 0.03  # of Adam
    weight_decay: float = 0.0
    steps: int = 600  # each with all pairs
    evaluate_every: int = 10

    def training(self, given: Given) -> Training:
        if given.data is None:
            raise DataError(
                "the graphs are not fetched; say --data with a folder that has nations/, kinships/ and umls/"
            )
        graph = read_graph(given.data / self.graph)
        known, every = graph.table("train"), graph.table(*PARTS)
        network = Embeddings(len(graph.entities), len(graph.relations), self.size, self.dropout)
        rules = find_rules(known, self.confidence, self.most) if self.rules else []
        model = Model(rule_knowledge(graph, rules), Fuzzy(self.logic)) if rules else None
        parameters = [*network.parameters(), *(model.parameters() if model is not None else ())]
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        target, used = known.float(), sorted({r for rule in rules for r in (rule.body, rule.head)})

        def step(_: int) -> dict[str, Tensor]:
            scores = network()
            triples = binary_cross_entropy_with_logits(scores, target)
            said = scores.new_zeros(())
            if model is not None:
                symbols: dict[str, Any] = {graph.relations[r]: logits(scores[r]) for r in used}
                said = model.loss(Entity=len(graph.entities), **symbols) / len(rules)
            loss = descend(triples + self.rules * said, optimizer)
            return {"loss": loss, "triples": triples.detach(), "rules": said.detach()}

        @torch.no_grad()
        def evaluate() -> dict[str, float]:
            network.eval()
            scores = network()
            network.train()
            found = {part: reciprocal_ranks(scores, graph.parts[part], every) for part in ("valid", "test")}
            return {
                **{f"{part}_mrr": ranks.mean().item() for part, ranks in found.items()},
                "hits10": 100 * (found["test"] >= 0.1).double().mean().item(),
            }

        state = {"network": network, "optimizer": optimizer, **({"model": model} if model is not None else {})}
        kept = ("count",)
        return Training(
            step, state, lambda run: {**at_best(run), "count": float(len(rules))}, kept, evaluate, log_every=10
        )


def at_best(run: Run) -> dict[str, float]:
    """What was measured where the validation triples ranked best."""
    best = max([line for line in run.metrics() if "valid_mrr" in line], key=lambda line: line["valid_mrr"])
    return {
        "mrr": best["test_mrr"],
        "valid_mrr": best["valid_mrr"],
        "hits10": best["hits10"],
        "best_step": best["step"],
    }


WEIGHTS = {"nations": 1.0, "kinships": 0.1, "umls": 0.01}
"""Of the rules: of 0.01, 0.1 and 1 (on UMLS the first two), those that rank the validation triples best, seed 0."""


def _entries() -> tuple[Entry, ...]:
    found = []
    for graph in ("nations", "kinships", "umls"):
        plain = GraphConfig(graph)
        found += [Entry(f"{graph}/embeddings", plain), Entry(f"{graph}/rules", replace(plain, rules=WEIGHTS[graph]))]
    return tuple(found)


GRAPHS = Experiment(
    name="graphs",
    about="Missing triples of Nations, Kinships and UMLS, by embeddings with and without rules",
    entries=_entries(),
    train=train,
    metrics=("mrr", "hits10", "valid_mrr"),
)
