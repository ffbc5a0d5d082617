"""Markup for notebooks and pages: what every room shows itself with.

Text becomes markup in one place: :func:`markup` escapes it, and all functions here call it on whatever is not
:class:`Html` already. So no text of a user is ever read as markup. Nothing is fetched from elsewhere, and no script
runs. Colours are middle tones that are readable on light and on dark; where the theme is known, they are stronger.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence

from doxa.errors import visible

_TONES = {  # name: middle, on light, on dark
    "predicate": ("#2b7fc4", "#0b5cab", "#79b8ff"),
    "function": ("#1c8a6a", "#006b4f", "#5fd3ae"),
    "sort": ("#9a63c9", "#7a3ab3", "#cfa6f2"),
    "constant": ("#b3701c", "#8a4b00", "#f0b866"),
    "data": ("#b3701c", "#8a4b00", "#f0b866"),
    "variable": ("#c2557e", "#a12a5e", "#f39ac0"),
    "keyword": ("#767c87", "#4b5363", "#aab2c0"),
    "comment": ("#7d8590", "#68707a", "#929aa5"),
    "good": ("#2e8b57", "#06623b", "#6fd49b"),
    "bad": ("#cc5d45", "#a8321a", "#ff9a85"),
    "bar": ("#4a90d9", "#4a90d9", "#4a90d9"),
}
_DARK = "body[data-jp-theme-light=false], .vscode-dark, .dark, [data-md-color-scheme=slate]"
_LIGHT = "body[data-jp-theme-light=true], .vscode-light, .light, [data-md-color-scheme=default]"


def _tones(column: int) -> str:
    return "; ".join(f"--doxa-{name}: {tones[column]}" for name, tones in _TONES.items())


def _under(roots: str) -> str:
    return ", ".join(f"{root.strip()} .doxa" for root in roots.split(", "))


STYLE = f"""
.doxa {{ {_tones(0)}; line-height: 1.5; }}
{_under(_LIGHT)} {{ {_tones(1)}; }}
{_under(_DARK)} {{ {_tones(2)}; }}
.doxa .wide {{ overflow-x: auto; }}
.doxa table {{ border-collapse: collapse; font-size: inherit; margin: 0.3em 0; border: 0; }}
.doxa th, .doxa td {{ text-align: left; padding: 0.2em 0.8em 0.2em 0; border: 0; vertical-align: top; }}
.doxa th {{ font-weight: 600; border-bottom: 1px solid rgba(128, 128, 128, 0.5); }}
.doxa tr, .doxa tr:nth-child(even) {{ background: none; }}
.doxa td + td, .doxa th + th {{ padding-left: 0.4em; }}
.doxa table.numbers td, .doxa table.numbers th {{ text-align: right; font-variant-numeric: tabular-nums; }}
.doxa table.numbers tr > :first-child {{ text-align: left; }}
.doxa pre, .doxa code {{ font-family: ui-monospace, "DejaVu Sans Mono", monospace; background: none; color: inherit; }}
.doxa pre {{ white-space: pre-wrap; margin: 0.3em 0; padding: 0; border: 0; }}
.doxa pre.code {{ white-space: pre; overflow-x: auto; }}
.doxa .formula {{ font-family: "STIX Two Math", "Latin Modern Math", "Cambria Math", "DejaVu Serif", serif; }}
.doxa p {{ margin: 0.3em 0; }} .doxa .title {{ font-weight: 600; }} .doxa .quiet {{ opacity: 0.75; }}
{" ".join(f".doxa .{name} {{ color: var(--doxa-{name}); }}" for name in _TONES if name != "bar")}
.doxa .formula .variable {{ font-style: italic; }}
.doxa .track {{ display: inline-block; width: 8em; height: 0.7em; background: rgba(128, 128, 128, 0.25); \
border-radius: 0.2em; overflow: hidden; vertical-align: baseline; margin-right: 0.5em; }}
.doxa .track > span {{ display: block; height: 100%; background: var(--doxa-bar); }}
.doxa svg {{ max-width: 100%; height: auto; }}
"""

_PAGE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } img { max-width: 100%; height: auto; background: white; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.3rem 0.8rem; border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
figure { margin: 3rem 0; }
table.numbers td, table.numbers th { text-align: right; font-variant-numeric: tabular-nums; }
table.numbers tr > :first-child { text-align: left; font-weight: 600; }
body > pre, section pre, figure pre { background: rgba(128, 128, 128, 0.1); padding: 0.8rem; overflow-x: auto; \
font-size: 0.85rem; }
.held { color: #06623b; background: #e3f5ea; padding: 0 0.4rem; border-radius: 0.3rem; }
.broken { color: #8a4b00; background: #fdf0db; padding: 0 0.4rem; border-radius: 0.3rem; }
.warning { color: #222; background: #fdf0db; padding: 0.6rem 0.8rem; border-left: 4px solid #d98c00; }
.examples { display: flex; flex-wrap: wrap; gap: 1rem; }
.examples figure { margin: 0; width: 17.3rem; box-sizing: border-box; padding: 0.6rem; \
border: 1px solid rgba(128, 128, 128, 0.3); }
.examples pre { font-size: 0.75rem; white-space: pre-wrap; }
.side { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.side img { max-height: 24rem; width: auto; }
section { border-top: 2px solid rgba(128, 128, 128, 0.3); margin-top: 2.5rem; }
"""


ROWS = 200
"""So many rows of a table are shown."""


class Html(str):
    """Text that is markup already.

    >>> markup("a < b"), markup(Html("<b>bold</b>"))
    ('a &lt; b', '<b>bold</b>')
    """

    __slots__ = ()


def markup(value: object) -> Html:
    """A value as markup: escaped, what cannot be seen made visible, unless it is markup already."""
    return value if isinstance(value, Html) else Html(_escaped(visible(str(value), keep="\n\t")))


def _escaped(text: str) -> str:
    from html import escape  # whose module makes tables of all named characters

    return escape(text)


def span(kind: str, value: object) -> Html:
    """A value in the colour of its kind: a kind of symbol, "good", "bad" or "quiet"."""
    return Html(f'<span class="{_escaped(kind)}">{markup(value)}</span>')


def line(*parts: object, kind: str = "") -> Html:
    """A paragraph."""
    opening = f'<p class="{_escaped(kind)}">' if kind else "<p>"
    return Html(f"{opening}{''.join(map(markup, parts))}</p>")


def pre(value: object, kind: str = "") -> Html:
    """Text with its line breaks."""
    opening = f'<pre class="{_escaped(kind)}">' if kind else "<pre>"
    return Html(f"{opening}{markup(value)}</pre>")


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: bool = False, limit: int = ROWS
) -> Html:
    """Rows under their names, at most ``limit``; of ``numbers``, the first column says what they are of.

    >>> table(["name", "truth"], [["a < b", 0.5]])
    '<div class="wide"><table><tr><th>name</th><th>truth</th></tr><tr><td>a &lt; b</td><td>0.5</td></tr></table></div>'
    """
    lines = [f"<tr>{''.join(f'<th>{markup(cell)}</th>' for cell in head)}</tr>"] if head else []
    every = list(rows)
    lines += [f"<tr>{''.join(f'<td>{markup(cell)}</td>' for cell in row)}</tr>" for row in every[:limit]]
    lines += [f"<tr><td>… and {len(every) - limit:,} more</td></tr>"] if len(every) > limit else []
    return Html(f'<div class="wide"><table{" class=numbers" if numbers else ""}>{"".join(lines)}</table></div>')


def pairs(values: Mapping[str, object]) -> Html:
    """A table of names and values."""
    cells = [f"<tr><th>{markup(k)}</th><td>{markup(v)}</td></tr>" for k, v in values.items()]
    return Html(f'<div class="wide"><table>{"".join(cells)}</table></div>')


def number(value: float, digits: int = 2) -> str:
    """A number as it is read: few digits, nothing that is not 0 as 0, nothing that is not 1 as 1.

    >>> number(0.999), number(1.0), number(0.001), number(0.25), number(float("nan"))
    ('>0.99', '1.00', '<0.01', '0.25', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    near = 10.0**-digits
    if 0 < abs(value) < near:
        return f"<{near:.{digits}f}" if value > 0 else f">-{near:.{digits}f}"
    return f">{1 - near:.{digits}f}" if 1 - near < value < 1 else f"{value:.{digits}f}"


def bar(value: float, top: float = 1.0, *, label: str | None = None) -> Html:
    """A number as a bar, and beside it in figures.

    >>> "width: 25.0%" in bar(0.25) and bar(0.25).endswith("0.25")
    True
    """
    share = min(max(value / top, 0.0), 1.0) if math.isfinite(value) and top > 0 else float(value > 0)
    full = f'<span class="track"><span style="width: {100 * share:.1f}%"></span></span>'
    return Html(full + markup(number(value) if label is None else label))


def image(alt: str, png: bytes) -> Html:
    """A picture, inside the page."""
    return Html(f'<img alt="{markup(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">')


def more(shown: int, of: int, what: str) -> list[Html]:
    """A remark on what is left out, where something is."""
    return [line(f"… and {of - shown:,} more {what}", kind="quiet")] if of > shown else []


def box(*parts: object, title: object = "") -> str:
    """What a notebook shows of an object: its parts one below the other, under a title."""
    heading = line(title, kind="title") if title else ""
    return f'<div class="doxa"><style>{STYLE}</style>{heading}{"".join(map(markup, parts))}</div>'


def said(shown: object) -> str:
    """What a notebook shows of an object that prints as words: the words."""
    return box(pre(shown))


class Shown:
    """Markup that notebooks show."""

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        return self.html


class ShownModule:
    """A module that marimo shows as other notebooks do, and not in its own way for modules."""

    def _display_(self) -> Shown:
        html: str = self._repr_html_()  # type: ignore[attr-defined]
        return Shown(html)


class Said(str):
    """Text that notebooks show with its line breaks; elsewhere it is text.

    >>> Said("one < two")._repr_html_().endswith("<pre>one &lt; two</pre></div>")
    True
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return said(str(self))


def page(title: str, body: str) -> str:
    """A whole page, light or dark as the reader has it; the body is markup."""
    themes = [(1, "light"), (2, "dark")]
    chosen = [f"@media (prefers-color-scheme: {t}) {{ body .doxa {{ {_tones(i)}; }} }}" for i, t in themes]
    style = "\n".join([STYLE, _PAGE, *chosen])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{markup(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{style}</style>\n</head>\n'
        f"<body>\n<h1>{markup(title)}</h1>\n{body}\n</body>\n</html>\n"
    )
