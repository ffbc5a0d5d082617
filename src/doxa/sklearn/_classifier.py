"""The classifier: a scikit-learn estimator whose predictions obey knowledge."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import average_precision_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import one_hot

from doxa.errors import ConfigError, KnowledgeError
from doxa.problem import Budget
from doxa.sklearn._base import NetworkEstimator
from doxa.sklearn._choices import Choices, MultiClass, SeenSets
from doxa.sklearn._explain import Explanation, Judged, explanation
from doxa.sklearn._export import Deployed, in_folder, to_onnx
from doxa.sklearn._heads import Head, MultiLabel, Way, impossible
from doxa.sklearn._knowledge import LabelKnowledge
from doxa.sklearn._repair import consistent_labels
from doxa.sklearn._targets import LabelError, targets_of
from doxa.sklearn._training import Rows
from doxa.train.runs._files import write_file
from doxa.train.runs._state import seeded


class Certificate(NamedTuple):
    """What was predicted, and what is known about it.

    ``violated`` is found by evaluating every requirement on the labels, without the circuit that chose them.

    >>> labels, broken = np.array([[True], [False]]), np.array([[False], [True]])
    >>> Certificate(labels, broken, np.array([True, True]), broken).valid.tolist()
    [True, False]
    """

    labels: NDArray[np.bool_]
    """``(n, labels)``."""
    violated: NDArray[np.bool_]
    """``(n, requirements)``: nothing, with a guarantee."""
    optimal: NDArray[np.bool_]
    """``(n,)``: whether the labels are proven to be the most probable consistent ones."""
    before: NDArray[np.bool_]
    """``(n, requirements)``: what the network alone would have violated."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """``(n,)``: whether every requirement holds."""
        return np.asarray(~self.violated.any(1))


class KnowledgeClassifier(ClassifierMixin, NetworkEstimator):
    """A network for tables that learns from knowledge about its labels, and never contradicts it.

    y is one column of classes, or a table of 0 and 1 with a column for each label, whose names the knowledge uses. A
    table of one column is one label.

    Args:
        knowledge: what is known, in any form that `LabelKnowledge` reads; None for a plain network.
        network: "mlp", a module from ``(n, features)`` to ``(n, labels)``, or a function of the numbers of features
            and of outputs that makes one.
        learn: "constrained" minimises −log p(y | x, knowledge), normalised over the consistent outputs; "loss" adds the
            semantic loss to cross-entropy; "layer" refines the probabilities inside the network; "repair" uses
            knowledge only in predicting.
        semantics: of the semantic loss: "exact", by a circuit, or "fuzzy", which always is affordable.
        guarantee: predict the most probable consistent output.
        beliefs: "independent" labels; "mixture:K" of K independent beliefs; or "seen", which believes only in the label
            sets that training rows have: it is good at getting whole sets right, and a set that no training row has is
            never predicted.
        violations: what to do with training rows that violate the knowledge: "error", "drop", or "repair" by the
            nearest consistent labels.
        hidden, layers, dropout, activation: the shape of the "mlp".
        learning_rate, weight_decay, batch_size, max_epochs: of AdamW.
        schedule: the learning rate stays "constant", or falls to 0 as a "cosine".
        weight: of the semantic loss.
        validation_fraction: the share of rows held out to stop early, unless ``fit`` is given validation data.
        patience: stop after so many epochs without a better validation; None to go on and hold nothing out.
        monitor: what is validated: "loss", "average_precision" (micro) or "exact_match".
        averaging: the decay of an exponential moving average of the weights, such as 0.99; None for none.
        budget: what compiling the knowledge may cost.
        random_state: a seed.
        verbose: show progress.

    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> y = pd.DataFrame({"cat": X[:, 0] > 0.5, "animal": (X[:, 0] > 0.5) | (X[:, 1] > 0)})
    >>> model = KnowledgeClassifier("cat -> animal", random_state=0).fit(X, y)
    >>> bool(model.certificate(X).valid.all()), model.score(X, y) > 0.9
    (True, True)
    """

    WORDS = NetworkEstimator.WORDS | {"monitor": ("loss", "average_precision", "exact_match")}

    def __init__(
        self,
        knowledge: Any = None,
        *,
        network: str | nn.Module | Callable[[int, int], nn.Module] = "mlp",
        learn: str = "constrained",
        semantics: str = "exact",
        guarantee: bool = True,
        beliefs: str = "independent",
        violations: str = "error",
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.0,
        activation: str = "relu",
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 64,
        max_epochs: int = 200,
        schedule: str = "constant",
        weight: float = 1.0,
        validation_fraction: float = 0.1,
        patience: int | None = 20,
        monitor: str = "loss",
        averaging: float | None = None,
        budget: Budget | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # -- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from rows and their labels; with validation data, stop early by them.

        >>> KnowledgeClassifier(max_epochs=1).fit([[0.0], [1.0]], ["no", "yes"]).classes_.tolist()
        ['no', 'yes']
        """
        self._check_settings()
        rows = self._begin(X, y, None)
        self._observe(rows)
        if (X_val is None) != (y_val is None):
            raise ConfigError("give both X_val and y_val, or neither")
        held = None if X_val is None else self._checked(self._features(X_val, reset=False), y_val)
        if held is not None and isinstance(self.head_, SeenSets) and bool((self.head_.chosen(held.y) < 0).all()):
            raise LabelError(
                "no row of y_val has a label set that a row of y has, and beliefs='seen' predicts no other"
            )
        self._train(self.head_.outputs, self.head_.loss, rows, held, self._score())
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """One pass over these rows; the first call fixes scaling and labels, and needs all ``classes`` of one-column y.

        >>> model = KnowledgeClassifier(random_state=0).partial_fit([[0.0], [1.0]], [0, 1], classes=[0, 1, 2])
        >>> model.partial_fit([[2.0]], [2]).classes_.tolist()
        [0, 1, 2]
        """
        if not hasattr(self, "_learner"):
            self._check_settings()
            rows = self._begin(X, y, classes)
            self._seed = self._draw_seed()
            with seeded(self._seed):
                self._build(self.head_.outputs, self.head_.loss)
        else:
            if classes is not None and not self.targets_.many and list(np.unique(classes)) != list(self.classes_):
                raise LabelError(f"classes is {list(classes)}, but the first call said {list(self.classes_)}")
            rows = self._checked(self._features(X, reset=False), y)
        self._observe(rows)
        self._train_more(rows)
        return self

    def _observe(self, rows: Rows) -> None:
        if isinstance(self.head_, SeenSets):
            self.head_.observe(rows.y)

    def _way(self) -> Way:
        match = re.fullmatch(r"independent|seen|mixture:([1-9][0-9]*)", str(self.beliefs))
        if match is None:
            wanted = "'independent', 'seen', or 'mixture:K' such as 'mixture:4'"
            raise ConfigError(f"beliefs is {self.beliefs!r}, expected {wanted}")
        components = int(match[1] or 0)
        return Way(self.learn, self.semantics, self.guarantee, components, self.weight, self.beliefs == "seen")

    def _begin(self, X: Any, y: Any, classes: Any) -> Rows:
        """Read data and knowledge, with nothing learnt before."""
        features = self._features(X, reset=True)
        self.targets_ = targets_of(y, classes)
        self.classes_ = self.targets_.classes
        columns = getattr(self, "feature_names_in_", ())
        called = {} if self.targets_.many else self.targets_.alias(getattr(y, "name", None))
        try:
            self.knowledge_ = LabelKnowledge(
                self.knowledge, self.targets_.names, features=columns, aliases=called, budget=self.budget
            )
        except KnowledgeError as error:
            if hasattr(y, "columns") or "the knowledge mentions" not in str(error):
                raise
            shape = (
                "y is one column, whose classes are the labels; one of 0 and 1 can have a name: pd.Series(y, name=...)"
                if not self.targets_.many
                else "y has no names, so its labels are numbers; give them: pd.DataFrame(y, columns=[...])"
            )
            raise KnowledgeError(f"{error}. {shape}") from error
        self._find_given(self.knowledge_.given)
        way = self._way()
        kind = MultiClass if not self.targets_.many else SeenSets if way.seen else MultiLabel
        self.head_: Head = kind(self.knowledge_, way)
        self.n_repaired_ = self.n_dropped_ = 0
        return self._checked(features, y)

    def _checked(self, features: NDArray[np.float64], y: Any) -> Rows:
        """Rows whose labels obey the knowledge."""
        labels = self.targets_.encode(y)
        check_consistent_length(features, labels)
        given = self._given_of(features)
        if self.violations != "drop":
            self._require_possible(None if given is None else torch.from_numpy(given.astype(np.int64)))
        kept = np.ones(len(labels), dtype=bool)
        broken = self.knowledge_.violations(labels, given)
        if (wrong := np.flatnonzero(broken.any(1))).size:
            if self.violations == "error":
                raise LabelError(self._about(wrong, broken))
            if self.violations == "drop":
                kept[wrong] = False
                self.n_dropped_ += len(wrong)
            else:
                labels[wrong] = consistent_labels(self.head_, labels[wrong], None if given is None else given[wrong])
                self.n_repaired_ += len(wrong)
        if not kept.any():
            raise LabelError("every training row violates the knowledge, and violations='drop' leaves none")
        seen = None if given is None else torch.from_numpy(given[kept].astype(np.int64))
        return Rows(self._scaled(features[kept]), self.targets_.tensor(labels[kept]), seen)

    def _about(self, wrong: NDArray[Any], broken: NDArray[np.bool_]) -> str:
        rows = ", ".join(map(str, wrong[:10].tolist())) + (", ..." if len(wrong) > 10 else "")
        row = int(wrong[0])
        first = self.knowledge_.requirements[int(np.flatnonzero(broken[row])[0])].text
        remedy = "correct them, or say violations='drop' or violations='repair'"
        return f"the labels of {len(wrong)} rows violate the knowledge: {rows}; row {row} violates {first}. {remedy}"

    def _score(self) -> Callable[[nn.Module, Rows], float] | None:
        if self.monitor == "loss":
            return None

        def score(network: nn.Module, rows: Rows) -> float:
            targets = rows.y if self.targets_.many else one_hot(rows.y, len(self.classes_))
            labels = targets.numpy().astype(bool)
            with torch.no_grad():
                raw = network(rows.x)
            if self.monitor == "exact_match":
                return float((self.head_.decide(raw, rows.given).labels == labels).all(1).mean())
            seen = labels.any(0)
            probs = self.head_.probs(raw, rows.given).detach().numpy()
            return float(average_precision_score(labels[:, seen], probs[:, seen], average="micro"))

        return score

    # -- predicting -------------------------------------------------------------------------------------------------

    def _raw(self, X: Any) -> tuple[Tensor, Tensor | None]:
        """What the network says of each row, and the given features."""
        raw, seen = super()._raw(X)
        self._require_possible(seen)
        return raw, seen

    def _require_possible(self, given: Tensor | None) -> None:
        """An error that names the rows whose features leave no consistent labels."""
        if given is not None and isinstance(self.head_, Choices) and len(self.head_.sets):
            self.head_.allowed(len(given), given)
        if given is not None and isinstance(self.head_, MultiLabel) and self.head_.circuit is not None:
            possible = self.head_.circuit.possible(torch.ones(1, dtype=torch.int64), given=given)
            if not bool(possible.all()):
                raise impossible(self.knowledge_, (~possible).nonzero().flatten().tolist())

    def _by_chunk(self, X: Any, function: Callable[[Tensor, Tensor | None], Any]) -> list[Any]:
        raw, given = self._raw(X)
        size = self.head_.chunk
        parts = range(0, len(raw), size)
        with torch.no_grad():
            return [function(raw[i : i + size], None if given is None else given[i : i + size]) for i in parts]

    def predict(self, X: Any) -> NDArray[Any]:
        """The classes, or 0 and 1 for each label: with a guarantee, the most probable consistent ones."""
        decided = self._by_chunk(X, lambda raw, given: self.head_.decide(raw, given).labels)
        return self.targets_.decode(np.concatenate(decided))

    def certificate(self, X: Any) -> Certificate:
        """The predicted labels with proof: every requirement evaluated on them, and whether they are optimal."""

        def certify(raw: Tensor, given: Tensor | None) -> Certificate:
            decision = self.head_.decide(raw, given)
            seen = None if given is None else given.numpy()
            violated = self.knowledge_.violations(decision.labels, seen)
            before = self.knowledge_.violations(self.head_.raw_labels(raw), seen)
            return Certificate(decision.labels, violated, decision.optimal, before)

        return Certificate(*map(np.concatenate, zip(*self._by_chunk(X, certify), strict=True)))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class or label, ``(n, labels)``; with a guarantee, given that the knowledge holds.

        So too with ``learn="constrained"``, whatever the guarantee. Not so with ``learn="layer"``, where they are the
        refined ones, nor where no circuit fits the budget, of which ``fit`` warns. The predicted labels are the most
        probable *together*, so one may be predicted below a half.
        """
        return np.concatenate(self._by_chunk(X, lambda raw, given: self.head_.probs(raw, given).numpy()))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class, or all of whose labels, are predicted right."""
        check_is_fitted(self)
        self.targets_.encode(y)  # refuses columns in another order
        return float(super().score(X, y, sample_weight))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Log-odds of each label, or log-probabilities of each class (of two classes: the log-odds of the second)."""
        probs = self.predict_proba(X)
        tiny = np.finfo(np.float64).tiny
        if self.targets_.many:
            return np.asarray(np.log(np.maximum(probs, tiny)) - np.log(np.maximum(1 - probs, tiny)))
        logs = np.log(np.maximum(probs, tiny))
        return np.asarray(logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs)

    # -- looking at it ----------------------------------------------------------------------------------------------

    def explain(self, x: Any) -> Explanation:
        """What knowledge did to the prediction for one row: what was violated, and what was changed.

        >>> import pandas as pd
        >>> X, y = [[0.0], [1.0]] * 10, pd.DataFrame({"cat": [0, 1] * 10, "animal": [1, 1] * 10})
        >>> model = KnowledgeClassifier({"cat": ["animal"]}, max_epochs=30, random_state=0).fit(X, y)
        >>> print(model.explain([1.0]))
        predicted: cat, animal
        the network alone violates nothing
        """
        row = x.to_frame().T if hasattr(x, "to_frame") else x
        if not hasattr(row, "columns"):
            row = np.asarray(row)
            row = row.reshape(1, -1) if row.ndim == 1 else row
        if not np.ndim(row) or len(row) != 1:
            came = f"{len(row)} rows" if np.ndim(row) else repr(x)
            raise ConfigError(f"explain takes one row, got {came}; say model.explain(X[i:i + 1])")
        raw, _ = self._raw(row)
        found = self.certificate(row)
        probs = self.head_.raw_probs(raw)[0].numpy()
        before = self.head_.raw_labels(raw)[0]
        return explanation(self.knowledge_, before, probs, found.labels[0], found.before[0], bool(found.optimal[0]))

    def report(self, X: Any, y: Any, path: str | Path | None = None) -> str:
        """A page of HTML about rows whose labels are known: scores, violations with and without knowledge, calibration.

        Args:
            path: a file to write it to as well.
        """
        raw, _ = self._raw(X)
        truth, found = self.targets_.encode(y), self.certificate(X)
        check_consistent_length(truth, raw)
        alone = self.head_.raw_labels(raw)
        many = self.targets_.many
        judged = Judged(
            self.knowledge_, truth, found.labels, self.predict_proba(X), alone, found.before, found.violated, many
        )
        about = {name: value for name, value in self.get_params().items() if name not in ("knowledge", "network")}
        counts = {"epochs": self.n_iter_, "repaired rows": self.n_repaired_, "dropped rows": self.n_dropped_}
        page = judged.html(about | counts)
        if path is not None:
            write_file(in_folder(path), page.encode())
        return page

    def to_module(self) -> nn.Module:
        """The classifier as one module for ``torch.export``: features to probabilities and labels, guarantee included.

        >>> model = KnowledgeClassifier(max_epochs=5, random_state=0).fit([[0.0], [1.0]] * 10, [0, 1] * 10)
        >>> program = torch.export.export(model.to_module(), (torch.zeros(2, 1),))
        >>> program.module()(torch.zeros(2, 1))[1].shape
        torch.Size([2, 2])
        """
        check_is_fitted(self)
        return Deployed(copy.deepcopy(self.module_).float(), self.head_, self._given).eval()

    def export_onnx(self, path: str | Path) -> None:
        """Write the classifier as ONNX: input ``x`` of float32, outputs ``probabilities`` and ``labels``."""
        to_onnx(self.to_module(), self.n_features_in_, in_folder(path))
