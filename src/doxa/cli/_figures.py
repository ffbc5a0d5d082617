"""``doxa figures``: the figures of a chapter, drawn anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from doxa.cli._output import Command, say, say_json
from doxa.errors import ConfigError

if TYPE_CHECKING:
    from doxa.reproduce.figures._gallery import Gallery

Topic = Literal["fuzzy", "refine", "explanations"]


@dataclass(frozen=True)
class Figures(Command):
    """Draw the figures of a chapter anew: a PNG for each, and a page that shows them with their numbers."""

    topic: Positional[Topic]
    """fuzzy: differentiable fuzzy logics (Chapter 3). refine: what refinement does to a prediction (Chapter 4).
    explanations: which digits explain a sum (Chapter 6)."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("figures")
    """The folder for the pictures and their index.html."""
    only: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these figures."""
    seed: int = 0
    """The seed of whatever is sampled."""
    trained: Annotated[Path | None, arg(name="run", metavar="DIR")] = None
    """For explanations: the folder of a run of addition by amortized reasoning, variant explain or prune."""
    data: Path | None = None
    """For explanations: a folder with digits of your own."""

    def run(self) -> int:
        from doxa.reproduce import write_gallery

        title, gallery = self._gallery()
        files = []
        for path in write_gallery(self.out, title, gallery, self.only):
            files.append(str(path))
            if not self.json:
                say(str(path))
        if self.json:
            say_json({"files": files})
        return 0

    def _gallery(self) -> tuple[str, Gallery]:
        from doxa import reproduce

        if self.topic == "fuzzy":
            return "Differentiable fuzzy logics: the figures", reproduce.fuzzy_figures(self.seed)
        if self.topic == "refine":
            return "Refinement: the figures", reproduce.refine_figures()
        from doxa.reproduce.figures._gallery import explanation_figures

        if self.trained is None:
            raise ConfigError(
                "explanations are those of a trained model: make one with `doxa reproduce addition --reasoner amortized"
                " --variant prune -N 1`, then name its folder with --run"
            )
        return "Which digits explain a sum", explanation_figures(self.trained, data=self.data, seed=self.seed)
