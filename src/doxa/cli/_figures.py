"""``doxa figures``: the figures of a chapter, drawn anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from doxa.cli._output import say, say_json

if TYPE_CHECKING:
    from doxa.experiments import Gallery

Topic = Literal["fuzzy", "refine"]


@dataclass(frozen=True)
class Figures:
    """Draw the figures of a chapter anew: a PNG for each, and a page that shows them with their numbers."""

    topic: Positional[Topic]
    """fuzzy: differentiable fuzzy logics (Chapter 3). refine: what refinement does to a prediction (Chapter 4)."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("figures")
    """The folder for the pictures and their index.html."""
    only: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these figures."""
    seed: int = 0
    """The seed of whatever is sampled."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.experiments import write_gallery

        title, gallery = _gallery(self.topic, self.seed)
        files = []
        for path in write_gallery(self.out, title, gallery, self.only):
            files.append(str(path))
            if not self.json:
                say(str(path))
        if self.json:
            say_json({"files": files})
        return 0


def _gallery(topic: Topic, seed: int) -> tuple[str, Gallery]:
    """The title and the figures of a topic."""
    if topic == "fuzzy":
        from doxa.experiments import fuzzy_figures

        return "Differentiable fuzzy logics: the figures", fuzzy_figures(seed)
    from doxa.experiments import refine_figures

    return "Refinement: the figures", refine_figures()
