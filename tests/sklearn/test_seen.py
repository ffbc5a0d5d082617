"""A belief in the label sets of training rows, against sums over all of them."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import cross_val_score

from doxa.errors import ConfigError, KnowledgeError
from doxa.sklearn import KnowledgeClassifier

# some labels have no example in some of the parts
pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.DoxaWarning")
RULES = "cat | dog -> animal\n!(cat & dog)"


def data(rows: int = 150, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["u", "v", "w"]).assign(wet=rng.integers(0, 2, rows))
    cat = X.u > 0.3
    dog = (X.v > 0.3) & ~cat
    return X, pd.DataFrame({"animal": cat | dog, "cat": cat, "dog": dog, "black": (X.w > 0) & (X.wet == 0)})


def seen(knowledge: Any = RULES, **settings: Any) -> KnowledgeClassifier:
    given = {"hidden": 8, "layers": 1, "max_epochs": 3, "learning_rate": 0.05, "random_state": 0, **settings}
    return KnowledgeClassifier(knowledge, beliefs="seen", **given)


def by_hand(model: KnowledgeClassifier, X: Any, y: pd.DataFrame, allows: Any = lambda world, row: True) -> Any:
    """p(y | x) of every world by a sum over the rows of y, from what the network says alone; ``(n, 16)``."""
    raw, _ = model._raw(X)
    counts = Counter(map(tuple, y.to_numpy().tolist()))
    worlds = [*product([False, True], repeat=4)]
    mass = np.array(
        [
            [counts[w] * np.exp(np.dot(z, w)) if allows(w, row) else 0 for w in worlds]
            for z, (_, row) in zip(raw.numpy(), pd.DataFrame(X).iterrows(), strict=True)
        ]
    )
    return np.array(worlds), mass / mass.sum(1, keepdims=True)


@pytest.mark.parametrize("knowledge", [None, RULES])
def test_probabilities_and_predictions_are_those_of_the_sum_over_training_rows(knowledge: Any) -> None:
    X, y = data()
    X_new, y_new = data(60, seed=1)
    model = seen(knowledge).fit(X, y)
    worlds, mass = by_hand(model, X_new, y)
    assert np.allclose(model.predict_proba(X_new), mass @ worlds)
    found = model.certificate(X_new)
    assert (found.labels == worlds[mass.argmax(1)]).all() and found.valid.all() and found.optimal.all()
    kinds = set(map(tuple, y.to_numpy().tolist()))
    assert set(map(tuple, found.labels.tolist())) <= kinds
    raw, _ = model._raw(X_new)
    own = mass[(worlds[None] == y_new.to_numpy()[:, None]).all(-1)]
    loss = model.head_.loss(raw, torch.tensor(y_new.to_numpy()).double(), None)
    assert np.isclose(float(loss), -np.log(own[own > 0]).mean())  # of rows whose set was seen


@pytest.mark.parametrize("learn", ["constrained", "loss", "repair"])
def test_rules_about_features_leave_fewer_sets(learn: str) -> None:
    X, y = data()
    model = seen(RULES + "\nwet -> !black", learn=learn, weight=0.5).fit(X, y)

    def allows(world: Any, row: Any) -> bool:
        return not (row["wet"] == 1 and world[3])

    worlds, mass = by_hand(model, X, y, allows)
    assert np.allclose(model.predict_proba(X), mass @ worlds)
    assert (model.predict(X) == worlds[mass.argmax(1)]).all() and model.certificate(X).valid.all()
    raw, given = model._raw(X)
    _, free = by_hand(model, X, y)
    own = (worlds[None] == y.to_numpy()[:, None]).all(-1)
    share = np.array([[allows(w, row) for w in worlds] for _, row in X.iterrows()])
    expected = {
        "constrained": -np.log(mass[own]),
        "repair": -np.log(free[own]),
        "loss": -np.log(free[own]) - 0.5 * np.log((free * share).sum(1)),
    }[learn]
    loss = model.head_.loss(raw, torch.tensor(y.to_numpy()).double(), given)
    assert np.isclose(float(loss), expected.mean())
    free_model = seen(RULES + "\nwet -> !black", learn="repair", guarantee=False).fit(X, y)
    _, alone = by_hand(free_model, X, y)
    assert np.allclose(free_model.predict_proba(X), alone @ worlds)
    found = free_model.certificate(X)
    assert (found.optimal == found.valid).all()  # what violates the rules is not the best that obeys


def test_without_a_guarantee_a_class_that_violates_is_not_called_optimal() -> None:
    X, y = data()
    kinds = np.where(y["black"], "black", "white")
    model = KnowledgeClassifier("wet -> !black", learn="repair", guarantee=False, max_epochs=40, random_state=0)
    found = model.fit(X, kinds).certificate(X.assign(wet=1))
    assert (found.optimal == found.valid).all() and not found.valid.all()


def test_a_row_whose_features_leave_no_seen_set_is_named() -> None:
    X, y = data(1200)
    dry = X.assign(wet=0)
    model = seen("wet -> animal & cat & black").fit(dry, y.assign(black=False))
    wet = dry.copy()
    wet.loc[1100, "wet"] = 1
    with pytest.raises(KnowledgeError, match=r"no label set of a training row .* \(wet\) of rows 1100; beliefs='seen'"):
        model.predict(wet)
    classes = KnowledgeClassifier("wet -> cat\nwet -> dog", max_epochs=1).fit(dry, np.array(["cat", "dog"] * 600))
    with pytest.raises(KnowledgeError, match=r"features \(wet\) of rows 1100; correct"):  # and not its place in a part
        classes.predict(wet)


def test_more_rows_bring_more_sets() -> None:
    X, y = data()
    first = ~y["cat"].to_numpy()
    model = seen().partial_fit(X[first], y[first])
    assert not model.predict(X)[:, 1].any() and not model.predict_proba(X)[:, 1].any()
    model.partial_fit(X, y)
    both = pd.concat([y[first], y])
    worlds, mass = by_hand(model, X, both)
    assert np.allclose(model.predict_proba(X), mass @ worlds) and mass[:, worlds[:, 1]].min() >= 0
    assert model.predict(X)[:, 1].any()
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    again.partial_fit(X, y)
    assert again.n_iter_ == 3 and cross_val_score(seen(), X, y, cv=2).shape == (2,)


def test_validation_rows_with_other_sets() -> None:
    X, y = data()
    plain = ~y["cat"].to_numpy()
    model = seen(max_epochs=2).fit(X[plain], y[plain], X_val=X, y_val=y)
    only = seen(max_epochs=2).fit(X[plain], y[plain], X_val=X[plain], y_val=y[plain])
    assert np.allclose(model.history_["validation"], only.history_["validation"], rtol=1e-4)
    with pytest.raises(ValueError, match="no row of y_val has a label set that a row of y has"):
        seen().fit(X[plain], y[plain], X_val=X[~plain], y_val=y[~plain])


def test_many_sets_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    whole = seen().fit(X, y).predict_proba(X)
    monkeypatch.setattr("doxa.sklearn._choices._ENTRIES", 30)
    model = seen().fit(X, y)
    assert model.head_.chunk == 30 // len(model.head_.sets) < 10
    assert np.allclose(model.predict_proba(X), whole)


def test_rows_that_violate_are_repaired_first() -> None:
    X, y = data()
    y.loc[3] = [False, True, False, False]
    model = seen(violations="repair").fit(X, y)
    assert model.n_repaired_ == 1 and model.certificate(X).valid.all()
    assert not model.knowledge_.violations(model.head_.sets).any()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learn": "layer"}, "learn='layer' refines one truth value for each label, not whole label sets"),
        ({"learn": "loss", "semantics": "fuzzy"}, "semantics='fuzzy' refines one truth value"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], said: str) -> None:
    X, y = data()
    with pytest.raises(ConfigError, match=said):
        seen(**settings).fit(X, y)
    with pytest.raises(ConfigError, match="one class for each row needs no beliefs='seen'"):
        seen(None).fit(X, np.arange(150) % 3)
