"""Path planning: every method learns, runs go on where they stopped, and the published maps are used where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tests.data.warcraft import write_warcraft
from torch import Tensor

from doxa.amortized import AmortizedReasoner
from doxa.data import map_tiles, optimal_paths, terrain_maps
from doxa.errors import ConfigError, DataError
from doxa.problem import Belief, path_moves, shortest_path
from doxa.reproduce import PATHS, reproduce
from doxa.reproduce import _paths as paths
from doxa.reproduce._paths import RLOO, ANeSI, ImplicitMLE, Method, PathsConfig, hamming
from doxa.train import Run

SMALL = PathsConfig(
    "rloo", size=6, steps=100, maps=800, batch_size=40, learning_rate=1e-2, evaluate_every=50, beliefs=50, channels=16
)
AMORTISED = replace(SMALL, method="a-nesi", inference_rate=5e-3, concentration=0.1, layers=2, pretrain=150, steps=250)
CONFIGS = {
    "supervised": replace(SMALL, method="supervised"),
    "neural": replace(SMALL, method="neural"),
    "rloo": SMALL,
    "imle": replace(SMALL, method="imle", samples=1),
    "a-nesi": replace(AMORTISED, method="a-nesi"),
    "a-nesi-rloo": replace(AMORTISED, method="a-nesi-rloo"),
    "a-nesi-control": replace(AMORTISED, method="a-nesi-control"),
    "a-nesi-moves": replace(AMORTISED, method="a-nesi", model="moves", channels=16),
}


def before_training(config: PathsConfig) -> tuple[float, float]:
    """Optimal test paths of a network that has learnt nothing, in percent, and its loss on them."""
    training, _, test = paths.load_maps(config, None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = paths.make_method(config, training.problem(), torch.Generator().manual_seed(0))
    loss = method(map_tiles(test.images), test.paths.flatten(1).long(), test.kinds.flatten(1).long())
    return paths.measure(method, test)["optimal"], loss.item()


SLOW = ("neural", "a-nesi", "a-nesi-rloo", "a-nesi-control", "a-nesi-moves")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in CONFIGS])
def test_every_method_learns(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    state = torch.random.get_rng_state()
    result = paths.train(config, tmp_path, seed=0, data=None, progress=False)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random state is left as it is"
    found, (optimal, loss) = result.metrics, before_training(config)
    print(f"\n{name}: {optimal:.0f} % optimal and loss {loss:.2f} before, {found} after training")
    if name in ("rloo", "a-nesi-control"):  # which easily get stuck with tiles that are all of one kind
        assert found["loss"] < 0.8 * loss
    else:
        assert found["optimal"] > optimal + 10
    assert found["same"] <= found["optimal"]
    assert ("tiles" in found) == (name != "neural")
    assert 40 < found["nearest_mean"] < 70
    if name == "supervised":
        assert found["tiles"] > 90
    again = paths.train(config, tmp_path, seed=0, data=None, progress=False)  # done already: only measured
    assert again.metrics == found


def test_the_model_of_moves_is_asked_for_moves_and_judged_by_cells() -> None:
    config = PathsConfig("a-nesi-rloo", 4, model="moves", channels=4)
    training = terrain_maps("train", 6, size=4, seed=0)
    method = ANeSI(config, training.problem(), torch.Generator().manual_seed(0))
    cells = training.paths.flatten(1).long()
    moves = path_moves(training.paths, 15)
    belief = Belief.from_logits(method.logits(map_tiles(training.images)))
    model, pruner = method.engine.model, method.engine.pruner
    assert pruner is not None
    log_q = torch.zeros(6)
    for k in range(15):  # move by move, by hand
        allowed = pruner.allowed(moves[:, :k])
        scores = model.scores(belief.log_probs.exp(), moves[:, : k + 1])[:, k].masked_fill(~allowed, -torch.inf)
        log_q = log_q + scores.log_softmax(-1).gather(1, moves[:, k : k + 1]).squeeze(1)
    torch.testing.assert_close(method.engine.loss(belief, moves), -log_q)
    other = cells.roll(1, 0)
    torch.testing.assert_close(method._cost(moves, moves.roll(1, 0)), hamming(cells, other))
    assert method(map_tiles(training.images), cells, cells).isfinite()
    with pytest.raises(ConfigError, match="expected 'cells' for a-nesi-control"):
        replace(config, method="a-nesi-control")


@pytest.mark.parametrize("name", ["rloo", "a-nesi-rloo", "a-nesi-control"])
def test_gradients_are_those_of_the_expected_cost(name: Literal["rloo", "a-nesi-rloo", "a-nesi-control"]) -> None:
    """Against Σ_w p(w) · cost(w) over all worlds of a small grid, with an inference model that has learnt nothing."""
    problem, noise = shortest_path(3, 3, costs=(10, 25)), torch.Generator().manual_seed(0)
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 9, 2, generator=random).requires_grad_()
    worlds = problem.worlds()
    cells = problem(worlds[torch.tensor([100, 300])])
    belief = Belief.from_logits(logits)
    chance = belief.log_probs[:, torch.arange(9), worlds].sum(-1).exp()  # (2, 512)
    exact = (chance * hamming(problem(worlds), cells.unsqueeze(1))).sum(-1).mean()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = PathsConfig(name, 3, samples=300, concentration=1.0, channels=8, layers=1)
        method: Method = (RLOO if name == "rloo" else ANeSI)(config, problem, noise)
        if name == "a-nesi-rloo":
            exact = exact + method.engine.loss(belief, cells).mean()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    method.logits = lambda tiles: logits  # type: ignore[method-assign]
    tiles = torch.zeros(2, 9, 3, 8, 8)
    draws = torch.stack([torch.autograd.grad(method(tiles, cells, cells), logits)[0] for _ in range(60)])
    error = draws.std(0) / 60**0.5
    assert wanted.abs().max() > 20 * error.max(), "the gradient is seen above the noise"
    assert ((draws.mean(0) - wanted).abs() < 5 * error + 1e-6).all()


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [(AmortizedReasoner, "inference_loss", 17), (ANeSI, "forward", 12)],
    ids=["pretraining", "later"],
)
def test_a_run_that_was_stopped_ends_the_same(
    owner: type, name: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(
        AMORTISED, method="a-nesi-rloo", pretrain=25, steps=45, maps=100, evaluate_every=5, batch_size=10, beliefs=8
    )
    whole = paths.train(config, tmp_path / "whole", seed=1, data=None, progress=False)
    original, calls = getattr(owner, name), 0

    def failing(*arguments: Any, **named: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stop
        found: Tensor = original(*arguments, **named)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises(Stop):
            paths.train(config, tmp_path / "parts", seed=1, data=None, progress=False)
    assert Run.open(tmp_path / "parts").load().step < 45
    parts = paths.train(config, tmp_path / "parts", seed=1, data=None, progress=False)
    assert parts.metrics == whole.metrics and parts.prefix == whole.prefix
    one, two = Run.open(tmp_path / "whole"), Run.open(tmp_path / "parts")
    assert one.metrics() == two.metrics()
    a, b = one.load().state["method"], two.load().state["method"]
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_the_inference_model_is_held_fixed_after_pretraining(tmp_path: Path) -> None:
    config = replace(AMORTISED, method="a-nesi", pretrain=9, steps=10, maps=100, evaluate_every=1, beliefs=8)
    paths.train(config, tmp_path / "one", seed=0, data=None, progress=False)
    paths.train(replace(config, steps=12), tmp_path / "two", seed=0, data=None, progress=False)
    one, two = (Run.open(tmp_path / name).load().state["method"] for name in ("one", "two"))
    for key in one:
        assert torch.equal(one[key], two[key]) == key.startswith("engine."), key


def test_the_gradient_of_imle_is_that_of_two_paths() -> None:
    """∂L/∂cost = (z(u - λ∇) - z(u)) / λ: with a long reach, the true path against the one that was found."""
    maps = terrain_maps("train", 6, size=6)
    config = PathsConfig("imle", 6, samples=1, deviation=1e-6, reach=1e4)
    method = ImplicitMLE(config, maps.problem(), torch.Generator().manual_seed(0))
    tiles, cells = map_tiles(maps.images), maps.paths.flatten(1).long()
    random = torch.Generator().manual_seed(1)
    costs = (10 + 80 * torch.rand(6, 36, generator=random)).requires_grad_()
    method.costs = lambda tiles: costs  # type: ignore[method-assign]
    loss = method(tiles, cells, maps.kinds.flatten(1).long())
    (gradient,) = torch.autograd.grad(loss, costs)
    found = method.plan(tiles).flatten(1).float()
    assert loss.item() == pytest.approx(hamming(found.long(), cells).mean().item())
    torch.testing.assert_close(gradient, (cells.float() - found) / 1e4 / 6)


def test_published_maps(tmp_path: Path) -> None:
    config = replace(SMALL, steps=3, maps=20, warcraft=True, batch_size=5)
    for split, n in (("train", 20), ("val", 2), ("test", 2)):
        write_warcraft(terrain_maps(split, n, size=6, seed=9), tmp_path / "6x6", split)
    result = paths.train(config, tmp_path / "run", seed=0, data=tmp_path, progress=False)
    assert 0 <= result.metrics["optimal"] <= 100
    with pytest.raises(DataError, match="name the folder"):
        paths.train(config, tmp_path / "a", seed=0, data=None, progress=False)
    with pytest.raises(DataError, match="generates its maps"):
        paths.train(replace(config, warcraft=False), tmp_path / "b", seed=0, data=tmp_path, progress=False)
    with pytest.raises(DataError, match="has 20 train maps, expected 30"):
        paths.train(replace(config, maps=30), tmp_path / "c", seed=0, data=tmp_path, progress=False)


def test_entries(tmp_path: Path) -> None:
    names = [entry.name for entry in PATHS.entries]
    assert len(names) == len(set(names)) == 32
    for entry in PATHS.entries:
        assert entry.config.warcraft == entry.name.startswith("warcraft")
        assert entry.config.steps > entry.config.pretrain
        assert bool(entry.published) == (entry.config.method not in ("supervised", "a-nesi-control"))
    (rloo,) = PATHS.select(["warcraft-12/rloo"])
    assert (rloo.config.batch_size, rloo.config.learning_rate, rloo.config.samples) == (70, 5e-4, 10)
    short = replace(rloo, name="terrain-12/rloo", config=replace(SMALL, steps=2, maps=20))
    (result,) = reproduce(PATHS, [short], seeds=[0], out=tmp_path, progress=False)
    assert "43.75" in PATHS.table([result], [short]).markdown()


def test_bad_configurations() -> None:
    for change, message in [
        ({"method": "magic"}, "method is 'magic'"),
        ({"steps": 0}, "steps is 0"),
        ({"deviation": -1.0}, "deviation is -1"),
        ({"pretrain": 5}, "pretrain is 5, expected 0 or more, and 0 for rloo"),
    ]:
        with pytest.raises(ConfigError, match=message):
            replace(SMALL, **change)  # type: ignore[arg-type]


def test_optimal_paths_judge_plans() -> None:
    """The number that is reported is that of plans whose true cost is the least."""
    maps = terrain_maps("test", 30, size=6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = paths.make_method(SMALL, maps.problem(), torch.Generator())
    with torch.no_grad():
        plan = method.plan(map_tiles(maps.images))
    assert paths.measure(method, maps)["optimal"] == pytest.approx(
        100 * optimal_paths(plan, maps.costs).double().mean().item()
    )
