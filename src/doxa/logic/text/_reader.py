"""Putting a knowledge base together from the statements of one or more texts, and saying what is wrong in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from doxa.errors import KnowledgeError, visible
from doxa.logic.check._check import check_axiom, check_clause, check_declaration, check_fact, declare_definitions
from doxa.logic.check._lint import Located, Places, lint
from doxa.logic.syntax._define import Define, check_strata
from doxa.logic.syntax._diagnostics import BIDIRECTIONAL, Diagnostic, Span, describe, did_you_mean, nearest, raise_all
from doxa.logic.syntax._kb import Axiom, Fact, KnowledgeBase
from doxa.logic.syntax._symbols import Constant, Declaration, Function, Predicate, Rows, Signature, Sort
from doxa.logic.syntax._tree import Call, Expr, Not, postorder
from doxa.logic.text._builder import Builder, FactItem, FactsItem, IncludeItem, Item
from doxa.logic.text._csv import CsvFacts
from doxa.logic.text._grammar import Unexpected, run, table
from doxa.logic.text._lexer import END, Vocabulary, tokens
from doxa.logic.text._source import Source

Place = tuple[Source, int]
"""A statement: the source it stands in, and which of its statements it is."""


class Reader(Places):
    """Reads statements into declarations, axioms and facts, on top of those of a knowledge base if one is given."""

    def __init__(self, kb: KnowledgeBase | None = None) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.signature = Signature() if kb is None else kb.signature.copy()
        self.axioms: list[Axiom] = [] if kb is None else list(kb.axioms)
        self.facts: list[Fact] = [] if kb is None else list(kb.facts)
        # Where they stand; None for those of the given knowledge base.
        self._axiom_places: list[Place | None] = [None] * len(self.axioms)
        self._fact_places: list[Place | None] = [None] * len(self.facts)
        self._clause_places: dict[Define, Place] = {}
        self._declared: dict[str, Place] = {}
        self._incomplete = False  # were declarations lost, so that unknown names mean nothing?
        self._unknown_sorts: set[str] = set()
        self._sources: list[Source] = []
        self._builder = Builder()
        self._vocabulary = Vocabulary(self._builder.share)
        for node in postorder(*[a.formula for a in self.axioms], *[f.atom for f in self.facts]):
            self._builder.share(node)

    def read_text(self, text: str, file: str | None = None) -> KnowledgeBase:
        """The knowledge base of a text, or one error for everything that is wrong in it."""
        return self._read([Source(text, file)])

    def read_files(self, paths: Iterable[str | os.PathLike[str]]) -> KnowledgeBase:
        """The knowledge base of files, or one error for everything that is wrong in them."""
        sources: list[Source] = []
        for path in paths:
            try:
                sources.append(open_source(Path(path)))
            except KnowledgeError as error:
                self.diagnostics.append(Diagnostic.of(error))
        raise_all(self.diagnostics)
        return self._read(sources)

    def _read(self, sources: Iterable[Source]) -> KnowledgeBase:
        entries = list(self._gather(sources))
        self._declare_all(entries)
        self._define_all({item: place for place, item in reversed(entries) if isinstance(item, Define)})
        self._collect(entries)
        raise_all(self._sorted())
        return KnowledgeBase._trusted(self.signature, self.axioms, self.facts)

    def formula(self, text: str) -> Expr:
        """The formula of a text that consists of it."""
        source = Source(text)
        items = self._items(source)
        raise_all(self.diagnostics)
        item = items[0] if len(items) == 1 else None
        if not isinstance(item, Axiom) or source.statements[0][0].kind == "LSQB":
            wrong = source.statement(1) if len(items) > 1 else source.span(0, len(source.text))
            message = "one formula is wanted here"
            self.diagnostics.append(Diagnostic("error", message, "write a formula and nothing else", wrong))
        else:
            self._check_axiom(replace(item, name="axiom1"), (source, 0))
        raise_all(self.diagnostics)
        assert isinstance(item, Axiom)
        return item.formula

    def warnings(self, kb: KnowledgeBase) -> tuple[Diagnostic, ...]:
        """What is legal in the knowledge base but probably not meant."""
        found: list[Diagnostic] = []
        for source in self._sources:
            for match in BIDIRECTIONAL.finditer(source.text):
                message = f"{describe(match[0])} changes the order in which this line is shown"
                remedy = f"leave it out; inside quotation marks it is written {visible(match[0])}"
                found.append(Diagnostic("warning", message, remedy, source.span(match.start(), match.end())))
        return (*found, *lint(kb, self))

    # -- where things stand (for warnings) --------------------------------------------------------------------------

    def axiom(self, index: int) -> Located | None:
        place = self._axiom_places[index]
        return None if place is None else place[0].locate(place[1])

    def clause(self, clause: Define) -> Located | None:
        place = self._clause_places.get(clause)
        return None if place is None else place[0].locate(place[1])

    def fact(self, index: int) -> Span | None:
        place = self._fact_places[index]
        return None if place is None else place[0].statement(place[1])

    def declaration(self, name: str) -> Span | None:
        place = self._declared.get(name)
        return None if place is None else place[0].word(place[1], name)

    # -- statements -------------------------------------------------------------------------------------------------

    def _gather(self, sources: Iterable[Source]) -> Iterator[tuple[Place, Item]]:
        """Every statement, those of an included file where it is first included."""
        known: set[Path] = set()
        stack: list[Iterator[tuple[Place, Item]]] = []

        def enter(source: Source) -> None:
            if source.path not in known:
                self._sources.append(source)
                if source.path is not None:
                    known.add(source.path)
                stack.append(((source, i), item) for i, item in enumerate(self._items(source)) if item is not None)

        for root in sources:
            enter(root)
            while stack:
                entry = next(stack[-1], None)
                if entry is None:
                    stack.pop()
                elif isinstance(entry[1], IncludeItem):
                    (source, number), file = entry[0], entry[1].file
                    try:
                        enter(open_source(source.folder / file))
                    except KnowledgeError as error:
                        self._incomplete = True
                        self.diagnostics.append(Diagnostic.of(error, source.word(number, file)))
                else:
                    yield entry

    def _items(self, source: Source) -> list[Item | None]:
        """What each statement of a source says; None for those that cannot be parsed."""
        builder = self._builder
        found: list[Item | None] = []
        builder.items = found
        try:
            run(table(), tokens(source.text, self._vocabulary), builder)
        except (Unexpected, KnowledgeError):
            found.clear()
            for number, statement in enumerate(source.statements):
                try:
                    run(table(), [END if t.kind == "END" else self._vocabulary[t.text] for t in statement], builder)
                except (Unexpected, KnowledgeError):
                    found.append(None)
                    self.diagnostics.append(source.diagnose(number))
                    names = [t.kind == "NAME" for t in statement[:2]]
                    self._incomplete |= statement[0].declares or all(names)
        return found

    # -- declarations -----------------------------------------------------------------------------------------------

    def _declare_all(self, entries: list[tuple[Place, Item]]) -> None:
        declared = [(place, declaration) for place, item in entries if isinstance(item, list) for declaration in item]
        for place, declaration in declared:
            if isinstance(declaration, Sort):
                self._declare(place, declaration)
        for place, declaration in declared:
            if not isinstance(declaration, Sort) and not self._declare(place, _over(declaration, self._sort)):
                self._add(_over(declaration, self._intended_sort), place)
        for name in self._unknown_sorts:
            if self.signature.describe(name) is None:
                self.signature.add(Sort(name))  # it was reported, so its uses need not be

    def _declare(self, place: Place, declaration: Declaration) -> bool:
        """Check and add a declaration; False when something is wrong with it."""
        source, number = place
        fine = True

        def report(word: str, message: str, remedy: str | None) -> None:
            nonlocal fine
            fine = False
            if message.startswith("unknown sort"):
                if word in self._unknown_sorts:
                    return  # once is enough
                self._unknown_sorts.add(word)
            other = self._declared.get(word)
            if other is not None and "already" in message:
                message = f"{message} ({other[0].word(other[1], word).location})"
            span = source.word(number, word, last=word != declaration.name)
            self.diagnostics.append(Diagnostic("error", message, remedy, span))

        check_declaration(declaration, self.signature, report)
        if fine:
            self._add(declaration, place)
        elif isinstance(declaration, Sort) and isinstance(declaration.values, tuple):
            others = [v for v in dict.fromkeys(declaration.values) if v != declaration.name]
            values = tuple([v for v in others if self.signature.describe(v) is None])
            self._add(Sort(declaration.name, values), place)
        return fine

    def _add(self, declaration: Declaration, place: Place) -> None:
        """Add what can be added, so that one mistake is not reported wherever the name is used."""
        try:
            self.signature.add(declaration)
        except KnowledgeError:
            return
        self._declared.setdefault(declaration.name, place)
        if isinstance(declaration, Sort) and isinstance(declaration.values, tuple):
            for value in declaration.values:
                self._declared.setdefault(value, place)

    def _sort(self, name: str) -> Sort:
        return self.signature.sorts.get(name) or Sort(name)

    def _intended_sort(self, name: str) -> Sort:
        """The sort that an unknown name probably means."""
        if name not in self.signature.sorts and (near := nearest(name, self.signature.sorts)) is not None:
            return self.signature.sorts[near]
        return self._sort(name)

    # -- definitions ------------------------------------------------------------------------------------------------

    def _define_all(self, places: dict[Define, Place]) -> None:
        """Declare what is defined, and check the clauses and that none uses its own negation."""
        clauses = list(places)[::-1]  # in the order of the text
        self._clause_places = places
        before = len(self.diagnostics)

        def report(clause: Define, node: Expr, message: str, remedy: str | None) -> None:
            located = self.clause(clause)
            span = None if located is None else located[1](located[0], message)
            self.diagnostics.append(Diagnostic("error", message, remedy, span))

        symbols = {*self.signature.predicates, *self.signature.functions}
        declare_definitions(clauses, self.signature, report, symbols - self.signature.definitions.keys())
        for clause in clauses:
            self._declared.setdefault(clause.name, places[clause])
        self._incomplete |= len(self.diagnostics) > before
        for clause in clauses:
            self._check(clause, places[clause], partial(check_clause, signature=self.signature))
        if len(self.diagnostics) == before:
            check_strata(self.signature.definitions, report)

    # -- axioms and facts -------------------------------------------------------------------------------------------

    def _collect(self, entries: list[tuple[Place, Item]]) -> None:
        # Files of facts come first, because they declare constants.
        bulk = {place: self._read_csv(place, item) for place, item in entries if isinstance(item, FactsItem)}
        names: dict[str, Place | None] = dict.fromkeys([axiom.name for axiom in self.axioms if axiom.named])
        for place, item in entries:
            if isinstance(item, Axiom):
                if item.named and names.setdefault(item.name, place) != place:
                    self._name_twice(item.name, place, names[item.name])
                axiom = item if item.named else replace(item, name=f"axiom{len(self.axioms) + 1}")
                self.axioms.append(axiom)
                self._axiom_places.append(place)
                self._check_axiom(axiom, place)
            elif isinstance(item, FactItem):
                atom = item.formula.children[0] if isinstance(item.formula, Not) else item.formula
                checks = partial(check_fact, weight=item.weight, signature=self.signature)
                if self._check(item.formula, place, checks) and isinstance(atom, Call):
                    self.facts.append(Fact(atom, atom is item.formula, item.weight))
                    self._fact_places.append(place)
            elif isinstance(item, FactsItem):
                self.facts += bulk[place]
                self._fact_places += [place] * len(bulk[place])

    def _check_axiom(self, axiom: Axiom, place: Place) -> bool:
        checks = partial(check_axiom, axiom.name, weight=axiom.weight, signature=self.signature)
        return self._check(axiom.formula, place, checks)

    def _check(self, formula: Expr, place: Place, check: Callable[..., None]) -> bool:
        """Check a formula; when something is wrong, once more on a tree that knows its places in the text."""
        said: list[object] = []
        if not self._incomplete:
            check(formula, report=lambda *report: said.append(report))
        if said:
            tree, span = place[0].locate(place[1])

            def report(node: Expr, message: str, remedy: str | None) -> None:
                self.diagnostics.append(Diagnostic("error", message, remedy, span(node, message)))

            check(tree, report=report)
        return not said

    def _name_twice(self, name: str, place: Place, first: Place | None) -> None:
        where = "" if first is None else f" (the first: {first[0].word(first[1], name).location})"
        message = f"two axioms are named {name!r}{where}"
        self.diagnostics.append(Diagnostic("error", message, "give each its own name", place[0].word(place[1], name)))

    def _read_csv(self, place: Place, item: FactsItem) -> list[Fact]:
        source, number = place
        predicate = self.signature.predicates.get(item.predicate)
        if predicate is None:
            known = self.signature.describe(item.predicate)
            message = f"unknown predicate {item.predicate!r}" if known is None else f"{item.predicate!r} is {known}"
            remedy = did_you_mean(item.predicate, self.signature.predicates, "declare it: pred name(Sort, Sort)")
            self.diagnostics.append(Diagnostic("error", message, remedy, source.word(number, item.predicate)))
            self._incomplete = True
            return []
        reader = CsvFacts(predicate, self.signature, str(source.folder / item.file), self._builder.share)
        facts: list[Fact] = []
        try:
            facts = reader.read(read_file(source.folder / item.file), item.header)
        except KnowledgeError as error:
            self.diagnostics.append(Diagnostic.of(error, source.word(number, item.file)))
        self.diagnostics += reader.diagnostics
        self._incomplete |= not facts or bool(reader.diagnostics)
        return facts

    def _sorted(self) -> list[Diagnostic]:
        """What is wrong, in the order in which it stands in the texts."""
        order = {file: i for i, file in enumerate([source.file for source in self._sources])}

        def key(diagnostic: Diagnostic) -> tuple[int, int, int]:
            span = diagnostic.span
            return (len(order), 0, 0) if span is None else (order.get(span.file, len(order)), span.line, span.column)

        return sorted(dict.fromkeys(self.diagnostics), key=key)


def _over(declaration: Declaration, sort: Callable[[str], Sort]) -> Declaration:
    """The declaration with the sorts that its names of sorts stand for."""
    match declaration:
        case Constant():
            return replace(declaration, sort=sort(declaration.sort.name))
        case Predicate():
            return replace(declaration, sorts=tuple([sort(s.name) for s in declaration.sorts]))
        case Function(sorts=sorts, result=result):
            return replace(declaration, sorts=tuple([sort(s.name) for s in sorts]), result=sort(result.name))
        case Rows(fields=fields):
            return replace(declaration, fields=tuple([(name, sort(s.name), many) for name, s, many in fields]))
    return declaration


def open_source(path: Path) -> Source:
    """A file as a source; an error says why it cannot be read."""
    return Source(read_file(path), str(path))


def read_file(path: Path) -> str:
    """The text of a file; an error says why it cannot be read."""
    shown = repr(str(path) if len(str(path)) <= 200 else f"{str(path)[:197]}...")
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8-sig")
        if path.is_dir():
            raise KnowledgeError(f"{shown} is a folder; name a file in it")
        folder = path.parent
        near = nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else None
    except UnicodeDecodeError:
        raise KnowledgeError(f"{shown} is not text in UTF-8; save it as UTF-8") from None
    except KnowledgeError:
        raise
    except (OSError, ValueError) as error:  # a name that no file can have, or a file that may not be read
        reason = getattr(error, "strerror", None) or str(error)
        raise KnowledgeError(f"{shown} cannot be read: {reason}; check its name and its permissions") from None
    hint = f"did you mean {near!r}?" if near else "paths start from the folder of the file that names them"
    raise KnowledgeError(f"there is no file {shown}; {hint}")
