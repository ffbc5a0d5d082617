"""Labels that obey knowledge: small files in the formats of the published data, learnt in every way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from doxa.cli import main
from doxa.data import hierarchy
from doxa.data._structures import SUSHI, grid_edges
from doxa.errors import ConfigError, DataError
from doxa.problem import Mixture
from doxa.reproduce import GRID, HMC, PREFERENCES, ROAD, reproduce
from doxa.reproduce._labels import WAYS, LabelsConfig, Perceptrons, first_outputs, read_parts, train
from doxa.reproduce._road import RoadConfig
from doxa.reproduce._ways import ways_page
from doxa.sklearn import LabelKnowledge
from doxa.sklearn._heads import MultiLabel, Way
from doxa.train import Result, check_prefix

pytest.importorskip("sklearn")
pytest.importorskip("pandas")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty rows in each part of a set with a hierarchy; thirty rankings, forty paths."""
    random = np.random.default_rng(0)
    for part in ("train", "valid", "test"):
        x = random.normal(size=(20, 2))
        head = "@RELATION r\n@ATTRIBUTE a numeric\n@ATTRIBUTE b numeric\n"
        head += "@ATTRIBUTE class hierarchical 1,1/1,1/2,2\n@DATA\n"
        rows = [f"{a:.3f},{b:.3f},{'1/1' if a > 0 else '1/2' if b > 0 else '2'}" for a, b in x]
        (tmp_path / f"cellcycle_FUN.{part}.arff").write_text(head + "\n".join(rows))
    soc = ["10", *[f"{i},{kind}" for i, kind in enumerate(SUSHI, 1)], "30,30,30"]
    soc += [",".join(map(str, [1, *(random.permutation(10) + 1)])) for _ in range(30)]
    (tmp_path / "sushi.soc").write_text("\n".join(soc))
    across = [(e, pair) for e, pair in enumerate(grid_edges())]
    paths = [f"{(e + 5) % 24},{a}-{b},{e}" for e, (a, b) in (across[i] for i in random.integers(0, 24, 40))]
    (tmp_path / "grid.data").write_text("\n".join(paths))
    return tmp_path


SMALL = LabelsConfig(hidden=16, dropout=0.1, batch_size=8, steps=20)


@pytest.mark.parametrize("way", sorted([*WAYS, "seen"]))
def test_every_way_learns_and_those_with_knowledge_never_break_it(folder: Path, way: str, tmp_path: Path) -> None:
    config = replace(SMALL, **WAYS.get(way, {"seen": True}))
    result = train(config, tmp_path / "run", seed=0, data=folder, progress=False)
    assert 0 < result.metrics["auprc"] <= 1
    assert ("consistent_before" in result.metrics) == (way != "none")
    if way != "none":
        assert result.metrics["consistent"] == 100
    again = train(config, tmp_path / "again", seed=0, data=folder, progress=False)
    assert again.metrics == result.metrics
    check_prefix(result, again.prefix, rtol=1e-9, atol=0)
    other = train(replace(config, learning_rate=1.1e-3), tmp_path / "rate", seed=0, data=folder, progress=False)
    moved = other.prefix["parameter_distance"] / result.prefix["parameter_distance"]
    assert 1.05 < moved < 1.15


def test_every_row_has_a_label_where_that_is_known(folder: Path, tmp_path: Path) -> None:
    (folder / "cellcycle_FUN.test.arff").write_text(
        (folder / "cellcycle_FUN.test.arff").read_text().replace("@DATA", "@DATA\n99,-99,2\n0,0,1")
    )
    config = replace(SMALL, labelled=True, steps=1)
    parts, knowledge = read_parts(config, folder)
    known = LabelKnowledge(knowledge, parts.train.label_names)
    nothing = np.zeros((1, 4), dtype=bool)
    assert known.violations(nothing).any() and not known.violations(parts.test.labels.numpy()).any()
    assert train(config, tmp_path / "run", seed=0, data=folder, progress=False).metrics["consistent"] == 100


@pytest.mark.parametrize("data", ["six-to-four", "paths-ends"])
def test_rankings_and_paths_are_consistent(folder: Path, data: str, tmp_path: Path) -> None:
    config = replace(SMALL, data=data, steps=8)  # type: ignore[arg-type]
    result = train(config, tmp_path / "run", seed=0, data=folder, progress=False)
    assert result.metrics["consistent"] == 100
    assert 0 <= result.metrics["exact"] <= result.metrics["labels"]


def test_what_is_learnt_from_and_measured_on(folder: Path) -> None:
    parts, knowledge = read_parts(SMALL, folder)
    assert knowledge == hierarchy(parts.train.label_names) == {"1/1": ["1"], "1/2": ["1"]}
    assert len(parts.refit) == 40
    with pytest.raises(DataError, match="cellcycle is not generated: name the folder"):
        read_parts(SMALL, None)


@pytest.mark.parametrize("components", [0, 3])
def test_first_outputs_make_labels_as_probable_as_they_are_frequent(components: int) -> None:
    """Of a tree, given the knowledge: the marginals of the circuit against the frequencies."""
    random = torch.Generator().manual_seed(0)
    parents = [-1, -1, 0, 0, 1, 2]
    labels = torch.rand(4000, 6, generator=random) < 0.6
    for i, parent in enumerate(parents):
        labels[:, i] &= labels[:, parent] if parent >= 0 else labels[:, i]
    outputs = components * 7 or 6
    start = first_outputs(labels, outputs, parents)
    assert start.shape == (outputs,)
    names = list("abcdef")
    known = LabelKnowledge({names[i]: [names[p]] for i, p in enumerate(parents) if p >= 0}, names)
    head = MultiLabel(known, Way(components=components))
    assert head.outputs == outputs
    torch.testing.assert_close(head.probs(start[None], None)[0], labels.float().mean(0), atol=1e-3, rtol=0)
    belief = head.belief(start[None])
    if isinstance(belief, Mixture):  # each component alone says the same
        assert bool((belief.components.log_probs == belief.components.log_probs[:, :1]).all())
        torch.testing.assert_close(belief.log_weights.exp(), torch.full((1, components), 1 / components))


def test_entries_of_each_experiment_differ_in_data_and_way_alone() -> None:
    for experiment, sets, more in ((HMC, 8, 2), (PREFERENCES, 2, 1), (GRID, 2, 0)):
        names = [entry.name for entry in experiment.entries]
        assert len(names) == len(set(names)) == sets * (len(WAYS) + more)
        for entry in experiment.entries:
            data, way = entry.name.split("/")
            own = {"sharp": {"labelled": True}, "seen": {"seen": True}}
            changes = WAYS.get(way) or {"learn": "constrained", **own[way]}
            assert replace(entry.config, **changes) == entry.config
            assert (entry.config.data, entry.config.measure) == (data, "test")


def saved(folder: Path, way: str, seed: int, **metrics: float) -> None:
    result = Result(f"hmc/eisen/{way}", config={}, seed=seed, steps=875, metrics=metrics, prefix={})
    result.write(folder / "hmc" / f"eisen.{way}.875-steps.seed-{seed}.json")


def test_ways_stand_side_by_side(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no results of hmc, preferences or grid"):
        ways_page(tmp_path)
    saved(tmp_path, "none", 0, auprc=0.3, exact=4.0, consistent=97.0)
    saved(tmp_path, "constrained", 0, auprc=0.31, exact=4.0, consistent=100.0, consistent_before=2.0)
    saved(tmp_path, "constrained", 1, auprc=0.33, exact=5.0, consistent=100.0, consistent_before=4.0)
    saved(tmp_path, "sharp", 0, auprc=0.9, exact=9.0, consistent=100.0)  # a recipe of its own, never bold
    page = ways_page(tmp_path)
    assert "| eisen | 0.300 (1) | – | – | – | **0.320 ± 0.010 (2)** | – | 0.900 (1) | – | 0.306 |" in page
    assert "| eisen | 4.0 (1) | – | – | – | **4.5 ± 0.5 (2)** | – | 9.0 (1) | – | 6.2 |" in page
    assert "| eisen | 97.0 (1) | – | 3.0 ± 1.0 (2) | 100.0 |" in page
    assert main(["figures", "ways", "--results", str(tmp_path), "--out", str(tmp_path / "drawn")]) == 0
    assert (tmp_path / "drawn" / "ways.png").read_bytes().startswith(b"\x89PNG")


def test_the_committed_tables_of_ways_are_made_from_the_committed_results() -> None:
    folder = Path(__file__).parents[2] / "results"
    assert ways_page(folder) == (folder / "ways.md").read_text("utf-8")


def test_features_beyond_the_clip_count_as_the_clip() -> None:
    torch.manual_seed(0)
    config = LabelsConfig(hidden=8, dropout=0.0, norm=False, clip=2.0)
    network, x = Perceptrons(4, torch.zeros(3), config).eval(), 3 * torch.randn(12, 4)
    assert bool((x.abs() > 2).any())
    torch.testing.assert_close(network(x), network(x.minimum(torch.tensor(2.0)).maximum(torch.tensor(-2.0))))
    plain = Perceptrons(4, torch.zeros(3), replace(config, clip=0.0)).eval()
    assert not torch.allclose(plain(x), plain(x.clamp(-2, 2)))


def test_members_share_a_batch_and_are_averaged() -> None:
    torch.manual_seed(0)
    network = Perceptrons(4, torch.zeros(3), LabelsConfig(hidden=8, members=3, dropout=0.0, norm=False))
    x = torch.randn(12, 4)
    each = torch.stack([member(x) for member in network.members])
    torch.testing.assert_close(network.eval()(x), each.mean(0))
    for rows in (12, 4):
        learnt = network.train()(x[:rows])
        whose = (learnt == each[:, :rows]).all(-1)
        near = torch.isclose(learnt, each[:, :rows], atol=1e-6).all(-1)
        assert bool((near | whose).any(0).all()) and (rows < 12 or near.sum(1).tolist() == [4, 4, 4])


def test_requirements_on_generated_scores(tmp_path: Path) -> None:
    (tmp_path / "requirements_dimacs.txt").write_text("p cnf 2 1\n-1 -2 0\n")
    (tmp_path / "requirements_readable.txt").write_text("not Red not Green\n")
    entry = replace(ROAD.entries[0], config=RoadConfig(steps=4))
    (result,) = reproduce(ROAD, [entry], seeds=(0,), out=tmp_path / "runs", data=tmp_path, progress=False)
    assert result.metrics["consistent"] == 100
    assert 65 < result.metrics["consistent_before"] < 85  # three of four worlds, each as probable
    assert result.metrics["changed"] == pytest.approx(1 - result.metrics["consistent_before"] / 100)
    with pytest.raises(DataError, match="name the folder that has them"):
        reproduce(ROAD, [entry], seeds=(0,), out=tmp_path / "other", progress=False)
