"""Refinement inside the network: what it does to truth values, and that it lets all labels learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from doxa.logic import propositions
from doxa.refine import LinearProjection, lukasiewicz_system
from doxa.sklearn import KnowledgeClassifier

bird, penguin, flies = propositions("bird penguin flies")


def data(rows: int, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    X = np.random.default_rng(seed).normal(size=(rows, 4))
    y = pd.DataFrame({"bird": X[:, 0] > 0, "penguin": (X[:, 0] > 0) & (X[:, 1] > 0.5)})
    return X, y.assign(flies=y.bird & ~y.penguin)


def test_one_exclusion_is_refined_to_the_nearest_truth() -> None:
    X, y = data(50, 0)
    model = KnowledgeClassifier("!(penguin & flies)", learn="layer", max_epochs=1, random_state=0).fit(X, y)
    assert model.knowledge_.rules is None
    probs = torch.rand(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nearest = LinearProjection(lukasiewicz_system(~(penguin & flies), atoms=(bird, penguin, flies)))
    torch.testing.assert_close(model.head_._refined(probs, None), nearest(probs))


@pytest.mark.parametrize("seed", range(2))
def test_exclusions_and_exceptions_are_learnt(seed: int) -> None:
    rules = "bird & !penguin -> flies\npenguin -> bird\n!(penguin & flies)"
    settings = {"learn": "layer", "max_epochs": 40, "random_state": seed}
    model = KnowledgeClassifier(rules, **settings).fit(*data(400, 0))
    X, y = data(300, 1)
    scores = [model.score(X, y), KnowledgeClassifier(**settings | {"learn": "repair"}).fit(*data(400, 0)).score(X, y)]
    assert scores[0] > 0.9 and scores[0] > scores[1] - 0.03  # not below a network that knows nothing
    assert model.certificate(X).valid.all()
