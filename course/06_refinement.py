import marimo

app = marimo.App(app_title="6. Refinement: a layer that corrects")


@app.cell
def _():
    import marimo as mo
    import matplotlib.pyplot as plt
    import torch
    from torch import nn

    from doxa.logic import propositions
    from doxa.refine import Refine

    return Refine, mo, nn, plt, propositions, torch


@app.cell
def _(mo):
    mo.md("""
    # 6. What is the smallest change that makes a prediction obey the rules?

    A loss asks a network to learn the rules. A *refinement layer* corrects its output instead: it moves the truth values as
    little as is needed for a formula to reach a wanted truth. For single operators that is a formula; for a whole knowledge
    base one goes up and down the tree a few times (Iterative Local Refinement).
    """)
    return


@app.cell
def _(mo):
    cat = mo.ui.slider(0, 1, step=0.01, value=0.8, label="cat", show_value=True)
    dog = mo.ui.slider(0, 1, step=0.01, value=0.6, label="dog", show_value=True)
    animal = mo.ui.slider(0, 1, step=0.01, value=0.3, label="animal", show_value=True)
    logic = mo.ui.dropdown(["godel", "lukasiewicz", "product"], value="godel", label="logic")
    target = mo.ui.slider(0.5, 1, step=0.05, value=1, label="target", show_value=True)
    mo.hstack([cat, dog, animal, logic, target], justify="start", wrap=True)
    return animal, cat, dog, logic, target


@app.cell
def _(Refine, animal, cat, dog, logic, plt, propositions, target, torch):
    is_cat, is_dog, is_animal = propositions("cat dog animal")
    rules = (is_cat >> is_animal) & (is_dog >> is_animal) & ~(is_cat & is_dog)
    layer = Refine(rules, logic.value, target.value, atoms=[is_cat, is_dog, is_animal])
    before = torch.tensor([cat.value, dog.value, animal.value], dtype=torch.float32)
    after = layer(before)
    figure, axis = plt.subplots(figsize=(6, 2.2), layout="constrained")
    axis.barh([0.2, 1.2, 2.2], before, 0.35, label="before", color="#b0b7c3")
    axis.barh([-0.2, 0.8, 1.8], after, 0.35, label="after", color="#4a90d9")
    axis.set(yticks=[0, 1, 2], yticklabels=["cat", "dog", "animal"], xlim=(0, 1.02))
    axis.set_title(f"moved by {(after - before).abs().sum():.2f} in all")
    axis.legend()
    figure
    return


@app.cell
def _(mo):
    mo.md("""
    Gödel changes few values by much, Łukasiewicz many by little. Neither is right or wrong: it is what *smallest* means.

    ## Inside a network

    The layer is differentiable, so a network can be trained *through* it. Below, three noisy features say cat, dog and animal, the
    second of every tenth point is broken, and there are only forty points to learn from. `atoms` says which column of the
    network's output is which.
    """)
    return


@app.cell
def _(Refine, nn, propositions, torch):
    def data(count, seed):
        random = torch.Generator().manual_seed(seed)
        kind = torch.randint(4, (count,), generator=random)  # cat, dog, another animal, none
        labels = torch.stack((kind == 0, kind == 1, kind < 3), -1).float()
        seen = labels + 0.45 * torch.randn(count, 3, generator=random)
        seen[::10, 1] = 1.5
        return seen, labels

    a, b, c = propositions("cat dog animal")
    known = (a >> c) & (b >> c) & ~(a & b)

    def train(correct):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3), nn.Sigmoid())
        optimizer = torch.optim.Adam(network.parameters(), 0.01)
        x, y = data(40, 0)
        for _ in range(300):
            loss = nn.functional.binary_cross_entropy(correct(network(x)).clamp(1e-5, 1 - 1e-5), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            x, y = data(2000, 1)
            said = correct(network(x)).round()
        broken = (said[:, 0] > said[:, 2]) | (said[:, 1] > said[:, 2]) | (said[:, 0] * said[:, 1] > 0)
        return (said == y).all(-1).double().mean(), broken.double().mean()

    layers = {name: Refine(known, name, steps=3, atoms=[a, b, c]) for name in ("godel", "lukasiewicz")}
    for name, correct in {"no layer": nn.Identity(), **layers}.items():
        right, broken = train(correct)
        print(f"{name:<12} all labels right: {right:.1%}   rules broken: {broken:.1%}")
    return


@app.cell
def _(mo):
    mo.md("""
    A Łukasiewicz truth of 1 can be a fractional point, and rounding it may break a rule. Where no rule may ever be broken,
    `Refine(..., guarantee="sat")` asks a solver for the nearest world that obeys.

    ## Exercises

    1. With Gödel, set cat 0.8 and dog 0.79. Which one is given up? What does that say about ties?
    2. Train without a layer, and correct only when testing, with `Refine(known, "godel", guarantee="sat", atoms=[a, b, c])`. Does it help?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "The smaller one: lowering it costs less. A hair's breadth decides, so near ties the layer is not smooth."
            ),
            "Solution of 2": mo.md(
                "Yes: some 70 % are right and no rule is broken. The network need not know the rules to be corrected by them."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
