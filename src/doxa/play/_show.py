"""What the page shows, as HTML: objects show themselves, and nothing that a user typed becomes markup."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

from doxa import fuzzy
from doxa._html import Html, bar, box, image, line, more, pre, table
from doxa.play._answers import Answer
from doxa.play._scene import Reasoning, Scene
from doxa.play._state import State

LOUDEST = 40
"""So many atoms have a bar for their gradient: those that the loss depends on most."""


def message(text: str, kind: str = "bad") -> str:
    """Something that is said about the text, with its lines and caret as they are.

    >>> "&lt;b&gt;" in message("<b>")
    True
    """
    return box(pre(text, kind))


def answered(found: Answer[object]) -> str:
    """What was found, as it shows itself in notebooks; one below the other where there are several."""
    if found.value is None:
        return message(found.message)
    every = found.value if isinstance(found.value, list) else [found.value]
    return "".join([v._repr_html_() if hasattr(v, "_repr_html_") else message(str(v), "") for v in every])


def checked(scene: Answer[Scene]) -> str:
    """Whether the knowledge is fine, or what is wrong with it."""
    if scene.value is None:
        return message(scene.message)
    kb = scene.value.kb
    told = f"fine: {len(kb.axioms)} axiom{'' if len(kb.axioms) == 1 else 's'}, {len(scene.value.places)} atoms"
    return message(told, "good") + (message("\n".join(scene.value.warnings)) if scene.value.warnings else "")


def solved(found: Answer[tuple[dict[str, bool] | None, int | str]]) -> str:
    """Whether all can hold together."""
    if found.value is None:
        return message(found.message)
    model, number = found.value
    if model is None:
        return message("unsatisfiable: no world makes all of this true")
    true = [atom for atom, holds in model.items() if holds]
    told = f"satisfiable; worlds in which everything holds: {number if isinstance(number, str) else f'{number:,}'}"
    return message(f"{told}\none of them makes true: {', '.join(true[:60]) or 'nothing'}", "good")


def beside(left: Answer[Reasoning], right: Answer[Reasoning], names: tuple[str, str]) -> str:
    """Truth and loss of every axiom under two semantics, and the gradient of the loss on every atom."""
    found = [answer.value for answer in (left, right)]
    said = [message(f"{name}: {a.message}") for name, a in zip(names, (left, right), strict=True) if a.message]
    if not any(found):
        return "".join(said)
    rows: list[list[object]] = []
    for axiom in dict.fromkeys([row.axiom for f in found if f for row in f.axioms]):
        row: list[object] = [axiom]
        for f in found:
            own = next((r for r in f.axioms if r.axiom == axiom), None) if f else None
            row += [_truth(own.truth), _number(own.loss)] if own else ["", ""]
        rows.append(row)
    rows.append(["together", *[cell for f in found for cell in ("", _number(f.loss) if f else "")]])
    head = ["axiom", *[cell for name in names for cell in (f"truth, {name}", "loss")]]
    return "".join(said) + box(table(head, rows), *_gradients(found, names))


def _gradients(found: Sequence[Reasoning | None], names: tuple[str, str]) -> list[Html]:
    every = [f.gradients if f else {} for f in found]
    tops = [max([abs(g) for g in own.values() if math.isfinite(g)], default=0.0) for own in every]
    tops = [top if top > 1e-6 else 0.0 for top in tops]
    atoms = list(dict.fromkeys([atom for own in every for atom in own]))
    loudest = sorted(
        atoms, key=lambda a: -max([abs(own.get(a, 0.0)) / (t or 1) for own, t in zip(every, tops, strict=True)])
    )
    kept = [atom for atom in atoms if atom in set(loudest[:LOUDEST])]
    rows = []
    for atom in kept:
        cells = [
            [_signed(-own[atom], top), _number(-own[atom])] if own else ["", ""]
            for own, top in zip(every, tops, strict=True)
        ]
        rows.append([atom, *[cell for pair in cells for cell in pair]])
    head = ["atom", *[cell for name in names for cell in (f"which way {name} moves it", "")]]
    return [table(head, rows), *more(len(kept), len(atoms), "atoms with smaller gradients")] if atoms else []


def _signed(value: float, top: float) -> Html:
    """A bar from the middle: to the right where training makes the atom more probable."""
    share = 50 * abs(value) / top if top and math.isfinite(value) else 0.0
    tone, start = ("good", 50.0) if value > 0 else ("bad", 50.0 - share)
    style = f"width: {share:.1f}%; margin-left: {start:.1f}%; background: var(--doxa-{tone})"
    return Html(f'<span class="track"><span style="{style}"></span></span>')


def _truth(value: float) -> object:
    return "a label" if math.isnan(value) else bar(value, label=f"{value:.3f}")


def _number(value: float) -> str:
    if abs(value) < 1e-6:  # what rounding leaves of 0
        return "0"
    return "–" if math.isnan(value) else "∞" if value == math.inf else f"{value:.3g}"


def link(state: State) -> str:
    """A link to the page as it is."""
    anchor = Html(f'<a href="?state={state.encode()}" style="text-decoration: underline">this state</a>')
    return box(line("This link shows the page as it is now: ", anchor))


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
        return box(image(name, file.getvalue()))
