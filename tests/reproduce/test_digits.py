from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from doxa.data import MNIST, write_idx
from doxa.errors import ConfigError, DataError
from doxa.reproduce import train_digits
from doxa.reproduce._digits import DigitsConfig
from doxa.train import Run
from doxa.train.tasks._find import digit_network

SMALL = DigitsConfig(steps=60, batch_size=20, validation=50, evaluate_every=20)


def made_up(n: int, seed: int, *, noise: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits anyone can learn: a bright bar whose height says which it is. With noise, nothing can be learned."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (n,), generator=random)
    images = torch.randint(40, (n, 28, 28), generator=random, dtype=torch.uint8)
    if not noise:
        for row in range(2):
            images[torch.arange(n), 4 + 2 * labels + row, 4:24] = 255
    return images, labels


@pytest.fixture
def tiny() -> MNIST:
    return MNIST(*made_up(450, 1), *made_up(200, 2))


@pytest.fixture
def folder(tiny: MNIST, tmp_path: Path) -> Path:
    """The same digits on disk."""
    path = tmp_path / "data"
    path.mkdir()
    for split, name in [("train", "train"), ("test", "t10k")]:
        write_idx(path / f"{name}-images-idx3-ubyte", getattr(tiny, f"{split}_images"))
        write_idx(path / f"{name}-labels-idx1-ubyte", tiny.labels(split).to(torch.uint8))  # type: ignore[arg-type]
    return path


def test_learns_and_reports(tiny: MNIST, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    table = train_digits(tiny, tmp_path / "run", SMALL, seed=3, progress=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    (row,) = table.rows
    assert row.measured[0] > 95

    run = Run.open(tmp_path / "run")
    network = digit_network()
    network.load_state_dict(run.load("best").state["network"])
    with torch.no_grad():
        right = (network(tiny.images("test")).argmax(1) == tiny.labels("test")).sum().item()
    assert row.measured[0] == pytest.approx(100 * right / 200)  # the number shown is that of the network kept
    assert json.loads((run.path / "results.json").read_text())["rows"][0]["mean"] == row.measured[0]

    page = (run.path / "report.html").read_text(encoding="utf-8")
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    saved = {file.name: file.read_bytes() for file in run.figures.iterdir()}
    assert sorted(saved) == ["confusion.png", "digits.png", "learning-curve.png", "mistakes.png"]
    assert {base64.b64decode(picture) for picture in pictures} == set(saved.values())
    assert all(data.startswith(b"\x89PNG") for data in saved.values())
    assert not re.search(r"""(src|href)="(?!data:)""", page)  # nothing is fetched from elsewhere
    assert f"{row.measured[0]:.2f}" in page
    assert f"{200 - right} of 200 test digits are misread" in page
    for value in ("learning_rate", "0.001", "60 steps", run.versions["torch"]):
        assert value in page


def test_a_finished_run_is_shown_again(tiny: MNIST, tmp_path: Path) -> None:
    first = train_digits(tiny, tmp_path / "run", SMALL, progress=False)
    lines = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (tmp_path / "run" / "report.html").unlink()
    assert train_digits(tiny, tmp_path / "run", SMALL, progress=False) == first
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == lines
    assert (tmp_path / "run" / "report.html").exists()


def test_pictures_of_a_network_that_is_mostly_wrong(tmp_path: Path) -> None:
    noise = MNIST(*made_up(60, 1, noise=True), *made_up(50, 2, noise=True))
    config = DigitsConfig(steps=2, batch_size=10, validation=10)
    (row,) = train_digits(noise, tmp_path, config, progress=False).rows
    assert row.measured[0] < 60
    assert "test digits are misread" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_killed_and_started_again_it_ends_the_same(folder: Path, tmp_path: Path) -> None:
    program = f"""
import sys
from doxa.reproduce import train_digits
from doxa.reproduce._digits import DigitsConfig
from doxa.data import MNIST
config = DigitsConfig(steps=300, batch_size=20, validation=50, evaluate_every=10)
train_digits(MNIST.load({str(folder)!r}, verify=False), sys.argv[1], config, progress=False).show()
"""

    def start(name: str) -> subprocess.Popen[str]:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / name)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=one_thread,
        )

    victim = start("killed")
    while not list((tmp_path / "killed").glob("checkpoints/*.json")):
        assert victim.poll() is None
        time.sleep(0.005)
    victim.kill()
    victim.communicate()
    assert Run.open(tmp_path / "killed").load().step < 300
    for name in ("killed", "left-alone"):
        process = start(name)
        out, error = process.communicate()
        assert process.returncode == 0, error
        assert (tmp_path / name / "report.html").exists()
        assert "| digits | test accuracy (%) | " in out
    killed, alone = (Run.open(tmp_path / name) for name in ("killed", "left-alone"))
    assert killed.metrics() == alone.metrics()
    for which in ("last", "best"):
        a, b = killed.load(which), alone.load(which)
        assert a.step == b.step
        assert a.state["batches"] == b.state["batches"]
        assert all(torch.equal(a.state["network"][key], b.state["network"][key]) for key in b.state["network"])


def test_mistakes(tiny: MNIST, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps is 0, expected more than 0"):
        DigitsConfig(steps=0)
    with pytest.raises(ConfigError, match=r"450 indices cannot be cut into \(10000,\)"):
        train_digits(tiny, tmp_path / "a", progress=False)
    with pytest.raises(DataError, match=r"0 rows make no batch of 64"):
        train_digits(tiny, tmp_path / "b", DigitsConfig(validation=450), progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_real_digits(tmp_path: Path) -> None:
    """97.5 % of the published test digits are read correctly."""
    try:
        mnist = MNIST.load(progress=False)
    except DataError as error:
        pytest.skip(str(error))
    (row,) = train_digits(mnist, tmp_path, progress=False).rows
    assert row.measured[0] >= 97.5
