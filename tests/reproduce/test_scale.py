"""Long sums: the lists, and what is measured, against the digits themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from doxa.data import MNIST
from doxa.errors import ConfigError
from doxa.problem import Belief, BruteForce, addition
from doxa.reproduce._digits import pairings
from doxa.reproduce._experiment import train
from doxa.reproduce._scale import LIKELIHOODS, ExactLongConfig, LongListsConfig, addition_likelihood, equal_lists


def digits(count: int = 80) -> MNIST:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (2 * count, 28, 28), generator=random).to(torch.uint8)
    labels = torch.randint(0, 10, (2 * count,), generator=random)
    return MNIST(images[:count], labels[:count], images[count:], labels[count:])


def test_every_digit_is_in_one_list() -> None:
    labels = torch.randint(0, 10, (100,), generator=torch.Generator().manual_seed(1))
    rows, sums = equal_lists(torch.arange(20, 100), labels, 9, seed=2)
    assert rows.shape == (8, 9) and len(set(rows.flatten().tolist())) == 72 and rows.min() >= 20
    assert sums.tolist() == [sum(labels[i].item() for i in row) for row in rows.tolist()]
    with pytest.raises(ConfigError, match="no list of 9"):
        equal_lists(torch.arange(5), labels, 9, seed=0)


def test_the_log_likelihood_is_that_of_all_worlds() -> None:
    mnist, network = digits(), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    problem, found = addition(1), []
    with torch.no_grad():
        from doxa.data import normalize

        scores = network(normalize(mnist.test_images.unsqueeze(1))).double()
    ways = pairings(mnist, problem)
    for _ in range(LIKELIHOODS):
        rows = next(ways)
        told = problem(mnist.labels("test")[rows])
        found.append(BruteForce(problem).log_prob(Belief.from_logits(scores[rows]), told))
    measured = addition_likelihood(network, mnist, 1)
    assert measured["log_likelihood"] == pytest.approx(torch.cat(found).mean().item(), rel=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        ExactLongConfig(3, steps=2, batch_size=4),
        LongListsConfig(5, steps=2),
        LongListsConfig(5, "amortized", steps=2, pretrain=2, samples=8),
        LongListsConfig(5, "exact", 40, 1, steps=2),
    ],
    ids=["addition", "lists", "amortized", "after short"],
)
def test_runs_measure_what_they_say(config: ExactLongConfig | LongListsConfig, tmp_path: Path) -> None:
    if isinstance(config, LongListsConfig) and config.short:
        mnist = digits(600)
        config = LongListsConfig(5, "exact", 400, 1, steps=2)
    else:
        mnist = digits()
    result = train(config, tmp_path, seed=0, data=None, progress=False, digits=mnist)
    assert 0 <= result.metrics["digit_accuracy"] <= 100 and result.metrics["log_likelihood"] < 0


def test_short_lists_need_steps() -> None:
    with pytest.raises(ConfigError, match="both or neither"):
        train(LongListsConfig(5, short=10), Path("unused"), seed=0, data=None, progress=False, digits=digits())
