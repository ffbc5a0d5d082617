"""What networks believe, corrected: the smallest change of truth values under which the axioms hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from doxa import _html
from doxa.errors import KnowledgeError
from doxa.logic import INT, REAL, Call, Compare, Expr, Function, Interpretation, Predicate, Sort, ground
from doxa.logic.bind._universe import Column
from doxa.logic.tensor._symbol_values import SymbolValues, symbol_values
from doxa.logic.unfold._propositional import Propositional
from doxa.refine import Refine
from doxa.semantics._combine import plain

LINES = 100
"""So many atoms are shown in a notebook, those that changed most."""


@dataclass(frozen=True, eq=False)
class RefinedBeliefs:
    """Truth values before and after refinement, atom by atom; ``[symbol]`` has those of one predicate or function.

    Attributes:
        atoms: their readable names, such as ``"wet(Day[0])"`` and ``"digit(pairs[0].left) = 3"``.
        before: what was believed, ``(atoms,)``.
        after: the same after refinement; derivatives flow through it.
        truth: the truth of each axiom afterwards; those of the values of functions, of which one holds, are called
            "constraints".
        satisfied: whether everything holds when truth values are rounded.
        places: where the atoms of each symbol are, by its arguments.

    >>> found = RefinedBeliefs(("rain",), torch.tensor([0.2]), torch.tensor([0.9]), {}, True, {"rain": {"": [0]}})
    >>> print(found)
    everything holds
      rain  0.20 -> 0.90
    >>> found["rain"]
    {'': tensor(0.9000)}
    """

    atoms: tuple[str, ...]
    before: Tensor
    after: Tensor
    truth: dict[str, Tensor]
    satisfied: bool
    places: dict[str, dict[str, list[int]]]

    def __getitem__(self, symbol: str) -> dict[str, Tensor]:
        """By arguments, the truth of a predicate, or of each value of a function."""
        if symbol not in self.places:
            raise KnowledgeError(f"nothing is believed of {symbol!r}; there are {', '.join(self.places)}")
        found = {}
        for args, places in self.places[symbol].items():
            values = self.after[places]
            found[args] = values if " = " in self.atoms[places[0]] else values[0]
        return found

    def __str__(self) -> str:
        """What holds, and every atom that has changed."""
        width = max([len(atom) for atom in self.atoms], default=0)
        lines = ["everything holds" if self.satisfied else "not everything holds"]
        for atom, old, new in zip(self.atoms, self.before.tolist(), self.after.tolist(), strict=True):
            if abs(old - new) > 0.005:
                lines.append(f"  {atom:<{width}}  {old:.2f} -> {new:.2f}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        verdict = (
            _html.span("good", "everything holds") if self.satisfied else _html.span("bad", "not everything holds")
        )
        before, after = self.before.tolist(), self.after.tolist()
        order = sorted(range(len(before)), key=lambda i: -abs(after[i] - before[i]))[:LINES]
        rows = [(self.atoms[i], _html.bar(before[i]), "→", _html.bar(after[i])) for i in order]
        truths = [(name, _html.bar(float(truth.detach().mean()))) for name, truth in list(self.truth.items())[:LINES]]
        tables = [_html.table(("atom", "before", "", "after"), rows), *_html.more(len(rows), len(before), "atoms")]
        return _html.box(_html.line(verdict), *tables, _html.table(("axiom", "truth afterwards"), truths))


def refine(
    interpretation: Interpretation,
    logic: str,
    target: float | Mapping[str, float],
    steps: int | None,
    guarantee: Literal["sat"] | None,
    data: Mapping[str, Any],
) -> RefinedBeliefs:
    """See :meth:`Model.refine`."""
    objects = _Objects(interpretation, data)
    theory = ground(interpretation.kb, domains=objects.domains)
    before, crisp = _truths(theory, interpretation, objects, data)
    goals: Any = target
    if isinstance(target, Mapping):
        rest = [name for name, parts in (("facts", theory.facts), ("constraints", theory.constraints)) if parts]
        goals = {**dict.fromkeys(rest, 1.0), **target}
    layer = Refine(theory, logic, goals, steps=steps, guarantee=guarantee, constants=crisp)
    found = layer.run(before)
    truths = dict(zip(layer.formulas, found.truth.reshape(-1).unbind(), strict=True))
    atoms: list[str] = []
    places: dict[str, dict[str, list[int]]] = {}
    for i, atom in enumerate(layer.atoms):
        call = _call(atom)
        args = ", ".join([str(plain(a)) for a in call.children])
        shown = f"{call.name}({args})" if call.children else call.name
        atoms.append(f"{shown} = {plain(atom.children[1])}" if isinstance(atom, Compare) else shown)
        places.setdefault(call.name, {}).setdefault(args, []).append(i)
    return RefinedBeliefs(tuple(atoms), before, found.values, truths, bool(found.satisfied), places)


class _Objects:
    """The objects of data by name, and what a symbol is told of each: its index or its features."""

    def __init__(self, interpretation: Interpretation, data: Mapping[str, Any]) -> None:
        self.batch = batch = interpretation.read(data)
        self.index: dict[tuple[str, str], int] = {}
        self.features: dict[tuple[str, str], Tensor] = {}
        self.domains: dict[str, Any] = {}
        """Objects and rows as names and numbers, for grounding."""
        signature = batch.signature
        for sort in signature.sorts:
            if _has_objects(signature.sorts[sort]) and batch.has_objects(sort):
                known = batch.objects(sort)
                names = list(known.names or [f"{sort}[{i}]" for i in range(known.size)])
                for constant in () if known.names else interpretation.constants_of.get(sort, ()):
                    names[batch.index_of(constant)] = constant
                self.domains[sort] = names
                self.index.update({(sort, name): i for i, name in enumerate(names)})
                if known.features is not None:
                    self.features.update({(sort, name): known.features[i] for i, name in enumerate(names)})
        for rows, found in batch.rows.items():
            declared = signature.rows.get(rows)
            many = {field for field, _, several in declared.fields if several} if declared is not None else set()
            self.domains[rows] = [
                {f: self._entry(column, f"{rows}[{i}].{f}", i, f in many) for f, column in found.columns.items()}
                for i in range(found.size)
            ]

    def _entry(self, column: Column, name: str, row: int, many: bool) -> Any:
        if column.lengths is not None and column.starts is not None:
            several = column.values[int(column.starts[row]) :][: int(column.lengths[row])]
        elif many:
            several = column.values[row]
        else:
            return self._value(column.sort, column.values[row], name)
        return [self._value(column.sort, value, f"{name}[{j}]") for j, value in enumerate(several)]

    def _value(self, sort: Sort | None, value: Tensor, name: str) -> Any:
        """A number, the name of a value or of an object."""
        if sort is not None and _has_objects(sort):
            if value.ndim == 0 and not value.is_floating_point() and self.batch.has_objects(sort.name):
                return self.domains[sort.name][int(value)]
            self.features[sort.name, name] = value
            return name
        if value.ndim:
            raise KnowledgeError(f"{name} has features, but its rows are not declared; say of which sort it is")
        number = value.item()
        if sort is not None and isinstance(sort.values, tuple):
            return sort.values[int(number)]
        return int(number) if isinstance(number, bool) else number

    def column(self, sort: Sort, names: Sequence[Any]) -> Tensor:
        """What a symbol is told: numbers, the indices of objects where all have one, else their features."""
        if sort in (INT, REAL):
            return torch.tensor(names, device=self.batch.device)
        if all((sort.name, name) in self.index for name in names):
            return torch.tensor([self.index[sort.name, name] for name in names], device=self.batch.device)
        return torch.stack([self.features[sort.name, name] for name in names])


def _has_objects(sort: Sort) -> bool:
    return sort.is_open and sort not in (INT, REAL)


def _call(atom: Expr) -> Call:
    found = atom.children[0] if isinstance(atom, Compare) else atom
    assert isinstance(found, Call)
    return found


def _truths(
    theory: Propositional, interpretation: Interpretation, objects: _Objects, data: Mapping[str, Any]
) -> tuple[Tensor, list[Expr]]:
    """How true each atom is, ``(atoms,)``, and the atoms that are certain; each network runs once."""
    signature = interpretation.kb.signature
    calls = [_call(atom) for atom in theory.atoms]
    symbols = {c.name: signature.predicates.get(c.name) or signature.functions[c.name] for c in calls}
    tuples: dict[str, dict[tuple[Any, ...], int]] = {name: {} for name in symbols}
    at: list[list[int]] = []  # where each atom is in the table of its symbol
    for atom, call in zip(theory.atoms, calls, strict=True):
        symbol, own = symbols[call.name], tuples[call.name]
        args = [(plain(a), sort.values) for a, sort in zip(call.children, symbol.sorts, strict=True)]
        place = own.setdefault(tuple([a for a, finite in args if not finite]), len(own))
        at.append([place] if not all(finite for _, finite in args) else [])
        at[-1] += [finite.index(a) for a, finite in args if finite]
        if isinstance(symbol, Function):
            assert symbol.result.values is not None
            at[-1].append(symbol.result.values.index(plain(atom.children[1])))
    asked = {}
    for name, symbol in symbols.items():
        opened = [i for i, sort in enumerate(symbol.sorts) if not sort.values]
        columns = zip(opened, zip(*tuples[name], strict=True), strict=True) if opened else ()
        asked[name] = {i: objects.column(symbol.sorts[i], names) for i, names in columns}
    said = symbol_values(interpretation, asked, {n: v for n, v in data.items() if n not in objects.batch.rows})
    tables = {name: _probabilities(symbol, said[name]) for name, symbol in symbols.items()}
    dtype = next((t.dtype for t in tables.values() if t.requires_grad), torch.get_default_dtype())
    found = [tables[call.name][tuple(places)].to(dtype) for call, places in zip(calls, at, strict=True)]
    crisp = [a for a, call in zip(theory.atoms, calls, strict=True) if said[call.name].returns in ("bool", "value")]
    return torch.stack(found) if found else torch.zeros(0), crisp


def _probabilities(symbol: Predicate | Function, reading: SymbolValues) -> Tensor:
    """What a symbol says as probabilities; of a function, over its values on the last axis."""
    values = reading.values
    if reading.returns == "logit":
        return values.sigmoid()
    if reading.returns == "log_prob":
        return values.exp()
    if reading.returns == "value":
        assert isinstance(symbol, Function) and symbol.result.values is not None
        return torch.nn.functional.one_hot(values.clamp(min=0), len(symbol.result.values)).to(torch.get_default_dtype())
    return values.to(torch.get_default_dtype()) if reading.returns == "bool" else values
