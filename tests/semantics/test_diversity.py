"""World diversity, log N - H: against the list of all worlds, in float64."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import doxa
from doxa.errors import ConfigError, ProblemError
from doxa.train import Fitting, Task, open_run, train_task

TEXT = """sort O; sort D = 0..2; func d(O) -> D; pred b(O); data r(x: O, y: O, n: Int)
    [sum] forall t in r. d(t.x) + d(t.y) = t.n
    [rule] forall t in r. b(t.x) -> d(t.y) > 0"""
N = torch.tensor([2, 1, 3, 0])
ROWS = {"x": torch.tensor([0, 1, 2, 0]), "y": torch.tensor([1, 2, 0, 2]), "n": N}
DATA: dict[str, Any] = {"O": 3, "r": ROWS}


def scores(components: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    shapes = ((components,), (components, 3, 3), (components, 3))
    weights, digits, bits = (2 * torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes)
    return weights.requires_grad_(), digits.requires_grad_(), bits.requires_grad_()


def model_of(weights: Tensor, digits: Tensor, bits: Tensor) -> doxa.Model:
    if len(weights) == 1:
        return doxa.Model(TEXT, "exact", d=doxa.logits(digits[0]), b=doxa.logits(bits[0]))
    parts = {"d": doxa.logits(digits), "b": doxa.logits(bits)}
    return doxa.Model(TEXT, "exact", **doxa.mixture(weights=doxa.logits(weights), **parts))


def written_out(weights: Tensor, digits: Tensor, bits: Tensor, axioms: str = "both") -> tuple[Tensor, Tensor]:
    """The divergence and the number of worlds of each row, world by world."""
    found, counts = [], []
    for x, y, n in zip(ROWS["x"], ROWS["y"], ROWS["n"], strict=True):
        p = digits.log_softmax(-1)
        light = nn.functional.logsigmoid(torch.stack([-bits, bits], -1))
        worlds = []
        for a, b, c in itertools.product(range(3), range(3), range(2)):
            holds = (axioms == "rule" or a + b == n) and (axioms == "sum" or not c or b > 0)
            if axioms == "sum" and c:
                continue  # it speaks of two variables
            if axioms == "rule" and a:
                continue
            each = weights.log_softmax(-1) + p[:, y, b]
            each = each + (0 if axioms == "rule" else p[:, x, a]) + (0 if axioms == "sum" else light[:, x, c])
            if holds:
                worlds.append(each.logsumexp(-1))
        joint = torch.stack(worlds)
        log_p = joint - joint.logsumexp(-1)
        found.append(math.log(len(worlds)) + (log_p.exp() * log_p).sum())
        counts.append(len(worlds))
    return torch.stack(found), torch.tensor(counts)


@pytest.mark.parametrize("axioms", ["both", "sum", "rule"])
@pytest.mark.parametrize("seed", range(3))
def test_independent_symbols_exactly(axioms: str, seed: int) -> None:
    given = scores(1, seed)
    found = model_of(*given).diversity(*([] if axioms == "both" else [axioms]), **DATA)
    expected, counts = written_out(*given, axioms=axioms)
    torch.testing.assert_close(found.high, expected)
    assert torch.equal(found.low, found.high)
    torch.testing.assert_close(found.log_count.exp(), counts.double())
    torch.testing.assert_close(found.total, expected.mean())
    used = [t for t in given if t.requires_grad][1:]
    for slope, true in zip(
        torch.autograd.grad(found.total, used, allow_unused=True),
        torch.autograd.grad(expected.mean(), used, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(
            torch.zeros(()) if slope is None else slope, torch.zeros(()) if true is None else true
        )


@pytest.mark.parametrize(("components", "seed"), [(2, 0), (2, 1), (3, 2), (5, 3)])
def test_mixtures_lie_between_the_bounds(components: int, seed: int) -> None:
    given = scores(components, seed)
    found = model_of(*given).diversity(**DATA)
    expected, _ = written_out(*given)
    assert bool((found.low <= expected + 1e-9).all()) and bool((expected <= found.high + 1e-9).all())
    assert bool((found.low < found.high).any())

    def total(*tensors: Tensor) -> Tensor:
        return model_of(*tensors).diversity(**DATA).total

    assert torch.autograd.gradcheck(total, given, rtol=1e-4, atol=1e-6)


def test_of_certain_components_it_is_exact() -> None:
    """Three of the nine sums of 2 are certain worlds of three components: log 3 - the entropy of the weights."""
    worlds = torch.tensor([[0, 2], [1, 1], [2, 0]])
    heads = nn.functional.one_hot(worlds, 3).double()
    text = "sort O; sort D = 0..2; func d(O) -> D; data r(x: O, y: O, n: Int); [s] forall t in r. d(t.x) + d(t.y) = t.n"
    data = {"O": 2, "r": {"x": torch.tensor([0]), "y": torch.tensor([1]), "n": torch.tensor([2])}}
    for shares in (torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.5, 0.25, 0.25]), torch.tensor([1.0, 0.0, 0.0])):
        p = (shares / shares.sum()).double()
        model = doxa.Model(text, "exact", **doxa.mixture(weights=doxa.probs(p), d=doxa.probs(heads)))
        found = model.diversity(**data)
        entropy = -torch.special.xlogy(p, p).sum()
        torch.testing.assert_close(found.high[0], math.log(3) - entropy)
        torch.testing.assert_close(found.low[0], math.log(3) - entropy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_certain_beliefs_and_where_nothing_can_hold(dtype: torch.dtype) -> None:
    text = "sort O; sort D = 0..2; func d(O) -> D; data r(x: O, y: O, n: Int); [s] forall t in r. d(t.x) + d(t.y) = t.n"
    sure = torch.tensor([[[80.0, 0, 0], [-math.inf, 0, 0]], [[0, 0, 90], [0, 1, 2]]], dtype=dtype, requires_grad=True)
    weights = torch.tensor([0.0, -math.inf], dtype=dtype, requires_grad=True)
    rows = {"x": torch.tensor([0, 0, 0]), "y": torch.tensor([1, 1, 1]), "n": torch.tensor([1, 0, 9])}
    for bound in (
        doxa.mixture(weights=doxa.logits(weights), d=doxa.logits(sure)),
        {"d": doxa.logits(sure[0])},
    ):
        model = doxa.Model(text, doxa.Exact(impossible="finite"), **bound)
        found = model.diversity(O=2, r=rows)
        assert bool(found.high.isfinite().all()) and bool((found.low >= 0).all())
        assert found.high[2].item() == found.high[1].item() == 0
        slopes = torch.autograd.grad(found.total, [sure, weights], allow_unused=True)
        assert all(slope is None or bool(slope.isfinite().all()) for slope in slopes)
        with pytest.raises(ProblemError, match="cannot hold in rows"):
            model.diversity(semantics="exact", O=2, r=rows)


def test_rows_that_a_guard_excludes_do_not_count() -> None:
    text = """sort O; sort D = 0..2; func d(O) -> D; data r(x: O, y: O, n: Int)
        [sum] forall t in r where t.n > 0. d(t.x) + d(t.y) = t.n"""
    digits = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = doxa.Model(text, "exact", d=doxa.logits(digits)).diversity(**DATA)
    assert found.high[3].item() == 0
    torch.testing.assert_close(found.total, found.high[:3].mean())


class Both(nn.Linear):
    """The weights of a mixture, from both objects."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(torch.cat([x, y], -1))


def test_a_task_trains_with_it_and_logs_it_apart(tmp_path: Path) -> None:
    """Which of two bits is which cannot be told from their parity: kept open, both worlds stay equally probable."""
    random = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 2, (128, 2), generator=random)
    images = torch.eye(2)[bits]
    text = """sort I; sort Bit = 0..1; func bit(I) -> Bit; data r(x: I, y: I, odd: Bit)
        [parity] forall t in r. (bit(t.x) + bit(t.y)) mod 2 = t.odd"""
    data = {"r": {"x": images[:, 0], "y": images[:, 1], "odd": bits.sum(1) % 2}}

    def symbols() -> Any:
        heads = nn.Sequential(nn.Linear(2, 4), nn.Unflatten(-1, (2, 2)))
        return doxa.mixture(weights=doxa.logits(Both(4, 2)), bit=doxa.logits(heads))

    fitting = Fitting(steps=150, learning_rate=0.05, log_every=10, evaluate_every=150)
    task = Task("bits", "Bits.", text, symbols, data, data, target="r.odd", fitting=fitting)
    lacking = {}
    for weight in (0.0, 1.0):
        run = train_task(task, "exact", tmp_path / str(weight), settings=[f"diversity={weight}"], progress=False)
        metrics = run.metrics_at(150)
        assert ("diversity" in metrics) == bool(weight)
        assert metrics["task_accuracy"] == 1.0
        _, _, model = open_run(run.path, task)
        lacking[weight] = model.diversity(**data).low.mean().item()
        if weight:
            assert metrics["loss"] >= metrics["diversity"] - 1e-6
    assert lacking[1.0] < 0.05
    with pytest.raises(ConfigError, match="diversity is -1"):
        train_task(task, "exact", tmp_path / "no", settings=["diversity=-1"], progress=False)
