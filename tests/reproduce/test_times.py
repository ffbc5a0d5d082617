"""Time to accuracy: each way's loss against all worlds, the clock, and the table."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from doxa.data import MNIST
from doxa.errors import BudgetError
from doxa.logic import logits
from doxa.problem import Belief, BruteForce, Problem, addition
from doxa.reproduce._experiment import collect, train
from doxa.reproduce._times import (
    CANNOT,
    DRAWS,
    ESTIMATORS,
    PARTS,
    TABLES,
    TIMES,
    WAYS,
    Clock,
    TimesConfig,
    accuracies,
    times_table,
)
from doxa.semantics import Model, Refined
from doxa.train import Result


def scores(problem: Problem, rows: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    found = torch.randn(rows, len(problem.world), 10, generator=random, dtype=torch.float64, requires_grad=True)
    return found, problem(torch.randint(10, (rows, len(problem.world)), generator=random))


def slopes(how: str, digits: int) -> tuple[Tensor, Tensor]:
    """The loss of a way, and its derivative."""
    problem = addition(digits)
    given, sums = scores(problem)
    loss = WAYS[how](TimesConfig(digits, how), problem)(given, sums, torch.Generator())  # type: ignore[arg-type]
    return loss.detach(), torch.autograd.grad(loss, given)[0]


@pytest.mark.parametrize("digits", [1, 2])
def test_exact_is_that_of_all_worlds(digits: int) -> None:
    problem = addition(digits)
    given, sums = scores(problem)
    loss = -BruteForce(problem).log_prob(Belief.from_logits(given), sums).mean()
    found, slope = slopes("exact", digits)
    torch.testing.assert_close(found, loss.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(loss, given)[0])


@pytest.mark.parametrize("whole", [True, False], ids=["sums", "digits"])
@pytest.mark.parametrize("how", ESTIMATORS)
def test_sampled_ways_estimate_the_derivative_of_minus_log_p(how: str, whole: bool) -> None:
    """Many copies of a row, each with its own worlds; p of the row itself is added up over all worlds."""
    problem, copies = addition(1), 20_000 if how == "score" else 4000
    one, sums = scores(problem, rows=1)[0], torch.tensor([[0, 9]])
    log_probs, p = one.log_softmax(-1)[0], torch.zeros(1 if whole else 2, dtype=torch.float64)
    for a, b in product(range(10), repeat=2):
        right = problem(torch.tensor([a, b])) == sums[0]
        p = p + (log_probs[0, a] + log_probs[1, b]).exp() * (right.all() if whole else right)
    given = one.detach().expand(copies, -1, -1).clone().requires_grad_()
    config = TimesConfig(1, how, whole=whole, samples=4)  # type: ignore[arg-type]
    loss = WAYS[how](config, problem)(given, sums.expand(copies, -1), torch.Generator().manual_seed(1))
    (slope,) = torch.autograd.grad(loss, given)
    # The shares of worlds drawn apart make the derivative longer, by E[1 / share] in place of 1 / p.
    counts = torch.arange(DRAWS + 1.0, dtype=torch.float64).unsqueeze(1)
    chances = torch.distributions.Binomial(DRAWS, p.detach()).log_prob(counts).exp()
    longer = p.detach() * (chances * DRAWS / counts.clamp(min=0.5)).sum(0)
    (wanted,) = torch.autograd.grad(-(p.log() * longer).sum(), one)
    error = (copies * slope).std(0) / copies**0.5
    assert bool(((slope.sum(0) - wanted[0]).abs() <= 4.5 * error + 1e-6).all())
    assert error.max() < 0.25 * wanted.abs().max()  # what is wrong by a quarter would be seen


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_the_fuzzy_axiom_is_true_of_right_digits_only(digits: int) -> None:
    problem, random = addition(digits), torch.Generator().manual_seed(0)
    worlds = torch.randint(10, (40, 2 * digits), generator=random)
    way = WAYS["fuzzy"](TimesConfig(digits, "fuzzy"), problem)
    sure = 60.0 * torch.nn.functional.one_hot(worlds, 10).double()
    for row, world in zip(sure, worlds, strict=True):
        assert way(row[None], problem(world)[None], random).item() < 1e-6
        other = (world + torch.nn.functional.one_hot(torch.randint(2 * digits, (), generator=random), 2 * digits)) % 10
        assert way(row[None], problem(other)[None], random).item() > 10


def test_the_refined_loss_is_that_of_the_best_pairs() -> None:
    given, sums = scores(addition(1))
    truths = given.softmax(-1).detach()
    best = torch.zeros(3, 19, dtype=torch.float64)
    for a, b in product(range(10), repeat=2):
        best[:, a + b] = best[:, a + b].maximum(truths[:, 0, a].minimum(truths[:, 1, b]))
    loss = torch.nn.functional.cross_entropy(best.log(), 10 * sums[:, 0] + sums[:, 1])
    torch.testing.assert_close(slopes("refined", 1)[0], loss)


def test_refinement_cannot_list_the_worlds_of_long_sums() -> None:
    knowledge = """
        sort Image
        sort Digit = 0..9
        func digit(Image) -> Digit
        data lists(images: Image*, value: Int)
        [sum] forall l in lists. (sum x in l.images. digit(x)) = l.value
    """
    model = Model(knowledge, Refined(), digit=logits(torch.nn.Identity()))
    with pytest.raises(BudgetError, match="lists worlds"):
        model.loss(lists={"images": torch.zeros(1, 8, 10), "value": torch.tensor([9])})
    assert set(CANNOT) == {f"{t}/{how}" for t, how in product(TABLES, WAYS)} - {e.name for e in TIMES.entries}


def digits_of_noise(count: int = 400) -> MNIST:
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (2 * count,), generator=random)
    images = torch.randint(0, 40, (2 * count, 28, 28), generator=random).to(torch.uint8)
    for i, label in enumerate(labels.tolist()):  # a bar whose place is the digit
        images[i, 2 * label + 2 : 2 * label + 5, 4:24] = 255
    return MNIST(images[:count], labels[:count], images[count:], labels[count:])


SMALL = TimesConfig(steps=40, batch_size=16, validation=100, look=5, samples=4, hidden=8)


@pytest.mark.parametrize("how", WAYS)
def test_every_way_runs_and_says_where_its_time_went(how: str, tmp_path: Path) -> None:
    config = replace(SMALL, how=how, steps=6, pretrain=2 if how in ("scan", "mlp") else 0)  # type: ignore[arg-type]
    result = train(config, tmp_path, seed=0, data=None, progress=False, digits=digits_of_noise())
    assert result.metrics["reached"] == 0 and "seconds" not in result.metrics
    assert result.metrics["steps_taken"] == 6
    assert all(result.metrics[f"{part} of a step"] > 0 for part in PARTS)
    total = sum(result.metrics[f"{part} of a step"] for part in PARTS) * 6 / 1000
    assert total == pytest.approx(result.metrics["spent"], rel=1e-6)


def test_a_run_ends_at_the_first_look_that_is_good_enough(tmp_path: Path) -> None:
    mnist = digits_of_noise()
    easy = train(replace(SMALL, target=1e-9), tmp_path / "a", seed=0, data=None, progress=False, digits=mnist)
    assert easy.metrics["steps_taken"] == 5 and easy.metrics["seconds"] == easy.metrics["spent"] > 0
    short = train(replace(SMALL, cap=1e-6), tmp_path / "b", seed=0, data=None, progress=False, digits=mnist)
    assert short.metrics["steps_taken"] == 1 and short.metrics["reached"] == 0
    given_up = replace(SMALL, cap=3e-6, hopeless=100.0)
    assert train(given_up, tmp_path / "c", seed=0, data=None, progress=False, digits=mnist).metrics["steps_taken"] == 1


def test_the_clock_goes_on_after_a_stop() -> None:
    clock = Clock()
    with clock("network"):
        time.sleep(0.0)
        sum(range(10_000))
    clock.steps, clock.reached = 7, True
    again = Clock()
    again.load_state_dict(clock.state_dict())
    assert again == clock and again.total == clock.seconds["network"] > 0


def test_accuracies_are_of_sums_and_digits() -> None:
    mnist = digits_of_noise()
    labels = mnist.labels("test")

    class Reads(torch.nn.Module):
        """Reads every digit right but 1, which it takes for 2."""

        at = 0

        def forward(self, images: Tensor) -> Tensor:
            seen = labels[self.at : self.at + len(images)]
            self.at += len(images)
            return torch.nn.functional.one_hot(torch.where(seen == 1, 2, seen), 10).float()

    sums, digits = accuracies(Reads(), mnist, addition(1))
    share = (labels != 1).double().mean().item()
    assert digits == pytest.approx(100 * share) and sums == pytest.approx(100 * share**2, abs=2.0)


def test_the_table_says_what_was_reached(tmp_path: Path) -> None:
    def run(name: str, seed: int, **metrics: float) -> Result:
        parts = {f"{part} of a step": 1.0 for part in PARTS}
        found = {"held_out": 50.0, "spent": 60.0, **metrics, **parts}
        return Result(f"times/{name}", config={}, seed=seed, steps=9, metrics=found, prefix={})

    results = [run("n-1/exact", seed, seconds=s, spent=s) for seed, s in enumerate((6.0, 5.0, 9.0))]
    results += [run("n-1/loo", 0, seconds=30.0, spent=30.0), run("n-1/loo", 1), run("n-4/fuzzy", 0)]
    lines = times_table(results).splitlines()
    assert any("exact" in line and "6 (5 to 9)" in line for line in lines)
    assert any("leave one out" in line and "1 of 2 seeds: 30" in line for line in lines)
    assert any("fuzzy" in line and "not reached in 60 s (at best 50.0 %)" in line for line in lines)
    assert any("refined" in line and "10³⁰" in line for line in lines)
    assert TIMES.draw is not None
    assert [path.name for path in TIMES.draw(results, tmp_path)] == ["times.png", "times.md"]
    assert (tmp_path / "times.png").stat().st_size > 10_000 and collect(TIMES, tmp_path) == []
