"""Families, stories in them, and learning from pairs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from doxa.logic import logits
from doxa.reproduce._kinship import (
    ENTRIES,
    KINSHIP,
    OTHER,
    RELATIONS,
    KinshipConfig,
    composition,
    families,
    family,
    knowledge,
    stories,
)
from doxa.semantics import Model

INVERSE = {
    **dict.fromkeys(("father", "mother"), ("son", "daughter")),
    **dict.fromkeys(("son", "daughter"), ("father", "mother")),
    **dict.fromkeys(("brother", "sister"), ("brother", "sister")),
    **dict.fromkeys(("grandfather", "grandmother"), ("grandson", "granddaughter")),
    **dict.fromkeys(("grandson", "granddaughter"), ("grandfather", "grandmother")),
    **dict.fromkeys(("uncle", "aunt"), ("nephew", "niece")),
    **dict.fromkeys(("nephew", "niece"), ("uncle", "aunt")),
    **dict.fromkeys(("he_cousin", "she_cousin"), ("he_cousin", "she_cousin")),
}


@pytest.mark.parametrize("seed", range(3))
def test_families_are_families(seed: int) -> None:
    """Relations have inverses, people have at most two parents, and siblings the same ones."""
    related = family(torch.Generator().manual_seed(seed))
    named = [[RELATIONS[r] if r != OTHER else "" for r in row] for row in related.tolist()]
    for x, y in itertools.product(range(len(named)), repeat=2):
        assert bool(named[x][y]) == bool(named[y][x])
        if named[x][y]:
            assert named[y][x] in INVERSE[named[x][y]]
    parents = [[y for y, r in enumerate(row) if r in ("father", "mother")] for row in named]
    assert {len(p) for p in parents} == {0, 2}
    for x, y in itertools.product(range(len(named)), repeat=2):
        if named[x][y] in ("brother", "sister"):
            assert parents[x] == parents[y]
        if named[x][y] in ("grandfather", "grandmother"):
            assert any(y in parents[p] for p in parents[x])
        if named[x][y] in ("uncle", "aunt"):
            assert any(named[p][y] in ("brother", "sister") for p in parents[x])


def test_relations_compose_as_in_other_families() -> None:
    """What was read off some families holds in others, for all three people."""
    rules = composition()
    for related in families(77, 5):
        count = len(related)
        for x, y, z in itertools.product(range(count), range(count), range(count)):
            answer = int(rules[related[x, y], related[y, z]])
            if answer != OTHER and x != z:
                assert answer == int(related[x, z])


@pytest.mark.parametrize("length", [2, 5, 10])
def test_answers_are_folds_of_what_is_said(length: int) -> None:
    asked = stories(5, length, 12)
    right = asked.said[:, 0]
    for i in range(1, length):
        right = composition()[right, asked.said[:, i]]
    assert asked.answers.tolist() == right.tolist() and OTHER not in right
    sure = torch.nn.functional.one_hot(asked.said, OTHER + 1).float() * 50
    model = Model(knowledge(length), "exact", said=logits(lambda fact: fact), compose=composition())
    assert model.predict("stories.answer", stories={"facts": sure}).values.tolist() == right.tolist()


@pytest.mark.parametrize("length", [2, 3])
def test_the_chain_is_exact(length: int) -> None:
    """-log p of answers is that of the forward recursion over distributions, with its gradient."""
    asked = stories(6, length, 8)
    scores = torch.randn(8, length, OTHER + 1, dtype=torch.float64).requires_grad_()
    model = Model(knowledge(length), "exact", said=logits(lambda fact: fact), compose=composition())
    loss = model.loss(stories={"facts": scores, "answer": asked.answers})
    table = torch.nn.functional.one_hot(composition(), OTHER + 1).double()
    chances = scores.softmax(-1)
    state = chances[:, 0]
    for i in range(1, length):
        state = torch.einsum("na,nb,abc->nc", state, chances[:, i], table)
    right = -state.gather(1, asked.answers.unsqueeze(1)).log().mean()
    torch.testing.assert_close(loss, right)
    slopes = [torch.autograd.grad(v, scores, retain_graph=True)[0] for v in (loss, right)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("how", ["given", "learnt", "neural"])
def test_runs_measure_every_length(how: str, tmp_path: Path) -> None:
    config = KinshipConfig(how, stories=64, tested=4, steps=2, batch_size=16, evaluate_every=2)  # type: ignore[arg-type]
    result = KINSHIP.train(config, tmp_path / "run", seed=0, data=None, progress=False)
    assert {f"length_{n}" for n in range(2, 11)} <= result.metrics.keys()
    assert ("rules" in result.metrics) == (how == "learnt") and ("fact_accuracy" in result.metrics) == (how != "neural")
    assert {entry.name for entry in KINSHIP.entries} == set(ENTRIES)
