import marimo

app = marimo.App(app_title="3. Learning with few labels")


@app.cell
def _():
    import marimo as mo
    import matplotlib.pyplot as plt
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    import doxa

    return doxa, load_digits, mo, nn, plt, torch


@app.cell
def _(mo):
    mo.md("""
    # 3. Can knowledge replace labels?

    Small images of digits, of which only a few carry a label. Of many pairs of them, all that is known is the *sum*: receipts were
    kept, digits were not. What a sum is, we know. That is one axiom; its loss needs no label at all.
    """)
    return


@app.cell
def _(load_digits, torch):
    found = load_digits()
    images, digits = torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, digits = images[order], digits[order]
    test_images, test_digits = images[1200:], digits[1200:]
    return digits, images, test_digits, test_images


@app.cell
def _(doxa):
    kb = doxa.parse("""
        sort Image
        sort Digit = 0..9
        data pairs(left: Image, right: Image, sum: Int)
        func digit(Image) -> Digit
        [sum]  forall p in pairs. digit(p.left) + digit(p.right) = p.sum
    """)
    kb
    return (kb,)


@app.cell
def _(mo):
    labels = mo.ui.slider(10, 100, step=10, value=20, label="labels", show_value=True)
    word = mo.ui.dropdown(["exact", "fuzzy", "sampled"], value="exact", label="semantics")
    mo.hstack([labels, word], justify="start", wrap=True)
    return labels, word


@app.cell
def _(digits, doxa, images, kb, nn, test_digits, test_images, torch):
    def train(labelled, knowledge, word, steps=300):
        """The share of test images that are read right, after learning from labels, from sums, or from both."""
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        model = doxa.Model(kb, word, digit=doxa.logits(network))
        optimizer = torch.optim.Adam(network.parameters(), 0.01)
        for _ in range(steps):
            loss = nn.functional.cross_entropy(network(images[:labelled]), digits[:labelled]) if labelled else 0.0
            if knowledge:
                left, right = torch.randint(1200, (2, 64))
                rows = dict(left=images[left], right=images[right], sum=digits[left] + digits[right])
                loss = loss + model.loss(pairs=rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            said = network(test_images).argmax(-1)
        return (said == test_digits).double().mean().item(), said

    return (train,)


@app.cell
def _(labels, plt, train, word):
    ways = {"labels alone": (labels.value, False), "sums alone": (0, True), "both": (labels.value, True)}
    results = {name: train(*way, word.value) for name, way in ways.items()}
    figure, axis = plt.subplots(figsize=(6, 1.9), layout="constrained")
    bars = axis.barh(list(results), [share for share, _ in results.values()], color="#4a90d9")
    axis.bar_label(bars, fmt="{:.0%}", padding=3)
    axis.set(xlim=(0, 1.1), title=f"test images read right, {labels.value} labels, {word.value}")
    figure
    return (results,)


@app.cell
def _(mo):
    mo.md("Images that the labels alone read wrong, and both together read right:")
    return


@app.cell
def _(plt, results, test_digits, test_images, torch):
    alone, both = results["labels alone"][1], results["both"][1]
    mended = torch.nonzero((alone != test_digits) & (both == test_digits)).flatten()[:10]
    gallery, places = plt.subplots(1, 10, figsize=(9, 1.3), layout="constrained")
    for place in places:
        place.axis("off")
    for place, i in zip(places, mended.tolist(), strict=False):
        place.imshow(test_images[i].reshape(8, 8), cmap="gray_r")
        place.set_title(f"{alone[i]} → {both[i]}", fontsize=9)
    gallery
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. Sums alone are enough here. Why can the network not swap two digits, say 3 and 5, and still get all sums right?
    2. Knowledge can be wrong. What happens if a tenth of the sums is off by one? Change `sum=digits[left] + digits[right]` and see.
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "0 + 0 is the only way to make 0, so 0 is pinned; then 0 + 1 pins 1, and so on. Notebook 9 has the general answer."
            ),
            "Solution of 2": mo.md(
                "It costs some accuracy, not all: most sums still say the same, and the wrong ones contradict each other."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
