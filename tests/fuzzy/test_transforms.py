"""Every operator under torch's transforms: per-example gradients, autocast, and tensors without data."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, vmap

from doxa import fuzzy as fz

X = torch.rand(5, 2, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1


def forms(t: fz.TNorm):
    for f in (t, t.dual, t.residuum, fz.SImplication(t.dual)):
        yield lambda x, f=f: f(x[..., 0], x[..., 1])
    for op in (t, t.dual):
        yield lambda x, op=op: op.reduce(x, -1)


def check(f) -> None:
    """One gradient for each example, bfloat16 computed in float32, and shapes known without values."""
    x = X.clone().requires_grad_()
    value = f(x)
    if value.requires_grad:
        (together,) = torch.autograd.grad(value.sum(), x)
        torch.testing.assert_close(vmap(grad(f))(X), together)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(f(X), value) and f(X.bfloat16()).dtype == torch.float32
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = f(mode.from_tensor(X))
    assert fake.shape == value.shape and fake.dtype == value.dtype


def test_tnorms(any_tnorm) -> None:
    for f in forms(any_tnorm):
        check(f)


def test_aggregators(aggregator) -> None:
    check(lambda x: aggregator(x, -1))


def test_implications(implication) -> None:
    check(lambda x: implication(x[..., 0], x[..., 1]))


def test_negations(negation) -> None:
    check(lambda x: negation(x[..., 0]))
