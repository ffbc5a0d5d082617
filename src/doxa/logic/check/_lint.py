"""Warnings: knowledge that is legal but hardly meant."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from doxa.errors import KnowledgeWarning, users_line
from doxa.logic.check._checker import Checker, Report
from doxa.logic.check._judge import GRID, NODES, Judge
from doxa.logic.check._sorts import Kind, Many, shape, show
from doxa.logic.syntax._binders import Aggregate, Binder, Let, Quantifier
from doxa.logic.syntax._define import Define
from doxa.logic.syntax._diagnostics import SHOWN, Diagnostic, Span, describe, difference, lookalikes, mixed, nearest
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._symbols import REAL, Rows, Signature, Sort, sorts_of
from doxa.logic.syntax._tree import CONNECTIVES, And, Call, Compare, Expr, Field, Implies, Index, Name

_doubt = partial(Diagnostic, "warning")
Located = tuple[Expr, Callable[[Expr, str], Span]]
"""The tree of a statement, and where in the text its nodes stand: ``span(node, message about it)``."""


class Places:
    """Where the parts of a knowledge base stand in the text they came from; nowhere when it was built in Python."""

    def axiom(self, index: int) -> Located | None:
        return None

    def fact(self, index: int) -> Span | None:
        return None

    def clause(self, clause: Define) -> Located | None:
        return None

    def declaration(self, name: str) -> Span | None:
        return None


def lint(kb: KnowledgeBase, places: Places | None = None) -> tuple[Diagnostic, ...]:
    """What a user would want to hear about a knowledge base that has no errors, with spans where places are known.

    Takes time linear in the knowledge base: large formulas are not judged, and the solver is asked a bounded number of
    questions.
    """
    ledger, places = Ledger(), places or Places()
    found = _definitions(kb, ledger, places)
    found += _axioms(kb, ledger, places)
    found += _facts(kb, ledger, places)
    found += _alike(kb, ledger, places)
    if kb.axioms or kb.facts:
        found += _unused(kb.signature, ledger, places)
    return tuple(found)


def warn_all(diagnostics: Iterable[Diagnostic]) -> None:
    """Warn of every diagnostic, at the user's line."""
    rendered = [d.render() for d in diagnostics]
    more = [f"... and {len(rendered) - SHOWN} more warnings"] if len(rendered) > SHOWN else []
    for text in (*rendered[:SHOWN], *more):
        warnings.warn(text, KnowledgeWarning, stacklevel=users_line())


def _definitions(kb: KnowledgeBase, ledger: Ledger, places: Places) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for clause in kb.definitions:
        said: list[tuple[Expr, str, str | None]] = []
        Linter(kb.signature, lambda *doubt: said.append(doubt), ledger).run(clause)  # noqa: B023
        located = places.clause(clause) if said else None
        if located is None:
            found += [_doubt(f"in the definition of {clause.name!r}: {message}", remedy) for _, message, remedy in said]
        else:
            said.clear()
            Linter(kb.signature, lambda *doubt: said.append(doubt), ledger).run(located[0])  # noqa: B023
            found += [_doubt(message, remedy, located[1](node, message)) for node, message, remedy in said]
        ledger.mentioned.add(clause.name)  # what is defined may be there to be asked about
    return found


def _axioms(kb: KnowledgeBase, ledger: Ledger, places: Places) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    said: list[tuple[Expr, str, str | None]] = []
    first: dict[Expr, str] = {}

    def note(node: Expr, message: str, remedy: str | None) -> None:
        said.append((node, message, remedy))

    for index, axiom in enumerate(kb.axioms):
        Linter(kb.signature, note, ledger).run(axiom.formula)
        general: list[tuple[str, str]] = []
        if first.setdefault(axiom.formula, axiom.name) != axiom.name:
            general.append((f"this axiom says the same as {first[axiom.formula]!r}", "leave one of them out"))
        if axiom.weight == 0 and not axiom.learnable:
            general.append(("this axiom has weight 0, so it has no effect", "leave it out, or give it a weight"))
        if not said and not general:
            continue
        located = places.axiom(index)
        if located is None:
            here = f"in axiom {axiom.name!r}: "
            found += [_doubt(here + message, remedy) for _, message, remedy in said]
            found += [_doubt(here + message, remedy) for message, remedy in general]
        else:
            said.clear()
            tree, span = located
            Linter(kb.signature, note, ledger).run(tree)
            found += [_doubt(m, r, span(node, m)) for node, m, r in said]
            found += [_doubt(m, r, span(tree, "")) for m, r in general]
        said.clear()
    return found


def _facts(kb: KnowledgeBase, ledger: Ledger, places: Places) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    first: dict[Expr, bool] = {}
    predicates = kb.signature.predicates
    said = {fact.atom.name for fact in kb.facts}
    for name in [n for n, p in predicates.items() if p.closed and n not in said and n in ledger.mentioned]:
        message = f"predicate {name!r} is closed and has no facts, so it is false of everything"
        remedy = f"give facts about it, or declare it open: pred {shape(predicates[name])}"
        found.append(_doubt(message, remedy, places.declaration(name)))
    for index, fact in enumerate(kb.facts):
        atom = fact.atom
        if fact.weight != 1 and predicates[atom.name].closed:
            message = f"the weight of {show(atom)} has no effect: facts of a closed predicate are known"
            found.append(_doubt(message, "leave the weight out", places.fact(index)))
        if atom not in first:
            first[atom] = fact.label
        elif first[atom] == fact.label:
            found.append(_doubt(f"the fact {show(atom)} is given twice", "once is enough", places.fact(index)))
        else:
            message = f"{show(atom)} is given both as true and as false"
            found.append(_doubt(message, "leave one of the two facts out", places.fact(index)))
        ledger.mentioned.update([atom.name, *[a.name for a in atom.children if isinstance(a, Name)]])
    return found


def _alike(kb: KnowledgeBase, ledger: Ledger, places: Places) -> list[Diagnostic]:
    """Names that look like another, or that mix letters of different scripts that look alike."""
    names = dict.fromkeys([*kb.signature.names(), *sorted(ledger.bound), *[a.name for a in kb.axioms if a.named]])
    where = places.declaration
    found: list[Diagnostic] = []
    for name, other in lookalikes(names):
        message = f"{name!r} and {other!r} look alike, but are different names: {difference(name, other)}"
        found.append(_doubt(message, "write them with the same letters", where(name) or where(other)))
    for name in [n for n in names if not n.isascii()]:
        if strange := mixed(name):
            listed = ", ".join([describe(c) for c in dict.fromkeys(strange)])
            message = f"{name!r} is written in Latin letters, except for some that look so: {listed}"
            found.append(_doubt(message, "write it with letters of one script", where(name)))
    return found


def _unused(signature: Signature, ledger: Ledger, places: Places) -> list[Diagnostic]:
    spoken_of = ledger.mentioned | {sort.name for declaration in signature for sort in sorts_of(declaration)}
    spoken_of |= {signature.value_sorts[n].name for n in ledger.mentioned & signature.value_sorts.keys()}
    # The constants of a sort that variables range over are its objects when no data are given for it.
    objects = {n for n, c in signature.constants.items() if c.sort.name in ledger.ranged}
    declared: list[tuple[str, Iterable[str], set[str]]] = [
        ("sort {!r} is", signature.sorts, spoken_of | {"Int", "Real"}),
        ("constant {!r} is", signature.constants, ledger.mentioned | objects),
        ("predicate {!r} is", signature.predicates, ledger.mentioned),
        ("function {!r} is", signature.functions, ledger.mentioned),
        ("data rows {!r} are", signature.rows, ledger.mentioned),
    ]
    return [
        _doubt(f"{kind.format(name)} declared but not used", None, places.declaration(name))
        for kind, names, used in declared
        for name in names
        if name not in used
    ]


# --- one formula: the walk of the static check once more, looking at what is legal but hardly meant ---------------

VERDICT = {True: "always holds", False: "never holds"}


@dataclass
class Ledger:
    """What the linting of many formulas shares: the judge, and which names they speak of."""

    judge: Judge = field(default_factory=Judge)
    mentioned: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)  # names of variables
    ranged: set[str] = field(default_factory=set)
    """Sorts that variables range over: their constants are used, even when none is named."""


class Linter(Checker):
    """A check that reports doubts in place of mistakes; the formula is supposed to be free of those."""

    def __init__(self, signature: Signature, warn: Report, ledger: Ledger) -> None:
        super().__init__(signature, warn)
        self.ledger = ledger
        self.judged = False
        """Was anything found that always or never holds? Then what follows from it is not worth a word."""
        self.used: set[str] = set()
        self.shadows: list[set[str]] = []
        self.fresh: dict[tuple[str, tuple[Expr, ...]], Expr] = {}
        self.kept: set[tuple[str, tuple[Expr, ...]]] = set()
        self.prefix: list[Quantifier | Let] = []
        self.sizes: dict[int, int] = {}

    def say(self, node: Expr, message: str, remedy: str | None) -> None:
        return

    def warn(self, node: Expr, message: str, remedy: str | None) -> None:
        super().say(node, message, remedy)

    def run(self, root: Expr) -> None:
        self.prefix = prefix_of(root, self.signature)
        super().run(root)
        if not self.prefix and not isinstance(root, Define):
            self.judge_axiom(root)
        for key, node in self.fresh.items():
            if key in self.kept:
                message = f"{show(node)} is drawn anew, while {show(Call(*key))} in the same formula is shared"
                self.warn(node, message, "write fresh at both, or at none; both forms are rarely meant together")

    # -- what always or never holds ----------------------------------------------------------------------------------

    def meaning(self, node: Expr) -> Kind | int:
        """What a term is in the present scope, for judging a formula."""
        signature = self.signature
        if isinstance(node, Name):
            name = node.name
            if name in self.scope:
                return self.scope[name]
            if name in signature.constants:
                return signature.constants[name].sort
            values = signature.value_sorts[name].values if name in signature.value_sorts else None
            return values.index(name) if isinstance(values, tuple) and len(values) <= GRID else None
        if isinstance(node, Call):
            return signature.functions[node.name].result if node.name in signature.functions else None
        if isinstance(node, Field):
            base = self.meaning(node.children[0]) if isinstance(node.children[0], Name) else None
            for name, sort, many in base.fields if isinstance(base, Rows) else ():
                if name == node.name:
                    return Many(sort) if many else sort
        if isinstance(node, Index) and isinstance(node.children[0], Field):
            base = self.meaning(node.children[0])
            return base.sort if isinstance(base, Many) else None
        return None

    def connective(self, node: Expr) -> Kind:
        size = 1 + sum([self.sizes.get(id(c), 1) for c in node.children])
        self.sizes[id(node)] = min(size, NODES + 1)
        return super().connective(node)

    def verdict(self, node: Expr) -> bool | None:
        """What is known of a formula, if that is not said already and it is not too large."""
        if self.judged or self.sizes.get(id(node), 1) > NODES:
            return None
        return self.ledger.judge.verdict(node, self.meaning)

    def compare(self, node: Expr) -> Kind:
        kind = super().compare(node)
        verdict = self.ledger.judge.verdict(node, self.meaning)
        if verdict is not None:
            self.judged = True
            self.warn(node, f"{show(node)} {VERDICT[verdict]}", self.ranges(node))
        return kind

    def ranges(self, node: Expr) -> str:
        """Why: the values of the terms that a comparison speaks of."""
        stack: list[Expr] = [node]
        known: dict[str, None] = {}
        while stack and len(known) < 4:
            term = stack.pop()
            sort = self.meaning(term)
            if isinstance(sort, Sort) and isinstance(sort.values, range):
                known[f"{show(term)} is one of {sort.values[0]}..{sort.values[-1]}"] = None
            elif not isinstance(term, Call):
                stack += reversed(term.children)
        return "; ".join(known) or "both sides are known before any data"

    def implies(self, node: Expr) -> Kind:
        kind = self.connective(node)
        antecedent = node.children[0]
        if self.verdict(antecedent) is False:
            self.judged = True
            message = f"the antecedent {show(antecedent)} never holds"
            self.warn(antecedent, message, "the implication says nothing: change its left side")
        return kind

    def judge_axiom(self, matrix: Expr) -> None:
        """Judge a whole axiom by the formula below its quantifiers, which must hold (or fail) for all values alike."""
        if self.sizes.get(id(matrix), 1) > NODES:
            return
        for binder in reversed(self.prefix):
            if isinstance(binder, Quantifier) and binder.guard is not None:
                matrix = (Implies if binder.kind == "forall" else And)(binder.guard, matrix)
        if (verdict := self.verdict(matrix)) is None:
            return
        empty = self.may_be_empty("exists" if verdict else "forall")
        if verdict and empty:
            return  # it says that there is something
        self.judged = True
        message = f"this axiom {VERDICT[verdict]}, {f'unless {empty} is empty' if empty else 'whatever the data are'}"
        remedy = "it teaches nothing: leave it out, or" if verdict else "it contradicts itself:"
        self.warn(self.root, message, f"{remedy} say what was meant")

    def may_be_empty(self, kind: str) -> str:
        """What the outermost quantifiers of a kind range over, apart from finite sorts; in words."""
        groups = [g for b in self.prefix if isinstance(b, Quantifier) and b.kind == kind for g in b.groups]
        ranges = [show(g.domain) if g.domain is not None else g.sort for g in groups]
        return " or ".join([r for r in dict.fromkeys(ranges) if r and not self.signature.sorts.get(r, REAL).size])

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, node: Name) -> Kind:
        self.used.add(node.name)
        if node.name not in self.scope:
            self.ledger.mentioned.add(node.name)
        return super().name(node)

    def call(self, node: Expr) -> Kind:
        name, fresh = node.label
        self.ledger.mentioned.add(name)
        if fresh:
            self.fresh.setdefault((name, node.children), node)
        else:
            self.kept.add((name, node.children))
        return super().call(node)

    def universe(self, node: Expr, name: str) -> Kind:
        self.ledger.mentioned.add(name)
        self.ledger.ranged.add(name)
        return super().universe(node, name)

    def element(self, domain: Expr, variable: str) -> Kind:
        if isinstance(domain, Name) and domain.name not in self.scope:
            name = domain.name
            self.ledger.mentioned.add(name)
            if name not in self.signature.rows and (near := nearest(name, self.signature.rows)) is not None:
                self.warn(domain, f"data rows {name!r} are not declared, but {near!r} are", f"did you mean {near!r}?")
        return super().element(domain, variable)

    # -- binders -----------------------------------------------------------------------------------------------------

    def settled(self, node: Expr) -> bool:
        settled = super().settled(node)
        if settled and self.free is not None:
            self.used |= self.free[id(node)]
        return settled

    def open(self, node: Binder | Let) -> None:
        signature = self.signature
        for name in node.names:
            hidden = "a variable bound outside" if name in self.scope else None
            if name in signature.constants or name in signature.value_sorts or name in signature.rows:
                hidden = signature.describe(name)
            elif name in signature.predicates and not signature.predicates[name].sorts:
                hidden = "a proposition"
            if hidden is not None:
                self.warn(node, f"variable {name!r} hides {hidden}", "choose another name for the variable")
        self.ledger.bound.update(node.names)
        self.shadows.append(set())
        super().open(node)

    def bind(self, names: tuple[str, ...], kind: Kind) -> None:
        self.shadows[-1] |= self.used.intersection(names)  # uses of what these names meant outside
        self.used.difference_update(names)
        super().bind(names, kind)

    def shut(self, node: Binder | Let) -> None:
        counts_all = isinstance(node, Aggregate) and node.kind == "count" and node.guard is None
        for name in () if counts_all or isinstance(node, Define) else node.names:
            if name not in self.used and not name.startswith("_"):
                self.warn(node, f"variable {name!r} is not used", f"leave it out, or call it _{name} if it is meant")
        if isinstance(node, Quantifier):
            self.numbers(node)
            if node.guard is not None and (verdict := self.verdict(node.guard)) is not None:
                self.judged = True
                message = f"the guard {show(node.guard)} {VERDICT[verdict]}"
                self.warn(node.guard, message, "it selects all objects, or none: change it")
        if self.prefix and node is self.prefix[-1]:
            self.judge_axiom(node.body)
        self.used.difference_update(node.names)
        self.used |= self.shadows.pop()
        super().shut(node)

    def numbers(self, node: Quantifier) -> None:
        """Counts and samples against the number of objects there are."""
        sizes: list[int | None] = []
        for names, sort_name, sample in node.label[2]:
            sort = self.signature.sorts.get(sort_name)
            size = None if sort is None else sort.size
            if sample is not None and size is not None and sample > size:
                self.warn(
                    node, f"sample {sample} of {sort_name}, which has {size} values", "sample fewer, or leave it out"
                )
            size = sample if sample is not None else size
            sizes += [size] * len(names)
        if node.count is None:
            return
        there_are = math.inf if None in sizes else math.prod([s for s in sizes if s is not None])
        verdict = None
        if node.count == 0 and node.kind == "at least":
            verdict = True
        elif node.kind == "at most":
            verdict = True if node.count >= there_are else None
        elif node.count > there_are:
            verdict = False
        if verdict is not None:
            self.judged = True
            objects = "objects" if there_are == math.inf else f"{there_are} there are"
            self.warn(node, f"'{node.kind} {node.count}' of the {objects} {VERDICT[verdict]}", "change the number")

    rules: ClassVar[dict[type[Expr], Callable[[Any, Any], Kind]]] = {
        **Checker.rules,
        **dict.fromkeys(CONNECTIVES, connective),
        Call: call,
        Compare: compare,
        Implies: implies,
    }


def prefix_of(root: Expr, signature: Signature) -> list[Quantifier | Let]:
    """The leading ``forall``, ``exists`` and statements, while no name in them hides another."""
    prefix: list[Quantifier | Let] = []
    names: set[str] = set()
    node = root
    while isinstance(node, Let) or (isinstance(node, Quantifier) and node.kind in ("forall", "exists")):
        for name in node.names:
            if name in names or name in signature.constants or name in signature.value_sorts:
                return prefix
        names.update(node.names)
        prefix.append(node)
        node = node.body
    return prefix
