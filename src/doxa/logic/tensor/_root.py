"""Whole formulas: from the outermost quantifiers to a value, with variables that are kept as axes.

The quantifiers that a formula begins with may be folded in another way than those inside it (``Outermost`` in
``_algebra``): a log-product stays a logarithm there, and a mean may take the place of the first ``forall``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Group, Quantifier
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._tree import Expr, Name
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import Algebra, OuterFold
from doxa.logic.tensor._block import Block, Result, Scope
from doxa.logic.tensor._compile import Compiler
from doxa.logic.tensor._execute import Task, drive, run_at_once, run_block
from doxa.logic.tensor._frame import pool_of, pool_of_sort
from doxa.logic.tensor._index import spread
from doxa.logic.tensor._pools import NUMBER, Axis, Pool, Ref, Type
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._trees import Stack


class Root:
    """A compiled formula, or a stack of formulas: a block whose free variables come from outside."""

    def __init__(self, names: list[str], members: list[int]) -> None:
        self.names = names
        self.members = members
        self.block = Block(None, "formula")
        self.variables: list[tuple[Axis, Pool]] = []

    def variable(self, axis: Axis, pool: Pool, kind: Type) -> Ref:
        ref = Ref(self.block.slot(), (axis,), kind, dense=True)
        self.block.inputs.append((ref, ref))
        self.variables.append((axis, pool))
        return ref

    def value(self, run: Run) -> Any:
        sizes = {axis: run.size(pool) for axis, pool in self.variables}
        places = [slice(0, sizes[axis]) for axis, _ in self.variables]
        if torch.compiler.is_compiling():
            value = run_at_once(self.block, run, places, sizes)
        else:
            value = drive(run_block(self.block, run, places, sizes))
        if not isinstance(value, Tensor) or not self.variables:
            return value
        return spread(value, self.block.reducer.axes, tuple([axis for axis, _ in self.variables]), sizes)


def stacked_root(compiler: Compiler, root: Root, group: Stack, algebra: Algebra) -> Task:
    """Compile formulas that differ only in constants."""
    scope = Scope(None, root.block)
    along = root.variable(compiler.axis("formulas"), _pools.Stack(len(group.members)), NUMBER)
    compiler.parameters(group, scope, along)
    ref, is_log = yield compiler.value(group.pattern, scope, algebra, first=True)
    _finish(root.block, ref, is_log, algebra)


def formula_root(compiler: Compiler, root: Root, formula: Expr, algebra: Algebra, keep: tuple[str, ...]) -> Task:
    """Compile one formula; its free variables and those in ``keep`` are axes of the value."""
    scope = Scope(None, root.block)
    free = compiler.trees.names(formula)
    for name in [n for n in compiler.trees.hints if n in free]:
        pool, kind = pool_of_sort(compiler, compiler.trees.hints[name], None)
        scope.names[name] = root.variable(compiler.axis(name), pool, kind)
    if not keep:
        ref, is_log = yield compiler.value(formula, scope, algebra, first=True)
    else:
        ref, is_log = yield _kept(compiler, root, formula, scope, algebra, keep)
    _finish(root.block, ref, is_log, algebra)


def _finish(block: Block, ref: Ref, is_log: bool, algebra: Algebra) -> None:
    block.seal(Result(block.emit(("result",), lambda frame, x: algebra.result(x, is_log), [ref], ref.axes)))


def _kept(compiler: Compiler, root: Root, formula: Expr, scope: Scope, algebra: Algebra, keep: tuple[str, ...]) -> Task:
    """The formula with some variables of its outermost ``forall`` left free."""
    outer = algebra.outer("forall", True)
    levels, body = outermost(formula, alone=outer is not None and outer.alone)
    bound = [n for groups, _ in levels for g in groups for n in g.names]
    for name in keep:
        if name not in bound:
            remedy = did_you_mean(name, bound, f"it binds {', '.join(bound)}" if bound else "it binds nothing")
            raise KnowledgeError(f"keep={name!r}: the outermost 'forall' of the formula does not bind that; {remedy}")
    parts: list[tuple[list[Group], Expr | None]] = []
    for groups, guard in levels:
        left: list[Group] = []
        for group in groups:
            inside = [n for n in group.names if n in keep]
            if inside and not isinstance(group.domain, Name | None):
                raise KnowledgeError(f"keep={inside[0]!r}: only variables over a sort or over rows can be kept")
            if inside:
                pool, kind = pool_of(compiler, group)
                for name in inside:
                    scope.names[name] = root.variable(compiler.axis(name), pool, kind)
                if group.sample is not None and len(inside) < len(group.names):
                    raise KnowledgeError("keep all variables of a sampled group, or none of them")
            rest = [n for n in group.names if n not in keep]
            if rest:
                left.append(Group(rest, sort=group.sort, domain=group.domain, sample=group.sample))
        if left or guard is not None:
            parts.append((left, guard))
    if not parts:
        return (yield compiler.value(body, scope, algebra))
    if not any(groups for groups, _ in parts):
        outer = OuterFold(True, None, algebra.only, None)
    return (yield compiler.block("forall", None, parts, body, scope, algebra, outer))


def outermost(formula: Expr, *, alone: bool = False) -> tuple[list[tuple[tuple[Group, ...], Expr | None]], Expr]:
    """The outermost block of ``forall``: its levels of groups with their guards, and the formula they bind.

    A level that hides a variable of an earlier one begins another block; ``alone`` takes the first level only.
    """
    levels: list[tuple[tuple[Group, ...], Expr | None]] = []
    bound: set[str] = set()
    while isinstance(formula, Quantifier) and formula.kind == "forall" and bound.isdisjoint(formula.names):
        levels.append((formula.groups, formula.guard))
        bound.update(formula.names)
        formula = formula.body
        if alone:
            break
    return levels, formula
