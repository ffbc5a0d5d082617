"""Which choices of variables a guard lets through, as index lists."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.logic.bind._interpretation import Batch
from doxa.logic.syntax._binders import Quantifier
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._tree import Expr
from doxa.logic.tensor._block import Block, Frame, Reducer, Scope
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._frame import frame
from doxa.logic.tensor._plan import CHUNK, TensorPlan
from doxa.logic.tensor._pools import Axis, Ref, spread, union
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._run_data import Trace

LIMIT = 10**8
"""The most entries of the lists of all variables."""


def guarded(batch: Batch, quantifier: Quantifier) -> tuple[dict[str, Tensor], str]:
    """The choices of the variables of a quantifier that its guard lets through, int64 ``(instances,)`` by variable.

    Objects are told by their index, values of finite sorts by their position, rows by their number. Known relations are
    joined, and the lists come in their order; the text says in which, and how many tuples there were.

    >>> from doxa.logic import Interpretation, parse, table
    >>> kb = parse("sort P; pred f(P, P); [hop] forall x, y, z: P where f(x, y) & f(y, z). f(x, z)")
    >>> batch = Interpretation(kb, f=table({(0, 1), (1, 2)})).read({"P": 3})
    >>> guarded(batch, kb["hop"].formula)
    ({'x': tensor([0]), 'y': tensor([1]), 'z': tensor([2])}, 'f(x, y) 2, f(y, z) 1')
    """
    batch = TensorPlan(quantifier, batch.interpretation).completed(batch)
    compiler = Compiler(batch, [quantifier], stack=1 << 62)
    block = Block(None, "instances")
    drive(_compile(compiler, block, quantifier))
    trace = Trace()
    found: dict[str, Tensor] = drive(run_block(block, Run(batch, compiler.needs, CHUNK, trace=trace), [], {}))
    return found, "; ".join(trace.joins)


def _compile(compiler: Compiler, block: Block, quantifier: Quantifier) -> Task:
    scope = Scope(None, block)
    yield frame(compiler, block, scope, [(quantifier.groups, quantifier.guard)])
    variables = {name: block.positions(compiler.name(name, scope)) for name in quantifier.names}
    block.seal(_Listing(block, variables, quantifier.guard))


class _Listing(Reducer):
    """The values of variables in all instances."""

    def __init__(self, block: Block, variables: dict[str, Ref], guard: Expr | None) -> None:
        self.all = union([block.axes])
        self.axes: tuple[Axis, ...] = ()
        self.variables, self.guard = variables, guard
        self.refs = tuple(variables.values())

    def tile(self, frame: Frame) -> dict[str, Tensor]:
        def column(ref: Ref) -> Tensor:
            return spread(frame.regs[ref.slot], ref.axes, self.all, frame.sizes).reshape(-1)

        return self._checked({name: column(ref) for name, ref in self.variables.items()})

    def merge(self, a: Any, b: Any) -> Any:
        return self._checked({name: torch.cat([a[name], b[name]]) for name in a})

    def _checked(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        entries = sum([len(column) for column in found.values()])
        if entries > LIMIT:
            raise BudgetError(
                "entries",
                f"the guard {self.guard} lets through instances of more than {LIMIT:,} entries; add a condition that "
                "leaves fewer, or draw some of the objects with 'sample'",
            )
        return found
