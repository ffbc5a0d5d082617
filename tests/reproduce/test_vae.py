"""The discrete VAE: its formulas, its gradients, and runs on a few images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, OneHotCategorical, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits

from doxa.cli import main
from doxa.data import MNIST, Batches, write_idx
from doxa.errors import ConfigError
from doxa.reproduce import VAE
from doxa.reproduce._vae import (
    ControlVariate,
    DiscreteVAE,
    Latents,
    VAEConfig,
    _reconstruction,
    backward_with_variance,
    binarised,
    negative_elbo,
)
from doxa.stochastic import ARM, GO, REBAR, RELAX, Estimator, Score, Tape, profile_variance
from doxa.train import Result, Run

BOTH: tuple[Latents, ...] = ("bernoulli", "categorical")


def digits(n: int, seed: int) -> MNIST:
    """Bars of grey whose height depends on the label."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (n,), generator=random)
    images = torch.randint(60, (n, 28, 28), generator=random, dtype=torch.uint8)
    images[torch.arange(n), 4 + 2 * labels, 4:24] = 255
    return MNIST(images, labels, images[: n // 2], labels[: n // 2])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path, some = tmp_path / "data", digits(90, 1)
    path.mkdir()
    for split, name in [("train", "train"), ("test", "t10k")]:
        write_idx(path / f"{name}-images-idx3-ubyte", getattr(some, f"{split}_images"))
        write_idx(path / f"{name}-labels-idx1-ubyte", getattr(some, f"{split}_labels").to(torch.uint8))
    return path


def model_and_images(latents: Latents, n: int = 6) -> tuple[DiscreteVAE, Tensor]:
    torch.manual_seed(3)
    return DiscreteVAE(latents).double(), binarised(digits(n, 2), "train").double()


@pytest.mark.parametrize("latents", BOTH)
def test_the_bound_is_that_of_torch(latents: Latents) -> None:
    model, x = model_and_images(latents)
    logits = 3 * model.logits(x)
    if latents == "bernoulli":
        expected = kl_divergence(Bernoulli(logits=logits), Bernoulli(torch.full_like(logits, 0.5))).sum(-1)
    else:
        expected = kl_divergence(OneHotCategorical(logits=logits), OneHotCategorical(torch.ones_like(logits) / 10)).sum(
            -1
        )
    torch.testing.assert_close(model.divergence(logits), expected)
    z = model.posterior(logits).sample((4,))
    layers = [layer for linear in model.decoder for layer in (linear, torch.nn.LeakyReLU(0.1))][:-1]
    out = torch.nn.Sequential(*layers)(z.reshape(4, len(x), -1))
    expected = binary_cross_entropy_with_logits(out, x.expand_as(out), reduction="none").sum(-1)
    torch.testing.assert_close(model.reconstruction(z, x), expected)
    torch.testing.assert_close(model.reconstruction(z, x, frozen=True), expected)
    assert not model.reconstruction(z, x, frozen=True).requires_grad


@pytest.mark.parametrize("latents", BOTH)
def test_the_reported_number_is_the_average_bound(latents: Latents) -> None:
    model, x = model_and_images(latents, 80)
    q = model.posterior(model.logits(x))
    with torch.no_grad():
        many = model.reconstruction(q.sample((50,)), x) + model.divergence(model.logits(x))
    error = float(many.std(0).square().sum().sqrt()) / len(x)  # of one sample for each image
    model.float()
    assert abs(negative_elbo(model, x.to(torch.uint8), seed=0) - float(many.mean())) < 5 * error
    assert negative_elbo(model, x.to(torch.uint8), seed=0) != negative_elbo(model, x.to(torch.uint8), seed=1)


def test_pixels_are_drawn_once_with_their_grey_values() -> None:
    grey = torch.tensor([0, 51, 204, 255], dtype=torch.uint8).repeat_interleave(28 * 7).reshape(28, 28)
    some = MNIST(grey.expand(2000, 28, 28), torch.zeros(2000).long(), grey[None], torch.zeros(1).long())
    drawn = binarised(some, "train")
    assert drawn.dtype == torch.uint8 and drawn.shape == (2000, 784)
    shares = drawn.float().mean(0).reshape(4, -1).mean(1)
    torch.testing.assert_close(shares, torch.tensor([0.0, 0.2, 0.8, 1.0]), atol=0.005, rtol=0)
    assert torch.equal(drawn, binarised(some, "train"))
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("latents", BOTH)
@pytest.mark.parametrize("kind", [REBAR, RELAX])
def test_one_pass_gives_both_gradients(latents: Latents, kind: type[RELAX]) -> None:
    """The step's shortcut against ``loss.backward()`` and ``Tape.variance_objective`` on the same samples."""
    model, x = model_and_images(latents)

    def cost(z: Tensor) -> Tensor:
        return model.reconstruction(z, x, frozen=True)

    estimator = (kind(cost) if kind is REBAR else RELAX(ControlVariate(cost, model))).double()
    learnt = list(estimator.parameters())

    def taped() -> tuple[Tape, Tensor]:
        tape = Tape(batch_dims=1, generator=torch.Generator().manual_seed(5))
        logits = model.logits(x)
        tape.cost(model.reconstruction(tape.sample(model.posterior(logits), estimator), x))
        tape.cost(model.divergence(logits))
        return tape, logits

    tape, logits = taped()
    backward_with_variance(tape.surrogate(order=2), logits, list(model.decoder.parameters()), learnt)
    found = [p.grad.clone() for p in [*model.parameters(), *learnt] if p.grad is not None]
    tape, logits = taped()
    expected = [
        *torch.autograd.grad(tape.surrogate(), list(model.parameters()), retain_graph=True),
        *torch.autograd.grad(tape.variance_objective([logits]), learnt),
    ]
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert all(float(p.grad.abs().max()) > 0 for p in learnt if p.grad is not None)


@pytest.mark.parametrize("make", [ARM, GO])
def test_samples_of_weight_zero_need_no_gradient(make: type[Estimator]) -> None:
    model, x = model_and_images("bernoulli")

    def gradients(shortcut: bool) -> tuple[Tensor, ...]:
        tape, estimator = Tape(batch_dims=1, generator=torch.Generator().manual_seed(5)), make(2)
        z = tape.sample(model.posterior(model.logits(x)), estimator)
        tape.cost(_reconstruction(model, z, x, estimator) if shortcut else model.reconstruction(z, x))
        return torch.autograd.grad(tape.surrogate(), list(model.parameters()))

    for a, b in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("latents", BOTH)
def test_control_variates_lower_the_variance(latents: Latents) -> None:
    model, x = model_and_images(latents)
    model.float()
    x = x.float()

    def cost(z: Tensor) -> Tensor:
        return model.reconstruction(z, x, frozen=True)

    def record(tape: Tape, estimator: Estimator) -> None:
        tape.cost(model.reconstruction(tape.sample(model.posterior(model.logits(x)), estimator), x))

    candidates = {"score": Score(), "rebar": REBAR(cost), "relax": RELAX(ControlVariate(cost, model))}
    profile = profile_variance(record, candidates, model.encoder[2].parameters(), batch_dims=1, replicates=40)
    variance = {row.name: row.variance for row in profile.rows}
    assert variance["rebar"] < 0.01 * variance["score"]
    assert variance["relax"] < 0.01 * variance["score"]


@pytest.mark.parametrize("entry", VAE.entries, ids=lambda entry: entry.name)
def test_every_row_takes_steps(entry: object, folder: Path, tmp_path: Path) -> None:
    config = replace(entry.config, steps=3, batch_size=40, evaluate_every=2)  # type: ignore[attr-defined]
    before = torch.random.get_rng_state()
    result = VAE.train(config, tmp_path / "run", seed=4, data=folder, progress=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert 0 < result.metrics["lowest_test"] <= result.metrics["test"] < 600
    assert 0 < result.metrics["train"] < 600
    assert ("relaxed_test" in result.metrics) == ("gumbel@" in config.estimator)


@pytest.mark.parametrize("estimator", ["relax@1", "gumbel@1", "sum-and-sample@5"])
def test_interrupted_it_ends_the_same(
    estimator: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = VAEConfig("categorical", estimator, steps=7, batch_size=40, evaluate_every=2)
    whole = VAE.train(config, tmp_path / "whole", seed=1, data=folder, progress=False)
    ordinary, calls = Batches.next, []

    def breaks(self: Batches) -> object:
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("the power went")
        return ordinary(self)

    monkeypatch.setattr(Batches, "next", breaks)
    with pytest.raises(RuntimeError, match="the power went"):
        VAE.train(config, tmp_path / "broken", seed=1, data=folder, progress=False)
    monkeypatch.undo()
    assert Run.open(tmp_path / "broken").load().step == 4
    again = VAE.train(config, tmp_path / "broken", seed=1, data=folder, progress=False)
    assert again.metrics == whole.metrics
    assert Run.open(tmp_path / "broken").metrics() == Run.open(tmp_path / "whole").metrics()


def test_training_lowers_the_bound(folder: Path, tmp_path: Path) -> None:
    config = VAEConfig("bernoulli", "loo@5", steps=60, batch_size=40, evaluate_every=20)
    VAE.train(config, tmp_path / "run", seed=0, data=folder, progress=False)
    bounds = [line["test"] for line in Run.open(tmp_path / "run").metrics() if "test" in line]
    assert len(bounds) == 3 and bounds[2] < bounds[1] < bounds[0] < 550


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"estimator": "loo"}, "then @ and a number"),
        ({"estimator": "magic@1"}, "expected one of score, loo"),
        ({"estimator": "arm@1", "latents": "categorical"}, "arm is for Bernoulli variables"),
        ({"steps": 0}, "steps is 0"),
        ({"cooling": 1.0}, "cooling is 1.0"),
    ],
)
def test_wrong_configurations(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        VAEConfig(**wrong)  # type: ignore[arg-type]


def test_figure(tmp_path: Path) -> None:
    assert VAE.draw is not None
    assert VAE.draw([], tmp_path) == []
    some = [
        Result(f"vae/{entry.name}", {}, seed, steps, {"lowest_test": 130.0 + i + seed}, {})
        for i, entry in enumerate(VAE.entries)
        for steps in (10, 20)
        for seed in (0, 1)
    ]
    (made,) = VAE.draw(some, tmp_path / "figures")
    assert made.read_bytes().startswith(b"\x89PNG") and made.stat().st_size > 5000


def test_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "vae", "--list", "--estimator", "loo", "gumbel-st@1", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in listed] == [f"{s}/{e}" for s in BOTH for e in ("loo@5", "gumbel-st@1")]
    assert listed[0]["published"] == {"train": 110.8, "lowest_test": 110.4}
    assert main(["reproduce", "vae", "--list", "--estimator", "loo@4"]) == 1
    assert "did you mean" in capsys.readouterr().err
    options = ["--estimator", "loo@5", "--table", "bernoulli", "--steps", "2", "--set", "batch_size=40"]
    places = ["--data", str(folder), "--out", str(tmp_path / "runs"), "--save", str(tmp_path / "saved")]
    assert main(["reproduce", "vae", *options, *places, "--quiet"]) == 0
    assert "vae/bernoulli/loo@5+batch_size=40" in capsys.readouterr().out
    (saved,) = (tmp_path / "saved" / "vae").iterdir()
    assert saved.name == "bernoulli.loo@5+batch_size=40.2-steps.seed-0.json"
