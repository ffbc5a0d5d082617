"""Labels of objects in rows are cross entropies, under every semantics."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

import doxa
from doxa.semantics._labels import label_loss

KNOWLEDGE = """
sort Image
sort Digit = 2..5
sort Colour = {red, green}
data pairs(left: Image, right: Image, sum: Int)
func digit(Image) -> Digit
func colour(Image) -> Colour
pred on(Image)
pred is(Image, Colour)
[sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""
OUTPUTS = {"digit": 4, "colour": 2, "on": 1, "is": 2}


@pytest.mark.parametrize("semantics", ["exact", "fuzzy", "sampled", "refined", "auto"])
@pytest.mark.parametrize("symbol", OUTPUTS)
def test_against_cross_entropy(symbol: str, semantics: str) -> None:
    torch.manual_seed(0)
    networks = {name: nn.Linear(4, size) for name, size in OUTPUTS.items()}
    kb = doxa.parse(KNOWLEDGE, warn=False)
    model = doxa.Model(kb, semantics, **{name: doxa.logits(network) for name, network in networks.items()})
    x, y = torch.randn(6, 4), torch.arange(6) % max(2, OUTPUTS[symbol])
    rows = {"left": x, "right": torch.randn(6, 4)}
    told = label_loss(model, symbol, "left", y, rows=rows)
    out = networks[symbol](x)
    if symbol in ("digit", "colour"):
        expected = cross_entropy(out, y, reduction="sum")
    else:
        target = y.float().unsqueeze(-1) if symbol == "on" else one_hot(y, 2).float()
        expected = binary_cross_entropy_with_logits(out, target, reduction="sum")
    torch.testing.assert_close(told, expected)
    own = [*networks[symbol].parameters()]
    for a, b in zip(torch.autograd.grad(told, own), torch.autograd.grad(expected, own), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


class Heads(nn.Linear):
    """Three beliefs in four values."""

    def __init__(self) -> None:
        super().__init__(4, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.float()).unflatten(-1, (3, 4))


class Gate(nn.Linear):
    """Three weights, from two objects."""

    def __init__(self) -> None:
        super().__init__(8, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([left, right], -1).float())


def test_under_a_mixture_the_whole_row_counts() -> None:
    """−log Σ_k π_k(row) p_k(label), with weights from a network that sees both images."""
    torch.manual_seed(0)
    heads, weigh = Heads(), Gate()
    kb = doxa.parse("\n".join(KNOWLEDGE.splitlines()[:6] + KNOWLEDGE.splitlines()[-1:]).replace("sort Colour", "# "))
    mixed = doxa.mixture(weights=doxa.logits(weigh), digit=doxa.logits(heads))
    for dtype in (torch.float32, torch.uint8):  # pictures as bytes are objects too
        model = doxa.Model(kb, "exact", **mixed)
        left, right = (torch.rand(2, 5, 4) * 9).to(dtype)
        y = torch.arange(5) % 4
        found = label_loss(model, "digit", "left", y, rows={"left": left, "right": right})
        weights = weigh(left, right).log_softmax(-1)
        each = heads(left).log_softmax(-1)[torch.arange(5), :, y]
        torch.testing.assert_close(found, -(weights + each).logsumexp(-1).sum())


def test_relations_have_no_labels_of_one_object() -> None:
    model = doxa.Model("sort A; pred r(A, A); [x] forall a, b: A. r(a, b)", "exact", r=doxa.probs(torch.rand(3, 3)))
    with pytest.raises(doxa.errors.ConfigError, match="r speaks of 2 objects"):
        label_loss(model, "r", "a", torch.zeros(2).long(), rows={})
