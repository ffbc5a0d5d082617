"""The meaning of one symbol: a module that holds what was bound, checked against the symbol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from doxa.errors import BindingError
from doxa.logic.bind import _bindings
from doxa.logic.bind._bindings import (
    Columns,
    Declared,
    Entries,
    Joint,
    PythonFunction,
    Returns,
    describe,
    dtype_of,
    shape_of,
    table,
)
from doxa.logic.bind._listings import Listing, listings, position
from doxa.logic.syntax._symbols import INT, REAL, Constant, Function, Predicate, Signature, Sort

Symbol = Predicate | Function


class Network(nn.Module):
    """A network or a Python function. ``inputs`` are the arguments it is called on, the others are axes it returns."""

    mixed = False
    """Whether it returns one belief for each component of a mixture."""

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
        self.inputs = tuple([i for i, sort in enumerate(symbol.sorts) if bare or sort.values is None])
        self.axes = tuple([i for i in range(len(symbol.sorts)) if i not in self.inputs])

    @property
    def call(self) -> Any:
        return self._call if self.module is None else self.module

    def check_tensor(self, output: Tensor, device: torch.device) -> None:
        """Refuse tensors that nothing can be done with: sparse, complex, without content, half where none is wanted."""
        wanted, remedy = _unusable(output)
        if wanted:
            pass
        elif output.layout != torch.strided:
            wanted, remedy = "a dense tensor", "call .to_dense()"
        elif output.is_complex():
            wanted, remedy = "real numbers", "take .real or .abs()"
        elif output.device != device and not hasattr(output, "fake_mode"):
            wanted, remedy = f"a tensor on {device}", f"it is on {output.device}; move it with .to(...)"
        elif self.returns in ("prob", "logit", "log_prob"):
            if not output.is_floating_point():
                wanted, remedy = "floating point numbers", "call .float()"
            elif output.dtype in (torch.float16, torch.bfloat16) and not _autocast(device):
                wanted, remedy = "float32 or float64", "call .float(); half precision is for torch.autocast"
        if wanted:
            what = "function" if self.bare else "network"
            raise BindingError(f"{self.symbol.name}: wanted {wanted} from the {what}, got {describe(output)}; {remedy}")

    def checked(self, output: Any, sizes: tuple[int, ...], *, contents: bool) -> Tensor:
        """An output with the axes it must have: its objects (``sizes``), its finite arguments, its distribution."""
        symbol = self.symbol
        result = symbol.result if isinstance(symbol, Function) else None
        wanted = (*sizes, *[len(symbol.sorts[i].values or ()) for i in self.axes])
        if result is not None and is_draw(self):
            wanted = (*wanted, len(result.values or ()))
        features = result is not None and result.is_open and not result.is_integer and not self.bare
        shape = shape_of(output) if isinstance(output, Tensor) else None
        if shape == (*wanted, 1) and len(wanted) == len(sizes) and not features:
            output = output.squeeze(-1)
        elif shape is None or (shape[: len(wanted)] if features else shape) != wanted:
            came = f"a {type(output).__name__}" if shape is None else f"shape {shape}"
            said = f"{symbol.name}: for {signature_text(symbol)} the network should return a tensor of shape"
            each = (
                "; in a mixture the second axis is that of the components: (objects, components, …)"
                if self.mixed
                else ""
            )
            raise BindingError(f"{said} {wanted} here{' of each component' if each else ''}, got {came}{each}")
        assert isinstance(output, Tensor)
        if self.returns == "bool" and output.dtype != torch.bool:
            raise BindingError(
                f"{symbol.name}: the function returned {dtype_of(output)}, but a predicate is true or false; return "
                "bool, or say what it returns with probs(...) or logits(...)"
            )
        whole = result is not None and result != REAL and (self.bare or result == INT) and self.returns == "value"
        if result is not None and whole and (output.is_floating_point() or output.dtype == torch.bool):
            came, remedy = dtype_of(output), ", or declare it with -> Real" if result == INT else ""
            said = f"{symbol.name} yields {result.name}, but what it is bound to returned {came}"
            raise BindingError(f"{said}; return whole numbers{remedy}")
        if contents and self.returns in ("prob", "log_prob"):
            thing = "what the network returned"
            _bindings.check_probabilities(symbol.name, thing, output, self.returns, distribution=is_exclusive(self))
        return output

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

    mixed = False
    """Whether it is a stack of such tensors, one for each component of a mixture."""
    tensor: Tensor

    def __init__(self, symbol: Symbol, tensor: Tensor, returns: Returns, *, exclusive: bool = False) -> None:
        super().__init__()
        self.symbol = symbol
        self.returns: Returns = returns
        self.exclusive = exclusive
        hold(self, tensor)


class Named(nn.Module):
    """Tuples with their values, as columns; a relation is false of all others, a function has no value there."""

    mixed = False

    def __init__(
        self, symbol: Symbol, arguments: list[Listing], value: Listing, shape: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self.symbol = symbol
        self.shape = shape
        """How long the axes of a sparse tensor were that the tuples came from."""
        self.returns: Returns = "bool" if isinstance(symbol, Predicate) else "value"
        self.value = value
        self.listed: dict[int, Tensor] = {}
        """The numbers that occur, in order, for each argument that is a number; its column has their places."""
        self.arguments = list(arguments)
        for i, sort in enumerate(symbol.sorts):
            if sort in (INT, REAL):
                self.listed[i], places = torch.unique(arguments[i].codes, return_inverse=True)
                self.arguments[i] = Listing(places)
        self.made: dict[str, tuple[Any, Any]] = {}
        """The last list of tuples and the last table that were made of it, and for which objects."""

    @property
    def entries(self) -> dict[tuple[Any, ...], Any]:
        """The tuples and their values as Python's."""
        columns = [
            self.listed[i][listing.codes].tolist() if i in self.listed else listing.python(sort)
            for i, (listing, sort) in enumerate(zip(self.arguments, self.symbol.sorts, strict=True))
        ]
        result = self.symbol.result if isinstance(self.symbol, Function) else None
        values = self.value.codes.tolist() if result is None else self.value.python(result)
        return dict(zip(zip(*columns, strict=True) if columns else [()] * len(values), values, strict=True))


class Fixed(nn.Module):
    """A constant: a position among the objects or values of its sort, features of its own, or a number."""

    tensor: Tensor | None

    def __init__(self, symbol: Constant, *, index: int | None = None, tensor: Tensor | None = None) -> None:
        super().__init__()
        self.symbol = symbol
        self.index = index
        hold(self, tensor)


Meaning = Network | Table | Named


def hold(module: nn.Module, tensor: Tensor | None) -> None:
    if isinstance(tensor, nn.Parameter):
        module.register_parameter("tensor", tensor)
    else:
        module.register_buffer("tensor", tensor)


def is_draw(meaning: Meaning) -> bool:
    """Is it a function whose value is drawn from a distribution?"""
    return isinstance(meaning.symbol, Function) and meaning.returns != "value"


def is_exclusive(meaning: Meaning) -> bool:
    """Do the numbers along the last axis belong to values of which one is true?"""
    return is_draw(meaning) or (not isinstance(meaning, Named) and meaning.exclusive)


def check_table(meaning: Meaning) -> None:
    if isinstance(meaning, Table):
        _bindings.check_finite(meaning.symbol.name, "the tensor", meaning.tensor, distribution=is_exclusive(meaning))


def low_of(sort: Sort) -> int:
    """The first integer of a range; positions and values of other sorts are the same."""
    return sort.values[0] if isinstance(sort.values, range) else 0


def _autocast(device: torch.device) -> bool:
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def signature_text(symbol: Symbol | Constant) -> str:
    """How a symbol is declared: ``friends(Person, Person)``."""
    if isinstance(symbol, Constant):
        return f"{symbol.name}: {symbol.sort.name}"
    args = f"({', '.join([s.name for s in symbol.sorts])})" if symbol.sorts else ""
    return f"{symbol.name}{args}" + (f" -> {symbol.result.name}" if isinstance(symbol, Function) else "")


def bind(symbol: Symbol, value: Any, signature: Signature) -> Meaning:
    """Check a value against the declaration of a predicate or function, and wrap it."""
    name = symbol.name
    if isinstance(value, dict) and any(isinstance(part, Joint) for part in value.values()):
        raise BindingError(
            f"{name}: a mixture binds several symbols at once; write **doxa.mixture(...), not {name}=..."
        )
    if isinstance(value, Joint):
        return _in_turn(symbol) if value.own is None else _mixed(symbol, value.own, signature)
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
    sparse = isinstance(value, Tensor) and value.layout != torch.strided and isinstance(symbol, Predicate)
    if sparse or isinstance(value, Entries | Columns | set | frozenset | dict):
        entries = value if isinstance(value, Entries | Columns) else table(value)
        shape = entries.shape if isinstance(entries, Columns) else None
        if shape is not None and len(shape) == len(symbol.sorts):
            for axis, sort in enumerate(symbol.sorts):
                _check_axis(symbol, axis, sort, shape)
        return Named(symbol, *listings(symbol, entries, signature_text(symbol), signature), shape)
    if isinstance(value, Tensor) or (isinstance(value, bool | int | float) and not symbol.sorts):
        return _tensor(symbol, torch.as_tensor(value), "value" if isinstance(symbol, Function) else "bool", False)
    if callable(value):
        return bind(symbol, PythonFunction(value), signature)
    raise BindingError(
        f"{name}: {signature_text(symbol)} cannot mean {describe(value)}; bind a network with logits(...), "
        "a tensor, a table or a Python function"
    )


def _mixed(symbol: Symbol, value: Declared, signature: Signature) -> Meaning:
    """What is bound to a symbol in a mixture: a network that returns K beliefs, or K tensors, one after the other."""
    found: Network | Table
    if isinstance(value.thing, Tensor):
        _check_returns(symbol, value)
        if not value.thing.ndim or not len(value.thing):
            raise BindingError(
                f"{symbol.name}: in a mixture, one tensor for each component, got {describe(value.thing)}"
            )
        parts = [_tensor(symbol, part, value.returns, value.exclusive) for part in value.thing]
        found = Table(symbol, value.thing, parts[0].returns, exclusive=value.exclusive)
    else:
        bound = bind(symbol, value, signature)
        assert isinstance(bound, Network)
        found = bound
    found.mixed = True
    return found


def _in_turn(symbol: Symbol) -> Meaning:
    """A symbol without a network of its own: one that sees the row says its value at each place in turn."""
    opened = all(sort.is_open and not sort.is_integer for sort in symbol.sorts)
    if len(symbol.sorts) > 1 or not opened or (isinstance(symbol, Function) and symbol.result.values is None):
        raise BindingError(
            f"{symbol.name}: {signature_text(symbol)} cannot be in an autoregressive belief, which takes propositions, "
            "and predicates and functions into finite sorts of one object"
        )
    found = Network(symbol, None, "log_prob", exclusive=False, bare=False, each=False)
    found.mixed = True
    return found


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


def _check_returns(symbol: Symbol, value: Declared) -> None:
    name = symbol.name
    if isinstance(symbol, Predicate):
        if value.returns == "value":
            raise BindingError(f"{name} is a predicate: it needs logits(...), probs(...) or log_probs(...), not values")
        if value.exclusive and not any(s.values is not None for s in symbol.sorts):
            raise BindingError(f"{name}: exclusive needs an argument of a finite sort, whose values are exclusive")
        return
    if symbol.result.values is None and value.returns != "value":
        what = f"{name} has values in {symbol.result.name}, which is not finite"
        raise BindingError(f"{what}, so it has no distribution; bind {name}=values(...)")
    if symbol.result.values is not None and value.returns == "value":
        raise BindingError(
            f"{name} has values in the finite sort {symbol.result.name}: bind logits(...), probs(...) or "
            "log_probs(...) over them, a tensor of int64, a table or a Python function"
        )


def _unusable(tensor: Tensor) -> tuple[str, str]:
    """What is wanted instead of tensors that torch itself can do little with, and how to get it; empty for others."""
    if tensor.is_nested:
        return "a dense tensor", "call .to_padded_tensor(...)"
    if tensor.dtype.is_floating_point and tensor.itemsize < 2:
        return "float32 or float64", "call .float()"
    return "", ""


def _check_axis(symbol: Symbol, axis: int, sort: Sort, shape: tuple[int, ...]) -> None:
    if sort.size is not None and shape[axis] != sort.size:
        raise BindingError(
            f"{symbol.name}: axis {axis} ranges over the {sort.size} values of {sort.name}, but the tensor has size "
            f"{shape[axis]} there; its shape is {shape}"
        )


def _tensor(symbol: Symbol, tensor: Tensor, returns: Returns, exclusive: bool) -> Table:
    name = symbol.name
    wanted, remedy = _unusable(tensor)
    if wanted:
        raise BindingError(f"{name}: wanted {wanted}, got {describe(tensor)}; {remedy}")
    for sort in symbol.sorts:
        if sort in (INT, REAL):
            raise BindingError(
                f"{name} has an argument of sort {sort.name}, which no axis can range over; bind a table"
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
    for axis, sort in enumerate(axes):
        _check_axis(symbol, axis, sort, shape_of(tensor))
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
    _bindings.check_probabilities(name, "the tensor", tensor, returns, distribution=drawn or exclusive)
    return Table(symbol, tensor, returns, exclusive=exclusive)


def _value_table(symbol: Function, tensor: Tensor) -> Tensor:
    name, sort = symbol.name, symbol.result
    real = tensor.dtype.is_floating_point
    if tensor.dtype == torch.bool or (real and sort != REAL):
        wanted = "numbers" if sort == REAL else f"int64 values of {sort.name}"
        hint = "; for a distribution say probs(...) or logits(...)" if sort.values is not None else ""
        raise BindingError(f"{name}: wanted {wanted}, got {describe(tensor)}{hint}")
    if sort.values is None:
        return tensor if real or sort in (INT, REAL) else tensor.long()
    positions = tensor.long() - low_of(sort)
    wrong = (positions < 0) | (positions >= len(sort.values))
    if _bindings.has_values(wrong) and bool(wrong.any()):
        first = tensor.reshape(-1)[wrong.reshape(-1).long().argmax()].item()
        low, high = low_of(sort), low_of(sort) + len(sort.values) - 1
        known = f"it has {low}..{high}" if isinstance(sort.values, range) else f"give positions 0..{high}"
        raise BindingError(f"{name}: the tensor holds {first}, which is no value of {sort.name}; {known}")
    return positions
