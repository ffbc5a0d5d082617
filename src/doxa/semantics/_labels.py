"""Labels of objects that stand in rows of data, treated as facts are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Call, Compare, Expr, Field, Interpretation, KnowledgeBase, Name
from doxa.logic.syntax._binders import Group, Quantifier
from doxa.semantics._combine import Label
from doxa.semantics._model import Model
from doxa.semantics._semantics import Generator


def label_loss(
    model: Model, symbol: str, field: str, labels: Tensor, /, *, rows: Mapping[str, Any], generator: Generator = None
) -> Tensor:
    """The sum of −log p(label) over objects in rows of data; each label is judged as a fact is.

    Args:
        model: with networks to learn.
        symbol: a function into a finite sort, or a predicate, of one object.
        field: the field of the rows that the objects stand in.
        labels: positions among the values, int64 ``(rows,)``; of a predicate, 0 and 1.
        rows: the fields of the rows, by name; a mixture looks at all of a row.
        generator: where something is sampled.

    >>> import doxa
    >>> from torch import nn
    >>> model = Model("sort Image; sort Bit = 0..1; func bit(Image) -> Bit", "exact", bit=doxa.logits(nn.Linear(3, 2)))
    >>> x, bits = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    >>> found = label_loss(model, "bit", "image", bits, rows={"image": x})
    >>> logits = model.interpretation.meanings["bit"].module(x)
    >>> bool(torch.isclose(found, nn.functional.cross_entropy(logits, bits, reduction="sum")))
    True
    """
    told = list(_label_rows(model.kb, symbol, field, rows, labels, 1.0))
    return sum([loss for loss, _ in model.fact_losses(told, None, {}, generator).values()], torch.zeros(()))


class LabelRows:
    """Labels of objects that stand in rows of data: an axiom over these rows, and what they hold."""

    def __init__(self, name: str, atom: Expr, columns: dict[str, Any], weights: Tensor) -> None:
        self.rows = name
        self.axiom = Label(name, Quantifier("forall", [Group(["row"], domain=Name(name))], atom))
        self.weights = weights
        self._columns = columns

    def data(self, interpretation: Interpretation, given: Any) -> dict[str, Any]:
        """The rows, as data of a call beside the given data."""
        return {self.rows: self._columns}


def _label_rows(
    kb: KnowledgeBase, symbol: str, field: str, rows: Mapping[str, Any], labels: Tensor, weight: float
) -> Iterator[LabelRows]:
    about = Field(Name("row"), field)
    weights = torch.full((len(labels),), weight)
    if symbol in kb.signature.functions:
        told = Compare("=", Call(symbol, (about,)), Field(Name("row"), "label"))
        column = {"label": _named(kb.signature.functions[symbol].result.values or (), labels)}
        yield LabelRows(f"labels of {symbol} in {field}", told, {**rows, **column}, weights)
        return
    *_, last = sorts = kb.signature.predicates[symbol].sorts
    if len(sorts) > 2 or (len(sorts) == 2 and last.values is None):
        raise ConfigError(f"{symbol} speaks of {len(sorts)} objects; labels are for what is said of one")
    for label in (True, False):
        column = {}
        if len(sorts) == 1:
            atom: Expr = Call(symbol, (about,))
            at = (labels == int(label)).nonzero().squeeze(1)
        else:  # true of one value, and false of the others
            atom, values = Call(symbol, (about, Field(Name("row"), "label"))), last.values or ()
            at, value = ((torch.arange(len(values)) == labels.unsqueeze(-1)) == label).nonzero().unbind(-1)
            column = {"label": _named(values, value)}
        if len(at):
            own = {name: _taken(entries, at) for name, entries in rows.items()}
            name = f"labels {'' if label else '!'}{symbol} in {field}"
            yield LabelRows(name, atom if label else ~atom, {**own, **column}, weights[at])


def _named(values: Sequence[Any], numbers: Tensor) -> Any:
    """Values by their positions, as data hold them: numbers of a range, else names."""
    return numbers + values[0] if isinstance(values, range) else [values[i] for i in numbers.tolist()]


def _taken(column: Any, at: Tensor) -> Any:
    return column[at] if isinstance(column, Tensor) else [column[i] for i in at.tolist()]
