import marimo

app = marimo.App(app_title="10. Your own task")


@app.cell
def _():
    import tempfile

    import marimo as mo
    import torch
    from torch import nn

    import doxa
    from doxa.train import Fitting, evaluate_run, train_task

    return Fitting, doxa, evaluate_run, mo, nn, tempfile, torch, train_task


@app.cell
def _(mo):
    mo.md("""
    # 10. How do I use this in a project of mine?

    A *task* is data, networks and knowledge in one place. Everything else, from training with checkpoints to a report, comes with it:
    `doxa train my_task.py --semantics exact`. Here is one in full: bars of four heights are drawn into noisy images, and of two
    images only the difference of the heights is told.
    """)
    return


@app.cell
def _(Fitting, doxa, nn, torch):
    def pairs(count, seed):
        random = torch.Generator().manual_seed(seed)
        heights = torch.randint(4, (count, 2), generator=random)
        rows = torch.arange(8)[:, None].expand(8, 8)
        bars = (rows >= 7 - 2 * heights[..., None, None]).float()
        images = bars + 0.3 * torch.randn(bars.shape, generator=random)
        told = heights[:, 0] - heights[:, 1]
        return {"pairs": {"left": images[:, 0], "right": images[:, 1], "difference": told}}, heights

    (train, _), (test, heights) = pairs(1000, seed=0), pairs(300, seed=1)
    task = doxa.Task(
        name="heights",
        about="Heights of bars, learnt from the differences of two.",
        knowledge="""
            sort Image
            sort Height = 0..3
            data pairs(left: Image, right: Image, difference: Int)
            func height(Image) -> Height
            [difference] forall p in pairs. a := height(p.left), b := height(p.right) (a - b = p.difference)
        """,
        symbols=lambda: {"height": doxa.logits(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)))},
        train=train,
        test=test,
        target="pairs.difference",
        values=range(-3, 4),
        concepts={"height": {"pairs.left": heights[:, 0], "pairs.right": heights[:, 1]}},
        fitting=Fitting(steps=300, learning_rate=3e-3, evaluate_every=100),
    )
    return task, train


@app.cell
def _(mo):
    word = mo.ui.dropdown(["exact", "fuzzy", "sampled", "refined"], value="exact", label="semantics")
    word
    return (word,)


@app.cell
def _(evaluate_run, task, tempfile, train_task, word):
    with tempfile.TemporaryDirectory() as folder:
        train_task(task, word.value, folder, progress=False)
        evaluation = evaluate_run(folder, task)
    evaluation
    return


@app.cell
def _(mo):
    mo.md("""
    ## In a loop of your own, or in Lightning

    A `Model` is an `nn.Module`, and its loss is a loss like any other:
    """)
    return


@app.cell
def _(doxa, task, torch, train):
    model = doxa.Model(task.knowledge, "exact", **task.symbols())
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(100):
        loss = model.loss(**train)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step:>3}  loss {loss.item():.3f}")
    return


@app.cell
def _(mo):
    mo.md("""
    With PyTorch Lightning, `doxa.lightning` has a callback that logs losses and satisfaction by axiom, and a mixin for your module;
    `doxa new my_task` writes a commented task file to start from.

    ## Exercises

    1. Only the differences are told. Could the network have learnt all heights one too high? Ask `doxa.doctor.knowledge_shortcuts`.
    2. Replace the axiom by `a > b <-> p.difference > 0`. What is still learnt?
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "No: the difference 3 has a single world, 3 and 0, which pins the ends. There is no shortcut."
            ),
            "Solution of 2": mo.md(
                "Still all heights: a map that keeps which of two is higher keeps the order of the four, and only the identity does. It takes longer."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
