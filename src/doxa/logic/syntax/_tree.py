"""The syntax tree of the knowledge language: terms and formulas in one family of immutable nodes.

A predicate is a function into truth, so one node, :class:`Call`, applies both; one node, :class:`Name`, stands for
variables, constants and values of enumerated sorts, and what it is follows from where it is bound. The tree is pure
syntax: declarations live in a :class:`~doxa.logic.Signature`, meanings in an :class:`~doxa.logic.Interpretation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol, TypeVar, cast

from doxa.errors import KnowledgeError
from doxa.logic.syntax._display import formula_box, formula_latex
from doxa.logic.syntax._node import Node, below, make, same
from doxa.logic.syntax._printer import LATEX, TEXT, UNICODE, render

_Operator = Callable[["Expr", "ExprLike"], "Expr"]


def _infix(build: Callable[[Expr, Expr], Expr]) -> tuple[_Operator, _Operator]:
    """A Python operator whose other side may be a number or a boolean: ``self op other`` and ``other op self``."""
    return lambda self, other: build(self, as_expr(other)), lambda self, other: build(as_expr(other), self)


class Expr(Node):
    """A node: its class, a hashable ``label`` and ``children``. All three, and nothing else, decide equality.

    Python operators build formulas and terms: ``&``, ``|``, ``~``, ``^`` (xor), ``>>`` (implies), ``.iff``;
    ``+ - * // %``; ``< <= > >=``, ``.eq`` and ``.ne``. (``==`` asks whether two trees are the same tree.)

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> print(~a & b >> a | b)
    !a & (b -> a) | b
    >>> (a & b) & a == a & (b & a)
    True
    """

    __slots__ = ()

    children: tuple[Expr, ...]

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children (and the node itself when they are the same objects)."""
        return self if same(children, self.children) else make(type(self), self.label, children, self.hint)

    # -- printing (the printer is its own file) ---------------------------------------------------------------------

    def __str__(self) -> str:
        return render(self, TEXT)

    def __repr__(self) -> str:
        text = str(self)
        return f"<{type(self).__name__} {text if len(text) <= 200 else text[:197] + '...'}>"

    def unicode(self) -> str:
        """The formula with mathematical symbols; parses back to the same tree.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> (a & b >> ~a).unicode()
        'a ∧ (b → ¬a)'
        """
        return render(self, UNICODE)

    def latex(self) -> str:
        r"""The formula for a paper.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> print((~a & b).latex())
        \neg \mathrm{a} \land \mathrm{b}
        """
        return render(self, LATEX)

    def _repr_html_(self) -> str:
        return formula_box(self)

    def _repr_latex_(self) -> str:
        return formula_latex(self)

    # -- building ---------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise TypeError(
            f"a formula has no truth value in Python: {self!r}. "
            "Write '&', '|', '~' for and, or, not, and split chained comparisons such as 0 <= d <= 9 into two."
        )

    def __invert__(self) -> Expr:
        return Not(self)

    def __neg__(self) -> Expr:
        return Arith("-", self)

    __and__, __rand__ = _infix(lambda a, b: And(a, b))
    __or__, __ror__ = _infix(lambda a, b: Or(a, b))
    __xor__, __rxor__ = _infix(lambda a, b: Xor(a, b))
    __rshift__, __rrshift__ = _infix(lambda a, b: Implies(a, b))
    __add__, __radd__ = _infix(lambda a, b: Arith("+", a, b))
    __sub__, __rsub__ = _infix(lambda a, b: Arith("-", a, b))
    __mul__, __rmul__ = _infix(lambda a, b: Arith("*", a, b))
    __floordiv__, __rfloordiv__ = _infix(lambda a, b: Arith("//", a, b))
    __mod__, __rmod__ = _infix(lambda a, b: Arith("mod", a, b))
    __lt__, __gt__ = _infix(lambda a, b: Compare("<", a, b))[0], _infix(lambda a, b: Compare(">", a, b))[0]
    __le__, __ge__ = _infix(lambda a, b: Compare("<=", a, b))[0], _infix(lambda a, b: Compare(">=", a, b))[0]

    def iff(self, other: ExprLike) -> Expr:
        """``self <-> other``.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> print(a.iff(b))
        a <-> b
        """
        return Iff(self, as_expr(other))

    def eq(self, other: ExprLike) -> Expr:
        """``self = other``.

        >>> print(Name("d").eq(3))
        d = 3
        """
        return Compare("=", self, as_expr(other))

    def ne(self, other: ExprLike) -> Expr:
        """``self != other``.

        >>> print(Name("d").ne(3))
        d != 3
        """
        return Compare("!=", self, as_expr(other))

    def __getitem__(self, index: ExprLike) -> Expr:
        return Index(self, as_expr(index))

    # Without this, Python would try to iterate through __getitem__ and never end.
    __iter__: ClassVar[None] = None

    def field(self, name: str) -> Expr:
        """``self.name``, a field of a data row.

        >>> print(Name("p").field("left"))
        p.left
        """
        return Field(self, name)


class HasTerm(Protocol):
    """A declaration that stands for a term, such as a :class:`~doxa.logic.Constant`."""

    @property
    def term(self) -> Expr: ...


ExprLike = Expr | int | float | bool | HasTerm


def as_expr(value: ExprLike) -> Expr:
    """A Python value as a tree: numbers and booleans become literals, constants their names, trees stay as they are."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return Truth(value)
    if isinstance(value, int | float):
        return Number(value)
    if isinstance(term := getattr(value, "term", None), Expr):
        return term
    raise TypeError(
        f"cannot use {value!r} of type {type(value).__name__} in a formula; "
        "wanted a formula, a term, a number or a boolean"
    )


# --- terms --------------------------------------------------------------------------------------------------------


class Name(Expr):
    """A variable, a constant or a value of an enumerated sort; where a formula stands it becomes a proposition.

    >>> print(Name("alice"))
    alice
    """

    __slots__ = ()

    def __init__(self, name: str, hint: Any = None) -> None:
        super().__init__(name, (), hint)

    @property
    def name(self) -> str:
        return cast(str, self.label)


class Number(Expr):
    """A number. Integers and decimals are kept apart: ``3`` and ``3.0`` are different trees.

    >>> print(Number(3), Number(0.5))
    3 0.5
    """

    __slots__ = ()

    def __init__(self, value: int | float) -> None:
        kind = float if isinstance(value, float) else int
        if kind is float and value - value != 0.0:
            raise KnowledgeError(f"a number in a formula must be finite, got {value}; write one below 1e308")
        if kind is int and not -(2**63) < value < 2**63:
            raise KnowledgeError("an integer must fit into 64 bits; write a smaller one, or a decimal such as 1e30")
        super().__init__((kind.__name__, kind(value) + 0), ())  # + 0 because -0.0 and 0.0 are one number

    @property
    def value(self) -> int | float:
        return cast("int | float", self.label[1])


class Call(Expr):
    """A predicate or function applied to arguments. ``fresh`` draws a neural function anew.

    >>> print(Call("friends", (Name("x"), Name("y"))), Call("rain", ()), Call("digit", (Name("x"),), fresh=True))
    friends(x, y) rain fresh digit(x)
    """

    __slots__ = ()

    def __init__(self, name: str, args: tuple[Expr, ...] = (), fresh: bool = False, hint: Any = None) -> None:
        super().__init__((name, fresh), tuple(args), hint)

    @property
    def name(self) -> str:
        return cast(str, self.label[0])

    @property
    def fresh(self) -> bool:
        return cast(bool, self.label[1])


class Field(Expr):
    """A field of a data row.

    >>> print(Field(Name("p"), "left"))
    p.left
    """

    __slots__ = ()

    def __init__(self, base: Expr, name: str) -> None:
        super().__init__(name, (base,))

    @property
    def name(self) -> str:
        return cast(str, self.label)


class Index(Expr):
    """An element of a sequence.

    >>> print(Index(Field(Name("p"), "digits"), Number(2)))
    p.digits[2]
    """

    __slots__ = ()

    def __init__(self, base: Expr, index: Expr) -> None:
        super().__init__(None, (base, index))


class Arith(Expr):
    """Arithmetic: ``+ - * // mod`` of two terms, or ``-`` of one; minus a number is that number.

    >>> print(Arith("+", Name("d"), Arith("*", Number(2), Name("e"))), Arith("-", Name("d")))
    d + 2 * e -d
    """

    __slots__ = ()
    OPERATORS: ClassVar[tuple[str, ...]] = ("+", "-", "*", "//", "mod")

    def __new__(cls, op: str, *args: Expr) -> Any:
        # A negative number is one literal, so that a tree has one way to be written.
        return Number(-args[0].label[1]) if op == "-" and [type(a) for a in args] == [Number] else object.__new__(cls)

    def __init__(self, op: str, *args: Expr) -> None:
        if op not in self.OPERATORS or len(args) not in ((1, 2) if op == "-" else (2,)):
            raise KnowledgeError(f"no arithmetic {op!r} of {len(args)} terms; there are + - * // mod, and unary -")
        super().__init__(op, args)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self if same(children, self.children) else cast(Expr, Arith(self.op, *children))

    @property
    def op(self) -> str:
        return cast(str, self.label)


# --- formulas -----------------------------------------------------------------------------------------------------


class Compare(Expr):
    """A comparison of two terms: ``= != < <= > >=``.

    >>> print(Compare("<=", Name("d"), Number(9)))
    d <= 9
    """

    __slots__ = ()
    OPERATORS: ClassVar[tuple[str, ...]] = ("=", "!=", "<", "<=", ">", ">=")

    def __init__(self, op: str, left: Expr, right: Expr) -> None:
        if op not in self.OPERATORS:
            raise KnowledgeError(f"no comparison {op!r}; there are {' '.join(self.OPERATORS)}")
        super().__init__(op, (left, right))

    @property
    def op(self) -> str:
        return cast(str, self.label)


class Truth(Expr):
    """``true`` or ``false``.

    >>> print(Truth(True), Truth(False))
    true false
    """

    __slots__ = ()

    def __init__(self, value: bool) -> None:
        super().__init__(bool(value), ())

    @property
    def value(self) -> bool:
        return cast(bool, self.label)


class Not(Expr):
    """Negation.

    >>> print(Not(Call("rain")))
    !rain
    """

    __slots__ = ()

    def __init__(self, arg: Expr) -> None:
        super().__init__(None, (as_formula(arg),))


class _Flat(Expr):
    """An associative connective over any number of arguments, never directly below itself."""

    __slots__ = ()

    def __new__(cls, *args: Expr) -> Any:
        # One argument is itself and none is the neutral element, so that a tree has one way to be written.
        if len(args) == 1:
            return as_formula(args[0])
        if not args:
            return Truth(cls is And)
        return object.__new__(cls)

    def __init__(self, *args: Expr) -> None:
        if len(args) == 1:  # __new__ gave back the argument, which is complete
            return
        kind = type(self)
        if any(type(a) is kind for a in args):
            args = tuple([leaf for a in args for leaf in (a.children if type(a) is kind else (a,))])
        super().__init__(None, tuple([as_formula(a) for a in args]))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self if same(children, self.children) else cast(Expr, type(self)(*children))


class And(_Flat):
    """Conjunction of any number of formulas; nested conjunctions flatten.

    >>> print(And(Call("a"), Call("b"), Call("c")), And())
    a & b & c true
    """

    __slots__ = ()


class Or(_Flat):
    """Disjunction of any number of formulas; nested disjunctions flatten.

    >>> print(Or(Call("a"), Call("b"), Call("c")), Or())
    a | b | c false
    """

    __slots__ = ()


class _Pair(Expr):
    """A connective of two formulas."""

    __slots__ = ()

    def __init__(self, left: Expr, right: Expr) -> None:
        super().__init__(None, (as_formula(left), as_formula(right)))


class Xor(_Pair):
    """Exclusive or of two formulas; associates to the left.

    >>> print(Xor(Call("a"), Call("b")))
    a xor b
    """

    __slots__ = ()


class Implies(_Pair):
    """Implication; associates to the right.

    >>> print(Implies(Call("a"), Implies(Call("b"), Call("c"))))
    a -> b -> c
    """

    __slots__ = ()


class Iff(_Pair):
    """Equivalence; associates to the left.

    >>> print(Iff(Call("a"), Call("b")))
    a <-> b
    """

    __slots__ = ()


INFIX: dict[str, type[Expr]] = {"&": And, "|": Or, "->": Implies, "<->": Iff, "xor": Xor}
CONNECTIVES: tuple[type[Expr], ...] = (Not, *INFIX.values())


def as_formula(node: Expr) -> Expr:
    """A bare name where a formula stands is a proposition: a predicate of no arguments."""
    return Call(node.label, (), hint=node.hint) if type(node) is Name else node


# --- walks --------------------------------------------------------------------------------------------------------

T = TypeVar("T")


def postorder(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node object below the roots, children first, each once.

    >>> from doxa.logic import And, Call, Not
    >>> [str(n) for n in postorder(And(Call("a"), Not(Call("b"))))]
    ['a', 'b', '!b', 'a & !b']
    """
    return below(roots)


def fold(function: Callable[[Expr, tuple[T, ...]], T], root: Expr) -> T:
    """The value of a tree, bottom up: ``function(node, values of its children)``, once per distinct node."""
    value: dict[int, T] = {}
    for node in postorder(root):
        value[id(node)] = function(node, tuple([value[id(c)] for c in node.children]))
    return value[id(root)]


def intern(root: Expr, table: dict[Expr, Expr]) -> Expr:
    """The same tree with every subtree that ``table`` already knows replaced by the known one."""

    def share(node: Expr, children: tuple[Expr, ...]) -> Expr:
        shared = node.with_children(children)
        return table.setdefault(shared, shared)

    return fold(share, root)
