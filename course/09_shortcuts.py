import marimo

app = marimo.App(app_title="9. Right for the wrong reasons")


@app.cell
def _():
    import marimo as mo
    import torch
    from torch import nn

    import doxa
    from doxa.doctor import knowledge_shortcuts

    return doxa, knowledge_shortcuts, mo, nn, torch


@app.cell
def _(mo):
    mo.md("""
    # 9. The loss is zero. Has the network understood?

    A network reads two bits from two images, and is told only whether they differ (XOR). It can reach a loss of zero by
    reading every 0 as 1 and every 1 as 0. Such a *reasoning shortcut* can be found before any training.
    """)
    return


@app.cell
def _(doxa, knowledge_shortcuts):
    kb = doxa.parse("""
        sort Image
        sort Bit = 0..1
        data pairs(left: Image, right: Image, differ: Bit)
        func bit(Image) -> Bit
        [differ]  forall p in pairs. (bit(p.left) != bit(p.right)) <-> p.differ = 1
    """)
    shortcuts = knowledge_shortcuts(kb)
    shortcuts
    return (kb,)


@app.cell
def _(mo):
    mo.md("""
    Two maps explain everything, and one of them is wrong. Which one is learnt is up to chance: train with a few seeds.
    """)
    return


@app.cell
def _(doxa, kb, nn, torch):
    def draw(count, seed):
        random = torch.Generator().manual_seed(seed)
        bits = torch.randint(2, (count, 2), generator=random)
        images = torch.nn.functional.one_hot(bits, 2).float().repeat(1, 1, 4) + 0.4 * torch.randn(
            count, 2, 8, generator=random
        )
        return images, bits

    images, bits = draw(1000, 0)
    told = (bits[:, 0] != bits[:, 1]).long()

    def train(seed, facts=0):
        """Learn from what is told of pairs, and from some labels of bits; the accuracy of what is told, and of the bits."""
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        model = doxa.Model(kb, "exact", bit=doxa.logits(network))
        optimizer = torch.optim.Adam(network.parameters(), 0.02)
        for _ in range(150):
            pick = torch.randint(1000, (64,))
            loss = model.loss(pairs=dict(left=images[pick, 0], right=images[pick, 1], differ=told[pick]))
            if facts:
                loss = loss + nn.functional.cross_entropy(network(images[:facts, 0]), bits[:facts, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            said = network(images).argmax(-1)
        return ((said[:, 0] != said[:, 1]).long() == told).double().mean(), (said == bits).double().mean()

    for seed in range(6):
        answers, concepts = train(seed)
        print(f"seed {seed}: XOR right {answers:.0%}, bits right {concepts:.0%}")
    return (train,)


@app.cell
def _(mo):
    mo.md("""
    Every run answers well. Some have swapped the bits, and no loss and no test of the answers can tell. Labels can, and very few
    are enough if they are the right ones:
    """)
    return


@app.cell
def _(mo):
    few = mo.ui.slider(0, 10, value=2, label="labels of bits", show_value=True)
    few
    return (few,)


@app.cell
def _(few, train):
    for number in range(4):
        right, understood = train(number, few.value)
        print(f"seed {number}, {few.value} labels: XOR right {right:.0%}, bits right {understood:.0%}")
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. Write the knowledge of a task in which the label is the *sum* of two bits. How many shortcuts does it have, and why?
    2. What does `doxa ask` tell you that a random choice of labels does not?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "None: the sum 0 has one world, so 0 must be read as 0, and then the sum 1 settles the rest."
            ),
            "Solution of 2": mo.md(
                "Which concept values to label so that the most remaining shortcuts are ruled out with each label."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
