"""A knowledge base: declarations, axioms and facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from doxa.errors import KnowledgeError
from doxa.logic._printer import axiom_header, fact_text, knowledge_latex, knowledge_text, to_text, to_unicode
from doxa.logic._symbols import Constant, Function, Predicate, Rows, Signature, Sort
from doxa.logic._tree import Call, Expr
from doxa.logic._walk import intern, postorder

__all__ = ["Axiom", "Fact", "KnowledgeBase"]


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
        return axiom_header(self) + to_text(self.formula)


@dataclass(frozen=True)
class Fact:
    """A ground atom that is labelled true or false.

    >>> from doxa.logic import Call, Name
    >>> print(Fact(Call("smokes", (Name("bob"),)), False))
    fact !smokes(bob)
    """

    atom: Call
    label: bool = True

    def __str__(self) -> str:
        return fact_text(self)


class KnowledgeBase:
    """Declarations, axioms and facts; every formula in it is checked, and equal subformulas are one object.

    Declarations used in the formulas are found by themselves; further ones are given first.

    >>> from doxa.logic import Predicate, Sort, forall, variables
    >>> Person = Sort("Person")
    >>> friends = Predicate("friends", (Person, Person))
    >>> x, y = variables("x y", Person)
    >>> kb = KnowledgeBase(symmetry=forall(x, y)(friends(x, y) >> friends(y, x)))
    >>> print(kb)
    sort Person
    pred friends(Person, Person)
    [symmetry] forall x, y: Person. friends(x, y) -> friends(y, x)
    """

    signature: Signature
    axioms: tuple[Axiom, ...]
    facts: tuple[Fact, ...]

    def __init__(
        self,
        *parts: Sort | Constant | Predicate | Function | Rows | Axiom | Fact,
        **axioms: Expr,
    ) -> None:
        signature = Signature()
        rules = [p for p in parts if isinstance(p, Axiom)]
        rules += [Axiom(name, formula) for name, formula in axioms.items()]
        facts = [p for p in parts if isinstance(p, Fact)]
        for part in parts:
            if not isinstance(part, Axiom | Fact):
                _declare(signature, part)
        for node in postorder(*[a.formula for a in rules], *[f.atom for f in facts]):
            if node.hint is not None:
                _declare(signature, node.hint)
        self._assemble(signature, rules, facts)

    @classmethod
    def from_parts(cls, signature: Signature, axioms: Iterable[Axiom], facts: Iterable[Fact] = ()) -> KnowledgeBase:
        """A knowledge base whose declarations are already together."""
        kb = object.__new__(cls)
        kb._assemble(signature, axioms, facts)
        return kb

    def _assemble(self, signature: Signature, axioms: Iterable[Axiom], facts: Iterable[Fact]) -> None:
        table: dict[Expr, Expr] = {}
        self.signature = signature
        self.axioms = tuple([replace(a, formula=intern(a.formula, table)) for a in axioms])
        self.facts = tuple(facts)
        names = [a.name for a in self.axioms]
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise KnowledgeError(f"two axioms are named {twice!r}; give each its own name")

    def __getitem__(self, name: str) -> Axiom:
        for axiom in self.axioms:
            if axiom.name == name:
                return axiom
        raise KeyError(name)

    def __iter__(self) -> Iterator[Axiom]:
        return iter(self.axioms)

    def __len__(self) -> int:
        return len(self.axioms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KnowledgeBase):
            return NotImplemented
        return (self.signature, self.axioms, self.facts) == (other.signature, other.axioms, other.facts)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return knowledge_text(self)

    def unicode(self) -> str:
        """The knowledge base with mathematical symbols; parses back to the same knowledge base.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> print(KnowledgeBase(rule=a >> ~b).unicode())
        pred a
        pred b
        [rule] a → ¬b
        """
        return knowledge_text(self, to_unicode)

    def latex(self) -> str:
        r"""The facts and axioms as one display for a paper (``amsmath``).

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> print(KnowledgeBase(rule=a >> ~b).latex())
        \begin{align*}
          & \mathrm{a} \rightarrow \neg \mathrm{b} && \text{rule}
        \end{align*}
        """
        return knowledge_latex(self)


def _declare(signature: Signature, declaration: Sort | Constant | Predicate | Function | Rows) -> None:
    """Declare a symbol and, first, the sorts it speaks of."""
    match declaration:
        case Constant(sort=sort):
            signature.add(sort)
        case Predicate(sorts=sorts):
            for sort in sorts:
                signature.add(sort)
        case Function(sorts=sorts, result=result):
            for sort in (*sorts, result):
                signature.add(sort)
        case Rows(fields=fields):
            for _, sort, _ in fields:
                signature.add(sort)
    signature.add(declaration)
