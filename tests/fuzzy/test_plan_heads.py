"""Relation heads: all pairs at once equal one pair at a time, in value and gradient, alone and in a formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.logic import Interpretation, logits, parse


def heads() -> list[nn.Module]:
    made = [fz.Bilinear(3), fz.Bilinear(3, outputs=2), fz.NeuralTensorNetwork(3, hidden=4), fz.SquaredDistance(0.7)]
    return [m.double() for m in made]


@pytest.mark.parametrize("number", range(4))
def test_pairwise_is_pair_by_pair(number: int) -> None:
    head: Any = heads()[number]
    g = torch.Generator().manual_seed(number)
    x = torch.randn(4, 3, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 3, generator=g, dtype=torch.float64, requires_grad=True)
    fast = head.pairwise(x, y)
    slow = head(x.repeat_interleave(5, 0), y.repeat(4, 1)).reshape(fast.shape)
    torch.testing.assert_close(fast, slow)
    leaves = [x, y, *head.parameters()]
    for a, b in zip(
        torch.autograd.grad(fast.square().sum(), leaves), torch.autograd.grad(slow.square().sum(), leaves), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_against_the_formulas() -> None:
    """By loops over coordinates, from the definitions."""
    bilinear, ntn, distance = fz.Bilinear(2), fz.NeuralTensorNetwork(2, 3), fz.SquaredDistance(0.5, 1.0)
    x, y = torch.tensor([[0.3, -1.0]]), torch.tensor([[2.0, 0.5]])

    def form(w: Tensor) -> Tensor:
        return sum([x[0, a] * w[a, b] * y[0, b] for a in range(2) for b in range(2)], torch.zeros(()))

    torch.testing.assert_close(bilinear(x, y)[0], form(bilinear.weight[0]) + bilinear.bias[0])
    v = torch.cat([ntn.left.weight, ntn.right.weight], 1)
    inside = torch.stack([form(w) for w in ntn.weight]) + v @ torch.cat([x[0], y[0]]) + ntn.left.bias
    torch.testing.assert_close(ntn(x, y)[0], ntn.out.weight[0] @ inside.tanh() + ntn.out.bias[0])
    torch.testing.assert_close(distance(x, y)[0], torch.tensor(1.0 - 0.5 * (1.7**2 + 1.5**2)))


class PairByPair(nn.Module):
    """A head without the fast path."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(x, y)  # type: ignore[no-any-return]


def test_a_formula_takes_the_fast_path_to_the_same_value() -> None:
    kb = parse("sort P; pred same(P, P); [t] forall x, y, z: P. same(x, y) & same(y, z) -> same(x, z)")
    head = fz.NeuralTensorNetwork(3)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    values, seen = [], []
    for net in (head, PairByPair(head)):
        world = Interpretation(kb, same=logits(net))
        values.append(fz.valuation(kb["t"], world, "recommended", P=x))
        seen.append(torch.autograd.grad(values[-1], head.weight)[0])
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(seen[0], seen[1], rtol=1e-4, atol=1e-4)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="hidden is 0"):
        fz.NeuralTensorNetwork(3, hidden=0)
    with pytest.raises(ConfigError, match="scale is 0"):
        fz.SquaredDistance(0.0)
