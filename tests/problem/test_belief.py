"""Beliefs against plain Python, at the corners of the simplex, and when they are wrong."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem import Belief

INF = float("inf")


@st.composite
def weights(draw: st.DrawFn) -> list[list[int]]:
    """Whole weights for variables with domains of different size; zeros are common, all-zero is not allowed."""
    row = st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=1, max_size=4).filter(any)
    return draw(st.lists(row, min_size=1, max_size=4))


def normalised(rows: list[list[int]]) -> list[Tensor]:
    return [torch.tensor(row, dtype=torch.float64) / sum(row) for row in rows]


@given(weights())
@settings(deadline=None)
def test_log_prob_mode_and_entropy_by_enumeration(rows: list[list[int]]) -> None:
    belief = Belief.from_probs(normalised(rows))
    assert belief.sizes == tuple(map(len, rows))
    worlds = list(itertools.product(*(range(len(row)) for row in rows)))
    plain = [math.prod(row[value] / sum(row) for row, value in zip(rows, world, strict=True)) for world in worlds]
    given_worlds = torch.tensor(worlds)
    torch.testing.assert_close(belief.log_prob(given_worlds).exp(), torch.tensor(plain, dtype=torch.float64))
    entropy = -sum(p * math.log(p) for p in plain if p > 0)
    assert belief.entropy().item() == pytest.approx(entropy, abs=1e-12)
    assert tuple(belief.mode().tolist()) == tuple(row.index(max(row)) for row in rows)


@given(weights())
@settings(deadline=None)
def test_all_constructors_agree(rows: list[list[int]]) -> None:
    parts = normalised(rows)
    width = max(map(len, rows))
    padded = torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for part in parts])
    sizes = [len(row) for row in rows]
    first = Belief.from_probs(parts)
    for other in (
        Belief.from_probs(padded, sizes),
        Belief.from_log_probs([part.log() for part in parts]),
        Belief.from_logits([part.log() + 3 for part in parts]),
        Belief.from_logits(
            torch.where(first.mask, padded.log() - 1, 7.0), sizes
        ),  # what is beyond the sizes is ignored
        Belief(first.log_probs, sizes=tuple(sizes)),
        pickle.loads(pickle.dumps(first)),
    ):
        assert other.sizes == first.sizes
        torch.testing.assert_close(other.log_probs, first.log_probs)
        assert torch.equal(other.log_probs == -INF, first.log_probs == -INF)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=5))
def test_bernoulli(probs: list[float]) -> None:
    p = torch.tensor(probs)
    belief = Belief.from_bernoulli(probs=p)
    torch.testing.assert_close(belief.probs, torch.stack([1 - p, p], -1))
    torch.testing.assert_close(Belief.from_bernoulli(logits=p.logit()).probs, belief.probs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_gradients_are_finite_on_the_closed_simplex(dtype: torch.dtype, eps: float) -> None:
    tiny = torch.finfo(dtype).smallest_normal / 64  # subnormal: 1 / tiny would overflow
    for values in ([1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, tiny, 0.0]):
        p = torch.tensor([values], dtype=dtype, requires_grad=True)
        belief = Belief.from_probs(p, eps=eps)
        for world in range(3):
            for result in (belief.log_prob(torch.tensor([world])), belief.entropy(), belief.probs.sum()):
                (gradient,) = torch.autograd.grad(result, p, retain_graph=True)
                assert gradient.isfinite().all()
    q = torch.tensor([0.0, 1.0, 0.5], dtype=dtype, requires_grad=True)
    z = torch.tensor([-INF, INF, 1e30], dtype=dtype, requires_grad=True)
    for bernoulli, source in ((Belief.from_bernoulli(probs=q, eps=eps), q), (Belief.from_bernoulli(logits=z), z)):
        bernoulli.log_prob(bernoulli.mode()).backward()
        assert source.grad is not None and source.grad.isfinite().all()
        assert bernoulli.entropy().isfinite()


def test_value_is_exact_and_derivative_true_away_from_the_corner() -> None:
    p = torch.tensor([[0.2, 0.8]], dtype=torch.float64, requires_grad=True)
    belief = Belief.from_probs(p)
    (gradient,) = torch.autograd.grad(belief.log_probs.sum(), p)
    torch.testing.assert_close(gradient, 1 / p.detach())
    assert Belief.from_probs(torch.tensor([[1.0, 0.0]])).log_probs.tolist() == [[0.0, -INF]]
    capped = Belief.from_probs(torch.tensor([[1.0, 0.0]]), eps=1e-3).log_probs
    torch.testing.assert_close(capped, torch.tensor([[0.0, math.log(1e-3)]]))


def test_floor_does_not_bring_values_into_being() -> None:
    belief = Belief.from_probs([torch.ones(1), torch.tensor([0.0, 1.0])], eps=1e-3)
    assert belief.log_probs[0].tolist() == [0.0, -INF]
    assert belief.probs[1, 0].item() == pytest.approx(1e-3)


def test_padding_and_ruled_out_values_get_no_gradient() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    belief = Belief.from_logits(logits + torch.tensor([[0.0, -INF, 0.0], [0.0, 0.0, 9.0]]), sizes=(3, 2))
    (belief.entropy() + belief.log_prob(torch.tensor([0, 1]))).backward()
    assert logits.grad is not None and logits.grad.isfinite().all()
    assert logits.grad[0, 1] == 0 and logits.grad[1, 2] == 0
    assert belief.probs[1].tolist() == [0.5, 0.5, 0.0]


def test_ragged_gradients_by_gradcheck() -> None:
    parts = [torch.randn(2, size, dtype=torch.float64, requires_grad=True) for size in (1, 3, 2)]
    worlds = torch.tensor([[0, 2, 1], [0, 0, 0]])

    def value(*logits: Tensor) -> tuple[Tensor, Tensor]:
        belief = Belief.from_logits(list(logits))
        return belief.log_prob(worlds), belief.entropy()

    assert torch.autograd.gradcheck(value, parts)
    assert torch.autograd.gradgradcheck(value, parts)


@pytest.mark.parametrize("batch", [(), (0,), (1,), (5,), (2, 3), (2, 0)])
def test_batch_shapes(batch: tuple[int, ...]) -> None:
    belief = Belief.uniform((2, 3), batch)
    assert belief.batch_shape == batch
    assert belief.mode().shape == (*batch, 2)
    assert belief.entropy().shape == batch
    worlds = belief.sample(4)
    assert worlds.shape == (4, *batch, 2)
    assert belief.log_prob(worlds).shape == (4, *batch)
    torch.testing.assert_close(belief.log_prob(worlds).exp(), torch.full((4, *batch), 1 / 6))


def test_indexing_touches_the_batch_only() -> None:
    belief = Belief.from_logits(torch.randn(4, 5, 2, 3))
    rows = torch.tensor([2, 0])
    for index, same in [
        (1, belief.log_probs[1]),
        ((1, 2), belief.log_probs[1, 2]),
        (slice(1, 3), belief.log_probs[1:3]),
        ((..., 0), belief.log_probs[:, 0]),
        (rows, belief.log_probs[rows]),
        (torch.ones(4, 5, dtype=torch.bool), belief.log_probs.flatten(0, 1)),
    ]:
        assert torch.equal(belief[index].log_probs, same)
    with pytest.raises(IndexError):
        belief[0, 0, 0]


def test_rows_that_are_not_there_are_told() -> None:
    belief = Belief.uniform((2, 3), batch=(4,))
    assert len(list(belief)) == 4, "an index beyond the rows ends a loop"  # type: ignore[call-overload]
    for index in (4, -5, (0, 1), 1.5, "a", torch.tensor([7]), torch.tensor([True])):
        with pytest.raises(ProblemError, match=r"does not index a batch of shape \(4,\)"):
            belief[index]  # type: ignore[index]
    for index in (0, slice(1), (0, 1)):
        with pytest.raises(ProblemError, match=r"a belief without a batch: there is one row"):
            Belief.uniform((2, 3))[index]


def test_half_precision_is_raised_and_dtype_kept() -> None:
    assert Belief.from_logits(torch.zeros(1, 2, dtype=torch.bfloat16)).log_probs.dtype == torch.float32
    assert Belief.from_bernoulli(probs=torch.ones(1, dtype=torch.float16)).log_probs.dtype == torch.float32
    double = Belief.uniform((2,), dtype=torch.float64)
    assert double.log_probs.dtype == torch.float64 and double.to(torch.float32).log_probs.dtype == torch.float32
    assert double.to("cpu").log_probs.dtype == torch.float64


def test_samples_follow_the_belief() -> None:
    belief = Belief.from_probs([torch.tensor([0.2, 0.0, 0.8]), torch.tensor([0.7, 0.3])])
    count = 20_000
    worlds = belief.sample(count, generator=torch.Generator().manual_seed(0))
    assert torch.equal(worlds, belief.sample(count, generator=torch.Generator().manual_seed(0)))
    for variable in range(2):
        for value in range(belief.sizes[variable]):
            p = belief.probs[variable, value].item()
            seen = int((worlds[:, variable] == value).sum())
            assert abs(seen - count * p) <= 5 * math.sqrt(count * p * (1 - p)), (variable, value)
    together = ((worlds == torch.tensor([2, 1])).all(-1)).double().mean().item()
    assert together == pytest.approx(0.24, abs=5 * math.sqrt(0.24 * 0.76 / count)), "the variables are independent"


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Belief(torch.zeros(2, 3, dtype=torch.int64)), "dtype torch.int64, expected floating point"),
        (lambda: Belief([0.5, 0.5]), "log_probs is a list, expected a tensor"),  # type: ignore[arg-type]
        (lambda: Belief(torch.zeros(3)), r"shape \(3,\), expected \(\*batch, variables, values\)"),
        (lambda: Belief(torch.zeros(4, 0, 3)), "at least one variable and value"),
        (lambda: Belief(torch.zeros(1, 2)), r"variable 0 are \[1.0, 1.0\], expected numbers that sum to 1"),
        (lambda: Belief(torch.full((1, 2), float("nan"))), r"are \[nan, nan\]"),
        (lambda: Belief(torch.tensor([[0.5, 0.5]]).log(), (1,)), r"must be -inf for values that do not exist.*\(1,\)"),
        (lambda: Belief(torch.zeros(1, 1), (2,)), r"sizes \(2,\) do not fit log_probs of shape \(1, 1\)"),
        (lambda: Belief.from_logits(torch.zeros(2, 3), (3,)), "expected 2 sizes from 1 to 3"),
        (lambda: Belief.from_logits([]), "empty list"),
        (lambda: Belief.from_logits([torch.zeros(2)], (2,)), "says the sizes itself"),
        (lambda: Belief.from_logits([torch.zeros(4, 2), torch.zeros(3, 2)]), "one and the same batch"),
        (lambda: Belief.from_logits([torch.zeros(())]), "one and the same batch"),
        (lambda: Belief.from_logits([[0.0, 1.0]]), r"logits\[0\] is of list, expected a floating-point tensor"),
        (lambda: Belief.from_logits(torch.tensor([[0.0, INF]])), r"logits of variable 0 are \[0.0, inf\]"),
        (lambda: Belief.from_logits(torch.full((3, 2, 2), -INF)), r"in row \(0,\).*not all of them -inf"),
        (lambda: Belief.from_probs(torch.tensor([[[1.0, 0.0]], [[0.5, 0.6]]])), r"variable 0 in row \(1,\)"),
        (lambda: Belief.from_probs(torch.tensor([[1.5, -0.5]])), "from 0 to 1 that sum to 1"),
        (lambda: Belief.from_bernoulli(), "either probs or logits, exactly one"),
        (lambda: Belief.from_bernoulli(probs=torch.tensor([0.5, 1.5])), "^variable 1 has 1.5"),
        (lambda: Belief.from_bernoulli(logits=torch.tensor([float("nan")])), "has nan, expected a number"),
        (lambda: Belief.uniform(()), "at least one variable"),
        (
            lambda: Belief.uniform((2, 3)).log_prob(torch.tensor([0, 3])),
            r"worlds\[1\] is 3, expected a value from 0 to 2",
        ),
        (lambda: Belief.uniform((2, 3)).log_prob(torch.tensor([0.0, 1.0])), "expected int64"),
        (lambda: Belief.uniform((2, 3), (4,)).log_prob(torch.tensor([0, 1])), r"expected int64 \(\*sample, 4, 2\)"),
    ],
)
def test_errors_say_what_came_and_what_was_wanted(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        build()


def test_works_inside_transformations() -> None:
    logits = torch.randn(6, 2, 3, dtype=torch.float64)
    worlds = torch.randint(0, 3, (6, 2))

    def value(row: Tensor, world: Tensor) -> Tensor:
        return Belief.from_logits(row).log_prob(world)

    each = torch.func.vmap(torch.func.grad(value))(logits, worlds)
    logits.requires_grad_()
    (together,) = torch.autograd.grad(value(logits, worlds).sum(), logits)
    torch.testing.assert_close(each, together)
    compiled = torch.compile(value, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, worlds), value(logits, worlds))
