"""What people bind to symbols: networks, tensors, tables, Python functions, trainable constants.

A network takes arguments of open sorts and numbers as inputs; those of finite sorts are axes of what it returns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CellType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from doxa.errors import BindingError
from doxa.logic.bind._table_files import columns_of, read_table

Returns = Literal["bool", "prob", "logit", "log_prob", "value"]
Computation = nn.Module | Tensor | Callable[..., Tensor]


@dataclass(frozen=True)
class Declared:
    """A network or tensor together with what it returns."""

    thing: Computation
    returns: Returns
    exclusive: bool = False


@dataclass(frozen=True)
class Entries:
    """A table by name: argument tuples and what they map to."""

    entries: tuple[tuple[tuple[Any, ...], Any], ...]


@dataclass(frozen=True, eq=False)
class Columns:
    """A table by columns: one for each argument, and for a function one for the value."""

    columns: tuple[tuple[Tensor, tuple[str, ...] | None], ...]
    """Numbers and indices; or, with names, the place of each entry's name among these."""
    origin: str
    shape: tuple[int, ...] | None = None
    """Of a sparse tensor, how long its axes are: whole numbers are then positions also in a range, not its values."""


@dataclass(frozen=True)
class PythonFunction:
    """A Python function of whole tensors, or of one object at a time."""

    call: Callable[..., Any]
    per_object: bool = False


@dataclass(frozen=True, eq=False)
class Joint:
    """A symbol's part of a belief that several symbols share: what is bound to all of them, and to it alone."""

    shared: nn.Module
    own: Declared | None = None


def logits(thing: Computation, *, exclusive: bool = False) -> Declared:
    """The network (or tensor) returns logits: of a truth value for a predicate, over the values for a function.

    For a predicate family such as ``is(Image, Digit)`` every entry is a truth value of its own (sigmoid); with
    ``exclusive`` the values of the last axis exclude one another (softmax).

    >>> from doxa.logic import Interpretation, KnowledgeBase, Predicate, Sort, forall, truth, variables
    >>> Image = Sort("Image")
    >>> (x,) = variables("x", Image)
    >>> kb = KnowledgeBase(Predicate("bright", (Image,)), all=forall(x)(Predicate("bright", (Image,))(x)))
    >>> bright = Interpretation(kb, bright=logits(lambda image: image.sum(-1)))
    >>> truth(kb["all"], bright, Image=torch.ones(3, 4))
    tensor(True)
    """
    return Declared(_declarable(thing, "logits"), "logit", exclusive)


def probs(thing: Computation) -> Declared:
    """The network (or tensor) returns probabilities.

    At exactly 0 or 1 a value is impossible, and exact reasoning has no gradient through it; `logits` never get there.

    >>> probs(torch.tensor([0.2, 0.8])).returns
    'prob'
    """
    return Declared(_declarable(thing, "probs"), "prob")


def log_probs(thing: Computation) -> Declared:
    """The network (or tensor) returns logarithms of probabilities.

    >>> log_probs(torch.tensor([0.2, 0.8]).log()).returns
    'log_prob'
    """
    return Declared(_declarable(thing, "log_probs"), "log_prob")


def values(thing: Computation) -> Declared:
    """The network computes the value itself: a number for ``Int`` and ``Real``, features for an open sort.

    >>> values(torch.nn.Linear(3, 8)).returns
    'value'
    """
    return Declared(_declarable(thing, "values"), "value")


def table(entries: Mapping[Any, Any] | Iterable[Any] | Tensor | str | Path) -> Entries | Columns:
    """A relation by its tuples (all others are false), or a function by a dict from tuples to values.

    Objects are named by constants, values of finite sorts, or indices into the data. Very many tuples come as columns,
    one for each argument (and one for the value of a function), without an object of Python's for each:

    * a tensor of whole numbers ``(n, k)``, one tuple per row;
    * a sparse tensor (COO or CSR) of truth values, one axis per argument;
    * a data frame of pandas, or the path of a CSV or Parquet file (read by pandas; the first line of CSV names the
      columns).

    >>> table({("alice", "bob"), }).entries
    ((('alice', 'bob'), True),)
    >>> table({0: 1, 1: 0}).entries
    (((0,), 1), ((1,), 0))
    >>> len(table(torch.tensor([[0, 1], [1, 2], [2, 3]])).columns)
    2
    """
    if isinstance(entries, Tensor):
        return _sparse(entries) if entries.layout != torch.strided else _rows(entries)
    if isinstance(entries, str | Path):
        return Columns(tuple(read_table(Path(entries))), str(entries))
    if type(entries).__module__.partition(".")[0] == "pandas":
        return Columns(tuple(columns_of(entries, "the data frame")), "the data frame")
    if isinstance(entries, Mapping):
        pairs = list(entries.items())
    else:
        pairs = [(key, True) for key in entries]
    return Entries(tuple([(key if isinstance(key, tuple) else (key,), value) for key, value in pairs]))


def _rows(rows: Tensor) -> Columns:
    """Tuples by the rows of a tensor."""
    rows = rows.unsqueeze(1) if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.dtype == torch.bool or rows.is_complex() or rows.requires_grad:
        raise BindingError(
            f"table(...) takes a tensor with one tuple of indices per row, (n, k), got {describe(rows)}; a tensor with "
            "one axis per argument is bound as it is, without table"
        )
    return Columns(tuple([(column, None) for column in rows.unbind(1)]), "the tensor")


def _sparse(tensor: Tensor) -> Columns:
    """The places of a sparse tensor that hold true."""
    if tensor.dtype != torch.bool:
        raise BindingError(
            f"a sparse tensor lists the tuples that are true: wanted dtype bool, got {describe(tensor)}; "
            "use .bool(), or .to_dense() for truth values in between"
        )
    coo = (tensor if tensor.layout == torch.sparse_coo else tensor.to_sparse()).coalesce()
    places = coo.indices()[:, coo.values()]
    return Columns(
        tuple([(column, None) for column in places.unbind(0)]), f"the tensor {shape_of(tensor)}", shape_of(tensor)
    )


def function(call: Callable[..., Any], *, per_object: bool = False) -> PythonFunction:
    """A Python function as the meaning of a symbol.

    It is called on tensors with one entry per tuple of objects: integers for range sorts, positions for enumerations,
    features for objects that have them, else their indices. With ``per_object`` it is called once per distinct tuple,
    on plain numbers, names of values, and single objects.

    >>> function(lambda d: (d + 1) % 10).per_object
    False
    """
    if not callable(call):
        raise BindingError(f"function(...) needs something to call, got {call!r} of type {type(call).__name__}")
    if isinstance(call, nn.Module):
        raise BindingError(
            f"function(...) is for Python functions; say what the network {type(call).__name__} returns: "
            "logits(...), probs(...), log_probs(...) or values(...)"
        )
    return PythonFunction(call, per_object)


def trainable(*shape: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> nn.Parameter:
    """Features of a constant that learn, drawn from a standard normal.

    >>> trainable(16).shape
    torch.Size([16])
    """
    return nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype))


def _declarable(thing: Computation, word: str) -> Computation:
    if isinstance(thing, nn.Module | Tensor):
        return thing
    if callable(thing):
        for network in _networks_within(thing):
            warnings.warn(
                f"{word}(...) is given a function that calls the network {type(network).__name__}, whose parameters "
                f"will not be among those of the model; give the nn.Module itself: {word}(network), or one around it",
                stacklevel=3,
            )
        return thing
    raise BindingError(f"{word}(...) needs a network, a function or a tensor, got {thing!r} of {type(thing).__name__}")


def _networks_within(call: Callable[..., Any]) -> list[nn.Module]:
    """The networks with something to learn that a plain function holds: as the owner of a method, or by name."""
    if isinstance(call, partial):
        return [n for part in (call.func, *call.args, *call.keywords.values()) for n in _networks_within(part)]
    code, own = getattr(call, "__code__", None), getattr(call, "__globals__", {})
    if code is not None and "functional_call" in code.co_names:  # with parameters that it is given
        return []
    cells = [cell.cell_contents for cell in getattr(call, "__closure__", None) or () if cell != CellType()]
    named = [own.get(name) for name in code.co_names] if code is not None else []
    held = [call, getattr(call, "__self__", None), *cells, *named]
    return [n for n in held if isinstance(n, nn.Module) and any(p.requires_grad for p in n.parameters())][:1]


# --- what can be said of a tensor before it is used: how messages show it, and whether its numbers are good ones ---


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def dtype_of(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def describe(value: Any) -> str:
    if isinstance(value, Tensor):
        if value.is_nested:
            return f"a nested tensor of dtype {dtype_of(value)}"
        kind = "a tensor" if value.layout == torch.strided else f"a {str(value.layout).removeprefix('torch.')} tensor"
        return f"{kind} of shape {shape_of(value)} and dtype {dtype_of(value)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"


def has_values(tensor: Tensor) -> bool:
    """Can the entries be looked at? Not while a function is compiled or mapped, nor on fake and meta tensors."""
    if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return not (tensor.is_meta or hasattr(tensor, "fake_mode"))


def check_alike(sort: str, first: str, one: Tensor, second: str, other: Tensor) -> None:
    """Refuse objects of one sort that differ in shape or dtype; ``first`` and ``second`` say where they came from."""
    if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
        shown = [f"{shape_of(t)[1:]} and dtype {dtype_of(t)}" for t in (one, other)]
        raise BindingError(
            f"{sort}: all objects of a sort need features of the same shape and dtype, but those in {first} have shape "
            f"{shown[0]}, and those in {second} have shape {shown[1]}"
        )


def is_finite(numbers: Tensor) -> bool:
    """Is the sum of all numbers finite, so that all of them are? True also where they cannot be looked at."""
    if not numbers.is_floating_point() or not has_values(numbers):
        return True
    return math.isfinite(numbers.detach().sum().item())


def check_finite(name: str, thing: str, numbers: Tensor, *, distribution: bool) -> None:
    """Refuse NaN and +inf, and logits of one ``distribution`` that are all -inf; other -inf are probabilities of 0."""
    if is_finite(numbers):
        return
    numbers = numbers.detach()
    for what, wrong in (("NaN (not a number)", numbers.isnan()), ("+inf", numbers.isposinf())):
        if bool(wrong.any()):
            raise BindingError(
                f"{name}: {what} in {int(wrong.sum())} of the {numbers.numel()} numbers of {thing}; finite ones are "
                f"wanted; mend what {name} is bound to, or let it pass: Interpretation(kb, check_finite=False)"
            )
    if distribution and bool(numbers.isneginf().all(-1).any()):
        raise BindingError(
            f"{name}: {thing} is -inf for all values of some object, so that none has a probability; at least one "
            f"finite logit is wanted; mend what {name} is bound to"
        )


def check_probabilities(name: str, thing: str, numbers: Tensor, returns: Returns, *, distribution: bool) -> None:
    """Refuse numbers that are no probabilities or logarithms of such, or do not add up in a ``distribution``."""
    if returns not in ("prob", "log_prob") or not numbers.numel() or not has_values(numbers):
        return
    numbers = numbers.detach()
    slack = math.sqrt(torch.finfo(numbers.dtype).eps)
    low, high = (end.item() for end in numbers.aminmax())
    if low != low:
        raise BindingError(f"{name}: {thing} holds NaN (not a number); mend what {name} is bound to")
    if returns == "log_prob":
        if high > slack:
            raise BindingError(
                f"{name}: logarithms of probabilities are at most 0, but {thing} reaches up to {high:.4g}; if these "
                "are logits, say logits(...), or take log_softmax"
            )
    elif low < 0 or high > 1 + slack:
        raise BindingError(
            f"{name}: truth values lie in [0, 1], but {thing} reaches from {low:.4g} to {high:.4g}; if these are "
            "logits, say logits(...)"
        )
    if distribution:
        total = numbers.exp().sum(-1) if returns == "log_prob" else numbers.sum(-1)
        wrong = (total - 1).abs() > 10 * slack
        if bool(wrong.any()):
            raise BindingError(
                f"{name}: the probabilities of all values must add up to 1, but {thing} has some that add up to "
                f"{total[wrong][0].item():.4g}; if these are logits, say logits(...), else divide by their sum"
            )
