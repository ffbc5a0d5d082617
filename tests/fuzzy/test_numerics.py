"""The shared numerics against exact values."""

from __future__ import annotations

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from doxa import _numerics as nx

D = torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_log1mexp(dtype):
    x = torch.tensor([1e-30, 1e-6, 0.1, 0.69, 0.7, 1.0, 5.0, 50.0], dtype=dtype)
    with mpmath.workdps(60):
        exact = [float(mpmath.log(1 - mpmath.exp(-mpmath.mpf(v)))) for v in x.tolist()]
    assert nx.log1mexp(x).tolist() == pytest.approx(exact, rel=4 * torch.finfo(dtype).eps)
    assert gradcheck(nx.log1mexp, (torch.tensor([0.1, 0.5, 2.0], dtype=D, requires_grad=True),))


@pytest.mark.parametrize("q", [0.05, 0.3, 0.5, 2 / 3, 0.9, 1.0])
def test_root(q):
    x = torch.tensor([0.0, 1e-3, 0.2, 1.0], dtype=D, requires_grad=True)
    value = nx.root(x, q)
    assert value.tolist() == pytest.approx([v**q for v in x.tolist()], rel=1e-12)
    (grad,) = torch.autograd.grad(value.sum(), x)
    assert grad[1:].tolist() == pytest.approx([q * v ** (q - 1) for v in x.tolist()[1:]])
    assert grad[0].item() == pytest.approx(1 if q == 1 else q / torch.finfo(D).eps)
    inside = torch.tensor([0.1, 0.7], dtype=D, requires_grad=True)
    assert gradgradcheck(lambda v: nx.root(v, q), (inside,))


def test_lift_and_lower_keep_the_derivative():
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0], requires_grad=True)
    for f, expected in ((nx.lift, [0.25, 0.25, 0.5, 2.0]), (nx.lower, [-1.0, 0.0, 0.25, 0.25])):
        y = f(x, 0.25)
        assert y.tolist() == expected
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [1, 1, 1, 1]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, on first use
def test_with_derivatives_is_right_to_second_order():
    """The cube root of x, given only its value and 1/(3 y²)."""

    def cube_root(x):
        return nx.with_derivatives(x.detach().pow(1 / 3), lambda y, _: (1 / (3 * y * y),), x)

    x = torch.tensor([0.3, 2.0], dtype=D, requires_grad=True)
    (first,) = torch.autograd.grad(cube_root(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    exact = x.detach()
    assert torch.allclose(first, exact.pow(-2 / 3) / 3)
    assert torch.allclose(second, -2 * exact.pow(-5 / 3) / 9)
    assert torch.allclose(torch.func.vmap(torch.func.grad(cube_root))(exact), exact.pow(-2 / 3) / 3)
    _, tangent = torch.func.jvp(cube_root, (exact,), (torch.ones_like(exact),))
    assert torch.allclose(tangent, exact.pow(-2 / 3) / 3)


@pytest.mark.parametrize("dim", [None, 1, -1, (0,), (0, 2), (2, 0), ()])
def test_merge_dims(dim):
    x = torch.arange(24.0).reshape(2, 3, 4)
    merged, d = nx.merge_dims(x, dim)
    assert merged.shape[d] == nx.size_of(x, dim)
    expected = x if dim == () else x.sum() if dim is None else x.sum(dim)
    assert torch.equal(merged.sum(d), expected)
    scalar, d = nx.merge_dims(torch.tensor(3.0), 0)
    assert scalar.shape[d] == 1
