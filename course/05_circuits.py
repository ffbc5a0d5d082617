import marimo

app = marimo.App(app_title="5. Exact inference and circuits")


@app.cell
def _():
    import time

    import marimo as mo
    import matplotlib.pyplot as plt
    import torch

    import doxa
    from doxa.exact import Compilation, plan
    from doxa.problem import Belief, Problem, addition

    return Belief, Compilation, Problem, addition, doxa, mo, plan, plt, time, torch


@app.cell
def _(mo):
    mo.md("""
    # 5. How can one add up more worlds than there are atoms in a galaxy?

    A probability is a sum over worlds. Ten yes-or-no questions have 1,024 of them; thirty digits have 10³⁰. Two ideas make the
    sum small: add up *one variable after the other*, and write the sum as a *circuit* in which parts are shared.
    """)
    return


@app.cell
def _(Compilation, Problem, doxa):
    kb = doxa.parse("""
        pred cat; pred dog; pred animal; pred barks
        [cats]   cat -> animal
        [dogs]   dog -> animal & barks
        [either] !(cat & dog)
    """)
    ground = doxa.logic.ground(kb)
    problem = Problem.from_formula(ground.formula, [[atom] for atom in ground.atoms])
    reasoner = Compilation(problem)
    reasoner.circuit
    return ground, problem, reasoner


@app.cell
def _(mo):
    mo.md("""
    Each leaf is a literal, each ∧ multiplies what does not share a variable, each ∨ adds what excludes each other. So one walk
    from the leaves upwards is the whole sum. Move the beliefs:
    """)
    return


@app.cell
def _(ground, mo):
    sliders = mo.ui.array(
        [mo.ui.slider(0, 1, step=0.05, value=0.5, label=str(name), show_value=True) for name in ground.atoms]
    )
    sliders
    return (sliders,)


@app.cell
def _(Belief, ground, reasoner, sliders, torch):
    chance = torch.tensor([float(v) for v in sliders.value]).clamp(1e-6, 1 - 1e-6)
    belief = Belief.from_probs(torch.stack((1 - chance, chance), -1))
    log_p = reasoner.log_prob(belief, torch.ones(1, dtype=torch.int64))
    print(f"all three rules hold with probability {log_p.exp().item():.3f}")
    if log_p > -torch.inf:
        best = reasoner.explain(belief, torch.ones(1, dtype=torch.int64), k=1).worlds[0].tolist()
        print("the most probable world in which they do:", dict(zip(map(str, ground.atoms), best, strict=True)))
    return


@app.cell
def _(mo):
    mo.md("""
    ## Which way is cheapest? The planner counts

    `plan` works out what every engine would cost, builds the cheapest, and says why.
    """)
    return


@app.cell
def _(addition, plan):
    for digits in (1, 4, 15):
        print(plan(addition(digits)).explain(), "\n")
    return


@app.cell
def _(Belief, addition, plan, plt, time, torch):
    sizes, seconds = (1, 2, 4, 8, 16, 32), []
    for size in sizes:
        sums = addition(size)
        engine = plan(sums).reasoner
        beliefs = Belief.from_logits(torch.randn(8, 2 * size, 10, generator=torch.Generator().manual_seed(0)))
        told = sums(sums.random_worlds(8, generator=torch.Generator().manual_seed(0)))
        engine.log_prob(beliefs, told)
        start = time.perf_counter()
        engine.log_prob(beliefs, told)
        seconds.append(time.perf_counter() - start)
    figure, axis = plt.subplots(figsize=(5, 2.6), layout="constrained")
    axis.loglog(sizes, seconds, "o-")
    axis.set(xlabel="digits of each number", ylabel="seconds", title="10^(2n) worlds, in time that grows with n")
    figure
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. Set *cat* and *dog* to 1. Why is the probability 0, whatever the others are?
    2. Sums are cheap because carries form a chain. What would make the *product* of two long numbers expensive?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md("The third rule excludes both. A belief of 1 leaves no world in which it holds."),
            "Solution of 2": mo.md(
                "Every digit of one factor meets every digit of the other: there is no order of the variables that keeps few of them open."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
