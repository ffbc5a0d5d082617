"""Explanations, reports and exports say what the classifier does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from doxa.errors import ConfigError, DoxaWarning
from doxa.problem import Budget
from doxa.sklearn import KnowledgeClassifier, KnowledgeRegressor


def data() -> tuple[np.ndarray, pd.DataFrame]:
    X = np.random.default_rng(0).normal(size=(150, 4))
    cat = X[:, 0] > 0.3
    return X, pd.DataFrame({"<b>animal": cat | (X[:, 2] > 1), "cat": cat, "dog": (X[:, 1] > 0.3) & ~cat})


KNOWLEDGE: list[Any] = [{"cat": ["<b>animal"]}, '!(cat & dog)\ncat -> "<b>animal"', None]


def fitted(knowledge: Any, learn: str = "repair") -> tuple[KnowledgeClassifier, np.ndarray, pd.DataFrame]:
    X, y = data()
    return KnowledgeClassifier(knowledge, learn=learn, max_epochs=2, random_state=0).fit(X, y), X, y


def test_explanations_name_what_was_violated_and_changed() -> None:
    model, X, _ = fitted(KNOWLEDGE[1])
    found = model.certificate(X)
    row = int(np.flatnonzero(found.before.any(1))[0])
    told = model.explain(X[row])
    broken = np.flatnonzero(found.before[row])
    assert told.violated == tuple(model.knowledge_.requirements[i].text for i in broken)
    raw, _ = model._raw(X[row : row + 1])
    changed = np.flatnonzero((raw[0].numpy() > 0) != found.labels[row])
    assert [c.name for c in told.changed] == [model.classes_[i] for i in changed] and len(changed)
    assert "would violate" in str(told) and "changed: " in str(told)
    clean = int(np.flatnonzero(~found.before.any(1))[0])
    assert not model.explain(X[clean]).changed


def test_the_report_counts_and_escapes(tmp_path: Path) -> None:
    model, X, y = fitted(KNOWLEDGE[1])
    page = model.report(X, y, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert "<b>animal" not in page and "&lt;b&gt;animal" in page
    before = int(model.certificate(X).before.sum())
    assert before and f"<td>violations</td><td>0</td><td>{before:,}</td>" in page
    assert f"<td>exact match</td><td>{100 * model.score(X, y):.2f} %</td>" in page
    assert "No requirement mentions" not in page and "dropped rows" in page
    assert "No requirement mentions dog." in fitted(KNOWLEDGE[0])[0].report(X, y)
    plain = KnowledgeClassifier(max_epochs=1, random_state=0).fit(X, y["cat"].map({True: "yes", False: "no"}))
    assert "None." in plain.report(X, y["cat"].map({True: "yes", False: "no"}))


WAYS: list[dict[str, Any]] = [
    {"learn": "constrained"},
    {"learn": "layer"},
    {"learn": "repair"},
    {"learn": "loss", "guarantee": False},
    {"learn": "constrained", "guarantee": False},
    {"learn": "constrained", "beliefs": "mixture:3"},
    {"learn": "repair", "beliefs": "mixture:2"},
    {"learn": "constrained", "beliefs": "mixture:2", "guarantee": False},
    {"learn": "constrained", "beliefs": "seen"},
    {"learn": "repair", "beliefs": "seen", "guarantee": False},
]


def deployed(model: KnowledgeClassifier, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What the module says that is exported."""
    with torch.no_grad():
        probs, labels = model.to_module()(x)
    return probs.numpy(), labels.numpy()


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_the_module_decides_as_the_classifier(knowledge: Any, way: dict[str, Any]) -> None:
    X, y = data()
    model = KnowledgeClassifier(knowledge, max_epochs=2, random_state=0, **way).fit(X, y)
    x = torch.from_numpy(X).float()
    probs, labels = deployed(model, x)
    assert (labels == model.predict(x.numpy())).all()
    assert np.allclose(probs, model.predict_proba(x.numpy()), atol=1e-5)
    assert not way.get("guarantee", True) or not model.knowledge_.violations(labels).any()


@pytest.mark.parametrize("way", [*WAYS[:6], *WAYS[8:]], ids=str)
@pytest.mark.parametrize("rules", ["cat -> animal\nrain -> !dog", "rain & cat -> animal"])
def test_the_module_knows_given_features(rules: str, way: dict[str, Any]) -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=list("wxyz")).assign(rain=np.arange(150) % 2).astype(np.float32)
    y = y.rename(columns={"<b>animal": "animal"}).assign(dog=y["dog"] & (table["rain"] == 0))
    model = KnowledgeClassifier(rules, max_epochs=2, random_state=0, **way).fit(table, y)
    probs, labels = deployed(model, torch.from_numpy(table.to_numpy()))
    assert (labels == model.predict(table)).all()
    assert np.allclose(probs, model.predict_proba(table), atol=1e-5)
    if way.get("guarantee", True):
        assert not model.knowledge_.violations(labels, table[["rain"]].to_numpy()).any()


def test_the_module_knows_given_features_of_classes() -> None:
    X, _ = data()
    table = pd.DataFrame(X, columns=list("wxyz")).assign(rain=np.arange(150) % 2, cold=np.arange(150) // 75)
    table = table.astype(np.float32)
    y = np.where(table["rain"] == 1, "cinema", np.where((table["w"] > 0) & (table["cold"] == 0), "beach", "park"))
    model = KnowledgeClassifier("rain | cold -> !beach\nrain & cold -> !park", max_epochs=2, random_state=0)
    model.fit(table, y)
    probs, labels = deployed(model, torch.from_numpy(table.to_numpy()))
    assert (model.classes_[labels.argmax(1)] == model.predict(table)).all()
    assert np.allclose(probs, model.predict_proba(table), atol=1e-5)


def test_rows_without_consistent_labels_have_no_probabilities() -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=list("wxyz")).assign(rain=0.0, cold=0.0)
    model = KnowledgeClassifier("rain -> cat\ncold -> !cat", max_epochs=1, random_state=0).fit(table, y)
    x = torch.from_numpy(table.assign(rain=[1.0, *[0.0] * 149], cold=[1.0, 1.0, *[0.0] * 148]).to_numpy()).float()
    probs, _ = deployed(model, x)
    assert np.isnan(probs[0]).all() and np.isfinite(probs[1:]).all()


@pytest.mark.parametrize("way", [WAYS[0], WAYS[1], WAYS[5], WAYS[8]], ids=str)
def test_torch_export_takes_the_module(way: dict[str, Any]) -> None:
    X, y = data()
    model = KnowledgeClassifier(KNOWLEDGE[1], max_epochs=2, random_state=0, **way).fit(X, y)
    x, rows = torch.from_numpy(X).float(), torch.export.Dim("rows", min=1)
    program = torch.export.export(model.to_module(), (x[:2],), dynamic_shapes=({0: rows},)).module()
    for count in (1, 150):
        probs, labels = program(x[:count])
        assert np.array_equal(labels.numpy(), deployed(model, x[:count])[1])
        assert np.allclose(probs.detach().numpy(), deployed(model, x[:count])[0], atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("way", [WAYS[0], WAYS[1], WAYS[5]], ids=str)
@pytest.mark.parametrize("knowledge", KNOWLEDGE[:2])
def test_onnx_decides_as_the_classifier(knowledge: Any, way: dict[str, Any], tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    X, y = data()
    model = KnowledgeClassifier(knowledge, max_epochs=2, random_state=0, **way).fit(X, y)
    model.export_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for rows in (1, 150):
        probs, labels = session.run(None, {"x": X[:rows].astype(np.float32)})
        assert (labels == model.predict(X[:rows].astype(np.float32))).all()
        assert not model.knowledge_.violations(labels).any()
        assert np.allclose(probs, model.predict_proba(X[:rows]), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("beliefs", ["independent", "mixture:3"])
def test_onnx_keeps_the_rules_where_the_network_is_sure_of_the_opposite(beliefs: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.normal(size=300), "indoors": random.integers(2, size=300).astype(float)})
    y = pd.DataFrame({"beach": (X.a > 0) & (X.indoors == 0)})
    y["swim"] = y.beach & (X.a > 0.5)
    model = KnowledgeClassifier("indoors -> !beach\nswim -> beach", beliefs=beliefs, max_epochs=30, random_state=0)
    model.fit(X, y).export_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    far = pd.DataFrame({"a": np.linspace(-30, 30, 121), "indoors": 1.0})
    for rows in (X, far):
        probs, labels = session.run(None, {"x": rows.to_numpy().astype(np.float32)})
        assert not labels[rows.indoors == 1].any() and not (labels[:, 1] & ~labels[:, 0]).any()
        assert (labels == model.predict(rows)).all()
        assert np.allclose(probs, model.predict_proba(rows), atol=1e-5)


def test_what_cannot_be_exported_says_so() -> None:
    X, y = data()
    with pytest.warns(DoxaWarning, match="no circuit"):
        model = KnowledgeClassifier(KNOWLEDGE[1], learn="repair", budget=Budget(operations=1), max_epochs=1).fit(X, y)
    with pytest.raises(ConfigError, match="no affordable circuit; export with guarantee=False"):
        model.to_module()
    names = [f"f{i}" for i in range(13)]
    many = KnowledgeClassifier("\n".join(f"{name} -> a" for name in names), max_epochs=1)
    many.fit(pd.DataFrame(np.zeros((4, 13)), columns=names), ["a", "b"] * 2)
    with pytest.raises(ConfigError, match="mentions 13 features, more than the 12 that can be exported"):
        many.to_module()


def test_the_regressor_obeys_and_repairs() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["u", "v", "student"])
    X["student"] = (X["student"] > 0).astype(int)
    y = pd.DataFrame({"rent": np.abs(X["u"]) * np.where(X["student"] == 1, 0.1, 1), "food": np.abs(X["v"])})
    y["total"] = y["rent"] + y["food"]
    rules = "total = rent + food\nrent >= 0\nstudent -> rent <= 0.5"
    for learn in ("layer", "repair"):
        model = KnowledgeRegressor(rules, learn=learn, max_epochs=20, random_state=0).fit(X, y)
        found = model.predict(X)
        assert np.allclose(found[:, 2], found[:, 0] + found[:, 1], atol=1e-12) and (found[:, 0] >= -1e-12).all()
        assert (found[X["student"] == 1, 0] <= 0.5 + 1e-12).all()
        assert model.score(X, y) > 0.5
    wrong = y.assign(total=y["total"] + (np.arange(200) == 5))
    with pytest.raises(ValueError, match="the values of 1 rows violate the knowledge: 5"):
        KnowledgeRegressor("total = rent + food", violations="error").fit(X, wrong)
    assert KnowledgeRegressor("total = rent + food", violations="drop", max_epochs=1).fit(X, wrong).n_dropped_ == 1
    assert KnowledgeRegressor("total = rent + food", max_epochs=1).fit(X, wrong).n_repaired_ == 1
    with pytest.raises(ValueError, match="a guard names 'pupil'"):
        KnowledgeRegressor("pupil -> rent <= 1").fit(X, y)


def test_files_want_a_folder_that_is_there(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = KnowledgeClassifier(max_epochs=1, random_state=0).fit(X, X[:, 0] > 0)
    for write in (lambda file: model.report(X, X[:, 0] > 0, file), model.export_onnx):
        with pytest.raises(ConfigError, match=r"there is no folder .*nowhere; make it first"):
            write(tmp_path / "nowhere" / "file")
