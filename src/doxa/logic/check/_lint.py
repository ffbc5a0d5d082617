"""Warnings: knowledge that is legal but hardly meant."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Protocol

from doxa.errors import KnowledgeWarning
from doxa.logic.check._linter import Ledger, Linter
from doxa.logic.check._sorts import shape, show
from doxa.logic.syntax._diagnostics import SHOWN, Diagnostic, Span
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._symbols import Signature, sorts_of
from doxa.logic.syntax._tree import Expr, Name


class Positioned(Protocol):
    """The tree of a statement that knows where its nodes stand in the text."""

    @property
    def tree(self) -> Expr: ...

    def span(self, node: Expr, about: str = "") -> Span | None: ...


class Places(Protocol):
    """Where the parts of a knowledge base stand in the text they came from; asked only about what is warned of."""

    def axiom(self, index: int) -> Positioned | None: ...

    def fact(self, index: int) -> Span | None: ...

    def declaration(self, name: str) -> Span | None: ...


def lint(kb: KnowledgeBase, places: Places | None = None) -> tuple[Diagnostic, ...]:
    """What a user would want to hear about a knowledge base that has no errors.

    Unused declarations and variables; variables that hide other names; comparisons and guards that always or never
    hold; antecedents that cannot hold; axioms that alone are a tautology or a contradiction; ``fresh`` beside the
    shared call; counts beyond the size of a sort; axioms and facts that are given twice, facts that contradict each
    other, and closed predicates without facts. Takes time linear in the knowledge base: large formulas are not judged,
    and the solver is asked a bounded number of questions. Diagnostics carry spans when it is known from which places of
    a text things came.

    >>> from doxa.logic import KnowledgeBase, propositions
    >>> a, b = propositions("a b")
    >>> for warning in lint(KnowledgeBase(idle=(a & b) >> a)):
    ...     print(warning)
    warning: in axiom 'idle': this axiom always holds, whatever the data are
        it teaches nothing: leave it out, or say what was meant
    """
    ledger = Ledger()
    found = _axioms(kb, ledger, places)
    found += _facts(kb, ledger, places)
    if kb.axioms or kb.facts:
        found += _unused(kb.signature, ledger, places)
    return tuple(found)


def warn_all(diagnostics: Iterable[Diagnostic], stacklevel: int = 3) -> None:
    """Warn of every diagnostic; by default at the line that called the caller of this function.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_all([Diagnostic("warning", "variable 'y' is not used")])
    >>> print(caught[0].message)
    warning: variable 'y' is not used
    """
    rendered = [d.render() for d in diagnostics]
    for text in rendered[:SHOWN]:
        warnings.warn(text, KnowledgeWarning, stacklevel=stacklevel)
    if len(rendered) > SHOWN:
        warnings.warn(f"... and {len(rendered) - SHOWN} more warnings", KnowledgeWarning, stacklevel=stacklevel)


def _axioms(kb: KnowledgeBase, ledger: Ledger, places: Places | None) -> list[Diagnostic]:
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
        positioned = None if places is None else places.axiom(index)
        if positioned is None:
            here = f"in axiom {axiom.name!r}: "
            found += [Diagnostic("warning", here + message, remedy) for _, message, remedy in said]
            found += [Diagnostic("warning", here + message, remedy) for message, remedy in general]
        else:
            said.clear()
            Linter(kb.signature, note, ledger).run(positioned.tree)
            found += [Diagnostic("warning", m, r, positioned.span(node, m)) for node, m, r in said]
            found += [Diagnostic("warning", m, r, positioned.span(positioned.tree)) for m, r in general]
        said.clear()
    return found


def _facts(kb: KnowledgeBase, ledger: Ledger, places: Places | None) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    first: dict[Expr, bool] = {}
    predicates = kb.signature.predicates
    said = {fact.atom.name for fact in kb.facts}
    for name in [n for n, p in predicates.items() if p.closed and n not in said and n in ledger.mentioned]:
        message = f"predicate {name!r} is closed and has no facts, so it is false of everything"
        remedy = f"give facts about it, or declare it open: pred {shape(predicates[name])}"
        found.append(Diagnostic("warning", message, remedy, None if places is None else places.declaration(name)))
    for index, fact in enumerate(kb.facts):
        if fact.weight != 1 and predicates[fact.atom.name].closed:
            message = f"the weight of {show(fact.atom)} has no effect: facts of a closed predicate are known"
            span = None if places is None else places.fact(index)
            found.append(Diagnostic("warning", message, "leave the weight out", span))
        ledger.mentioned.add(fact.atom.name)
        ledger.mentioned.update([a.name for a in fact.atom.children if isinstance(a, Name)])
        label = first.get(fact.atom)
        if label is None:
            first[fact.atom] = fact.label
            continue
        span = None if places is None else places.fact(index)
        if label != fact.label:
            message = f"{show(fact.atom)} is given both as true and as false"
            found.append(Diagnostic("warning", message, "leave one of the two facts out", span))
        else:
            found.append(Diagnostic("warning", f"the fact {show(fact.atom)} is given twice", "once is enough", span))
    return found


def _unused(signature: Signature, ledger: Ledger, places: Places | None) -> list[Diagnostic]:
    mentioned = ledger.mentioned
    spoken_of = mentioned | {sort.name for declaration in signature for sort in sorts_of(declaration)}
    spoken_of |= {signature.value_sorts[n].name for n in mentioned & signature.value_sorts.keys()}
    unused = [("sort", n) for n in signature.sorts if n not in spoken_of and n not in ("Int", "Real")]
    # The constants of a sort that variables range over are its objects when no data are given for it.
    unused += [
        ("constant", n)
        for n, c in signature.constants.items()
        if n not in mentioned and c.sort.name not in ledger.ranged
    ]
    unused += [("predicate", n) for n in signature.predicates if n not in mentioned]
    unused += [("function", n) for n in signature.functions if n not in mentioned]
    unused += [("data rows", n) for n in signature.rows if n not in mentioned]
    where: Callable[[str], Span | None] = (lambda name: None) if places is None else places.declaration
    return [
        Diagnostic(
            "warning",
            f"{kind} {name!r} {'are' if kind == 'data rows' else 'is'} declared but not used",
            None,
            where(name),
        )
        for kind, name in unused
    ]
