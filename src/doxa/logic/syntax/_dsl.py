"""Building formulas in Python: the same trees that the text language builds."""

from __future__ import annotations

from collections.abc import Callable

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Group, Let, Quantifier
from doxa.logic.syntax._symbols import Predicate, Sort
from doxa.logic.syntax._tree import Call, Expr, ExprLike, Name, as_expr

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


def _quantify(kind: str, count: int | None, binders: tuple[Name | Group, ...], where: Expr | None) -> Body:
    groups = [b if isinstance(b, Group) else Group([b.name], sort=_sort_of(b)) for b in binders]
    return lambda body: Quantifier(kind, groups, as_expr(body), count=count, guard=where)
