"""The regression twin: real outputs that obey linear knowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn

from doxa.errors import ConfigError, KnowledgeError
from doxa.refine import LinearProjection, LinearSystem
from doxa.sklearn._base import NetworkEstimator
from doxa.sklearn._network import Standardise
from doxa.sklearn._read import with_quotes
from doxa.sklearn._targets import LabelError, read_numbers
from doxa.sklearn._training import Rows


class KnowledgeRegressor(RegressorMixin, NetworkEstimator):
    """A network for tables whose real outputs obey linear knowledge, such as ``total = rent + food``.

    Knowledge speaks of the columns of y by name (``y`` if it is one column, ``y0``, ``y1``, ... if they have no names).
    A row may be guarded by Boolean features: ``student -> rent <= 400``. Predictions are the nearest values that obey.

    Args:
        knowledge: a text or a ``LinearSystem``, as `LinearProjection` takes them; None for a plain network.
        network: as for `KnowledgeClassifier`.
        learn: "layer" projects inside the network, so that it learns with the projection; "repair" only predicts by it.
        guarantee: project predictions.
        violations: of training rows: "error", "drop", or "repair" by the nearest values that obey. Numbers that were
            rounded seldom obey an equation to the last digit, so the default is to repair.
        hidden, layers, dropout, activation, learning_rate, weight_decay, batch_size, max_epochs, schedule,
            validation_fraction, patience, averaging, random_state, verbose: as for `KnowledgeClassifier`.

    >>> import pandas as pd
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> y = pd.DataFrame({"a": X[:, 0] ** 2, "b": X[:, 1] ** 2}).assign(total=lambda t: t.a + t.b)
    >>> model = KnowledgeRegressor("total = a + b; a >= 0; b >= 0", random_state=0, max_epochs=20).fit(X, y)
    >>> found = model.predict(X)
    >>> bool(np.allclose(found[:, 2], found[:, 0] + found[:, 1], atol=1e-12)), bool((found >= -1e-12).all())
    (True, True)
    """

    WORDS = NetworkEstimator.WORDS | {"learn": ("layer", "repair")}

    def __init__(
        self,
        knowledge: Any = None,
        *,
        network: str | nn.Module | Callable[[int, int], nn.Module] = "mlp",
        learn: str = "layer",
        guarantee: bool = True,
        violations: str = "repair",
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.0,
        activation: str = "relu",
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 64,
        max_epochs: int = 200,
        schedule: str = "constant",
        validation_fraction: float = 0.1,
        patience: int | None = 20,
        averaging: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from rows and their values; with validation data, stop early by them."""
        self._check_settings()
        features = self._features(X, reset=True)
        values, names, self._one = read_numbers(y)
        self.names_ = names
        self._read_knowledge()
        self.n_repaired_ = self.n_dropped_ = 0
        rows = self._checked(features, values)
        self.target_ = Standardise(rows.y.numpy())
        held = None
        if (X_val is None) != (y_val is None):
            raise ConfigError("give both X_val and y_val, or neither")
        if X_val is not None:
            held = self._standard(self._checked(self._features(X_val, reset=False), read_numbers(y_val)[0]))
        self._train(len(names), self._loss, self._standard(rows), held)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R², the mean over the columns of y."""
        check_is_fitted(self)
        columns = tuple(str(c) for c in getattr(y, "columns", self.names_))
        if not self._one and columns != self.names_:
            raise LabelError(f"y has the columns {list(columns)}, expected {list(self.names_)}, in this order")
        return float(super().score(X, y, sample_weight))

    def _read_knowledge(self) -> None:
        self.projection_: LinearProjection | None = None
        self._find_given(())
        if self.knowledge is None:
            return
        columns = list(map(str, getattr(self, "feature_names_in_", ())))
        try:
            self.projection_ = LinearProjection(
                self.knowledge, names=self.names_ if isinstance(self.knowledge, str) else ()
            )
        except KnowledgeError as error:
            raise self._unread(error, columns) from error
        if self.projection_.names != self.names_:
            raise KnowledgeError(f"the knowledge is about {self.projection_.names}, but y has {self.names_}")
        if missing := [name for name in self.projection_.labels if name not in columns]:
            raise KnowledgeError(f"a guard names {missing[0]!r}, which is no column of X; guards are Boolean features")
        self._find_given(self.projection_.labels)

    def _unread(self, error: KnowledgeError, columns: list[str]) -> KnowledgeError:
        """The error for knowledge that cannot be read, with what y has, and what to write."""
        if str(error).endswith("; add it to names"):
            shown = ", ".join(self.names_[:8]) + (", ..." if len(self.names_) > 8 else "")
            return KnowledgeError(f"{str(error).removesuffix('add it to names')}the columns of y are {shown}")
        if isinstance(self.knowledge, str):
            known = [*self.names_, *columns]
            mended = with_quotes(self.knowledge, known, lambda text: LinearSystem.parse(text, self.names_))
            return KnowledgeError(f"{error}\n{mended}") if mended else error
        return error

    def _checked(self, features: NDArray[np.float64], values: NDArray[np.float64]) -> Rows:
        """Rows whose values obey the knowledge."""
        check_consistent_length(features, values)
        if values.shape[1] != len(self.names_):
            raise LabelError(f"y has {values.shape[1]} columns, expected {len(self.names_)}: {', '.join(self.names_)}")
        found, given = torch.from_numpy(values), self._given_of(features)
        seen = None if given is None else torch.from_numpy(given)
        if self.projection_ is not None:
            fine = self.projection_.satisfied(found, seen)
            wrong = (~fine).nonzero().flatten()
            if len(wrong) and self.violations == "error":
                listed = ", ".join(map(str, wrong[:10].tolist())) + (", ..." if len(wrong) > 10 else "")
                remedy = "correct them, or say violations='drop' or violations='repair'"
                raise LabelError(f"the values of {len(wrong)} rows violate the knowledge: {listed}; {remedy}")
            if self.violations == "drop":
                self.n_dropped_ += len(wrong)
                features, found = features[fine.numpy()], found[fine]
                seen = None if seen is None else seen[fine]
                if not len(found):
                    raise LabelError("every training row violates the knowledge, and violations='drop' leaves none")
            else:
                self.n_repaired_ += len(wrong)
                found = self.projection_(found, seen)
        return Rows(self._scaled(features), found, seen)

    def _standard(self, rows: Rows) -> Rows:
        with torch.no_grad():
            return Rows(rows.x, self.target_(rows.y).float(), rows.given)

    def _values(self, raw: Tensor) -> Tensor:
        """In the units of y: what the network says is standardised."""
        scale = self.target_.scale.to(raw.dtype)
        return raw * torch.where(scale > 0, 1 / scale, 0.0) + self.target_.mean.to(raw.dtype)

    def _loss(self, raw: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        if self.projection_ is not None and self.learn == "layer":
            raw = self.target_(self.projection_(self._values(raw), given))
        return nn.functional.mse_loss(raw, target)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The values; with a guarantee, the nearest ones that obey the knowledge."""
        raw, given = self._raw(X)
        with torch.no_grad():
            values = self._values(raw)
            if self.projection_ is not None and self.guarantee:
                values = self.projection_(values, None if given is None else given.bool())
        found = values.numpy()
        return found[:, 0] if self._one else found
