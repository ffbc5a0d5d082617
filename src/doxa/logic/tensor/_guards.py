"""Guards: lists of the instances that they let through, in place of the axes of their variables.

Known relations in a guard are joined: nothing of the size of the product of their sorts is made. What networks decide
is asked of the instances that are left.
"""

from __future__ import annotations

import torch

from doxa.logic.bind._meanings import Named, Table
from doxa.logic.syntax._node import Task
from doxa.logic.syntax._tree import And, Arith, Call, Expr, Field, Name, Not, Number, postorder
from doxa.logic.tensor import _pools
from doxa.logic.tensor._algebra import CLASSICAL
from doxa.logic.tensor._atoms import Application
from doxa.logic.tensor._block import Block, Scope
from doxa.logic.tensor._joined import Joined, Related
from doxa.logic.tensor._lists import CONNECTIVES, list_where
from doxa.logic.tensor._names import Names
from doxa.logic.tensor._pools import NUMBER, TRUTH, Ref


class Guards:
    """The guards of a frame, which wait until all variables that a join may use are bound."""

    def __init__(self, compiler: Names, block: Block, scope: Scope) -> None:
        self.compiler, self.block, self.scope = compiler, block, scope
        self._waiting: list[Expr] = []

    def add(self, guard: Expr) -> Task:
        for conjunct in _conjuncts(self.compiler, guard):
            self.block.guards.append((conjunct, self.scope.meant(self.compiler.trees.names(conjunct))))
        self._waiting += _flat(guard)
        if not any(self._is_relation(c) for c in self._waiting):
            yield self.apply()

    def apply(self) -> Task:
        """Make the lists of what waits. What may have no value sees only what those before it let through."""
        waiting, self._waiting = self._waiting, []
        some: list[Expr] = []
        for conjunct in waiting:
            if self._is_total(conjunct):
                some.append(conjunct)
                continue
            yield self._apply(some)
            yield self._each([conjunct])
            some = []
        yield self._apply(some)

    def _apply(self, waiting: list[Expr]) -> Task:
        """One list for all that is known, then one for each condition that is left."""
        relations = dict[int, Related | None]()
        for number, conjunct in enumerate(waiting):
            call = conjunct.children[0] if isinstance(conjunct, Not) else conjunct
            if self._is_relation(call):
                relations[number] = yield self._related(call, conjunct is not call)
        later = waiting
        if any(r is not None and not r.negated and r.variables for r in relations.values()):
            later = []
            joined: list[tuple[Expr, Related | None]] = []
            for number, conjunct in enumerate(waiting):
                related = relations.get(number)
                if related is None and not self._is_known(conjunct):
                    later.append(conjunct)
                else:
                    joined.append((conjunct, related))
            yield Joined(self.compiler, self.block, self.scope).build(joined)
        yield self._each(later)

    def _each(self, conjuncts: list[Expr]) -> Task:
        for conjunct in _conjuncts(self.compiler, And(*conjuncts)) if conjuncts else []:
            yield list_where(self.compiler, conjunct, self.block, self.scope)

    def _is_relation(self, node: Expr) -> bool:
        """Is it a relation whose tuples are listed, of terms that have a value everywhere?"""
        if not isinstance(node, Call) or not node.children or node.name not in self.compiler.batch.signature.predicates:
            return False
        if self._is_open(node.name):
            return False
        meaning = self.compiler.batch.meaning(node.name)
        if isinstance(meaning, Named):
            listed = not meaning.listed
        else:
            listed = isinstance(meaning, Table) and meaning.tensor.dtype == torch.bool
        return listed and all(_is_plain_term(arg) for arg in node.children)

    def _is_open(self, name: str) -> bool:
        """Is it defined, and not evaluated yet?"""
        batch = self.compiler.batch
        return name in batch.signature.definitions and name not in batch.symbols

    def _related(self, call: Expr, negated: bool) -> Task:
        """A listed relation of columns: of terms along one axis each, and of constants."""
        assert isinstance(call, Call)
        compiler, terms = self.compiler, list[Ref]()
        for arg in call.children:
            terms.append((yield compiler.compile(arg, self.scope, CLASSICAL)))
        refs, pools = Application(call, self.block, compiler.batch, compiler.needs, CLASSICAL).arguments(terms)
        if any(r.const is None and len(r.axes) != 1 for r in refs):
            return None
        if any(isinstance(pool, _pools.Own) for pool in pools):
            return None
        return Related(call, pools, refs, negated)

    def _is_known(self, node: Expr) -> bool:
        """Do data alone decide it, for each choice of variables that are positions along one axis each?"""
        batch = self.compiler.batch
        for inner in postorder(node):
            match inner:
                case Name() if self.scope.binds(inner.name):
                    ref = self.compiler.name(inner.name, self.scope)
                    if len(ref.axes) != 1 or ref.type in (TRUTH, NUMBER):
                        return False
                case Name() | Field() | Arith():
                    continue
                case Call() if self._is_open(inner.name):
                    return False
                case Call() if isinstance(batch.meaning(inner.name), Table | Named):
                    continue
                case _ if not isinstance(inner, CONNECTIVES):
                    return False
        return True

    def _is_total(self, node: Expr) -> bool:
        """Has it a truth value everywhere?"""
        predicates = self.compiler.batch.signature.predicates
        for inner in postorder(node):
            match inner:
                case Arith(op="+" | "-" | "*") | Name() | Field():
                    continue
                case Arith() if isinstance(divisor := inner.children[-1], Number) and divisor.value != 0:
                    continue
                case Call() if inner.name in predicates or isinstance(self.compiler.batch.meaning(inner.name), Table):
                    if not all(_is_plain_term(arg) for arg in inner.children):
                        return False
                case _ if not isinstance(inner, CONNECTIVES):
                    return False
        return True


def _flat(guard: Expr) -> list[Expr]:
    """The conjuncts of a conjunction, and of those in it, in order."""
    found: list[Expr] = []
    todo = [guard]
    while todo:
        node = todo.pop()
        if isinstance(node, And):
            todo += reversed(node.children)
        else:
            found.append(node)
    return found


def _is_plain_term(term: Expr) -> bool:
    return isinstance(term, Name | Number) or (isinstance(term, Field) and isinstance(term.children[0], Name))


def _conjuncts(compiler: Names, guard: Expr) -> list[Expr]:
    """A guard in pieces to apply one after the other: a later one sees only what the earlier ones let through."""
    if not isinstance(guard, And):
        return [guard]
    pieces: list[list[Expr]] = []
    for child in guard.children:
        known = compiler.trees.look(child)
        if pieces and known.total and known.names == compiler.trees.names(pieces[-1][0]):
            pieces[-1].append(child)
        else:
            pieces.append([child])
    return [And(*p) for p in pieces]
