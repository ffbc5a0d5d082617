"""Random knowledge in every form, random labels, every way to learn: certificates against enumeration of all worlds.

The oracle never sees `LabelKnowledge`: each kind of knowledge is drawn together with a function that says in plain
Python which worlds it allows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from doxa.errors import KnowledgeError
from doxa.problem import Budget
from doxa.sklearn import Allowed, KnowledgeClassifier, LabelKnowledge

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.DoxaWarning")
World = dict[str, bool]
WAYS: list[dict[str, Any]] = [
    {"learn": "constrained"},
    {"learn": "loss"},
    {"learn": "loss", "semantics": "fuzzy"},
    {"learn": "layer"},
    {"learn": "repair"},
    {"learn": "constrained", "beliefs": "mixture:3"},
    {"learn": "repair", "beliefs": "mixture:2"},
    {"learn": "repair", "budget": Budget(operations=1)},
    {"learn": "layer", "budget": Budget(operations=1)},
]


class Drawn(NamedTuple):
    """Knowledge, what it allows, and the names of labels and of given features."""

    knowledge: Any
    allows: Callable[[World], bool]
    labels: list[str]
    given: list[str]


def draw_hierarchy(rng: np.random.Generator, names: list[str]) -> tuple[Any, Callable[[World], bool]]:
    """Parents anywhere, so that some go in a circle."""
    edges = {c: [str(p) for p in rng.choice(names, rng.integers(1, 3))] for c in names if rng.random() < 0.6}
    return edges, lambda w: all(w[p] or not w[c] for c, above in edges.items() for p in above)


def draw_dimacs(rng: np.random.Generator, names: list[str]) -> tuple[Any, Callable[[World], bool]]:
    clauses = []
    for _ in range(rng.integers(1, 2 * len(names))):
        places = rng.choice(len(names), min(len(names), rng.integers(1, 4)), replace=False) + 1
        clauses.append([int(v * rng.choice([-1, 1])) for v in places])
    text = f"p cnf {len(names)} {len(clauses)}\n" + "\n".join(" ".join(map(str, [*c, 0])) for c in clauses)
    return text, lambda w: all(any(w[names[abs(v) - 1]] == (v > 0) for v in c) for c in clauses)


def draw_forbidden(rng: np.random.Generator, names: list[str]) -> tuple[Any, Callable[[World], bool]]:
    lists: list[dict[str, bool]] = []
    for _ in range(rng.integers(1, 5)):
        chosen = rng.choice(names, min(len(names), rng.integers(2, 4)), replace=False)
        lists.append({str(name): bool(rng.random() < 0.7) for name in chosen})
    given: list[Any] = [set(c) if all(c.values()) else c for c in lists]
    return given, lambda w: not any(all(w[name] == true for name, true in c.items()) for c in lists)


def draw_rules(rng: np.random.Generator, names: list[str]) -> tuple[Any, Callable[[World], bool]]:
    """Normal rules, body to head: stratified where a body stands before its head, or in any order."""
    rules = []
    for _ in range(rng.integers(1, 2 * len(names))):
        order = sorted(rng.choice(len(names), min(len(names), rng.integers(2, 4)), replace=False).tolist())
        order = order if rng.random() < 0.7 else order[::-1]
        *body, head = [names[i] for i in order]
        rules.append(([(name, bool(rng.random() < 0.7)) for name in body], head))
    text = "\n".join(" & ".join(n if p else f"!{n}" for n, p in body) + f" -> {head}" for body, head in rules)
    return text, lambda w: all(w[h] or not all(w[n] == p for n, p in b) for b, h in rules)


def draw_allowed(rng: np.random.Generator, names: list[str]) -> tuple[Any, Callable[[World], bool]]:
    worlds = [{n for n in names if rng.random() < 0.5} for _ in range(rng.integers(1, 6))]
    spoken = set().union(*worlds)
    kept = [w for w in worlds if w or len(worlds) > 1]
    return Allowed(
        kept or [set(names)]
    ), lambda w: {n for n in spoken if w[n]} in kept if kept else all(w[n] for n in names)


FORMS = [draw_hierarchy, draw_dimacs, draw_forbidden, draw_rules, draw_allowed]


def draw(seed: int) -> Drawn:
    """Knowledge of one or two forms that some world satisfies, whatever is given."""
    rng = np.random.default_rng(seed)
    while True:
        names = [f"l{i}" for i in range(rng.integers(1, 7))]
        given = [f"g{i}" for i in range(rng.integers(1, 3))] if rng.random() < 0.3 else []
        forms = [FORMS[i] for i in rng.choice(len(FORMS), rng.integers(1, 3), replace=False)]
        pieces = []
        for form in forms:
            about = names if form is draw_dimacs else [*names, *given]
            if len(about) > 1 or form is draw_dimacs:
                pieces.append(form(rng, about))
        if not pieces:
            continue

        def allows(w: World, pieces: Any = tuple(pieces)) -> bool:
            return all(holds(w) for _, holds in pieces)

        worlds = [dict(zip(names, bits, strict=True)) for bits in product([False, True], repeat=len(names))]
        kinds = [dict(zip(given, bits, strict=True)) for bits in product([False, True], repeat=len(given))]
        if all(any(allows({**w, **kind}) for w in worlds) for kind in kinds):
            return Drawn(tuple(piece for piece, _ in pieces), allows, names, given)


def check(seed: int, way: dict[str, Any]) -> None:
    knowledge, allows, names, given = draw(seed)
    rng = np.random.default_rng(1000 + seed)
    rows, worlds = 24, np.array([*product([False, True], repeat=len(names))])
    X = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["u", "v", "w"])
    X = X.assign(**{name: rng.integers(0, 2, rows) for name in given})
    good = np.array(
        [
            [allows(dict(zip([*names, *given], [*w, *seen], strict=True))) for w in worlds.tolist()]
            for seen in X[given].astype(bool).to_numpy()
        ]
    )
    some = worlds[rng.integers(0, len(worlds), rows)]
    y = pd.DataFrame(some, columns=names)
    model = KnowledgeClassifier(
        knowledge, hidden=4, layers=1, max_epochs=2, learning_rate=0.3, violations="repair", random_state=seed, **way
    ).fit(X, y)

    # training labels: those that violate are repaired, to the nearest
    fine = (good & (some[:, None] == worlds).all(-1)).any(1)
    assert model.n_repaired_ == int((~fine).sum())
    nearest = np.where(good, (some[:, None] != worlds).sum(-1), 99).min(1)
    learnt = model._checked(np.array(X, dtype=float), y).y.numpy() > 0.5
    assert ((learnt != some).sum(1) == nearest).all()

    # predictions: consistent, the most probable where that is claimed, and what the network alone would say
    found = model.certificate(X)
    mine = (found.labels[:, None] == worlds).all(-1)
    assert (mine & good).any(1).all() and found.valid.all() and (model.predict(X) == found.labels).all()
    raw, _ = model._raw(X)
    probs = model.predict_proba(X)
    if way["learn"] == "layer":
        refined = torch.from_numpy(probs)
        raw = torch.logit(refined, eps=torch.finfo(refined.dtype).eps)
    if "beliefs" in way:
        k = int(way["beliefs"][-1])
        weights, logits = raw[:, :k].log_softmax(-1), raw[:, k:].reshape(rows, k, len(names))
        each = (
            logits @ torch.from_numpy(worlds.T.astype(float))
            + torch.nn.functional.logsigmoid(-logits).sum(-1)[..., None]
        )
        scores = (weights[..., None] + each).logsumexp(1).numpy()
    else:
        scores = raw.numpy() @ worlds.T
    best = np.where(good, scores, -np.inf).max(1)
    own = np.where(mine, scores, 0).sum(1)
    assert np.allclose(best[found.optimal], own[found.optimal], atol=1e-9)
    assert np.allclose(best, own, atol=1e-3 * (1 + np.abs(scores).max())) or "beliefs" in way
    if "beliefs" not in way and "budget" not in way:
        assert found.optimal.all()
    alone = model.head_.raw_labels(model._raw(X)[0])
    assert (found.before.any(1) == ~(good & (alone[:, None] == worlds).all(-1)).any(1)).all()
    if way["learn"] != "layer" and "budget" not in way:
        mass = np.where(good, np.exp(scores - best[:, None]), 0)
        assert np.allclose(probs, mass @ worlds / mass.sum(1, keepdims=True), atol=1e-9)
    assert np.isfinite(probs).all() and (probs >= 0).all() and (probs <= 1).all()

    # what is written about it
    told = model.explain(X.iloc[[0]])
    assert set(told.labels) == {n for n, true in zip(names, found.labels[0], strict=True) if true}
    assert {c.name for c in told.changed} == {
        n for n, a, b in zip(names, alone[0], found.labels[0], strict=True) if a != b
    }
    assert "budget" in way or model.knowledge_.constraint.models == sum(
        allows({**dict.fromkeys(given, False), **dict(zip([*names, *model.knowledge_.given], bits, strict=True))})
        for bits in product([False, True], repeat=len(names) + len(model.knowledge_.given))
    )
    if "budget" not in way:
        x = np.array(X, dtype=np.float32)
        with torch.no_grad():
            labels = model.to_module()(torch.from_numpy(x))[1].numpy()
        assert (good & (labels[:, None] == worlds).all(-1)).any(1).all()


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_every_certificate_holds_by_enumeration(seed: int, way: dict[str, Any]) -> None:
    for i in range(3):
        check(3 * seed + i, way)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_certificate_holds_for_much_knowledge(way: dict[str, Any]) -> None:
    for seed in range(100, 160):
        check(seed, way)


@pytest.mark.parametrize("learn", ["constrained", "loss", "layer", "repair"])
def test_one_class_for_each_row_obeys_too(learn: str) -> None:
    """The most probable of the classes that are allowed, or an error that names the rows which have none."""
    refused = 0
    for seed in range(12):
        knowledge, allows, names, given = draw(seed)
        if len(names) < 2:
            continue
        rng = np.random.default_rng(seed)
        X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"])
        X = X.assign(**{name: rng.integers(0, 2, 30) for name in given})
        only = [{name: name == label for name in names} for label in names]
        good = np.array(
            [[allows({**w, **dict(zip(given, seen, strict=True))}) for w in only] for seen in X[given].to_numpy() == 1]
        )
        y = np.array(names)[np.arange(30) % len(names)]
        model = KnowledgeClassifier(knowledge, learn=learn, max_epochs=2, violations="repair", random_state=seed)
        if not good.any(1).all():
            refused += 1
            with pytest.raises(KnowledgeError, match=r"exactly one class|no labels are consistent with the features"):
                model.fit(X, y).predict(X)
            continue
        model.fit(X, y)
        assert model.n_repaired_ == int((~good[np.arange(30), np.arange(30) % len(names)]).sum())
        raw, _ = model._raw(X)
        scores = np.where(good, raw.numpy(), -np.inf)
        assert (model.predict(X) == np.array(names)[scores.argmax(1)]).all()
        mass = np.exp(scores - scores.max(1, keepdims=True))
        assert np.allclose(model.predict_proba(X), mass / mass.sum(1, keepdims=True))
        assert model.certificate(X).valid.all()
    assert 0 < refused < 11


def test_violations_are_those_of_the_definition() -> None:
    for seed in range(200):
        knowledge, allows, names, given = draw(seed)
        known = LabelKnowledge(knowledge, names, features=given)
        worlds = np.array([*product([False, True], repeat=len(names) + len(given))])
        expected = [allows(dict(zip([*names, *given], w, strict=True))) for w in worlds.tolist()]
        seen = worlds[:, len(names) :]
        columns = [given.index(name) for name in known.given]
        broken = known.violations(worlds[:, : len(names)], seen[:, columns] if known.given else None)
        assert (~broken.any(1) == np.array(expected)).all()
