"""What an interpretation stores, and what it refuses to judge."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from doxa.errors import BindingError
from doxa.logic import Interpretation, logits, parse, probs, satisfaction, truth

KB = parse("sort A; pred p(A); func f(A) -> Digit; sort Digit = 0..2; [all] forall x: A. p(x) | f(x) = 1", warn=False)


def test_a_network_is_stored_once() -> None:
    network = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    bound = Interpretation(KB, p=logits(network), f=probs(torch.ones(3, 3) / 3))
    stored = sum(t.numel() for name, t in bound.state_dict().items() if ".p." in name)
    assert stored == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("symbol", ["p", "f"])
def test_not_a_number_is_refused(symbol: str) -> None:
    nothing = {
        "p": logits(lambda x: x[:, 0] * float("nan")),
        "f": logits(lambda x: x.expand(-1, 3) * float("nan")),
    }
    fine = {"p": logits(lambda x: x[:, 0]), "f": logits(lambda x: x.expand(-1, 3))}
    bound = Interpretation(KB, **{**fine, symbol: nothing[symbol]})
    for ask in (truth, satisfaction):
        with pytest.raises(BindingError, match=rf"{symbol}: NaN"):
            ask(KB, bound, A=torch.ones(4, 1))
