"""What the estimators share: reading features, training a network, and its raw answers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.problem import Budget
from doxa.sklearn._network import Standardise, Whole, make_network
from doxa.sklearn._targets import LabelError
from doxa.sklearn._training import Learner, Loss, Rows, Schedule, learn
from doxa.train.runs._state import seeded

CHUNK = 1024
"""Rows to predict at a time."""


def _number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _not_numeric(X: Any) -> str | None:
    """Which column of a table holds no numbers, and what to do about it."""
    for name in getattr(X, "columns", ()):
        values = np.asarray(X[name]) if list(X.columns).count(name) == 1 else np.empty(0)
        try:
            if values.dtype.kind in "mM":
                raise TypeError("a time")
            values.astype(np.float64)
        except (TypeError, ValueError):
            remedy = "encode it, for example with sklearn.preprocessing.OneHotEncoder, or leave it out"
            return f"the column {name!r} of X has {str(values.flat[0])!r} in it, expected numbers; {remedy}"
    return None


WISHES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        ("batch_size", "max_epochs", "hidden"), ("a whole number of at least 1", lambda v: _whole(v) and v >= 1)
    ),
    "layers": ("a whole number of at least 0", lambda v: _whole(v) and v >= 0),
    "patience": ("a whole number of at least 1, or None", lambda v: v is None or (_whole(v) and v >= 1)),
    "learning_rate": ("a number above 0", lambda v: _number(v) and v > 0),
    **dict.fromkeys(("weight_decay", "weight"), ("a number of at least 0", lambda v: _number(v) and v >= 0)),
    **dict.fromkeys(
        ("dropout", "validation_fraction"), ("a share from 0 to below 1", lambda v: _number(v) and 0 <= v < 1)
    ),
    "averaging": ("a number between 0 and 1, or None", lambda v: v is None or (_number(v) and 0 < v < 1)),
    **dict.fromkeys(("guarantee", "verbose"), ("True or False", lambda v: v in (0, 1))),
    "budget": ("a doxa.problem.Budget, or None", lambda v: v is None or isinstance(v, Budget)),
}
"""What the numbers among the settings must be."""


class NetworkEstimator(BaseEstimator):
    """A network behind scaling, trained on whole tensors."""

    WORDS: ClassVar[dict[str, tuple[str, ...]]] = {
        "violations": ("error", "drop", "repair"),
        "schedule": ("constant", "cosine"),
    }

    def _keep(self, settings: Mapping[str, Any]) -> None:
        """The arguments of the constructor, each as an attribute of its name, as scikit-learn wants them."""
        for name in self._get_param_names():
            setattr(self, name, settings[name])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_settings(self) -> None:
        """An error for a setting that is of the wrong kind or out of range."""
        settings = self.get_params(deep=False)
        for name, known in self.WORDS.items():
            if settings[name] not in known:
                raise ConfigError(f"{name} is {settings[name]!r}, expected one of {', '.join(known)}")
        for name, (wanted, fits) in WISHES.items():
            if name in settings and not fits(settings[name]):
                raise ConfigError(f"{name} is {settings[name]!r}, expected {wanted}")

    # -- features ---------------------------------------------------------------------------------------------------

    def _features(self, X: Any, *, reset: bool) -> NDArray[np.float64]:
        try:
            features: NDArray[np.float64] = validate_data(
                self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset
            )
        except (TypeError, ValueError) as error:
            if (column := _not_numeric(X)) is not None:
                raise LabelError(column) from error
            if np.shape(X)[1:] == (0,):
                came = f"0 feature(s) (shape={np.shape(X)}) while a minimum of 1 is required."
                raise LabelError(f"X has {came}") from error
            raise
        if not features.flags.writeable:  # pandas lends its own memory, which torch would warn of
            features = features.copy()
        if reset:
            self.scaling_ = Standardise(features)
        return features

    def _find_given(self, names: Sequence[str]) -> None:
        """Where the features stand whose truth the knowledge asks for."""
        columns = list(map(str, getattr(self, "feature_names_in_", ())))
        self._given_names, self._given = tuple(names), [columns.index(name) for name in names]

    def _given_of(self, features: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        if not self._given:
            return None
        columns = features[:, self._given]
        if (wrong := np.argwhere(~np.isin(columns, (0, 1)))).size:
            row, place = wrong[0].tolist()
            name = self._given_names[place]
            came = f"the feature {name!r}, which the knowledge mentions, is {columns[row, place]} in row {row}"
            raise LabelError(f"{came}; it must be 0 or 1 (and not missing) everywhere")
        return np.asarray(columns.astype(bool))

    def _scaled(self, features: NDArray[np.float64]) -> Tensor:
        with torch.no_grad():
            scaled: Tensor = self.scaling_(torch.from_numpy(features)).float()
        return scaled

    # -- training ---------------------------------------------------------------------------------------------------

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _build(self, outputs: int, loss: Loss) -> None:
        shape = {"hidden": self.hidden, "layers": self.layers, "dropout": self.dropout, "activation": self.activation}
        network = make_network(self.network, self.n_features_in_, outputs, **shape)
        rates = self.learning_rate, self.weight_decay
        lengths = self.batch_size, self.max_epochs, self.patience
        self._learner = Learner(network, loss, Schedule(*rates, *lengths, self.averaging, self.schedule))

    def _train(
        self,
        outputs: int,
        loss: Loss,
        rows: Rows,
        held: Rows | None,
        score: Callable[[nn.Module, Rows], float] | None = None,
    ) -> None:
        """Train from the beginning; some rows are held out to stop early, unless others are given for that."""
        with seeded(self._draw_seed()):
            self._build(outputs, loss)
            size = int(self.validation_fraction * len(rows.x))
            if held is None and self.patience is not None and size:
                order = torch.randperm(len(rows.x))
                rows, held = rows.take(order[size:]), rows.take(order[:size])
            history = learn(self._learner, rows, held, self.verbose, score)
        self.history_ = {"loss": history.train, "validation": history.validation}
        self.n_iter_ = len(history.train)
        self.best_iter_ = history.best
        self._freeze()

    def _train_more(self, rows: Rows) -> None:
        """One more epoch."""
        done = getattr(self, "n_iter_", 0)
        with seeded(getattr(self, "_seed", 0) + done):
            loss = self._learner.epoch(rows)
        self.n_iter_ = done + 1
        self.history_ = {"loss": [*getattr(self, "history_", {"loss": []})["loss"], loss], "validation": []}
        self._freeze()

    def _freeze(self) -> None:
        """What predicts: in double precision, so that a row gets the same answer alone and among others."""
        self.module_ = Whole(self.scaling_, copy.deepcopy(self._learner.best)).double().eval()

    # -- predicting -------------------------------------------------------------------------------------------------

    def _raw(self, X: Any) -> tuple[Tensor, Tensor | None]:
        """What the network says of each row, and the given features, int64."""
        check_is_fitted(self)
        features = self._features(X, reset=False)
        given = self._given_of(features)
        x = torch.from_numpy(features)
        with torch.no_grad():
            raw = torch.cat([self.module_(x[i : i + CHUNK]) for i in range(0, len(x), CHUNK)])
        return raw, None if given is None else torch.from_numpy(given.astype(np.int64))
