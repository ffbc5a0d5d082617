"""One belief that several symbols share, so that what they say of a row may depend on each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from doxa.errors import BindingError, ConfigError
from doxa.logic.bind import _bindings
from doxa.logic.bind._bindings import Declared, Joint, Returns, describe, shape_of
from doxa.logic.bind._meanings import hold


def refuse(who: str, symbols: Collection[str]) -> NoReturn:
    """The error of who takes symbols one by one, for symbols that depend on each other."""
    raise ConfigError(
        f"{who} takes symbols one by one, but {', '.join(sorted(symbols))} may depend on each other in a row, for they "
        "are bound by doxa.mixture or doxa.autoregressive; Exact(), Sampled(), Auto() and Classical() can take that, "
        "and Model.explain and Model.layer; or bind each of them on its own"
    )


Place = tuple[str, str, tuple[int, ...]]
"""A variable of a row: a symbol, the field with its object ("" for a proposition), and the way to it in a sequence."""


class MixtureWeights(nn.Module):
    """What says the weights of a mixture: a network that sees a row, or a tensor for all rows."""

    tensor: Tensor | None

    def __init__(self, weights: Declared) -> None:
        super().__init__()
        self.returns: Returns = weights.returns
        thing = weights.thing
        self.module = thing if isinstance(thing, nn.Module) else None
        hold(self, thing if isinstance(thing, Tensor) else None)
        self._call = thing if self.module is None and self.tensor is None else None

    def raw(self, inputs: list[Tensor], rows: int, *, check_finite: bool) -> Tensor:
        """What was bound, for each row: ``(rows, K)``."""
        if self.tensor is not None:
            found: Any = self.tensor
            shown = "the tensor of weights"
        else:
            call: Any = self._call if self.module is None else self.module
            told = ", ".join([describe(i) for i in inputs]) or "nothing, for there is no row"
            shown = "what the network of weights returned"
            try:
                found = call(*inputs)
            except Exception as error:
                error.add_note(f"in the weights of a mixture, called with the objects of {rows} rows: {told}")
                raise
        shape = shape_of(found) if isinstance(found, Tensor) else None
        single = self.tensor is not None or not inputs
        if shape is None or len(shape) != (1 if single else 2) or (not single and shape[0] != rows) or not shape[-1]:
            came = f"a {type(found).__name__}" if shape is None else f"shape {shape}"
            wanted = "(components,)" if single else f"(rows, components), here ({rows}, components)"
            raise BindingError(f"weights: {shown} should have shape {wanted}, got {came}")
        if not found.is_floating_point():
            raise BindingError(f"weights: floating point numbers are wanted, got {describe(found)}")
        if check_finite:
            _bindings.check_finite("weights", shown, found, distribution=True)
            _bindings.check_probabilities("weights", shown, found, self.returns, distribution=True)
        numbers: Tensor = found.float() if found.dtype in (torch.float16, torch.bfloat16) else found
        return numbers.expand(rows, -1)


class RowNetwork(nn.Module):
    """A network that says the values of the symbols of a row in turn, each told those before it."""

    def __init__(self, network: Declared, places: tuple[Place, ...]) -> None:
        super().__init__()
        self.returns: Returns = network.returns
        self.places = places
        self.module = network.thing if isinstance(network.thing, nn.Module) else None
        self._call = None if self.module is not None else network.thing

    def following(self, prefix: Tensor, objects: list[Tensor], size: int, *, check_finite: bool) -> Tensor:
        """What was bound, of the place after a prefix ``(rows, prefixes, i)``: ``(rows, prefixes, size)``."""
        call: Any = self._call if self.module is None else self.module
        symbol, field, path = self.places[prefix.shape[-1]]
        named = f"{symbol}({field}{''.join([f'[{i}]' for i in path])})" if field else symbol
        try:
            found = call(prefix, *objects)
        except Exception as error:
            told = ", ".join([describe(x) for x in (prefix, *objects)])
            error.add_note(f"in an autoregressive belief, called about {named} with {told}")
            raise
        wanted = (*prefix.shape[:2], size)
        if not isinstance(found, Tensor) or shape_of(found) != wanted:
            came = f"shape {shape_of(found)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise BindingError(
                f"{named}: the network should return (rows, prefixes, values), here {wanted}, got {came}"
            )
        if not found.is_floating_point():
            raise BindingError(f"{named}: floating point numbers are wanted, got {describe(found)}")
        if check_finite:
            thing = "what the network returned"
            _bindings.check_finite(named, thing, found, distribution=True)
            _bindings.check_probabilities(named, thing, found, self.returns, distribution=True)
        numbers: Tensor = found.float() if found.dtype in (torch.float16, torch.bfloat16) else found
        return numbers


def _called(thing: object) -> str:
    return f"a bare {type(thing).__name__}" if isinstance(thing, nn.Module) else describe(thing)


def mixture(*, weights: Declared, **symbols: Declared) -> dict[str, Joint]:
    r"""Beliefs in several worlds at once: K alternatives for all symbols together, weighted row by row.

    .. math:: p(w) = \sum_k π_k(x) \prod_i p_k(w_i | x_i)

    One network for each symbol says what it believes of each object alone: together they cannot believe "0 + 1 or
    1 + 0" without "0 + 0" and "1 + 1". In a mixture every symbol has K beliefs, and one component k, drawn for the
    whole row, decides which of them all symbols go by. One component is an ordinary belief; K that are certain can be
    any K worlds.

    The result is a dict of bindings, for :class:`doxa.Model` or :class:`doxa.Interpretation`, where others may stand
    beside them. A row is an instance of the outermost ``forall`` of an axiom, and each has a component of its own.

    Args:
        weights: ``logits(gate)``, ``probs(...)`` or ``log_probs(...)`` of a network that sees the whole row and returns
            ``(rows, K)``. It is called with one tensor for each field of the row that holds objects, in the order of
            their declaration, then those of further variables of that ``forall``; never with numbers and finite values,
            which may be labels. Or of a tensor ``(K,)``, the same for all rows.
        symbols: for each symbol ``logits(heads)`` and the like: what would be bound on its own, but with K beliefs, on
            an axis right after the objects: ``(objects, K)`` for a predicate, ``(objects, K, values)`` for a function.
            A tensor has the K tables one after the other, ``(K, ...)``.

    >>> import doxa
    >>> bits = torch.tensor([[[20.0, 0.0], [0.0, 20.0]], [[0.0, 20.0], [20.0, 0.0]]])   # (components, images, bits)
    >>> model = doxa.Model('''
    ...     sort Image; sort Bit = 0..1; data pairs(left: Image, right: Image, sum: Int)
    ...     func bit(Image) -> Bit
    ...     [sum] forall p in pairs. bit(p.left) + bit(p.right) = p.sum
    ... ''', "exact", **mixture(weights=doxa.logits(torch.zeros(2)), bit=doxa.logits(bits)))
    >>> pairs = dict(left=torch.tensor([0]), right=torch.tensor([1]), sum=torch.tensor([1]))
    >>> print(model.explain(k=2, Image=2, pairs=pairs)[0])        # 0 and 1, or 1 and 0: together they are certain
    p = 0: 2 worlds (exact: the 2 most probable)
      0.50  bit(p.left) = 0, bit(p.right) = 1  [component 0: 1.00]
      0.50  bit(p.left) = 1, bit(p.right) = 0  [component 1: 1.00]
    """
    if not symbols:
        raise BindingError(
            "mixture(...) has no symbols; name those that share a component: mixture(weights=..., digit=...)"
        )
    for name, value in (("weights", weights), *symbols.items()):
        given: object = value
        if not isinstance(given, Declared) or given.returns not in ("prob", "logit", "log_prob"):
            raise BindingError(
                f"mixture: {name} is {_called(given)}, which does not say what it returns; "
                f"wrap it: {name}=logits(...), probs(...) or log_probs(...)"
            )
    if isinstance(weights.thing, Tensor) and (weights.thing.ndim != 1 or not len(weights.thing)):
        raise BindingError(f"mixture: weights are a tensor (components,), or a network, got {describe(weights.thing)}")
    shared = MixtureWeights(weights)
    return {name: Joint(shared, value) for name, value in symbols.items()}


def autoregressive(network: Declared, /, **symbols: str | Sequence[str]) -> dict[str, Joint]:
    r"""A belief in which what is said of one place of a row may depend on what is said of those before it.

    .. math:: p(w | x) = \prod_i p(w_i | w_{<i}, x)

    It can be any distribution over the worlds of a row. Exact reasoning lists them, so it is for short rows (within
    ``Budget(worlds=...)``); ``Sampled`` draws worlds variable by variable.

    The result is a dict of bindings, for :class:`doxa.Model` or :class:`doxa.Interpretation`, where others may stand
    beside them. It is about the places of a row, which an axiom ranges over with its outermost ``forall``: an axiom
    speaks of one row at a time, and of some or all of its places.

    Args:
        network: ``logits(net)``, ``probs(net)`` or ``log_probs(net)``, called as ``net(prefix, *objects)``: of ``rows``
            rows and ``prefixes`` worlds each, the values of the first i places, int64 ``(rows, prefixes, i)`` counted
            from 0, and for each field of the row that holds objects one tensor ``(rows, ...)``. It returns what the
            next place may be, ``(rows, prefixes, values)``.
        symbols: for each symbol the fields of a row that it is about, in order: ``digit=("left", "right")``; an element
            of a sequence is ``"digits[0]"``, and a proposition has none: ``rain=()``.

    >>> import doxa
    >>> def again(prefix, *objects):                              # the second is what the first is
    ...     rows, prefixes, before = prefix.shape
    ...     return torch.eye(2)[prefix[..., -1]] if before else torch.full((rows, prefixes, 2), 0.5)
    >>> model = doxa.Model("pred rain; pred wet; [same] rain <-> wet", "exact",
    ...                    **autoregressive(doxa.probs(again), rain=(), wet=()))
    >>> model.truth()
    {'same': tensor(1.)}
    """
    given: object = network
    if not isinstance(given, Declared) or given.returns not in ("prob", "logit", "log_prob"):
        raise BindingError(
            f"autoregressive: the network is {_called(given)}, which does not say what it returns; wrap it: "
            "logits(...), probs(...) or log_probs(...)"
        )
    if isinstance(network.thing, Tensor):
        raise BindingError("autoregressive: a network is wanted, which is told what comes before; got a tensor")
    places: list[Place] = []
    for symbol, fields in symbols.items():
        listed = [fields] if isinstance(fields, str) else list(fields)
        places += [_place(symbol, field) for field in listed] or [(symbol, "", ())]
    if not places:
        raise BindingError("autoregressive(...) has no symbols; say which, and of what: digit=('left', 'right')")
    shared = RowNetwork(network, tuple(places))
    return {symbol: Joint(shared) for symbol in symbols}


def _place(symbol: str, field: object) -> Place:
    found = re.fullmatch(r"(\w+)((?:\[\d+\])*)", field) if isinstance(field, str) else None
    if found is None:
        raise BindingError(
            f"autoregressive: {symbol} is about {field!r}, expected a field such as 'left' or 'digits[0]'"
        )
    return symbol, found[1], tuple([int(i) for i in re.findall(r"\d+", found[2])])
