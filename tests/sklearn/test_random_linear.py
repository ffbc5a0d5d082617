"""Random linear knowledge about real outputs: predictions against a solver of SciPy, row by row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from doxa.errors import KnowledgeError
from doxa.sklearn import KnowledgeRegressor

NAMES = ["a", "b", "c"]


def draw(seed: int) -> tuple[str, np.ndarray, np.ndarray, list[str]]:
    """Rows A y ≤ b that one point obeys, some guarded by a feature, as text and as numbers."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    A = rng.integers(-3, 4, (count, 3)).astype(float)
    A[(A == 0).all(1), 0] = 1
    b = A @ rng.integers(-2, 3, 3) + rng.integers(0, 3, count)
    guards = [["", "u", "!u"][int(rng.integers(3))] for _ in range(count)]
    lines = []
    for row, bound, guard in zip(A, b, guards, strict=True):
        terms = " + ".join(f"{c:g} * {name}" for c, name in zip(row, NAMES, strict=True) if c)
        lines.append(f"{guard} -> {terms} <= {bound:g}" if guard else f"{terms} <= {bound:g}")
    return ";\n".join(lines), A, b, guards


@pytest.mark.parametrize("learn", ["layer", "repair"])
def test_predictions_are_the_nearest_that_obey(learn: str) -> None:
    for seed in range(8):
        text, A, b, guards = draw(seed)
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({"u": rng.integers(0, 2, 40), "v": rng.normal(size=40)})
        y = pd.DataFrame(5 * rng.normal(size=(40, 3)) * [1, 10, 100], columns=NAMES)
        model = KnowledgeRegressor(text, learn=learn, max_epochs=3, random_state=seed).fit(X, y)
        free = KnowledgeRegressor(text, learn=learn, max_epochs=3, random_state=seed, guarantee=False).fit(X, y)
        found, start = model.predict(X), free.predict(X)
        for i in range(0, 40, 8):
            on = np.array([g == "" or (g == "u") == bool(X["u"][i]) for g in guards])
            scale = np.maximum(np.abs(A * found[i]).max(1), np.abs(b))
            assert (A @ found[i] - b <= 4 * np.finfo(float).eps * scale)[on].all()
            rule = {"type": "ineq", "fun": lambda z, on=on, b=b, A=A: (b - A @ z)[on]}
            best = minimize(lambda z, s=start[i]: ((z - s) ** 2).sum(), found[i], method="SLSQP", constraints=[rule])
            assert ((found[i] - start[i]) ** 2).sum() <= best.fun * (1 + 1e-5) + 1e-6


def test_rows_that_contradict_each_other_are_refused_with_a_smallest_part() -> None:
    X, y = np.zeros((4, 1)), pd.DataFrame(np.zeros((4, 3)), columns=NAMES)
    with pytest.raises(KnowledgeError, match="contradict each other: `a >= 7`, `a <= 6`; remove one"):
        KnowledgeRegressor("a >= 7; b >= 0; a <= 6; a + b + c <= 9").fit(X, y)
