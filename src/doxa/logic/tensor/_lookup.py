"""Looking tables up: by views where an argument runs through consecutive positions, by gathering elsewhere."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._block import Block, Frame
from doxa.logic.tensor._index import Sparse, align, cut, entries, ravel, take
from doxa.logic.tensor._pools import Ref, Type, inserted, union
from doxa.logic.tensor._run import Source

Getter = Callable[[Frame, Sequence[Any]], Any]


class Last:
    """The value that was made last, found again as long as what it was made from is the same."""

    def __init__(self) -> None:
        self._made: tuple[Any, list[tuple[weakref.ref[Tensor], int]], Any] | None = None

    def find(self, fixed: Any, tensors: Sequence[Tensor]) -> Any:
        """The value made from something that compares equal and from these very tensors, or None."""
        made = self._made  # read once: another thread may make another one meanwhile
        if made is None or made[0] != fixed:
            return None
        same = [was() is t and version == _version(t) for (was, version), t in zip(made[1], tensors, strict=True)]
        return made[2] if all(same) else None

    def keep(self, fixed: Any, tensors: Sequence[Tensor], value: Any) -> None:
        self._made = (fixed, [(weakref.ref(t, self._forget), _version(t)) for t in tensors], value)

    def _forget(self, gone: object) -> None:
        self._made = None


def _version(tensor: Tensor) -> int:
    """Changes when the tensor is written to."""
    return 0 if tensor.is_inference() else tensor._version


def lookup(block: Block, table: Source | Ref, args: Sequence[Ref], algebra: Algebra, kind: Type) -> Ref:
    """The entries of a table at the positions ``args``, one per axis of the table.

    ``table`` is a symbol's table, or a value of this block whose axes are those of the table.
    """
    times = Counter([a for arg in args for a in arg.axes])
    views = [i for i, arg in enumerate(args) if arg.dense and times[arg.axes[0]] == 1]
    gathers = [i for i, arg in enumerate(args) if arg.const is None and i not in views]
    source = [table] if isinstance(table, Ref) else []
    key = ("lookup", table if isinstance(table, Source) else table.slot, id(algebra))

    def get(frame: Frame, values: Sequence[Any]) -> Any:
        return frame.run.table(table, algebra) if isinstance(table, Source) else values[0]

    if gathers and not views:
        return _gather(block, get, key, source, args, kind, algebra)
    constants = [i for i, a in enumerate(args) if a.const is not None]
    chosen = [block.positions(args[i]) for i in gathers]
    front = union([a.axes for a in chosen])
    dims = [inserted(a.axes, front) for a in chosen]
    axes = (*front, *[args[i].axes[0] for i in views])
    order = _order([a.order for a in axes])
    # Constants come first, and what is gathered before what is viewed.
    arranged = (*constants, *gathers, *views)
    arrangement = _order(arranged) and arranged
    consts = tuple([args[i].const for i in constants])
    skip, split = len(source), len(source) + len(chosen)

    def look(frame: Frame, *values: Any) -> Any:
        found: Any = get(frame, values)
        places, runs = align(values[skip:split], dims), values[split:]
        if isinstance(found, Sparse):
            found = _look_sparse(frame, found, [*consts, *places], runs, arranged, algebra)
            return found if order is None else found.permute(order)
        if arrangement is not None:
            found = found.permute(arrangement)
        for const in consts:
            found = found.select(0, const)
        for dim, run in enumerate(runs, len(places)):
            found = cut(found, run, dim)
        if len(places) == 1 and places[0].ndim == 1:
            # In the order of the frame at once, so that all values lie in memory alike.
            found = found if order is None else found.permute(order)
            return found.index_select(0 if order is None else order.index(0), places[0])
        if places:
            found = take(found, places)
        return found if order is None else found.permute(order)

    refs = [*source, *chosen, *[args[i] for i in views]]
    return block.emit((*key, arranged, consts), look, refs, union([axes]), kind)


def _order(numbers: Sequence[int]) -> tuple[int, ...] | None:
    """The permutation that sorts them; None when they are sorted."""
    order = tuple(sorted(range(len(numbers)), key=lambda d: numbers[d]))
    return None if order == tuple(range(len(numbers))) else order


def _look_sparse(
    frame: Frame, table: Sparse, fixed: list[Any], runs: Sequence[slice], arranged: tuple[int, ...], algebra: Algebra
) -> Tensor:
    inner = len(runs)
    arguments = [at.reshape(*at.shape, *[1] * inner) if isinstance(at, Tensor) else at for at in fixed]
    for number, run in enumerate(runs):
        at = torch.arange(run.start, run.stop, device=frame.run.device)
        arguments.append(at.view(-1, *[1] * (inner - number - 1)))
    flat = ravel([arguments[arranged.index(i)] for i in range(len(arranged))], table.shape)
    return algebra.atom(table.at(torch.as_tensor(flat, device=frame.run.device)), "bool", frame.run.dtype(algebra))


def _gather(
    block: Block, get: Getter, key: Any, source: list[Ref], args: Sequence[Ref], kind: Type, algebra: Algebra
) -> Ref:
    """No argument can be viewed: number the tuples, and take them from the flat table."""
    consts = tuple([a.const for a in args])
    moving = [block.positions(a) for a in args if a.const is None]
    axes = union([a.axes for a in moving])
    dims = [inserted(a.axes, axes) for a in moving]
    skip = len(source)
    last = Last()  # at places that a guard keeps from run to run, the numbers are kept too

    def number(frame: Frame, *values: Any) -> Tensor:
        shape, places = get(frame, values).shape, values[skip:]
        compiling = torch.compiler.is_compiling()  # nothing of a trace may stay behind
        found: Tensor | None = None if compiling else last.find(shape, places)
        if found is None:
            spread = iter(align(places, dims))
            flat = ravel([next(spread) if const is None else const for const in consts], shape)
            found = torch.as_tensor(flat, device=frame.run.device)
            if type(found) is Tensor and not compiling:
                last.keep(shape, places, found)
        return found

    def gather(frame: Frame, *values: Any) -> Any:
        table = get(frame, values)
        if isinstance(table, Sparse):
            return algebra.atom(table.at(values[-1]), "bool", frame.run.dtype(algebra))
        return entries(table if table.ndim == 1 else table.reshape(-1), values[-1])

    flat = moving[0]
    if len(args) > 1:  # the numbers are the same for all tables over the same pools
        pools = key[1].pools if isinstance(key[1], Source) else key[1]
        flat = block.emit(("number", pools, consts), number, [*source, *moving], axes)
    return block.emit((*key, "gather"), gather, [*source, flat], axes, kind)
