"""Terms as positions and numbers: names, fields, indices, arithmetic, and reading one kind of value as another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.bind._bindings import dtype_of, has_values, shape_of
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._listings import position
from doxa.logic.bind._meanings import low_of
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON, INT, REAL, Sort
from doxa.logic.syntax._tree import Arith, Expr, Field, Index
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Algebra
from doxa.logic.tensor._block import Block, Frame
from doxa.logic.tensor._infinite import comparable, extended, refuse
from doxa.logic.tensor._pools import NUMBER, TRUTH, Ref, Type, entries, is_sample, take
from doxa.logic.tensor._run import Run


def known_constant(batch: Batch, name: str) -> tuple[int, Type] | None:
    """The position of a constant or of a value of an enumerated sort; None for other names, and for numbers."""
    signature = batch.signature
    declared = signature.constants.get(name)
    if declared is None:
        sort = signature.value_sorts.get(name)
        return None if sort is None else (position(sort, name, name), _pools.Finite(sort))
    sort = declared.sort
    if sort in (INT, REAL):
        return None
    fixed = batch.interpretation.constant(name)
    if sort.values is not None:
        if fixed is None or fixed.index is None:
            raise BindingError(f"the constant {name}: {sort.name} has no value; bind it: {name}=...")
        return fixed.index, _pools.Finite(sort)
    if sort.name in batch.given and fixed is not None and fixed.tensor is not None:
        return batch.own_constants(sort.name).index(name), _pools.Object(sort.name, _pools.Own(sort.name))
    return batch.index_of(name), _pools.Object(sort.name, _pools.Sort(sort.name))


def constant(block: Block, batch: Batch, name: str) -> Ref | None:
    """A declared constant or a value of an enumerated sort; None for other names."""
    known = known_constant(batch, name)
    if known is not None:
        return block.constant(*known)
    if name not in batch.signature.constants:
        return None
    fixed = batch.interpretation.constant(name)
    if fixed is None:
        sort = batch.signature.constants[name].sort.name
        raise BindingError(f"the constant {name}: {sort} has no value; bind it: Interpretation(kb, {name}=3)")
    return block.emit(("constant", name), lambda frame: fixed.tensor, [], (), NUMBER)


def field(node: Field, base: Ref, batch: Batch) -> Ref:
    """``p.left``: the same position, in a field of the rows."""
    if not isinstance(base.type, _pools.Rows):
        raise KnowledgeError(f"{node}: only data rows have fields, and {node.children[0]} is no row")
    batch.column(base.type.name, node.name)
    return base.read_as(_pools.Column(base.type, node.name, 1))


def index(node: Index, block: Block, base: Ref, place: Ref, batch: Batch) -> Ref:
    """``p.digits[i]``: element i of a sequence, as a position in all sequences of the field together."""
    pool = base.type
    if not isinstance(pool, _pools.Column):
        raise KnowledgeError(f"{node}: only fields of data rows have indices")
    column = batch.column(pool.rows.name, pool.field)
    ragged = column.lengths is not None
    if (ragged and pool.level != 1) or (not ragged and column.values.ndim <= pool.level):
        raise KnowledgeError(f"{node}: {node.children[0]} is no sequence; its shape is {shape_of(column.values)}")

    def element(frame: Frame, rows: Any, places: Any) -> Tensor:
        here = frame.run.column(pool.rows, pool.field)
        if here.lengths is None or here.starts is None:
            size: Any = here.values.shape[pool.level]
            start = rows * size
        else:
            size, start = take(here.lengths, [rows]), take(here.starts, [rows])
        wrong = torch.as_tensor((places < 0) | (places >= size))
        if has_values(wrong) and bool(wrong.any()):
            at = torch.as_tensor(places).expand(wrong.shape)[wrong][0].item()
            raise KnowledgeError(f"{node}: index {at} lies outside the sequence; guard it with 'where', from 0 on")
        return torch.as_tensor(start + places, device=frame.run.device)

    kind = _pools.Column(pool.rows, pool.field, pool.level + (not ragged))
    args = [block.positions(base), as_number(block, place, batch)]
    return block.broadcast(("index", pool, node), element, args, kind)


def arithmetic(
    node: Arith, block: Block, args: list[Ref], batch: Batch, possible: Ref | None = None, extremes: bool = False
) -> Ref:
    """``+ - * // mod`` and unary minus, of numbers; with ``extremes``, they may be infinite.

    What is not ``possible`` needs no value: there a divisor may be 0.
    """
    numbers = [as_number(block, a, batch) for a in args]
    op = node.op
    if all(n.const is not None for n in numbers):
        return block.constant(_calculate(node, op, *[n.const for n in numbers]), NUMBER)
    extremes = extremes and len(numbers) == 2
    if possible is None or not (extremes or op in ("//", "mod")):
        possible = None

    def calculate(frame: Frame, *values: Any) -> Any:
        if possible is not None:
            a, b, needed = values
            if op in ("//", "mod"):
                b = torch.as_tensor(b, device=frame.run.device)
                b = torch.where(needed | (b != 0), b, 1)
            values = (a, b)
        if not extremes:
            return _calculate(node, op, *values)
        _check_divisor(node, op, values[1])
        found, wrong = extended(op, values[0], values[1], frame.run.device)
        refuse(node, wrong if possible is None else wrong & needed)
        return found

    return block.broadcast(("arith", op), calculate, [*numbers, *([] if possible is None else [possible])], NUMBER)


def _calculate(node: Expr, op: str, a: Any, b: Any = None) -> Any:
    if b is None:
        return -a
    _check_divisor(node, op, b)
    return ARITHMETIC[op](a, b)


def _check_divisor(node: Expr, op: str, b: Any) -> None:
    if op in ("//", "mod"):
        zero = torch.as_tensor(b == 0)
        if has_values(zero) and bool(zero.any()):
            raise KnowledgeError(f"{node} divides by zero; guard it with 'where'")


def compare(
    node: Expr, op: str, block: Block, left: Ref, right: Ref, batch: Batch, algebra: Algebra, extremes: bool = False
) -> Ref:
    same = COMPARISON[op]

    def compared(frame: Frame, one: Any, other: Any) -> Tensor:
        one, other = comparable(one, other) if extremes else (one, other)
        truth = torch.as_tensor(same(one, other), device=frame.run.device)
        return algebra.atom(truth, "bool", frame.run.dtype(algebra))

    return block.broadcast(("compare", op, id(algebra)), compared, _comparable(node, block, left, right, batch))


def _comparable(node: Expr, block: Block, left: Ref, right: Ref, batch: Batch) -> list[Ref]:
    sorts = [_sort_of(r, batch) for r in (left, right)]
    finite = next((s for s in sorts if s is not None and isinstance(s.values, tuple)), None)
    if finite is not None:
        return [block.positions(as_finite(block, r, finite, batch, node)) for r in (left, right)]
    opened = next((s for s in sorts if s is not None and s.values is None and not s.is_integer), None)
    if opened is not None:
        objects = [as_object(block, r, opened, batch, node) for r in (left, right)]
        if len({r.type for r in objects}) > 1:
            objects = [in_sort(block, r, node, "equality of objects from different places") for r in objects]
        return [block.positions(r) for r in objects]
    return [as_number(block, r, batch) for r in (left, right)]


def _sort_of(ref: Ref, batch: Batch) -> Sort | None:
    match ref.type:
        case _pools.Finite(sort=sort):
            return sort
        case _pools.Object(sort=name):
            return batch.signature.sorts[name]
        case _pools.Column() as pool:
            return batch.column(pool.rows.name, pool.field).sort
    return None


def as_number(block: Block, ref: Ref, batch: Batch) -> Ref:
    match ref.type:
        case _pools.NUMBER:
            return block.positions(ref)
        case _pools.Finite(sort=sort) if isinstance(sort.values, range):
            low = low_of(sort)
            if ref.const is not None:
                return block.constant(ref.const + low, NUMBER)
            at = block.positions(ref)
            if low == 0:
                return at.read_as(NUMBER)
            return block.emit(("low", low), lambda frame, value: value + low, [at], at.axes, NUMBER)
        case _pools.Column() as pool:
            declared = batch.column(pool.rows.name, pool.field).sort
            if declared is not None and isinstance(declared.values, range):
                return as_number(block, as_finite(block, ref, declared, batch, None), batch)
            if declared is None or declared.is_integer:
                return _column_entries(block, ref, pool, lambda run: _numbers(run, pool), NUMBER, "number")
    raise KnowledgeError(f"numbers are needed, but {_what(ref)} is none")


def _numbers(run: Run, pool: _pools.Column) -> Tensor:
    values = run.flat(pool)
    if values.ndim != 1 or values.dtype == torch.bool or values.is_complex():
        shape = shape_of(values)[1:]
        raise BindingError(f"{pool}: numbers are needed, but its entries have shape {shape}, {dtype_of(values)}")
    return values if values.dtype.is_floating_point else values.long()


def _column_entries(
    block: Block, ref: Ref, pool: _pools.Column, get: Callable[[Run], Tensor], kind: Type, word: str
) -> Ref:
    step = ("entries", pool, word, kind)
    return block.emit(step, lambda frame, at: entries(get(frame.run), at), [ref], ref.axes, kind)


def as_finite(block: Block, ref: Ref, sort: Sort, batch: Batch, place: Expr | None) -> Ref:
    """A term as a position in a finite sort; numbers are checked to be among its values."""
    pool = ref.type
    if isinstance(pool, _pools.Finite) and pool.sort == sort:
        return ref
    if isinstance(pool, _pools.Column):
        return _column_entries(block, ref, pool, lambda run: run.positions(pool, sort), _pools.Finite(sort), "finite")
    ranges = isinstance(pool, _pools.Finite) and isinstance(pool.sort.values, range)
    if not isinstance(sort.values, range) or not (pool is NUMBER or ranges):
        raise KnowledgeError(f"{place}: a value of sort {sort.name} is needed, but {_what(ref)} is none")
    low, size = sort.values[0], len(sort.values)
    if ref.dense and ref.type is NUMBER:

        def shift(frame: Frame, run: slice) -> slice:
            for end in (run.start, run.stop - 1):
                if run.start < run.stop and not low <= end < low + size:
                    raise _outside(place, end, sort)
            return slice(run.start - low, run.stop - low)

        return block.emit(("finite", sort, place), shift, [ref], ref.axes, _pools.Finite(sort), dense=True)
    number = as_number(block, ref, batch)
    if number.const is not None:
        if number.const not in sort.values:
            raise KnowledgeError(f"{place}: {number.const} is no value of {sort.name} ({low}..{sort.values[-1]})")
        return block.constant(int(number.const) - low, _pools.Finite(sort))

    def convert(frame: Frame, value: Tensor) -> Tensor:
        found = value.long() - low
        wrong = (found < 0) | (found >= size)
        if has_values(wrong) and bool(wrong.any()):
            raise _outside(place, value[wrong].reshape(-1)[0].item(), sort)
        return found

    return block.emit(("finite", sort, place), convert, [number], number.axes, _pools.Finite(sort))


def _outside(place: Expr | None, came: int | float, sort: Sort) -> KnowledgeError:
    assert isinstance(sort.values, range)
    low, high = sort.values[0], sort.values[-1]
    return KnowledgeError(
        f"{place}: {came} is no value of {sort.name} ({low}..{high}); guard it, as in 'where d < {high}'"
    )


def as_object(block: Block, ref: Ref, sort: Sort, batch: Batch, place: Expr) -> Ref:
    """A term as an object of an open sort: a field holds indices when its sort has objects, else the objects."""
    if isinstance(ref.type, _pools.Object) and ref.type.sort == sort.name:
        return ref
    pool = ref.type
    if not isinstance(pool, _pools.Column):
        raise KnowledgeError(f"{place}: an object of sort {sort.name} is needed, but {_what(ref)} is none")
    values = batch.column(pool.rows.name, pool.field).values
    scalar = values.ndim == pool.level and not values.dtype.is_floating_point and values.dtype != torch.bool
    if scalar and batch.has_objects(sort.name):
        kind = _pools.Object(sort.name, _pools.Sort(sort.name))
        return _column_entries(block, ref, pool, lambda run: run.positions(pool, sort), kind, "object")
    return ref.read_as(_pools.Object(sort.name, pool))


def in_sort(block: Block, ref: Ref, place: Expr, why: str) -> Ref:
    assert isinstance(ref.type, _pools.Object)
    name, pool = ref.type.sort, ref.type.pool
    if is_sample(pool):
        kind = _pools.Object(name, _pools.Sort(name))
        return block.emit(
            ("in sort", pool), lambda frame, at: entries(frame.run.sampled(pool), at), [ref], ref.axes, kind
        )
    if isinstance(pool, _pools.Sort):
        return ref
    raise KnowledgeError(
        f"{place}: {why} needs objects by their index, but {_what(ref)} comes with features only; pass the objects as "
        f"{name}=tensor, and indices into them instead of features"
    )


def as_truth(node: Expr, block: Block, ref: Ref, batch: Batch, algebra: Algebra) -> Ref:
    """A value where a formula stands: a truth value, or a field of truth values."""
    pool = ref.type
    if pool is TRUTH:
        return ref
    if isinstance(pool, _pools.Column):
        values = batch.column(pool.rows.name, pool.field).values
        if values.dtype == torch.bool and values.ndim == pool.level:

            def get(run: Run) -> Tensor:
                return algebra.atom(run.flat(pool), "bool", run.dtype(algebra))

            return _column_entries(block, ref, pool, get, TRUTH, f"truth {id(algebra)}")
    raise KnowledgeError(f"a formula is needed, but {node} is {_what(ref)}")


def _what(ref: Ref) -> str:
    match ref.type:
        case _pools.Plain() as plain:
            return plain.value
        case _pools.Finite(sort=sort):
            return f"a value of {sort.name}"
        case _pools.Object(sort=name, pool=_pools.Column() as pool):
            return f"the {name} in {pool}"
        case _pools.Object(sort=name):
            return f"an object of {name}"
        case _pools.Rows(name=name):
            return f"a row of {name}"
        case _pools.Column() as pool:
            return f"the field {pool}"
