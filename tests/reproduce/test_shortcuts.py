"""Tasks with shortcuts: every way learns what is told of a few drawn pictures, and labels are chosen and true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.reproduce.drawn import drawn_digits

from doxa.data import MNIST
from doxa.doctor import certify
from doxa.errors import ConfigError
from doxa.reproduce import SHORTCUTS
from doxa.reproduce._experiment import Given
from doxa.reproduce._shortcuts import (
    COUNTS,
    LABELLED,
    OF_BOTH,
    OF_TASK,
    WAYS,
    ShortcutsConfig,
    _Gate,
    train,
    with_choice,
)
from doxa.semantics import Model
from doxa.train import Result, check_prefix
from doxa.train.tasks._labels import count_labels
from doxa.train.tasks._shortcuts import NAMES, digits_drawn, drawn, driving_drawn
from doxa.train.tasks._task import Task


@pytest.fixture(scope="module")
def digits() -> MNIST:
    return MNIST(*drawn_digits(400, 0), *drawn_digits(200, 1))


SMALL = ShortcutsConfig(rows=128, tested=40, steps=40, batch_size=32, learning_rate=1e-2)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_learns_and_does_so_again(way: str, digits: MNIST, tmp_path: Path) -> None:
    config = replace(SMALL, **WAYS[way])
    result = train(config, tmp_path / "run", seed=0, data=None, progress=False, digits=digits)
    assert result.metrics["shortcuts"] == 1
    assert result.metrics["loss"] < 0.65 and 0 <= result.metrics["concept_ece"] <= 1
    again = train(config, tmp_path / "again", seed=0, data=None, progress=False, digits=digits)
    assert again.metrics == result.metrics
    check_prefix(result, again.prefix, rtol=1e-9, atol=0)


def test_a_start_that_believes_in_one_component_is_given_up(
    digits: MNIST, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other components have no gradient, so it stays sure of one reading; with more starts another goes on."""
    made = ShortcutsConfig.model

    def settled(self: ShortcutsConfig, task: Task, *, seed: int) -> Model:
        model = made(self, task, seed=seed)
        if seed == 0:
            gate = next(part for part in model.modules() if isinstance(part, _Gate))
            layers: Any = gate.heads.network.network
            layers[-1].bias.data[0] += 50.0
        return model

    monkeypatch.setattr(ShortcutsConfig, "model", settled)
    sure = {}
    for starts in (1, 2):
        config = replace(SMALL, components=4, diversity=0.3, starts=starts)
        result = train(config, tmp_path / str(starts), seed=0, data=None, progress=False, digits=digits)
        sure[starts] = result.metrics["confidence"]
    assert sure[1] > 0.9 > 0.7 > sure[2]


def test_each_member_has_its_own_starts(digits: MNIST) -> None:
    """Two starts each: four networks are made, and two of them go on."""
    config = replace(SMALL, members=2, starts=2, tried=25)
    models = config.training(Given(0, digits=digits)).state["models"]
    first, second = (torch.cat([p.flatten() for p in model.parameters()]) for model in models)
    assert len(models) == 2 and not torch.equal(first, second)


def test_spread_falls_to_nothing_half_way(digits: MNIST) -> None:
    """In the first step −spread times the entropy, computed here by hand; from the middle on nothing."""
    config = replace(SMALL, spread=4.0)
    task = config.made(Given(0, digits=digits)).task
    model, random = config.model(task, seed=0), torch.Generator()
    read = model.interpretation.meaning("bit").call  # type: ignore[union-attr]
    batch = {task.rows: {name: column[:8] for name, column in task.train[task.rows].items()}}
    pictures = torch.cat([batch[task.rows][place.partition(".")[2]] for place in task.concepts["bit"]])
    mean = read(pictures).softmax(-1).mean(0)
    entropy = torch.distributions.Categorical(mean).entropy()
    for i, share in ((0, 1.0), (10, 0.5), (20, 0.0), (39, 0.0)):
        found = config.loss(model, task, batch, random, i)
        torch.testing.assert_close(found.get("entropy", torch.zeros(())), -4 * share * entropy)


def test_sharp_networks_are_surer_at_first(digits: MNIST) -> None:
    task = SMALL.made(Given(0, digits=digits)).task
    pictures = next(column for column in task.train[task.rows].values() if column.ndim == 3)
    for components in (1, 3):
        plain, sharp = (
            replace(SMALL, components=components, sharpness=k).model(task, seed=0).interpretation.meaning("bit")
            for k in (1.0, 7.0)
        )
        torch.testing.assert_close(sharp.call(pictures), 7 * plain.call(pictures))  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_is_true(name: str, digits: MNIST) -> None:
    """Of rows that are drawn the knowledge holds with the true concepts, and worlds that occur are named."""
    made = drawn(name, lambda: digits, (60, 20))
    task = made.task
    task.check_values()
    full = dict(made.truth)
    certificate = certify(task, full)
    assert certificate.labels == count_labels(full)
    if name != "kandinsky":  # sixty boards do not show everything
        assert certificate.free


def test_digits_are_those_of_the_labels(digits: MNIST) -> None:
    made = digits_drawn("evenodd", digits, (50, 20))
    for place, truth in made.truth["digit"].items():
        pictures = made.task.train["pairs"][place.partition(".")[2]]
        for picture, digit in zip(pictures, truth.tolist(), strict=True):
            same = (digits.train_images == picture).flatten(1).all(1).nonzero().flatten()
            assert digit in digits.labels("train")[same].tolist()


@pytest.mark.parametrize("choice", ["ask", "random"])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_labels_are_true_and_as_many_as_wanted(choice: str, count: int, digits: MNIST) -> None:
    for made in (digits_drawn("evenodd", digits, (60, 20)), driving_drawn((40, 5))):
        task = with_choice(made, count, choice, seed=0)
        width = len(made.truth)
        assert count_labels(task.labels) == count // width * width
        for symbol, places in task.labels.items():
            for place, told in places.items():
                at = told >= 0
                assert torch.equal(told[at], made.truth[symbol][place][at])


def test_labels_that_are_asked_for_rule_out_more(digits: MNIST) -> None:
    """Of a digit below five one label is enough, if it is in a row that shows a 2, 3 or 4; sums say which rows do."""
    made = digits_drawn("half", digits, (200, 20))
    left = {"ask": 0, "random": 0}
    for choice in left:
        for seed in range(8):
            left[choice] += certify(made.task, dict(with_choice(made, 1, choice, seed=seed).labels)).left.count - 1
    assert left["ask"] == 0 < left["random"]


def test_entries_are_tasks_and_ways() -> None:
    names = [entry.name for entry in SHORTCUTS.entries]
    assert len(names) == len(set(names)) == len(NAMES) * len(WAYS) + 2 * len(LABELLED) * len(COUNTS)
    for entry in SHORTCUTS.entries[: len(NAMES) * len(WAYS)]:
        task, way = entry.name.split("/")
        changes = {**OF_TASK[task], **WAYS[way], **OF_BOTH.get((task, way), {})}
        assert replace(ShortcutsConfig(task=task), **changes) == entry.config  # type: ignore[arg-type]
        assert not entry.config.validation
    with pytest.raises(ConfigError, match="need exact reasoning"):
        ShortcutsConfig(semantics="fuzzy", components=2)


def test_figures_are_drawn_from_results(tmp_path: Path) -> None:
    def result(name: str, seed: int, value: float) -> Result:
        metrics = {"concept_accuracy": value, "concept_ece": value / 100}
        return Result(f"shortcuts/{name}", config={}, seed=seed, steps=1, metrics=metrics, prefix={})

    some = [result(f"labels-half/{c}-{n}", s, 10.0 * n) for c in ("ask", "random") for n in (1, 2) for s in (0, 1)]
    assert SHORTCUTS.draw is not None
    files = SHORTCUTS.draw([*some, result("xor/exact", 0, 50.0)], tmp_path)
    assert [f.name for f in files] == ["labels.png", "calibration.png", "pictures.png"]
    assert all(f.stat().st_size > 5000 for f in files)
