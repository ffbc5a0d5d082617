"""From a formula to blocks. Nodes are visited bottom up; a binder opens a block, consecutive quantifiers share one.

A quantifier that does not need the innermost variables is evaluated once, where those it does need are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Literal, TypeVar, cast

import torch

from doxa.errors import KnowledgeError
from doxa.logic.bind._meanings import is_draw
from doxa.logic.syntax import _tree
from doxa.logic.syntax._binders import Aggregate, Count, Let, Quantifier
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._symbols import Function
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Or, fold, postorder
from doxa.logic.tensor import _pools
from doxa.logic.tensor._aggregates import Aggregates
from doxa.logic.tensor._algebra import CLASSICAL, Accumulator, Algebra, OuterFold
from doxa.logic.tensor._atoms import Application, lookup, symbol_of
from doxa.logic.tensor._block import Block, Frame, Reducer, Result, Scope
from doxa.logic.tensor._execute import run_block
from doxa.logic.tensor._fold import Contract, Factors, Fold, contractible, factorize, multiplied
from doxa.logic.tensor._frame import Parts, frame
from doxa.logic.tensor._pools import NUMBER, TRUTH, Axis, Ref, cut
from doxa.logic.tensor._run import Source
from doxa.logic.tensor._terms import arithmetic, as_truth, compare, field, index
from doxa.logic.tensor._trees import PROPOSITION, Stack, draw_first

T = TypeVar("T", bound=Expr)
LARGEST_BLOCK = 16
"""Quantifiers are merged into one block up to this many variables; tensors cannot have many more axes."""


class Compiler(Aggregates):
    """Compiles formulas for one interpretation and one schema of data; ``needs`` collects what they will ask for."""

    def compile(self, root: Expr, scope: Scope, algebra: Algebra) -> Task:
        done: dict[int, Ref] = {}
        stacks: dict[int, tuple[list[Ref], list[Expr]]] = {}
        todo: list[tuple[Expr, bool]] = [(root, False)]
        while todo:
            node, ready = todo.pop()
            if id(node) in done:
                continue
            kind = type(node)
            if ready and id(node) in stacks:
                parts, alone = stacks[id(node)]
                parts += [as_truth(c, scope.block, done[id(c)], self.batch, algebra) for c in alone]
                done[id(node)] = self.joined("and" if kind is And else "or", parts, scope.block, algebra)
            elif ready:
                done[id(node)] = self.visit(node, [done[id(c)] for c in node.children], scope, algebra)
            elif kind is Quantifier or kind is Let:
                done[id(node)] = yield self.binder(node, scope, algebra)
            elif kind is Aggregate:
                done[id(node)] = yield self.aggregated(cast(Aggregate, node), scope, algebra)
            elif algebra.statements == "axis" and (drawn := self.drawn(node)) is not None:
                done[id(node)] = yield self.binder(drawn, scope, algebra)
            elif kind in (And, Or) and len(node.children) >= self.stack:
                parts, alone = stacks[id(node)] = yield self.wide(node, scope, algebra)
                todo.append((node, True))
                todo += [(c, False) for c in reversed(alone)]
            elif not node.children:
                done[id(node)] = self.visit(node, [], scope, algebra)
            else:
                todo.append((node, True))
                todo += [(c, False) for c in reversed(node.children) if id(c) not in done]
        return done[id(root)]

    def visit(self, node: Expr, below: list[Ref], scope: Scope, algebra: Algebra) -> Ref:
        block, batch = scope.block, self.batch
        match node:
            case _tree.Name():
                return self.name(node.name, scope)
            case _tree.Number():
                return block.constant(node.value, NUMBER)
            case Call() if node.name == PROPOSITION:
                assert isinstance(below[0].type, _pools.Object)
                return lookup(block, Source(PROPOSITION, (below[0].type.pool,), "truth"), below, algebra, TRUTH)
            case Call():
                return Application(node, block, batch, self.needs, algebra).result(below)
            case Compare():
                return compare(node, node.op, block, below[0], below[1], batch, algebra, self.trees.extremes)
            case _tree.Field():
                return field(node, below[0], batch)
            case _tree.Index():
                return index(self.written(node), block, below[0], below[1], batch)
            case _tree.Arith():
                return arithmetic(self.written(node), block, below, batch, self.possible(scope), self.trees.extremes)
            case _tree.Truth():
                return self.literal(node.value, block, algebra)
        below = [as_truth(c, block, b, batch, algebra) for c, b in zip(node.children, below, strict=True)]
        match node:
            case _tree.Not():
                return block.emit(("not", id(algebra)), lambda frame, x: algebra.not_(x), below, below[0].axes)
            case And() | Or():
                return self.joined("and" if isinstance(node, And) else "or", below, block, algebra)
            case Count():
                return self.counted(node, below, block, algebra)
        ops: dict[type[Expr], Any] = {_tree.Implies: algebra.implies, _tree.Iff: algebra.iff, _tree.Xor: algebra.xor}
        op = ops.get(type(node))
        if op is None:
            raise KnowledgeError(f"{node} is no formula")
        return block.broadcast((type(node), id(algebra)), lambda frame, a, b: op(a, b), below)

    def literal(self, value: bool, block: Block, algebra: Algebra) -> Ref:
        certain = _certain(algebra)
        key = ("truth", value, id(algebra))
        return block.emit(key, lambda frame: certain(frame, torch.tensor(value, device=frame.run.device)), [], ())

    def joined(self, kind: str, below: list[Ref], block: Block, algebra: Algebra) -> Ref:
        """A conjunction or disjunction; first of what has the same axes, then of what is left, the smaller first."""
        op = algebra.and_ if kind == "and" else algebra.or_
        parts: list[Ref] = below
        if algebra.associative:
            groups: dict[tuple[Axis, ...], list[Ref]] = {}
            for ref in below:
                groups.setdefault(ref.axes, []).append(ref)
            parts = []
            for axes, refs in groups.items():
                if len(refs) > 1:
                    refs = [block.emit((kind, id(algebra)), lambda frame, *xs: op(xs), refs, axes)]
                parts += refs
            parts.sort(key=lambda r: len(r.axes))
        if len(parts) == 1:
            return parts[0]
        return block.broadcast((kind, id(algebra)), lambda frame, *xs: op(xs), parts)

    def counted(self, node: Count, below: list[Ref], block: Block, algebra: Algebra) -> Ref:
        """A counting constraint over formulas: what a counting quantifier folds, folded one by one."""
        accumulator = algebra.quantifier(node.kind, node.count)
        if not below:
            return self.literal(node.bounds[0] == 0, block, algebra)

        def count_true(frame: Frame, *values: Any) -> Any:
            states = [accumulator.fold(accumulator.lift(x.unsqueeze(0)), (0,)) for x in values]
            return accumulator.finish(reduce(accumulator.merge, states), len(node.children))

        return block.broadcast((node.label, id(algebra)), count_true, below)

    def wide(self, node: Expr, scope: Scope, algebra: Algebra) -> Task:
        """Of a conjunction or disjunction of many formulas, those that differ only in constants; and the others."""
        kind: Literal["and", "or"] = "and" if isinstance(node, And) else "or"
        parts: list[Ref] = []
        alone, groups = self.trees.stacked(node.children, self.stack)
        if not algebra.associative and len(groups) + len(alone) > 1:
            return [], list(node.children)
        for group in groups:
            label = f"{len(group.members)} formulas"
            block = Block(scope.block, label)
            inner = Scope(scope, block)
            self.parameters(group, inner, block.variable(self.axis(label), _pools.Stack(len(group.members)), NUMBER))
            truth = yield self.truth(group.pattern, inner, algebra)
            parts.append(self.close(block, Fold(block, truth, algebra.connective(kind)), scope.block))
        return parts, [node.children[i] for i in alone]

    def parameters(self, group: Stack, scope: Scope, along: Ref) -> None:
        """The constants in which stacked formulas differ, along the axis of the stack."""
        for name, kind, entries in group.parameters:
            runs = not entries.dtype.is_floating_point and bool((entries.diff() == 1).all())
            # Constants such as 0, 1, ..., 9 are a slice: what is looked up by them is a view.
            fn = partial(_consecutive, int(entries[0])) if runs else partial(_parameter, entries)
            scope.names[name] = scope.block.emit(("parameter", name), fn, [along], along.axes, kind, dense=runs)

    def aggregated(self, node: Aggregate, scope: Scope, algebra: Algebra) -> Task:
        """An aggregate where its value is wanted: what is uncertain in a term was drawn before."""
        if node.is_formula and algebra.statements == "axis" and self.is_soft(node):
            return (yield self.soft_difference(node, scope, algebra))
        return (yield self.aggregate(node, scope, algebra))

    # -- binders ----------------------------------------------------------------------------------------------------

    def binder(self, node: Expr, scope: Scope, algebra: Algebra) -> Task:
        """A quantifier or statement, evaluated as far out as its variables allow."""
        home = self.home(node, scope)
        needs = [self.name(n, home).slot for n in self.trees.names(node) if home.binds(n)]
        key = (id(node), id(algebra), *needs)
        if key not in home.block.memo:
            if isinstance(node, Quantifier):
                ref, _ = yield self.block(node.kind, node.count, *consecutive(node), home, algebra)
            else:
                assert isinstance(node, Let)
                ref = yield self.statement(node, home, algebra)
            home.block.memo[key] = ref
        return self.fetch(home.block.memo[key], home.block, scope.block)

    def home(self, node: Expr, scope: Scope) -> Scope:
        """The innermost scope that binds something the node needs; the node may only move if it cannot fail there."""
        if not self.trees.look(node).total:
            return scope
        names = self.trees.names(node)
        at = scope
        while at.parent is not None and at.names.keys().isdisjoint(names):
            at = at.parent
        return at

    def close(self, block: Block, reducer: Reducer, parent: Block) -> Ref:
        """Seal a block and make it a step of the one around it."""
        block.seal(reducer)

        def run(frame: Frame, *values: Any) -> Task:
            return run_block(block, frame.run, values, frame.sizes)

        args = [ref for ref, _ in block.inputs]
        return parent.emit(("block", id(block)), run, args, reducer.axes, suspends=True, inner=block)

    def block(
        self,
        kind: str,
        number: int | None,
        parts: Parts,
        body: Expr,
        scope: Scope,
        algebra: Algebra,
        outer: OuterFold | None = None,
    ) -> Task:
        """Quantifiers over a formula: their value, and whether it is a logarithm; ``outer`` folds the first ones."""
        block = Block(scope.block, kind)
        inner = Scope(scope, block)
        yield frame(self, block, inner, parts)
        usual = OuterFold(
            False, algebra.connectives_are_log, lambda _: algebra.quantifier(kind, number), algebra.powers(kind, number)
        )
        how = usual if outer is None else outer
        same = (id(algebra), kind, number, outer is not None, how.alone, how.is_log)
        how = how._replace(fold=partial(self.once, same, how.fold))
        factors = factorize(how.powers, body, block, inner, algebra, self.trees, self.stack)
        if factors is not None:
            return (yield self.multiplied(factors, how, block, inner, algebra)), how.is_log
        if outer is None:
            ref, is_log = (yield self.truth(body, inner, algebra)), algebra.connectives_are_log
        else:
            ref, is_log = yield self.value(body, inner, algebra)
        folded = self.close(block, Fold(block, ref, how.fold(is_log)), scope.block)
        return folded, is_log if how.is_log is None else how.is_log

    def once(self, key: Any, fold: Callable[[bool], Accumulator], is_log: bool) -> Accumulator:
        """One accumulator for all quantifiers that fold alike."""
        if (key, is_log) not in self.folds:
            self.folds[key, is_log] = fold(is_log)
        return self.folds[key, is_log]

    def value(self, formula: Expr, scope: Scope, algebra: Algebra, first: bool = False) -> Task:
        """The value of a formula that nothing but quantifiers stands before, and whether it is a logarithm."""
        outer = None
        if isinstance(formula, Quantifier) and formula.count is None:
            outer = algebra.outer(formula.kind, first)
        if outer is None:
            return (yield self.truth(formula, scope, algebra)), algebra.connectives_are_log
        assert isinstance(formula, Quantifier)
        parts, body = consecutive(formula, alone=outer.alone)
        return (yield self.block(formula.kind, None, parts, body, scope, algebra, outer))

    def multiplied(self, factors: Factors, how: OuterFold, block: Block, scope: Scope, algebra: Algebra) -> Task:
        """A quantifier that sums powers of products: contracted, or as the product of the powers of its factors."""
        refs: list[Ref] = []
        for group in factors.values():
            parts: list[Ref] = []
            for node, _ in group:
                parts.append((yield self.truth(node, scope, algebra)))
            sides = tuple([side for _, side in group])
            refs.append(block.broadcast(("factor", sides), partial(multiplied, sides), parts))
        powers = how.powers
        assert block.parent is not None and powers is not None
        if contractible(factors, powers):
            return self.close(block, Contract(block, refs, how.fold(False), powers), block.parent)
        lifted = [block.emit(("power",), lambda frame, x: powers.of_factor(x), [r], r.axes) for r in refs]
        lifted.sort(key=lambda r: len(r.axes))  # the smaller ones first
        whole = block.broadcast(("product",), lambda frame, *xs: reduce(torch.mul, xs), lifted)
        return self.close(block, Fold(block, whole, how.fold(False), lifted=True), block.parent)

    # -- statements -------------------------------------------------------------------------------------------------

    def statement(self, node: Let, scope: Scope, algebra: Algebra) -> Task:
        """``x := f(t) (body)``: bind what is certain, and range over the values of what is drawn."""
        if algebra.statements == "mode":
            inner = scope
            for name, value in zip(node.names, node.values, strict=True):
                ref = yield self.compile(value, inner, algebra)
                inner = Scope(inner, scope.block)
                inner.names[name] = ref
            return (yield self.truth(node.body, inner, algebra))
        block = Block(scope.block, "draw")
        inner = Scope(scope, block)
        pairs = self.draws(node)
        inner, weights = yield self.bind(pairs, inner, algebra)
        calls = {value: _tree.Name(name) for name, value in pairs if self.is_drawn(value)}
        block.label += " " + ", ".join(node.names)
        likely = self.possible_draws(weights, inner, algebra)
        guard = self.guard_of_draws(node, calls, inner)
        if guard is not None:
            ref = yield self.truth(guard, inner, CLASSICAL)
            weights.append(block.emit(("possible", id(algebra)), _certain(algebra), [ref], ref.axes))
            likely = ref if likely is None else self.joined("and", [ref, likely], block, CLASSICAL)
        inner.possible = likely
        truth = yield self.truth(node.body, inner, algebra)
        if not weights:
            return self.close(block, Result(truth), scope.block)
        joint = self.joined("and", [*weights, truth], block, algebra)
        return self.close(block, Fold(block, joint, algebra.draw()), scope.block)

    def bind(self, pairs: Sequence[tuple[str, Expr]], scope: Scope, algebra: Algebra) -> Task:
        block, inner = scope.block, scope
        weights: list[Ref] = []
        for name, value in pairs:
            inner = Scope(inner, block)
            if not self.is_drawn(value):
                inner.names[name] = yield self.compile(value, inner, algebra)
                continue
            if isinstance(value, Aggregate):
                inner, weight = yield self.drawn_aggregate(name, value, inner, algebra)
                weights.append(weight)
                continue
            assert isinstance(value, Call)
            args: list[Ref] = []
            for arg in value.children:
                ref = yield self.compile(arg, inner, algebra)
                args.append(ref)
            symbol = symbol_of(value, self.batch)
            assert isinstance(symbol, Function)
            values = _pools.Finite(symbol.result)
            drawn = block.variable(self.axis(name), values, values)
            weights.append(Application(value, block, self.batch, self.needs, algebra, drawn).result(args))
            inner.names[name] = drawn
        return inner, weights

    def guard_of_draws(self, node: Let, calls: dict[Expr, _tree.Name], scope: Scope) -> Expr | None:
        """What guards say of the values that a statement draws and divides by: those they rule out are left out."""
        guards: list[tuple[Expr, dict[str, Ref]]] = []
        block: Block | None = scope.block
        while block is not None:
            guards += block.guards
            block = block.parent
        if not guards or self.trees.look(node.body).total:
            return None
        drawn = {*node.names, *[name.name for name in calls.values()]}
        divisors = [n.children[1] for n in postorder(node.body) if isinstance(n, _tree.Arith) and n.op in ("//", "mod")]
        if not any(self.trees.names(divisor) & drawn for divisor in divisors):
            return None
        meanings = {call: scope.meant(self.trees.names(call)) for call in calls}
        found: list[Expr] = []
        for guard, meant in guards:
            # A name that was bound again since then stands for something else.
            same: dict[Expr, Expr] = {c: calls[c] for c, known in meanings.items() if known.items() <= meant.items()}
            said = fold(partial(_replaced, same), guard)
            found += [said] if said != guard else []
        return And(*found) if found else None

    def possible(self, scope: Scope) -> Ref | None:
        """The values of drawn variables that the guards let through, in a scope where that is asked for."""
        at: Scope | None = scope
        while at is not None and at.possible is None:
            at = at.parent
        return None if at is None or at.possible is None else self.fetch(at.possible, at.block, scope.block)

    def draws(self, node: Let) -> list[tuple[str, Expr]]:
        """What a statement binds, where the arguments of neural functions are drawn before they are used."""
        found: list[tuple[str, Expr]] = []
        for name, value in zip(node.names, node.values, strict=True):
            before, remains = draw_first(value, self.is_drawn, self.numbers)
            found += [*before, (name, remains)]
            self._draw(before)
        return found

    def _draw(self, draws: list[tuple[str, Expr]]) -> None:
        for name, call in draws:
            self.trees.bound.add(name)
            self._written[_tree.Name(name)] = self.written(call)

    def written(self, node: T) -> T:
        """A term as the user wrote it, with the calls of neural functions that were taken out of it; for messages."""
        return cast(T, fold(partial(_replaced, self._written), node)) if self._written else node

    def is_drawn(self, term: Expr) -> bool:
        if isinstance(term, Aggregate):
            return not term.is_formula and self.is_soft(term)
        if not isinstance(term, Call):
            return False
        return isinstance(symbol_of(term, self.batch), Function) and is_draw(self.batch.meaning(term.name))

    def drawn(self, node: Expr) -> Let | None:
        """An atom whose terms call neural functions, as the statement that draws their values first."""
        if not isinstance(node, Compare) and not (
            isinstance(node, Call) and node.name in self.batch.signature.predicates
        ):
            return None
        before, remains = draw_first(node, self.is_drawn, self.numbers)
        if not before:
            return None
        self._draw(before)
        return Let(before, remains)


def consecutive(node: Quantifier, *, alone: bool = False) -> tuple[Parts, Expr]:
    """A quantifier and those of its kind that follow at once, which are one block; and the formula they bind."""
    levels = [node]
    variables = len(node.names)
    while not alone and node.count is None and isinstance(inner := levels[-1].body, Quantifier):
        variables += len(inner.names)
        if inner.kind != node.kind or variables > LARGEST_BLOCK:
            break
        levels.append(inner)
    return [(level.groups, level.guard) for level in levels], levels[-1].body


def _replaced(new: dict[Expr, Expr], node: Expr, children: tuple[Expr, ...]) -> Expr:
    rebuilt = node.with_children(children)
    return new.get(rebuilt, rebuilt)


def _certain(algebra: Algebra) -> Any:
    return lambda frame, x: algebra.atom(x, "bool", frame.run.dtype(algebra))


def _consecutive(first: int, frame: Frame, along: slice) -> slice:
    return slice(along.start + first, along.stop + first)


def _parameter(entries: torch.Tensor, frame: Frame, along: slice) -> Any:
    return cut(frame.run.keep(("parameter", id(entries)), lambda: entries.to(frame.run.device)), along)
