"""What people bind to symbols: networks, tensors, tables, Python functions, trainable constants.

A network takes arguments of open sorts and numbers as inputs; those of finite sorts are axes of what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from doxa.errors import BindingError

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


@dataclass(frozen=True)
class PythonFunction:
    """A Python function of whole tensors, or of one object at a time."""

    call: Callable[..., Any]
    per_object: bool = False


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


def table(entries: Mapping[Any, Any] | Iterable[Any]) -> Entries:
    """A relation by its tuples (all others are false), or a function by a dict from tuples to values.

    Objects are named by constants, values of finite sorts, or indices into the data.

    >>> table({("alice", "bob"), }).entries
    ((('alice', 'bob'), True),)
    >>> table({0: 1, 1: 0}).entries
    (((0,), 1), ((1,), 0))
    """
    if isinstance(entries, Mapping):
        pairs = list(entries.items())
    else:
        pairs = [(key, True) for key in entries]
    return Entries(tuple([(key if isinstance(key, tuple) else (key,), value) for key, value in pairs]))


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
    if isinstance(thing, nn.Module | Tensor) or callable(thing):
        return thing
    raise BindingError(f"{word}(...) needs a network, a function or a tensor, got {thing!r} of {type(thing).__name__}")
