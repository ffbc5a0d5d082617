"""A task: data, networks and knowledge about them, to be trained under any semantics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa.data._batches import count_rows, device_of, move_columns, take_rows
from doxa.errors import ConfigError, DataError
from doxa.logic import KnowledgeBase, Ragged, load, parse
from doxa.semantics import Model, Semantics
from doxa.semantics import semantics as by_word
from doxa.semantics._semantics import WORDS
from doxa.train.runs._config import did_you_mean
from doxa.train.runs._state import seeded
from doxa.train.tasks._fit import Fitting

Data = Mapping[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """Something to learn: knowledge, fresh networks for its symbols, and data to train and to test on.

    Args:
        name: as run folders and tables call it.
        about: one sentence.
        knowledge: a knowledge base, its text, or the file it is in.
        symbols: makes new networks: what ``Model(kb, **symbols())`` takes. It is called under the seed of the run.
        train: data by name, as the knowledge names them: tensors, `doxa.Ragged` structures, `doxa.data.Mapped` files or
            lists of names.
        test: likewise; with the true values of the target.
        rows: which of the data is cut into batches; by default the only one. The others come whole with every batch.
        target: the field that task accuracy is about, such as ``"pairs.sum"``; none if empty.
        values: the values that the target may have, where its sort does not say.
        concepts: what symbols truly mean on test data: by symbol and field, one label for each row, such as
            ``{"digit": {"pairs.left": labels}}``; of a ragged field, one for each of its objects. They are for
            measuring; nothing is trained on them.
        worlds: values of concepts and observed fields that occur together, a column for each, as `knowledge_shortcuts`
            takes them, such as ``{"left": [0, 1], "right": [6, 5]}``; where not all that the knowledge allows occur.
        labels: what objects in training rows are told to be, by symbol and field: positions among the values, int64,
            one for each row, -1 where nothing is told; `read_labels` reads them from a table. They are facts: the mean
            of -log p over those shown in a step is added to the loss, and what the knowledge says of their rows.
        label_weight: how much both weigh beside the knowledge of a batch.
        label_starts: where there are labels, so many networks are begun, and the one goes on that explains them best.
        images: fields of the test rows that can be drawn: grey values ``(rows, [1,] height, width)``.
        supervised: an ordinary loss to add to that of the knowledge: takes the model and a batch of the data.
        semantics: what a word for a semantics means for this task, where the usual is not the best.
        fitting: how to train.
        batch_size: rows in a batch.
        validation: hold out so many training rows, to stop early and to keep the best checkpoint; see `TaskConfig`.
        diversity: how much of `Model.diversity` is added to the loss, so that all worlds stay open that fit the labels.
        spread: how much all values of the concepts are to be read alike often at first, so that several are not taken
            for one; less and less, and not at all in the second half of the steps. It needs ``concepts``, but not what
            is labelled there. See `mean_entropy`.
        starts: so many networks are begun; after a quarter of the steps the better half goes on, after another quarter
            the best, which then makes all steps.

    >>> import doxa
    >>> def data(n):
    ...     x = torch.randn(n, 3)
    ...     return {"points": {"x": x, "label": (x[:, 0] > 0).long()}}
    >>> task = Task(
    ...     "signs", "Is the first number positive?",
    ...     '''sort Point; sort Bit = 0..1; data points(x: Point, label: Bit); func sign(Point) -> Bit
    ...        [told] forall p in points. s := sign(p.x) (s = p.label)''',
    ...     lambda: {"sign": doxa.logits(torch.nn.Linear(3, 2))}, data(100), data(20), target="points.label")
    >>> task
    Task('signs': 100 rows to train, 20 to test)
    >>> task.semantics_of("exact"), task.semantics_of("fuzzy:godel").logic
    (Exact(quantifier='mean', impossible='raise', budget=Budget(...)), 'godel')
    """

    name: str
    about: str
    knowledge: KnowledgeBase | str | Path
    symbols: Callable[[], Mapping[str, Any]]
    train: Data
    test: Data
    rows: str = ""
    target: str = ""
    values: Sequence[int] | None = None
    concepts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    worlds: Mapping[str, Sequence[Any]] | None = None
    labels: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    label_weight: float = 3.0
    label_starts: int = 4
    images: Sequence[str] = ()
    supervised: Callable[[Model, Data], Tensor] | None = None
    semantics: Mapping[str, Semantics] = field(default_factory=dict)
    fitting: Fitting = field(default_factory=Fitting)
    batch_size: int = 64
    validation: int = 0
    diversity: float = 0.0
    spread: float = 0.0
    starts: int = 1

    def __post_init__(self) -> None:
        if not self.name or any(letter in self.name for letter in "/\\\0") or self.name.startswith("."):
            raise ConfigError(f"name is {self.name!r}, expected a word that can be the name of a folder")
        if not callable(self.symbols):
            raise ConfigError("symbols is not a function; write symbols=lambda: {...}, so that each run has new ones")
        for name in ("batch_size", "label_starts", "starts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 1 or more")
        for name in ("label_weight", "diversity", "spread"):
            weight = getattr(self, name)
            if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise ConfigError(f"{name} is {weight!r}, expected a weight of 0 or more")
        if self.worlds is not None:
            sizes = {k: len(v) for k, v in self.worlds.items()} if isinstance(self.worlds, Mapping) else {}
            if len(set(sizes.values())) != 1:
                found = f"columns of different lengths, {sizes}" if sizes else type(self.worlds).__name__
                raise ConfigError(f"worlds is {found}, expected columns of one length: {{'left': [0, 1], ...}}")
        if not self.rows:
            if len(self.train) != 1:
                raise ConfigError(f"rows is needed: which of {_listed(self.train)} is cut into batches?")
            object.__setattr__(self, "rows", next(iter(self.train)))
        for split, data in (("train", self.train), ("test", self.test)):
            if self.rows not in data:
                raise ConfigError(f"rows is {self.rows!r}, but {split} has only {_listed(data)}")
            columns(data, self.rows, split)
        self._check_measures()

    def _check_measures(self) -> None:
        for place in ([self.target] if self.target else []) + list(self.images):
            self.column(place)
        signature = self.kb.signature
        known = [*signature.predicates, *signature.functions]
        for symbol, places in self.concepts.items():
            if symbol not in known:
                raise ConfigError(
                    f"concepts names {symbol!r}; {nearest(symbol, known, 'the symbols of the knowledge')}"
                )
            for place, labels in places.items():
                column, found = self.column(place), flat_labels(labels)
                objects = len(column.values if isinstance(column, Ragged) else column)
                if found.shape != (objects,):
                    raise DataError(
                        f"the labels of {symbol} on {place} have shape {tuple(found.shape)}, expected ({objects},)"
                    )
        for symbol, places in self.labels.items():
            for place, told in places.items():
                if symbol not in known or told.shape != (self.size("train"),) or told.dtype != torch.int64:
                    wanted = f"int64 ({self.size('train')},): positions among the values of a symbol, or -1"
                    raise DataError(
                        f"labels of {symbol} on {place}: {told.dtype} {tuple(told.shape)}, expected {wanted}"
                    )
        for word in self.semantics:
            if word not in WORDS:
                raise ConfigError(f"semantics names {word!r}; {nearest(word, WORDS, 'the words')}")

    def check_values(self) -> None:
        """Raise a DataError that names the first row with something in a field of a finite sort that is no value."""
        for split, data in (("train", self.train), ("test", self.test)):
            for rows in self.kb.signature.rows.values():
                given = data.get(rows.name)
                fields = given if isinstance(given, Mapping) else {}
                for name, sort, _ in rows.fields:
                    if sort.values is not None and (wrong := _wrong(fields.get(name), sort.values)):
                        where = f"{split}[{rows.name!r}], row {wrong[0]} (counted from 0)"
                        raise DataError(f"{where}: {name} is {wrong[1]}, which is no value of {sort.name}")

    @cached_property
    def kb(self) -> KnowledgeBase:
        """The knowledge, parsed."""
        if isinstance(self.knowledge, KnowledgeBase):
            return self.knowledge
        return load(self.knowledge) if isinstance(self.knowledge, Path) else parse(self.knowledge)

    @property
    def text(self) -> str:
        """The knowledge as it was written, comments included."""
        return self.knowledge.read_text(encoding="utf-8") if isinstance(self.knowledge, Path) else str(self.knowledge)

    def semantics_of(self, word: str) -> Semantics:
        """What a word such as ``"exact"`` or ``"fuzzy:godel"`` means for this task.

        Raises:
            ConfigError: there is no such word; the message names those there are.
        """
        return self.semantics[word] if word in self.semantics else by_word(word)

    def model(self, semantics: Semantics | None, *, seed: int = 0) -> Model:
        """The knowledge with new networks, drawn with a seed; the caller's random state is left as it is."""
        with seeded(seed):
            return Model(self.kb, semantics, **self.symbols())

    def column(self, place: str) -> Any:
        """A field of the test data by its name, such as ``"pairs.sum"``: a tensor, a `doxa.Ragged` or a list."""
        rows, dot, name = place.partition(".")
        if not dot and rows == self.rows and isinstance(self.test[rows], Tensor):
            return self.test[rows]
        if rows != self.rows or isinstance(self.test[rows], Tensor):
            raise ConfigError(f"{place!r} is no field of the rows {self.rows!r}; write it like {self._example()!r}")
        fields = columns(self.test, rows, "test")
        if name not in fields:
            near = nearest(name, fields, "its fields")
            raise ConfigError(f"{rows} has no field {name!r} in the test data; {near}")
        return fields[name]

    def _example(self) -> str:
        return ".".join([self.rows, next(iter(columns(self.test, self.rows, "test")))]).rstrip(".")

    def size(self, split: str = "test") -> int:
        """How many rows there are."""
        data = self.test if split == "test" else self.train
        return count_rows(columns(data, self.rows, split))

    def held_out(self, rows: int, *, seed: int = 0) -> tuple[Task, Task]:
        """Two tasks from the training rows: one that lacks some of them, and one that is tested on these.

        Concepts are labelled on test rows only, so the second does not measure them.

        Raises:
            ConfigError: there are not so many rows.
        """
        count = self.size("train")
        if not 0 < rows < count:
            raise ConfigError(f"validation is {rows}, expected more than 0 and fewer than the {count} training rows")
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        fields = columns(self.train, self.rows, "train")
        fewer, kept = (self.with_rows(self.train, take_rows(fields, part)) for part in (order[rows:], order[:rows]))
        told = {s: {place: column[order[rows:]] for place, column in own.items()} for s, own in self.labels.items()}
        learnt = replace(self, train=fewer, labels=told)
        return learnt, replace(learnt, test=kept, concepts={})

    def with_rows(self, data: Data, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Data with other rows: those of a batch, say; all on the device of these."""
        rest = {name: value for name, value in data.items() if name != self.rows}
        whole = isinstance(data[self.rows], Tensor)
        return {
            **move_columns(rest, device_of(fields)),
            self.rows: next(iter(fields.values())) if whole else dict(fields),
        }

    def part(self, start: int, end: int) -> dict[str, Any]:
        """Some rows of the test data, with all that is not rows."""
        return self.with_rows(self.test, take_rows(columns(self.test, self.rows, "test"), slice(start, end)))

    def __repr__(self) -> str:
        return f"Task({self.name!r}: {self.size('train'):,} rows to train, {self.size('test'):,} to test)"


def columns(data: Data, rows: str, split: str) -> dict[str, Any]:
    """The fields of rows; objects of an open sort are rows of one field without a name."""
    value = data[rows]
    fields = {"": value} if isinstance(value, Tensor) else value
    if not isinstance(fields, Mapping) or not fields:
        raise DataError(f"{split}[{rows!r}] is {type(value).__name__}, expected fields by name, or a tensor of objects")
    if not count_rows(fields, f"{split}[{rows!r}]"):
        raise DataError(f"{split}[{rows!r}] has no rows")
    return dict(fields)


def _wrong(column: Any, values: Sequence[Any]) -> tuple[int, Any] | None:
    """The first row of a field in which there is something else than these values, and what."""
    if isinstance(column, list | tuple):
        wrong = (i for i, value in enumerate(column) if isinstance(value, str) and value not in values)
        return None if (row := next(wrong, None)) is None else (row, repr(column[row]))
    numbers = column.values if isinstance(column, Ragged) else column
    if not isinstance(numbers, Tensor) or numbers.dtype.is_floating_point or not numbers.numel():
        return None  # of another kind, which is told when it is used
    low, high = (values[0], values[-1]) if isinstance(values, range) else (0, len(values) - 1)
    outside = ((numbers < low) | (numbers > high)).flatten()
    if not bool(outside.any()):
        return None
    at = int(outside.long().argmax())
    row = at // (numbers.numel() // len(numbers))
    if isinstance(column, Ragged):
        row = int((column.lengths.cumsum(0) <= row).sum())
    return row, numbers.flatten()[at].item()


def flat_labels(labels: Any) -> Tensor:
    """Labels as one tensor, those of ragged objects one after the other."""
    return labels.values if isinstance(labels, Ragged) else torch.as_tensor(labels)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def nearest(name: str, known: Any, what: str) -> str:
    """Words about a name that is not known: which was meant, and which there are."""
    return f"{did_you_mean(name, known)}{what}: {', '.join(known)}"
