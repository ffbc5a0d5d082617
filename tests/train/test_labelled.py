"""Learning from a few concept labels: what is shown, what it adds to the loss, and which start goes on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import doxa
from doxa.errors import ConfigError
from doxa.train import Task, train_task
from doxa.train.tasks._labelled import SHOWN, TRIED, Labelled, best_start, kept_open, moved

KNOWLEDGE = """
sort Image
sort Digit = 0..2
data pairs(left: Image, right: Image, sum: Int)
func digit(Image) -> Digit
[sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def some(rows: int = 40, *, labelled: int = 4) -> Task:
    """Pairs of pictures, of which the left one of some rows is labelled; each picture is grey all over."""
    random = torch.Generator().manual_seed(0)
    digits = torch.randint(3, (rows, 2), generator=random)
    left, right = (digits[:, i, None, None].float().expand(-1, 4, 4) + 0.0 for i in range(2))
    data = {"pairs": {"left": left, "right": right, "sum": digits.sum(1)}}
    told = torch.full((rows,), -1)
    told[:labelled] = digits[:labelled, 0]
    return Task(
        "pairs",
        "Sums of two.",
        KNOWLEDGE,
        lambda: {"digit": doxa.logits(flat())},
        data,
        data,
        target="pairs.sum",
        values=range(5),
        images=["pairs.left", "pairs.right"],
        labels={"digit": {"pairs.left": told}},
    )


@pytest.mark.parametrize("labelled", [1, 4, 20])
def test_loss_is_cross_entropy_and_that_of_the_knowledge(labelled: int) -> None:
    """Pictures that are grey all over look the same moved, so that both are known in closed form."""
    task = some(labelled=labelled)
    task = replace(task, label_weight=2.0)
    model = task.model(task.semantics_of("exact"), seed=1)
    found = Labelled(task).loss(model, generator=torch.Generator().manual_seed(5))
    random = torch.Generator().manual_seed(5)
    drawn = torch.randint(labelled, (SHOWN,), generator=random)
    at = torch.randperm(labelled, generator=random)[:SHOWN] if labelled > SHOWN else drawn
    rows = {name: column[at] for name, column in task.train["pairs"].items()}
    network = model.interpretation.meanings["digit"].module
    logs = [network(rows[side]).log_softmax(-1) for side in ("left", "right")]
    told = cross_entropy(logs[0], task.labels["digit"]["pairs.left"][at])
    torch.testing.assert_close(found["loss of labels"], 2 * told)
    sums = logs[0].exp()[:, :, None] * logs[1].exp()[:, None, :]
    fits = (torch.arange(3)[:, None] + torch.arange(3)) == rows["sum"][:, None, None]
    torch.testing.assert_close(found["loss of labelled rows"], -2 * (sums * fits).sum((1, 2)).log().mean())


def test_pictures_are_moved_as_wholes() -> None:
    """Each by its own number of pixels, all colours alike; what comes in at an edge is what was at the edge."""
    pictures = torch.arange(2 * 28 * 30).reshape(2, 28, 30).expand(200, -1, -1, -1)
    found, seen = moved(pictures, generator=torch.Generator().manual_seed(0)), set[tuple[int, int]]()
    for picture in found:
        down, right = divmod(int(picture[0, 14, 15]) - (14 * 30 + 15) + 4 * 30 + 4, 30)
        down, right = down - 4, right - 4
        rows, columns = (torch.arange(28) + down).clamp(0, 27), (torch.arange(30) + right).clamp(0, 29)
        assert torch.equal(picture, pictures[0][:, rows][:, :, columns])
        seen.add((down, right))
    assert seen == {(a, b) for a in range(-2, 3) for b in range(-2, 3)}
    small = torch.rand(3, 5, 5)
    assert torch.equal(moved(small), small), "too small to be moved"
    assert moved(torch.zeros(3, 28, 28, dtype=torch.uint8)).dtype == torch.uint8


class Valley(nn.Module):
    """A loss with two valleys, at -1 and at 1; the second is deeper."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start))
        self.steps = 0

    def loss(self, left: float) -> Tensor:
        assert left == 1 - self.steps / (2 * TRIED)
        self.steps += 1
        return (self.x.square() - 1).square() - 0.1 * self.x


def test_the_start_with_the_lowest_loss_goes_on() -> None:
    starts = [Valley(-0.5), Valley(0.2), Valley(-2.0)]
    found = best_start(iter(starts), lambda v: v.loss, lambda v: torch.optim.SGD(v.parameters(), 0.05))
    assert found is starts[1] and found.x > 0.9
    assert sorted(v.steps for v in starts) == [TRIED, 2 * TRIED, 2 * TRIED]


def test_a_run_that_was_stopped_goes_on_from_its_start(tmp_path: Path) -> None:
    """Starts are tried once; a run that goes on ends with the same bits."""
    task = replace(some(labelled=2), label_starts=3, batch_size=8)
    settings = ["steps=20", "evaluate_every=10", "learning_rate=0.01"]
    whole = train_task(task, "exact", tmp_path / "whole", seed=3, settings=settings, progress=False)
    calls = 0

    def stopping() -> dict[str, object]:
        nonlocal calls
        calls += 1
        return {"digit": doxa.logits(flat())}

    class StopError(Exception):
        pass

    def supervised(model: doxa.Model, batch: object) -> Tensor:
        nonlocal left
        left -= 1
        if left < 0:
            raise StopError
        return torch.zeros(())

    left = 5 * TRIED + 15
    stopped = replace(task, symbols=stopping, supervised=supervised)
    with pytest.raises(StopError):
        train_task(stopped, "exact", tmp_path / "again", seed=3, settings=settings, progress=False)
    assert calls == 4
    left = 100
    again = train_task(stopped, "exact", tmp_path / "again", seed=3, settings=settings, progress=False)
    assert calls == 5 and left >= 80, "no start was tried again"
    first, second = (run.load("last").state["objective"] for run in (whole, again))
    networks = [name for name, value in first.items() if isinstance(value, Tensor)]
    assert networks and all(torch.equal(first[name], second[name]) for name in networks)
    assert whole.metrics_at(20)["loss of labels"] == again.metrics_at(20)["loss of labels"]


def test_how_many_starts() -> None:
    with pytest.raises(ConfigError, match="label_starts is 0, expected 1 or more"):
        replace(some(), label_starts=0)
    assert not Labelled(replace(some(), labels={}))


def test_worlds_are_kept_open_wherever_reasoning_is_exact() -> None:
    """By hand: of 0 + 1 and 1 + 0, with probabilities in the ratio 0.9² to 0.1², log 2 - H is left; fuzzily nothing."""
    text = "pred a; pred b; [one] a xor b"
    bound = {"a": doxa.probs(torch.tensor(0.9)), "b": doxa.probs(torch.tensor(0.1))}
    p = 0.81 / 0.82
    lacking = math.log(2) + p * math.log(p) + (1 - p) * math.log(1 - p)
    for how, expected in ((doxa.Exact(), lacking), (doxa.Auto(), lacking), (doxa.Fuzzy(), 0.0)):
        found = kept_open(doxa.Model(text, how, **bound), {}, 0.5)
        assert found.item() == pytest.approx(0.5 * expected, abs=1e-6)
