"""Galleries: named figures, drawn one by one into a folder with a page that shows them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa._html import pairs
from doxa.data import digits_task
from doxa.errors import ConfigError
from doxa.exact import Elimination
from doxa.problem import Belief, Explanations
from doxa.reproduce._amortized import load_learner
from doxa.reproduce._digits import believe
from doxa.reproduce._experiment import Given
from doxa.train.report._report import blank, picture, write_html
from doxa.train.runs._config import did_you_mean


@dataclass(frozen=True)
class Illustration:
    """A figure with its caption and the numbers it shows."""

    caption: str
    drawing: Any
    """A matplotlib ``Figure``."""
    numbers: Mapping[str, object] = field(default_factory=dict)


Gallery = Mapping[str, Callable[[], Illustration]]
"""Figures by name; each is drawn when its function is called."""


def write_gallery(folder: Path, title: str, gallery: Gallery, only: Sequence[str] = ()) -> Iterator[Path]:
    """Draw figures into ``NAME.png``, yielding each file as it is written, and last ``index.html``, which shows them.

    Args:
        folder: where to write; made if need be.
        title: the title of the page.
        gallery: the figures by name.
        only: the names of some of them; none means all.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     list(write_gallery(Path(folder), "Nothing", {}, only=["tree"]))
    Traceback (most recent call last):
    doxa.errors.ConfigError: there is no figure 'tree'; there are none
    """
    for name in only:
        if name not in gallery:
            hint = did_you_mean(name, gallery, 3, 0.4).strip() or f"there are {', '.join(gallery) or 'none'}"
            raise ConfigError(f"there is no figure {name!r}; {hint}")
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for name in [name for name in gallery if not only or name in only]:
        shown = gallery[name]()
        path = folder / f"{name}.png"
        picture(shown.drawing, path)
        parts.append(_html(name, path.name, shown))
        yield path
    page = folder / "index.html"
    write_html(page, title, "".join(parts))
    yield page


def _html(name: str, file: str, shown: Illustration) -> str:
    caption = escape(shown.caption)
    table = pairs({k: _shown(v) for k, v in shown.numbers.items()}) + "\n" if shown.numbers else ""
    return (
        f'<figure id="{escape(name)}">\n<img src="{escape(file)}" alt="{caption}">\n'
        f"<figcaption><b>{escape(name)}</b>: {caption}</figcaption>\n{table}</figure>\n"
    )


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
