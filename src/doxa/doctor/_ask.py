"""Which labels rule out shortcuts, and whether those there are rule out all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa._html import said
from doxa.doctor._knowledge import knowledge_scenes, known_symbols
from doxa.doctor._maps import MapSearch
from doxa.doctor._scenes import Concept, Mapped, Scene, arrange
from doxa.doctor._shortcuts import LIMITS, Search, Shortcuts
from doxa.doctor._told import Rows, told
from doxa.errors import ConfigError
from doxa.problem import Budget
from doxa.semantics import Model
from doxa.train.runs._state import seeded
from doxa.train.tasks._labels import Labels, count_labels, write_labels
from doxa.train.tasks._task import Task, columns

EXPLAINED = 500  # training rows whose worlds a model is asked about
SHOWN = 5
_NONE = 1e-9  # what rules out less is not asked
SUCH = "on rows without labels, one object of a row with all its concepts"
"""What the bound is about. A second object of a row, or one concept of it, may tell more."""


@dataclass(frozen=True)
class Question:
    """Something to label: a concept of the object in a field of a training row.

    ``gain`` is how many more shortcuts the object is expected to rule out when it is asked, for all its concepts
    together; ``doubt`` how probable the model holds it that its best world is not the true one, None without a model.

    >>> Question(17, "pairs.left", "digit", 12.5).line
    (17, 'pairs.left', 'digit', '')
    """

    row: int
    field: str
    concept: str
    gain: float
    doubt: float | None = None

    @property
    def line(self) -> tuple[int, str, str, str]:
        """As a line of a table to fill in."""
        return self.row, self.field, self.concept, ""


@dataclass(frozen=True)
class Questions:
    """What `ask` found; prints as a few sentences.

    Args:
        questions: what to label, the most telling first.
        shortcuts: how many shortcuts are left before these are answered.
        complete: whether these are all; otherwise there are more, and what follows is about those listed.
        expected: so many of them the answers rule out on average.
        share: at least this share of what as many labels rule out on average that are chosen in any other way, on rows
            without labels, one object of a row with all its concepts.
        assumption: what was assumed.
        unsure: training rows that a model is least sure of between worlds, with its doubt.

    >>> print(Questions((Question(3, "pairs.left", "bit", 1.0),), 1, True, 1.0, 1.0, "all worlds occur"))
    under the assumption that all worlds occur: 1 label rules out 1.0 of 1 shortcut on average
    that is as much as any choice of as many labels rules out
    row 3: bit of pairs.left
    """

    questions: tuple[Question, ...]
    shortcuts: int
    complete: bool
    expected: float
    share: float
    assumption: str
    unsure: tuple[tuple[int, float], ...] = ()

    def write(self, file: str | Path) -> Path:
        """Write the table to fill in; `read_labels` reads it again.

        >>> import tempfile
        >>> asked = Questions((Question(3, "pairs.left", "bit", 1.0),), 1, True, 1.0, 1.0, "")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(asked.write(f"{folder}/ask.csv").read_text().splitlines()[1])
        3,pairs.left,bit,
        """
        return write_labels(file, [question.line for question in self.questions])

    def __str__(self) -> str:
        telling = [q for q in self.questions if q.gain > 0]
        some = f"{self.shortcuts:,} shortcut{'s' * (self.shortcuts != 1)}"
        listed = some if self.complete else f"the {some} that were listed, of more,"
        if not self.shortcuts:
            verdict = "no shortcut is left to rule out"
        else:
            labels = f"{len(telling)} label{'s rule' if len(telling) != 1 else ' rules'}"
            verdict = f"{labels} out {self.expected:.1f} of {listed} on average"
        lines = [f"under the assumption that {self.assumption}: {verdict}" if self.assumption else verdict]
        if self.shortcuts and not telling and self.share < 1:
            lines.append(
                "an object is asked for with all its concepts, which are more than so many labels: ask for more"
            )
        elif self.shortcuts:
            best = f"at least {math.floor(100 * self.share)} % of what as many labels rule out"
            if self.share > 1 - 1e-9:
                best = "as much as any choice of as many labels rules out"
            such = "" if self.expected > self.shortcuts - 1e-9 else f", {SUCH}"
            lines.append(f"that is {best}{such}")
        shown = [f"row {q.row}: {q.concept} of {q.field}" for q in self.questions[:SHOWN]]
        more = len(self.questions) - len(shown)
        lines += [*shown, f"and {more} more"] if more > 0 else shown
        if self.unsure:
            rows = ", ".join(f"{row} ({100 * doubt:.0f} %)" for row, doubt in self.unsure[:SHOWN])
            lines.append(f"the model is least sure between worlds in rows {rows}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return said(self)


@dataclass(frozen=True)
class Certificate:
    """What `certify` found: the shortcuts that are left with some labels; prints as a few sentences.

    >>> from doxa.doctor import Shortcuts
    >>> print(Certificate(2, Shortcuts(1, True, 4, (), (), (), 0, 2, None)))
    with these 2 labels, no shortcut is left: only the true concepts explain all 4 worlds
    """

    labels: int
    left: Shortcuts

    @property
    def free(self) -> bool:
        """Is it certain that no shortcut is left?"""
        return self.left.free

    def __str__(self) -> str:
        left, first = self.left, self.left.simplest[:1]
        these = f"with {f'these {self.labels}' if self.labels else 'no'} label{'s' * (self.labels != 1)}"
        under = f"under the assumption that {left.assumption}: " if left.assumption else ""
        if left.free:
            return f"{under}{these}, no shortcut is left: only the true concepts explain all {left.worlds:,} worlds"
        if left.count < 2:
            return f"{under}{these}, could not decide {left.undecided}"
        much = "" if left.complete else "at least " if left.undecided else "more than "
        count = left.count - 1
        lines = [f"{under}{these}, {much}{count:,} shortcut{'s are' if count != 1 else ' is'} left; the simplest:"]
        lines += [left.describe(shortcut) for shortcut in first]
        if left.labels:
            named = ", ".join(f"{concept.name} = {concept.values[v]}" for concept, v in left.labelled)
            lines.append(f"labels for {named} rule out all that is left")
        return "\n".join([*lines, *([f"could not decide {left.undecided}"] if left.undecided else [])])

    def _repr_html_(self) -> str:
        return said(self)


class _Asked:
    """The rows of a task, and what has to be explained about them."""

    def __init__(self, task: Task, search: Search) -> None:
        self.task, self.search = task, search
        with seeded(0):
            symbols = known_symbols(task.kb, task.symbols())
        self.rows = Rows(task)
        if task.worlds is not None:
            self.scenes, assumed = knowledge_scenes(task.kb, search, data=task.worlds, symbols=symbols)
            known = "all worlds that are given as those that occur do occur"
        else:
            observed = self.rows.distinct()
            self.scenes, assumed = knowledge_scenes(task.kb, search, observed=observed, symbols=symbols)
            known = "all worlds that fit what is told of the training rows occur in them"
        self.assumption = " and ".join(filter(None, [known, assumed]))
        self.rows.sort_into(self.scene)

    @property
    def scene(self) -> Scene:
        """That of the rows; others are of facts."""
        return self.scenes[0]


def certify(
    task: Task,
    labels: Labels,
    *,
    show: int = 5,
    limit: int = 10_000,
    joint: int = 64,
    budget: Budget = LIMITS,
    seconds: float | None = None,
) -> Certificate:
    """Is a shortcut left with these labels on training rows? If so, which is the simplest?

    A shortcut is left if the labels may be true and the networks say what the labels say, while every other world is
    taken for one that explains what is told. What a row truly is, where it is not labelled, may be any world that fits.

    Args:
        task: with its knowledge, its training rows, and the worlds that occur.
        labels: as `read_labels` gives them.
        show, limit, joint, budget, seconds: see `knowledge_shortcuts`.

    Raises:
        DataError: the labels contradict the knowledge, or the rows do not fit it.

    >>> import torch
    >>> from doxa.train.tasks._shortcuts import driving_drawn
    >>> drawn = driving_drawn((40, 10))
    >>> certify(drawn.task, {}).left.count
    27
    >>> certify(drawn.task, dict(drawn.truth)).free
    True
    """
    search = Search(show, limit, joint, budget, seconds)
    asked = _Asked(task, search)
    left = search(asked.scenes, asked.assumption, lambda c, m: told(task, labels, asked.rows, asked.scene, c, m))
    return Certificate(count_labels(labels), left)


def ask(
    task: Task,
    *,
    size: int = 20,
    model: Model | None = None,
    labels: Labels | None = None,
    limit: int = 2000,
    joint: int = 64,
    budget: Budget = LIMITS,
    seconds: float | None = None,
) -> Questions:
    r"""Which concept labels, on which training rows, rule out the most shortcuts for each label.

    A label says what an object truly is, and rules out every map α that takes this for something else. What that will
    be is not known before. With the worlds w that fit what is told of a row all equally probable, and one object of
    each row, a set S of objects rules out

    .. math:: F(S) = \sum_{α \ne \mathrm{id}} P(\text{some } o \in S: α(w_o) \ne w_o)

    shortcuts on average. F is monotone and submodular, so taking the object with the most per label, again and again,
    rules out at least 1 - 1/e = 63 % of what any such choice of as many labels can. What is said is better where it can
    be: no choice S' exceeds F(S) by more than the gains that its objects have now. A second object of a row, or of one
    that has labels, may tell more, for what is known of the first bears on it; such choices are not compared.

    Args:
        task: with its knowledge, its training rows, and the worlds that occur.
        size: how many labels to ask for.
        model: of a run; of rows that are told alike it chooses those in which it is least sure between worlds, and
            labels that are left over go to such rows.
        labels: what has been told already.
        limit: list no more shortcuts than this; with more of them, the answer is about those listed.
        joint, budget, seconds: see `knowledge_shortcuts`.

    Raises:
        DataError: the labels contradict the knowledge, or the rows do not fit it.

    >>> from doxa.train.tasks._shortcuts import driving_drawn
    >>> print(ask(driving_drawn((40, 10)).task, size=9))
    under the assumption that ...: 9 labels rule out ... of 26 shortcuts on average
    ...
    """
    if size < 1 or limit < 1:
        raise ConfigError(f"size is {size} and limit {limit}, expected at least 1 of each")
    search = Search(0, limit, joint, budget, seconds)
    asked = _Asked(task, search)
    labels = labels or {}
    concepts, arranged, one_by_one = arrange(asked.scenes, joint, budget.worlds)
    said = told(task, labels, asked.rows, asked.scene, concepts, arranged)
    with MapSearch([len(c.values) for c in concepts], arranged, search.meter, said) as maps:
        listed, complete = maps.maps(limit + 1)
    shortcuts = [m for m in listed if any(bool((row != torch.arange(len(row))).any()) for row in m)][:limit]
    doubts = {} if model is None else _doubts(task, model)
    busy = {r for own in labels.values() for column in own.values() for r in (column >= 0).nonzero().flatten().tolist()}
    waiting = {
        number: sorted([r for r in rows if r not in busy], key=lambda r: -doubts.get(r, 0.0))
        for number, rows in asked.rows.of_number.items()
    }
    chosen, expected, share = _greedy(concepts, arranged[0], asked.scene, shortcuts, waiting, size)
    questions = [
        Question(row, field, concept, gain, doubts.get(row) if model is not None else None)
        for row, field, names, gain in chosen
        for concept in names
    ]
    unsure = tuple(sorted(doubts.items(), key=lambda item: -item[1])[:size])
    used = busy | {q.row for q in questions}
    for row, doubt in unsure:
        for column, names in enumerate(_names(concepts, arranged[0])):
            if row not in used and names and len(questions) + len(names) <= size and doubt > 0:
                asked_of = _place(arranged[0], column)
                questions += [Question(row, asked_of, name, 0.0, doubt) for name in names]
    assumption = " and ".join(filter(None, [asked.assumption, "these are equally probable", one_by_one]))
    return Questions(tuple(questions), len(shortcuts), complete, expected, share, assumption, unsure)


def _place(scene: Mapped, column: int) -> str:
    about: Any = scene.objects[column]
    return str(about[0][1])


def _names(concepts: Sequence[Concept], scene: Mapped) -> list[list[str]]:
    """The symbols to label for each object; none for what is said of several objects."""
    found = []
    for number, about in zip(scene.concepts, scene.objects, strict=True):
        alone = isinstance(about, tuple) and len(about) == 1
        found.append([*dict.fromkeys(o.partition("(")[0] for o in concepts[number].outputs)] if alone else [])
    return found


_Chosen = list[tuple[int, str, list[str], float]]


def _greedy(
    concepts: Sequence[Concept],
    scene: Mapped,
    source: Scene,
    shortcuts: Sequence[Sequence[Tensor]],
    waiting: Mapping[int, Sequence[int]],
    size: int,
) -> tuple[_Chosen, float, float]:
    """Row, field, symbols and gain of each object chosen; how many shortcuts they rule out, and their bound."""
    if not shortcuts:
        return [], 0.0, 1.0
    kept = [torch.stack([m[k] for m in shortcuts]) == torch.arange(len(c.values)) for k, c in enumerate(concepts)]
    assert source.numbers is not None
    numbers, names = source.numbers[scene.rows], _names(concepts, scene)
    stay: dict[tuple[int, int], Tensor] = {}  # by observation and object, how probably each shortcut stays possible
    for number in waiting:
        worlds = scene.worlds[numbers == number]
        for column, k in enumerate(scene.concepts):
            if names[column] and len(worlds):
                often = worlds[:, column].bincount(minlength=len(concepts[k].values)).double() / len(worlds)
                stay[number, column] = kept[k].double() @ often
    left = {number: list(rows) for number, rows in waiting.items()}
    alive, chosen, spent, ran_out = torch.ones(len(shortcuts), dtype=torch.float64), _Chosen(), 0, False

    def gains() -> list[tuple[float, float, int, int]]:
        """Of each kind of object the gain for a label and in all, the best first."""
        found = [(float((alive * (1 - p)).sum()), number, column) for (number, column), p in stay.items()]
        return sorted([(g / len(names[c]), g, n, c) for g, n, c in found], key=lambda x: (-x[0], x[2], x[3]))

    while True:
        now = gains()
        ran_out = ran_out or any(g > _NONE and not left[n] for _, g, n, _ in now[:1])
        best = next((x for x in now if left[x[2]] and x[1] > _NONE), None)
        if best is None or spent + len(names[best[3]]) > size:
            break
        _, gain, number, column = best
        chosen.append((left[number].pop(0), _place(scene, column), names[column], gain))
        alive = alive * stay[number, column]
        spent += len(names[column])
    ruled_out = float(len(shortcuts) - alive.sum())
    return chosen, ruled_out, _share(ruled_out, len(shortcuts), now, [len(own) for own in names], spent, ran_out)


def _share(
    found: float,
    every: int,
    gains: Sequence[tuple[float, float, int, int]],
    costs: Sequence[int],
    spent: int,
    ran_out: bool,
) -> float:
    """How much of the best choice with as many labels this is, at least: as the gains that are left bound that one.

    As many labels add at most the best gain for a label each. The general bound needs that no row was missing.
    """
    if not spent or not gains:
        return 0.0 if gains and gains[0][1] > _NONE else 1.0
    most = min(float(every), found + gains[0][0] * spent)
    general = 0.0 if ran_out else 1 - math.exp(-1)
    return max(general, found / most)


def _doubts(task: Task, model: Model) -> dict[int, float]:
    """How probable a model holds it, for each of the first training rows, that its best world is not the true one."""
    count, fields = min(EXPLAINED, task.size("train")), columns(task.train, task.rows, "train")
    some = task.with_rows(task.train, {name: column[:count] for name, column in fields.items()})
    found = dict.fromkeys(range(count), 0.0)
    for axiom in task.kb.axioms:
        for explanation in model.explain(axiom.name, k=1, generator=torch.Generator().manual_seed(0), **some):
            if explanation.worlds and explanation.row in found:
                doubt = 1 - min(1.0, explanation.worlds[0].probability)
                found[explanation.row] = max(found[explanation.row], doubt)
    return found
