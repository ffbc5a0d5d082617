# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The page of the playground, as a marimo app: controls, and what `doxa.play` says about them."""

import marimo

app = marimo.App(width="full", app_title="doxa playground")


@app.cell
def _():
    import marimo as mo

    from doxa.play import State, ask
    from doxa.play import _show as show
    from doxa.play._examples import examples, first_file, first_state, read_text
    from doxa.play._scene import MOST_OBJECTS, Scene
    from doxa.play._show import KINDS

    memory = {}  # beliefs by atom, so that sliders keep their place while the text changes
    return KINDS, MOST_OBJECTS, Scene, State, ask, examples, first_file, first_state, memory, mo, read_text, show


@app.cell
def _(State, ask, examples, first_state, memory, mo, show):
    _code = mo.query_params().get("state")
    _linked = ask(lambda: State.decode(str(_code))) if _code else None
    begun = _linked.value if _linked is not None and _linked.value is not None else first_state()
    memory.update(begun.beliefs)
    known = examples()
    shelf = mo.ui.dropdown(list(known), label="an example", value=None)
    mo.vstack(
        [
            mo.md(
                "# doxa playground\n"
                "Write what you know, move what is believed, and see what every semantics makes of it."
            ),
            mo.Html(show.message(_linked.message)) if _linked is not None and _linked.message else mo.Html(""),
            shelf,
        ]
    )
    return begun, known, shelf


@app.cell
def _(begun, first_file, known, memory, mo, read_text, shelf):
    if shelf.value:
        memory.clear()
    file = str(known[shelf.value] if shelf.value else first_file())
    editor = mo.ui.code_editor(
        read_text(known[shelf.value]) if shelf.value else begun.text,
        language="text",
        min_height=320,
        max_height=560,
        debounce=250,
        label="knowledge",
    )
    again = mo.ui.button(value=begun.seed, on_click=lambda value: value + 1, label="random beliefs")
    table = mo.ui.file(filetypes=[".csv"], label="beliefs from a CSV table", max_size=1_000_000)
    return again, editor, file, table


@app.cell
def _(Scene, again, ask, begun, editor, file):
    # The knowledge alone, to find out which sorts are open.
    outline = ask(lambda: Scene(editor.value, None, begun.counts, again.value, file))
    return (outline,)


@app.cell
def _(MOST_OBJECTS, begun, mo, outline):
    _found = outline.value.open if outline.value is not None else {}
    counts = mo.ui.dictionary(
        {
            name: mo.ui.slider(
                0, MOST_OBJECTS, value=min(begun.counts.get(name, size), MOST_OBJECTS), label=name, show_value=True
            )
            for name, size in _found.items()
        }
    )
    return (counts,)


@app.cell
def _(Scene, again, ask, counts, editor, file, memory, table):
    if again.value and memory.get("seed") not in (None, again.value):
        memory.clear()
    memory["seed"] = again.value
    _kept = {name: value for name, value in memory.items() if name != "seed"}
    _bare = ask(lambda: Scene(editor.value, _kept, counts.value, again.value, file))
    given = ask(lambda: _bare.value.read_beliefs(table.contents().decode()) if _bare.value and table.value else {})
    drawn = ask(lambda: Scene(editor.value, {**_kept, **(given.value or {})}, counts.value, again.value, file))
    return drawn, given


@app.cell
def _(drawn, mo):
    _first = dict(list(drawn.value.beliefs.items())[:60]) if drawn.value is not None else {}
    sliders = mo.ui.dictionary(
        {
            name: mo.ui.slider(0, 1, step=0.01, value=round(value, 2), label=name, show_value=True)
            for name, value in _first.items()
        }
    )
    return (sliders,)


@app.cell
def _(Scene, again, ask, counts, drawn, editor, file, memory, sliders):
    if sliders.value:
        memory.update(sliders.value)
    _believed = {**(drawn.value.beliefs if drawn.value is not None else {}), **sliders.value}
    scene = ask(lambda: Scene(editor.value, _believed, counts.value, again.value, file))
    return (scene,)


@app.cell
def _(again, counts, drawn, editor, given, mo, scene, show, sliders, table):
    _more = len(drawn.value.places) - len(sliders.value) if drawn.value is not None else 0
    _wrong = mo.Html(show.message(given.message)) if given.message else ""
    _heading = "<b>What is believed</b>" if sliders.value else ""
    _believed = "".join([f"<div>{slider}</div>" for slider in sliders.values()])
    _rest = f"and {_more} more atoms, at random; a CSV table sets them" if _more else ""
    _sizes = "".join([f"<div>{slider}</div>" for slider in counts.values()])
    mo.Html(
        "<div style='display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.5rem'>"
        f"<div style='min-width:0'>{editor}{show.checked(scene)}</div>"
        f"<div style='min-width:0'>{again} {table}{_wrong}{_sizes}<p>{_heading}</p>"
        f"<div style='max-height:26rem;overflow-y:auto'>{_believed}{_rest}</div></div></div>"
    )
    return


@app.cell
def _(begun, mo):
    _words = ["exact", "fuzzy", "fuzzy:product", "fuzzy:godel", "fuzzy:lukasiewicz", "fuzzy:ltn", "fuzzy:goguen"]
    _words += ["refined", "sampled", "amortized", "classical"]
    _words += [w for w in begun.semantics if w not in _words]
    one = mo.ui.dropdown(_words, value=begun.semantics[0], label="semantics", allow_select_none=False)
    two = mo.ui.dropdown(_words, value=begun.semantics[1], label="beside", allow_select_none=False)
    mo.hstack([one, two], justify="start")
    return one, two


@app.cell
def _(ask, mo, one, scene, show, two):
    def reasoned(word):
        return ask(lambda: scene.value.reason(word))

    shown = (
        mo.Html(show.beside(reasoned(one.value), reasoned(two.value), (one.value, two.value)))
        if scene.value
        else mo.Html("")
    )
    shown
    return


@app.cell
def _(KINDS, mo, scene):
    _axioms = [a.name for a in scene.value.kb.axioms] if scene.value else []
    chosen = mo.ui.dropdown(_axioms, value=_axioms[0] if _axioms else None, label="axiom")
    logic = mo.ui.dropdown(
        ["godel", "lukasiewicz", "product"], value="godel", label="refine with", allow_select_none=False
    )
    doctor = mo.ui.dropdown(
        ["product", "godel", "lukasiewicz", "log_product", "ltn"],
        value="product",
        label="logic",
        allow_select_none=False,
    )
    question = mo.ui.text(label="does this follow?", placeholder="a formula", full_width=True, debounce=300)
    operator = mo.ui.dropdown(
        {f"{name} ({kind})": (kind, name) for kind, own in KINDS.items() for name in own},
        value="reichenbach (implications)",
        label="operator",
        allow_select_none=False,
    )
    return chosen, doctor, logic, operator, question


@app.cell
def _(State, again, ask, chosen, counts, doctor, logic, mo, one, operator, question, scene, show, sliders, two):
    def when(draw):
        return mo.lazy(lambda: mo.Html(draw() if scene.value else ""))

    def link():
        return show.link(
            State(scene.value.text, scene.value.beliefs, dict(counts.value), again.value, (one.value, two.value))
        )

    def follow():
        return mo.Html(
            show.answered(ask(lambda: scene.value.entails(question.value))) if scene.value and question.value else ""
        )

    tabs = mo.ui.tabs(
        {
            "refined": mo.vstack([logic, when(lambda: show.answered(ask(lambda: scene.value.refine(logic.value))))]),
            "worlds": mo.vstack(
                [
                    chosen,
                    when(lambda: show.answered(ask(lambda: scene.value.worlds(chosen.value))) if chosen.value else ""),
                ]
            ),
            "can all hold?": mo.vstack([when(lambda: show.solved(ask(scene.value.solve))), question, mo.lazy(follow)]),
            "satisfaction": when(lambda: show.answered(ask(scene.value.satisfaction))),
            "shortcuts": when(lambda: show.answered(ask(scene.value.shortcuts))),
            "doctor": mo.vstack([doctor, when(lambda: show.answered(ask(lambda: scene.value.examine(doctor.value))))]),
            "operators": mo.vstack([operator, mo.lazy(lambda: mo.Html(show.surface(*operator.value)))]),
            "Python": when(lambda: show.message(scene.value.code(one.value), "")),
            "link": when(link),
        },
        lazy=True,
    )
    tabs
    return


if __name__ == "__main__":
    app.run()
