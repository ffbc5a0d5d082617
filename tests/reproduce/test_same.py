"""`same` and `sum9`: the loss and the measures against loops over single instances, and every configuration."""

from __future__ import annotations

import itertools
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from doxa.cli import main
from doxa.data import split_indices, write_idx
from doxa.errors import ConfigError, DataError
from doxa.reproduce import SAME, SUM9
from doxa.reproduce._experiment import Entry, train
from doxa.reproduce._same import (
    SPLIT,
    PairLoss,
    PairNetwork,
    PairsConfig,
    holds,
    make_optimizer,
    relation_loss,
    second_half,
)
from doxa.reproduce._same_tables import draw_pairs
from doxa.train import Result, Run

Op = Callable[[Tensor, Tensor], Tensor]

# The operators once more, one number at a time and as the dissertation writes them.


def yager(p: float) -> Op:
    return lambda a, b: (1 - ((1 - a) ** p + (1 - b) ** p) ** (1 / p)).clamp_min(0)


TNORMS: dict[str, Op] = {
    "yager(1.5)": yager(1.5),
    "yager(2)": yager(2),
    "product": lambda a, b: a * b,
    "godel": lambda a, b: a if a <= b else b,
    "lukasiewicz": lambda a, b: (a + b - 1).clamp_min(0),
    "nilpotent": lambda a, b: (a if a <= b else b) if a + b > 1 else 0 * a,
}
IMPLICATIONS: dict[str, Op] = {
    "product": lambda a, c: 1 - a + a * c,
    "product:r": lambda a, c: c / a if a > c else 0 * a + 1,
    "godel": lambda a, c: 1 - a if 1 - a >= c else c,
    "lukasiewicz": lambda a, c: 1 - a + c if a > c else 0 * a + 1,
    "yager(2)": lambda a, c: ((1 - a) ** 2 + c**2).sqrt().clamp_max(1),
    "nilpotent": lambda a, c: (1 - a if 1 - a >= c else c) if a > c else 0 * a + 1,
}


def bent(i: Tensor, s: float, b0: float) -> Tensor:
    """The sigmoidal transform as it is printed, with the sign of errata 2.15."""
    if s == 0:
        return i
    d = (1 + math.exp(-s * (1 + b0))) / (math.exp(-b0 * s) - math.exp(-s * (1 + b0)))
    return d * ((1 + math.exp(-b0 * s)) * torch.sigmoid(s * (i + b0)) - 1)


def aggregated(name: str, x: Tensor) -> Tensor:
    if name == "log_product":
        return torch.log(x + 1e-6).mean()
    if name.startswith("mean_error"):
        p = float(name[11:-1])
        return 1 - ((1 - x) ** p).mean() ** (1 / p)
    return {"lukasiewicz": lambda: (x.sum() - len(x) + 1).clamp_min(0), "product": x.prod, "yager(2)": lambda: (
        1 - ((1 - x) ** 2).sum().sqrt()).clamp_min(0)}[name]()  # fmt: skip


def some(name: str, x: Tensor) -> Tensor:
    if name.startswith("mean"):
        p = float(name[5:-1])
        return (x**p).mean() ** (1 / p)
    return {"product": lambda: 1 - (1 - x).prod(), "godel": x.max, "lukasiewicz": lambda: x.sum().clamp_max(1)}[name]()


class Loops:
    """The knowledge, instance by instance; antecedents and consequents are kept, to be differentiated by."""

    def __init__(self, config: PairsConfig, digits: Tensor, relation: Tensor) -> None:
        self.config = config
        self.instances: list[tuple[Tensor, Tensor, bool, bool]] = []
        self.digits, self.relation, self.n = digits, relation, len(digits)

    def value(self, labels: Tensor) -> Tensor:
        groups = {"same": [self.same_if_equal, self.equal_if_same, self.symmetry]}.get(
            self.config.relation, [self.partner, self.definition]
        )
        used = self.config.formulas or range(1, len(groups) + 1)
        return torch.stack([groups[g - 1](labels.tolist()) for g in used]).sum() / len(groups)

    def implies(self, a: Tensor, c: Tensor, true_a: bool, true_c: bool) -> Tensor:
        a, c = a * 1, c * 1  # separate nodes for every instance
        self.instances.append((a, c, true_a, true_c))
        return bent(IMPLICATIONS[self.config.implication](a, c), self.config.s, self.config.b0)

    def over_pairs(self, rule: Callable[[int, int], list[Tensor]]) -> Tensor:
        pairs = itertools.product(range(self.n), repeat=2)
        return aggregated(self.config.forall, torch.stack([v for x, y in pairs for v in rule(x, y)]))

    def same_if_equal(self, true: list[int]) -> Tensor:
        conj, p, same = TNORMS[self.config.conjunction], self.digits, self.relation
        return self.over_pairs(lambda x, y: [
            self.implies(conj(p[x, d], p[y, d]), same[x, y], true[x] == true[y] == d, true[x] == true[y])
            for d in range(10)
        ])  # fmt: skip

    def equal_if_same(self, true: list[int]) -> Tensor:
        conj, p, same = TNORMS[self.config.conjunction], self.digits, self.relation
        return self.over_pairs(lambda x, y: [
            self.implies(conj(p[x, d], same[x, y]), p[y, d], true[x] == true[y] == d, true[y] == d)
            for d in range(10)
        ])  # fmt: skip

    def symmetry(self, true: list[int]) -> Tensor:
        same = self.relation
        return self.over_pairs(lambda x, y: [
            self.implies(same[x, y], same[y, x], true[x] == true[y], true[x] == true[y])
        ])  # fmt: skip

    def partner(self, true: list[int]) -> Tensor:
        rows = [some(self.config.exists, torch.stack(list(row))) for row in self.relation]
        return aggregated(self.config.forall, torch.stack(rows))

    def definition(self, true: list[int]) -> Tensor:
        conj, p = TNORMS[self.config.conjunction], self.digits

        def rule(x: int, y: int) -> list[Tensor]:
            none = 1 - conj(p[x, 0], p[y, 9])  # S(a, b) = 1 - T(1 - a, 1 - b)
            for d in range(1, 10):
                none = conj(none, 1 - conj(p[x, d], p[y, 9 - d]))
            nine = true[x] + true[y] == 9
            return [self.implies(self.relation[x, y], 1 - none, nine, nine)]

        return self.over_pairs(rule)


SAME_LOGICS = [
    {},
    {"s": 0.0},
    {"b0": -0.2, "conjunction": "yager(2)", "forall": "mean_error(2)"},
    {"conjunction": "product", "s": 0.0},
    {"conjunction": "product", "implication": "product:r", "s": 0.0},
    {"conjunction": "godel", "implication": "godel", "s": 0.0, "forall": "mean_error(1.5)"},
    {"conjunction": "nilpotent", "implication": "nilpotent", "s": 0.0},
    {"conjunction": "lukasiewicz", "implication": "lukasiewicz", "s": 0.0, "forall": "lukasiewicz", "weight": 1.0},
    {"conjunction": "product", "implication": "yager(2)", "s": 0.0, "forall": "yager(2)", "weight": 1.0},
    {"formulas": (1, 3)},
    {"formulas": (2,), "relation_labels": False},
]
SUM9_LOGICS = [
    {},
    {"conjunction": "product", "s": 0.0, "exists": "product"},
    {"conjunction": "lukasiewicz", "exists": "lukasiewicz"},
    {"conjunction": "godel", "implication": "godel", "s": 0.0, "exists": "mean(2)", "forall": "mean_error(2)"},
]
LOGICS = [{"relation": "same", **c} for c in SAME_LOGICS] + [{"relation": "sum9", **c} for c in SUM9_LOGICS]


def a_batch() -> tuple[PairNetwork, Tensor, Tensor, Tensor, Tensor]:
    """A network without dropout, and images of which none is like another."""
    torch.manual_seed(7)
    network = PairNetwork().double().eval()
    images = torch.randn(9, 1, 28, 28, dtype=torch.float64)
    return network, images[:5], torch.tensor([4, 5, 4, 0, 9]), images[5:], torch.tensor([4, 5, 5, 0])


@pytest.mark.parametrize("changes", LOGICS, ids=str)
def test_the_loss_and_the_measures_are_those_of_loops(changes: dict[str, Any]) -> None:
    config = PairsConfig(**changes)
    network, images, labels, unlabelled, hidden = a_batch()
    sharper = 0.0 if "lukasiewicz" in config.forall or "yager" in config.forall else 4.0
    with torch.no_grad():  # truth values all over [0, 1], or all so high that no aggregator vanishes
        network.classify[1].weight *= 1 + 4 * sharper
        network.relate.out.weight *= 1 + sharper
        if not sharper:
            network.classify[1].bias.copy_(torch.tensor([9.0, *[0.0] * 9]))
            network.relate.out.bias.fill_(9)
    parameters = list(network.parameters())
    loss = PairLoss(network, config)
    torch.manual_seed(1)
    parts = loss(images, labels, unlabelled)
    fast = torch.autograd.grad(parts.loss, parameters, allow_unused=True, retain_graph=True)

    scores, embedding = network(torch.cat([images, unlabelled]))
    pairs = torch.stack([network.relate(a.expand(9, 50), embedding) for a in embedding])
    loops = Loops(config, scores[5:].softmax(1), pairs[5:, 5:].sigmoid())
    value = loops.value(hidden)
    slow = -config.weight * value + cross_entropy(scores[:5], labels)
    if config.relation_labels:
        torch.manual_seed(1)
        slow = slow + slow_relation_loss(config, pairs[:5, :5], labels)
    assert parts.knowledge.item() == pytest.approx(-value.item(), rel=1e-9, abs=1e-12)
    assert parts.loss.item() == pytest.approx(slow.item(), rel=1e-9)
    again = torch.autograd.grad(slow, parameters, allow_unused=True, retain_graph=True)
    for one, other in zip(fast, again, strict=True):
        if one is None or other is None:
            assert all(g is None or not g.any() for g in (one, other))
        else:
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)

    ants, cons, true_ants, true_cons = zip(*loops.instances, strict=True)
    slopes = torch.autograd.grad(value, [*ants, *cons], allow_unused=True)
    up = [torch.zeros(()) if g is None else g for g in slopes[len(ants) :]]
    down = [torch.zeros(()) if g is None else -g for g in slopes[: len(ants)]]
    total = sum(up) + sum(down)
    expected = {
        "cons": sum(up) / total,
        "cu_cons": sum(g for g, true in zip(up, true_cons, strict=True) if true) / sum(up),
        "cu_ant": sum(g for g, true in zip(down, true_ants, strict=True) if not true) / sum(down),
    }
    found = loss.measures(parts, hidden)
    known = {name: float(ratio) for name, ratio in expected.items() if not math.isnan(ratio)}
    assert found == pytest.approx(known, rel=1e-6, abs=1e-12)


def slow_relation_loss(config: PairsConfig, logits: Tensor, labels: Tensor) -> Tensor:
    true = {"same": lambda a, b: a == b, "sum9": lambda a, b: a + b == 9}[config.relation]
    positive = [logits[i, j] for i in range(5) for j in range(5) if true(int(labels[i]), int(labels[j]))]
    negative = [logits[i, j] for i in range(5) for j in range(5) if not true(int(labels[i]), int(labels[j]))]
    drawn = [negative[int(k)] for k in torch.randint(len(negative), (len(positive),))]
    both, target = torch.stack([*positive, *drawn]), torch.tensor([1.0] * len(positive) + [0.0] * len(drawn))
    return binary_cross_entropy_with_logits(both, target.double())


def test_all_positive_pairs_and_as_many_negative_ones() -> None:
    labels = torch.tensor([3, 3, 1, 2, 6, 6])
    truth = holds("same", labels)
    assert truth.sum() == 10 and holds("sum9", labels).sum() == 8
    assert torch.equal(holds("sum9", labels), torch.tensor([[a + b == 9 for a in labels] for b in labels]))
    torch.manual_seed(0)
    drawn = torch.zeros(6, 6)
    for _ in range(100):
        scores = torch.zeros(6, 6, requires_grad=True)
        relation_loss(scores, truth).backward()
        times = scores.grad * 2 * (2 * 10)  # at 0 each pair that takes part has a slope of ±1/2 over their number
        assert torch.equal(times[truth], -torch.ones(10))
        counts = times[~truth]
        assert counts.sum() == 10 and torch.equal(counts, counts.round()) and counts.min() == 0
        drawn += scores.grad.clamp_min(0) * 40
    mean = drawn[~truth] / 100
    assert (mean - 10 / 26).abs().max() < 5 * math.sqrt(10 / 26 / 100)  # uniform, and with replacement


def test_without_positive_or_negative_pairs() -> None:
    scores = torch.zeros(2, 2, requires_grad=True)
    none = relation_loss(scores, torch.zeros(2, 2, dtype=torch.bool))
    assert none == 0 and torch.autograd.grad(none, scores)[0].abs().sum() == 0
    assert relation_loss(scores, torch.ones(2, 2, dtype=torch.bool)).item() == pytest.approx(math.log(2))


def test_the_split_is_that_of_the_dissertation() -> None:
    order = np.arange(60_000)
    np.random.RandomState(1).shuffle(order)
    labelled, unlabelled = split_indices(60_000, PairsConfig().labelled, seed=SPLIT)
    assert len(labelled) == 600 and len(unlabelled) == 59_400
    assert torch.equal(torch.cat([labelled, unlabelled]), torch.from_numpy(order))


# ---- Every configuration


def test_there_is_an_entry_for_each_of_the_69_rows() -> None:
    rows = [e for e in (*SAME.entries, *SUM9.entries) if e.source.startswith("Table")]
    assert len(rows) == 69
    tables: dict[str, int] = {}
    for entry in rows:
        table = entry.source.split(",")[0]
        tables[table] = tables.get(table, 0) + 1
        assert "accuracy" in entry.published
    assert sorted(tables.values()) == [6, 7, 7, 7, 7, 7, 8, 10, 10]
    for experiment in (SAME, SUM9):
        names = [entry.name for entry in experiment.entries]
        assert len(set(names)) == len(names)
        assert all(entry.config.relation == experiment.name for entry in experiment.entries)
        assert all(set(entry.published) <= set(experiment.metrics) for entry in experiment.entries)
        assert all(entry.config.steps == 70_000 for entry in experiment.entries)
    best = {"same": 97.3, "sum9": 97.0}
    for experiment in (SAME, SUM9):
        assert max(entry.published.get("accuracy", 0) for entry in experiment.entries) == best[experiment.name]


@pytest.mark.parametrize("entry", [*SAME.entries, *SUM9.entries], ids=lambda e: f"{e.config.relation}/{e.name}")
def test_every_entry_takes_two_steps(entry: Entry) -> None:
    torch.manual_seed(3)
    config: PairsConfig = entry.config
    network = PairNetwork()
    loss = PairLoss(network, config)
    optimizer = make_optimizer(network, config)
    hidden = torch.tensor([4, 5, 5, 9])
    for _ in range(2):
        parts = loss(torch.randn(3, 1, 28, 28), torch.tensor([4, 5, 5]), torch.randn(4, 1, 28, 28))
        measures = loss.measures(parts, hidden)
        optimizer.zero_grad()
        parts.loss.backward()
        optimizer.step()
        assert all(torch.isfinite(p).all() for p in network.parameters())
        assert all(-1e-6 <= value <= 1 + 1e-6 for value in measures.values())
    assert bool(measures) or config.weight == 0 or config.forall != "log_product"


@pytest.mark.parametrize(
    "changes",
    [
        {"forall": "mean"},
        {"exists": "log_product(2)"},
        {"conjunction": "yaggr"},
        {"formulas": (4,)},
        {"formulas": (1, 1)},
        {"weight": -1.0},
        {"steps": 0},
        {"relation": "sum9", "formulas": (3,)},
    ],
    ids=str,
)
def test_mistakes_in_a_configuration(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"expected|did you mean"):
        PairsConfig(**changes)


def test_the_minimum_breaks_ties_at_random() -> None:
    logic = PairsConfig(forall="godel", exists="godel").logic()
    for aggregator in (logic.forall, logic.exists):
        torch.manual_seed(0)
        chosen = set()
        for _ in range(30):
            x = torch.full((3,), 0.5, requires_grad=True)
            aggregator(x).backward()
            assert sorted(x.grad.tolist()) == [0, 0, 1]
            chosen.add(int(x.grad.argmax()))
        assert chosen == {0, 1, 2}


# ---- Runs


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Forty made-up training digits, of which a few will be labelled, and ten to test on."""
    return write_digits(tmp_path / "data", torch.randint(10, (40,), generator=torch.Generator().manual_seed(0)))


def write_digits(folder: Path, labels: Tensor) -> Path:
    random = torch.Generator().manual_seed(5)
    folder.mkdir()
    for name, truth in (("train", labels), ("t10k", torch.arange(10))):
        images = torch.randint(256, (len(truth), 28, 28), generator=random, dtype=torch.uint8)
        write_idx(folder / f"{name}-images-idx3-ubyte", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte", truth.to(torch.uint8))
    return folder


TINY = PairsConfig(steps=9, batch_size=4, labelled=10, evaluate_every=4, forall="godel")


def test_interrupted_it_goes_on_with_the_same_bits(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.random.get_rng_state()
    alone = train(TINY, tmp_path / "alone", seed=1, data=digits, progress=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    calls, call = [0], PairLoss.__call__

    def interrupted(self: PairLoss, *arguments: Tensor) -> Any:
        calls[0] += 1
        if calls[0] == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return call(self, *arguments)

    monkeypatch.setattr(PairLoss, "__call__", interrupted)
    before_signal = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us without
    try:
        with pytest.raises(KeyboardInterrupt, match="stopped at step 5 of 9"):
            train(TINY, tmp_path / "cut", seed=1, data=digits, progress=False)
    finally:
        signal.signal(signal.SIGINT, before_signal)
    torch.rand(3)  # whatever happens to torch's own generator in between
    result = train(TINY, tmp_path / "cut", seed=1, data=digits, progress=False)
    assert calls[0] == 9
    one, other = Run.open(tmp_path / "alone"), Run.open(tmp_path / "cut")
    assert one.metrics() == other.metrics() and result.metrics == alone.metrics
    a, b = one.load().state, other.load().state
    assert all(torch.equal(a["network"][key], b["network"][key]) for key in a["network"])
    assert torch.equal(a["random"]["torch"], b["random"]["torch"])


def test_unlabelled_labels_serve_the_measures_only(digits: Path, tmp_path: Path) -> None:
    labels = torch.randint(10, (40,), generator=torch.Generator().manual_seed(0))
    _, rest = split_indices(40, 10, seed=1)
    others = labels.clone()
    others[rest] = (labels[rest] + 3) % 10
    config = replace(TINY, forall="log_product")
    told = train(config, tmp_path / "a", seed=0, data=digits, progress=False)
    lied = train(config, tmp_path / "b", seed=0, data=write_digits(tmp_path / "wrong", others), progress=False)
    a, b = (Run.open(tmp_path / name).load().state["network"] for name in "ab")
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert told.metrics["loss"] == lied.metrics["loss"] and told.metrics["cons"] == lied.metrics["cons"]
    assert told.metrics["cu_ant"] != lied.metrics["cu_ant"]


def test_a_result_averages_the_measures_of_the_second_half(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", TINY, seed=0)
    for step, cons in [(100, 0.9), (200, 0.8), (300, 0.2), (400, 0.4)]:
        run.log(step, {"loss": 1.0, "cons": cons, **({"cu_ant": 0.5} if step == 400 else {})})
    assert second_half(run, 400) == pytest.approx({"cons": 0.3, "cu_ant": 0.5})


def test_more_labels_than_images(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="40 training images cannot have 40 labelled"):
        train(replace(TINY, labelled=40), tmp_path / "run", seed=0, data=digits, progress=False)


# ---- The command and the figures


def test_the_list_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "same", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [entry.name for entry in SAME.entries]
    assert any("accuracy 96.3, cons 0.09, cu_cons 0.73, cu_ant 0.98" in line for line in lines)
    assert main(["reproduce", "same", "--list", "--table", "implications"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15 and all(line.startswith("implications/") for line in lines)
    assert main(["reproduce", "sum9", "--list", "--only", "exists/mean-*"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_command_runs_and_shows(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, saved = tmp_path / "runs", tmp_path / "results"
    settings = ["--set", "labelled=10", "batch_size=4", "--steps", "2", "--quiet", "--out", str(runs)]
    data = ["--data", str(digits), "--save", str(saved)]
    assert main(["reproduce", "same", "--only", "forall/rmse", "baseline/*", *settings, *data]) == 0
    out = capsys.readouterr().out
    assert "forall/rmse" in out and "96.2" in out and "measures.png" in out
    assert (runs / "same" / "figures" / "measures.png").read_bytes().startswith(b"\x89PNG")
    (file,) = saved.glob("same/forall.rmse*.json")
    result = Result.read(file)
    assert result.steps == 2 and result.config["forall"] == "mean_error(2)" and result.prefix_step == 2
    assert "cons" in result.metrics
    (baseline,) = saved.glob("same/baseline.supervised*.json")
    assert "cons" not in Result.read(baseline).metrics


def test_figures_of_whatever_there_is(tmp_path: Path) -> None:
    entries = {"same": SAME.entries, "sum9": SUM9.entries}
    assert draw_pairs([], entries, tmp_path) == []

    def result(name: str, **metrics: float) -> Result:
        return Result(name, config={}, seed=0, steps=5, metrics={"loss": 1.0, **metrics}, prefix={})

    results = [
        result("same/baseline/supervised", accuracy=95.0),
        result("sum9/tnorms/product", accuracy=20.0, cons=0.4, cu_cons=0.1, cu_ant=0.9),
        *[result(f"same/s/{s}", accuracy=96 + s / 10, cons=0.1, cu_cons=0.5, cu_ant=0.9) for s in (1, 9)],
    ]
    made = draw_pairs(results, entries, tmp_path / "figures")
    assert [file.name for file in made] == ["measures.png", "sweep-s.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in made)
