import marimo

app = marimo.App(app_title="2. What fuzzy operators do to gradients")


@app.cell
def _():
    import marimo as mo
    import matplotlib.pyplot as plt
    import torch

    from doxa import fuzzy

    return fuzzy, mo, plt, torch


@app.cell
def _(mo):
    mo.md(r"""
    # 2. What does a rule teach a network: to see black, or not to see ravens?

    *All ravens are black.* A network is shown something that it takes for a raven ($a$), and for black ($c$), each with a
    truth between 0 and 1. A fuzzy implication $I(a, c)$ says how true the rule is, and training climbs its gradient. It can
    do so in two ways: make $c$ larger (**modus ponens**), or make $a$ smaller (**modus tollens**). Which one it takes
    depends on the operator, not on the rule.

    That is the raven paradox of learning. A green chair is no raven and not black; so it confirms that all ravens are black.
    Most of what a network is shown are green chairs.
    """)
    return


@app.cell
def _(fuzzy, mo):
    raven = mo.ui.slider(0, 1, step=0.01, value=0.6, label="raven (a)", show_value=True)
    black = mo.ui.slider(0, 1, step=0.01, value=0.3, label="black (c)", show_value=True)
    operator = mo.ui.dropdown(list(fuzzy.IMPLICATIONS), value="reichenbach", label="implication")
    mo.hstack([raven, black, operator], justify="start", wrap=True)
    return black, operator, raven


@app.cell
def _(fuzzy, torch):
    def slopes(name, a, c):
        """The truth of the rule, and how it changes with a and with c."""
        point = torch.tensor([a, c], dtype=torch.float64, requires_grad=True)
        truth = fuzzy.IMPLICATIONS[name](point[0], point[1])
        truth.backward()
        return truth.item(), *point.grad.tolist()

    return (slopes,)


@app.cell
def _(black, mo, operator, plt, raven, slopes):
    truth, tollens, ponens = slopes(operator.value, raven.value, black.value)
    figure, axis = plt.subplots(figsize=(6, 1.8), layout="constrained")
    axis.barh(["less raven", "more black"], [-tollens, ponens], color=["#c0392b", "#2e8b57"])
    axis.set(title=f"{operator.value}: the rule is {truth:.2f} true", xlabel="gradient")
    mo.vstack([figure, mo.md("Try *godel*, *goguen* and *lukasiewicz* at the same point.")])
    return


@app.cell
def _(mo):
    mo.md("""
    ## The whole square

    The same for every $a$ and $c$: dark is where the operator prefers to doubt the raven, light where it prefers to see black.
    """)
    return


@app.cell
def _(fuzzy, operator, plt, torch):
    side = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    a, c = (x.clone().requires_grad_() for x in torch.meshgrid(side, side, indexing="ij"))
    fuzzy.IMPLICATIONS[operator.value](a, c).sum().backward()
    up, down = c.grad.abs(), a.grad.abs()
    share = torch.where(up + down > 0, up / (up + down).clamp(min=1e-12), torch.nan)
    square, axes = plt.subplots(figsize=(4.2, 3.4), layout="constrained")
    shown = axes.imshow(share.T, origin="lower", extent=(0, 1, 0, 1), vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="raven (a)", ylabel="black (c)", title="share of modus ponens; white: no gradient")
    square.colorbar(shown)
    square
    return


@app.cell
def _(mo):
    mo.md("""
    ## And the quantifier

    *For all* things the rule holds: an aggregator makes one truth of many. The minimum passes the gradient of the worst
    thing alone; the product lets it vanish when things are many; the mean of logarithms does neither.
    """)
    return


@app.cell
def _(fuzzy, mo):
    aggregator = mo.ui.dropdown(list(fuzzy.AGGREGATORS), value="product", label="for all")
    many = mo.ui.slider(2, 64, value=16, label="things", show_value=True)
    mo.hstack([aggregator, many], justify="start")
    return aggregator, many


@app.cell
def _(aggregator, fuzzy, many, plt, torch):
    truths = torch.linspace(0.1, 0.95, many.value, dtype=torch.float64, requires_grad=True)
    fuzzy.AGGREGATORS[aggregator.value](truths, 0).backward()
    bars, place = plt.subplots(figsize=(6, 2), layout="constrained")
    place.bar(range(many.value), truths.grad)
    place.set(
        xlabel="things, least true first",
        title=f"gradient of {aggregator.value}, largest {truths.grad.abs().max():.2g}",
    )
    bars
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. Which implications never doubt the raven (their gradient on $a$ is 0 wherever the rule is not yet true)?
    2. With the product over 64 things, how large is the largest gradient? What would you use instead?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "*godel*: where the rule is not yet true it is $c$ itself, which says nothing about the raven. "
                "(*weber* and *dubois_prade* too: they are flat nearly everywhere.)"
            ),
            "Solution of 2": mo.md(
                "About 1e-21: too small to learn from. *log_product* or a mean of errors keep it alive."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
