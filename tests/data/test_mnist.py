from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.data import MNIST, normalize, split_indices, write_idx
from doxa.data._mnist import decode_idx
from doxa.errors import ConfigError, DataError


def legacy_shuffle(n: int, seed: int) -> list[int]:
    """NumPy's frozen shuffle by hand: Mersenne twister seeded by Knuth's recurrence, masked rejection, Fisher-Yates."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + i) % 2**32)
    twister = random.Random()
    twister.setstate((3, (*state, 624), None))
    order = list(range(n))
    for i in reversed(range(1, n)):
        mask = (1 << i.bit_length()) - 1
        while (j := twister.getrandbits(32) & mask) > i:
            pass
        order[i], order[j] = order[j], order[i]
    return order


def test_the_split_of_the_experiments() -> None:
    labelled, unlabelled = split_indices(60_000, 600, seed=1)
    assert labelled.shape == (600,)
    assert unlabelled.shape == (59_400,)
    assert labelled.tolist() + unlabelled.tolist() == legacy_shuffle(60_000, 1)


@settings(deadline=None)  # the machine may be busy
@given(n=st.integers(0, 60), cuts=st.lists(st.integers(0, 20), max_size=4), seed=st.integers(0, 2**32 - 1))
def test_splits(n: int, cuts: list[int], seed: int) -> None:
    if sum(cuts) > n:
        with pytest.raises(ConfigError, match=rf"{n} indices cannot be cut .* asks for {sum(cuts)}"):
            split_indices(n, *cuts, seed=seed)
        return
    pieces = split_indices(n, *cuts, seed=seed)
    assert [len(piece) for piece in pieces] == [*cuts, n - sum(cuts)]
    assert all(piece.dtype == torch.int64 for piece in pieces)
    assert torch.cat(pieces).tolist() == legacy_shuffle(n, seed)


def test_splits_leave_numpys_state_alone_and_refuse_nonsense() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[union-attr, index] # noqa: NPY002
    split_indices(10, 3, seed=0)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[union-attr, index] # noqa: NPY002
    with pytest.raises(ConfigError, match=r"seed is -1, expected 0"):
        split_indices(10, 3, seed=-1)
    with pytest.raises(ConfigError, match=r"cut into \(-1,\)"):
        split_indices(10, -1, seed=0)


def test_normalisation() -> None:
    grey = torch.arange(256, dtype=torch.uint8)
    expected = (np.arange(256) / 255 - 0.1307) / 0.3081
    result = normalize(grey)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(grey, torch.arange(256, dtype=torch.uint8))
    with pytest.raises(DataError, match=r"images are torch.float32, expected torch.uint8"):
        normalize(result)


@pytest.fixture
def tiny(content: dict[str, bytes], tmp_path: Path) -> MNIST:
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    return MNIST.load(tmp_path, verify=False)


def test_every_tensor_comes_from_its_file(tiny: MNIST, content: dict[str, bytes]) -> None:
    raw = {name: decode_idx(data) for name, data in content.items()}
    assert torch.equal(tiny.train_images, raw["train-images-idx3-ubyte"])
    assert torch.equal(tiny.labels("train"), raw["train-labels-idx1-ubyte"].long())
    assert torch.equal(tiny.test_images, raw["t10k-images-idx3-ubyte"])
    assert torch.equal(tiny.labels("test"), raw["t10k-labels-idx1-ubyte"].long())
    assert tiny.images("train").shape == (12, 1, 28, 28)
    assert torch.equal(tiny.images("test")[:, 0], normalize(tiny.test_images))
    assert torch.equal(tiny.images("test", normalize=False)[:, 0] * 255, tiny.test_images.float())
    assert repr(tiny) == "MNIST(12 training digits, 5 test digits, device=cpu)"


def test_splits_of_the_training_digits(tiny: MNIST) -> None:
    train, validation = tiny.split(9, seed=3)
    assert torch.cat([train, validation]).tolist() == legacy_shuffle(12, 3)
    with pytest.raises(ConfigError, match=r"12 indices cannot be cut"):
        tiny.split(13, seed=3)
    with pytest.raises(ConfigError, match=r"split is 'val', expected 'train' or 'test'"):
        tiny.images("val")  # type: ignore[arg-type]


def test_on_another_device(tiny: MNIST) -> None:
    moved = tiny.to("meta")
    assert {moved.images("train").device.type, moved.labels("test").device.type} == {"meta"}
    assert moved.split(3, seed=0)[0].device.type == "meta"


def test_the_genuine_digits_are_asked_for(tiny: MNIST, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"1\. folder .*: train-images-idx3-ubyte: altered or damaged"):
        MNIST.load(tmp_path, offline=True)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (
            "train-images-idx3-ubyte",
            torch.zeros(12, 20, 20, dtype=torch.uint8),
            r"\(12, 20, 20\), expected torch.uint8 \(n",
        ),
        ("t10k-images-idx3-ubyte", torch.zeros(5, 28, 28), r"test_images are torch.float32 \(5, 28, 28\), expected"),
        (
            "t10k-labels-idx1-ubyte",
            torch.zeros(6, dtype=torch.uint8),
            r"test_labels are torch.int64 \(6,\), expected .*\(5,\)",
        ),
        (
            "train-labels-idx1-ubyte",
            torch.full((12,), 10, dtype=torch.uint8),
            r"train_labels lie in 10..10, expected 0..9",
        ),
        (
            "train-labels-idx1-ubyte",
            torch.full((12,), -1, dtype=torch.int8),
            r"train_labels lie in -1..-1, expected 0..9",
        ),
    ],
)
def test_files_that_are_no_digits(tiny: MNIST, tmp_path: Path, name: str, tensor: torch.Tensor, message: str) -> None:
    write_idx(tmp_path / name, tensor)
    with pytest.raises(DataError, match=message):
        MNIST.load(tmp_path, verify=False)


def test_no_digits_at_all() -> None:
    none, nothing = torch.zeros(0, 28, 28, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64)
    assert MNIST(none, nothing, none, nothing).images("train").shape == (0, 1, 28, 28)


def test_real_mnist(real_mnist: MNIST) -> None:
    """Facts published with the set: sizes, the digits per class, the first labels, mean and deviation of the pixels."""
    assert real_mnist.train_images.shape == (60_000, 28, 28)
    assert real_mnist.test_images.shape == (10_000, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(real_mnist.labels("train")).tolist() == counts
    assert torch.bincount(real_mnist.labels("test")).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert real_mnist.labels("train")[:5].tolist() == [5, 0, 4, 1, 9]
    pixels = real_mnist.train_images.double() / 255
    assert round(float(pixels.mean()), 4) == 0.1307
    assert round(float(pixels.std()), 4) == 0.3081
    labelled, unlabelled = real_mnist.split(600, seed=1)
    assert (len(labelled), len(unlabelled)) == (600, 59_400)
