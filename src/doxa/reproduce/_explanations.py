"""A gallery of explanations: images, the digits that are read, and the worlds that explain the sum they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from doxa.data import digits_task
from doxa.errors import ConfigError
from doxa.exact import Elimination
from doxa.problem import Belief, Explanations
from doxa.reproduce._amortized import load_learner
from doxa.reproduce._experiment import Given
from doxa.reproduce._reading import believe
from doxa.reproduce.figures._gallery import Gallery, Illustration
from doxa.train.report._page import blank


def explanation_figures(
    run: Path, *, data: Path | None = None, count: int = 4, k: int = 5, seed: int = 0, progress: bool = False
) -> Gallery:
    """Sums of test digits with the k best worlds for each, by an inference model that explains.

    The first few sums that are read right, ``right-1`` …, and the first few that are read wrong, ``wrong-1`` …, for
    which an explanation of the true sum says what should have been read. Beside q(w | y, P) stands the exact
    p(w | y, P).

    ``run`` is a folder of ``doxa reproduce addition --reasoner amortized``, variant ``explain`` or ``prune``; ``count``
    sums of each kind are drawn, made of test digits by ``seed``.
    """
    config, learner = load_learner(run)
    if not learner.inference.explains:
        raise ConfigError(
            f"{run} is of the variant {config.variant}, which predicts sums and explains none; "
            "train one with --variant explain or prune"
        )
    if count < 1 or k < 1:
        raise ConfigError(f"count is {count} and k {k}, expected at least 1")
    engine = learner.reasoner(config)
    exact = Elimination(engine.problem)
    mnist = Given(seed, data, progress).mnist()
    task = digits_task(mnist, engine.problem, split="test", seed=seed)
    with torch.no_grad():
        belief = Belief(
            torch.cat([believe(learner.perception, some).log_probs for some in torch.split(task.images, 500)]),
            validate=False,
        )
    right = (engine.predict(belief, method="symbolic") == task.outputs).all(-1)

    def illustrate(row: int) -> Callable[[], Illustration]:
        def draw() -> Illustration:
            own, told = belief[row], task.outputs[row]
            found = engine.explain(own, told, k, beams=max(k, config.beams))
            log_p = own.log_prob(found.worlds.clamp(min=0)) - exact.log_prob(own, told)
            return _illustration(task.images[row], own, told, found, log_p.exp())

        return draw

    return {
        f"{name}-{i + 1}": illustrate(row)
        for name, which in (("right", right), ("wrong", ~right))
        for i, row in enumerate(which.nonzero().flatten()[:count].tolist())
    }


def _illustration(images: Tensor, belief: Belief, told: Tensor, found: Explanations, exact: Tensor) -> Illustration:
    digits = len(images) // 2
    read = belief.mode()
    worlds = [(world, q, p) for world, q, p in zip(found.worlds, found.scores.exp(), exact, strict=True) if q > 0]
    names = [_written(world, digits) for world, _, _ in worlds]
    drawing = blank((max(5.0, 0.8 * digits + 3), 3.2 + 0.3 * len(worlds)))
    grid = drawing.add_gridspec(3, digits, height_ratios=[1, 1, 0.4 + 0.35 * max(1, len(worlds))])
    for i, image in enumerate(images):
        axes = drawing.add_subplot(grid[i // digits, i % digits])
        axes.imshow(image.numpy(), cmap="gray_r")
        axes.set_xticks([])
        axes.set_yticks([])
        sure = float(belief.probs[i, read[i]])
        axes.set_xlabel(f"{int(read[i])}\n{100 * sure:.0f} %" if digits < 8 else str(int(read[i])))
    axes = drawing.add_subplot(grid[2, :])
    places = torch.arange(len(worlds), 0, -1).double()
    axes.barh((places + 0.18).numpy(), [float(q) for _, q, _ in worlds], 0.34, label="q(w | y, P)", color="#e8833a")
    axes.barh((places - 0.18).numpy(), [float(p) for _, _, p in worlds], 0.34, label="p(w | y, P)", color="#b8b8b8")
    axes.set_yticks(places.numpy(), names)
    axes.set(xlim=(0, 1), xlabel="probability, given the sum")
    axes.legend(loc="lower right", fontsize=7)
    wanted, sum_read = _number(told), _written(read, digits)
    correct = sum(int(_number(n)) for n in (read[:digits], read[digits:])) == int(wanted)
    caption = (
        f"The sum is {wanted}. Digit by digit, {sum_read} is read, which is {'right' if correct else 'wrong'}. "
        f"The best worlds with this sum follow, as the model explains it and as exact inference has it."
    )
    numbers = {
        f"{i + 1}. {name}": f"q = {float(q):.4f}, p = {float(p):.4f}"
        for i, (name, (_, q, p)) in enumerate(zip(names, worlds, strict=True))
    }
    return Illustration(caption, drawing, {"sum": wanted, "read": sum_read, **numbers})


def _number(digits: Tensor) -> str:
    return "".join(map(str, digits.tolist())).lstrip("0") or "0"


def _written(world: Tensor, digits: int) -> str:
    return f"{_number(world[:digits])} + {_number(world[digits:])}"
