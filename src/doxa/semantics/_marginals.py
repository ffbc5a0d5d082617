"""What is believed of a symbol at the objects in a field of rows, each on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Axiom, Call, Compare, Expr, Field, Function, Index, Interpretation, Name, Number, Quantifier
from doxa.logic.syntax._binders import Group
from doxa.semantics._exact import Exact, ExactCompiled
from doxa.semantics._semantics import Data


def marginals(interpretation: Interpretation, symbol: str, place: str, data: Data) -> Tensor:
    """See :meth:`Model.marginals`: how probable ``forall row in rows. symbol(row.field) = v`` is, for each value v."""
    rows, dot, field = place.partition(".")
    if rows not in data or (dot and not field):
        raise ConfigError(f"the place is {place!r}, expected data and their field, such as 'pairs.left', or a sort")
    if not dot:
        return _asked(interpretation, symbol, Group(["row"], sort=rows), Name("row"), data)
    column = interpretation.read(data, [rows]).column(rows, field)
    over, term = Group(["row"], domain=Name(rows)), Field(Name("row"), field)
    declared = interpretation.kb.signature.rows.get(rows)
    many = declared is not None and any(many for name, _, many in declared.fields if name == field)
    if column.lengths is None and not many:
        return _asked(interpretation, symbol, over, term, data)
    if column.lengths is None:
        count = column.values.shape[1]
        each = [_asked(interpretation, symbol, over, Index(term, Number(i)), data) for i in range(count)]
        return torch.stack(each, 1).flatten(0, 1)
    lengths = column.lengths.cpu()
    starts, parts, places = lengths.cumsum(0) - lengths, [], []
    for i in range(int(lengths.max()) if len(lengths) else 0):
        at = (lengths > i).nonzero().squeeze(1)
        some = {**data, rows: _taken(data[rows], at)}
        parts.append(_asked(interpretation, symbol, over, Index(term, Number(i)), some))
        places.append(starts[at] + i)
    if not parts:
        return torch.zeros(0, len(_values(interpretation, symbol)))
    return torch.cat(parts)[torch.cat(places).argsort()]


def _taken(rows: Mapping[str, Any], at: Tensor) -> dict[str, Any]:
    return {
        name: [column[i] for i in at.tolist()] if isinstance(column, list | tuple) else column[at]
        for name, column in rows.items()
    }


def _values(interpretation: Interpretation, symbol: str) -> list[Any]:
    """What a symbol can say of one object: the values of a function or of the last argument of a predicate, or nothing
    but that it holds."""
    signature = interpretation.kb.signature
    found = signature.functions.get(symbol) or signature.predicates.get(symbol)
    if found is None:
        raise ConfigError(f"there is no symbol {symbol!r}; the knowledge has {', '.join(signature.names())}")
    finite = found.result if isinstance(found, Function) else found.sorts[-1] if len(found.sorts) > 1 else None
    wanted = 1 if isinstance(found, Function) or finite is None else 2
    if (
        len(found.sorts) != wanted
        or found.sorts[0].values is not None
        or (finite is not None and finite.values is None)
    ):
        raise ConfigError(
            f"{symbol} is no concept of one object: wanted is a predicate p(S) or p(S, F), or a function f(S) -> F, of "
            "an open sort S and a finite one F"
        )
    return [False, True] if finite is None or finite.values is None else list(finite.values)


def _asked(interpretation: Interpretation, symbol: str, over: Group, term: Expr, data: Data) -> Tensor:
    """The probability of each value of a symbol at a term: ``(rows, values)``."""
    values, function = _values(interpretation, symbol), symbol in interpretation.kb.signature.functions
    named: list[Expr] = [Name(v) if isinstance(v, str) else Number(v) for v in values if not isinstance(v, bool)]
    atoms: list[Expr] = [Call(symbol, (term,))]
    if named:
        atoms = [Compare("=", atoms[0], v) if function else Call(symbol, (term, v)) for v in named]
    axioms = [Axiom(f"{symbol} {i}", Quantifier("forall", [over], atom)) for i, atom in enumerate(atoms)]
    truths = ExactCompiled(axioms, interpretation, Exact()).rows(data, None)
    return torch.stack(truths if named else [1 - truths[0], truths[0]], -1)
