"""What the compiler knows of names: variables in scope, constants, and the axes that variables run along."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._joint import refuse
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._tree import Expr
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Accumulator, Algebra
from doxa.logic.tensor._block import Block, Scope
from doxa.logic.tensor._pools import Axis, Ref
from doxa.logic.tensor._run_data import Needs
from doxa.logic.tensor._terms import as_truth, constant
from doxa.logic.tensor._trees import Trees


class Names(ABC):
    """What the compiler knows of names: variables in scope, constants, and the axes that variables run along."""

    def __init__(self, batch: Batch, formulas: Sequence[Expr], *, stack: int) -> None:
        self.batch = batch
        if named := batch.interpretation.shared_in(*formulas):
            refuse("a formula as a tensor, for Fuzzy() or satisfaction,", named)
        self.trees = Trees(batch, formulas)
        self.needs = Needs()
        self.stack = stack
        self._orders = count()
        self.numbers = count()
        self.folds: dict[Any, Accumulator] = {}
        self._written: dict[Expr, Expr] = {}

    def axis(self, label: str) -> Axis:
        return Axis(label, next(self._orders))

    def name(self, name: str, scope: Scope) -> Ref:
        home = scope.find(name)
        if home is not None:
            return self.fetch(home.names[name], home.block, scope.block)
        found = constant(scope.block, self.batch, name)
        if found is None:
            raise KnowledgeError(f"unknown name {name!r}: it is neither bound nor declared")
        match found.type:
            case _pools.Object(pool=_pools.Sort(sort=sort)) if sort in self.batch.given:
                self.needs.constants.add(name)
        return found

    def fetch(self, ref: Ref, origin: Block, target: Block) -> Ref:
        chain: list[Block] = []
        block: Block = target
        while block is not origin:
            chain.append(block)
            assert block.parent is not None
            block = block.parent
        ref = origin.current(ref)
        for inner in reversed(chain):
            ref = inner.current(inner.capture(ref))
        return ref

    @abstractmethod
    def compile(self, root: Expr, scope: Scope, algebra: Algebra) -> Task:
        """The value of a tree in a scope."""

    def truth(self, formula: Expr, scope: Scope, algebra: Algebra) -> Task:
        ref = yield self.compile(formula, scope, algebra)
        return as_truth(formula, scope.block, ref, self.batch, algebra)
