"""MNIST addition by exact inference: learning, going on after a kill, and what is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.reproduce.drawn import drawn_digits, killed_at, write_digits
from torch import nn

from doxa.data import MNIST, write_idx
from doxa.errors import ConfigError
from doxa.exact import Elimination
from doxa.problem import addition
from doxa.reproduce._addition import EXACT_ENTRIES, ExactAdditionConfig, measure
from doxa.reproduce._digits import perception, read, shifted
from doxa.reproduce._experiment import train
from doxa.train import Run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


def test_digits_are_learnt_from_sums_and_a_killed_run_goes_on(data: Path, tmp_path: Path) -> None:
    config = ExactAdditionConfig(
        digits=2, steps=100, batch_size=16, average=0.9, save_every=20, learning_rate=3e-3, warmup=5, shift=1
    )
    whole = train(config, tmp_path / "whole", seed=0, data=data, progress=False)
    assert whole.metrics["digit_accuracy"] > 90
    assert set(whole.metrics) == {"loss", "accuracy", "first_pairing", "most_probable", "digit_accuracy"}
    with killed_at(47):
        train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    parts = train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    assert parts.metrics == whole.metrics
    assert Run.open(tmp_path / "parts").metrics_at(100) == Run.open(tmp_path / "whole").metrics_at(100)


def test_dropout_is_for_training_alone_and_a_killed_run_goes_on(data: Path, tmp_path: Path) -> None:
    plain, network = perception(), perception(dropout=0.5)
    network.load_state_dict(dict(zip(network.state_dict(), plain.state_dict().values(), strict=True)))
    images = torch.randint(256, (20, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert not torch.equal(read(network, images), read(plain, images))
    assert torch.equal(read(network.eval(), images), read(plain, images))
    config = ExactAdditionConfig(steps=30, batch_size=16, average=0.9, save_every=10, warmup=5, dropout=0.3)
    whole = train(config, tmp_path / "whole", seed=0, data=data, progress=False)
    with killed_at(17):
        train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    assert train(config, tmp_path / "parts", seed=0, data=data, progress=False).metrics == whole.metrics
    with pytest.raises(ConfigError, match=r"dropout is 1.0, expected at least 0 and below 1"):
        ExactAdditionConfig(dropout=1.0)


def test_images_are_shifted_in_every_direction_and_by_no_more() -> None:
    image = torch.arange(1, 21, dtype=torch.uint8).view(4, 5)
    moved = shifted(image.expand(50, 4, 4, 5), 2, torch.Generator().manual_seed(0)).reshape(-1, 4, 5)
    ways = []
    for down in range(-2, 3):
        for right in range(-2, 3):
            by_hand = torch.zeros(4, 5, dtype=torch.uint8)
            for i in range(4):
                for j in range(5):
                    if 0 <= i - down < 4 and 0 <= j - right < 5:
                        by_hand[i, j] = image[i - down, j - right]
            ways.append(by_hand)
    assert torch.equal(moved.unique(dim=0), torch.stack(ways).unique(dim=0))


def test_settings_are_chosen_without_the_test_digits(data: Path, tmp_path: Path) -> None:
    """With held-out digits, the test files are not looked at: other test digits change nothing."""
    other = tmp_path / "other"
    other.mkdir()
    for file in data.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    images, labels = drawn_digits(400, 7)
    write_idx(other / "t10k-images-idx3-ubyte", 255 - images)
    write_idx(other / "t10k-labels-idx1-ubyte", labels.to(torch.uint8))
    config = ExactAdditionConfig(steps=10, validation=500, batch_size=8)
    found = [
        train(config, tmp_path / name, seed=0, data=folder, progress=False).metrics
        for name, folder in (("a", data), ("b", other))
    ]
    assert found[0] == found[1]


class Reader(nn.Module):
    """Reads the place of the bright square, but takes every digit 3 for an 8."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        places = [images[:, 0, 8 * (d // 4), 7 * (d % 4)] for d in range(10)]
        logits = torch.stack(places, -1)
        swapped = logits.clone()
        swapped[:, 8], swapped[:, 3] = logits[:, 3] + logits[:, 8], logits[:, 3] - 10
        return swapped


def test_accuracies_are_counted_right() -> None:
    mnist = MNIST(*drawn_digits(20, 0), *drawn_digits(1000, 1))
    found = measure(Reader(), mnist, Elimination(addition(1)))
    assert found["digit_accuracy"] == pytest.approx(90.0)
    # Two digits of which neither is a 3: 900 · 899 of 1000 · 999 pairs; 3 + 3 = 16 is wrong too.
    assert found["accuracy"] == pytest.approx(100 * 900 * 899 / (1000 * 999), abs=0.5)
    assert abs(found["first_pairing"] - 81) < 6
    longer = measure(Reader(), mnist, Elimination(addition(4)))
    assert longer["accuracy"] == pytest.approx(100 * 0.9**8, abs=1.5)


def test_entries_have_the_published_budget_of_digits() -> None:
    assert [e.name for e in EXACT_ENTRIES] == [f"exact/n-{n}" for n in (1, 2, 4, 15, "15-shifted", "15-dropout", 50)]
    for entry in EXACT_ENTRIES:
        assert entry.config.validation == 0
    with pytest.raises(ConfigError, match="digits is 0"):
        ExactAdditionConfig(digits=0)
    with pytest.raises(ConfigError, match="average is 1"):
        ExactAdditionConfig(average=1.0)
    rates = [ExactAdditionConfig(warmup=5, decay=100).rate(1e-3, i) for i in (0, 4, 50, 99)]
    assert rates[0] < rates[1] > rates[2] > rates[3] > 0
