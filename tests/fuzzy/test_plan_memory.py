"""Chunks bound memory in the backward pass too: tiles are computed again instead of being kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from doxa import fuzzy as fz
from doxa.logic import Interpretation, KnowledgeBase, logits, parse, probs

RULES = """
sort P; pred r(P, P); pred a(P)
[transitive] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)
[nested] forall x: P. exists y: P where a(y). forall z: P. r(x, y) & r(y, z) -> a(z)
[guarded] forall x, y: P where x != y. exists z: P. r(x, z) & r(z, y)
"""


def world(n: int) -> tuple[KnowledgeBase, Interpretation, list[Tensor]]:
    g = torch.Generator().manual_seed(n)
    leaves = [torch.rand(s, generator=g, dtype=torch.float64).requires_grad_() for s in ((n, n), (n,))]
    kb = parse(RULES)
    return kb, Interpretation(kb, r=probs(leaves[0]), a=probs(leaves[1])), leaves


def saved(plan: fz.FuzzyPlan, n: int) -> tuple[int, Tensor]:
    """The number of elements kept for the backward pass, and the value."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes() // tensor.itemsize
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = plan(P=n)
    return sum(storages.values()), value


@pytest.mark.parametrize("logic", ["product", "yager(3)", "godel", "ltn"])
@pytest.mark.parametrize("rule", ["transitive", "nested", "guarded"])
def test_tiles_are_computed_again(logic: str, rule: str) -> None:
    n, chunk = 24, 4096
    kb, beliefs, leaves = world(n)
    kept, whole = saved(fz.FuzzyPlan(kb[rule], beliefs, logic, rewrite=False), n)
    tiled, value = saved(fz.FuzzyPlan(kb[rule], beliefs, logic, rewrite=False, chunk=chunk), n)
    without = fz.FuzzyPlan(kb[rule], beliefs, logic, rewrite=False, chunk=chunk, checkpoint=False)
    assert kept > n**3 / 2 and saved(without, n)[0] > n**3 / 2
    assert tiled <= 4 * chunk and tiled < kept / 4
    inputs = [whole + 0 * leaves[1].sum(), value + 0 * leaves[1].sum()]
    for a, b in zip(*[torch.autograd.grad(v, leaves) for v in inputs], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_second_derivatives_are_right() -> None:
    kb, beliefs, leaves = world(4)
    values = [fz.FuzzyPlan(kb["transitive"], beliefs, "product", chunk=c, rewrite=False)(P=4) for c in (10, 2**22)]
    slopes = [torch.autograd.grad(v, leaves[0], create_graph=True)[0] for v in values]
    curvatures = [torch.autograd.grad(s.square().sum(), leaves[0])[0] for s in slopes]
    torch.testing.assert_close(slopes[0], slopes[1])
    torch.testing.assert_close(curvatures[0], curvatures[1])


class Noisy(nn.Module):
    """A relation with dropout, which must be the same when a tile is computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.calls = 0

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.dropout((x @ self.weight * y).sum(-1), 0.5)


def test_networks_run_once_and_draws_are_not_repeated() -> None:
    """A network on the pairs that occur, tile by tile, with gradients into its weights."""
    kb = parse("sort P; pred near(P, P); pred r(P, P); [rule] forall x, y: P where near(x, y). r(x, y) -> r(x, x)")
    net, features = Noisy(), torch.randn(12, 3)
    near = torch.rand(12, 12) < 0.5
    beliefs = Interpretation(kb, near=near, r=logits(net))
    found = []
    for checkpoint in (True, False):
        plan = fz.FuzzyPlan(kb["rule"], beliefs, "product", chunk=20, checkpoint=checkpoint, rewrite=False)
        torch.manual_seed(0)
        net.calls = 0
        value = plan(P=features)
        calls = net.calls
        found.append((value.detach(), torch.autograd.grad(value, net.weight)[0]))
        assert net.calls == calls > 1  # the backward pass asks for no network again
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
