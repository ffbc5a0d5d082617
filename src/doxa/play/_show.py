"""What the page shows, as HTML: nothing that a user typed becomes markup."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

from doxa import fuzzy
from doxa.play._answers import Answer
from doxa.play._scene import Reasoning, Scene
from doxa.semantics import Explanation, RefinedBeliefs

STYLE = """<style>
.doxa {font: 14px/1.45 system-ui, sans-serif; overflow-x: auto}
.doxa table {border-collapse: collapse; margin: .2em 0 .8em}
.doxa th, .doxa td {padding: .15em .7em .15em 0; text-align: left; vertical-align: middle; white-space: nowrap}
.doxa th {font-weight: 600; opacity: .7} .doxa td.n {text-align: right; font-variant-numeric: tabular-nums}
.doxa pre {white-space: pre-wrap; font: 13px/1.4 ui-monospace, monospace; margin: .3em 0; color: inherit}
.doxa .bad {border-left: 3px solid #c0392b; padding-left: .7em}
.doxa .fine {border-left: 3px solid #27916b; padding-left: .7em}
.doxa .bar {display: inline-block; height: .8em; border-radius: 2px; vertical-align: middle}
.doxa .up {background: #27916b} .doxa .down {background: #c0392b} .doxa .plain {background: #4472b8}
.doxa .scale {display: inline-block; width: 160px; background: #8883; border-radius: 2px; line-height: .8em}
.doxa .axis {display: inline-block; width: 82px}
.doxa a {text-decoration: underline}
.doxa h4 {margin: .6em 0 .2em; font-size: 1em}
</style>"""
"""Colours with enough contrast on white and on black."""
LOUDEST = 40
"""So many atoms have a bar for their gradient: those that the loss depends on most."""


def part(body: str) -> str:
    """A piece of the page."""
    return f"{STYLE}<div class='doxa'>{body}</div>"


def message(text: str, kind: str = "bad") -> str:
    """Something that is said about the text, with its lines and caret as they are.

    >>> "&lt;b&gt;" in message("<b>")
    True
    """
    return part(f"<div class='{kind}'><pre>{escape(text)}</pre></div>")


def checked(scene: Answer[Scene]) -> str:
    """Whether the knowledge is fine, or what is wrong with it."""
    if scene.value is None:
        return message(scene.message)
    kb = scene.value.kb
    told = f"fine: {len(kb.axioms)} axiom{'' if len(kb.axioms) == 1 else 's'}, {len(scene.value.places)} atoms"
    return message("\n".join([told, *scene.value.warnings]), "fine" if not scene.value.warnings else "bad")


def beside(left: Answer[Reasoning], right: Answer[Reasoning], names: tuple[str, str]) -> str:
    """Truth and loss of every axiom under two semantics, and the gradient of the loss on every atom."""
    found = [answer.value for answer in (left, right)]
    said = "".join([message(f"{name}: {a.message}") for name, a in zip(names, (left, right), strict=True) if a.message])
    if not any(found):
        return said
    axioms = list(dict.fromkeys([row.axiom for f in found if f for row in f.axioms]))
    head = "".join([f"<th>truth, {escape(n)}</th><th>loss</th>" for n in names])
    rows = ""
    for axiom in axioms:
        cells = ""
        for f in found:
            row = next((r for r in f.axioms if r.axiom == axiom), None) if f else None
            cells += (
                f"<td>{_share(row.truth)}</td><td class='n'>{_number(row.loss)}</td>" if row else "<td></td><td></td>"
            )
        rows += f"<tr><td>{escape(axiom)}</td>{cells}</tr>"
    totals = "".join(
        [f"<td></td><td class='n'><b>{_number(f.loss)}</b></td>" if f else "<td></td><td></td>" for f in found]
    )
    table = f"<table><tr><th>axiom</th>{head}</tr>{rows}<tr><td>together</td>{totals}</tr></table>"
    return said + part(table + _gradients(found, names))


def _gradients(found: Sequence[Reasoning | None], names: tuple[str, str]) -> str:
    every = [f.gradients if f else {} for f in found]
    atoms = dict.fromkeys([atom for gradients in every for atom in gradients])
    loudest = sorted(
        atoms, key=lambda a: -max([abs(g.get(a, 0.0)) for g in every if math.isfinite(g.get(a, 0.0))] or [0])
    )
    kept = set(loudest[:LOUDEST])
    head = "".join([f"<th>which way {escape(n)} moves it</th><th></th>" for n in names])
    rows = ""
    for atom in [a for a in atoms if a in kept]:
        cells = "".join([_signed(-g.get(atom, 0.0), _largest(g)) if g else "<td></td><td></td>" for g in every])
        rows += f"<tr><td>{escape(atom)}</td>{cells}</tr>"
    rest = f"<p>and {len(atoms) - LOUDEST} more atoms with smaller gradients</p>" if len(atoms) > LOUDEST else ""
    return f"<table><tr><th>atom</th>{head}</tr>{rows}</table>{rest}" if atoms else ""


def _largest(gradients: Mapping[str, float]) -> float:
    return max([abs(g) for g in gradients.values() if math.isfinite(g)], default=0.0)


def _signed(value: float, largest: float) -> str:
    """A bar from the middle: to the right where training makes the atom more probable."""
    width = round(80 * abs(value) / largest) if largest and math.isfinite(value) else 0
    bar = f"<span class='bar {'up' if value > 0 else 'down'}' style='width:{width}px'></span>"
    left, right = ("", bar) if value > 0 else (bar, "")
    axis = f"<span class='axis' style='text-align:right'>{left}</span><span class='axis'>{right}</span>"
    return f"<td>{axis}</td><td class='n'>{_number(value)}</td>"


def _share(value: float) -> str:
    """A probability as a bar."""
    if math.isnan(value):
        return "a label"
    width = round(160 * min(max(value, 0.0), 1.0))
    return f"<span class='scale'><span class='bar plain' style='width:{width}px'></span></span> {value:.3f}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if value == math.inf else f"{value + 0.0:.3g}"


def refined(found: Answer[RefinedBeliefs]) -> str:
    """Beliefs before and after refinement."""
    if found.value is None:
        return message(found.message)
    r = found.value
    changed = [
        (a, b, c) for a, b, c in zip(r.atoms, r.before.tolist(), r.after.tolist(), strict=True) if abs(b - c) > 5e-4
    ]
    rows = "".join(
        [f"<tr><td>{escape(a)}</td><td>{_share(b)}</td><td>→ {_share(c)}</td></tr>" for a, b, c in changed[:60]]
    )
    told = (
        "everything holds when the refined beliefs are rounded" if r.satisfied else "not everything holds when rounded"
    )
    table = (
        f"<table><tr><th>atom</th><th>before</th><th>after</th></tr>{rows}</table>"
        if changed
        else "<p>nothing had to change</p>"
    )
    return part(f"<p>{told}</p>{table}")


def explained(found: Answer[list[Explanation]]) -> str:
    """The most probable worlds."""
    if found.value is None:
        return message(found.message)
    body = ""
    for e in found.value:
        where = ", ".join([f"{name} = {at}" for name, at in e.instance.items()]) or "the axiom"
        rows = "".join(
            [f"<tr><td>{_share(w.probability)}</td><td>{escape(_told(w.values))}</td></tr>" for w in e.worlds]
        )
        body += f"<h4>{escape(where)} <small>({escape(e.how)})</small></h4><table>{rows}</table>"
    return part(body or "<p>it has no instances here</p>")


def _told(values: Mapping[str, object]) -> str:
    return ", ".join([f"{name} = {value}" for name, value in values.items()]) or "nothing is uncertain"


def solved(found: Answer[tuple[dict[str, bool] | None, int | str]]) -> str:
    """Whether all can hold together."""
    if found.value is None:
        return message(found.message)
    model, number = found.value
    if model is None:
        return message("unsatisfiable: no world makes all of this true")
    true = [atom for atom, holds in model.items() if holds]
    told = f"satisfiable; worlds in which everything holds: {number if isinstance(number, str) else f'{number:,}'}"
    return message(f"{told}\none of them makes true: {', '.join(true[:60]) or 'nothing'}", "fine")


def text(found: Answer[object]) -> str:
    """What prints itself."""
    return message(found.message) if found.value is None else message(str(found.value), "fine")


KINDS: dict[str, Mapping[str, fuzzy.TNorm | fuzzy.TConorm | fuzzy.Implication | fuzzy.Aggregator]] = {
    "implications": fuzzy.IMPLICATIONS,
    "conjunctions": fuzzy.TNORMS,
    "disjunctions": {name: tnorm.dual for name, tnorm in fuzzy.TNORMS.items()},
    "aggregators": fuzzy.AGGREGATORS,
}
"""The operators that are drawn, by kind and name."""


def surface(kind: str, name: str) -> str:
    """An operator and its two derivatives, drawn as surfaces."""
    from doxa.reproduce.figures._surfaces import operator_panels, surfaces

    drawing = surfaces(operator_panels(name, KINDS[kind][name]), columns=3)
    with io.BytesIO() as file:
        drawing.savefig(file, format="png", dpi=70)
        return part(f"<img alt='{escape(name)}' style='max-width:100%;background:#fff' src='{_url(file.getvalue())}'>")


def _url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
