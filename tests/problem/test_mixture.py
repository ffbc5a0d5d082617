"""Mixtures of beliefs against sums over all worlds, written out."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem import Belief, Mixture


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    """One row; zeros among probabilities and weights."""
    sizes, parts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)), draw(st.integers(1, 4))
    weight = st.sampled_from([0, 0, 1, 2, 7])

    def numbers(size: int) -> Tensor:
        found = torch.tensor(draw(st.lists(weight, min_size=size, max_size=size).filter(any)), dtype=torch.float64)
        return found / found.sum()

    components = Belief.from_probs([torch.stack([numbers(size) for _ in range(parts)]) for size in sizes])
    return Mixture(components, numbers(parts).log())


def table(mixture: Mixture) -> dict[tuple[int, ...], float]:
    """p(w) of every world, in plain numbers."""
    weights, probs = mixture.log_weights.exp().tolist(), mixture.components.probs.tolist()
    return {
        world: sum(
            weight * math.prod(part[i][v] for i, v in enumerate(world))
            for weight, part in zip(weights, probs, strict=True)
        )
        for world in itertools.product(*(range(size) for size in mixture.sizes))
    }


@settings(deadline=None, max_examples=100)
@given(mixture=mixtures())
def test_log_prob_marginals_and_entropy(mixture: Mixture) -> None:
    every = table(mixture)
    worlds, probs = torch.tensor(list(every)), torch.tensor(list(every.values()), dtype=torch.float64)
    close(mixture.log_prob(worlds).exp(), probs)
    close(mixture.joint(worlds).exp().sum(-1), probs)
    marginals = mixture.marginals()
    Belief(marginals.log_probs, marginals.sizes)  # is one
    for i, size in enumerate(mixture.sizes):
        close(marginals.probs[i, :size], torch.stack([probs[worlds[:, i] == v].sum() for v in range(size)]))
    low, high = mixture.entropy_bounds()
    true = torch.special.entr(probs).sum()
    assert low <= true + 1e-9 and true <= high + 1e-9
    drawn = mixture.sample(5, generator=seeded())
    assert all(every[tuple(world)] > 0 for world in drawn.tolist())


def test_samples_have_the_right_frequencies() -> None:
    count = 50_000
    probs = torch.tensor([[[0.9, 0.2], [0.1, 0.7]], [[1.0, 0.5], [0.0, 0.0]]], dtype=torch.float64)
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)
    mixture = Mixture.from_bernoulli(probs=probs, weights=weights.log())
    drawn = mixture.sample(count, generator=seeded(1))
    assert drawn.shape == (count, 2, 2)
    for row in range(2):
        for world, share in table(mixture[row]).items():
            often = (drawn[:, row] == torch.tensor(world)).all(-1).double().mean().item()
            assert abs(often - share) <= 5 * math.sqrt(share * (1 - share) / count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_component_is_the_belief(dtype: torch.dtype) -> None:
    logits = torch.randn(6, 3, 4, generator=seeded(), dtype=dtype)
    belief = Belief.from_logits(logits, sizes=(2, 4, 3))
    mixture = Mixture.from_logits(logits.unsqueeze(1), torch.randn(6, 1, dtype=dtype), sizes=(2, 4, 3))
    worlds = belief.sample(9, generator=seeded())
    assert torch.equal(mixture.log_prob(worlds), belief.log_prob(worlds))
    assert torch.equal(mixture.marginals().log_probs, belief.log_probs)
    assert all(torch.equal(bound, belief.entropy()) for bound in mixture.entropy_bounds())
    assert mixture.sizes == belief.sizes and mixture.batch_shape == belief.batch_shape and mixture.dtype == dtype


def test_point_masses_represent_any_worlds_and_their_entropy_is_exact() -> None:
    worlds = torch.tensor([[0, 2, 1], [1, 0, 0], [1, 2, 1]])
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    points = Belief.from_probs(
        [torch.nn.functional.one_hot(w, n).double() for w, n in zip(worlds.T, (2, 3, 2), strict=True)]
    )
    mixture = Mixture(points, shares.log())
    close(mixture.log_prob(worlds).exp(), shares)
    assert mixture.log_prob(torch.tensor([0, 0, 0])) == -math.inf
    for bound in mixture.entropy_bounds():
        close(bound, torch.special.entr(shares).sum())
    equal = Mixture(Belief.uniform((2, 3), batch=(4,), dtype=torch.float64), torch.full((4,), 0.25).double().log())
    for bound in equal.entropy_bounds():
        close(bound.exp(), torch.tensor(6.0, dtype=torch.float64))


def test_derivatives() -> None:
    logits = torch.randn(2, 3, 2, 3, generator=seeded(), dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, generator=seeded(1), dtype=torch.float64, requires_grad=True)
    worlds = torch.tensor([[0, 2], [1, 1]])
    for ask in (
        lambda m: m.log_prob(worlds),
        lambda m: m.marginals().log_probs,
        lambda m: torch.stack(m.entropy_bounds()),
    ):
        assert torch.autograd.gradcheck(lambda x, y, ask=ask: ask(Mixture.from_logits(x, y)), (logits, weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_where_probabilities_vanish(dtype: torch.dtype) -> None:
    logits = torch.tensor([[[0.0, -math.inf]], [[-900.0, 900.0]], [[1.0, 2.0]]], dtype=dtype, requires_grad=True)
    weights = torch.tensor([0.0, -math.inf, -300.0], dtype=dtype, requires_grad=True)
    mixture = Mixture.from_logits(logits, weights)
    values = [mixture.log_prob(torch.tensor([[0], [1]])), *mixture.entropy_bounds(), mixture.marginals().probs]
    assert all(value.isfinite().all() for value in values)
    impossible = Mixture(Belief.from_bernoulli(probs=torch.zeros(2, 1, dtype=dtype)), weights[:2].log_softmax(-1))
    gone = impossible.log_prob(torch.tensor([1]))
    assert gone == -math.inf
    (sum(value.sum() for value in values) + gone).backward()  # type: ignore[operator]
    assert logits.grad is not None and weights.grad is not None
    assert logits.grad.isfinite().all() and weights.grad.isfinite().all()


def test_functional_transformations() -> None:
    logits = torch.randn(5, 3, 2, 3, generator=seeded(), dtype=torch.float64)
    weights = torch.randn(5, 3, generator=seeded(1), dtype=torch.float64)
    worlds = torch.randint(3, (5, 2), generator=seeded(2))

    def value(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return Mixture.from_logits(x, y).log_prob(w)

    close(torch.func.vmap(value)(logits, weights, worlds), value(logits, weights, worlds))
    slopes = torch.func.vmap(torch.func.grad(value, argnums=(0, 1)))(logits, weights, worlds)
    x, y = logits.clone().requires_grad_(), weights.clone().requires_grad_()
    value(x, y, worlds).sum().backward()
    assert x.grad is not None and y.grad is not None
    close(slopes[0], x.grad)
    close(slopes[1], y.grad)


def test_the_face_of_a_belief() -> None:
    mixture = Mixture.from_bernoulli(logits=torch.randn(4, 5, 3, 2), weights=torch.randn(3))  # one weight for all rows
    assert mixture.batch_shape == (4, 5) and mixture.sizes == (2, 2) and mixture.log_weights.shape == (4, 5, 3)
    assert repr(mixture) == "Mixture(batch=(4, 5), components=3, sizes=(2, 2), dtype=torch.float32)"
    assert (
        mixture[1].batch_shape == (5,)
        and mixture[..., 2:4].batch_shape == (4, 2)
        and mixture[None].batch_shape == (1, 4, 5)
    )
    rows = torch.ones(4, 5, dtype=torch.bool)
    assert mixture[rows].batch_shape == (20,) and mixture[:, :0].batch_shape == (4, 0)
    assert mixture[2, 3].expand(7).batch_shape == (7,)
    worlds = mixture.sample(3)
    close(mixture.log_prob(worlds)[:, 2, 3], mixture[2, 3].log_prob(worlds[:, 2, 3]), 1e-6)
    empty = mixture[:, :0]
    assert empty.sample(3).shape == (3, 4, 0, 2) and empty.log_prob(empty.sample(3)).shape == (3, 4, 0)
    assert empty.entropy_bounds()[0].shape == (4, 0) and empty.marginals().batch_shape == (4, 0)
    assert mixture.to(torch.float64).log_weights.dtype == torch.float64 and str(mixture.device) == "cpu"
    half = Mixture.from_logits(torch.zeros(3, 2, 2).half(), torch.zeros(3, dtype=torch.bfloat16))
    assert half.dtype == half.log_weights.dtype == torch.float32
    learnt = Mixture.from_logits(torch.zeros(3, 2, 2, requires_grad=True), torch.zeros(3, requires_grad=True))
    assert learnt.log_weights.requires_grad and not learnt.detach().components.log_probs.requires_grad
    for again in (copy.deepcopy(mixture), pickle.loads(pickle.dumps(mixture))):
        assert torch.equal(again.log_weights, mixture.log_weights)


def test_nobody_takes_it_for_one_belief() -> None:
    mixture = Mixture.from_logits(torch.zeros(3, 2, 2), torch.zeros(3))
    for name in ("log_probs", "probs", "mask", "mode", "entropy"):
        assert not hasattr(mixture, name)
        with pytest.raises(ProblemError, match=f"a Mixture has no {name}.*BruteForce take a Mixture"):
            getattr(mixture, name)
    with pytest.raises(ProblemError, match="entropy_bounds"):
        mixture.entropy()
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        mixture.colour  # noqa: B018


def test_misuse_is_explained() -> None:
    belief, weights = Belief.uniform((2, 2), batch=(3,)), torch.full((3,), 1 / 3).log()
    wrong = {
        "components is a Tensor": lambda: Mixture(torch.zeros(3, 2, 2), weights),  # type: ignore[arg-type]
        r"batch \(\), expected \(\*batch, K\)": lambda: Mixture(Belief.uniform((2, 2)), weights),
        r"batch \(0,\)": lambda: Mixture(belief[:0], weights[:0]),
        r"log_weights has dtype torch.float32 and shape \(2,\)": lambda: Mixture(belief, weights[:2]),
        "log_weights is of dtype torch.int64": lambda: Mixture(belief, torch.zeros(3, dtype=torch.int64)),
        "^the weights are .* sum to 1": lambda: Mixture(belief, torch.zeros(3)),
        "^the weights are .*nan": lambda: Mixture.from_logits(torch.zeros(3, 2, 2), torch.tensor([math.nan, 0, 0])),
        r"^the weights of row \(1,\) are": lambda: Mixture(
            belief[None].expand(2, 3), torch.stack([weights, weights + 1])
        ),
        "not all of them -inf": lambda: Mixture.from_logits(torch.zeros(3, 2, 2), torch.full((3,), -math.inf)),
        "weights is of int": lambda: Mixture.from_logits(torch.zeros(3, 2, 2), 3),  # type: ignore[arg-type]
        r"logits has shape \(3,\)": lambda: Mixture.from_logits(torch.zeros(3), torch.zeros(3)),
        "logits of variable 0": lambda: Mixture.from_logits(torch.full((3, 2, 2), math.nan), torch.zeros(3)),
        "worlds has dtype torch.float32": lambda: Mixture(belief, weights).log_prob(torch.zeros(2)),
        r"worlds\[1\] is 2": lambda: Mixture(belief, weights).log_prob(torch.tensor([0, 2])),
    }
    for message, make in wrong.items():
        with pytest.raises(ProblemError, match=message):
            make()
