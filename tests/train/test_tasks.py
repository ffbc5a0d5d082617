"""Tasks: what a user may say, training under every semantics, evaluation, and the page about it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST, write_idx
from doxa.errors import ConfigError, DataError, RunError
from doxa.semantics._semantics import WORDS
from doxa.train import (
    Fitting,
    Run,
    Task,
    compare_task,
    evaluate_run,
    find_task,
    open_run,
    train_task,
    write_task_report,
)
from doxa.train.tasks._evaluate import Comparison, read_evaluation
from doxa.train.tasks._measure import Reading, measure
from doxa.train.tasks._train import Fingerprint, run_folder

# Two coins with three faces are tossed, and the sum and the product of what they show are told.
COINS = """
sort Coin
sort Face = 1..3
data tosses(first: Coin, second: Coin, sum: Int, product: Int)
func face(Coin) -> Face
[sum]     forall t in tosses. a := face(t.first), b := face(t.second) (a + b = t.sum)
[product] forall t in tosses. a := face(t.first), b := face(t.second) (a * b = t.product)
"""


def tosses(count: int, seed: int) -> tuple[dict[str, dict[str, Tensor]], Tensor]:
    random = torch.Generator().manual_seed(seed)
    faces = torch.randint(1, 4, (count, 2), generator=random)
    seen = torch.eye(4)[faces][..., 1:] + 0.2 * torch.randn(count, 2, 3, generator=random)
    fields = {"first": seen[:, 0], "second": seen[:, 1], "sum": faces.sum(1), "product": faces.prod(1)}
    return {"tosses": fields}, faces


def coins(**changes: Any) -> Task:
    (train, _), (test, faces) = tosses(400, 0), tosses(90, 1)
    fields: dict[str, Any] = {
        "name": "coins",
        "about": "Faces of coins, learnt from sums and products.",
        "knowledge": COINS,
        "symbols": lambda: {"face": doxa.logits(nn.Linear(3, 3))},
        "train": train,
        "test": test,
        "target": "tosses.sum",
        "concepts": {"face": {"tosses.first": faces[:, 0], "tosses.second": faces[:, 1]}},
        "fitting": Fitting(steps=60, learning_rate=0.1, log_every=10, evaluate_every=30),
        "batch_size": 32,
        "semantics": {"amortized": doxa.semantics.Amortized(hidden=32, samples=64, pretrain=64)},
        **changes,
    }
    return Task(**fields)


@pytest.mark.parametrize("word", [*WORDS[1:], "fuzzy:log_ltn"])
def test_every_word_trains_and_is_evaluated(word: str, tmp_path: Path) -> None:
    task = coins()
    before = torch.random.get_rng_state()
    run = train_task(task, word, tmp_path, progress=False)
    evaluation = evaluate_run(tmp_path, task)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert run.load().step == 60 and evaluation.semantics == word and evaluation.rows == 90
    assert evaluation.concept_accuracy is not None and evaluation.concept_accuracy > 0.6
    assert {axiom.name: axiom.instances for axiom in evaluation.axioms} == {"sum": 90, "product": 90}
    assert evaluation.cpu_seconds > 0 and evaluation.peak_megabytes > 50
    assert read_evaluation(run) == evaluation
    assert set(run.metrics_at(60)) >= {"loss", "loss of sum", "task_accuracy", "concept_accuracy", "satisfaction"}


class BothCoins(nn.Linear):
    """The weights of a mixture, from both coins of a toss."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return super().forward(torch.cat([first, second], -1))


def test_symbols_that_share_a_mixture_train_and_are_evaluated(tmp_path: Path) -> None:
    def symbols() -> Any:
        heads = nn.Sequential(nn.Linear(3, 6), nn.Unflatten(-1, (2, 3)))
        return doxa.mixture(weights=doxa.logits(BothCoins(6, 2)), face=doxa.logits(heads))

    task = coins(symbols=symbols)
    run = train_task(task, "exact", tmp_path, progress=False)
    found = evaluate_run(tmp_path, task)
    assert found.task_accuracy is not None and found.task_accuracy > 0.9
    assert found.concept_accuracy is not None and found.concept_accuracy > 0.9
    assert found.satisfaction > 0.9 and found.concept_calibration is not None
    _, _, model = open_run(run.path, task)
    assert "face share one belief" in str(doxa.doctor.examine_run(run.path, task=task))
    (reading,) = measure(task, model).concepts
    beliefs = torch.cat([model.marginals("face", f"tosses.{coin}", **task.test) for coin in ("first", "second")])
    labels = torch.cat([task.concepts["face"][f"tosses.{coin}"] for coin in ("first", "second")]) - 1
    assert reading.accuracy == pytest.approx((beliefs.argmax(-1) == labels).double().mean().item())


def test_numbers_are_those_of_the_network_kept(tmp_path: Path) -> None:
    """Every number of an evaluation, computed again by hand from the checkpoint."""
    task = coins()
    train_task(task, "exact", tmp_path, seed=3, settings=["steps=20"], progress=False)
    evaluation = evaluate_run(tmp_path, task)
    state = Run.open(tmp_path).load().state["objective"]
    (weight,), (bias,) = ([v for k, v in state.items() if k.endswith(end)] for end in ("weight", "bias"))
    fields = task.test["tosses"]
    first, second = ((fields[name] @ weight.T + bias).softmax(-1).double() for name in ("first", "second"))
    faces = torch.stack([*task.concepts["face"].values()], 1) - 1
    read = torch.stack([first.argmax(1), second.argmax(1)], 1)
    assert evaluation.concept_accuracy == pytest.approx((read == faces).double().mean().item())
    rates = {axiom.name: axiom.rate for axiom in evaluation.axioms}
    assert rates["sum"] == pytest.approx(((read + 1).sum(1) == fields["sum"]).double().mean().item())
    assert rates["product"] == pytest.approx(((read + 1).prod(1) == fields["product"]).double().mean().item())

    sums = torch.zeros(90, 5, dtype=torch.float64)  # of 2..6
    for a in range(3):
        for b in range(3):
            sums[:, a + b] += first[:, a] * second[:, b]
    right = sums.argmax(1) + 2 == fields["sum"]
    assert evaluation.task_accuracy == pytest.approx(right.double().mean().item())
    sure = sums.amax(1)
    error = 0.0
    for b in range(10):
        inside = (sure * 10).long().clamp(max=9) == b
        if inside.any():
            error += float((right[inside].double().mean() - sure[inside].mean()).abs() * inside.double().mean())
    assert evaluation.target_calibration == pytest.approx(error, abs=1e-5)


def test_rows_held_out_choose_the_checkpoint(tmp_path: Path) -> None:
    task = coins(validation=50)
    less, looked_at = task.held_out(50, seed=2)
    rows = [
        {tuple(row) for row in part["tosses"]["first"].tolist()} for part in (task.train, less.train, looked_at.test)
    ]
    assert rows[1] | rows[2] == rows[0] and not rows[1] & rows[2] and len(rows[2]) == 50
    assert not torch.equal(task.held_out(50, seed=3)[1].test["tosses"]["first"], looked_at.test["tosses"]["first"])

    # So large a rate spoils what was learnt: the best is not the last, and patience ends it.
    settings = ["steps=400", "evaluate_every=10", "learning_rate=3", "patience=4"]
    run = train_task(task, "exact", tmp_path, seed=2, settings=settings, progress=False)
    curve = {line["step"]: line["task_accuracy"] for line in run.metrics() if "task_accuracy" in line}
    last, best = max(curve), max(curve, key=lambda step: (curve[step], -step))
    assert last == best + 40 < 400
    kept = open_run(tmp_path, task)[2]
    assert measure(looked_at, kept, seed=2).scores()["task_accuracy"] == curve[best]
    (weight,) = (v for k, v in kept.state_dict().items() if k.endswith("weight"))
    (saved,) = (v for k, v in run.load("best").state["objective"].items() if k.endswith("weight"))
    assert run.load("best").step == best and torch.equal(weight, saved)


@pytest.mark.parametrize("word", ["exact", "sampled", "amortized"])
def test_interrupted_it_goes_on_with_the_same_bits(word: str, tmp_path: Path) -> None:
    """With an average, and a loss of the task's own that draws random numbers; broken off between two checkpoints."""

    def supervised(model: doxa.Model, data: Any) -> Tensor:
        return 0.01 * torch.rand(()) * model.interpretation.meaning("face").module.weight.square().sum()

    class Broken(Exception):
        pass

    calls = 0

    def breaking(model: doxa.Model, data: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 47:
            raise Broken
        return supervised(model, data)

    settings = ["average=0.9", "spread=2"]
    with pytest.raises(Broken):
        train_task(coins(supervised=breaking), word, tmp_path / "broken", settings=settings, progress=False)
    assert Run.open(tmp_path / "broken").load().step == 30
    early = evaluate_run(tmp_path / "broken", coins())
    assert early.warnings[0] == "training was stopped, and is saved up to step 30 of 60; train it again"
    assert Comparison((early,)).cells()[0][-1] == "–"  # how much memory it takes is noted when it is done
    for name in ("broken", "whole"):
        train_task(coins(supervised=supervised), word, tmp_path / name, settings=settings, progress=False)
    broken, whole = (Run.open(tmp_path / name) for name in ("broken", "whole"))
    assert not evaluate_run(broken.path, coins()).stopped
    assert broken.metrics() == whole.metrics()
    for kept in ("objective", "average"):
        ours, theirs = broken.load().state[kept], whole.load().state[kept]
        tensors = [name for name, value in theirs.items() if isinstance(value, Tensor)]
        assert tensors and all(torch.equal(ours[name], theirs[name]) for name in tensors)
    _, task, averaged = open_run(tmp_path / "whole", coins())
    assert measure(task, averaged, 90).scores() == {
        name: value
        for name, value in whole.metrics_at(60).items()
        if name in ("task_accuracy", "concept_accuracy", "concept_calibration", "satisfaction")
    }  # the curve is that of the average, which is what is evaluated in the end
    state = whole.load().state
    assert torch.equal(
        averaged.interpretation.meaning("face").module.weight,
        next(value for name, value in state["average"].items() if name.endswith("weight")),
    )


def test_all_values_are_read_alike_often_at_first(tmp_path: Path) -> None:
    """The entropy is logged, in nats, while it counts, which is in the first half of the steps; it is at most log 3."""
    run = train_task(coins(), "exact", tmp_path / "run", settings=["spread=5"], progress=False)
    found = {line["step"]: line["entropy"] for line in run.metrics() if "entropy" in line}
    assert list(found) == [10, 20] and all(0 < value <= math.log(3) + 1e-6 for value in found.values())
    for line in run.metrics()[:2]:
        parts = line["loss of sum"] + line["loss of product"]
        left = 1 - line["step"] / 30
        assert line["loss"] == pytest.approx(parts - 5 * left * line["entropy"], rel=1e-5)
    with pytest.raises(ConfigError, match=r"spread is for concepts, and the task has none; give Task\(concepts"):
        train_task(coins(concepts={}), "exact", tmp_path / "none", settings=["spread=5"], progress=False)
    for name in ("spread", "diversity", "label_weight"):
        for wrong in (-1.0, float("nan"), "x"):
            with pytest.raises(ConfigError, match=rf"{name} is {wrong!r}, expected a weight of 0 or more"):
                coins(**{name: wrong})
    with pytest.raises(ConfigError, match=r"spread is -1.0, expected a weight of 0 or more"):
        train_task(coins(), "exact", tmp_path / "less", settings=["spread=-1"], progress=False)


def test_of_several_starts_the_best_goes_on(tmp_path: Path) -> None:
    """The first of them reads everything alike and has no gradient: alone it stays so, with others it is given up."""
    made = 0

    def symbols() -> dict[str, Any]:
        nonlocal made
        made += 1
        dead = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
        if made % 3 == 2:  # the first is made to look at its shapes
            nn.init.constant_(dead[0].bias, -1e3)
        return {"face": doxa.logits(dead)}

    found = {}
    for starts in (1, 2):
        made = 0 if starts == 2 else 1
        run = train_task(coins(symbols=symbols, starts=starts), "exact", tmp_path / str(starts), progress=False)
        found[starts] = run.metrics_at(60)["task_accuracy"]
    assert found[1] < 0.5 < 0.9 < found[2], found
    with pytest.raises(ConfigError, match="starts is 0, expected 1 or more"):
        coins(starts=0)
    with pytest.raises(ConfigError, match=r"worlds is columns of different lengths, \{'first': 2, 'second': 1\}"):
        coins(worlds={"first": [1, 2], "second": [3]})
    with pytest.raises(ConfigError, match="worlds is list, expected columns of one length"):
        coins(worlds=[(1, 2)])


def test_a_shared_set_of_objects_comes_with_every_batch(tmp_path: Path) -> None:
    """Rows that point into objects of an open sort; the other data are not cut."""
    images = torch.eye(4).repeat(3, 1)
    left, right = torch.cartesian_prod(torch.arange(12), torch.arange(12)).unbind(1)
    data = {"Image": images, "pairs": {"left": left, "right": right, "sum": left % 4 + right % 4}}
    task = Task(
        "pointing",
        "Pairs of twelve images.",
        """sort Image; sort Kind = 0..3; data pairs(left: Image, right: Image, sum: Int); func kind(Image) -> Kind
           [sum] forall p in pairs. a := kind(p.left), b := kind(p.right) (a + b = p.sum)""",
        lambda: {"kind": doxa.logits(nn.Linear(4, 4))},
        data,
        data,
        rows="pairs",
        target="pairs.sum",
        concepts={"kind": {"pairs.left": left % 4}},
        fitting=Fitting(steps=100, learning_rate=0.1, evaluate_every=100),
    )
    # exactly, pairs that share an image would depend on each other
    train_task(task, "fuzzy", tmp_path, progress=False)
    evaluation = evaluate_run(tmp_path, task)
    assert (evaluation.satisfaction, evaluation.task_accuracy, evaluation.concept_accuracy) == (1.0, 1.0, 1.0)


def test_predicates_and_open_sorts_as_rows(tmp_path: Path) -> None:
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    truth = (x[:, 0] > 0).long()
    task = Task(
        "halves",
        "A half-plane.",
        "sort Point; pred right(Point); pred known(Point); [told] forall p: Point. right(p) <-> known(p)",
        lambda: {"right": doxa.logits(lambda p: 4 * p[:, 0]), "known": lambda p: p[:, 0] > 0},
        {"Point": x},
        {"Point": x},
        concepts={"right": {"Point": truth}},
        fitting=Fitting(steps=2),
        batch_size=16,
        supervised=lambda model, data: nn.Parameter(torch.zeros(())) * len(data["Point"]),
    )
    model = task.model(doxa.Exact())
    measured = measure(task, model)
    (reading,) = measured.concepts
    assert reading.values == ("false", "true") and reading.accuracy == 1.0
    torch.testing.assert_close(measured.beliefs["right"]["Point"][:, 1], torch.sigmoid(4 * x[:, 0]))
    assert [(a.name, a.instances, a.holds) for a in measured.axioms] == [("told", 64, 64)] and measured.target is None


def digits(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten brightnesses, easy to tell apart; as many of each."""
    labels = torch.arange(count) % 10
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    grey = (25 * labels)[order, None, None].expand(count, 28, 28)
    return grey.to(torch.uint8).contiguous(), labels[order]


@pytest.fixture(scope="module")
def mnist() -> MNIST:
    return MNIST(*digits(600, 1), *digits(120, 2))


class Shifted(nn.Module):
    """Reads the brightness, and takes every digit for another one."""

    def __init__(self, alpha: list[int]) -> None:
        super().__init__()
        self.register_buffer("alpha", torch.tensor(alpha))

    def forward(self, images: Tensor) -> Tensor:
        read = self.alpha[(images.float().mean((1, 2)) / 25).round().long()]
        return 20 * torch.eye(10)[read]


@pytest.mark.parametrize(
    ("alpha", "words"),
    [
        ([1, 2, 1, 2, 5, 4, 5, 8, 9, 8], "(off by one)"),  # where learning from sums has been seen to end
        ([0] * 10, "by one rule: everything is 0"),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], "(a relabelling)"),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 9], "0 → 1, 1 → 2"),
        ([*range(10)], ""),
    ],
)
def test_wrong_maps_of_concepts_are_told(alpha: list[int], words: str, mnist: MNIST) -> None:
    from doxa.train.tasks._find import addition_task

    task = replace(addition_task(mnist), symbols=lambda: {"digit": doxa.logits(Shifted(alpha))})
    (reading,) = measure(task, task.model(doxa.Exact())).concepts
    assert reading.mapped_accuracy == 1.0
    assert reading.accuracy == pytest.approx(sum(i == j for i, j in enumerate(alpha)) / 10, abs=0.03)
    assert (words in reading.warning()) if words else reading.warning() == ""


def test_a_value_that_is_never_read_is_told() -> None:
    """Where a refined run has ended: sixes are taken for fours as often as for eights."""
    labels = torch.arange(10).repeat(40)
    read = labels.clone()
    read[labels == 6] = torch.tensor([4, 8]).repeat(20)
    reading = Reading.of("digit", [*map(str, range(10))], labels, read, torch.ones(400))
    assert reading.warning() == "digit: 90.0 % are read right, but 6 is taken for 4 or 8"
    by_chance = labels.clone()
    by_chance[::3] = 0  # mistakes that follow no rule
    assert Reading.of("digit", [*map(str, range(10))], labels, by_chance, torch.ones(400)).warning() == ""


def test_all_zeros_satisfy_the_equation(mnist: MNIST) -> None:
    from doxa.train.tasks._find import equation_task

    task = replace(equation_task(mnist), symbols=lambda: {"digit": doxa.logits(Shifted([0] * 10))})
    measured = measure(task, task.model(doxa.Exact()))
    scores = measured.scores()
    assert scores["satisfaction"] == 1.0 and scores["concept_accuracy"] < 0.4
    assert "everything is 0" in measured.concepts[0].warning()
    truths = [task.concepts["digit"][f"equations.{name}"] for name in ("left", "right", "total")]
    assert torch.equal(truths[0] + truths[1], truths[2])


def test_files_with_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for text, message in [
        ("x = 1\n", "has no `task`: define `task = doxa.Task"),
        ("import doxa\ndef broken(:\n", "mine.py:2: invalid syntax"),
        ("task = 3\n", "`task` in .* is of type int"),
        ("x = 1\ny = x / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
        (
            "import doxa\ndef task():\n    return doxa.Task(nam='a')\n",
            "mine.py:3: .*'nam'.*fields of a task are name, ",
        ),
        ("import doxa\ntask = doxa.Task('a', 'b', 'pred', dict, {'r': {}}, {})\n", r"mine.py:2: train\['r'\] is dict"),
    ]:
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            find_task(file)
    with pytest.raises(ConfigError, match="there is no file"):
        find_task(tmp_path / "none.py")
    with pytest.raises(ConfigError, match="there is no task 'adition'; did you mean 'addition'"):
        find_task("adition")


def test_tasks_with_mistakes(tmp_path: Path) -> None:
    for changes, message in [
        ({"name": "a/b"}, "can be the name of a folder"),
        ({"rows": "toss"}, "rows is 'toss', but train has only 'tosses'"),
        ({"target": "tosses.su"}, "tosses has no field 'su' in the test data; did you mean 'sum'"),
        ({"target": "sum"}, "write it like 'tosses.first'"),
        ({"concepts": {"fase": {}}}, "concepts names 'fase'; did you mean 'face'"),
        ({"concepts": {"face": {"tosses.first": [1, 2]}}}, r"have shape \(2,\), expected \(90,\)"),
        ({"semantics": {"exakt": doxa.Exact()}}, "did you mean 'exact'"),
        ({"symbols": {}}, "symbols is not a function"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"test": {"tosses": {"first": "ab"}}}, "is str, expected a tensor"),
        ({"test": {"tosses": {"a": torch.zeros(2), "b": torch.zeros(3)}}}, "different numbers of rows"),
    ]:
        with pytest.raises((ConfigError, DataError), match=message):
            coins(**changes)
    task = coins()
    with pytest.raises(ConfigError, match="there is no semantics 'exakt'; did you mean 'exact'"):
        task.semantics_of("exakt")
    with pytest.raises(ConfigError, match="only fuzzy, refined, amortized take"):
        task.semantics_of("exact:godel")
    with pytest.raises(ConfigError, match="unknown key 'step'; did you mean 'steps'"):
        train_task(task, "exact", tmp_path / "a", settings=["step=3"], progress=False)
    with pytest.raises(
        ConfigError, match=r"unknown key 'bach'; did you mean 'batch_size'\? .* steps, .*, diversity, spread$"
    ):
        train_task(task, "exact", tmp_path / "a", settings=["bach=3"], progress=False)
    with pytest.raises(ConfigError, match=r"optimizer is 'adm' \(text\), wanted one of adam, adamw, sgd$"):
        train_task(task, "exact", tmp_path / "a", settings=["optimizer=adm"], progress=False)
    net = nn.Linear(3, 3)
    nothing = r"no parameters to train; bind a symbol to an nn.Module itself"
    with pytest.raises(ConfigError, match=nothing), pytest.warns(UserWarning, match="calls the network Linear"):
        hidden = coins(symbols=lambda: {"face": doxa.logits(lambda x: net(x))})
        train_task(hidden, "exact", tmp_path / "a", progress=False)
    with pytest.raises(ConfigError, match=nothing):
        unlearnt = coins(symbols=lambda: {"face": doxa.probs(lambda x: x)})
        train_task(unlearnt, "exact", tmp_path / "a", progress=False)
    with pytest.raises(ConfigError, match=r"patience needs rows to look at.*hold some out: validation=500"):
        train_task(task, "exact", tmp_path / "a", settings=["patience=3"], progress=False)
    with pytest.raises(ConfigError, match=r"validation is 400, expected .* fewer than the 400 training rows"):
        train_task(task, "exact", tmp_path / "a", settings=["validation=400"], progress=False)
    wrong = coins(concepts={"face": {"tosses.first": torch.zeros(90, dtype=torch.long)}})
    with pytest.raises(DataError, match="hold 0; its values are 1, 2, 3"):
        measure(wrong, wrong.model(doxa.Exact()))
    with pytest.raises(DataError, match="which is not among its values"):
        measure(coins(values=[2, 3]), task.model(doxa.Exact()))
    assert list(tmp_path.iterdir()) == []
    for loss, message in [(None, "NoneType, .* does it end with return"), (torch.ones(3), "a tensor .*take its mean")]:
        with pytest.raises(ConfigError, match=f"supervised returned {message}"):
            train_task(coins(supervised=lambda m, d, loss=loss: loss), "exact", tmp_path / "b", progress=False)


def test_runs_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    run = train_task(coins(), doxa.Fuzzy("godel"), tmp_path / "object", settings=["steps=2"], progress=False)
    with pytest.raises(RunError, match="has not been evaluated"):
        write_task_report([run.path])
    with pytest.raises(ConfigError, match=r"was trained with Fuzzy\(.*give it again"):
        evaluate_run(run.path, coins())
    assert evaluate_run(run.path, coins(), doxa.Fuzzy("godel")).semantics.startswith("Fuzzy(")
    with pytest.raises(ConfigError, match="there is no task 'coins'"):
        evaluate_run(run.path)
    with pytest.raises(RunError, match=r"is of another version of coins \(its knowledge has changed\)"):
        evaluate_run(run.path, coins(knowledge=COINS + "\n# more\n"), doxa.Fuzzy("godel"))
    other = Run.create(tmp_path / "other", Fitting(), seed=0)
    with pytest.raises(RunError, match="is no run of a task"):
        evaluate_run(other.path, coins())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"train": tosses(400, 5)[0]}, "its training data have changed"),
        ({"test": tosses(90, 5)[0]}, "its test data have changed"),
        ({"symbols": lambda: {"face": doxa.logits(nn.Linear(3, 3, bias=False))}}, "the shapes of its networks have"),
        ({"knowledge": COINS + "\n# more\n"}, "its knowledge has changed"),
    ],
    ids=["train", "test", "networks", "knowledge"],
)
def test_a_task_that_has_changed_is_noticed(changes: dict[str, Any], what: str, tmp_path: Path) -> None:
    settings = ["steps=2"]
    train_task(coins(), "exact", tmp_path, settings=settings, progress=False)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    words = rf"of another version of coins \({what}.*train it elsewhere with --out, or delete the folder"
    with pytest.raises(RunError, match=words) as caught:
        train_task(coins(**changes), "exact", tmp_path, settings=settings, progress=False)
    assert "\\n" not in str(caught.value)
    with pytest.raises(RunError, match=words):
        evaluate_run(tmp_path, coins(**changes))
    train_task(coins(), "exact", tmp_path, settings=settings, progress=False)
    assert evaluate_run(tmp_path, coins()).rows == 90 and (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_run_from_before_there_were_fingerprints_still_opens(tmp_path: Path) -> None:
    train_task(coins(), "exact", tmp_path, settings=["steps=2"], progress=False)
    about = json.loads((tmp_path / "run.json").read_text())
    assert len(about["config"].pop("fingerprint")["train"]) == 64
    (tmp_path / "run.json").write_text(json.dumps(about))
    train_task(coins(), "exact", tmp_path, settings=["steps=2"], progress=False)
    assert evaluate_run(tmp_path, coins()).rows == 90
    with pytest.raises(RunError, match=r"networks of coins are not those that .* was trained with .*--out"):
        evaluate_run(tmp_path, coins(symbols=lambda: {"face": doxa.logits(nn.Linear(3, 3, bias=False))}))


def test_the_fingerprint_of_many_images_is_quick() -> None:
    images = torch.randint(256, (60_000, 28, 28), dtype=torch.uint8)
    field = images.reshape(30_000, 2, 28, 28)
    rows = {"first": field[:, 0], "second": field[:, 1], "sum": torch.zeros(30_000), "product": torch.zeros(30_000)}
    task = coins(train={"tosses": rows})
    start = time.process_time()
    first = Fingerprint.of(task, task.model(None))
    assert time.process_time() - start < 1
    field[17, 1, 3, 3] += 1
    assert first.changes(Fingerprint.of(task, task.model(None))) == ["its training data have changed"]


def test_kinds_of_data_that_fingerprints_tell_apart() -> None:
    from doxa.train.tasks._train import _hashed

    values = [
        torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bool),
        torch.tensor(0.0), torch.zeros(0), [0.0, 0.0], [0, [0]], {"a": 0}, {"b": 0}, "a", None,
        torch.eye(2).to_sparse(),
    ]  # fmt: skip
    assert len({_hashed(value) for value in values}) == len(values)
    assert _hashed({"a": 1, "b": 2}) == _hashed({"b": 2, "a": 1})
    assert _hashed(torch.eye(3).T[:, :2]) == _hashed(torch.eye(3)[:, :2].clone())
    assert _hashed(object()) == _hashed(object())


INVENTED = '''
"""Shades: of two grey squares the darker one is told."""
import torch
from torch import nn
import doxa
from doxa.train import Fitting

def shades(count, seed):
    random = torch.Generator().manual_seed(seed)
    shade = torch.randint(3, (count, 2), generator=random)
    squares = 100.0 * shade[..., None, None] + 9 * torch.randn(count, 2, 5, 5, generator=random)
    return {"pairs": {"a": squares[:, 0], "b": squares[:, 1], "darker": shade.amin(1)}}, shade

def task():
    (train, _), (test, shade) = shades(300, 0), shades(80, 1)
    return doxa.Task(
        "shades", "Shades of squares, learnt from the darker of two.",
        """sort Square; sort Shade = 0..2; data pairs(a: Square, b: Square, darker: Shade); func shade(Square) -> Shade
[darker] forall p in pairs. x := shade(p.a), y := shade(p.b) (x <= y & x = p.darker | y < x & y = p.darker)
""",
        lambda: {"shade": doxa.logits(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(25), nn.Linear(25, 3)))},
        train, test, target="pairs.darker",
        concepts={"shade": {"pairs.a": shade[:, 0], "pairs.b": shade[:, 1]}}, images=("pairs.a", "pairs.b"),
        fitting=Fitting(steps=80, learning_rate=0.05, evaluate_every=40),
    )
'''


BREAKS = """
from dataclasses import replace

def supervised(model, data):
    raise ValueError("broken")

whole = task
task = lambda: replace(whole(), supervised=supervised)
"""


@pytest.fixture(scope="module")
def shades(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison, list[Path]]:
    """A task from a file, under two semantics in two processes, and the page about it."""
    folder = tmp_path_factory.mktemp("shades")
    file = folder / "shades.py"
    file.write_text(INVENTED, encoding="utf-8")
    table, paths = compare_task(file, ["exact", "fuzzy"], out=folder / "runs", jobs=2, progress=False)
    write_task_report(paths, folder / "page")
    return folder, table, paths


def test_compare(shades: tuple[Path, Comparison, list[Path]]) -> None:
    folder, table, paths = shades
    assert [e.semantics for e in table.evaluations] == ["exact", "fuzzy"]
    assert paths[0] == folder / "runs" / "shades" / "exact" / "80-steps" / "seed-0"
    exact = table.evaluations[0]
    assert exact.task_accuracy is not None and exact.task_accuracy > 0.9
    lines = table.markdown().splitlines()
    assert lines[2].startswith(f"| exact | {100 * exact.task_accuracy:.1f} % |")
    assert json.loads(json.dumps(table.json()))[0]["task_accuracy"] == exact.task_accuracy


def test_where_all_fail_the_reasons_are_told(tmp_path: Path) -> None:
    file = tmp_path / "shades.py"
    file.write_text(INVENTED + BREAKS, encoding="utf-8")
    with pytest.raises(RunError, match=r"^fuzzy: ValueError: broken; doxa train shows where$"):
        compare_task(file, ["fuzzy"], out=tmp_path, settings=["steps=2"], progress=False)


def plain(page: str) -> str:
    """A page without the colours of words."""
    return re.sub(r"</?span[^>]*>", "", page)


def test_the_page_says_it_all(shades: tuple[Path, Comparison, list[Path]]) -> None:
    folder, table, paths = shades
    text = plain((folder / "page" / "report.html").read_text(encoding="utf-8"))
    assert text.count("<img ") == text.count('src="data:image/png;base64,')
    for cells in table.cells():
        for cell in cells:
            assert cell in text
    for words in ("x &lt;= y &amp; x = p.darker", "of 80 instances hold", "learning_rate", "Fuzzy(", "predicted "):
        assert words in text
    names = {"curves.png", "losses.png"}
    assert {file.name for file in (folder / "page" / "figures").iterdir()} == names
    own = {file.name for file in (paths[0] / "figures").iterdir()}
    assert own >= {"calibration.png", "confusion-0-pairs-darker.png", "confusion-1-shade.png", "example-0.png"}
    with pytest.raises(ConfigError, match="say in which folder"):
        write_task_report(paths)
    with pytest.raises(ConfigError, match="no run is named"):
        write_task_report([])


def test_the_page_has_all_axioms_and_names(tmp_path: Path) -> None:
    """Axioms with weights, without names and two in a line; a target of a sort with names; rows without a number."""
    random = torch.Generator().manual_seed(0)
    shade = torch.randint(3, (60,), generator=random)
    squares = {"a": 99.0 * shade[:, None, None] + torch.randn(60, 4, 4, generator=random), "shade": shade}
    task = Task(
        "named",
        "Shades with names.",
        """sort Square; sort Shade = {dark, grey, light}; data squares(a: Square, shade: Shade)
func shade(Square) -> Shade; [told] forall s in squares. shade(s.a) = s.shade
[ hurry , weight 0.5] forall s in squares. shade(s.a) = dark <-> s.shade = dark
[learned, weight 1.0?] forall s in squares. shade(s.a) = grey <-> s.shade = grey
[weight 0.1] forall s in squares. shade(s.a) = light <-> s.shade = light
""",
        lambda: {"shade": doxa.logits(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)))},
        {"squares": squares},
        {"squares": squares},
        target="squares.shade",
        images=["squares.a"],
    )
    train_task(task, "fuzzy", tmp_path, settings=["steps=1"], progress=False)
    evaluation = evaluate_run(tmp_path, task)
    assert evaluation.target is not None and evaluation.target.values == ("dark", "grey", "light")
    for example in evaluation.examples:
        assert {example.truth, example.read} <= {"dark", "grey", "light"}
        assert example.explanation.startswith("[told] ") and "s = " not in example.explanation
    text = plain(write_task_report([tmp_path]).read_text(encoding="utf-8"))
    knowledge = text.partition("The knowledge")[2].partition("</pre>")[0].splitlines()
    for header in ("[told]", "[ hurry , weight", "[learned, weight", "[axiom4]"):
        (place,) = (i for i, line in enumerate(knowledge) if header in line)
        assert " % of 60 instances hold" in knowledge[place + 1], header
    assert "predicted dark" in text or "predicted grey" in text or "predicted light" in text


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
def test_the_page_in_a_browser(shades: tuple[Path, Comparison, list[Path]]) -> None:
    """A real browser shows every figure, fits the page into its width, fetches nothing and complains of nothing."""
    from playwright.sync_api import sync_playwright

    page_file = shades[0] / "page" / "report.html"
    heard: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: heard.append(request.url) if request.url.startswith("http") else None)
        page.goto(page_file.as_uri())
        widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
        alts = page.evaluate("[...document.images].map(image => image.alt)")
        assert page.title() == "shades under 2 semantics"
        assert page.locator("table.numbers tr").count() == 3
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.locator("summary").first.click()
        assert page.locator("details table").first.is_visible()
        browser.close()
    assert heard == []
    assert len(widths) >= 2 + 2 * (3 + 3) and min(widths) > 100
    assert {"learning curves", "losses", "confusion of shade, exact", "row 0, fuzzy"} <= set(alts)


def test_killed_and_started_again_it_ends_the_same(tmp_path: Path) -> None:
    file = tmp_path / "shades.py"
    file.write_text(INVENTED, encoding="utf-8")
    common = [sys.executable, "-m", "doxa", "train", str(file), "--semantics", "sampled", "--steps", "60"]
    options = ["--set", "evaluate_every=10", "log_every=5", "--quiet", "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    task = find_task(file)
    settings = ["evaluate_every=10", "log_every=5", "steps=60"]
    killed = run_folder(tmp_path / "killed", task, "sampled", seed=0, settings=settings)
    victim = subprocess.Popen([*common, *options, str(tmp_path / "killed")], env=environment)
    while not list(killed.glob("checkpoints/*.json")):
        assert victim.poll() is None
        time.sleep(0.005)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert Run.open(killed).load().step < 60
    for name in ("killed", "alone"):
        subprocess.run([*common, *options, str(tmp_path / name)], env=environment, check=True)
    alone = run_folder(tmp_path / "alone", task, "sampled", seed=0, settings=settings)
    assert Run.open(killed).metrics() == Run.open(alone).metrics()
    ours, theirs = (Run.open(path).load().state["objective"] for path in (killed, alone))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items() if isinstance(value, Tensor))


@pytest.mark.slow
def test_the_demo_on_digits_of_ones_own(mnist: MNIST, tmp_path: Path) -> None:
    """``python -m doxa.train``: five semantics, one table, one page, from one knowledge file."""
    digits_folder = tmp_path / "digits"
    digits_folder.mkdir()
    for split, name in (("train", "train"), ("test", "t10k")):
        write_idx(digits_folder / f"{name}-images-idx3-ubyte", getattr(mnist, f"{split}_images"))
        write_idx(digits_folder / f"{name}-labels-idx1-ubyte", getattr(mnist, f"{split}_labels").to(torch.uint8))
    command = [sys.executable, "-m", "doxa.train", "--data", str(digits_folder), "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "steps=4"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for word in ("exact", "amortized", "sampled", "refined", "fuzzy"):
        assert any(line.startswith(f"| {word} | ") for line in lines)
    assert lines[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    runs = [Run.open(path.parent) for path in (tmp_path / "out").glob("**/run.json")]
    assert len(runs) == 5 and len({run.config["knowledge"] for run in runs}) == 1
    wrong = subprocess.run([*command, "step=4"], capture_output=True, text=True)
    assert wrong.returncode == 1 and wrong.stderr.startswith("unknown key 'step'; did you mean 'steps'?")


@pytest.mark.parametrize(
    ("split", "bright", "answers", "said"),
    [
        ("train", [0, 1, 2, 2, 9, 2], ["yes", "no", "no"], "train['scenes'], row 2 (counted from 0): bright is 9"),
        ("test", [0, 1, 2, 2, 2, -1], ["yes", "no", "no"], "test['scenes'], row 2 (counted from 0): bright is -1"),
        ("train", [0, 1, 2, 2, 2, 2], ["yes", "maybe", "no"], "row 1 (counted from 0): seen is 'maybe', which is no"),
        ("test", [0, 1, 2, 2, 2, 2], torch.tensor([0, 1, 2]), "row 2 (counted from 0): seen is 2, which is no value"),
    ],
)
def test_a_label_that_is_no_value_is_told_with_its_row(
    split: str, bright: list[int], answers: Any, said: str, tmp_path: Path
) -> None:
    """Before anything is trained, and by its place in the data, not in a batch that was shuffled."""

    def scenes(bright: list[int], answers: Any) -> dict[str, Any]:
        objects, shades = torch.rand(6, 2), torch.tensor(bright)
        lengths = torch.tensor([3, 0, 3])
        fields = {"objects": doxa.Ragged(objects, lengths), "bright": doxa.Ragged(shades, lengths), "seen": answers}
        return {"scenes": fields}

    fine = scenes([0, 1, 2, 2, 2, 2], ["yes", "no", "no"])
    data = {"train": fine, "test": fine} | {split: scenes(bright, answers)}
    knowledge = """sort Object; sort Shade = 0..2; sort Answer = {yes, no}
        data scenes(objects: Object*, bright: Shade*, seen: Answer)
        func shade(Object) -> Shade
        [any] forall s in scenes. s.seen = yes -> exists o in s.objects. shade(o) = 0"""
    symbols = {"shade": doxa.logits(nn.Linear(2, 3))}
    task = Task("scenes", "Scenes.", knowledge, lambda: symbols, data["train"], data["test"])
    with pytest.raises(DataError) as caught:
        train_task(task, "exact", tmp_path / "run", settings=["steps=1"], progress=False)
    assert said in str(caught.value) and not (tmp_path / "run").exists()


def test_fields_of_several_values_in_a_row(tmp_path: Path) -> None:
    labels = torch.tensor([[0, 1], [1, 0], [0, 3]])
    task = coins()
    knowledge = "sort Bit = 0..1; data pairs(bits: Bit*); pred p(Bit)\n[x] forall t in pairs, b in t.bits. p(b)"
    made = Task("pairs", "Pairs.", knowledge, dict, {"pairs": {"bits": labels}}, {"pairs": {"bits": labels[:2]}})
    with pytest.raises(DataError, match=r"row 2 \(counted from 0\): bits is 3, which is no value of Bit"):
        made.check_values()
    task.check_values()
