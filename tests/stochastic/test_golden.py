"""Golden values of the verified reference: fixed samples, and the surrogate and its derivatives for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from stochastic_problems import S1_TRUTH, S2_TRUTH, THETA, FixedTape, derivatives, s1, s1_cost, s2, tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from doxa.stochastic import (
    ARM,
    ARSM,
    GO,
    RELAX,
    SPSA,
    DisARM,
    Draw,
    Enumerate,
    Estimator,
    ImportanceSampling,
    LeaveOneOut,
    MeasureValued,
    SumAndSample,
    Tape,
    UnorderedSet,
    check_tape,
    check_unbiased,
    magic_box,
)
from doxa.stochastic.estimators._without_replacement import set_log_probs

CLOSE = {"abs": 1e-5, "rel": 1e-5}


def plain(values: list[int]) -> Callable[[Distribution], Draw]:
    return lambda d: Draw(torch.tensor(values), d)


def test_magic_box_of_the_example() -> None:
    x = torch.tensor(1.5, requires_grad=True)
    y = magic_box(2 * x) * x**3
    (slope,) = torch.autograd.grad(y, x)
    assert float(y.detach()) == pytest.approx(1.5**3)
    assert float(slope) == pytest.approx(3 * 1.5**2 + 2 * 1.5**3)


def test_truth_of_both_problems() -> None:
    report = check_unbiased(Enumerate(), s1, s1_cost, order=3, at=THETA)
    assert report.truth == pytest.approx(S1_TRUTH, abs=2e-5)
    assert report.estimate == pytest.approx(S1_TRUTH, **CLOSE)
    report = check_tape(s2(Enumerate(), Enumerate()), THETA, order=3)
    assert report.truth == pytest.approx(S2_TRUTH, abs=2e-5)
    assert report.estimate == pytest.approx(S2_TRUTH, **CLOSE)


IS = ImportanceSampling(Categorical(tensor([0.2, 0.5, 0.3])))
A = SumAndSample(3, top=1, form="A", baseline=False)
BL = SumAndSample(3, top=1, form="B", baseline=True)
USET = UnorderedSet(2)
SUMMED = torch.ones(1, dtype=torch.bool)


def unordered(d: Distribution) -> Draw:
    x = torch.tensor([0, 2])
    return USET._complete(d, x, d.log_prob(x).detach(), d.log_prob(torch.tensor(1)).detach())


FIXED = [
    (LeaveOneOut(2), plain([0, 2]), (-1.029843, 1.077145, 3.216331)),
    (LeaveOneOut(3), plain([0, 1, 1]), (1.197147, -2.399179, 0.897439)),
    (IS, lambda d: IS.complete(d, torch.tensor([2])), (-0.198640, 1.021807, 3.993961)),
    (A, lambda d: A._draw(d, torch.tensor([1, 0, 2]), SUMMED), (0.140416, -0.728369, 2.229299)),
    (
        SumAndSample(3, top=1, form="B", baseline=False),
        lambda d: A._draw(d, torch.tensor([1, 0, 2]), SUMMED),
        (0.140416, -0.728369, 2.229299),
    ),
    (BL, lambda d: BL._draw(d, torch.tensor([1, 0, 2]), SUMMED), (0.140416, -0.662906, 2.279240)),
    (USET, unordered, (-1.079165, 1.008233, 3.123903)),
    (GO(), lambda d: GO().complete(d, torch.tensor([1])), (2.728048, -2.815211, -0.922651)),
    (GO(), lambda d: GO().complete(d, torch.tensor([2])), (-0.195031, 1.097134, 3.906161)),
]


@pytest.mark.parametrize(
    ("estimator", "choose", "golden"), FIXED, ids=[f"{e!r}-{i}" for i, (e, _, _) in enumerate(FIXED)]
)
def test_fixed_samples_of_s1(
    estimator: Estimator, choose: Callable[[Distribution], Draw], golden: tuple[float, ...]
) -> None:
    theta = THETA.clone().requires_grad_()
    tape = FixedTape(choose)
    x = tape.sample(s1(theta), estimator)
    tape.cost(s1_cost(x, theta))
    assert derivatives(tape.surrogate(order=2), theta, 2) == pytest.approx(golden, **CLOSE)


def test_set_weights_and_baselines() -> None:
    p, f = tensor([0.5, 0.3, 0.2]), tensor([1.0, 2.0, 4.0])
    for members, whole, weights, baselines in [
        ([0, 1], 0.514286, [0.583333, 0.416667], [1.5, 1.3]),
        ([1, 2], 0.160714, [0.533333, 0.466667], [3.4, 2.4]),
    ]:
        log_p = p[members].log()
        u, first, second = set_log_probs(log_p, (1 - p[members].sum()).log())
        assert float(u.exp()) == pytest.approx(whole, **CLOSE)
        assert (log_p + first - u).exp().tolist() == pytest.approx(weights, **CLOSE)
        b = ((log_p + second - first.unsqueeze(-1)).exp() * f[members]).sum(-1)
        assert b.tolist() == pytest.approx(baselines, **CLOSE)


def test_measure_valued_bernoulli() -> None:
    p = tensor(0.3).requires_grad_()
    tape = Tape()
    b = tape.sample(Bernoulli(p), MeasureValued())
    tape.cost(torch.where(b > 0, 2 * torch.cos(p) + 0.4 * p, -0.7 * torch.cos(p)))
    assert derivatives(tape.surrogate(), p, 1) == pytest.approx((0.141087, 2.786901), **CLOSE)


@pytest.mark.parametrize(("estimator", "golden"), [(ARM(), 1.08), (DisARM(), 0.840320)])
def test_arm_and_disarm(estimator: ARM | DisARM, golden: float) -> None:
    alpha = tensor(0.5).requires_grad_()
    tape = FixedTape(lambda d: estimator._complete(d, tensor([[0.9]])))
    b = tape.sample(Bernoulli(logits=alpha), estimator)
    assert b.tolist() == [1.0, 0.0]
    tape.cost(torch.where(b > 0, 2.0, -0.7).double())
    assert derivatives(tape.surrogate(), alpha, 1)[1] == pytest.approx(golden, **CLOSE)


def test_arsm_with_two_values_is_arm() -> None:
    alpha = tensor(0.5).requires_grad_()
    tape = FixedTape(lambda d: ARSM()._complete(d, tensor([[[0.9, 0.1]]])))
    b = tape.sample(Bernoulli(logits=alpha), ARSM())
    assert b.tolist() == [1.0, 0.0]
    tape.cost(torch.where(b > 0, 2.0, -0.7).double())
    assert derivatives(tape.surrogate(), alpha, 1)[1] == pytest.approx(1.08, **CLOSE)


def test_arsm_over_the_simplex() -> None:
    """The average over all noise, by the midpoint rule on triangles, against the gradient of the expectation."""
    i, j = (t.double() for t in torch.tril_indices(150, 150))
    pi = torch.stack([j + 1 / 3, i - j + 1 / 3, 149 - i + 1 / 3], -1) / 150
    logits, f = tensor([0.4, -0.3, 0.8]), tensor([1.0, -2.0, 3.5])
    wide = logits.expand(len(pi), 3).clone().requires_grad_()
    tape = FixedTape(lambda d: ARSM()._complete(d, pi.reshape(1, -1, 1, 3)), batch_dims=1)
    tape.cost(f[tape.sample(Categorical(logits=wide), ARSM())])
    (found,) = torch.autograd.grad(tape.surrogate(), wide)
    p = logits.softmax(-1)
    assert found.sum(0).tolist() == pytest.approx((p * (f - p @ f)).tolist(), abs=0.01)


@pytest.mark.parametrize(
    ("u", "v", "z", "other", "golden"),
    [
        (0.6, 0.4, 0.605465, 0.908636, (2.0, 1.061507, -0.366188)),
        (0.2, 0.4, -1.186294, -1.315898, (-0.7, 0.150936, 0.324353)),
    ],
)
def test_relax(u: float, v: float, z: float, other: float, golden: tuple[float, ...]) -> None:
    from doxa.stochastic.estimators._factors import factors

    alpha = tensor(0.2).requires_grad_()
    relax = RELAX(lambda z: 0.5 * torch.tanh(z) + 0.2 * z**2)
    tape = FixedTape(lambda d: relax._complete(d, factors(d), tensor([[u]]), tensor([[v]])))
    b = tape.sample(Bernoulli(logits=alpha), relax)
    notes = tape.nodes[0].draw.notes
    assert float(notes["z"].detach()) == pytest.approx(z, **CLOSE)
    assert float(notes["other"].detach()) == pytest.approx(other, **CLOSE)
    tape.cost(torch.where(b > 0, 2.0, -0.7).double())
    assert derivatives(tape.surrogate(order=2), alpha, 2) == pytest.approx(golden, **CLOSE)


@pytest.mark.parametrize(
    ("estimator", "golden"),
    [
        (SPSA(step=0.1), (-0.863319, -0.904215, 0.846135)),
        (MeasureValued(), (-0.865484, -0.904829, 0.847382)),
    ],
)
def test_gradient_with_respect_to_logits(estimator: Estimator, golden: tuple[float, ...]) -> None:
    v = tensor([0.3, -0.5, 0.8]).requires_grad_()
    f = tensor([1.0, -2.0, 3.5])
    found = estimator.outcomes(Categorical(logits=v.log_softmax(-1)), 1)
    assert found is not None
    _, probability = found
    # All outcomes as a batch. The logits are the parameters: no derivative of their normalisation.
    logits = v.detach().log_softmax(-1).expand(len(probability), 3).clone().requires_grad_()
    d = Categorical(logits=logits)
    d.logits = logits
    draw = found[0]
    tape = FixedTape(lambda _: Draw(draw.value, d, **draw.notes), batch_dims=1)
    x = tape.sample(d, estimator)
    tape.cost(f[x] * torch.cos(v[0]) + 0.3 * v[1] ** 2 * x)
    loss = (tape.surrogate(reduction="none", allow_biased=True) * probability).sum()
    assert float(loss.detach()) == pytest.approx(1.901395, **CLOSE)
    direct, through = torch.autograd.grad(loss, [v, logits])
    assert (direct + through.sum(0)).tolist() == pytest.approx(golden, **CLOSE)
