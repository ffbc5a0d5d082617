import marimo

app = marimo.App(app_title="4. Probabilities are not truth values")


@app.cell
def _():
    import marimo as mo
    import torch

    import doxa

    return doxa, mo, torch


@app.cell
def _(mo):
    mo.md("""
    # 4. Why is `wet & wet` not `wet × wet`?

    A network says that the street is wet with probability 0.7. How probable is *wet and wet*? It is 0.7: it is one street. The
    product of fuzzy logic says 0.49, because it looks at truth values and forgets what they are about.
    """)
    return


@app.cell
def _(mo):
    wet = mo.ui.slider(0, 1, step=0.01, value=0.7, label="probability of wet", show_value=True)
    formula = mo.ui.text("wet & wet", label="formula over wet and rain", full_width=True)
    rain = mo.ui.slider(0, 1, step=0.01, value=0.5, label="probability of rain", show_value=True)
    mo.vstack([mo.hstack([wet, rain], justify="start"), formula])
    return formula, rain, wet


@app.cell
def _(doxa, formula, mo, rain, torch, wet):
    def truths(text):
        model = doxa.Model(
            f"pred wet; pred rain; [asked] {text}",
            wet=doxa.probs(torch.tensor(wet.value)),
            rain=doxa.probs(torch.tensor(rain.value)),
        )
        words = ("exact", "fuzzy:product", "fuzzy:godel", "fuzzy:lukasiewicz")
        return {word: model.truth(semantics=word)["asked"].item() for word in words}

    def shown(text):
        try:
            return mo.ui.table(
                [{"semantics": k, "truth": round(v, 3)} for k, v in truths(text).items()], selection=None
            )
        except doxa.DoxaError as error:
            return mo.plain_text(str(error))

    shown(formula.value)
    return (truths,)


@app.cell
def _(mo):
    mo.md("""
    Try `wet & !wet`, `wet | !wet`, and `(rain & wet) | (rain & !wet)`, which is just `rain`.

    ## What exact inference does

    It goes over *worlds*: all the ways things may be. Each world has a probability, and a formula is as probable as the
    worlds in which it holds, taken together. What is written twice is counted once.
    """)
    return


@app.cell
def _(doxa, formula, mo, rain, torch, wet):
    def worlds():
        model = doxa.Model(
            f"pred wet; pred rain; [asked] ({formula.value}) & (rain | !rain) & (wet | !wet)",
            wet=doxa.probs(torch.tensor(wet.value)),
            rain=doxa.probs(torch.tensor(rain.value)),
        )
        return model.explain("asked", k=4)[0]

    try:
        found = worlds()
    except doxa.DoxaError as error:
        found = mo.plain_text(str(error))
    found
    return


@app.cell
def _(mo):
    mo.md("""
    ## Does it matter for learning?

    The rule `rain -> wet` of 30 streets, all about the *same* rain. Under the product, rain is thirty different things.
    """)
    return


@app.cell
def _(doxa, torch):
    streets = doxa.Model(
        "sort Street; pred rain; pred wet(Street); [all] rain & forall s: Street. rain -> wet(s)",
        rain=doxa.probs(torch.tensor(0.9)),
        wet=doxa.probs(torch.full((30,), 0.99)),
    )
    for name in ("exact", "fuzzy:product"):
        print(f"{name:<14} {streets.truth(semantics=name, Street=30)['all']:.3f}")
    print(f"by hand        {0.9 * 0.99**30:.3f}")
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. For which formulas are *exact* and *fuzzy:product* equal?
    2. Find a formula that is always true, which every fuzzy logic above gives less than 1.
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "For those in which no atom is written twice: then the parts of every connective are independent."
            ),
            "Solution of 2": mo.md(
                "`(wet & rain) | (wet & !rain) | !wet`: even Łukasiewicz, which has `wet | !wet`, falls short where all is near ½."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
