"""Reports: one HTML file with its pictures inside, to be opened or sent as it is."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from doxa.errors import ConfigError
from doxa.train.runs._files import write_file
from doxa.train.runs._run import Run

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.3rem 0.8rem; border-bottom: 1px solid #ddd; }
figure { margin: 3rem 0; }
"""


@dataclass(frozen=True)
class Section:
    """A heading with a paragraph, a table (of names and values) and a picture under it, each where given."""

    title: str
    text: str = ""
    table: Mapping[str, object] | None = None
    png: bytes = b""


def blank(size: tuple[float, float]) -> Any:
    """An empty figure. No window and no global state of matplotlib is involved."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'doxa[report]', then start again") from error
    return Figure(figsize=size, layout="constrained")


def figure(
    rows: int, columns: int, *, size: tuple[float, float], projection: str | None = None
) -> tuple[Any, list[Any]]:
    """An empty figure and its axes, row by row."""
    drawing = blank(size)
    return drawing, list(drawing.subplots(rows, columns, squeeze=False, subplot_kw={"projection": projection}).flat)


def picture(drawing: Any, path: Path) -> bytes:
    """Save a figure, and return it as PNG."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=120)
    path.write_bytes(buffer.getvalue())
    return buffer.getvalue()


def write_page(path: Path, title: str, sections: Sequence[Section], run: Run) -> None:
    """Write the page; configuration, seed, versions and command of the run stand at its end."""
    about = {**run.config, "seed": run.seed, **run.versions, **run.machine, "command": " ".join(run.command)}
    closing = Section("How it was made", f"Started {run.started}.", about)
    body = "\n".join(_html(section) for section in (*sections, closing))
    write_html(path, title, body)


def write_html(path: Path, title: str, body: str) -> None:
    """Write a page, at once or not at all."""
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )
    write_file(path, page.encode())


def _html(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    if section.table is not None:
        parts.append(table_html(section.table))
    if section.png:
        parts.append(image_html(section.text or section.title, section.png))
    return "\n".join(parts)


def table_html(table: Mapping[str, object]) -> str:
    """A table of names and values."""
    cells = (f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in table.items())
    return f'<div class="wide"><table>{"".join(cells)}</table></div>'


def image_html(alt: str, png: bytes) -> str:
    """A picture, inside the page."""
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
