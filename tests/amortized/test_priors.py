"""Priors: Dirichlet sampling and fitting against torch, scipy and autograd; memory against a deque."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import kstest
from torch import Tensor

from doxa.amortized import (
    FittedDirichlet,
    FixedDirichlet,
    MixtureDirichlet,
    Prior,
    Replay,
)
from doxa.amortized.training._priors import DirichletFit, Ring, dirichlet_log_sample
from doxa.errors import ConfigError
from doxa.problem import Belief

SIZES = (2, 5, 3)
PRIORS = {
    "fixed": lambda: FixedDirichlet(SIZES, 0.3),
    "fitted": lambda: FittedDirichlet(SIZES, capacity=20),
    "fitted by Minka": lambda: FittedDirichlet(SIZES, capacity=20, method="minka"),
    "mixture": lambda: MixtureDirichlet(SIZES),
    "mixture per variable": lambda: MixtureDirichlet(SIZES, per="variable"),
    "replay": lambda: Replay(SIZES, capacity=20),
    "replay, shuffled": lambda: Replay(SIZES, capacity=20, shuffle=True),
}


@pytest.mark.parametrize("name", PRIORS)
def test_every_prior_gives_beliefs_and_keeps_no_graph(name: str) -> None:
    prior: Prior = PRIORS[name]()
    logits = torch.randn(8, 3, 5, requires_grad=True)
    for _ in range(3):
        prior.observe(Belief.from_logits(logits, SIZES))
        prior.adapt()
    sampled = prior.sample(50, generator=torch.Generator().manual_seed(0))
    assert sampled.batch_shape == (50,) and sampled.sizes == SIZES and not sampled.log_probs.requires_grad
    Belief(sampled.log_probs, SIZES)  # normalised, and -inf where there is no value
    again = prior.sample(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sampled.log_probs, again.log_probs)
    assert prior.sample(0).batch_shape == (0,)
    assert all(not buffer.requires_grad for buffer in prior.buffers())
    assert not list(prior.parameters())  # nothing that an optimiser of the model would touch


def test_samples_have_the_distribution_of_dirichlet() -> None:
    alpha = torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
    ours = dirichlet_log_sample(alpha.expand(4000, 3), torch.Generator().manual_seed(0)).exp()
    for i in range(3):  # marginals are Beta(α_i, Σα - α_i)
        assert kstest(ours[:, i].numpy(), "beta", (float(alpha[i]), float(alpha.sum() - alpha[i]))).pvalue > 1e-3
    covariance = torch.cov(ours.T)
    mean, total = alpha / alpha.sum(), alpha.sum()
    exact = (torch.diag(mean) - mean.outer(mean)) / (total + 1)
    torch.testing.assert_close(covariance, exact, atol=0.01, rtol=0)


def test_small_concentrations_do_not_underflow() -> None:
    """In float32, gamma variables of shape 0.005 are mostly 0; in log space their ratios are as they should be."""
    alpha = torch.full((20_000, 5), 0.005)
    log_probs = dirichlet_log_sample(alpha, torch.Generator().manual_seed(0))
    assert bool(log_probs.exp().sum(-1).sub(1).abs().max() < 1e-5)
    best = log_probs.exp().amax(-1)
    exact = np.random.default_rng(0).gamma(1.005, size=(20_000, 5))
    logs = np.log(exact) + np.log(np.random.default_rng(1).random((20_000, 5))) / 0.005
    reference = np.exp(logs.max(-1) - np.logaddexp.reduce(logs, -1))
    assert abs(float((best > 0.999).double().mean()) - float((reference > 0.999).mean())) < 0.02
    winners = torch.bincount(log_probs.argmax(-1), minlength=5) / 20_000
    assert float((winners - 0.2).abs().max()) < 0.02


def statistics(count: int = 1000) -> Tensor:
    alpha = torch.tensor([[0.3, 0.5, 1.0], [2.0, 2.0, 0.1]])
    beliefs = dirichlet_log_sample(alpha.expand(count, 2, 3), torch.Generator().manual_seed(0)).exp()
    return (beliefs.double() + 1e-7).log().mean(0)


@pytest.mark.parametrize("l2", [0.0, 100.0, 1e4])
@pytest.mark.parametrize(("method", "iterations"), [("minka", 150), ("adam", 1500)])
def test_both_fits_find_the_optimum_of_scipy(l2: float, method: str, iterations: int) -> None:
    statistic, count = statistics(), 1000

    def loss(raw: np.ndarray) -> float:
        alpha = np.log1p(np.exp(raw.reshape(2, 3)))
        fitted = gammaln(alpha.sum(-1)) - gammaln(alpha).sum(-1) + ((alpha - 1) * statistic.numpy()).sum(-1)
        return float(-count * fitted.mean() + l2 * (alpha**2).mean())

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-7})
    exact = torch.from_numpy(np.log1p(np.exp(best.x))).reshape(2, 3)
    fit = DirichletFit(
        torch.ones(2, 3, dtype=torch.bool), method=method, l2=l2, iterations=iterations, rate=0.05
    ).double()  # type: ignore[arg-type]
    fit(statistic, count)
    torch.testing.assert_close(fit.concentration, exact, rtol=2e-3, atol=0)


def test_closed_form_slope_is_the_derivative() -> None:
    exists = torch.tensor([[True, True, True], [True, True, False]])
    fit = DirichletFit(exists, l2=50.0).double()
    fit.raw += torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    statistic = torch.where(exists, statistics(), torch.zeros(2, 3, dtype=torch.float64))
    raw = fit.raw.clone().requires_grad_()
    alpha = torch.nn.functional.softplus(raw)
    likelihood = [
        torch.lgamma(a[e].sum()) - torch.lgamma(a[e]).sum() + ((a[e] - 1) * s[e]).sum()
        for a, e, s in zip(alpha, exists, statistic, strict=True)
    ]
    loss = -7 * torch.stack(likelihood).mean() + 50.0 * alpha[exists].square().mean()
    torch.testing.assert_close(fit.slope(statistic, 7), torch.autograd.grad(loss, raw)[0])


def test_fit_is_torch_adam_and_goes_on_where_it_stopped() -> None:
    """The same steps as torch.optim.Adam, also over several fits; errata 5.5: softplus⁻¹(0.1) = -2.252168."""
    fit = DirichletFit(torch.ones(2, 3, dtype=torch.bool), l2=900.0, iterations=20).double()
    torch.testing.assert_close(fit.raw, torch.full((2, 3), -2.252168, dtype=torch.float64), atol=1e-6, rtol=0)
    raw = torch.nn.Parameter(fit.raw.clone())
    optimizer = torch.optim.Adam([raw], 0.01)
    statistic = statistics()
    for _ in range(40):
        optimizer.zero_grad()
        alpha = torch.nn.functional.softplus(raw)
        likelihood = torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1) + ((alpha - 1) * statistic).sum(-1)
        (-1000 * likelihood.mean() + 900.0 * alpha.square().mean()).backward()
        optimizer.step()
    fit(statistic, 1000)
    fit(statistic, 1000)
    torch.testing.assert_close(fit.raw, raw.detach(), atol=1e-10, rtol=0)


def test_regularisation_keeps_a_fit_to_uniform_beliefs_diverse() -> None:
    free, bound = FittedDirichlet((10,), l2=0.0, method="minka"), FittedDirichlet((10,), method="minka")
    for prior in (free, bound):
        prior.observe(Belief.from_logits(0.01 * torch.randn(500, 1, 10, generator=torch.Generator().manual_seed(0))))
        prior.adapt()
    assert bool((free.dirichlet.concentration > 10).all())
    assert bool((bound.dirichlet.concentration < 0.2).all())


def test_memory_is_a_ring() -> None:
    memory, reference = Ring(torch.zeros(1, 3), capacity=7), deque(maxlen=7)
    generator = torch.Generator().manual_seed(0)
    for count in (2, 3, 0, 4, 1, 20, 5):
        b = Belief.from_logits(torch.randn(count, 1, 3, generator=generator))
        memory.add(b.log_probs)
        reference.extend(b.log_probs.unbind(0))
        kept = memory.stored()
        assert len(kept) == len(memory) == len(reference)
        assert sorted(kept.flatten(1).tolist()) == sorted(torch.stack(list(reference)).flatten(1).tolist())
    other = Ring(torch.zeros(1, 3), capacity=7)
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.stored(), memory.stored())
    with pytest.raises(ConfigError, match="domains"):
        Replay((3,)).observe(Belief.uniform((2,)))


def test_replay_returns_what_was_seen() -> None:
    prior = Replay((2, 2))
    seen = Belief.from_bernoulli(probs=torch.tensor([[0.1, 0.2], [0.3, 0.4]]))
    prior.observe(seen)
    rows = prior.sample(100, generator=torch.Generator().manual_seed(0)).probs[..., 1]
    assert {tuple(round(x, 4) for x in row) for row in rows.tolist()} == {(0.1, 0.2), (0.3, 0.4)}
    prior.shuffle = True
    rows = prior.sample(100, generator=torch.Generator().manual_seed(0)).probs[..., 1]
    assert len({tuple(round(x, 4) for x in row) for row in rows.tolist()}) == 4


def test_mixture_covers_certain_and_uniform_beliefs() -> None:
    entropy = MixtureDirichlet((10,) * 4).sample(2000, generator=torch.Generator().manual_seed(0)).entropy() / 4
    assert float((entropy < 0.1).float().mean()) > 0.1 and float((entropy > 2.0).float().mean()) > 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDirichlet((2,), 0.0), "not positive"),
        (lambda: MixtureDirichlet((2,), 1.0, 0.1), "low <= high"),
        (lambda: FittedDirichlet((2,), method="newton"), "'adam' or 'minka'"),  # type: ignore[arg-type]
        (lambda: FittedDirichlet((2,), initial=-1.0), "positive"),
        (lambda: Replay((2,), capacity=0), "at least 1"),
    ],
)
def test_errors(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=message):
        make()
