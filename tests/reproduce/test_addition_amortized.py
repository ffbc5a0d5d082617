"""MNIST addition by amortised inference: learning, going on after a kill, what is measured, and what is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.reproduce.drawn import drawn_digits, killed_at, write_digits

from doxa.amortized import AdditionPruner, FactorMLPs, FittedDirichlet, MixtureDirichlet, Replay, ScanModel
from doxa.cli import main
from doxa.data import MNIST, write_idx
from doxa.errors import ConfigError, RunError
from doxa.problem import addition
from doxa.reproduce import ADDITION
from doxa.reproduce._amortized import (
    AMORTIZED_ENTRIES,
    AmortizedAdditionConfig,
    Learner,
    load_learner,
    make_engine,
    measure,
)
from doxa.reproduce._experiment import train
from doxa.reproduce.figures._gallery import explanation_figures
from doxa.train import Run

SHORT = AmortizedAdditionConfig(
    digits=1, variant="prune", steps=300, pretrain=150, batch_size=16, samples=150, hidden=32, learning_rate=3e-3,
    inference_rate=1e-2, warmup=5, decay=300, average=0.9, save_every=40,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "trained"
    train(SHORT, path, seed=0, data=data, progress=False)
    return path


def test_digits_are_learnt_from_sums(data: Path, trained: Path) -> None:
    mnist = MNIST.load(data, verify=False, progress=False)
    _, learner = load_learner(trained)
    found = measure(SHORT, learner, mnist, 2)
    torch.manual_seed(0)
    untrained = Learner(make_engine(SHORT, addition(1)))
    before = measure(SHORT, untrained, mnist, 2)
    assert before["digit_accuracy"] < 40 and before["accuracy"] < 30 and before["neural"] < 30
    assert found["digit_accuracy"] > 80 and found["accuracy"] > 60 and found["neural"] > 60
    # About what the trained network perceives, an inference model that has learnt nothing is further from exact.
    untrained.perception.load_state_dict(learner.perception.state_dict())
    assert found["divergence"] < 0.3 * measure(SHORT, untrained, mnist, 1)["divergence"]


def test_a_killed_run_goes_on_to_the_bit(data: Path, tmp_path: Path) -> None:
    """A prior with a memory, pretraining, a curve: everything that has a state comes back."""
    config = replace(SHORT, variant="explain", model="mlp", hidden=16, steps=40, pretrain=15, decay=40, curve=20)
    config = replace(config, samples=20, save_every=10, shift=1)
    whole = train(config, tmp_path / "whole", seed=0, data=data, progress=False)
    names = {"accuracy", "neural", "first_pairing", "first_neural", "digit_accuracy", "divergence"}
    assert set(whole.metrics) == names | {f"{name} at 20" for name in names} | {"loss", "perception", "inference"}
    assert whole.prefix_step == 5 and whole.prefix["perception"] == 0  # pretraining
    with killed_at(18):
        train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    parts = train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    assert parts.metrics == whole.metrics
    assert Run.open(tmp_path / "parts").metrics_at(40) == Run.open(tmp_path / "whole").metrics_at(40)


def test_settings_are_chosen_without_the_test_digits(data: Path, tmp_path: Path) -> None:
    """With held-out digits, the test files are not looked at: other test digits change nothing."""
    other = tmp_path / "other"
    other.mkdir()
    for file in data.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    images, labels = drawn_digits(400, 7)
    write_idx(other / "t10k-images-idx3-ubyte", 255 - images)
    write_idx(other / "t10k-labels-idx1-ubyte", labels.to(torch.uint8))
    config = replace(SHORT, steps=5, pretrain=2, validation=500, batch_size=8)
    found = [
        train(config, tmp_path / name, seed=0, data=folder, progress=False).metrics
        for name, folder in (("a", data), ("b", other))
    ]
    assert found[0] == found[1]


def test_variants_are_what_they_are_called() -> None:
    problem = addition(2)
    for variant, model, kind, prior in (
        ("predict", "scan", ScanModel, MixtureDirichlet),
        ("explain", "scan", ScanModel, MixtureDirichlet),
        ("prune", "mlp", FactorMLPs, FittedDirichlet),
        ("no-prior", "mlp", FactorMLPs, Replay),
        ("no-prior", "scan", ScanModel, Replay),
    ):
        config = AmortizedAdditionConfig(2, variant, model, hidden=8)  # type: ignore[arg-type]
        engine = make_engine(config, problem)
        assert type(engine.model) is kind and type(engine.prior) is prior
        assert engine.model.explains == (variant in ("explain", "prune"))
        assert isinstance(engine.pruner, AdditionPruner) == (variant == "prune")
    for settings, message in (
        ({"variant": "guess"}, "variant is 'guess', expected one of predict"),
        ({"model": "table"}, "model is 'table', expected one of mlp, scan"),
        ({"samples": 0}, "samples is 0"),
        ({"pretrain": -1}, "pretrain is -1"),
        ({"shift": -1}, "shift is -1"),
        ({"average": 1.0}, "average is 1.0, expected at least 0 and below 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            AmortizedAdditionConfig(**settings)


def test_rates_rise_and_fall() -> None:
    config = AmortizedAdditionConfig(steps=100, pretrain=20, warmup=10, decay=100)
    inference = [config.rate(1.0, i) for i in range(100)]
    perception = [config.rate(1.0, i, 20) for i in range(20, 100)]
    assert inference.index(max(inference)) == perception.index(max(perception)) == 9
    assert inference[-1] < 0.001 and perception[-1] < 0.001
    assert AmortizedAdditionConfig().rate(0.5, 9999) == 0.5


def test_entries_are_selected_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(AMORTIZED_ENTRIES) == 2 * 4 * 4 + 3 and all(e.config.validation == 0 for e in AMORTIZED_ENTRIES)
    (published,) = ADDITION.select(["amortized/mlp-predict-n-4"])
    assert (published.config.hidden, published.config.samples, published.config.batch_size) == (800, 600, 16)
    assert published.config.steps == 100 * (7500 // 16) and published.published == {"accuracy": 92.56, "neural": 92.48}
    command = ["reproduce", "addition", "--reasoner", "amortized", "--variant", "explain", "no-prior"]
    assert main([*command, "--model", "scan", "-N", "15", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["amortized/scan-explain-n-15", "amortized/scan-no-prior-n-15"]


def test_explanations_are_drawn(data: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gallery = explanation_figures(trained, data=data, count=2, k=3)
    assert list(gallery)[:2] == ["right-1", "right-2"]
    numbers = dict(gallery["right-1"]().numbers)
    total, read = int(str(numbers.pop("sum"))), str(numbers.pop("read"))
    assert sum(map(int, read.split(" + "))) == total
    worlds = [name.split(". ")[1] for name in numbers]
    assert read == worlds[0] and 1 <= len(worlds) <= 3
    assert all(sum(map(int, world.split(" + "))) == total for world in worlds)  # by the pruner, all of them are valid
    shares = [float(str(value).split("p = ")[1]) for value in numbers.values()]
    assert 0 < sum(shares) <= 1.0001 and shares[0] > 0.5
    out = tmp_path / "drawn"
    command = ["figures", "explanations", "--run", str(trained), "--data", str(data), "--out", str(out)]
    assert main([*command, "--only", "right-1"]) == 0
    assert capsys.readouterr().out.split() == [str(out / "right-1.png"), str(out / "index.html")]
    assert (out / "right-1.png").read_bytes().startswith(b"\x89PNG")
    assert worlds[0] in (out / "index.html").read_text(encoding="utf-8")


def test_explanations_need_a_model_that_explains(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "predicts"
    train(replace(SHORT, variant="predict", steps=2), path, seed=0, data=data, progress=False)
    with pytest.raises(ConfigError, match="variant predict, which predicts sums and explains none"):
        explanation_figures(path, data=data)
    with pytest.raises(RunError):
        explanation_figures(tmp_path / "nothing")
    assert main(["figures", "explanations"]) != 0
