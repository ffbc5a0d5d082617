"""Reductions and aggregators over dimensions, with masks, weights, one element and none."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz
from doxa.errors import ConfigError

D = torch.float64
DIMS = [None, 0, -1, (1,), (0, 2), (2, 0), (-1, -3), (0, 1, 2)]


@pytest.fixture(scope="module")
def cube() -> Tensor:
    return torch.rand(2, 3, 4, dtype=D, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.55


def by_hand(f, x: Tensor, dim, *others: Tensor) -> Tensor:
    """Apply f to the elements that a reduction over ``dim`` joins, one output at a time."""
    dims = tuple(range(x.dim())) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = tuple(d % x.dim() for d in dims)
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = [v.permute(*kept, *dims).reshape([x.shape[d] for d in kept] + [-1]) for v in (x, *others)]
    out = torch.empty(flat[0].shape[:-1], dtype=x.dtype)
    for index in itertools.product(*map(range, out.shape)):
        out[index] = f(*(v[index] for v in flat))
    return out


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_dimensions(dim, cube):
    for op in itertools.chain(fz.TNORMS.values(), (t.dual for t in fz.TNORMS.values())):
        assert torch.allclose(op.reduce(cube, dim), by_hand(lambda v, op=op: op.reduce(v, 0), cube, dim))
    for aggregator in fz.AGGREGATORS.values():
        assert torch.allclose(aggregator(cube, dim), by_hand(lambda v, a=aggregator: a(v, 0), cube, dim))


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_masks(dim, cube):
    mask = torch.rand(cube.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    dirty = torch.where(mask, cube, torch.nan)  # what is masked must not matter, whatever it is
    for aggregator in fz.AGGREGATORS.values():
        expected = by_hand(lambda v, m, a=aggregator: a(v[m], 0), cube, dim, mask)
        assert torch.allclose(aggregator(cube, dim, mask), expected)
        assert torch.allclose(aggregator(dirty, dim, mask), expected)
    for op in itertools.chain(fz.TNORMS.values(), (t.dual for t in fz.TNORMS.values())):
        expected = by_hand(lambda v, m, op=op: op.reduce(v[m], 0), cube, dim, mask)
        assert torch.allclose(op.reduce(dirty, dim, mask), expected)


def test_a_mask_broadcasts(cube):
    mask = torch.tensor([True, False, True])[:, None]
    for aggregator in fz.AGGREGATORS.values():
        assert torch.allclose(aggregator(cube, 1, mask), aggregator(cube[:, [0, 2]], 1))


def test_nothing_to_join(aggregator):
    expected = {"forall": 1.0, "exists": 0.0}[aggregator.kind]
    if aggregator.is_log:
        expected = {"forall": 0.0, "exists": torch.finfo(torch.float32).eps}[aggregator.kind]
    x = torch.empty(2, 0, requires_grad=True)
    value = aggregator(x, 1)
    if aggregator.is_log and aggregator.kind == "exists":
        value = value.exp()
    assert value.tolist() == pytest.approx([expected] * 2)
    value.sum().backward()
    full = torch.tensor([[0.2, 0.9]], requires_grad=True)
    masked = aggregator(full, 1, mask=torch.zeros(1, 2, dtype=torch.bool))
    assert masked.tolist() == pytest.approx(aggregator(x[:1], 1).tolist())
    assert torch.autograd.grad(masked.sum(), full)[0].tolist() == [[0, 0]]


def test_nothing_to_join_for_connectives(tnorm):
    assert tnorm.reduce(torch.empty(3, 0), 1).tolist() == [1, 1, 1]
    assert tnorm.dual.reduce(torch.empty(3, 0), 1).tolist() == [0, 0, 0]
    assert tnorm.reduce(torch.empty(0)).item() == 1
    assert tnorm.reduce(torch.empty(0, 2), 1).shape == (0,)


def test_one_element_is_itself(tnorm):
    x = torch.tensor([[0.0], [0.3], [1.0]], dtype=D, requires_grad=True)
    for op in (tnorm, tnorm.dual):
        value = op.reduce(x, 1)
        assert torch.allclose(value, x[:, 0], atol=1e-12)
        assert torch.autograd.grad(value.sum(), x)[0][1].item() == pytest.approx(1)
    scalar = torch.tensor(0.3, dtype=D)
    assert tnorm.reduce(scalar).item() == pytest.approx(0.3)


def test_weights_are_copies(generated):
    x = torch.tensor([0.9, 0.7, 0.95], dtype=D)
    weight = torch.tensor([2, 0, 3], dtype=D)
    copies = torch.tensor([0.9, 0.9, 0.95, 0.95, 0.95], dtype=D)
    for op in (generated, generated.dual):
        values, wanted = (x, copies) if op is generated else (1 - x, 1 - copies)
        assert torch.allclose(op.reduce(values, weight=weight), op.reduce(wanted))
        assert torch.allclose(op.reduce(values, weight=torch.ones(3, dtype=D)), op.reduce(values))


@pytest.mark.parametrize("tnorm", [fz.Godel(), fz.NilpotentMinimum(), fz.Drastic()], ids=repr)
def test_weights_are_importance_without_a_generator(tnorm):
    x = torch.tensor([0.9, 0.7, 1.0], dtype=D)
    for weight in ([1, 1, 1], [0.2, 1, 1], [1, 0, 1], [5, 0.5, 0]):
        w = torch.tensor(weight, dtype=D)
        assert torch.equal(tnorm.reduce(x, weight=w), tnorm.reduce(torch.maximum(x, 1 - w)))
        assert torch.equal(tnorm.dual.reduce(x, weight=w), tnorm.dual.reduce(torch.minimum(x, w)))


def test_weights_of_means_and_sums():
    x = torch.tensor([0.9, 0.2, 0.6], dtype=D)
    w = torch.tensor([2, 1, 0], dtype=D)
    copies = torch.tensor([0.9, 0.9, 0.2], dtype=D)
    aggregators = [
        fz.GeneralizedMean(1.5),
        fz.GeneralizedMeanError(20.0),
        fz.GeneralizedMeanError(0.5),
        fz.UnboundedYager(2.0),
        fz.UnboundedYagerSum(3.0),
        fz.LogProduct(),
        fz.LogProduct("mean"),
        fz.LogProbabilisticSum(),
        fz.LogForall(),
        fz.LogForall("mean"),
        fz.LogExists(3.0),
    ]
    for aggregator in aggregators:
        take = torch.log if isinstance(aggregator, fz.LogForall | fz.LogExists) else torch.clone
        assert torch.allclose(aggregator(take(x), weight=w), aggregator(take(copies)))
    assert fz.GeneralizedMean(1.0)(x, weight=torch.zeros(3, dtype=D)).item() == 0
    assert fz.GeneralizedMeanError(1.0)(x, weight=torch.zeros(3, dtype=D)).item() == 1


def test_gradients_reach_weights():
    w = torch.tensor([0.5, 0.8], requires_grad=True)
    for aggregator in fz.AGGREGATORS.values():
        value = aggregator(torch.tensor([0.6, 0.7]), weight=w)
        if isinstance(aggregator, fz.TNormAggregator | fz.TConormAggregator) and not value.requires_grad:
            continue  # a minimum that no weight decides
        assert bool(torch.isfinite(torch.autograd.grad(value, w)[0]).all())


def test_a_mask_must_be_boolean():
    with pytest.raises(ConfigError, match=r"mask has dtype torch.float32, expected torch.bool; say mask > 0.5"):
        fz.LogProduct()(torch.ones(2), mask=torch.ones(2))


def test_log_of_the_probabilistic_sum_keeps_small_truths():
    """Against exact rational arithmetic; 1 - Π(1 - x) in float32 would keep one digit."""
    from fractions import Fraction

    for values in ([1e-6, 2e-6, 5e-7], [0.25, 0.5], [0.999999, 0.5], [1.0, 0.3]):
        x = torch.tensor(values)
        rest = Fraction(1)
        for v in x.tolist():
            rest *= 1 - Fraction(v)
        exact = torch.tensor(float(1 - rest), dtype=D).log().item()
        assert fz.LogProbabilisticSum()(x).item() == pytest.approx(exact, abs=2e-6)


def test_log_product_does_not_underflow():
    x = torch.full((100_000,), 0.5)
    assert fz.AGGREGATORS["product"](x).item() == 0
    assert fz.LogProduct()(x).item() == pytest.approx(100_000 * torch.tensor(0.5, dtype=D).log().item(), rel=1e-5)
