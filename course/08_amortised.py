import marimo

app = marimo.App(app_title="8. Amortised inference")


@app.cell
def _():
    import marimo as mo
    import matplotlib.pyplot as plt
    import torch

    from doxa.amortized import AmortizedReasoner, FactorMLPs
    from doxa.exact import Enumeration
    from doxa.problem import Belief, addition

    return AmortizedReasoner, Belief, Enumeration, FactorMLPs, addition, mo, plt, torch


@app.cell
def _(mo):
    mo.md("""
    # 8. Can a network learn to do the inference?

    Exact inference sums over worlds, and sometimes there are too many. A-NeSI learns the answer: a second network is shown
    *beliefs*, and says how probable each output is. It needs no data, for the problem makes its own: draw a belief, draw a
    world from it, compute the output.
    """)
    return


@app.cell
def _(mo):
    steps = mo.ui.slider(0, 800, step=100, value=400, label="steps of learning", show_value=True)
    steps
    return (steps,)


@app.cell
def _(AmortizedReasoner, Belief, Enumeration, FactorMLPs, addition, steps, torch):
    torch.manual_seed(0)
    problem = addition(1)
    engine = AmortizedReasoner(problem, FactorMLPs(problem, hidden=96, layers=2))
    losses = engine.update(steps=steps.value, samples=128, lr=2e-3) if steps.value else []
    exact = Enumeration(problem)

    beliefs = Belief.from_logits(2 * torch.randn(256, 2, 10))
    told = problem(problem.random_worlds(256))
    with torch.no_grad():
        learnt, true = engine.log_prob(beliefs, told), exact.log_prob(beliefs, told)
    return learnt, losses, true


@app.cell
def _(learnt, losses, plt, torch, true):
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    left.plot(torch.tensor(losses))
    left.set(xlabel="step", title="loss of the inference model")
    right.scatter(true.exp(), learnt.exp(), s=6)
    right.plot([0, 1], [0, 1], color="grey", linewidth=1)
    right.set(xlabel="exact probability of the sum", ylabel="learnt", title="256 beliefs it has never seen")
    figure
    return


@app.cell
def _(learnt, true):
    error = (learnt.exp() - true.exp()).abs()
    print(f"mean error {error.mean():.3f}, largest {error.max():.3f}")
    return


@app.cell
def _(mo):
    mo.md("""
    The points move to the diagonal. How far they still are from it is the *divergence*, which doxa reports: an approximation
    is never called exact. Its gift is cost: one pass of a network, whatever the number of worlds.

    ## Exercises

    1. From how many steps on does the mean error hardly get smaller? What would you change to go further?
    2. The prior says which beliefs are drawn. What would go wrong if it only drew uniform beliefs?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md("From some 400 on. More samples a step, or a larger network, go further."),
            "Solution of 2": mo.md(
                "A trained perception network is sure of itself. The inference model would be asked about beliefs it has never seen."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
