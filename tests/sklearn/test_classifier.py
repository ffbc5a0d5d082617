"""The classifier against enumeration of all consistent outputs, and against everything that is done wrong with it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from doxa.errors import BudgetError, ConfigError, DoxaWarning, KnowledgeError
from doxa.problem import Budget
from doxa.sklearn import Allowed, KnowledgeClassifier, KnowledgeRegressor, LabelKnowledge
from doxa.sklearn._targets import LabelError

pytestmark = pytest.mark.filterwarnings("ignore:no circuit for the knowledge fits the budget")
RULES = "cat -> animal\ndog -> animal\n!(cat & dog)"
NAMES = ["animal", "cat", "dog", "black"]
WORLDS = np.array([w for w in product([False, True], repeat=4) if w[0] >= max(w[1], w[2]) and not (w[1] and w[2])])


def data(rows: int = 120, seed: int = 0) -> tuple[np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    cat = X[:, 0] > 0.3
    dog = (X[:, 1] > 0.3) & ~cat
    y = pd.DataFrame({"animal": cat | dog | (X[:, 2] > 1), "cat": cat, "dog": dog, "black": X[:, 3] > 0})
    return X, y


def quick(knowledge: Any = RULES, **settings: Any) -> KnowledgeClassifier:
    return KnowledgeClassifier(knowledge, **{"hidden": 16, "layers": 1, "max_epochs": 3, "random_state": 0, **settings})


WAYS = [
    {"learn": "constrained"},
    {"learn": "loss"},
    {"learn": "loss", "semantics": "fuzzy"},
    {"learn": "layer"},
    {"learn": "repair"},
    {"learn": "constrained", "beliefs": "mixture:2"},
    {"learn": "repair", "budget": Budget(operations=1)},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_predictions_are_the_most_probable_consistent_ones(way: dict[str, Any]) -> None:
    X, y = data()
    model = quick(**way).fit(X, y)
    found = model.certificate(X)
    assert found.valid.all() and found.before.shape == found.violated.shape == (len(X), 3)
    assert (model.predict(X) == found.labels).all()
    assert found.optimal.all() or "budget" in way  # MaxSAT proves nothing
    raw, _ = model._raw(X)
    if way.get("learn") == "layer":
        raw = torch.logit(model.head_._refined(raw.sigmoid(), None), eps=torch.finfo(raw.dtype).eps)
    if "beliefs" in way:
        belief = model.head_.belief(raw)
        scores = torch.stack([belief.log_prob(torch.tensor(w).long().expand(len(X), 4)) for w in WORLDS], 1).numpy()
    else:
        scores = raw.numpy() @ WORLDS.T  # log p(w) but for a constant
    mine = (found.labels[:, None] == WORLDS).all(-1)
    assert np.allclose(scores.max(1), (scores * mine).sum(1))
    if way["learn"] != "layer" and "budget" not in way:
        weights = np.exp(scores - scores.max(1, keepdims=True))
        marginals = weights @ WORLDS / weights.sum(1, keepdims=True)
        assert np.allclose(model.predict_proba(X), marginals, atol=1e-9)


def test_the_constrained_loss_is_the_likelihood_among_consistent_outputs() -> None:
    X, y = data()
    for beliefs in ("independent", "mixture:3"):
        model = quick(beliefs=beliefs).fit(X, y)
        raw, _ = model._raw(X)
        belief = model.head_.belief(raw)
        logs = torch.stack([belief.log_prob(torch.tensor(w).long().expand(len(X), 4)) for w in WORLDS], 1)
        own = belief.log_prob(torch.tensor(y.to_numpy()).long())
        expected = (logs.logsumexp(1) - own).mean() / 4
        found = model.head_.loss(raw, torch.tensor(y.to_numpy()).double(), None)
        torch.testing.assert_close(found, expected)


def test_learning_with_knowledge_learns() -> None:
    X, y = data(400)
    X_test, y_test = data(200, seed=1)
    for way in WAYS[:5]:
        model = KnowledgeClassifier(RULES, random_state=0, max_epochs=40, **way).fit(X, y)
        assert model.score(X_test, y_test) > 0.7, way


def test_same_seed_same_numbers_and_copies() -> None:
    X, y = data()
    first, again, other = (quick(random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    before = torch.rand(1, generator=torch.Generator().manual_seed(0)), torch.get_rng_state()
    model = quick(averaging=0.9).fit(X, y)
    assert torch.equal(before[1], torch.get_rng_state())
    copied = pickle.loads(pickle.dumps(model))
    assert (copied.predict_proba(X) == model.predict_proba(X)).all()
    assert clone(model).get_params()["averaging"] == 0.9


def test_works_with_the_tools_of_scikit_learn() -> None:
    X, y = data()
    search = GridSearchCV(quick(), {"learn": ["constrained", "repair"]}, cv=2).fit(X, y)
    assert search.best_params_["learn"] in ("constrained", "repair")
    pipeline = make_pipeline(StandardScaler(), quick())
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)


def test_classes_and_given_features() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"rain": rng.integers(0, 2, 200), "wind": rng.normal(size=200)})
    y = np.where(X["rain"] == 1, "cinema", np.where(X["wind"] > 0, "beach", "park"))
    for learn in ("constrained", "loss", "layer", "repair"):
        model = quick("rain -> !beach", learn=learn).fit(X, y)
        assert model.classes_.tolist() == ["beach", "cinema", "park"]
        assert not ((model.predict(X) == "beach") & (X["rain"] == 1)).any()
        proba = model.predict_proba(X)
        assert np.allclose(proba.sum(1), 1) and (proba[X["rain"] == 1, 0] == 0).all()
        assert np.isfinite(model.decision_function(X)).all()
    wet = X.assign(rain=np.nan)
    with pytest.raises(ValueError, match="'rain', which the knowledge mentions, is nan in row 0"):
        model.predict(wet)
    labels = pd.DataFrame({"beach": y == "beach", "swim": y == "beach"})
    many = quick("swim -> beach\nrain -> !beach").fit(X, labels)
    assert many.certificate(X).valid.all()
    with pytest.raises(KnowledgeError, match=r"no labels are consistent with the features \(rain\) of rows"):
        quick("rain -> beach\nrain -> !beach", violations="repair").fit(X, labels).predict(X)


def test_validation_data_stop_early_and_averages_count() -> None:
    X, y = data()
    model = quick(max_epochs=50, patience=2, learning_rate=0.05, averaging=0.5)
    model.fit(X, y, X_val=X[:40], y_val=y[:40])
    losses = model.history_["validation"]
    assert model.n_iter_ == len(losses) and model.best_iter_ == int(np.argmin(losses)) + 1
    assert model.n_iter_ == 50 or model.n_iter_ == model.best_iter_ + 2
    for monitor in ("average_precision", "exact_match"):
        assert quick(monitor=monitor, schedule="cosine").fit(X, y).history_["validation"]


def test_missing_values_and_constant_columns() -> None:
    X, y = data()
    X[::3, 0] = np.nan
    X[:, 1] = 7.0
    X[:, 2] = np.nan
    model = quick().fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    filled = np.where(np.isnan(X), np.append(np.nanmean(X[:, :2], 0), [0, np.nanmean(X[:, 3])]), X)
    assert np.allclose(model.predict_proba(X), model.predict_proba(filled))


def test_partial_fit_goes_on() -> None:
    X, y = data()
    model = quick()
    for _ in range(3):
        model.partial_fit(X, y)
    assert model.n_iter_ == 3 and len(model.history_["loss"]) == 3
    assert model.history_["loss"][-1] < model.history_["loss"][0]
    assert model.certificate(X).valid.all()


def test_rows_that_violate_the_knowledge() -> None:
    X, y = data()
    y.loc[[3, 7], "animal"] = False
    y.loc[[3, 7], "cat"] = True
    y.loc[[3, 7], "dog"] = False
    with pytest.raises(ValueError, match=r"labels of 2 rows violate the knowledge: 3, 7; row 3 violates cat -> animal"):
        quick().fit(X, y)
    assert quick(violations="drop").fit(X, y).n_dropped_ == 2
    for budget in (None, Budget(operations=1)):  # by the circuit, and by MaxSAT
        model = quick(violations="repair", learn="repair", budget=budget).fit(X, y)
        assert model.n_repaired_ == 2
        rows = model._checked(X, y)
        assert int((rows.y.numpy().astype(bool) != y.to_numpy()).sum()) == 2  # one label each
    with pytest.raises(BudgetError, match="learn='repair'"):
        quick(budget=Budget(operations=1)).fit(X, y)


def test_a_network_of_ones_own() -> None:
    X, y = data()
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    before = [p.clone() for p in network.parameters()]
    assert quick(network=network).fit(X, y).certificate(X).valid.all()
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    assert quick(network=lambda n, m: nn.Linear(n, m)).fit(X, y).n_iter_ == 3
    with pytest.raises(ConfigError, match=r"makes \(2, 3\) of 2 rows, expected \(2, 4\)"):
        quick(network=nn.Linear(4, 3)).fit(X, y)
    with pytest.raises(ConfigError, match="does not take rows of 4 features"):
        quick(network=nn.Linear(5, 4)).fit(X, y)


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"learn": "magic"}, "learn is 'magic', expected one of constrained, loss, layer, repair"),
    ({"beliefs": "mixture:0"}, "expected 'independent', 'seen', or 'mixture:K'"),
    ({"beliefs": 4}, "expected 'independent', 'seen', or 'mixture:K'"),
    ({"beliefs": "mixture:2", "learn": "layer"}, "not a mixture"),
    ({"semantics": "vague"}, "semantics is 'vague'"),
    ({"violations": "ignore"}, "violations is 'ignore'"),
    ({"monitor": "luck"}, "monitor is 'luck'"),
    ({"max_epochs": 0}, "max_epochs is 0, expected a whole number of at least 1"),
    ({"max_epochs": "3"}, "max_epochs is '3', expected a whole number"),
    ({"batch_size": 1.5}, "batch_size is 1.5, expected a whole number"),
    ({"hidden": 2.5}, "hidden is 2.5, expected a whole number"),
    ({"layers": -1}, "layers is -1, expected a whole number of at least 0"),
    ({"dropout": None}, "dropout is None, expected a share"),
    ({"learning_rate": float("nan")}, "learning_rate is nan, expected a number above 0"),
    ({"weight_decay": -1}, "weight_decay is -1, expected a number of at least 0"),
    ({"weight": "1"}, "weight is '1', expected a number"),
    ({"validation_fraction": 1.0}, "validation_fraction is 1.0, expected a share"),
    ({"patience": 0}, "patience is 0, expected a whole number of at least 1, or None"),
    ({"averaging": 1}, "averaging is 1, expected a number between 0 and 1, or None"),
    ({"budget": 3}, "budget is 3, expected a doxa.problem.Budget"),
    ({"guarantee": "yes"}, "guarantee is 'yes', expected True or False"),
    ({"network": "cnn"}, "network is 'cnn'"),
    ({"activation": "step"}, "activation is 'step'"),
    ({"random_state": "x"}, "cannot be used to seed"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=lambda x: str(x)[:30])
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    X, y = data()
    for learn in (lambda m: m.fit(X, y), lambda m: m.partial_fit(X, y)):
        with pytest.raises(ValueError, match=message):
            learn(quick(**settings))


def test_bad_settings_of_the_regressor_are_refused() -> None:
    X, y = data()
    for settings, message in ({"learn": "loss"}, "learn is 'loss'"), ({"hidden": "9"}, "hidden is '9'"):
        with pytest.raises(ConfigError, match=message):
            KnowledgeRegressor("y0 <= 1", **settings).fit(X, y.to_numpy(dtype=float))


TARGETS: list[tuple[Any, str]] = [
    (lambda y: y.astype(float).mask(y["cat"]), "contains NaN in rows"),
    (lambda y: y.astype(object).mask(y["cat"], None), "contains NaN in rows"),
    (lambda y: y.astype(float).mask(y["cat"], np.inf), "contains infinity in rows"),
    (lambda y: y.drop(columns="animal"), "animal"),
    (lambda y: y.rename(columns={"cat": "kitten"}), "mentions 'cat', which is neither a label of y nor a named"),
    (lambda y: y.set_axis(["animal", "cat", "dog", "dog"], axis=1), "two labels are named 'dog'"),
    (lambda y: y.astype(int) * 2, "several labels are 0 and 1 each"),
    (lambda y: y.astype(str), "expected 0 and 1"),
    (lambda y: y[:10], "inconsistent numbers of samples"),
    (lambda y: y[:0], "inconsistent numbers of samples"),
    (lambda y: y[[]], "no columns"),
    (lambda y: np.zeros((120, 2, 2)), r"y has shape \(120, 2, 2\), expected \(rows,\) classes"),
    (lambda y: "cat", r"y has shape \(\), expected"),
    (lambda y: None, "requires y to be passed"),
    (lambda y: np.linspace(0, 1, 120), "Unknown label type: continuous"),
]


@pytest.mark.parametrize(("spoil", "message"), TARGETS, ids=[message[:30] for _, message in TARGETS])
def test_bad_labels_are_refused(spoil: Any, message: str) -> None:
    X, y = data()
    with pytest.raises(ValueError, match=message):
        quick(None if "Unknown" in message else RULES).fit(X, spoil(y))


FEATURES: list[tuple[Any, str]] = [
    (lambda X: np.full((120, 2), "a"), "could not convert string to float: .*'a'"),
    (lambda X: "text", "could not convert string to float: 'text'"),
    (lambda X: None, "Expected 2D array"),
    (lambda X: X[:, 0], "Expected 2D array, got 1D array"),
    (lambda X: X[None], "Found array with dim 3"),
    (lambda X: X[:, :0], r"0 feature\(s\)"),
    (lambda X: pd.DataFrame(X)[[]], r"0 feature\(s\)"),
    (lambda X: X[:0], r"0 sample\(s\)"),
    (lambda X: np.where(X > 2, np.inf, X), "Input X contains infinity"),
]


@pytest.mark.parametrize(("spoil", "message"), FEATURES, ids=[message[:30] for _, message in FEATURES])
def test_bad_features_are_refused(spoil: Any, message: str) -> None:
    X, y = data()
    with pytest.raises(ValueError, match=message):
        quick().fit(spoil(X), y)
    model = quick(max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.predict(spoil(X))


def test_other_features_than_those_of_fit_are_refused() -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=list("abcd"))
    model = quick(max_epochs=1).fit(table, y)
    for other, message in (
        (table[list("bacd")], "must be in the same order"),
        (table[list("abc")], "now missing:\n- d"),
        (table[list("abcd")].assign(e=0), "unseen at fit time:\n- e"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(other)


def test_more_bad_input() -> None:
    X, y = data()
    with pytest.warns(DoxaWarning, match="1 label has no positive example \\(dog\\)"):
        quick().fit(X, y.assign(dog=False))
    model = quick().fit(X, y)
    with pytest.raises(ValueError, match="y has the columns"):
        model.report(X, y[NAMES[::-1]])
    with pytest.raises(ConfigError, match="give both"):
        quick().fit(X, y, X_val=X)
    with pytest.raises(ConfigError, match="explain takes one row, got 2"):
        model.explain(X[:2])
    with pytest.raises(ConfigError, match="explain takes one row, got 'x'"):
        model.explain("x")
    with pytest.raises(ValueError, match="inconsistent numbers"):
        model.report(X, y[:3])
    with pytest.raises(NotFittedError):
        quick().predict(X)
    with pytest.raises(ConfigError, match="names is the text 'ab'"):
        LabelKnowledge("a", "ab")
    with pytest.raises(KnowledgeError, match=r"y has no names, so its labels are numbers; give them: pd.DataFrame"):
        quick().fit(X, y.to_numpy())


def test_what_is_no_number_is_named() -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=list("abcd"))
    for wrong in ("red", pd.Categorical(["red"] * 120), pd.Timestamp("2020-01-01")):
        with pytest.raises(ValueError, match=r"the column 'b' of X has '(red|2020.*)' in it, expected numbers; encode"):
            quick().fit(table.assign(b=wrong), y)
    for labels in ([{"cat"}] * 120, [["cat"], ["cat", "animal"]] * 60, pd.Series([{"cat"}] * 120)):
        with pytest.raises(ValueError, match=r"y has (set|list)s of labels, .*MultiLabelBinarizer\(\)"):
            quick().fit(X, labels)
    with pytest.raises(ValueError, match=r"columns of str such as 'no', expected 0 and 1.*say y == 'yes'"):
        quick().fit(X, y.replace({True: "yes", False: "no"}))
    costs = pd.DataFrame({"the rent": X[:, 0], "food": X[:, 1]})
    with pytest.raises(KnowledgeError, match=r'double quotation marks: "the rent" >= food$'):
        KnowledgeRegressor("the rent >= food").fit(X, costs)
    with pytest.raises(KnowledgeError, match=r"names the value '(rent|food)', .*; the columns of y are y0, y1$"):
        KnowledgeRegressor("rent >= food").fit(X, costs.to_numpy())


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_one_row_and_one_label(way: dict[str, Any]) -> None:
    X, y = data()
    with pytest.warns(DoxaWarning, match="2 labels have no positive example"):
        single = quick(**way).fit(X[:1], pd.DataFrame([[True, True, False, False]], columns=NAMES))
    assert single.predict(X[:1]).shape == (1, 4) and single.certificate(X).valid.all()
    table = pd.DataFrame(X, columns=list("abcd")).assign(rain=np.arange(120) % 2)
    one = y[["black"]] & (table[["rain"]] == 0).to_numpy()
    model = quick("rain -> !black", **way).fit(table, one)
    assert model.classes_.tolist() == ["black"] and model.predict(table).shape == (120, 1)
    assert not (model.predict(table)[:, 0] & (table["rain"] == 1)).any()
    assert model.score(table, one) == model.score(table, one["black"])
    assert "black" in model.report(table, one) and model.explain(table[:1]).labels in ((), ("black",))


@pytest.mark.parametrize("kind", [bool, int, float])
def test_knowledge_names_a_column_of_zero_and_one(kind: type) -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=list("abcd")).assign(rain=np.arange(120) % 2, dark=np.arange(120) % 3 == 0)
    one = ((y["black"] | table["dark"]) & (table["rain"] == 0)).astype(kind).rename("black")
    model = quick("rain -> !black\ndark & !rain -> black").fit(table, one)
    found = model.predict(table)
    assert found.shape == (120,) and found.dtype == one.dtype and set(found) <= set(one)
    assert not found[table["rain"] == 1].any() and found[(table["rain"] == 0) & table["dark"]].all()
    assert model.knowledge_.requirements[0].text == "rain -> !black"
    assert model.certificate(table).valid.all() and model.score(table, one) > 0.6
    assert (pickle.loads(pickle.dumps(model)).predict(table) == found).all()
    with pytest.raises(LabelError, match="row 1 violates rain -> !black"):
        quick("rain -> !black").fit(table, (one == 0).astype(kind))
    with pytest.raises(KnowledgeError, match="'rain' is a label and a feature"):
        quick("rain -> dark").fit(table, one.rename("rain"))


def test_one_column_is_a_label_or_classes() -> None:
    X, y = data()
    with pytest.raises(KnowledgeError, match=r"one of 0 and 1 can have a name: pd.Series\(y, name=\.\.\.\)"):
        quick("!black").fit(X, y["black"].to_numpy())
    words = y[["black"]].replace({True: "yes", False: "no"}).infer_objects()
    with pytest.warns(DataConversionWarning):
        assert quick(None).fit(X, words).classes_.tolist() == ["no", "yes"]
    model = quick(None).partial_fit(X, y[["black"]].astype(int), classes=[0, 1, 2])
    assert model.partial_fit(X, y[["black"]].astype(int)).classes_.tolist() == [0, 1, 2]


def test_progress_is_shown_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data()
    quick().fit(X, y)
    assert capsys.readouterr().out == ""
    quick(verbose=True).fit(X, y)
    assert "step 3/3" in capsys.readouterr().out


def test_a_hierarchy_that_goes_in_a_circle_makes_labels_equal() -> None:
    X, y = data()
    y = y.assign(dog=y["cat"])[["cat", "dog"]]
    for learn in ("constrained", "layer"):
        model = quick({"cat": ["dog"], "dog": ["cat"]}, learn=learn).fit(X, y)
        assert (model.predict(X)[:, 0] == model.predict(X)[:, 1]).all()


def test_scikit_learn_is_loaded_only_where_it_is_needed() -> None:
    reads = "doxa.sklearn.LabelKnowledge('a -> b', ['a', 'b'])"
    code = f"import doxa, sys; {reads}; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="no attribute 'Knowledge'"):
        _ = sys.modules["doxa.sklearn"].Knowledge


def test_tables_with_columns_in_another_order_are_refused() -> None:
    X, y = data()
    model = quick().fit(X, y)
    turned = y[list(y.columns[::-1])]
    with pytest.raises(ValueError, match="in this order"):
        model.score(X, turned)
    with pytest.raises(KnowledgeError, match="in this order"):
        model.knowledge_.violations(turned)
    with pytest.raises(KnowledgeError, match="other numbers than 0 and 1"):
        model.knowledge_.violations(np.full((2, y.shape[1]), 0.7))


def test_probabilities_without_a_circuit_are_said_to_be_the_networks_own() -> None:
    X, y = data()
    model = quick(learn="repair", budget=Budget(operations=10))
    with pytest.warns(DoxaWarning, match="predictions obey it by MaxSAT, but probabilities are those of the network"):
        model.fit(X, y)
    assert not model.certificate(X).violated.any()


@pytest.mark.parametrize(
    ("knowledge", "message"),
    [
        ("kat -> animal", "mentions 'kat', which is neither a label of y nor a named feature of X; the labels are"),
        ([{"cat": "no", "dog": True}], "a combination says that 'cat' is 'no', expected True or False"),
        ([{"cat": None}], "a combination says that 'cat' is None, expected True or False"),
        ({"cat": None}, "says that None is above 'cat', expected a list of labels"),
        ({"cat": ["animal", "beast"]}, "mentions 'beast', which is neither a label"),
        ([{"cat"}, "dog"], "the list has 'dog', expected combinations"),
        ([set()], "an empty one, which forbids everything"),
        (Allowed([]), "nothing is allowed"),
        ("cat ->", "something is missing after '->'"),
        ("nowhere.doxa", "there is no file 'nowhere.doxa'"),
        ("p cnf 9 1\n9 0", "the clauses have 9 variables, but y has 4 labels"),
        (3, "the knowledge is a int, expected text, a formula"),
        ("cat; !animal; cat -> animal", "contradicts itself: these cannot all hold: cat; !animal; cat -> animal"),
    ],
)
def test_knowledge_with_slips_is_refused(knowledge: Any, message: str) -> None:
    X, y = data()
    with pytest.raises(KnowledgeError, match=message):
        KnowledgeClassifier(knowledge).fit(X, y)


def test_knowledge_that_leaves_no_class_is_refused() -> None:
    with pytest.raises(KnowledgeError, match="exactly one class, and the knowledge allows none of them: !cat; !dog"):
        KnowledgeClassifier("!cat; !dog").fit([[0.0], [1.0]], ["cat", "dog"])


def test_what_maxsat_chose_is_not_called_proven() -> None:
    X, y = data()
    model = quick(learn="repair", budget=Budget(operations=10)).fit(X, y)
    found = model.certificate(X)
    assert found.valid.all() and (found.optimal == ~found.before.any(1)).all() and not found.optimal.all()
    without = quick(guarantee=False).fit(X, y).certificate(X)
    assert (without.optimal == ~without.violated.any(1)).all()
