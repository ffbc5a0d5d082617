"""MNIST addition through the refinement layer: the layer against its formula, made-up digits, the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from doxa.cli import main
from doxa.data import write_idx
from doxa.errors import ConfigError
from doxa.reproduce import ADDITION
from doxa.reproduce._addition import RefineAdditionConfig, addition_layer
from doxa.reproduce._experiment import Given, seeded
from doxa.train import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Digits anyone can learn, on disk: a bright bar whose height says which it is."""
    path = tmp_path / "data"
    path.mkdir()
    for name, n, seed in [("train", 600, 1), ("t10k", 200, 2)]:
        random = torch.Generator().manual_seed(seed)
        labels = torch.randint(10, (n,), generator=random)
        images = torch.randint(40, (n, 28, 28), generator=random, dtype=torch.uint8)
        for row in range(2):
            images[torch.arange(n), 4 + 2 * labels + row, 4:24] = 255
        write_idx(path / f"{name}-images-idx3-ubyte", images)
        write_idx(path / f"{name}-labels-idx1-ubyte", labels.to(torch.uint8))
    return path


def refined_sums(x: Tensor, y: Tensor) -> Tensor:
    """s_k = max_{i+j=k} min(x_i, y_j), one k after the other."""
    pairs = [[torch.minimum(x[i], y[k - i]) for i in range(10) if 0 <= k - i < 10] for k in range(19)]
    return torch.stack([torch.stack(p).max() for p in pairs])


def test_the_layer_is_the_formula_in_value_and_derivative() -> None:
    layer = addition_layer()
    random = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.randn(2, 10, generator=random, dtype=torch.float64).softmax(-1).requires_grad_()
        truths = torch.cat([x[0], x[1], torch.zeros(19, dtype=torch.float64)])
        ours, plain = layer(truths)[20:], refined_sums(x[0], x[1])
        torch.testing.assert_close(ours, plain)
        torch.testing.assert_close(layer(truths)[:20], truths[:20])  # the digits stay as they are
        weights = torch.randn(19, generator=random, dtype=torch.float64)
        a, b = (torch.autograd.grad((weights * s).sum(), x)[0] for s in (ours, plain))
        torch.testing.assert_close(a, b)


def test_learns_goes_on_and_counts(folder: Path, tmp_path: Path) -> None:
    config = RefineAdditionConfig(pairs=300, steps=150, batch_size=50, save_every=50)
    result = ADDITION.train(config, tmp_path / "run", seed=1, data=folder, progress=False)
    metrics = dict(result.metrics)
    counts = torch.tensor([[metrics[f"read {i} as {j}"] for j in range(10)] for i in range(10)])
    assert counts.sum() == 200
    assert metrics["digit_accuracy"] == pytest.approx(100 * (counts.diagonal().sum() / 200).item())
    off = counts.diagonal(1).sum() + counts.diagonal(-1).sum()
    assert metrics["off_by_one"] == pytest.approx(100 * (off / 200).item())
    assert metrics["local_minimum"] == float(metrics["accuracy"] < 60)
    first = Run.open(tmp_path / "run").metrics()
    assert first[-1]["loss"] < first[0]["loss"]
    again = ADDITION.train(config, tmp_path / "run", seed=1, data=folder, progress=False)
    assert again.metrics == result.metrics  # a run that is done is not done again
    with pytest.raises(ConfigError, match="pairs is 301, but the training digits make only 300"):
        ADDITION.train(RefineAdditionConfig(pairs=301), tmp_path / "other", seed=1, data=folder, progress=False)
    with pytest.raises(ConfigError, match="batch_size is 0"):
        RefineAdditionConfig(batch_size=0)


def test_of_several_starts_the_one_with_the_lowest_loss_goes_on(folder: Path) -> None:
    """As if each had been trained alone: their last losses choose between them."""
    given = Given(3, folder, progress=False)
    config = RefineAdditionConfig(pairs=200, batch_size=50, starts=2, tried=20)
    with seeded(3):
        chosen = config.training(given).state["network"].state_dict()
    ends, alone = [], []
    with seeded(3):
        for _ in range(2):
            training = replace(config, starts=1).training(given)
            ends.append(sum(float(training.step(i)) for i in range(20)))
            for i in range(20):
                training.step(i)
            alone.append(training.state["network"].state_dict())
    best = alone[ends.index(min(ends))]
    other = alone[ends.index(max(ends))]
    assert all(torch.equal(chosen[name], best[name]) for name in best)
    assert any(not torch.equal(chosen[name], other[name]) for name in other)


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "addition", "--reasoner", "refine", "--list"]) == 0
    assert capsys.readouterr().out.split()[:4] == ["refine/3000", "accuracy", "93.38", "(Chapter"]
    assert main(["reproduce", "addition", "--reasoner", "exact", "-N", "4", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["exact/n-4"]
    out = tmp_path / "runs"
    arguments = ["--only", "refine/3000", "--steps", "20", "--set", "pairs=200", "--quiet"]
    assert main(["reproduce", "addition", *arguments, "--data", str(folder), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| addition/refine/3000+pairs=200 | accuracy |" in printed
    assert (out / "addition" / "figures" / "confusion.png").read_bytes().startswith(b"\x89PNG")
