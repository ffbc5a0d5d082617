"""What symbols say about objects, before it is read as truth: the raw output of networks, tensors and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.logic.bind._bindings import Returns
from doxa.logic.bind._interpretation import Batch, Interpretation
from doxa.logic.bind._meanings import Meaning, is_draw, is_exclusive
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._symbols import INT, Function, Sort
from doxa.logic.syntax._tree import Call, Expr, Field, Name
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Classical, Kind
from doxa.logic.tensor._atoms import Application, symbol_of
from doxa.logic.tensor._block import Frame, Result, Scope
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._execute import Root
from doxa.logic.tensor._frame import pool_of
from doxa.logic.tensor._plan import CHUNK
from doxa.logic.tensor._pools import take
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._run_data import Needs


@dataclass(frozen=True)
class SymbolValues:
    """What a symbol says: ``(objects, *finite arguments)``, and for a distribution ``(..., values)``.

    A "value" is a position in a finite sort, an index, a number or features; -1, the least int64 or NaN if it is none.
    """

    values: Tensor
    returns: Returns


def symbol_values(
    interpretation: Interpretation,
    asked: Mapping[str, Mapping[int, Tensor]],
    data: Mapping[str, Any],
    follows: Mapping[str, Meaning] | None = None,
) -> dict[str, SymbolValues]:
    """What predicates and functions say about many tuples of objects at once; every network runs once.

    ``asked`` has for each symbol one tensor per argument that is not of a finite sort, by its place: features, indices
    into the objects of the data, or numbers; all of one length. Finite arguments become axes. ``follows`` has relations
    that are defined, already evaluated on the data.

    >>> from doxa.logic import Function, KnowledgeBase, Sort, logits
    >>> digit = Function("digit", (Sort("Image"),), Sort.range("Digit", 0, 9))
    >>> sees = Interpretation(KnowledgeBase(digit), digit=logits(torch.nn.Linear(4, 10)))
    >>> found = symbol_values(sees, {"digit": {0: torch.zeros(3, 4)}}, {})["digit"]
    >>> found.values.shape, found.returns
    (torch.Size([3, 10]), 'log_prob')
    """
    known = interpretation.kb.signature
    rows: dict[str, dict[str, Tensor]] = {}
    for symbol, columns in asked.items():
        if columns:
            sorts = (known.predicates.get(symbol) or known.functions[symbol]).sorts
            rows[_rows(symbol)] = {_field(sorts[i], i): column for i, column in columns.items()}
    batch = interpretation.read({**data, **rows}, rows)
    batch = batch.extended(follows) if follows else batch
    needs, roots = interpretation.plans.find(
        ("symbol_values", tuple(asked), batch.schema), lambda: _compiled(batch, list(asked))
    )
    run = Run(batch, needs, chunk=CHUNK, generator=None)
    return {symbol: _reading(batch, symbol, root.value(run)) for symbol, root in roots.items()}


def _rows(symbol: str) -> str:
    return f"arguments of {symbol}"


def _field(sort: Sort, argument: int) -> str:
    return f"{sort.name}[{argument}]"


def _reading(batch: Batch, symbol: str, value: Any) -> SymbolValues:
    meaning = batch.meaning(symbol)
    values = torch.as_tensor(value)
    if isinstance(meaning.symbol, Function) and meaning.symbol.result == INT and not values.is_floating_point():
        values = values.long()
    return SymbolValues(values, "log_prob" if meaning.returns == "logit" and is_exclusive(meaning) else meaning.returns)


def _compiled(batch: Batch, symbols: list[str]) -> tuple[Needs, dict[str, Root]]:
    calls: list[Call] = []
    for name in symbols:
        symbol = batch.signature.predicates.get(name) or batch.signature.functions[name]
        named = enumerate(symbol.sorts)
        args: list[Expr] = [
            Field(Name("a"), _field(sort, i)) if sort.values is None else Name(f"v{i}") for i, sort in named
        ]
        calls.append(Call(name, tuple(args)))
    compiler = Compiler(batch, calls, stack=1 << 62)
    roots = {symbol: Root([symbol], [i]) for i, symbol in enumerate(symbols)}
    for call, root in zip(calls, roots.values(), strict=True):
        drive(_compile(compiler, root, call))
    return compiler.needs, roots


def _compile(compiler: Compiler, root: Root, call: Call) -> Task:
    batch, block = compiler.batch, root.block
    scope = Scope(None, block)
    symbol = symbol_of(call, batch)
    if any(sort.values is None for sort in symbol.sorts):
        pool, kind = pool_of(compiler, Group(("a",), domain=Name(_rows(call.name))))
        scope.names["a"] = root.variable(compiler.axis("a"), pool, kind)
    for i, sort in enumerate(symbol.sorts):
        if sort.values is not None:
            scope.names[f"v{i}"] = root.variable(compiler.axis(f"v{i}"), _pools.Finite(sort), _pools.Finite(sort))
    args = []
    for child in call.children:
        ref = yield compiler.compile(child, scope, _RAW)
        args.append(ref)
    value = None
    if isinstance(symbol, Function) and is_draw(batch.meaning(call.name)):
        values = _pools.Finite(symbol.result)
        value = root.variable(compiler.axis("value"), values, values)
    application = Application(call, block, batch, compiler.needs, _RAW, value)
    found = block.positions(application.result(args, defined=False))
    match found.type:
        case _pools.Object(pool=_pools.Function(name=name, pools=pools)):

            def features(frame: Frame, at: Tensor | int) -> Tensor:
                return take(frame.run.features_of(name, pools), [torch.as_tensor(at)])

            found = block.emit(("features", call.name), features, [found], found.axes)
    block.seal(Result(found))


class _Raw(Classical):
    """Takes what symbols say as it is."""

    def atom(self, raw: Tensor, kind: Kind, dtype: torch.dtype) -> Tensor:
        return raw


_RAW = _Raw("raw")
