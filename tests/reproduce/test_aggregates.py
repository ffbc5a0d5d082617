"""Lists, grids and graphs: the data, the knowledge and what is measured, against loops."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch

import doxa
from doxa.data import MNIST
from doxa.errors import DataError
from doxa.reproduce._aggregates import (
    GridsConfig,
    ListsConfig,
    cheapest,
    grid_knowledge,
    grids,
    lists,
    measure_grids,
    measure_lists,
)
from doxa.reproduce._experiment import train
from doxa.reproduce._graphs import GRAPHS, GraphConfig, find_rules, read_graph, reciprocal_ranks, rule_knowledge

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning", "ignore::UserWarning")


def digits(count: int = 90) -> MNIST:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (2 * count, 28, 28), generator=random).to(torch.uint8)
    labels = torch.randint(0, 10, (2 * count,), generator=random)
    return MNIST(images[:count], labels[:count], images[count:], labels[count:])


def test_every_digit_is_in_one_list() -> None:
    labels = torch.randint(0, 10, (200,), generator=torch.Generator().manual_seed(1))
    for kind, how in (("sum", sum), ("max", max)):
        places, values = lists(torch.arange(200), labels, kind, 3)
        assert len(set(places.values.tolist())) == len(places.values) > 180
        assert places.lengths.min() >= 2 and places.lengths.max() <= 10
        for i, value in enumerate(values.tolist()):
            assert value == how(labels[places[i]].tolist())
    with pytest.raises(DataError, match="make no lists"):
        lists(torch.arange(5), labels[:5], "sum", 0)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_cheapest_way_is_the_least_of_all_ways(size: int) -> None:
    cells = torch.randint(0, 5, (20, size**2), generator=torch.Generator().manual_seed(size))
    ways = []
    for downs in combinations(range(2 * size - 2), size - 1):
        i = j = 0
        way = [0]
        for step in range(2 * size - 2):
            i, j = (i + 1, j) if step in downs else (i, j + 1)
            way.append(i * size + j)
        ways.append(cells[:, way].sum(1))
    assert torch.equal(cheapest(cells, size), torch.stack(ways).amin(0))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_knowledge_of_grids_says_what_the_cheapest_way_costs(size: int) -> None:
    random = torch.Generator().manual_seed(size)
    cells = torch.randint(0, 3, (6, size**2), generator=random)
    sure = torch.nn.functional.one_hot(cells, 3).double()
    model = doxa.Model(grid_knowledge(size, 3), "exact", digit=doxa.probs(torch.nn.Identity()))
    costs = cheapest(cells, size)
    for shift in (0, 1):
        truth = model.truth(grids={"cells": sure, "cost": costs + shift}, per_row=True)["cost"]
        torch.testing.assert_close(truth.double(), torch.full((6,), 1.0 - shift, dtype=torch.float64))


RUNS = {
    "sum": ListsConfig("sum", 2, 4),
    "max": ListsConfig("max", 2, 4),
    "exact": GridsConfig(2, steps=2, batch_size=4),
    "sampled": GridsConfig(2, how="sampled", steps=2, batch_size=4),
}


@pytest.mark.parametrize("config", RUNS.values(), ids=RUNS)
def test_runs_measure_what_they_say(config: ListsConfig | GridsConfig, tmp_path: Path) -> None:
    result = train(config, tmp_path, seed=0, data=None, progress=False, digits=digits())
    assert 0 <= result.metrics["accuracy"] <= 100 and 0 <= result.metrics["digit_accuracy"] <= 100


class Right(torch.nn.Module):
    """Reads the labels of known images."""

    def __init__(self, mnist: MNIST, values: int) -> None:
        super().__init__()
        from doxa.data import normalize

        self.images, self.labels, self.values = normalize(mnist.test_images.unsqueeze(1)), mnist.labels("test"), values

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = (x.unsqueeze(1) == self.images).flatten(2).all(-1).long().argmax(1)
        return 30.0 * torch.nn.functional.one_hot(self.labels[place].clamp(max=self.values - 1), self.values).float()


def test_who_reads_all_digits_gets_everything_right() -> None:
    from doxa.reproduce._aggregates import LISTS

    mnist = digits(40)
    network = Right(mnist, 10)
    for kind in ("sum", "max"):
        model = doxa.Model(LISTS.format(kind=kind), "exact", digit=doxa.logits(network))
        found = measure_lists(network, model, mnist, kind)
        assert found["accuracy"] == found["one_by_one"] == found["digit_accuracy"] == 100
    assert measure_grids(Right(mnist, 5), mnist, 2, 5) == {"accuracy": 100, "digit_accuracy": 100}
    images, costs = grids(mnist.train_images, mnist.train_labels, 2, 5, 0)
    assert len(images) == len(costs) == int((mnist.train_labels < 5).sum()) // 4


def write_graph(folder: Path) -> None:
    """Parents of children, and children of parents: all of the latter are known of the training part."""
    pairs = [(f"p{i}", f"c{j}") for i in range(6) for j in range(4)]
    folder.mkdir(parents=True)
    lines = [f"{p}\tparent of\t{c}" for p, c in pairs] + [f"{c}\tchild of\t{p}" for p, c in pairs[:16]]
    (folder / "train.txt").write_text("\n".join(lines))
    (folder / "valid.txt").write_text("\n".join(f"{c}\tchild of\t{p}" for p, c in pairs[16:20]))
    (folder / "test.txt").write_text("\n".join(f"{c}\tchild of\t{p}" for p, c in pairs[20:]))


def test_graphs_rules_and_ranks(tmp_path: Path) -> None:
    write_graph(tmp_path / "nations")
    graph = read_graph(tmp_path / "nations")
    assert len(graph.entities) == 10 and graph.relations == ("child of", "parent of")
    known = graph.table("train")
    (rule,) = find_rules(known, 0.9, 5)
    assert (rule.body, rule.head, rule.turned) == (0, 1, True)
    kb = doxa.parse(rule_knowledge(graph, find_rules(known, 0.5, 5)))
    assert {axiom.learnable for axiom in kb.axioms} == {True} and len(kb.axioms) == 2
    scores = torch.randn(2, 10, 10, generator=torch.Generator().manual_seed(0))
    scores[0, 0] = 1.0  # ties
    every = graph.table("train", "valid", "test")
    triples = graph.parts["test"]
    found = reciprocal_ranks(scores, triples, every)
    expected = []
    for objects in (True, False):
        for s, r, o in triples.tolist():
            own = float(scores[r, s, o])
            pairs = [(s, e) if objects else (e, o) for e in range(10)]
            rivals = [float(scores[r, a, b]) for a, b in pairs if not every[r, a, b]]
            expected.append(1 / (1 + sum(x > own for x in rivals) + 0.5 * sum(x == own for x in rivals)))
    torch.testing.assert_close(found, torch.tensor(expected))
    for rules in (0.0, 1.0):
        config = GraphConfig("nations", rules, confidence=0.5, size=4, steps=20)
        result = GRAPHS.train(config, tmp_path / f"run-{rules}", seed=0, data=tmp_path, progress=False)
        assert 0 < result.metrics["mrr"] <= 1 and result.metrics["count"] == (2 if rules else 0)
    with pytest.raises(DataError, match="there is no"):
        read_graph(tmp_path / "umls")
    with pytest.raises(DataError, match="--data"):
        GRAPHS.train(GraphConfig(), tmp_path / "none", seed=0, data=None, progress=False)
