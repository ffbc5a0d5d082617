"""What symbols say about objects, before it is read as truth: the raw output of networks, tensors, tables, functions.

Probabilistic reasoning needs whole distributions of neural functions, where grounding needs only truth values. A
reading has an axis over the objects that were asked for, then one for each argument of a finite sort, in order, and
for a neural function one over its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from doxa.logic.bind._bindings import Returns
from doxa.logic.bind._interpretation import Interpretation
from doxa.logic.bind._meanings import Named, is_draw
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._symbols import Function
from doxa.logic.syntax._tree import Call, Expr, Field, Name
from doxa.logic.tensor._algebra import Accumulator, Monoid
from doxa.logic.tensor._atoms import apply
from doxa.logic.tensor._block import Result, Task
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._execute import drive
from doxa.logic.tensor._frame import Scope, pool_of
from doxa.logic.tensor._free import Free
from doxa.logic.tensor._plan import CHUNK
from doxa.logic.tensor._root import Root
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._tables import Tables
from doxa.logic.tensor._types import FinitePool, FiniteType

__all__ = ["Reading", "readings"]


@dataclass(frozen=True)
class Reading:
    """What a symbol says: ``(objects, *finite arguments)``, and for a distribution ``(..., values)``.

    ``returns`` says what the numbers are: "bool", "prob", "logit", "log_prob", or "value" for a function that is no
    distribution, whose values of a finite sort are positions in it, -1 where it has none.

    >>> Reading(torch.tensor([0.5]), "prob").returns
    'prob'
    """

    values: Tensor
    returns: Returns


def readings(
    interpretation: Interpretation, asked: Mapping[str, Mapping[int, Tensor]], data: Mapping[str, Any]
) -> dict[str, Reading]:
    """What predicates and functions say about many tuples of objects at once; every network runs once.

    Args:
        interpretation: the meaning of the symbols.
        asked: for each symbol, one tensor for each argument that is not of a finite sort, by its place: features,
            indices into the objects of the data, or numbers; all of one length. Finite arguments become axes.
        data: objects of open sorts, and whatever else comes with the data, by name.

    >>> from doxa.logic import Function, KnowledgeBase, Sort, logits
    >>> digit = Function("digit", (Sort("Image"),), Sort.range("Digit", 0, 9))
    >>> sees = Interpretation(KnowledgeBase(digit), digit=logits(torch.nn.Linear(4, 10)))
    >>> found = readings(sees, {"digit": {0: torch.zeros(3, 4)}}, {})["digit"]
    >>> found.values.shape, found.returns
    (torch.Size([3, 10]), 'log_prob')
    """
    names = {symbol: f"arguments of {symbol}" for symbol, columns in asked.items() if columns}
    rows = {names[s]: {f"a{i}": column for i, column in asked[s].items()} for s in names}
    batch = interpretation.read({**data, **rows}, names.values())
    signature = batch.signature
    calls: dict[str, Call] = {}
    for symbol in asked:
        declared = signature.predicates.get(symbol) or signature.functions[symbol]
        args: list[Expr] = [
            Name(f"v{i}") if sort.values is not None else Field(Name("a"), f"a{i}")
            for i, sort in enumerate(declared.sorts)
        ]
        calls[symbol] = Call(symbol, tuple(args))
    compiler = Compiler(batch, Free(signature, list(calls.values())), stack=1 << 62)
    roots = {symbol: Root([symbol], [i]) for i, symbol in enumerate(calls)}
    for symbol, call in calls.items():
        drive(_compile(compiler, roots[symbol], call, names.get(symbol)))
    run = Run(batch, compiler.needs, chunk=CHUNK, generator=None)
    run.tables = Tables(run)
    found = {}
    for symbol, root in roots.items():
        value = drive(root.run(run))
        meaning = batch.meaning(symbol)
        exclusive = not isinstance(meaning, Named) and meaning.exclusive
        drawn = meaning.returns == "logit" and (is_draw(meaning) or exclusive)
        found[symbol] = Reading(torch.as_tensor(value), "log_prob" if drawn else meaning.returns)
    return found


def _compile(compiler: Compiler, root: Root, call: Call, rows: str | None) -> Task:
    batch, block = compiler.batch, root.block
    scope = Scope(None, block)
    symbol = batch.signature.predicates.get(call.name) or batch.signature.functions[call.name]
    if rows is not None:
        pool, kind = pool_of(compiler, Group(("a",), domain=Name(rows)))
        scope.names["a"] = root.variable(compiler.axis("a"), pool, kind)
    for i, sort in enumerate(symbol.sorts):
        if sort.values is not None:
            scope.names[f"v{i}"] = root.variable(compiler.axis(f"v{i}"), FinitePool(sort), FiniteType(sort))
    args = []
    for child in call.children:
        ref = yield compiler.compile(child, scope, _RAW)
        args.append(ref)
    value = None
    if isinstance(symbol, Function) and is_draw(batch.meaning(call.name)):
        value = root.variable(compiler.axis("value"), FinitePool(symbol.result), FiniteType(symbol.result))
    block.seal(Result(apply(call, block, args, batch, compiler.needs, _RAW, value=value, defined=False)))


class _Raw:
    """Takes what symbols say as it is; nothing is ever joined."""

    name = "raw"
    associative = True
    statements: Literal["mode", "axis"] = "mode"

    def atom(self, raw: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
        return raw

    def not_(self, x: Tensor) -> Tensor:
        return x

    def and_(self, xs: Sequence[Tensor]) -> Tensor:
        return xs[0]

    or_ = and_

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        return b

    iff = xor = implies

    def connective(self, kind: str) -> Accumulator:
        return Monoid("sum")

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        return Monoid("sum")

    def draw(self) -> Accumulator:
        return Monoid("sum")


_RAW = _Raw()
