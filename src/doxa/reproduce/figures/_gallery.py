"""Galleries: named figures, drawn one by one into a folder with a page that shows them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from html import escape
from pathlib import Path
from typing import Any

from doxa.errors import ConfigError
from doxa.train.report._page import picture, write_html


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
            near = get_close_matches(name, gallery, 3, 0.4)
            hint = (
                f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(gallery) or 'none'}"
            )
            raise ConfigError(f"there is no figure {name!r}; {hint}")
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, draw in gallery.items():
        if only and name not in only:
            continue
        shown = draw()
        path = folder / f"{name}.png"
        picture(shown.drawing, path)
        parts.append(_html(name, path.name, shown))
        yield path
    page = folder / "index.html"
    write_html(page, title, "".join(parts))
    yield page


def _html(name: str, file: str, shown: Illustration) -> str:
    caption = escape(shown.caption)
    cells = (f"<tr><th>{escape(k)}</th><td>{escape(_shown(v))}</td></tr>" for k, v in shown.numbers.items())
    table = f'<div class="wide"><table>{"".join(cells)}</table></div>\n' if shown.numbers else ""
    return (
        f'<figure id="{escape(name)}">\n<img src="{escape(file)}" alt="{caption}">\n'
        f"<figcaption><b>{escape(name)}</b>: {caption}</figcaption>\n{table}</figure>\n"
    )


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
