"""Lists of instances in place of axes: those at which a condition is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doxa.logic.bind._meanings import Named, Table
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Iff, Implies, Name, Not, Number, Or, Truth, Xor, postorder
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL
from doxa.logic.tensor._atoms import Last
from doxa.logic.tensor._block import Absorbed, Block, Frame, Result, Scope
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._names import Names
from doxa.logic.tensor._pools import Axis, Ref, unravel
from doxa.logic.tensor._terms import known_constant

CONNECTIVES = (Not, And, Or, Implies, Iff, Xor, Compare, Number, Truth)


def absorb(block: Block, axis: Axis, axes: tuple[Axis, ...], made: Ref, first: int = 0) -> None:
    """Let a list take the place of axes; its entries hold a position on each of them."""
    places = {
        gone: block.emit(("place", axis, gone), part_of(number), [made], (axis,))
        for number, gone in enumerate(axes, first)
    }
    block.lists.append(Absorbed(axis, made, places))


def part_of(number: int) -> Callable[..., Any]:
    return lambda frame, parts: parts[number]


def list_where(compiler: Names, guard: Expr, block: Block, scope: Scope) -> Task:
    """Let the places where a condition is true take the place of the axes of its variables."""
    test = Block(block, "guard")
    test.seal(Result((yield compiler.truth(guard, Scope(scope, test), CLASSICAL))))
    inputs = [ref for ref, _ in test.inputs]
    axis = compiler.axis(f"[{guard}]" if compiler.trees.look(guard).size < 30 else "[guard]")
    # A guard that does not depend on any variable keeps or drops an axis as a whole.
    spread = None if test.reducer.axes else next((o.axis for o in block.own if o.axis in block.axes), None)
    axes = test.reducer.axes if spread is None else (spread,)
    # The same guard elsewhere is the same list, if its values stand for the same axes in the same order.
    along = tuple([tuple([a in ref.axes for ref in inputs]) for a in test.reducer.axes])
    key = (guard, tuple([(ref.type, ref.dense) for ref in inputs]), along)
    fixed = fixed_by(compiler, guard, scope) if spread is None else None
    last = Last()

    def make(frame: Frame, *values: Any) -> Task:
        run, values, found = frame.run, values[: len(inputs)], None
        meanings = [run.batch.meaning(name) for name in fixed or ()]
        tensors = [m.tensor for m in meanings if isinstance(m, Table)]
        if frame.whole and spread is None:
            found = run.find_list(key, values)
        if found is None and fixed is not None:
            found = last.find((run.device, values, meanings), tensors)
        if found is None:
            truth = yield run_block(test, run, values, frame.sizes)
            sizes = [frame.sizes[a] for a in axes]
            found = unravel(truth.expand(sizes).reshape(-1).nonzero().squeeze(1), sizes)
            if frame.whole and fixed is not None:
                last.keep((run.device, values, meanings), tensors, found)
            if frame.whole and spread is None:
                run.keep_list(key, values, found)
        frame.sizes[axis] = len(found[0])
        return found

    # The position makes the list follow the axis from tile to tile.
    args = inputs if spread is None else [*inputs, block.position(spread)]
    absorb(block, axis, axes, block.emit(("list", axis), make, args, (axis,), suspends=True))


def fixed_by(compiler: Names, guard: Expr, scope: Scope) -> list[str] | None:
    """The tables in a guard of nothing but connectives, comparisons and tables; while they stay, so does its list."""
    found: dict[str, None] = {}
    for node in postorder(guard):
        match node:
            case _ if isinstance(node, CONNECTIVES):
                continue
            case Name() if _is_plain(compiler, node.name, scope):
                continue
            case Call() if node.name in compiler.batch.signature.predicates and (
                isinstance(compiler.batch.interpretation.meaning(node.name), Table | Named)
            ):
                found[node.name] = None
            case _:
                return None
    return list(found)


def _is_plain(compiler: Names, name: str, scope: Scope) -> bool:
    """A variable that runs through the objects of a sort or the values of a finite one, or a constant among these."""
    if not scope.binds(name):
        return known_constant(compiler.batch, name) is not None
    ref = compiler.name(name, scope)
    match ref.type:
        case _pools.Object(pool=_pools.Sort(sample=None)) | _pools.Finite():
            return ref.dense
    return False
