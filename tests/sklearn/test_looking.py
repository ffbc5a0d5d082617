"""Explanations, reports and exports say what the classifier does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from doxa.errors import ConfigError
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
    plain = KnowledgeClassifier(max_epochs=1, random_state=0).fit(X, y["cat"].map({True: "yes", False: "no"}))
    assert "None." in plain.report(X, y["cat"].map({True: "yes", False: "no"}))


@pytest.mark.parametrize("learn", ["constrained", "layer", "repair"])
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
def test_the_exported_program_decides_as_the_classifier(knowledge: Any, learn: str) -> None:
    model, X, _ = fitted(knowledge, learn)
    x = torch.from_numpy(X).float()
    rows = torch.export.Dim("rows", min=1)
    program = torch.export.export(model.to_module(), (x[:2],), dynamic_shapes=({0: rows},)).module()
    probs, labels = program(x)
    assert (labels.numpy() == model.predict(x.numpy())).all()
    assert np.allclose(probs.detach().numpy(), model.predict_proba(x.numpy()), atol=1e-5)
    assert not model.knowledge_.violations(labels.numpy()).any()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("learn", ["constrained", "layer"])
def test_onnx_decides_as_the_classifier(learn: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, X, _ = fitted(KNOWLEDGE[1], learn)
    model.export_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for rows in (1, 150):
        probs, labels = session.run(None, {"x": X[:rows].astype(np.float32)})
        assert (labels == model.predict(X[:rows].astype(np.float32))).all()
        assert np.allclose(probs, model.predict_proba(X[:rows]), atol=1e-5)


def test_what_cannot_be_exported_says_so() -> None:
    X, y = data()
    mixed = KnowledgeClassifier(KNOWLEDGE[0], beliefs="mixture:2", max_epochs=1).fit(X, y)
    with pytest.raises(ConfigError, match="mixture"):
        mixed.to_module()


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
