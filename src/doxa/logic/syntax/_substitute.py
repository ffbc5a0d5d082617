"""Other names for the free variables of a formula."""

from __future__ import annotations

from collections.abc import Mapping

from doxa.logic.syntax._binders import Binder, Let
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._tree import Expr, Name


def renamed(root: Expr, names: Mapping[str, str]) -> Expr:
    """The formula with its free variables renamed; a binder of an old name hides it.

    >>> from doxa.logic import Call, Name, Sort, exists, variables
    >>> x, y = variables("x y", Sort("P"))
    >>> print(renamed(Call("p", (x, y)) & exists(x)(Call("q", (x, y))), {"x": "u", "y": "v"}))
    p(u, v) & exists x: P. q(x, v)
    """
    found: Expr = drive(_renamed(root, dict(names), {}))
    return found


def _renamed(node: Expr, names: dict[str, str], done: dict[tuple[int, tuple[tuple[str, str], ...]], Expr]) -> Task:
    key = (id(node), tuple(names.items()))
    if key in done:
        return done[key]
    if isinstance(node, Name):
        found: Expr = Name(names[node.name], node.hint) if node.name in names else node
    elif not node.children:
        found = node
    else:
        children: list[Expr] = []
        if isinstance(node, Binder | Let):
            groups = [((n,), None, None) for n in node.names] if isinstance(node, Let) else node.label[2]
            inner, rest = dict(names), iter(node.children)
            for bound, sort, _ in groups:
                if sort is None:
                    children.append((yield _renamed(next(rest), inner, done)))
                inner = {old: new for old, new in inner.items() if old not in bound}
        else:
            inner, rest = names, iter(node.children)
        for child in rest:
            found = yield _renamed(child, inner, done)
            children.append(found)
        found = node.with_children(tuple(children))
    done[key] = found
    return found
