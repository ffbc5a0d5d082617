"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from doxa.sklearn import KnowledgeClassifier


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([KnowledgeClassifier(max_epochs=30, random_state=0)])
def test_scikit_learn_accepts_the_classifier(estimator: Any, check: Any) -> None:
    check(estimator)
