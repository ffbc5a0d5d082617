"""A knowledge base: declarations, axioms and facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, cast

from doxa.errors import KnowledgeError
from doxa.logic.check._check import check_axiom, check_clause, check_fact, declare_definitions
from doxa.logic.syntax._define import Define, check_strata
from doxa.logic.syntax._diagnostics import Diagnostic, did_you_mean, raise_all
from doxa.logic.syntax._display import formula_box, formula_latex, statements_box
from doxa.logic.syntax._node import Flat, flatten, rebuild
from doxa.logic.syntax._printer import escape, latex_number
from doxa.logic.syntax._symbols import Constant, Declaration, Function, Predicate, Rows, Signature, Sort, literal
from doxa.logic.syntax._tree import Call, Expr, Name, Not, as_formula, intern
from doxa.logic.syntax._words import quote


@dataclass(frozen=True)
class Axiom:
    """A named formula with a weight; ``learnable`` weights start at ``weight`` and become parameters.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> print(Axiom("rule", a >> b, weight=0.5))
    [rule, weight 0.5] a -> b
    """

    name: str
    formula: Expr
    weight: float = 1.0
    learnable: bool = False
    named: bool = True
    """Whether the name was given, or made up from the axiom's place (such an axiom prints without it)."""

    def __str__(self) -> str:
        return self.header + str(self.formula)

    def _repr_html_(self) -> str:
        return formula_box(self.formula, self.header)

    def _repr_latex_(self) -> str:
        return formula_latex(self.formula)

    @property
    def header(self) -> str:
        """``[name, weight 0.5] ``, or as much of it as there is to say."""
        return header(self.name if self.named else None, self.weight, self.learnable)


@dataclass(frozen=True)
class Fact:
    """A ground atom that is labelled true or false.

    About a symbol that a network is bound to, a fact is a label, and ``weight`` says how much it counts in the loss.
    About any other symbol it is known, whatever its weight.

    >>> from doxa.logic import Call, Name
    >>> print(Fact(Call("smokes", (Name("bob"),)), False))
    fact !smokes(bob)
    """

    atom: Call
    label: bool = True
    weight: float = 1.0

    @property
    def literal(self) -> Expr:
        """The atom, or its negation."""
        return self.atom if self.label else Not(self.atom)

    @property
    def args(self) -> tuple[str | int | float, ...]:
        """What the fact is about: names and numbers."""
        return tuple([a.name if isinstance(a, Name) else cast(float, literal(a)) for a in self.atom.children])

    def __str__(self) -> str:
        return f"fact {header(None, self.weight)}{self.literal}"

    def _repr_html_(self) -> str:
        return formula_box(self.literal, f"fact {header(None, self.weight)}")


class KnowledgeBase:
    """Declarations, axioms and facts; every formula in it is checked, and equal subformulas are one object.

    Declarations used in the formulas are found by themselves; further ones are given first. Formulas given without a
    keyword are axioms without a name.

    >>> from doxa.logic import Predicate, Sort, forall, variables
    >>> Person = Sort("Person")
    >>> friends = Predicate("friends", (Person, Person))
    >>> x, y = variables("x y", Person)
    >>> kb = KnowledgeBase(symmetry=forall(x, y)(friends(x, y) >> friends(y, x)))
    >>> print(kb)
    sort Person
    pred friends(Person, Person)
    [symmetry] forall x, y: Person. friends(x, y) -> friends(y, x)
    >>> kb["symmetry"].weight, len(kb), "symmetry" in kb
    (1.0, 1, True)
    """

    signature: Signature
    axioms: tuple[Axiom, ...]
    facts: tuple[Fact, ...]

    def __init__(self, *parts: Declaration | Axiom | Fact | Expr, **axioms: Expr) -> None:
        signature = Signature()
        clauses = [p for p in parts if isinstance(p, Define)]
        said = [p for p in parts if isinstance(p, Axiom | Expr) and not isinstance(p, Define)]
        rules = [p if isinstance(p, Axiom) else Axiom("", p, named=False) for p in said]
        rules += [Axiom(name, formula) for name, formula in axioms.items()]
        facts = [p for p in parts if isinstance(p, Fact)]
        for part in parts:
            if isinstance(part, Declaration):
                signature.declare(part)
            elif not isinstance(part, Axiom | Fact | Expr):
                raise TypeError(
                    f"cannot put {part!r} of type {type(part).__name__} into a knowledge base; wanted declarations, "
                    "axioms, facts and formulas"
                )
        signature.declare_used(*clauses, *[a.formula for a in rules], *[f.atom for f in facts])
        self._check_and_share(signature, rules, facts, clauses)

    @classmethod
    def from_parts(cls, signature: Signature, axioms: Iterable[Axiom], facts: Iterable[Fact] = ()) -> KnowledgeBase:
        """A knowledge base whose declarations are already together.

        >>> from doxa.logic import Call, Predicate
        >>> from doxa.logic.syntax._symbols import Signature
        >>> signature = Signature()
        >>> signature.add(Predicate("rain"))
        >>> print(KnowledgeBase.from_parts(signature, [Axiom("wet", Call("rain"))]))
        pred rain
        [wet] rain
        """
        kb = object.__new__(cls)
        kb._check_and_share(signature, axioms, facts)
        return kb

    @classmethod
    def _trusted(cls, signature: Signature, axioms: Iterable[Axiom], facts: Iterable[Fact]) -> KnowledgeBase:
        """A knowledge base of parts that are checked and shared already."""
        kb = object.__new__(cls)
        kb._assemble(signature, axioms, facts)
        return kb

    def _check_and_share(
        self, signature: Signature, axioms: Iterable[Axiom], facts: Iterable[Fact], clauses: Iterable[Define] = ()
    ) -> None:
        table: dict[Expr, Expr] = {}
        new = [cast(Define, intern(c, table)) for c in clauses]
        axioms = [replace(a, formula=intern(as_formula(a.formula), table)) for a in axioms]
        facts = [replace(f, atom=cast(Call, intern(f.atom, table))) for f in facts]
        diagnostics: list[Diagnostic] = []

        def report(what: object, node: Expr, message: str, remedy: str | None) -> None:
            shown = str(what) if len(str(what)) <= 200 else str(what)[:197] + "..."
            diagnostics.append(Diagnostic("error", f"{message}, in: {shown}", remedy))

        declare_definitions(new, signature, report)
        for clause in new:
            check_clause(clause, signature, partial(report, clause))
        if not diagnostics:
            check_strata(signature.definitions, report)
        for axiom in axioms:
            check_axiom(axiom.name, axiom.formula, axiom.weight, signature, partial(report, axiom))
        for fact in facts:
            check_fact(fact.literal, fact.weight, signature, partial(report, fact))
        raise_all(diagnostics)
        self._assemble(signature, axioms, facts)

    def _assemble(self, signature: Signature, axioms: Iterable[Axiom], facts: Iterable[Fact]) -> None:
        self.signature = signature
        self.axioms = tuple(name_all(axioms))
        self.facts = tuple(facts)
        self._by_name = {a.name: a for a in self.axioms}

    @property
    def definitions(self) -> tuple[Define, ...]:
        """The clauses of every definition, those of one symbol together.

        >>> from doxa.logic import parse
        >>> [str(clause) for clause in parse("pred a, b; define c := a; define c := !b").definitions]
        ['define c := a', 'define c := !b']
        """
        return tuple([cast(Define, clause) for own in self.signature.definitions.values() for clause in own])

    def __getitem__(self, name: str) -> Axiom:
        if (axiom := self._by_name.get(name)) is not None:
            return axiom
        known = ", ".join(list(self._by_name)[:8]) or "none"
        raise KeyError(f"no axiom {name!r}; {did_you_mean(name, self._by_name, f'there are: {known}')}")

    @cached_property
    def _labels(self) -> dict[tuple[str, tuple[str | int | float, ...]], bool]:
        """The label of every atom that has a fact; the first fact about it counts."""
        return {(f.atom.name, f.args): f.label for f in reversed(self.facts)}

    def known(self, predicate: str, args: tuple[str | int | float, ...] = ()) -> bool | None:
        """Is an atom true, by a fact, or false, by a fact or because the predicate is closed? None where it is open.

        >>> from doxa.logic import parse
        >>> kb = parse("sort C = {cat, pet}; closed pred below(C, C); pred on(C); fact below(cat, pet); fact on(pet)")
        >>> [kb.known("below", ("cat", "pet")), kb.known("below", ("pet", "cat")), kb.known("on", ("cat",))]
        [True, False, None]
        """
        label = self._labels.get((predicate, args))
        symbol = self.signature.predicates.get(predicate)
        return False if label is None and symbol is not None and symbol.closed else label

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Axiom]:
        return iter(self.axioms)

    def __len__(self) -> int:
        return len(self.axioms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KnowledgeBase):
            return NotImplemented
        return (self.signature, self.axioms, self.facts) == (other.signature, other.axioms, other.facts)

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: KnowledgeBase) -> KnowledgeBase:
        """The knowledge of both; what both declare must agree."""
        if not isinstance(other, KnowledgeBase):
            return NotImplemented
        clauses = (*self.definitions, *other.definitions)
        parts = (*self.signature, *other.signature, *clauses, *self.axioms, *other.axioms, *self.facts, *other.facts)
        return KnowledgeBase(*parts)

    def __reduce__(self) -> tuple[Callable[..., KnowledgeBase], tuple[Any, ...]]:
        # One flat table for all formulas, so that what they share stays shared.
        flat, places = flatten([*[a.formula for a in self.axioms], *[f.atom for f in self.facts]])
        axioms = [(a.name, a.weight, a.learnable, a.named) for a in self.axioms]
        return _unpickle, (self.signature, axioms, [(f.label, f.weight) for f in self.facts], flat, places)

    def __copy__(self) -> KnowledgeBase:
        return KnowledgeBase._trusted(self.signature.copy(), self.axioms, self.facts)

    def __deepcopy__(self, memo: dict[int, Any]) -> KnowledgeBase:
        return self.__copy__()  # trees never change, so they need no copy

    def __repr__(self) -> str:
        return f"<KnowledgeBase of {len(self.axioms)} axioms and {len(self.facts)} facts>"

    def __str__(self) -> str:
        return self._text(str)

    def unicode(self) -> str:
        """The knowledge base with mathematical symbols; parses back to the same knowledge base.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> print(KnowledgeBase(rule=a >> ~b).unicode())
        pred a
        pred b
        [rule] a → ¬b
        """
        return self._text(Expr.unicode)

    def _repr_html_(self) -> str:
        return statements_box(repr(self).strip("<>"), self._lines(Expr.unicode))

    def _repr_latex_(self) -> str:
        return self.latex()

    def _text(self, printer: Callable[[Expr], str]) -> str:
        """One statement a line: declarations, definitions, facts, axioms."""
        return "\n".join(self._lines(printer))

    def _lines(self, printer: Callable[[Expr], str]) -> list[str]:
        lines = [*declarations(self.signature), *map(printer, self.definitions)]
        lines += [f"fact {header(None, f.weight)}{printer(f.literal)}" for f in self.facts]
        for axiom in self.axioms:
            text = printer(axiom.formula)
            # A line that begins with a minus would go on with the line before it.
            lines.append(axiom.header + text if axiom.header or not text.startswith("-") else f"({text})")
        return lines

    def latex(self) -> str:
        r"""The definitions, facts and axioms as one display for a paper (``amsmath``).

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> print(KnowledgeBase(rule=a >> ~b).latex())
        \begin{align*}
          & \mathrm{a} \rightarrow \neg \mathrm{b} && \text{rule}
        \end{align*}
        """
        lines = [display(clause.latex(), None, 1.0) for clause in self.definitions]
        lines += [display(f.literal.latex(), None, f.weight) for f in self.facts]
        lines += [display(a.formula.latex(), a.name if a.named else None, a.weight, a.learnable) for a in self.axioms]
        return "\n".join([r"\begin{align*}", " \\\\\n".join(lines), r"\end{align*}"])


def name_all(axioms: Iterable[Axiom]) -> list[Axiom]:
    """Axioms without a name are named after their place; two of one name are an error."""
    rules = list(axioms)
    taken: set[str] = set()
    for axiom in rules:
        if axiom.named and axiom.name in taken:
            raise KnowledgeError(f"two axioms are named {axiom.name!r}; give each its own name")
        if axiom.named:
            taken.add(axiom.name)
    for i, axiom in enumerate(rules):
        if not axiom.named:
            name = f"axiom{i + 1}"
            while name in taken:
                name += "_"
            rules[i] = axiom if axiom.name == name else replace(axiom, name=name)
    return rules


def _unpickle(
    signature: Signature,
    axioms: list[tuple[str, float, bool, bool]],
    facts: list[tuple[bool, float]],
    flat: Flat,
    places: list[int],
) -> KnowledgeBase:
    nodes = rebuild(flat)
    roots = iter([nodes[i] for i in places])
    rules = [Axiom(name, next(roots), weight, learnable, named) for name, weight, learnable, named in axioms]
    return KnowledgeBase._trusted(signature, rules, [Fact(cast(Call, next(roots)), *fact) for fact in facts])


# --- what stands around formulas, printed ---------------------------------------------------------------------------


def declarations(signature: Signature) -> list[str]:
    """The declarations of a signature, one statement each."""
    lines = [declaration_text(s) for s in signature.sorts.values() if s.name not in ("Int", "Real")]
    for sort, constants in groupby(signature.constants.values(), key=lambda c: c.sort.name):
        names = [quote(c.name) for c in constants]
        lines += [f"const {', '.join(names[i : i + 10])}: {quote(sort)}" for i in range(0, len(names), 10)]
    others = [d for d in signature if not isinstance(d, Sort | Constant) and d.name not in signature.definitions]
    return lines + [declaration_text(d) for d in others]


def declaration_text(declaration: Declaration) -> str:
    """One declaration as a statement."""
    name = quote(declaration.name)
    match declaration:
        case Sort(values=range() as values):
            return f"sort {name} = {values[0]}..{values[-1]}"
        case Sort(values=tuple() as values):
            return f"sort {name} = {{{', '.join([quote(v) for v in values])}}}"
        case Sort():
            return f"sort {name}"
        case Constant(sort=sort):
            return f"const {name}: {quote(sort.name)}"
        case Predicate(sorts=sorts):
            word = "closed pred" if declaration.closed else "pred"
            return f"{word} {name}({', '.join([quote(s.name) for s in sorts])})" if sorts else f"{word} {name}"
        case Function(sorts=sorts, result=result):
            return f"func {name}({', '.join([quote(s.name) for s in sorts])}) -> {quote(result.name)}"
        case Rows(fields=fields):
            listed = [f"{quote(f)}: {quote(sort.name)}{'*' if many else ''}" for f, sort, many in fields]
            return f"data {name}({', '.join(listed)})"


def header(name: str | None, weight: float, learnable: bool = False) -> str:
    """``[name, weight 0.5] `` or as much of it as there is to say."""
    parts = [] if name is None else [quote(name)]
    if learnable:
        parts.append("weight ?" if weight == 1.0 else f"weight {weight!r}?")
    elif weight != 1.0:
        parts.append(f"weight {weight!r}")
    return f"[{', '.join(parts)}] " if parts else ""


def display(formula: str, name: str | None, weight: float, learnable: bool = False) -> str:
    """A line of a display in LaTeX: the formula, and beside it what a header would say."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    notes = [] if name is None else [escape(name, special)]
    if learnable or weight != 1.0:
        notes.append(f"weight ${'w' if learnable else latex_number(weight)}$")
    return f"  & {formula}" + (f" && \\text{{{', '.join(notes)}}}" if notes else "")
