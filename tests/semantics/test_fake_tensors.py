"""Tensors that have a shape and a device, but no values: what needs only shapes goes through, the rest says so."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import WEATHER
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import doxa
from doxa.errors import BindingError, ConfigError

POSED = ("exact", "refined", "sampled", "amortized", "auto")


def model() -> doxa.Model:
    nets = {name: doxa.probs(nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))) for name in ("rain", "wet")}
    return doxa.Model(WEATHER, **nets, warm=doxa.logits(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))))


@pytest.mark.parametrize("word", ["fuzzy", "fuzzy:product", "fuzzy:godel", "fuzzy:lukasiewicz"])
def test_fuzzy_losses_and_truths_need_only_shapes(word: str) -> None:
    real = model()
    meta = copy.deepcopy(real).to("meta")
    loss = meta.loss(semantics=word, Day=torch.empty(3, 4, device="meta"))
    assert loss.device.type == "meta" and loss.shape == () and loss.requires_grad
    truths = meta.truth(semantics=word, per_row=True, Day=torch.empty(3, 4, device="meta"))
    expected = real.truth(semantics=word, per_row=True, Day=torch.rand(3, 4))
    assert {k: v.shape for k, v in truths.items()} == {k: v.shape for k, v in expected.items()}
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = real.loss(semantics=word, Day=torch.rand(3, 4))
        assert hasattr(fake, "fake_mode") and fake.shape == () and fake.dtype == torch.float32
    assert not hasattr(real.loss(semantics=word, Day=torch.rand(3, 4)), "fake_mode")  # nothing of it is kept


def test_classical_truth_needs_only_shapes() -> None:
    meta = model().to("meta")
    truths = meta.truth(semantics="classical", Day=torch.empty(3, 4, device="meta"))
    assert all(t.device.type == "meta" and t.shape == () for t in truths.values())


@pytest.mark.parametrize("word", POSED)
def test_what_looks_at_values_says_so(word: str) -> None:
    real = model()
    data: dict[str, Any] = {"semantics": word, "Day": torch.rand(3, 4)}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs = mode.from_tensor(data["Day"])
        for ask in (real.loss, real.truth):
            with pytest.raises(ConfigError, match="fake and meta tensors do not have"):
                ask(**{**data, "Day": inputs})
    for ask in (real.loss, real.truth):
        with pytest.raises(ConfigError, match="fake and meta tensors do not have"):
            ask(**{**data, "Day": inputs})
    meta = copy.deepcopy(real).to("meta")
    for ask in (meta.loss, meta.truth):
        with pytest.raises(ConfigError, match="fake and meta tensors do not have"):
            ask(**{**data, "Day": torch.empty(3, 4, device="meta")})


@pytest.mark.parametrize("word", ["fuzzy", "classical"])
def test_devices_that_do_not_fit_are_named(word: str) -> None:
    ask = model().truth
    with pytest.raises(BindingError, match=r"Day is on meta, but the interpretation is on cpu.*\.to\("):
        ask(semantics=word, Day=torch.empty(3, 4, device="meta"))
