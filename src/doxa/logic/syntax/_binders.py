"""What binds variables or counts: quantifiers, aggregates, ``x := f(t) (body)``, counts; and their Python forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from doxa.errors import KnowledgeError
from doxa.logic.syntax._symbols import Predicate, Sort
from doxa.logic.syntax._tree import Call, Expr, ExprLike, Name, Number, as_expr, as_formula, postorder


class Group:
    """Variables that range over the same objects: of a ``sort``, or of the value of ``domain`` (``x in s.objects``).

    With ``sample``, one fresh batch of that many objects is drawn and every variable of the group ranges over it.

    >>> from doxa.logic import Call, Name
    >>> print(Quantifier("forall", [Group(("x", "y"), sort="Image", sample=64)], Call("same", (Name("x"), Name("y")))))
    forall x, y: Image sample 64. same(x, y)
    """

    __slots__ = ("domain", "names", "sample", "sort")

    def __init__(
        self, names: Iterable[str], *, sort: str | None = None, domain: Expr | None = None, sample: int | None = None
    ) -> None:
        self.names = tuple(names)
        self.sort = sort
        self.domain = domain
        self.sample = sample
        if (sort is None) == (domain is None):
            raise KnowledgeError(f"variables {', '.join(self.names)} need a sort or a domain; give one of them")
        if not self.names:
            raise KnowledgeError("a quantifier needs at least one variable; name one")
        if sample is not None and sample < 1:
            raise KnowledgeError(f"sample needs a positive number of objects, got {sample}; write sample 64")


class Binder(Expr):
    """What binds groups of variables over a body. Children: the domains of groups, the guard if there is one, the body.

    The label is ``(what, how, groups, guarded)``; the first two are for the subclass to say. Neighbouring groups over
    the same objects are merged: ``x: P, y: P`` is ``x, y: P``.
    """

    __slots__ = ()

    def __init__(self, what: str, how: Any, groups: Iterable[Group], body: Expr, guard: Expr | None) -> None:
        merged: list[Group] = []
        for g in groups:
            last = merged[-1] if merged else None
            if last is not None and g.sample is None and last.sample is None and _same_objects(g, last):
                merged[-1] = Group(last.names + g.names, sort=last.sort, domain=last.domain)
            else:
                merged.append(g)
        label = (what, how, tuple([(g.names, g.sort, g.sample) for g in merged]), guard is not None)
        domains = tuple([g.domain for g in merged if g.domain is not None])
        super().__init__(label, domains + ((body,) if guard is None else (as_formula(guard), body)))

    @property
    def groups(self) -> tuple[Group, ...]:
        domains = iter(self.children)
        return tuple(
            [
                Group(names, sort=sort, domain=next(domains) if sort is None else None, sample=sample)
                for names, sort, sample in self.label[2]
            ]
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Every variable bound here, in order."""
        return tuple([n for names, _, _ in self.label[2] for n in names])

    @property
    def guard(self) -> Expr | None:
        return self.children[-2] if self.label[3] else None

    @property
    def body(self) -> Expr:
        return self.children[-1]


class Quantifier(Binder):
    """``forall``, ``exists``, ``exactly k``, ``at most k`` or ``at least k`` over one or more groups of variables.

    >>> from doxa.logic import Call, Name
    >>> x = Name("x")
    >>> print(Quantifier("at most", [Group(["x"], sort="Digit")], Call("is", (x,)), count=2, guard=x.ne(0)))
    at most 2 x: Digit where x != 0. is(x)
    """

    __slots__ = ()
    KINDS: ClassVar[tuple[str, ...]] = ("forall", "exists", "exactly", "at most", "at least")

    def __init__(
        self, kind: str, groups: Iterable[Group], body: Expr, *, count: int | None = None, guard: Expr | None = None
    ) -> None:
        if kind not in self.KINDS:
            raise KnowledgeError(f"no quantifier {kind!r}; there are {', '.join(self.KINDS)}")
        counting = kind not in ("forall", "exists")
        if counting != (count is not None) or (count is not None and count < 0):
            raise KnowledgeError(f"{kind} takes {'a number that is not negative' if counting else 'no number'}")
        super().__init__(kind, count, groups, as_formula(body), guard)
        if not self.label[2]:
            raise KnowledgeError(f"{kind} needs at least one variable")

    @property
    def kind(self) -> str:
        return cast(str, self.label[0])

    @property
    def count(self) -> int | None:
        return cast("int | None", self.label[1])


class Aggregate(Binder):
    """``count``, ``sum``, ``min``, ``max``, ``argmin`` or ``argmax`` over variables, a term; or ``all_different``.

    The body is a term, evaluated for each choice of the variables that passes the guard. ``count`` is a sum of ones:
    its body is the number 1, and is not written. ``argmin`` and ``argmax`` yield the object at which the body is least
    or greatest. ``all_different`` is a formula: no two of the choices give the body the same value.

    >>> from doxa.logic import Call, Name
    >>> x, objects = Name("x"), Name("s").field("objects")
    >>> print(Aggregate("count", [Group(["x"], domain=objects)], guard=Call("red", (x,))))
    count x in s.objects where red(x)
    >>> print(Aggregate("max", [Group(["x"], domain=objects)], Call("size", (x,))) >= 3)
    max x in s.objects. size(x) >= 3
    """

    __slots__ = ()
    KINDS: ClassVar[tuple[str, ...]] = ("count", "sum", "min", "max", "argmin", "argmax", "all_different")

    def __init__(
        self, kind: str, groups: Iterable[Group], body: Expr | None = None, *, guard: Expr | None = None
    ) -> None:
        if kind not in self.KINDS:
            raise KnowledgeError(f"no aggregate {kind!r}; there are {', '.join(self.KINDS)}")
        if (kind == "count") != (body is None):
            wanted = "say what is counted with a guard: count x: S where red(x)"
            raise KnowledgeError(f"count has no body; {wanted}" if body is not None else f"{kind} needs a term as body")
        groups = list(groups)
        if any(g.sample is not None for g in groups):
            raise KnowledgeError(f"{kind} ranges over all objects; leave 'sample' out")
        super().__init__(kind, None, groups, Number(1) if body is None else body, guard)
        if len(self.label[2]) != 1 and (kind == "count" or not self.label[2]):
            raise KnowledgeError(
                f"{kind} takes {'variables of one kind' if self.label[2] else 'at least one variable'}"
            )
        if kind in ("argmin", "argmax") and len(self.names) != 1:
            raise KnowledgeError(f"{kind} yields one object, so it takes one variable, got {', '.join(self.names)}")

    @property
    def kind(self) -> str:
        return cast(str, self.label[0])

    @property
    def is_formula(self) -> bool:
        """Is it true or false, instead of a value?"""
        return self.kind == "all_different"


class Let(Expr):
    """The statement ``x := f(t), y := g(u) (body)``: draw once, use in the scope. Later values may use earlier names.

    >>> from doxa.logic import Call, Name
    >>> d = Call("digit", (Name("x"),))
    >>> print(Let([("d", d)], Name("d").eq(3)))
    d := digit(x) (d = 3)
    """

    __slots__ = ()

    def __init__(self, bindings: Iterable[tuple[str, Expr]], body: Expr) -> None:
        pairs = list(bindings)
        if not pairs:
            raise KnowledgeError("a statement needs at least one 'x := f(...)'")
        super().__init__(tuple([n for n, _ in pairs]), (*[v for _, v in pairs], as_formula(body)))

    @property
    def names(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.label)

    @property
    def values(self) -> tuple[Expr, ...]:
        return self.children[:-1]

    @property
    def body(self) -> Expr:
        return self.children[-1]


class Count(Expr):
    """``exactly``, ``at most`` or ``at least`` k of some formulas are true. A formula listed twice counts twice.

    It is what a counting quantifier becomes when its variables are gone.

    >>> from doxa.logic import propositions
    >>> from doxa.logic.syntax._simplify import evaluate
    >>> a, b, c = propositions("a b c")
    >>> evaluate(Count("at most", 1, [a, b, c]), {a: True, b: False, c: True})
    False
    """

    __slots__ = ()
    KINDS: ClassVar[tuple[str, ...]] = ("exactly", "at most", "at least")

    def __init__(self, kind: str, count: int, args: Iterable[Expr]) -> None:
        if kind not in self.KINDS:
            raise KnowledgeError(f"no counting constraint {kind!r}; there are {', '.join(self.KINDS)}")
        if count < 0:
            raise KnowledgeError(f"{kind} needs a number that is not negative, got {count}")
        super().__init__((kind, count), tuple([as_formula(a) for a in args]))

    @property
    def kind(self) -> str:
        return cast(str, self.label[0])

    @property
    def count(self) -> int:
        return cast(int, self.label[1])

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number of arguments that may be true.

        >>> from doxa.logic import propositions
        >>> Count("at least", 1, propositions("a b c")).bounds
        (1, 3)
        """
        kind, k = self.label
        return (0 if kind == "at most" else k), (len(self.children) if kind == "at least" else k)


def leading_foralls(formula: Expr) -> list[Quantifier]:
    """The outermost ``forall`` quantifiers of a formula, one inside the other, from the outside in.

    >>> from doxa.logic import Call, Sort, forall, variables
    >>> x, y = variables("x y", Sort("Person"))
    >>> [q.names for q in leading_foralls(forall(x)(forall(y)(Call("friends", (x, y)))))]
    [('x',), ('y',)]
    """
    found: list[Quantifier] = []
    while (outermost := first_forall(formula)) is not None:
        found.append(outermost)
        formula = outermost.body
    return found


def first_forall(formula: Expr) -> Quantifier | None:
    """The formula itself if it is a ``forall``, else None."""
    return formula if isinstance(formula, Quantifier) and formula.kind == "forall" else None


def _same_objects(group: Group, last: Group) -> bool:
    if group.domain is None or last.domain is None:
        return group.sort == last.sort and group.domain is last.domain
    # In forall s in scenes, x in s.objects the domain of x depends on s: such domains are never the same objects.
    depends = any(type(n) is Name and n.label in last.names for n in postorder(group.domain))
    return group.domain == last.domain and not depends


def free_variables(*roots: Expr) -> dict[int, frozenset[str]]:
    """By ``id(node)``: the variables of enclosing binders that each node below the roots mentions.

    A name that no binder of any root binds is a constant and left out. Later groups and values of a binder see its
    earlier variables.
    """
    nodes = list(postorder(*roots))
    bound = {name for n in nodes if isinstance(n, Binder | Let) for name in n.names}
    none: frozenset[str] = frozenset()
    free: dict[int, frozenset[str]] = {}
    for node in nodes:
        below = [free[id(c)] for c in node.children]
        if isinstance(node, Name):
            free[id(node)] = frozenset((node.name,)) if node.name in bound else none
        elif isinstance(node, Binder | Let):
            free[id(node)] = free_of_binder(node, below)
        else:
            different = set(below)
            free[id(node)] = different.pop() if len(different) == 1 else none.union(*different)
    return free


def free_of_binder(node: Binder | Let, below: list[frozenset[str]]) -> frozenset[str]:
    """The variables that a binder takes from outside, given those of its children."""
    found: set[str] = set()
    earlier: set[str] = set()
    inside = iter(below)
    groups = [((name,), None, None) for name in node.names] if isinstance(node, Let) else node.label[2]
    for names, sort, _ in groups:
        if sort is None:  # the value of a Let, or the domain of a group
            found |= next(inside) - earlier
        earlier.update(names)
    return frozenset(found.union(*[names - earlier for names in inside]))


# --- in Python ----------------------------------------------------------------------------------------------------

Body = Callable[[ExprLike], Expr]


def variables(names: str, sort: Sort | None = None) -> tuple[Name, ...]:
    """Variables named by a string with spaces, of a sort; those of :func:`within` and :func:`let` have none.

    >>> x, y = variables("x y", Sort("Person"))
    >>> print(forall(x, y)(Call("friends", (x, y))))
    forall x, y: Person. friends(x, y)
    """
    return tuple([Name(n, hint=sort) for n in names.replace(",", " ").split()])


def propositions(names: str) -> tuple[Expr, ...]:
    """Predicates of no arguments, named by a string with spaces.

    >>> a, b = propositions("a b")
    >>> print(a >> b)
    a -> b
    """
    return tuple([Predicate(n)() for n in names.replace(",", " ").split()])


def within(domain: str | Expr, *names: Name, sample: int | None = None) -> Group:
    """Variables that range over data rows, or over the objects of a structure; over a random ``sample`` of them.

    >>> (p,) = variables("p")
    >>> print(forall(within("pairs", p))(p.field("sum").eq(3)))
    forall p in pairs. p.sum = 3
    """
    domain = Name(domain) if isinstance(domain, str) else domain
    return Group([n.name for n in names], domain=domain, sample=sample)


def sample(count: int, *names: Name) -> Group:
    """Variables that range over one fresh random batch of ``count`` objects.

    >>> x, y = variables("x y", Sort("Image"))
    >>> print(forall(sample(64, x, y))(Call("same", (x, y))))
    forall x, y: Image sample 64. same(x, y)
    """
    sorts = {_sort_of(n) for n in names}
    if len(sorts) != 1:
        raise KnowledgeError(f"sampled variables must share one sort, got {', '.join(sorted(sorts)) or 'no variable'}")
    return Group([n.name for n in names], sort=sorts.pop(), sample=count)


def forall(*binders: Name | Group, where: Expr | None = None) -> Body:
    """``forall x, y: S where guard. body``, called on the body.

    >>> x, y = variables("x y", Sort("Person"))
    >>> print(forall(x, y, where=x.ne(y))(Call("friends", (x, y))))
    forall x, y: Person where x != y. friends(x, y)
    """
    return _quantify("forall", None, binders, where)


def exists(*binders: Name | Group, where: Expr | None = None) -> Body:
    """``exists x: S. body``, called on the body.

    >>> (x,) = variables("x", Sort("Person"))
    >>> print(exists(x)(Call("smokes", (x,))))
    exists x: Person. smokes(x)
    """
    return _quantify("exists", None, binders, where)


def exactly(count: int, *binders: Name | Group, where: Expr | None = None) -> Body:
    """``exactly k x: S. body``, called on the body.

    >>> (d,) = variables("d", Sort.range("Digit", 0, 9))
    >>> print(exactly(1, d)(Call("is", (d,))))
    exactly 1 d: Digit. is(d)
    """
    return _quantify("exactly", count, binders, where)


def at_most(count: int, *binders: Name | Group, where: Expr | None = None) -> Body:
    """``at most k x: S. body``, called on the body.

    >>> (d,) = variables("d", Sort.range("Digit", 0, 9))
    >>> print(at_most(2, d)(Call("is", (d,))))
    at most 2 d: Digit. is(d)
    """
    return _quantify("at most", count, binders, where)


def at_least(count: int, *binders: Name | Group, where: Expr | None = None) -> Body:
    """``at least k x: S. body``, called on the body.

    >>> (d,) = variables("d", Sort.range("Digit", 0, 9))
    >>> print(at_least(2, d)(Call("is", (d,))))
    at least 2 d: Digit. is(d)
    """
    return _quantify("at least", count, binders, where)


def aggregate(kind: str, *binders: Name | Group, where: Expr | None = None, of: ExprLike | None = None) -> Expr:
    """``sum x: S where guard. of``, and so for the other kinds of :class:`Aggregate`; ``count`` is of nothing.

    >>> (x,) = variables("x", Sort("Person"))
    >>> print(aggregate("sum", x, where=Call("member", (x,)), of=Call("age", (x,))) > 100)
    sum x: Person where member(x). age(x) > 100
    """
    return Aggregate(kind, as_groups(binders), None if of is None else as_expr(of), guard=where)


def let(*bindings: tuple[Name, Expr]) -> Body:
    """The statement ``x := f(t), ... (body)``, called on the body.

    >>> d, x = variables("d x")
    >>> print(let((d, Call("digit", (x,))))(d.eq(3)))
    d := digit(x) (d = 3)
    """
    return lambda body: Let([(n.name, v) for n, v in bindings], as_expr(body))


def fresh(call: Expr) -> Expr:
    """The same call as a new random variable.

    >>> print(fresh(Call("digit", (Name("x"),))))
    fresh digit(x)
    """
    if not isinstance(call, Call):
        raise KnowledgeError(f"only an application such as digit(x) can be drawn afresh, got {call}")
    return Call(call.name, call.children, fresh=True, hint=call.hint)


def _sort_of(variable: Name) -> str:
    if not isinstance(variable.hint, Sort):
        raise KnowledgeError(
            f"variable {variable.name!r} has no sort; make it with variables({variable.name!r}, sort), "
            f"or give it a domain with within(domain, {variable.name})"
        )
    return variable.hint.name


def as_groups(binders: Iterable[Name | Group]) -> list[Group]:
    """Variables as groups, each of its own sort."""
    return [b if isinstance(b, Group) else Group([b.name], sort=_sort_of(b)) for b in binders]


def _quantify(kind: str, count: int | None, binders: tuple[Name | Group, ...], where: Expr | None) -> Body:
    groups = as_groups(binders)
    return lambda body: Quantifier(kind, groups, as_expr(body), count=count, guard=where)
