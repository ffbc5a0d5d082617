"""Knowledge with some objects and a belief about every atom, small enough to be looked at."""

from __future__ import annotations

import csv
import io
import keyword
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.doctor import Examination, Shortcuts, examine, knowledge_shortcuts
from doxa.doctor._layout import has_objects
from doxa.doctor._random_worlds import RandomWorlds
from doxa.errors import BudgetError, ConfigError
from doxa.logic import (
    Function,
    KnowledgeBase,
    Predicate,
    SatisfactionReport,
    Sort,
    count,
    entails,
    parse,
    parse_formula,
    satisfiable,
)
from doxa.logic.check._lint import lint
from doxa.logic.sat._solve import Entailment
from doxa.play._state import MOST_CHARACTERS, State
from doxa.problem import Budget
from doxa.semantics import Classical, Explanation, Model, RefinedBeliefs, Semantics
from doxa.semantics._semantics import semantics

OBJECTS = 3
"""Of each open sort, and rows of each kind, unless told otherwise."""
MOST_ATOMS = 400
MOST_OBJECTS = 12
SECONDS = 3.0
"""For one answer."""
ENTRIES = 1 << 18
LIMITS = Budget(operations=1 << 21, nodes=1 << 16, entries=1 << 22, seconds=SECONDS)


class Place(NamedTuple):
    """Where the belief about an atom stands: the symbol, and the place in its tensor."""

    symbol: str
    at: tuple[int, ...]


class AxiomRow(NamedTuple):
    """What a semantics makes of one axiom, or of the facts about a symbol."""

    axiom: str
    truth: float  # NaN for facts, which have a loss alone
    loss: float


@dataclass(frozen=True)
class Reasoning:
    """What a semantics makes of a scene.

    Attributes:
        semantics: in a word.
        axioms: the truth and the loss of each.
        loss: of all together; NaN under classical semantics, which has none.
        gradients: how the loss changes with each belief, by atom; training moves beliefs the other way. Of a function
            it is that among beliefs that sum to 1: that of a value less the mean of all, by how probable they are.

    >>> Scene("pred rain; [wet] rain", {"rain": 0.5}).reason("fuzzy:godel").axioms
    (AxiomRow(axiom='wet', truth=0.5, loss=0.5),)
    """

    semantics: str
    axioms: tuple[AxiomRow, ...]
    loss: float
    gradients: dict[str, float]


class Scene:
    """Knowledge as text, objects for its open sorts, and a belief about every atom.

    Predicates of guards, and numbers in rows, are drawn once from ``seed``; so is every belief that is not given.

    Args:
        text: the knowledge.
        beliefs: how probable atoms such as ``"smokes(anna)"`` or ``"digit(Image[0]) = 3"`` are. Those of one function
            are made to sum to 1. Names that are no atoms are passed over: they may be those of an earlier text.
        counts: how many objects of an open sort, or rows, there are; 3 where it is not said.
        seed: of what is drawn.
        file: where the text came from; other files that it names are looked for beside it.

    Raises:
        KnowledgeError: there is a mistake in the text.
        BudgetError: it is too large for a page.

    >>> scene = Scene("sort Day; pred rain(Day); [dry] exists d: Day. !rain(d)", {"rain(Day[0])": 1.0}, {"Day": 2})
    >>> list(scene.beliefs)
    ['rain(Day[0])', 'rain(Day[1])']
    >>> scene.beliefs["rain(Day[0])"]
    1.0
    """

    def __init__(
        self,
        text: str,
        beliefs: Mapping[str, float] | None = None,
        counts: Mapping[str, int] | None = None,
        seed: int = 0,
        file: str = "<text>",
    ) -> None:
        if len(text) > MOST_CHARACTERS:
            raise BudgetError("text", f"the text has {len(text):,} characters, and the playground takes 20,000")
        self.text, self.seed = text, seed
        self.counts = {name: _count(name, number) for name, number in (counts or {}).items()}
        self.kb: KnowledgeBase = parse(text, file=file, warn=False)
        self.warnings = tuple([str(found) for found in lint(self.kb)])
        generator = torch.Generator().manual_seed(seed % 2**63)
        self._worlds = RandomWorlds(self.kb, OBJECTS, generator, ENTRIES, self.counts)
        self.data = self._worlds.data
        self.places = self._places()
        self._believe(beliefs or {})
        self.model = Model(self.kb, **self._worlds.bound)

    @classmethod
    def of(cls, state: State, file: str = "<text>") -> Scene:
        """The scene of a state.

        >>> Scene.of(State("pred rain; [wet] rain", {"rain": 0.5})).beliefs
        {'rain': 0.5}
        """
        return cls(state.text, state.beliefs, state.counts, state.seed, file)

    @property
    def beliefs(self) -> dict[str, float]:
        """How probable each atom is, by name.

        >>> Scene("pred rain; [wet] rain", {"rain": 0.5}).beliefs
        {'rain': 0.5}
        """
        return {name: round(self._worlds.atoms[at.symbol][at.at].item(), 6) for name, at in self.places.items()}

    @property
    def open(self) -> dict[str, int]:
        """How many objects there are of what may have more or fewer: open sorts that stand in no row, and rows.

        >>> Scene("sort Day; pred rain(Day); exists d: Day. rain(d)").open
        {'Day': 3}
        """
        layout, signature = self._worlds.layout, self.kb.signature
        in_rows = {sort.name for (_, _), sort in layout.sorts.items()}
        sorts = [s.name for s in signature.sorts.values() if has_objects(s) and s.name not in in_rows]
        return {**{name: layout.objects.get(name, OBJECTS) for name in sorts}, **layout.rows}

    # -- answers ----------------------------------------------------------------------------------------------------

    def reason(self, word: str) -> Reasoning:
        """Truth, loss and gradients under a semantics.

        >>> Scene("pred rain; [wet] rain", {"rain": 0.5}).reason("fuzzy:godel").gradients
        {'rain': -1.0}
        """
        how, parameters = limited(word), self._worlds.atoms
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        if word.startswith("amortized"):
            self.model.inference_step(semantics=how, generator=generator, **self.data)
        with torch.no_grad():
            truths = self.model.truth(semantics=how, generator=generator, **self.data)
        if isinstance(how, Classical):  # which judges, and teaches nothing
            rows = [AxiomRow(name, truth.item(), math.nan) for name, truth in truths.items()]
            return Reasoning(word, tuple(rows), math.nan, {})
        losses = self.model.losses(semantics=how, generator=generator, **self.data)
        total = losses.total
        moved = torch.autograd.grad(total, list(parameters.values()), allow_unused=True) if total.requires_grad else ()
        slopes = {name: self._along(name, slope) for name, slope in zip(parameters, moved, strict=False)}
        rows = [
            AxiomRow(name, truths[name].item() if name in truths else math.nan, loss.item())
            for name, loss in losses.by_name().items()
        ]
        gradients = {name: _at(slopes.get(at.symbol), at.at) for name, at in self.places.items()}
        return Reasoning(word, tuple(rows), total.item(), gradients)

    def _along(self, name: str, slope: Tensor | None) -> Tensor | None:
        """A gradient along which the beliefs of a function still sum to 1: one falls where another rises."""
        if slope is None or name not in self.kb.signature.functions:
            return slope
        return slope - (self._worlds.atoms[name].detach() * slope).sum(-1, keepdim=True)

    def satisfaction(self) -> SatisfactionReport:
        """How far the axioms hold when every belief is rounded.

        >>> Scene("pred rain; [wet] rain", {"rain": 0.9}).satisfaction().satisfied
        True
        """
        return self.model.satisfaction(**self.data)

    def refine(self, logic: str = "godel") -> RefinedBeliefs:
        """The beliefs, moved as little as makes the axioms true; where refinement falls short, by a SAT solver.

        >>> print(Scene("pred rain; [wet] rain", {"rain": 0.5}).refine())
        everything holds
          rain  0.50 -> 1.00
        """
        return self.model.refine(logic=logic, steps=50, guarantee="sat", **self.data)

    def worlds(self, axiom: str, k: int = 5) -> list[Explanation]:
        """The most probable worlds in which an axiom holds, of each of its first instances.

        >>> print(Scene("pred rain; pred wet; [some] rain | wet", {"rain": 0.9, "wet": 0.5}).worlds("some", 1)[0])
        the axiom: 1 world (exact: the 1 most probable)
          0.47  rain = True, wet = False
        """
        return self.model.explain(axiom, k=k, semantics=limited("exact"), **self.data)[:OBJECTS]

    def solve(self) -> tuple[dict[str, bool] | None, int | str]:
        """A world in which everything holds, and how many there are ("more than 10,000" where they are too many).

        >>> Scene("pred rain; [wet] rain").solve()
        ({'rain': True}, 1)
        """
        over: Any = {"domains": self._domains(), "entries": ENTRIES, "seconds": SECONDS}
        world = satisfiable(self.kb, **over)
        if world is None:
            return None, 0
        found = {str(atom).replace('"', ""): holds for atom, holds in world.items()}
        try:
            return found, count(self.kb, limit=10_000, **over)
        except BudgetError as error:
            return found, "more than 10,000" if error.field == "limit" else "could not be counted in time"

    def entails(self, formula: str) -> Entailment:
        """Does a formula follow?

        >>> print(Scene("pred rain; pred wet; rain -> wet").entails("!wet -> !rain"))
        follows
        """
        asked = parse_formula(formula, self.kb)
        return entails(self.kb, asked, domains=self._domains(), entries=ENTRIES, seconds=SECONDS)

    def shortcuts(self) -> Shortcuts:
        """Wrong concepts that would satisfy the knowledge as well.

        >>> text = "sort I; sort Bit = 0..1; data rows(a: I, b: I, same: Bit); func bit(I) -> Bit; forall r in rows. "
        >>> Scene(text + "(bit(r.a) = bit(r.b)) <-> r.same = 1").shortcuts().count
        2
        """
        return knowledge_shortcuts(self.kb, budget=replace(LIMITS, worlds=1 << 12), seconds=SECONDS)

    def examine(self, logic: str = "product") -> Examination:
        """What the gradients of a fuzzy logic will do, and contradictions.

        >>> Scene("pred rain; [no] rain & !rain").examine().of("contradiction")
        ['all axioms']
        """
        return examine(self.kb, logic, draws=32, objects=8, entries=ENTRIES, seconds=SECONDS)

    def code(self, word: str) -> str:
        """Python that computes what the page shows.

        >>> print(Scene("pred rain; [wet] rain", {"rain": 0.5}).code("exact"))
        import torch
        import doxa
        <BLANKLINE>
        model = doxa.Model(
            '''
        pred rain; [wet] rain
        ''',
            rain=doxa.probs(torch.tensor(0.5)),
        )
        data = {}
        print(model.truth(semantics='exact', **data))
        print(model.loss(semantics='exact', **data))
        """
        bound = [
            f"    **{{{name!r}: {_source(value)}}}," if keyword.iskeyword(name) else f"    {name}={_source(value)},"
            for name, value in self._bound()
        ]
        quotes = "'''" if "'''" not in self.text else '"""'
        text = self.text.strip().replace("\\", "\\\\")
        lines = ["import torch", "import doxa", "", "model = doxa.Model(", f"    {quotes}", text, f"{quotes},", *bound]
        lines += [")", f"data = {_source(self.data)}"]
        lines += [f"print(model.{what}(semantics={word!r}, **data))" for what in ("truth", "loss")]
        return "\n".join(lines)

    # -- atoms ------------------------------------------------------------------------------------------------------

    def read_beliefs(self, table: str) -> dict[str, float]:
        """Beliefs from a CSV table with two columns, atom and probability; the first row may be a heading.

        >>> Scene("pred rain; [wet] rain").read_beliefs("atom,belief\\nrain,0.25\\n")
        {'rain': 0.25}
        """
        found: dict[str, float] = {}
        for number, row in enumerate(csv.reader(io.StringIO(table)), 1):
            if not row or (number == 1 and len(row) == 2 and row[1].strip().lower() in ("belief", "probability")):
                continue
            # An atom such as friends(anna, bob) has commas of its own.
            name, value = ",".join(row[:-1]).strip(), row[-1].strip()
            name = next((atom for atom in self.places if atom.replace(" ", "") == name.replace(" ", "")), name)
            if name not in self.places:
                known = ", ".join(list(self.places)[:3])
                raise ConfigError(
                    f"line {number} of the table is about {name!r}, which is no atom here; atoms: {known}, …"
                )
            try:
                found[name] = float(value)
            except ValueError:
                found[name] = math.nan
            if not 0 <= found[name] <= 1:
                raise ConfigError(f"line {number} of the table says {value!r} of {name}, expected a number from 0 to 1")
        return found

    def _places(self) -> dict[str, Place]:
        found: dict[str, Place] = {}
        names = self._names()
        signature = self.kb.signature
        for name, values in self._worlds.atoms.items():
            if values.numel() + len(found) > MOST_ATOMS:
                message = f"there are more than {MOST_ATOMS} atoms, too many for a page; take fewer objects"
                raise BudgetError("objects", message)
            symbol: Predicate | Function = signature.predicates.get(name) or signature.functions[name]
            for index in product(*map(range, values.shape)):
                args = ", ".join([names[s.name][i] for s, i in zip(symbol.sorts, index, strict=False)])
                shown = f"{name}({args})" if args else name
                if isinstance(symbol, Function):
                    shown += f" = {names[symbol.result.name][index[-1]]}"
                found[shown] = Place(name, index)
        return found

    def _names(self) -> dict[str, list[str]]:
        """What the objects and values of each sort are called."""
        signature, layout = self.kb.signature, self._worlds.layout
        found = {s.name: [str(v) for v in _listed(s)] for s in signature.sorts.values() if s.values is not None}
        for sort in [s for s in signature.sorts.values() if has_objects(s)]:
            called = [f"{sort.name}[{i}]" for i in range(layout.objects.get(sort.name, OBJECTS))]
            for (rows, field), cells in layout.cells.items():
                if layout.sorts[rows, field].name == sort.name:
                    for i, cell in enumerate(cells):
                        length = layout.lengths.get((rows, field))
                        place = f"[{i}].{field}" if length is None else f"[{i // length}].{field}[{i % length}]"
                        called[cell] = rows + place
            for constant in [c.name for c in signature.constants.values() if c.sort == sort]:
                called[int(self._worlds.bound[constant])] = constant
            found[sort.name] = called
        return found

    def _domains(self) -> dict[str, Any]:
        """Objects and rows by name, for solvers."""
        names, layout = self._names(), self._worlds.layout
        found: dict[str, Any] = {s: names[s] for s in names if self.kb.signature.sorts[s].values is None}
        for rows, size in layout.rows.items():
            found[rows] = [
                {field: self._cell(rows, field, i, names) for r, field in layout.sorts if r == rows}
                for i in range(size)
            ]
        return found

    def _cell(self, rows: str, field: str, row: int, names: Mapping[str, Sequence[str]]) -> Any:
        layout, sort = self._worlds.layout, self._worlds.layout.sorts[rows, field]
        length = layout.lengths.get((rows, field))
        column = self.data[rows][field]
        numbers = (column.values if length is not None else column).tolist()
        values = _listed(sort) if isinstance(sort.values, tuple) else None
        told = [names[sort.name][n] if has_objects(sort) else values[n] if values else n for n in numbers]
        return told[row] if length is None else told[row * length : (row + 1) * length]

    def _believe(self, beliefs: Mapping[str, float]) -> None:
        functions = self.kb.signature.functions
        touched = set()
        for name, value in beliefs.items():
            if name in self.places and 0 <= value <= 1:
                at = self.places[name]
                self._worlds.atoms[at.symbol].data[at.at] = value
                touched.add(at.symbol)
        for name in touched & set(functions):
            values = self._worlds.atoms[name].data
            total = values.sum(-1, keepdim=True)
            values.copy_(torch.where(total > 0, values / total.clamp(min=1e-12), 1 / values.shape[-1]))

    def _bound(self) -> Iterator[tuple[str, Any]]:
        for name, value in self._worlds.bound.items():
            yield name, self._worlds.atoms.get(name, value)


def limited(word: str) -> Semantics:
    """A semantics with the limits of a page."""
    how = semantics(word)
    options: dict[str, Any] = {"budget": LIMITS, "impossible": "inf"}
    if word.startswith("amortized"):
        options["pretrain"] = 100
    return replace(how, **options)


def _count(name: str, number: int) -> int:
    if not 0 <= number <= MOST_OBJECTS:
        raise BudgetError("objects", f"{number} objects of {name}; the playground takes 0 to {MOST_OBJECTS}")
    return number


def _listed(sort: Sort) -> Sequence[Any]:
    return tuple(sort.values or ())


def _at(slopes: Tensor | None, index: tuple[int, ...]) -> float:
    return 0.0 if slopes is None else slopes[index].item()


def _source(value: Any) -> str:
    """A Python expression for what is bound."""
    if isinstance(value, torch.nn.Parameter):
        return f"doxa.probs({_source(value.detach())})"
    if isinstance(value, Tensor):
        numbers = (value.double() * 1e4).round().div(1e4) if value.is_floating_point() else value
        return f"torch.tensor({numbers.tolist()})"
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{key!r}: {_source(item)}" for key, item in value.items()]) + "}"
    if hasattr(value, "lengths"):
        return f"doxa.Ragged({_source(value.values)}, {_source(value.lengths)})"
    return repr(value)
