import marimo

app = marimo.App(app_title="1. Knowledge and satisfaction")


@app.cell
def _():
    import marimo as mo
    import torch

    import doxa

    return doxa, mo, torch


@app.cell
def _(mo):
    mo.md("""
    # 1. How do I write down what I know, and see whether it holds?

    Knowledge has two parts. *Declarations* say what there is to speak of: sorts of objects, and predicates about them.
    *Axioms* say what must hold. Nothing here is about networks yet: an axiom is a sentence that is true or false.
    """)
    return


@app.cell
def _(doxa):
    kb = doxa.parse("""
        sort Person = {anna, bob, carl, dora}
        pred friends(Person, Person)
        pred smokes(Person)

        [symmetry]   forall x, y: Person. friends(x, y) -> friends(y, x)
        [homophily]  forall x, y: Person where x != y. friends(x, y) & smokes(x) -> smokes(y)
    """)
    kb
    return (kb,)


@app.cell
def _(mo):
    mo.md("""
    An *interpretation* says what the symbols mean. Here they are two tables of true and false; later they will be networks.
    Tick who smokes, and watch which axiom is violated, and by whom.
    """)
    return


@app.cell
def _(mo):
    smokers = mo.ui.multiselect(["anna", "bob", "carl", "dora"], value=["anna"], label="smokers")
    mutual = mo.ui.checkbox(value=False, label="carl and dora are friends in both directions")
    mo.hstack([smokers, mutual], justify="start")
    return mutual, smokers


@app.cell
def _(doxa, kb, mutual, smokers, torch):
    names = ["anna", "bob", "carl", "dora"]
    friends = torch.zeros(4, 4, dtype=torch.bool)
    friends[0, 1] = friends[1, 0] = friends[2, 3] = True
    friends[3, 2] = mutual.value
    smokes = torch.tensor([name in smokers.value for name in names])
    world = doxa.Interpretation(kb, friends=friends, smokes=smokes)
    report = doxa.satisfaction(kb, world)
    report
    return report, world


@app.cell
def _(mo):
    mo.md("""
    *Antecedent true* matters: an implication whose antecedent is never true holds, and says nothing.

    The same axioms can be reasoned with without any table: is there a world in which they all hold, and what follows?
    """)
    return


@app.cell
def _(doxa, kb):
    follows = doxa.entails(kb, doxa.parse_formula("friends(anna, bob) & smokes(anna) -> smokes(bob)", kb))
    print("does it follow?", follows)
    print("is it possible at all?", doxa.satisfiable(kb) is not None)
    return


@app.cell
def _(mo):
    mo.md("""
    ## Exercises

    1. Say that nobody is their own friend. How many instances does the axiom have?
    2. Say that everybody has at least one friend, and find a world in which this and *symmetry* hold.
    """)
    return


@app.cell
def _(mo):
    mo.accordion(
        {
            "Solution of 1": mo.md(
                "`[irreflexive] forall x: Person. !friends(x, x)`: one instance for each person, so 4."
            ),
            "Solution of 2": mo.md(
                "`[not_alone] forall x: Person. exists y: Person. friends(x, y)`, and `doxa.satisfiable(kb)` gives a world."
            ),
        }
    )
    return


if __name__ == "__main__":
    app.run()
