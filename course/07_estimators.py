import marimo

app = marimo.App(app_title="7. Black boxes and gradient estimators")


@app.cell
def _():
    import marimo as mo
    import matplotlib.pyplot as plt
    import torch
    from torch.distributions import Bernoulli, Independent

    from doxa.stochastic import ARM, DisARM, Enumerate, LeaveOneOut, Score, Tape, check_unbiased

    return ARM, Bernoulli, DisARM, Enumerate, Independent, LeaveOneOut, Score, Tape, check_unbiased, mo, plt, torch


@app.cell
def _(mo):
    mo.md(r"""
    # 7. How do I differentiate through a program that only takes 0 and 1?

    A program pays a cost for a sampled bit string. We want the derivative of the *expected* cost with respect to the
    probabilities, and the program cannot be differentiated. A gradient *estimator* samples and gives a random number whose mean
    is that derivative. Estimators differ in how much that number jumps about: their **variance**.
    """)
    return


@app.cell
def _(mo):
    target = mo.ui.slider(0.05, 0.5, step=0.005, value=0.45, label="t in the cost Σ (x - t)²", show_value=True)
    logit = mo.ui.slider(-2, 2, step=0.1, value=0.5, label="logit of every bit", show_value=True)
    mo.hstack([target, logit], justify="start")
    return logit, target


@app.cell
def _(ARM, Bernoulli, DisARM, Independent, LeaveOneOut, Score, Tape, logit, target, torch):
    def gradient(estimator, start):
        """One estimate for the first of three bits."""
        theta = torch.full((3,), start, dtype=torch.float64, requires_grad=True)
        tape = Tape()
        bits = tape.sample(Independent(Bernoulli(logits=theta), 1), estimator)
        tape.cost((bits - target.value).square().sum(-1))
        tape.surrogate().backward()
        return theta.grad[0].item()

    estimators = {
        "score, 1 sample": Score(1),
        "leave one out, 2": LeaveOneOut(2),
        "leave one out, 5": LeaveOneOut(5),
        "ARM": ARM(),
        "DisARM": DisARM(),
    }
    torch.manual_seed(0)
    draws = {name: torch.tensor([gradient(e, logit.value) for _ in range(300)]) for name, e in estimators.items()}
    return draws, gradient


@app.cell
def _(Enumerate, draws, gradient, logit, plt):
    exact = gradient(Enumerate(), logit.value)
    figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
    axis.violinplot([d.numpy() for d in draws.values()], showmeans=True)
    axis.axhline(exact, color="black", linestyle=":", label="exact derivative")
    axis.set(xticks=range(1, len(draws) + 1), xticklabels=list(draws), ylabel="estimated derivative")
    axis.tick_params(axis="x", labelrotation=15)
    axis.legend()
    figure
    return


@app.cell
def _(draws):
    for name, found in draws.items():
        print(f"{name:<18} mean {found.mean():+.3f}   variance {found.var():.2g}")
    return


@app.cell
def _(mo):
    mo.md("""
    All have the same mean. Move *t* towards ½, where the cost hardly depends on the bits: the score function does not notice, the
    others become exact.

    ## Is it really unbiased?

    `check_unbiased` does not guess. It enumerates where it can, and says what it could not decide.
    """)
    return


@app.cell
def _(Bernoulli, Independent, LeaveOneOut, check_unbiased, torch):
    verdict = check_unbiased(
        LeaveOneOut(2),
        lambda theta: Independent(Bernoulli(logits=theta), 1),
        lambda x: (x - 0.3).square().sum(-1),
        at=torch.tensor([0.5, -0.2], dtype=torch.float64),
    )
    print(verdict)
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. Which estimator would you take if the program is expensive and may be called only twice?
    2. Replace the cost by one that is 1 for exactly one bit string of many. Why do all estimators struggle now?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "DisARM: it needs two antithetic calls, and has the lowest variance of those that make two."
            ),
            "Solution of 2": mo.md(
                "The string is hardly ever drawn, so nearly every sample says 0. That is where exact inference or A-NeSI help."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
