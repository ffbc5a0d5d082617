"""Looking tables up: by views where an argument runs through consecutive positions, by gathering elsewhere."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._block import Block, Frame
from doxa.logic.tensor._index import cut, entries, take
from doxa.logic.tensor._named import Sparse
from doxa.logic.tensor._run import Source
from doxa.logic.tensor._types import Axis, Ref, Type, inserted, union

__all__ = ["align", "expand_dims", "lookup", "positions"]

Getter = Callable[[Frame, Sequence[Any]], Any]


def expand_dims(value: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Insert axes of length one."""
    for dim in dims:
        value = value.unsqueeze(dim)
    return value


def align(values: Sequence[Any], dims: Sequence[tuple[int, ...]]) -> list[Any]:
    """Values made to broadcast against each other; plain numbers do so already."""
    return [expand_dims(v, d) if d else v for v, d in zip(values, dims, strict=True)]


def positions(block: Block, ref: Ref) -> Ref:
    """A run of consecutive positions as a tensor; other values as they are."""
    if not ref.dense:
        return ref

    def arange(frame: Frame, run: slice) -> Tensor:
        return torch.arange(run.start, run.stop, device=frame.run.device)

    return block.emit(("positions", ref.type), arange, [ref], ref.axes, ref.type)


def lookup(block: Block, table: Source | Ref, args: Sequence[Ref], algebra: Algebra, kind: Type) -> Ref:
    """The entries of a table at the positions ``args``, one per axis of the table.

    ``table`` is a symbol's table, or a value of this block whose axes are those of the table.
    """
    times = Counter([a for arg in args for a in arg.axes])
    views = [arg.dense and times[arg.axes[0]] == 1 for arg in args]
    gathers = [i for i, arg in enumerate(args) if arg.const is None and not views[i]]
    extra = [table] if isinstance(table, Ref) else []
    get = _getter(table, algebra)
    key = ("lookup", table if isinstance(table, Source) else table.slot, id(algebra))
    if not gathers:
        return _view(block, get, key, extra, args, kind, algebra)
    if not any(views):
        return _gather(block, get, key, extra, args, kind, algebra)
    return _mixed(block, get, key, extra, args, views, gathers, kind, algebra)


def _getter(table: Source | Ref, algebra: Algebra) -> Getter:
    if isinstance(table, Source):
        return lambda frame, values: frame.run.table(table, algebra)
    return lambda frame, values: values[0]


def _order(axes: tuple[Axis, ...]) -> tuple[int, ...] | None:
    """The permutation that puts axes in their order; None when they are."""
    order = tuple(sorted(range(len(axes)), key=lambda d: axes[d].order))
    return None if order == tuple(range(len(axes))) else order


def _view(
    block: Block, get: Getter, key: Any, extra: list[Ref], args: Sequence[Ref], kind: Type, algebra: Algebra
) -> Ref:
    """Every argument is a constant, or runs along an axis of its own: no copy is made."""
    runs = [a for a in args if a.const is None]
    axes = tuple([a.axes[0] for a in runs])
    order = _order(axes)
    consts = tuple([a.const for a in args])
    # From the last on, so that the dimensions of the others stay what they are.
    constants = [(dim, c) for dim, c in enumerate(consts) if c is not None][::-1]
    skip = len(extra)

    def view(frame: Frame, *values: Any) -> Any:
        table = get(frame, values)
        places = values[skip:]
        if isinstance(table, Sparse):
            return _sparse_view(frame, table, consts, places, order, algebra)
        for dim, const in constants:
            table = table.select(dim, const)
        for dim, run in enumerate(places):
            table = cut(table, run, dim)
        return table if order is None else table.permute(order)

    return block.emit((*key, consts), view, [*extra, *runs], union([axes]), kind)


def _sparse_view(
    frame: Frame,
    table: Sparse,
    consts: tuple[Any, ...],
    places: Sequence[slice],
    order: tuple[int, ...] | None,
    algebra: Algebra,
) -> Tensor:
    runs = iter(places)
    flat: Any = 0
    left = len(places)
    for const, size in zip(consts, table.shape, strict=True):
        at: Any = const
        if const is None:
            left -= 1
            run = next(runs)
            at = torch.arange(run.start, run.stop, device=frame.run.device).view(-1, *[1] * left)
        flat = flat * size + at
    found = algebra.atom(table.at(torch.as_tensor(flat, device=frame.run.device)), "bool", frame.run.dtype(algebra))
    return found if order is None else found.permute(order)


def _gather(
    block: Block, get: Getter, key: Any, extra: list[Ref], args: Sequence[Ref], kind: Type, algebra: Algebra
) -> Ref:
    """No argument can be viewed: number the tuples, and take them from the flat table."""
    indices = [positions(block, a) if a.const is None else a for a in args]
    axes = union([a.axes for a in indices])
    flat = _numbered(block, get, key, extra, indices, axes)

    def gather(frame: Frame, *values: Any) -> Any:
        table = get(frame, values)
        if isinstance(table, Sparse):
            return algebra.atom(table.at(values[-1]), "bool", frame.run.dtype(algebra))
        return entries(table if table.ndim == 1 else table.reshape(-1), values[-1])

    return block.emit((*key, "gather"), gather, [*extra, flat], axes, kind)


def _numbered(block: Block, get: Getter, key: Any, extra: list[Ref], indices: list[Ref], axes: tuple[Axis, ...]) -> Ref:
    """The number of each tuple in a table; shared by all tables over the same pools."""
    if len(indices) == 1:
        return indices[0]
    consts = tuple([a.const for a in indices])
    moving = [a for a in indices if a.const is None]
    dims = [inserted(a.axes, axes) for a in moving]
    skip = len(extra)

    numbers = Numbers()

    def number(frame: Frame, *values: Any) -> Tensor:
        shape = get(frame, values).shape
        found = None if torch.compiler.is_compiling() else numbers.find(values[skip:], shape)
        if found is not None:
            return found
        places = iter(align(values[skip:], dims))
        parts = [next(places) if const is None else const for const in consts]
        flat = parts[0]
        for part, size in zip(parts[1:], shape[1:], strict=True):
            flat = flat * size + part
        flat = torch.as_tensor(flat, device=frame.run.device)
        numbers.keep(values[skip:], shape, flat)
        return flat

    pools = key[1].pools if isinstance(key[1], Source) else key[1]
    return block.emit(("number", pools, consts), number, [*extra, *moving], axes)


class Numbers:
    """The numbers of tuples at places that a guard keeps from run to run; they go when the places do."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def find(self, places: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        """The numbers, if they were found for these very tensors and this shape."""
        others, known_shape, flat = self._known.get(places[0], ((), None, None))
        if known_shape != shape or any(was() is not now for was, now in zip(others, places[1:], strict=True)):
            return None
        found: Tensor | None = flat
        return found

    def keep(self, places: Sequence[Tensor], shape: Sequence[int], flat: Tensor) -> None:
        if type(flat) is Tensor and not torch.compiler.is_compiling():  # nothing of a trace may stay behind
            self._known[places[0]] = ([weakref.ref(p) for p in places[1:]], shape, flat)


def _mixed(
    block: Block,
    get: Getter,
    key: Any,
    extra: list[Ref],
    args: Sequence[Ref],
    views: list[bool],
    gathers: list[int],
    kind: Type,
    algebra: Algebra,
) -> Ref:
    """Some arguments are viewed and some gathered: gather along the latter, with the former behind them."""
    constants = [i for i, a in enumerate(args) if a.const is not None]
    viewed = [i for i in range(len(args)) if views[i]]
    chosen = [positions(block, args[i]) for i in gathers]
    front = union([a.axes for a in chosen])
    dims = [inserted(a.axes, front) for a in chosen]
    axes = (*front, *[args[i].axes[0] for i in viewed])
    order = _order(axes)
    permuted = (*constants, *gathers, *viewed)
    consts = tuple([args[i].const for i in constants])
    skip, split = len(extra), len(extra) + len(chosen)

    def mixed(frame: Frame, *values: Any) -> Tensor:
        table = get(frame, values)
        places = align(values[skip:split], dims)
        if isinstance(table, Sparse):
            return _sparse_mixed(frame, table, consts, places, values[split:], permuted, order, algebra)
        table = table.permute(permuted)
        for const in consts:
            table = table.select(0, const)
        for dim, run in enumerate(values[split:]):
            table = cut(table, run, dim + len(places))
        if len(places) == 1 and places[0].ndim == 1:
            # In the order of the frame at once, so that all values lie in memory alike.
            table = table if order is None else table.permute(order)
            found: Tensor = table.index_select(0 if order is None else order.index(0), places[0])
            return found
        found = take(table, places)
        return found if order is None else found.permute(order)

    refs = [*extra, *chosen, *[args[i] for i in viewed]]
    return block.emit((*key, "mixed", permuted, consts), mixed, refs, union([axes]), kind)


def _sparse_mixed(
    frame: Frame,
    table: Sparse,
    consts: tuple[Any, ...],
    places: list[Tensor],
    runs: Sequence[slice],
    permuted: tuple[int, ...],
    order: tuple[int, ...] | None,
    algebra: Algebra,
) -> Tensor:
    inner = len(runs)
    arguments: list[Any] = [*consts, *[p.reshape(*p.shape, *[1] * inner) for p in places]]
    for number, run in enumerate(runs):
        at = torch.arange(run.start, run.stop, device=frame.run.device)
        arguments.append(at.view(-1, *[1] * (inner - number - 1)))
    flat: Any = 0
    for argument, size in enumerate(table.shape):
        flat = flat * size + arguments[permuted.index(argument)]
    found = algebra.atom(table.at(flat), "bool", frame.run.dtype(algebra))
    return found if order is None else found.permute(order)
