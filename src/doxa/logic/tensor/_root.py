"""Whole formulas: from the outermost quantifiers to a value, with variables that are kept as axes.

The quantifiers that a formula begins with may be folded in another way than those inside it (``Outermost`` in
``_algebra``): a log-product stays a logarithm there, and a mean may take the place of the first ``forall``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Group, Quantifier
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._tree import Expr, Name
from doxa.logic.tensor._algebra import Algebra, OuterFold, Outermost
from doxa.logic.tensor._block import Block, Result, Scope
from doxa.logic.tensor._compile import Compiler, consecutive
from doxa.logic.tensor._contract import factorize
from doxa.logic.tensor._execute import run_at_once, run_block
from doxa.logic.tensor._frame import frame, pool_of, pool_of_sort
from doxa.logic.tensor._lists import Fold
from doxa.logic.tensor._lookup import expand_dims
from doxa.logic.tensor._run import Run
from doxa.logic.tensor._stack import Stack
from doxa.logic.tensor._task import Task, drive
from doxa.logic.tensor._terms import as_truth
from doxa.logic.tensor._types import NUMBER, Axis, Pool, Ref, StackPool, inserted

__all__ = ["Root", "formula_root", "outermost", "stacked_root"]

Parts = Iterable[tuple[Iterable[Group], Expr | None]]
"""Groups of variables, each followed by a guard or not."""


class Root:
    """A compiled formula, or a stack of formulas: a block whose free variables come from outside."""

    def __init__(self, names: list[str], members: list[int]) -> None:
        self.names = names
        self.members = members
        self.block = Block(None, "formula")
        self.variables: list[tuple[Axis, Pool]] = []

    def variable(self, axis: Axis, pool: Pool, kind: Any) -> Ref:
        """A free variable: an axis that is kept."""
        ref = Ref(self.block.slot(), (axis,), kind, dense=True)
        self.block.inputs.append((ref, ref))
        self.variables.append((axis, pool))
        return ref

    def value(self, run: Run) -> Any:
        """The value in a run."""
        sizes = {axis: run.size(pool) for axis, pool in self.variables}
        places = [slice(0, sizes[axis]) for axis, _ in self.variables]
        if torch.compiler.is_compiling():
            value = run_at_once(self.block, run, places, sizes)
        else:
            value = drive(run_block(self.block, run, places, sizes))
        if not isinstance(value, Tensor) or not self.variables:
            return value
        axes, all_axes = self.block.reducer.axes, tuple([axis for axis, _ in self.variables])
        behind = value.shape[len(axes) :]  # of features
        return expand_dims(value, inserted(axes, all_axes)).expand([*[sizes[a] for a in all_axes], *behind])


def stacked_root(compiler: Compiler, root: Root, group: Stack, algebra: Algebra) -> Task:
    """Compile formulas that differ only in constants."""
    scope = Scope(None, root.block)
    along = root.variable(compiler.axis("formulas"), StackPool(len(group)), NUMBER)
    compiler.parameters(group, scope, along)
    ref, is_log = yield _value(compiler, group.pattern, scope, algebra, first=True)
    root.block.seal(Result(_result(root.block, ref, is_log, algebra)))


def formula_root(compiler: Compiler, root: Root, formula: Expr, algebra: Algebra, keep: tuple[str, ...]) -> Task:
    """Compile one formula; its free variables and those in ``keep`` are axes of the value."""
    scope = Scope(None, root.block)
    free = compiler.free.names(formula)
    for name in [n for n in compiler.free.hints if n in free]:
        pool, kind = pool_of_sort(compiler, compiler.free.hints[name], None)
        scope.names[name] = root.variable(compiler.axis(name), pool, kind)
    if not keep:
        ref, is_log = yield _value(compiler, formula, scope, algebra, first=True)
    else:
        ref, is_log = yield _kept(compiler, root, formula, scope, algebra, keep)
    root.block.seal(Result(_result(root.block, ref, is_log, algebra)))


def _result(block: Block, ref: Ref, is_log: bool, algebra: Algebra) -> Ref:
    if not isinstance(algebra, Outermost):
        return ref
    return block.emit(("result", is_log), lambda frame, x: algebra.result(x, is_log), [ref], ref.axes)


def _value(compiler: Compiler, formula: Expr, scope: Scope, algebra: Algebra, first: bool) -> Task:
    """The value of a formula that nothing but quantifiers stands before, and whether it is a logarithm."""
    outer = None
    if isinstance(algebra, Outermost) and isinstance(formula, Quantifier) and formula.count is None:
        outer = algebra.outer(formula.kind, first)
    if outer is None:
        ref = yield compiler.compile(formula, scope, algebra)
        is_log = isinstance(algebra, Outermost) and algebra.connectives_are_log
        return as_truth(formula, scope.block, ref, compiler.batch, algebra), is_log
    assert isinstance(formula, Quantifier)
    levels = [formula] if outer.alone else consecutive(formula)
    parts = [(level.groups, level.guard) for level in levels]
    return (yield _fold(compiler, formula.kind, outer, parts, levels[-1].body, scope, algebra))


def _fold(
    compiler: Compiler, kind: str, outer: OuterFold, parts: Parts, body: Expr, scope: Scope, algebra: Algebra
) -> Task:
    """The value of a block of outermost quantifiers, and whether it is a logarithm."""
    block = Block(scope.block, kind)
    inner = Scope(scope, block)
    yield frame(compiler, block, inner, parts)
    factors = factorize(outer.powers, body, block, inner, algebra, compiler.free, compiler.stack)
    if factors is not None:
        return (yield compiler.contracted(factors, outer.fold(False), block, inner, algebra)), outer.is_log
    ref, is_log = yield _value(compiler, body, inner, algebra, first=False)
    folded = compiler.close(block, Fold(block, ref, outer.fold(is_log)), scope.block)
    return folded, is_log if outer.is_log is None else outer.is_log


def _kept(compiler: Compiler, root: Root, formula: Expr, scope: Scope, algebra: Algebra, keep: tuple[str, ...]) -> Task:
    """The formula with some variables of its outermost ``forall`` left free."""
    outer = algebra.outer("forall", True) if isinstance(algebra, Outermost) else None
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
        return (yield _value(compiler, body, scope, algebra, first=False))
    if isinstance(algebra, Outermost) and not any(groups for groups, _ in parts):
        outer = OuterFold(True, None, algebra.only, None)
    if outer is None:
        ref = yield compiler.block("forall", None, parts, body, scope, algebra)
        return ref, isinstance(algebra, Outermost) and algebra.connectives_are_log
    return (yield _fold(compiler, "forall", outer, parts, body, scope, algebra))


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
