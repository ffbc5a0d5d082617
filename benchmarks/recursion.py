"""Recursive rules on uncertain facts, exactly: definitions beside ProbLog, which compiles with PySDD and counts.

Two programs: is there a path from the first to the last node of a random graph with uncertain edges; and does somebody
smoke, when stress makes people smoke and friends influence each other (ProbLog's own example). Two measurements: from
text to the first answer, and 256 rows of probabilities on what has been compiled. In the second one ProbLog is in an
expert's hands: compiled once, weights handed over row by row; its documentation compiles for each. It has no batches
and no gradient, so doxa's row with the gradient is measured against ProbLog's answers without.

To the first answer doxa is ahead where the graph is not tiny; on the smallest one ProbLog is. There some 40 % of doxa's
time goes into unfolding the definition, and the rest into many small things: reading the text, clauses, torch. Who
measures calls it again and again, and doxa keeps compiled circuits on disk, so from the second time on its search for a
circuit is left out, while ProbLog compiles each time. The very first answer takes as much longer as that search.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from problog import get_evaluatable
from problog.logic import Constant, Term
from problog.program import PrologString
from torch import Tensor

import doxa
from harness import Row, compare, main

ROWS = 256


@dataclass(frozen=True)
class Program:
    """A program in both languages; its facts are entries of one matrix of probabilities."""

    name: str
    knowledge: str
    symbols: dict[str, Tensor]
    rules: str
    facts: dict[tuple[int, int], Term]
    size: int

    def model(self) -> doxa.Model:
        return doxa.Model(self.knowledge, "exact", fact=doxa.logits(torch.nn.Identity()), **self.symbols)

    def text(self, row: Tensor) -> str:
        """The ProbLog program for one row of probabilities."""
        return "\n".join(f"{float(row[at]):.9f}::{fact}." for at, fact in self.facts.items()) + "\n" + self.rules

    def logits(self, rows: int) -> Tensor:
        return torch.randn(rows, self.size, self.size, generator=torch.Generator().manual_seed(0)).requires_grad_()


def known(size: int, pairs: list[tuple[int, int]]) -> Tensor:
    found = torch.zeros(size, size, dtype=torch.bool)
    found[tuple(zip(*pairs, strict=True))] = True
    return found


def chained(size: int, count: int) -> list[tuple[int, int]]:
    """So many pairs: a chain from the first to the last, and others at random."""
    chain = [(i, i + 1) for i in range(size - 1)]
    others = [(a, b) for a in range(size) for b in range(size) if a != b and (a, b) not in chain]
    return chain + random.Random(0).sample(others, count - len(chain))


def paths(nodes: int, edges: int) -> Program:
    found = chained(nodes, edges)
    return Program(
        f"path in a graph of {nodes} nodes and {edges} edges",
        f"""
        sort World
        sort Node = 0..{nodes - 1}
        pred fact(World, Node, Node)
        pred road(Node, Node)
        define path(w: World, x, y: Node) := road(x, y) & fact(w, x, y)
        define path(w: World, x, y: Node) := exists z: Node. road(x, z) & fact(w, x, z) & path(w, z, y)
        [goal] forall w: World. path(w, 0, {nodes - 1})
        """,
        {"road": known(nodes, found)},
        f"path(X,Y) :- edge(X,Y).\npath(X,Y) :- edge(X,Z), path(Z,Y).\nquery(path(0,{nodes - 1})).\n",
        {(a, b): Term("edge", Constant(a), Constant(b)) for a, b in found},
        nodes,
    )


def smokers(people: int, friends: int) -> Program:
    """A friendship is certain; who is stressed, and who influences whom, is not: facts (x, x) and (x, y)."""
    found = chained(people, friends)
    facts = {(a, b): Term("influences", Constant(b), Constant(a)) for a, b in found}
    facts |= {(a, a): Term("stress", Constant(a)) for a in range(people)}
    friendships = "".join(f"friend({a},{b}).\n" for a, b in found)
    return Program(
        f"smokers: {people} people and {friends} friendships",
        f"""
        sort World
        sort Person = 0..{people - 1}
        pred fact(World, Person, Person)
        pred friend(Person, Person)
        define smokes(w: World, x: Person) := fact(w, x, x)
        define smokes(w: World, x: Person) := exists y: Person. friend(x, y) & fact(w, x, y) & smokes(w, y)
        [goal] forall w: World. smokes(w, 0)
        """,
        {"friend": known(people, found)},
        friendships
        + "smokes(X) :- stress(X).\nsmokes(X) :- friend(X,Y), influences(Y,X), smokes(Y).\nquery(smokes(0)).\n",
        facts,
        people,
    )


def answer(found: dict[Term, float]) -> float:
    (probability,) = found.values()
    return float(probability)


def compiled(program: Program) -> Callable[[Tensor], list[float]]:
    """ProbLog compiled once; from rows of probabilities to answers."""
    circuit = get_evaluatable().create_from(PrologString(program.text(torch.full((program.size, program.size), 0.5))))

    def answers(rows: Tensor) -> list[float]:
        found = []
        for row in rows.tolist():
            weights = {fact: Constant(row[a][b]) for (a, b), fact in program.facts.items()}
            found.append(answer(circuit.evaluate(weights=weights)))
        return found

    return answers


def program_rows(program: Program) -> list[Row]:
    one, many = program.logits(1).detach(), program.logits(ROWS)
    text = program.text(one[0].sigmoid())
    probabilities = many.detach().sigmoid()
    model, answers = program.model(), compiled(program)

    def first_answer() -> float:
        return float(program.model().loss(World=one).neg().exp())

    def their_first_answer() -> float:
        return answer(get_evaluatable().create_from(PrologString(text)).evaluate())

    def with_gradient() -> None:
        many.grad = None
        model.loss(World=many).backward()

    assert abs(first_answer() - their_first_answer()) < 1e-5
    ours = model.loss(World=many, reduction="none").detach().neg().exp()
    torch.testing.assert_close(ours, torch.tensor(answers(probabilities)), rtol=1e-4, atol=1e-5)
    title = f"recursion: {program.name}"
    return [
        compare(f"{title}, from text to the first answer: time against ProbLog", first_answer, their_first_answer,
                goal=1.0, better="lower", repeats=12),
        compare(f"{title}, {ROWS} rows compiled, with gradient: times faster than ProbLog", with_gradient,
                lambda: answers(probabilities), goal=10.0, better="higher", repeats=12, use="expert"),
    ]  # fmt: skip


def rows() -> list[Row]:
    return [row for program in (paths(6, 12), paths(10, 30), smokers(8, 16)) for row in program_rows(program)]


if __name__ == "__main__":
    main(__file__, rows)
