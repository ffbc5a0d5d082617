"""Applying predicates and functions: which table an application looks up, or what it computes for itself."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.bind._bindings import has_values
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Named, Network, is_draw, low_of
from doxa.logic.syntax._symbols import INT, REAL, Function, Predicate, RowSort
from doxa.logic.syntax._tree import Call
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._block import Block, Frame
from doxa.logic.tensor._pools import NUMBER, TRUTH, Pool, Ref, Sparse, Type, align, inserted, ravel, take, union
from doxa.logic.tensor._run import Run, Source, View
from doxa.logic.tensor._run_data import NO_INT, Needs
from doxa.logic.tensor._structures import place_argument, row_argument, structured
from doxa.logic.tensor._terms import as_finite, as_number, as_object, in_sort


def symbol_of(call: Call, batch: Batch) -> Predicate | Function:
    signature = batch.signature
    found = signature.predicates.get(call.name) or signature.functions.get(call.name)
    if found is None:
        raise KnowledgeError(f"{call}: {call.name!r} is neither a predicate nor a function of the knowledge base")
    if len(found.sorts) != len(call.children):
        raise KnowledgeError(f"{call}: {call.name} takes {len(found.sorts)} arguments, got {len(call.children)}")
    return found


@dataclass
class Application:
    """A predicate or function applied to terms, in a block. With ``value``, the weight of that value of a function."""

    call: Call
    block: Block
    batch: Batch
    needs: Needs
    algebra: Algebra
    value: Ref | None = None

    def __post_init__(self) -> None:
        self.symbol = symbol_of(self.call, self.batch)
        self.meaning = self.batch.meaning(self.call.name)
        self.extra = [] if self.value is None else [self.value]
        self.view: View = "truth"
        if isinstance(self.symbol, Function):
            self.view = "weights" if self.extra else "mode" if is_draw(self.meaning) else "value"
        self.kind = self._kind()

    def _kind(self) -> Type:
        if isinstance(self.symbol, Predicate):
            return TRUTH
        result = self.symbol.result
        if result.values is not None:
            return _pools.Finite(result)
        if result in (INT, REAL):
            return NUMBER
        if isinstance(self.meaning, Network) and not self.meaning.bare:
            return _pools.Object(result.name, _pools.Function(self.symbol.name, ()))  # with the pools of its arguments
        return _pools.Object(result.name, _pools.Sort(result.name))

    def result(self, args: Sequence[Ref], *, defined: bool = True) -> Ref:
        """Its value. Where a function has none, there is an error when it runs if ``defined``, else -1 or NaN."""
        meaning, block = self.meaning, self.block
        numbers = [s in (INT, REAL) for s in self.symbol.sorts]
        if any(numbers) and not isinstance(meaning, Named):
            shown, found = self._direct(args)
        else:
            refs, pools = self.arguments(args)
            if isinstance(meaning, Network) and len(meaning.inputs) == 1 and not meaning.per_object:
                fed = meaning.inputs[0]
                asked = self.needs.unary.setdefault(self.batch.identity(meaning), {})
                asked[pools[fed]] = self.symbol.sorts[fed].name
            if isinstance(self.kind, _pools.Object) and isinstance(self.kind.pool, _pools.Function):
                return _computed(block, refs, _pools.Object(self.kind.sort, _pools.Function(self.symbol.name, pools)))
            if isinstance(meaning, Network) and len(meaning.inputs) > 1 and _shared([refs[i] for i in meaning.inputs]):
                found = self._on_tuples(meaning, refs, pools)
            else:
                if isinstance(meaning, Network):
                    self.needs.whole.add((self.symbol.name, pools))
                source = Source(self.symbol.name, pools, self.view)
                source = self.needs.sources.setdefault(source, source)  # the same object is found sooner
                found = lookup(block, source, [*refs, *self.extra], self.algebra, self.kind)
            shown = [as_number(block, a, self.batch) if n else r for a, r, n in zip(args, refs, numbers, strict=True)]
        partial = isinstance(meaning, Named) or (isinstance(meaning, Network) and meaning.bare)
        return _defined(self.call, block, found, shown) if self.view == "value" and partial and defined else found

    def arguments(self, args: Sequence[Ref]) -> tuple[list[Ref], tuple[Pool, ...]]:
        """The arguments as positions in pools that the meaning of the symbol can take."""
        refs: list[Ref] = []
        pools: list[Pool] = []
        inside = structured(self.symbol.name, self.batch)
        pool: Pool
        for number, (arg, sort) in enumerate(zip(args, self.symbol.sorts, strict=True)):
            if isinstance(sort, RowSort):
                ref, pool = row_argument(self.block, arg, sort, self.call), _pools.Rows(sort.name)
            elif number in inside:
                row, field = inside[number]
                ref, pool = place_argument(self.block, arg, args[row], field, self.call, number)
            elif sort.values is not None:
                ref = as_finite(self.block, arg, sort, self.batch, self.call)
                pool = _pools.Finite(sort)
            elif isinstance(self.meaning, Named) and number in self.meaning.listed:
                pool = _pools.Listed(self.symbol.name, number)
                ref = _listed_place(self.block, as_number(self.block, arg, self.batch), pool)
            else:
                ref = as_object(self.block, arg, sort, self.batch, self.call)
                if not isinstance(self.meaning, Network):
                    ref = in_sort(self.block, ref, self.call, f"the table of {self.symbol.name}")
                assert isinstance(ref.type, _pools.Object)
                pool = ref.type.pool
            refs.append(ref)
            pools.append(pool)
        return refs, tuple(pools)

    def _on_tuples(self, meaning: Network, refs: list[Ref], pools: tuple[Pool, ...]) -> Ref:
        """A network on the tuples that occur; from its whole table, if some other formula needs that anyway."""
        fed_pools = [pools[i] for i in meaning.inputs]
        name, needs, view, algebra = self.symbol.name, self.needs, self.view, self.algebra

        def run_on_tuples(frame: Frame, *values: Any) -> Tensor:
            run = frame.run
            places = _spread(run, values)
            if (name, pools) in needs.whole:
                raw = run.raw(name, pools)
                assert isinstance(raw, Tensor)
                front = [*meaning.inputs, *meaning.axes]
                raw = take(raw.permute(*front, *range(len(front), raw.ndim)), places)
            else:
                raw = run.pairs(name, fed_pools, [p.reshape(-1) for p in places])
                raw = raw.reshape(*places[0].shape, *raw.shape[1:])
            return run.present(meaning, raw, view, algebra)

        fed = [self.block.positions(refs[i]) for i in meaning.inputs]
        key = ("tuples", name, pools, view, id(algebra))
        local = self.block.broadcast(key, run_on_tuples, fed, self.kind)
        return self._at(local, [*[refs[i] for i in meaning.axes], *self.extra])

    def _direct(self, args: Sequence[Ref]) -> tuple[list[Ref], Ref]:
        """A function of numbers is called on them as they come: its arguments, and its value."""
        meaning, symbol, block, view, algebra = self.meaning, self.symbol, self.block, self.view, self.algebra
        computed = isinstance(self.kind, _pools.Object)
        if not isinstance(meaning, Network) or meaning.axes or (computed and not meaning.bare):
            raise KnowledgeError(
                f"{self.call}: {symbol.name} has numbers among its arguments, so it is called on each instance; "
                "bind a Python function of all its arguments"
            )
        inputs: list[Ref] = []
        for arg, sort in zip(args, symbol.sorts, strict=True):
            if sort in (INT, REAL):
                inputs.append(as_number(block, arg, self.batch))
            else:
                read = as_object if sort.values is None else as_finite
                inputs.append(block.positions(read(block, arg, sort, self.batch, self.call)))
        kinds = tuple([r.type for r in inputs])

        def compute(frame: Frame, *values: Any) -> Tensor:
            run = frame.run
            spread = _spread(run, values)
            fed = [_fed(run, t.reshape(-1), k, symbol.name) for t, k in zip(spread, kinds, strict=True)]
            raw = run.direct(symbol.name, fed)
            return run.present(meaning, raw.reshape((*spread[0].shape, *raw.shape[1:])), view, algebra)

        found = block.broadcast(("direct", symbol.name, kinds, view, id(algebra)), compute, inputs, self.kind)
        return inputs, self._at(found, self.extra)

    def _at(self, local: Ref, others: list[Ref]) -> Ref:
        """The entries of a value of the block at further positions, which lie along axes behind its own."""
        if not others:
            return local
        kind = TRUTH if self.extra else self.kind
        args = [*[self.block.position(a) for a in local.axes], *others]
        return lookup(self.block, local, args, self.algebra, kind)


def _shared(refs: Sequence[Ref]) -> bool:
    """Do two of the arguments vary together, so that not all pairs of objects occur?"""
    axes = [a for r in refs for a in r.axes]
    return len(set(axes)) < len(axes)


def _computed(block: Block, refs: list[Ref], kind: _pools.Object) -> Ref:
    """A function that computes features: positions in the pool of what it computes."""
    if len(refs) == 1:
        return refs[0].read_as(kind)
    if not refs:
        return block.constant(0, kind)
    assert isinstance(kind.pool, _pools.Function)
    pools = kind.pool.pools

    def number(frame: Frame, *places: Any) -> Tensor:
        flat = ravel(places, [frame.run.size(pool) for pool in pools])
        return torch.as_tensor(flat, device=frame.run.device)

    return block.broadcast(("tuple", kind), number, [block.positions(r) for r in refs], kind)


def _spread(run: Run, values: Sequence[Any]) -> list[Tensor]:
    tensors = [torch.as_tensor(v, device=run.device) for v in values]
    return list(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]


def _fed(run: Run, flat: Tensor, kind: Type, name: str) -> Tensor:
    """What a function sees of a value: numbers, values of finite sorts, or features."""
    if isinstance(kind, _pools.Finite):
        return flat + low_of(kind.sort)
    if isinstance(kind, _pools.Object):
        features = run.features(kind.pool, name)
        return flat if features is None else features.index_select(0, flat)
    return flat


def _defined(call: Call, block: Block, found: Ref, args: Sequence[Ref]) -> Ref:
    kinds = [a.type for a in args]
    result = found.type

    def check(frame: Frame, values: Tensor, *arguments: Any) -> Tensor:
        if result is not NUMBER:
            wrong = values < 0
        else:
            wrong = values.isnan() if values.dtype.is_floating_point else values == NO_INT
        if has_values(wrong) and bool(wrong.any()):
            first = wrong.reshape(-1).long().argmax()
            spread = [torch.as_tensor(a, device=values.device).expand(values.shape) for a in arguments]
            came = [_shown(a.reshape(-1)[first].item(), k) for a, k in zip(spread, kinds, strict=True)]
            raise KnowledgeError(
                f"{call.name}({', '.join(came)}) has no value among those of its sort; keep its arguments away "
                "from there with a guard, as in 'where d < 9'"
            )
        return values

    return block.broadcast(("defined", call.name), check, [found, *[block.positions(a) for a in args]], found.type)


def _shown(place: int | float, kind: Type) -> str:
    if isinstance(kind, _pools.Finite) and kind.sort.values is not None:
        return str(kind.sort.values[int(place)])
    return f"{kind.sort}#{place}" if isinstance(kind, _pools.Object) else str(place)


def _listed_place(block: Block, number: Ref, pool: _pools.Listed) -> Ref:
    """Where a number stands among those that a table lists; behind them all if it is not listed."""

    def place(frame: Frame, value: Tensor | int | float) -> Tensor:
        meaning = frame.run.batch.meaning(pool.name)
        assert isinstance(meaning, Named)
        numbers = meaning.listed[pool.argument]
        value = torch.as_tensor(value, device=frame.run.device)
        known = numbers.to(device=value.device, dtype=value.dtype)
        if not len(numbers):
            return torch.zeros_like(value, dtype=torch.int64)
        at = torch.searchsorted(known, value.contiguous()).clamp(max=len(numbers) - 1)
        return torch.where(take(known, [at]) == value, at, len(numbers))

    return block.emit(("listed", pool), place, [number], number.axes, number.type)


# --- tables: looked up by views where an argument runs through consecutive positions, by gathering elsewhere ---

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
        if not torch.is_inference_mode_enabled():  # whose tensors are of no use to a call that differentiates
            self._made = (fixed, [(weakref.ref(t, self._forget), _version(t)) for t in tensors], value)

    def _forget(self, gone: object) -> None:
        self._made = None


def _version(tensor: Tensor) -> int:
    """Changes when the tensor is written to."""
    return 0 if tensor.is_inference() else tensor._version


def lookup(block: Block, table: Source | Ref, args: Sequence[Ref], algebra: Algebra, kind: Type) -> Ref:
    """The entries at the positions ``args`` of a symbol's table, or of a value of this block with the table's axes."""
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
            found = _pools.cut(found, run, dim)
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
        return _pools.entries(table if table.ndim == 1 else table.reshape(-1), values[-1])

    flat = moving[0]
    if len(args) > 1:  # the numbers are the same for all tables over the same pools
        pools = key[1].pools if isinstance(key[1], Source) else key[1]
        flat = block.emit(("number", pools, consts), number, [*source, *moving], axes)
    return block.emit((*key, "gather"), gather, [*source, flat], axes, kind)
