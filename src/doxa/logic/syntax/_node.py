"""What every node of a tree is: a class, a label and children, immutable, compared and hashed by structure.

Nothing recurses on the depth of a tree: the hash of a node is computed from the stored hashes of its children, equality
walks a stack of its own, and a pickle is a flat list of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar, cast

N = TypeVar("N", bound="Node")
Flat = list[tuple[type["Node"], Any, tuple[int, ...]]]
"""Trees as a list of (class, label, places of the children in the list), children first."""
Task = Generator["Task", Any, Any]
"""Work that may wait for other work: it yields tasks and is sent what they return."""


class Node:
    """Class, ``label`` and ``children`` decide equality, and nothing else does."""

    __slots__ = ("__weakref__", "_hash", "children", "hint", "label")

    label: Any
    children: tuple[Any, ...]
    hint: Any
    """The declaration a node was built from in Python, if any; a convenience that takes no part in equality."""
    _hash: int

    def __init__(self, label: Any, children: tuple[Any, ...], hint: Any = None) -> None:
        # Nodes are frozen, so their slots are filled past __setattr__.
        _set_label(self, label)
        _set_children(self, children)
        _set_hint(self, hint)
        _set_hash(self, hash((type(self).__name__, label, tuple([c._hash for c in children]))))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"formulas cannot be changed: tried to set {name!r} of a {type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"formulas cannot be changed: tried to delete {name!r} of a {type(self).__name__}")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Node):
            return NotImplemented
        stack: list[tuple[Node, Node]] = [(self, other)]
        seen: set[tuple[int, int]] = set()  # shared subtrees are compared once
        while stack:
            a, b = stack.pop()
            if a is b:
                continue
            if a._hash != b._hash or type(a) is not type(b) or a.label != b.label or len(a.children) != len(b.children):
                return False
            key = (id(a), id(b))
            if a.children and key not in seen:
                seen.add(key)
                stack.extend(zip(a.children, b.children, strict=True))
        return True

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return self

    def __reduce__(self) -> tuple[Callable[..., Node], tuple[Flat]]:
        return _rebuild_one, (flatten([self])[0],)


_set_label, _set_children, _set_hint, _set_hash = [
    cast(Any, Node.__dict__[slot]).__set__ for slot in ("label", "children", "hint", "_hash")
]


def below(roots: Iterable[N], parts: Callable[[N], Sequence[N]] = attrgetter("children")) -> Iterator[N]:
    """Every distinct node object below the roots, or the ``parts`` of it that count, children first, each once."""
    done: set[int] = set()
    stack: list[Any] = [*reversed(list(roots))]
    while stack:
        node = stack.pop()
        if node is None:  # all below the next one are done
            node = stack.pop()
        elif id(node) in done:
            continue
        elif children := parts(node):
            stack += (node, None)
            stack += reversed(children)
            continue
        done.add(id(node))
        yield node


def drive(task: Task) -> Any:
    """Run a generator that yields generators, sending each what the one it yielded returned."""
    stack: list[Task] = [task]
    value: Any = None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as end:
            stack.pop()
            value = end.value
        else:
            stack.append(inner)
            value = None
    return value


def same(a: tuple[Node, ...], b: tuple[Node, ...]) -> bool:
    """Are these the same objects?"""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def make(kind: type[N], label: Any, children: tuple[Any, ...], hint: Any = None) -> N:
    """A node from its parts, past the constructors that take friendlier arguments."""
    node = object.__new__(kind)
    Node.__init__(node, label, children, hint)
    return node


def flatten(roots: Iterable[Node]) -> tuple[Flat, list[int]]:
    """Trees as one flat list in which shared subtrees stand once, and the places of the roots in it."""
    roots = list(roots)
    place: dict[int, int] = {}
    flat: Flat = []
    for node in below(roots):
        place[id(node)] = len(flat)
        flat.append((type(node), node.label, tuple([place[id(c)] for c in node.children])))
    return flat, [place[id(r)] for r in roots]


def rebuild(flat: Flat) -> list[Any]:
    """The nodes of a flat list, at the same places."""
    nodes: list[Node] = []
    for kind, label, children in flat:
        nodes.append(make(kind, label, tuple([nodes[i] for i in children])))
    return nodes


def _rebuild_one(flat: Flat) -> Any:
    return rebuild(flat)[-1]
