"""The example knowledge bases, on random data, mean what plain loops say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.logic.naive import World, evaluate

from doxa.logic import Interpretation, KnowledgeBase, Ragged, Sort, load, satisfaction, truth

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "knowledge").glob("*.doxa"))
PEOPLE = 4
"""Objects of each open sort without constants, and rows of data."""


def values_of(kb: KnowledgeBase, sort: Sort) -> list[Any]:
    if sort.values is not None:
        return list(sort.values)
    return [c for c in kb.signature.constants if kb.signature.constants[c].sort == sort] or list(range(PEOPLE))


def random_meaning(kb: KnowledgeBase, seed: int) -> tuple[dict[str, Any], dict[str, Any], World]:
    """Random tensors in which the facts hold for all symbols but closed ones, random rows, and the same, plain."""
    g = torch.Generator().manual_seed(seed)
    signature = kb.signature
    sorts = {s.name: values_of(kb, s) for s in signature.sorts.values() if s.name not in ("Int", "Real")}
    bindings: dict[str, Any] = {}
    symbols: dict[str, Any] = {}

    def lookup(entries: Any, arguments: list[list[Any]], results: list[Any] | None) -> Any:
        def call(*args: Any) -> Any:
            found = entries
            for arg, known in zip(args, arguments, strict=True):
                found = found[known.index(arg)]
            return found if results is None else results[found]

        return call

    for symbol in [*signature.predicates.values(), *signature.functions.values()]:
        if symbol.name in signature.definitions:
            continue
        arguments = [sorts[s.name] for s in symbol.sorts]
        shape = [len(a) for a in arguments]
        if symbol.name in signature.functions:
            results = sorts[signature.functions[symbol.name].result.name]
            places = torch.randint(0, len(results), shape, generator=g)
            bindings[symbol.name] = places + (results[0] if isinstance(results[0], int) else 0)
            symbols[symbol.name] = lookup(places.tolist(), arguments, results)
        elif signature.predicates[symbol.name].closed:
            true = {f.args for f in kb.facts if f.label and f.atom.name == symbol.name}
            symbols[symbol.name] = lambda *args, true=true: args in true
        else:
            table = torch.rand(shape, generator=g) < 0.6
            for fact in kb.facts:
                if fact.atom.name == symbol.name:
                    table[tuple([a.index(v) for a, v in zip(arguments, fact.args, strict=True)])] = fact.label
            bindings[symbol.name] = table
            symbols[symbol.name] = lookup(table.tolist(), arguments, None)
    data: dict[str, Any] = {s: len(v) for s, v in sorts.items() if signature.sorts[s].is_open and v[0] == 0}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, declared in signature.rows.items():
        columns: dict[str, Any] = {}
        plain: list[dict[str, Any]] = [{} for _ in range(PEOPLE)]
        for field, sort, many in declared.fields:
            high = len(sorts[sort.name]) if sort.name in sorts else 9
            lengths = torch.randint(0, 4, (PEOPLE,), generator=g) if many else torch.ones(PEOPLE, dtype=torch.int64)
            entries = torch.randint(0, high, (int(lengths.sum()),), generator=g)
            columns[field] = Ragged(entries, lengths) if many else entries
            for row, part in zip(plain, entries.split(lengths.tolist()), strict=True):
                row[field] = part.tolist() if many else part.item()
        data[name], rows[name] = columns, plain
    world = World(sorts, symbols, {}, rows)
    for name, clauses in signature.definitions.items():  # in the order of the file, which is that of their strata
        true: set[tuple[Any, ...]] = set()
        symbols[name] = lambda *args, true=true: args in true
        while not (found := set(_derived(clauses, world))) <= true:
            true |= found
    return bindings, data, world


def _derived(clauses: Any, world: World) -> Iterator[tuple[Any, ...]]:
    """What the clauses of a definition say, given what is known so far."""
    for clause in clauses:
        for args in product(*[world.sorts[g.sort] for g in clause.groups for _ in g.names]):
            scope = dict(zip(clause.names, args, strict=True))
            if all(evaluate(part, world, scope) for part in (clause.guard, clause.body) if part is not None):
                yield args


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_examples_on_random_data(file: Path) -> None:
    kb = load(file)
    for seed in range(2):
        bindings, data, world = random_meaning(kb, seed)
        interpretation = Interpretation(kb, **bindings)
        report = satisfaction(kb, interpretation, **data)
        for axiom in kb:
            got = truth(axiom, interpretation, **data).item()
            assert got is bool(evaluate(axiom.formula, world)), f"{file.stem}: {axiom}"
            assert got is report[axiom.name].satisfied


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 10


SOLUTION = """
    534678912 672195348 198342567 859761423 426853791 713924856 961537284 287419635 345286179
"""


def test_a_solved_sudoku_satisfies_its_rules() -> None:
    file = next(f for f in EXAMPLES if f.stem == "sudoku9")
    kb = load(file)
    rules = KnowledgeBase.from_parts(kb.signature, kb.axioms)
    grid = torch.tensor([[int(c) - 1 for c in row] for row in SOLUTION.split()])
    solved = torch.nn.functional.one_hot(grid, 9).bool()
    assert truth(rules, Interpretation(rules, cell=solved))
    wrong = solved.clone()
    wrong[0, 0] = wrong[0, 1]
    report = satisfaction(rules, Interpretation(rules, cell=wrong))
    assert report["filled"].satisfied and not report["rows"].satisfied
    assert {"r": 1, "v": 3} in report["rows"].violations
