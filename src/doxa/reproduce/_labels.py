"""Labels that obey knowledge, on the data of the field: hierarchies, rankings, and paths in a grid.

A run is one `KnowledgeClassifier` with one seed. It learns from the train and validation parts and is measured on the
test part; with ``measure="valid"`` it learns from train alone and is measured on the validation part, which is how the
settings were chosen. Where a set has no validation part, ``valid`` is a random fifth of train, and ``last`` its last
fifth. The data are the user's own: `doxa.data` says of each set where it comes from.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from doxa.data import (
    LabelTable,
    Splits,
    hierarchy,
    path_knowledge,
    permutation_knowledge,
    read_grid_paths,
    read_hmc,
    read_preferences,
)
from doxa.errors import DataError, DoxaWarning
from doxa.logic import Call, Or
from doxa.reproduce._experiment import Entry, Experiment, Settings
from doxa.train import Result, Run
from doxa.train.runs._results import PREFIX_STEP

Data = Literal[
    "cellcycle", "derisi", "eisen", "gasch1", "seq", "diatoms", "enron", "imclef07a",
    "six-to-four", "four-to-six", "paths", "paths-ends",
]  # fmt: skip
Hierarchies: tuple[Data, ...] = ("cellcycle", "derisi", "eisen", "gasch1", "seq", "diatoms", "enron", "imclef07a")
Learn = Literal["none", "repair", "loss", "layer", "constrained"]


@dataclass(frozen=True)
class LabelsConfig(Settings):
    """How a classifier learns labels."""

    zero = ("dropout", "weight_decay")
    data: Data = "cellcycle"
    learn: Learn = "constrained"  # "none": without knowledge; the others as in `KnowledgeClassifier`
    labelled: bool = False  # of a hierarchy it is also known that every row has a label
    components: int = 0  # of a mixture; 0 for independent labels
    seen: bool = False  # believe only in the label sets that training rows have
    hidden: int = 500
    layers: int = 2
    dropout: float = 0.7
    input_dropout: float = 0.0  # of the features
    clip: float = 0.0  # features are at most so many standard deviations from their mean; 0 for any number
    norm: bool = True  # batch normalisation behind each hidden layer
    members: int = 1  # so many networks, each with its own share of every batch; their outputs are averaged
    learning_rate: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"  # of the learning rate
    weight_decay: float = 1e-5
    batch_size: int = 64
    steps: int = 1000  # rounded to whole passes over the rows
    average: float = 0.99
    weight: float = 0.1  # of the semantic loss
    measure: Literal["test", "valid", "last"] = "test"  # "last": of a set without a validation part, the last rows

    @property
    def beliefs(self) -> str:
        """As the classifier calls it."""
        return f"mixture:{self.components}" if self.components else "seen" if self.seen else "independent"


class Perceptrons(nn.Module):
    """Networks whose outputs are averaged; at first each says how often a label is there, whatever the features.

    In training every row of a batch is learnt by one of them, drawn at random, so that their errors differ.

    >>> Perceptrons(4, torch.zeros(3), LabelsConfig(hidden=8, members=2))(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, features: int, start: Tensor, config: LabelsConfig) -> None:
        super().__init__()
        self.members = nn.ModuleList([self._member(features, start, config) for _ in range(config.members)])

    @staticmethod
    def _member(features: int, start: Tensor, config: LabelsConfig) -> nn.Module:
        parts: list[nn.Module] = [nn.Hardtanh(-config.clip, config.clip)] if config.clip else []
        parts += [nn.Dropout(config.input_dropout)] if config.input_dropout else []
        for _ in range(config.layers):
            parts += [nn.Linear(features, config.hidden)]
            parts += [nn.BatchNorm1d(config.hidden)] if config.norm else []
            parts += [nn.ReLU(), nn.Dropout(config.dropout)]
            features = config.hidden
        last = nn.Linear(features, len(start))
        with torch.no_grad():
            last.bias.copy_(start)
            last.weight.mul_(0.1)
        return nn.Sequential(*parts, last)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, features)`` to ``(n, outputs)``."""
        count = len(self.members)
        if not self.training or count == 1:
            return torch.stack([member(x) for member in self.members]).mean(0)
        if len(x) < 2 * count:  # too few rows to normalise each share
            return torch.stack([member(x) for member in self.members])[torch.randint(count, (len(x),)), range(len(x))]
        order = torch.randperm(len(x))
        parts = [member(x[rows]) for member, rows in zip(self.members, order.chunk(count), strict=True)]
        return torch.cat(parts)[order.argsort()]


def first_outputs(labels: Tensor, outputs: int, parents: Sequence[int] = ()) -> Tensor:
    """What a network says at first: log-odds z for which each label is as probable as it is frequent.

    Without knowledge, or where it is no hierarchy, these are the log-odds of the frequencies. In a tree, given the
    knowledge, label i has where its parent is there the log-odds t_i = z_i + Σ_c log(1 + exp t_c), with c the labels
    right below it; so z_i = t_i - Σ_c log(1 + exp t_c) makes all frequencies right. Each component of a mixture begins
    with them, and the weights of the components with 0.

    Args:
        labels: bool ``(n, L)``.
        outputs: L, or K · (L + 1) for a mixture of K.
        parents: for each label the number of the one above it, a smaller number, or -1; nothing for no hierarchy.

    >>> first_outputs(torch.tensor([[True, False], [False, False]]), 6)          # two components
    tensor([ 0.0000,  0.0000,  0.0000, -1.6094,  0.0000, -1.6094])
    """
    count, width = labels.shape
    there = labels.sum(0) + 0.5
    above = torch.tensor([count + 1.0] * width)
    for i, parent in enumerate(parents):
        above[i] = there[parent] + 0.5 if parent >= 0 else above[i]
    start = torch.logit(there / above)
    share = softplus(start)
    for i, parent in enumerate(parents):
        if parent >= 0:
            start[parent] -= share[i]
    components = outputs // (width + 1) or 1
    return torch.cat([torch.zeros(outputs - components * width), start.repeat(components)])


def read_parts(config: LabelsConfig, folder: Path | None) -> tuple[Splits, Any]:
    """The data in three parts, and what is known of the labels."""
    if folder is None:
        raise DataError(f"{config.data} is not generated: name the folder that has its files with --data")
    if config.data in Hierarchies:
        parts: Splits = read_hmc(folder, config.data, last=config.measure == "last")
        names = parts.train.label_names
        some = Or(*[Call(name) for name in names if "/" not in name])
        return parts, (hierarchy(names), some) if config.labelled else hierarchy(names)
    if config.data in ("paths", "paths-ends"):
        return read_grid_paths(folder), path_knowledge(removed=config.data == "paths")
    parts = read_preferences(folder) if config.data == "six-to-four" else read_preferences(folder, given=(1, 2, 3, 4))
    return parts, permutation_knowledge(parts.train.label_names)


def train(config: LabelsConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Do one run, unless its folder has a result, and say what came out.

    What is kept of an early step is of a model of its own, which learns from the first batches alone.
    """
    if (path / "result.json").exists():
        return Result.read(path / "result.json")
    parts, knowledge = read_parts(config, data)
    rows, unseen = (parts.refit, parts.test) if config.measure == "test" else (parts.train, parts.valid)
    run = Run.start(path, config, seed=seed)
    made: list[nn.Module] = []
    model = _classifier(config, knowledge, rows, seed, progress, made)
    few = min(PREFIX_STEP, ceil(len(rows) / config.batch_size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoxaWarning)  # labels without an example, of which these sets have some
        early = _early(model, made, rows[torch.arange(min(few * config.batch_size, len(rows)))])
        run.log(few, early)
        began = time.process_time()
        model.fit(*_frames(rows))
        found = _measured(model, unseen, knowledge)
    about = {key: getattr(run, key) for key in ("config", "seed", "machine", "versions", "started")}
    run.log(config.steps, found)
    return Result(
        "",
        **about,
        steps=config.steps,
        metrics=found,
        prefix=early,
        prefix_step=few,
        cpu_seconds=round(time.process_time() - began, 1),
        command=tuple(run.command),
    )


def _classifier(
    config: LabelsConfig, knowledge: Any, rows: LabelTable, seed: int, progress: bool, made: list[nn.Module]
) -> Any:
    from doxa.sklearn import KnowledgeClassifier

    names = {name: i for i, name in enumerate(rows.label_names)}
    tree = config.learn == "constrained" and config.data in Hierarchies
    parents = [names.get(name.rpartition("/")[0], -1) for name in names] if tree else ()

    def network(features: int, outputs: int) -> nn.Module:
        # a belief in the sets that were seen begins with their frequencies where nothing is said
        start = torch.zeros(outputs) if config.seen else first_outputs(rows.labels, outputs, parents)
        made.append(Perceptrons(features, start, config))
        return made[-1]

    return KnowledgeClassifier(
        None if config.learn == "none" else knowledge,
        network=network,
        learn="repair" if config.learn == "none" else config.learn,
        beliefs=config.beliefs,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        batch_size=config.batch_size,
        schedule=config.schedule,
        max_epochs=max(1, round(config.steps / ceil(len(rows) / config.batch_size))),
        weight=config.weight,
        patience=None,
        averaging=config.average or None,
        random_state=seed,
        verbose=progress,
    )


def _frames(table: LabelTable) -> tuple[Any, Any]:
    """Features and labels with their names; features are numbered where a name is there twice."""
    from importlib import import_module

    frame = import_module("pandas").DataFrame
    labels = frame(table.labels.numpy(), columns=list(table.label_names))
    return frame(table.features.numpy(), columns=_columns(table)), labels


def _columns(table: LabelTable) -> list[str]:
    names = {*table.feature_names, *table.label_names}
    clear = len(names) == len(table.feature_names) + len(table.label_names)
    return list(table.feature_names) if clear else [f"feature_{i}" for i in range(len(table.feature_names))]


def _early(model: Any, made: list[nn.Module], rows: LabelTable) -> dict[str, float]:
    """The loss of a model that has seen some rows once, and how far its parameters have come."""
    from sklearn.base import clone

    other = clone(model).set_params(verbose=False)
    firsts: list[list[Tensor]] = []
    make: Callable[[int, int], nn.Module] = model.network

    def network(features: int, outputs: int) -> nn.Module:
        module = make(features, outputs)
        firsts.append([parameter.detach().clone() for parameter in module.parameters()])
        return module

    other.set_params(network=network).partial_fit(*_frames(rows))
    moves = [(p.detach() - first).norm() for p, first in zip(made[-1].parameters(), firsts[-1], strict=True)]
    return {"loss": float(other.history_["loss"][-1]), "parameter_distance": float(torch.stack(moves).norm())}


def _measured(model: Any, unseen: LabelTable, knowledge: Any) -> dict[str, float]:
    """Average precision over all labels and rows, and shares of rows in percent."""
    from sklearn.metrics import average_precision_score

    from doxa.sklearn import LabelKnowledge

    features, labels = _frames(unseen)
    truth, predicted = labels.to_numpy(), model.predict(features).astype(bool)
    known = LabelKnowledge(knowledge, unseen.label_names, features=_columns(unseen))
    given = features[list(known.given)].to_numpy().astype(bool) if known.given else None
    found = {
        "auprc": average_precision_score(truth, model.predict_proba(features), average="micro"),
        "exact": 100 * (predicted == truth).all(1).mean(),
        "labels": 100 * (predicted == truth).mean(),
        "consistent": 100 * (~known.violations(predicted, given).any(1)).mean(),
    }
    if model.knowledge is not None:
        certificate = model.certificate(features)
        found["consistent_before"] = 100 * (~certificate.before.any(1)).mean()
        found["optimal"] = 100 * certificate.optimal.mean()
    return {name: float(value) for name, value in found.items()}


WAYS: dict[str, dict[str, Any]] = {
    "none": {"learn": "none"},
    "repair": {"learn": "repair"},
    "loss": {"learn": "loss"},
    "layer": {"learn": "layer"},
    "constrained": {"learn": "constrained"},
    "mixture": {"learn": "constrained", "components": 4},
}
"""Ways to use knowledge, from none at all to the likelihood of a mixture of four, normalised by the knowledge."""
METRICS = ("auprc", "exact", "labels", "consistent", "consistent_before")


def entries(
    data: Sequence[tuple[LabelsConfig, dict[str, float], str]], ways: dict[str, dict[str, Any]]
) -> tuple[Entry, ...]:
    """Each way for each set of data, with what was published of the set."""
    return tuple(
        Entry(f"{config.data}/{way}", replace(config, **changes), published, source)
        for config, published, source in data
        for way, changes in ways.items()
    )


# Chosen on the validation parts; the steps are for train and validation together.
_RECIPES: dict[Data, LabelsConfig] = {
    "cellcycle": LabelsConfig(steps=1560),
    "derisi": LabelsConfig(steps=1170, clip=3.0),
    "eisen": LabelsConfig(steps=875),
    "gasch1": LabelsConfig(steps=1170, hidden=1000),
    "seq": LabelsConfig(steps=820, hidden=1000),
    "diatoms": LabelsConfig(steps=2475, hidden=800, dropout=0.4, learning_rate=3e-3, schedule="cosine"),
    "enron": LabelsConfig(
        steps=1600, input_dropout=0.6, norm=False, members=5, batch_size=320, learning_rate=3e-4, weight_decay=0.1
    ),
    "imclef07a": LabelsConfig(
        steps=1600, hidden=1000, dropout=0.35, learning_rate=3e-3, schedule="cosine", batch_size=256
    ),
}
_SOURCE = "auprc: C-HMCNN, Giunchiglia and Lukasiewicz 2020; exact: semantic probabilistic layers, Ahmed et al. 2022"
_AUPRC = (0.255, 0.195, 0.306, 0.286, 0.292, 0.758, 0.756, 0.956)
_EXACT = (3.8, 2.3, 6.2, 4.7, 8.0, 58.7, 8.2, 86.1)  # from memory: the paper was not at hand
_PUBLISHED = {
    name: {"auprc": auprc, "exact": exact} for name, auprc, exact in zip(Hierarchies, _AUPRC, _EXACT, strict=True)
}

_SHARP: dict[Data, LabelsConfig] = {
    name: LabelsConfig(
        data=name, labelled=True, steps=steps, hidden=800, dropout=0.4, learning_rate=3e-3, schedule="cosine"
    )
    for name, steps in zip(Hierarchies[:5], (1560, 1560, 1000, 1560, 1640), strict=True)
}

_SEEN: dict[Data, LabelsConfig] = {
    **{name: replace(recipe, labelled=False) for name, recipe in _SHARP.items()},
    "enron": replace(_RECIPES["enron"], steps=800, members=1, batch_size=64),
}

HMC = Experiment(
    name="hmc",
    about="Hierarchical multi-label classification: labels that imply the labels above them.",
    entries=tuple(
        replace(entry, published=_PUBLISHED[entry.config.data], source=_SOURCE)
        for name, recipe in _RECIPES.items()
        for entry in (
            *entries([(replace(recipe, data=name), {}, "")], WAYS),
            Entry(f"{name}/sharp", _SHARP.get(name, replace(recipe, data=name, labelled=True))),
            Entry(f"{name}/seen", replace(_SEEN.get(name, recipe), data=name, seen=True)),
        )
    ),
    train=train,
    metrics=("auprc", "exact", "consistent", "consistent_before"),
)
"""``sharp`` is ``constrained`` for exact matches: less dropout, and the knowledge that every row has a label.

``seen`` is for exact matches too: a belief in the label sets of training rows alone.
"""

_RANKINGS = LabelsConfig(data="six-to-four", hidden=100, dropout=0.3, norm=False, weight_decay=0.01, steps=310)
PREFERENCES = Experiment(
    name="preferences",
    about="Preferences: the order of some kinds of sushi, predicted from that of the others.",
    entries=entries(
        [
            (_RANKINGS, {"exact": 20.8}, "semantic probabilistic layers, Ahmed et al. 2022"),
            (replace(_RANKINGS, data="four-to-six"), {}, ""),
        ],
        WAYS | {"seen": {"learn": "constrained", "seen": True}},
    ),
    train=train,
    metrics=("exact", "labels", "consistent", "consistent_before"),
)

_PATHS = LabelsConfig(data="paths", hidden=200, dropout=0.3, steps=840)
GRID = Experiment(
    name="grid",
    about="Shortest paths in a 4 × 4 grid with removed edges; known is what a path is.",
    entries=entries(
        [
            (_PATHS, {"exact": 37.6}, "semantic probabilistic layers, Ahmed et al. 2022, who know only of the ends"),
            (replace(_PATHS, data="paths-ends"), {"exact": 37.6}, "semantic probabilistic layers, Ahmed et al. 2022"),
        ],
        WAYS,
    ),
    train=train,
    metrics=("exact", "labels", "consistent", "consistent_before"),
)
