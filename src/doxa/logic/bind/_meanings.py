"""The meaning of one symbol inside an interpretation: a module that holds what was bound, checked against the symbol.

* :class:`Network`: computes a table over objects (or over the tuples that occur).
* :class:`Table`: a tensor with one axis per argument; networks and Python functions become one when they are run.
* :class:`Named`: tuples by name, resolved when the objects are known.
* :class:`Fixed`: a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from doxa.errors import BindingError
from doxa.logic.bind._bindings import Declared, Entries, PythonFunction, Returns, table
from doxa.logic.bind._universe import describe, has_values, shape_of
from doxa.logic.syntax._symbols import INT, REAL, Constant, Function, Predicate, Signature, Sort

__all__ = [
    "Fixed",
    "Meaning",
    "Named",
    "Network",
    "Table",
    "bind",
    "bind_constant",
    "check_probabilities",
    "is_draw",
    "signature_text",
]

Symbol = Predicate | Function


class Network(nn.Module):
    """A network or a Python function. ``inputs`` are the arguments it is called on, the others are axes it returns."""

    def __init__(
        self, symbol: Symbol, thing: Any, returns: Returns, *, exclusive: bool, bare: bool, each: bool
    ) -> None:
        super().__init__()
        self.symbol = symbol
        self.returns: Returns = returns
        self.exclusive = exclusive
        self.per_object = each
        self.bare = bare
        self.module = thing if isinstance(thing, nn.Module) else None
        self._call = None if self.module is not None else thing  # a module is registered once
        scalar = (*[s.values is None for s in symbol.sorts],)
        self.inputs = tuple([i for i, is_input in enumerate(scalar) if bare or is_input])
        self.axes = tuple([i for i in range(len(symbol.sorts)) if i not in self.inputs])

    @property
    def call(self) -> Any:
        return self._call if self.module is None else self.module

    def listen(self, hear: Callable[[Any], None]) -> Callable[[], object]:
        """Call ``hear`` with whatever is returned from now on; the result is how to stop."""
        if self.module is not None:
            return self.module.register_forward_hook(lambda module, inputs, output: hear(output)).remove
        call: Any = self._call

        def overheard(*arguments: Any) -> Any:
            output = call(*arguments)
            hear(output)
            return output

        self._call = overheard
        return partial(setattr, self, "_call", call)


class Table(nn.Module):
    """A tensor with one axis per argument (and one over the values, for the distribution of a function)."""

    tensor: Tensor

    def __init__(self, symbol: Symbol, tensor: Tensor, returns: Returns, *, exclusive: bool = False) -> None:
        super().__init__()
        self.symbol = symbol
        self.returns: Returns = returns
        self.exclusive = exclusive
        _hold(self, tensor)


class Named(nn.Module):
    """Tuples of names with their values; a relation is false of all others, a function has no value there."""

    def __init__(self, symbol: Symbol, entries: Entries) -> None:
        super().__init__()
        self.symbol = symbol
        self.entries = entries.entries
        self.returns: Returns = "bool" if isinstance(symbol, Predicate) else "value"
        self.listed = {
            i: sorted({args[i] for args, _ in self.entries}) for i, s in enumerate(symbol.sorts) if s in (INT, REAL)
        }
        """The numbers that occur, for each argument that is a number."""
        self.cache: dict[Any, Any] = {}


class Fixed(nn.Module):
    """A constant: a position among the objects or values of its sort, features of its own, or a number."""

    tensor: Tensor | None

    def __init__(self, symbol: Constant, *, index: int | None = None, tensor: Tensor | None = None) -> None:
        super().__init__()
        self.symbol = symbol
        self.index = index
        _hold(self, tensor)


Meaning = Network | Table | Named


def _hold(module: nn.Module, tensor: Tensor | None) -> None:
    """Keep a tensor in a module: as a parameter if it is one."""
    if isinstance(tensor, nn.Parameter):
        module.register_parameter("tensor", tensor)
    else:
        module.register_buffer("tensor", tensor)


def is_draw(meaning: Meaning) -> bool:
    """Is it a function whose value is drawn from a distribution?"""
    return isinstance(meaning.symbol, Function) and meaning.returns != "value"


def signature_text(symbol: Symbol | Constant) -> str:
    """How a symbol is declared: ``friends(Person, Person)``."""
    if isinstance(symbol, Constant):
        return f"{symbol.name}: {symbol.sort.name}"
    args = f"({', '.join([s.name for s in symbol.sorts])})" if symbol.sorts else ""
    return f"{symbol.name}{args}" + (f" -> {symbol.result.name}" if isinstance(symbol, Function) else "")


def bind(symbol: Symbol, value: Any) -> Meaning:
    """Check a value against the declaration of a predicate or function, and wrap it."""
    name = symbol.name
    if isinstance(value, Declared):
        _check_returns(symbol, value)
        if isinstance(value.thing, Tensor):
            return _tensor(symbol, value.thing, value.returns, value.exclusive)
        return Network(symbol, value.thing, value.returns, exclusive=value.exclusive, bare=False, each=False)
    if isinstance(value, nn.Module):
        raise BindingError(
            f"{name}: a bare {type(value).__name__} does not say what it returns; "
            f"wrap it: {name}=logits(...), probs(...), log_probs(...) or values(...)"
        )
    if isinstance(value, PythonFunction):
        returns: Returns = "bool" if isinstance(symbol, Predicate) else "value"
        return Network(symbol, value.call, returns, exclusive=False, bare=True, each=value.per_object)
    if isinstance(value, Entries):
        return _named(symbol, value)
    if isinstance(value, set | frozenset | dict):
        return _named(symbol, table(value))
    if isinstance(value, Tensor):
        return _tensor(symbol, value, "value" if isinstance(symbol, Function) else "bool", False)
    if isinstance(value, bool | int | float) and not symbol.sorts:
        return _tensor(symbol, torch.as_tensor(value), "value" if isinstance(symbol, Function) else "bool", False)
    if callable(value):
        return bind(symbol, PythonFunction(value))
    raise BindingError(
        f"{name}: {signature_text(symbol)} cannot mean {describe(value)}; bind a network with logits(...), "
        "a tensor, a table or a Python function"
    )


def bind_constant(symbol: Constant, value: Any) -> Fixed:
    """Check a value against the declaration of a constant, and wrap it."""
    sort, name = symbol.sort, symbol.name
    if isinstance(value, nn.Module | Declared):
        raise BindingError(f"{name}: a constant is a tensor, a number or a name, not a network; got {describe(value)}")
    if sort in (INT, REAL):
        if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
            raise BindingError(f"{name}: wanted a number of sort {sort.name}, got {describe(value)}")
        tensor = value if isinstance(value, Tensor) else torch.tensor(value)
        if tensor.ndim != 0 or (sort == INT and tensor.dtype.is_floating_point):
            raise BindingError(f"{name}: wanted one number of sort {sort.name}, got {describe(value)}")
        return Fixed(symbol, tensor=tensor)
    if sort.is_open:
        if isinstance(value, Tensor):
            return Fixed(symbol, tensor=value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return Fixed(symbol, index=value)
        raise BindingError(
            f"{name}: wanted features (a tensor, or trainable(...)) or an index into the objects of {sort.name}, "
            f"got {describe(value)}"
        )
    return Fixed(symbol, index=position(sort, value, name))


def position(sort: Sort, value: Any, place: str, known: dict[Any, int] | None = None) -> int:
    """Where a value stands in its finite sort; ``known`` holds the answers, when there are many to ask for."""
    assert sort.values is not None
    if isinstance(value, Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, int | str) and not isinstance(value, bool):
        found = (known or positions(sort)).get(value)
        if found is not None:
            return found
    shown = ", ".join([str(v) for v in sort.values[:12]]) + (", ..." if len(sort.values) > 12 else "")
    raise BindingError(f"{place}: {value!r} is no value of {sort.name} ({shown})")


def positions(sort: Sort) -> dict[Any, int]:
    """Where each value of a finite sort stands; nothing for other sorts."""
    return {value: i for i, value in enumerate(sort.values or ())}


def _check_returns(symbol: Symbol, value: Declared) -> None:
    name = symbol.name
    if isinstance(symbol, Predicate):
        if value.returns == "value":
            raise BindingError(f"{name} is a predicate: it needs logits(...), probs(...) or log_probs(...), not values")
        if value.exclusive and not any(s.values is not None for s in symbol.sorts):
            raise BindingError(
                f"{name}: exclusive needs an argument of a finite sort, whose values exclude one another"
            )
        return
    if symbol.result.values is None and value.returns != "value":
        raise BindingError(
            f"{name} has values in {symbol.result.name}, which is not finite, so it has no distribution; "
            f"bind {name}=values(...)"
        )
    if symbol.result.values is not None and value.returns == "value":
        raise BindingError(
            f"{name} has values in the finite sort {symbol.result.name}: bind logits(...), probs(...) or "
            "log_probs(...) over them, a tensor of int64, a table or a Python function"
        )


def _tensor(symbol: Symbol, tensor: Tensor, returns: Returns, exclusive: bool) -> Table:
    name = symbol.name
    for sort in symbol.sorts:
        if sort in (INT, REAL):
            raise BindingError(
                f"{name} has an argument of sort {sort.name}, which no axis can range over; bind a table or a function"
            )
    axes = list(symbol.sorts)
    drawn = isinstance(symbol, Function) and returns != "value"
    if isinstance(symbol, Function) and drawn:
        axes.append(symbol.result)
    if tensor.ndim != len(axes):
        wanted = ", ".join([s.name for s in axes])
        hint = " (the last is the distribution over its values)" if drawn else ""
        raise BindingError(
            f"{name}: {signature_text(symbol)} needs a tensor of {len(axes)} axes ({wanted}){hint}, "
            f"got {describe(tensor)}"
        )
    for axis, (size, sort) in enumerate(zip(tensor.shape, axes, strict=True)):
        if sort.size is not None and size != sort.size:
            raise BindingError(
                f"{name}: axis {axis} ranges over the {sort.size} values of {sort.name}, but the tensor has size "
                f"{size} there; its shape is {shape_of(tensor)}"
            )
    if isinstance(symbol, Predicate) and returns == "bool":
        if tensor.dtype.is_floating_point and not isinstance(tensor, nn.Parameter):
            returns = "prob"
        elif tensor.dtype != torch.bool:
            what = "a bare parameter may leave [0, 1]" if tensor.is_floating_point() else "truth values are wanted"
            remedy = "wrap it: logits(...)" if tensor.is_floating_point() else "use .bool()"
            raise BindingError(f"{name}: {what}, got {describe(tensor)}; {remedy}")
    if returns == "value":
        return Table(symbol, _value_table(cast(Function, symbol), tensor), "value")
    if returns != "bool" and not tensor.dtype.is_floating_point:
        raise BindingError(f"{name}: probabilities and logits are floating point, got {describe(tensor)}")
    check_probabilities(name, "the tensor", tensor, returns, distribution=drawn or exclusive)
    return Table(symbol, tensor, returns, exclusive=exclusive)


def check_probabilities(name: str, thing: str, numbers: Tensor, returns: Returns, *, distribution: bool) -> None:
    """Refuse numbers that are no probabilities, or no logarithms of such. Any number is a logit.

    Args:
        name: of the symbol.
        thing: what the numbers are from, for the message.
        numbers: as bound, or as a network returned them.
        returns: what they are said to be.
        distribution: whether they must add up to 1 along the last axis.
    """
    if returns not in ("prob", "log_prob") or not numbers.numel() or not has_values(numbers):
        return
    if torch.compiler.is_compiling():
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


def _value_table(symbol: Function, tensor: Tensor) -> Tensor:
    """The values of a function as positions in their sort, or as numbers."""
    name, sort = symbol.name, symbol.result
    real = tensor.dtype.is_floating_point
    if tensor.dtype == torch.bool or (real and sort != REAL):
        wanted = "numbers" if sort == REAL else f"int64 values of {sort.name}"
        hint = "; for a distribution say probs(...) or logits(...)" if sort.values is not None else ""
        raise BindingError(f"{name}: wanted {wanted}, got {describe(tensor)}{hint}")
    if sort.values is None:
        return tensor if real or sort in (INT, REAL) else tensor.long()
    low = sort.values[0] if isinstance(sort.values, range) else 0
    positions = tensor.long() - low
    wrong = (positions < 0) | (positions >= len(sort.values))
    if has_values(wrong) and bool(wrong.any()):
        first = tensor.reshape(-1)[wrong.reshape(-1).long().argmax()].item()
        raise BindingError(f"{name}: the tensor holds {first}, which is no value of {sort.name}; {_values(sort)}")
    return positions


def _values(sort: Sort) -> str:
    assert sort.values is not None
    if isinstance(sort.values, range):
        return f"it has {sort.values[0]}..{sort.values[-1]}"
    return f"give positions 0..{len(sort.values) - 1}"


def _named(symbol: Symbol, entries: Entries) -> Named:
    """Check the tuples of a table: how long they are, and the names of finite values in them."""
    predicate = isinstance(symbol, Predicate)
    places = [positions(sort) for sort in symbol.sorts]
    for args, value in entries.entries:
        if len(args) != len(symbol.sorts):
            raise BindingError(
                f"{symbol.name}: {signature_text(symbol)} takes {len(symbol.sorts)} arguments, "
                f"but the table has the tuple {args!r}"
            )
        for arg, sort, known in zip(args, symbol.sorts, places, strict=True):
            _check_name(symbol.name, arg, sort, known)
        if predicate and not isinstance(value, bool):
            raise BindingError(f"{symbol.name}{args!r}: a predicate is true or false, got {value!r}")
        if isinstance(symbol, Function):
            _check_name(symbol.name, value, symbol.result, positions(symbol.result))
    return Named(symbol, entries)


def _check_name(place: str, value: Any, sort: Sort, known: dict[Any, int]) -> None:
    if sort.values is not None:
        position(sort, value, place, known)
        return
    number = isinstance(value, int) and not isinstance(value, bool)
    if sort in (INT, REAL):
        fits = number or (sort == REAL and isinstance(value, float))
    else:
        fits = isinstance(value, str) or (number and value >= 0)
    if not fits:
        raise BindingError(f"{place}: {value!r} names nothing of sort {sort.name}; use a constant or an index")


def check_names(meaning: Named, signature: Signature) -> None:
    """Are the names in a table declared constants of the right sorts?"""
    from doxa.logic.syntax._diagnostics import did_you_mean

    sorts = [*meaning.symbol.sorts, *([meaning.symbol.result] if isinstance(meaning.symbol, Function) else [])]
    for args, value in meaning.entries:
        for name, sort in zip([*args, value], sorts, strict=False):
            if isinstance(name, str) and sort.is_open and name not in signature.value_sorts:
                constant = signature.constants.get(name)
                if constant is None or constant.sort != sort:
                    known = [c.name for c in signature.constants.values() if c.sort == sort]
                    remedy = did_you_mean(name, known, f"declare it: const {name}: {sort.name}")
                    raise BindingError(f"{meaning.symbol.name}: no constant {name!r} of sort {sort.name}; {remedy}")
