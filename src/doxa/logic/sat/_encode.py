"""From formulas to clauses: by distribution (plain), or with a new variable for each subformula (Tseitin)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic.sat._cardinality import assert_count, outputs
from doxa.logic.sat._cnf import CNF, Clauses
from doxa.logic.sat._nnf import normalise
from doxa.logic.syntax._binders import Count
from doxa.logic.syntax._simplify import Builder, atoms_of, formulas
from doxa.logic.syntax._tree import And, Expr, Iff, Not, Or, Truth, Xor

_METHODS = ("tseitin", "polarity", "plain")


def to_cnf(formula: Expr, *, method: str = "tseitin", atoms: Sequence[Expr] | None = None, limit: int = 100_000) -> CNF:
    """The formula as clauses over its atoms, in time proportional to its size except for ``"plain"``.

    Args:
        formula: connectives and counting constraints over atoms.
        method: ``"tseitin"`` names each inner conjunction, disjunction, equivalence and count by a new variable g with
            g ⟺ its definition (Tseitin 1968): the models, seen on the atoms, stay the same, each exactly once.
            ``"polarity"`` keeps of g ⟺ definition the direction that matters (Plaisted and Greenbaum 1986): fewer
            clauses, the same models on the atoms, but possibly several times.
            ``"plain"`` adds no variable and distributes ``|`` over ``&``, which may take exponentially many clauses.
        atoms: the variables in order; by default in the order in which they appear. More than appear is fine.
        limit: the most clauses that ``"plain"`` may write while it distributes.

    >>> from doxa.logic import propositions
    >>> a, b, c, d = propositions("a b c d")
    >>> to_cnf((a & b) >> c).clauses
    [[-1, -2, 3]]
    >>> to_cnf(a & b | c & d)
    CNF(7 clauses, 6 variables, 2 of them auxiliary)
    >>> to_cnf(a & b | c & d, method="plain").clauses
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    if method not in _METHODS:
        raise ConfigError(f"method={method!r} is unknown; choose one of {', '.join(_METHODS)}")
    names = tuple(dict.fromkeys((*(atoms or ()), *atoms_of(formula))))
    index = {atom: v for v, atom in enumerate(names, 1)}
    if method == "plain":
        return CNF.from_clauses(_distribute(formula, index, limit), names)
    clauses = Clauses(len(names))
    _tseitin(normalise(formula, None, keep_equivalences=True), index, clauses, unique=method == "tseitin")
    return CNF.from_clauses(clauses.lists, (*names, *[None] * (clauses.variables - len(names))))


# --- Tseitin ------------------------------------------------------------------------------------------------------


def _tseitin(root: Expr, index: dict[Expr, int], clauses: Clauses, *, unique: bool) -> None:
    """Clauses for a formula in negation normal form with equivalences and counts."""
    if isinstance(root, Truth):
        if not root.value:
            clauses.add()
        return
    # What the formula asserts at once needs no variable of its own; only what is below does.
    asserted = root.children if isinstance(root, And) else (root,)
    named = [c for a in asserted if not isinstance(a, Not) for c in a.children if a not in index]
    order = list(formulas(*named))
    both = _used_both_ways(order, asserted)
    literal: dict[int, int] = {}
    for node in order:
        args = [] if node in index else [literal[id(c)] for c in node.children]
        literal[id(node)] = _name(node, args, index, clauses, forward=True, backward=unique or id(node) in both)
    for node in asserted:
        if node in index:
            clauses.add(index[node])
        elif isinstance(node, Not):
            clauses.add(-index[node.children[0]])
        else:
            _assert(node, [literal[id(c)] for c in node.children], clauses, unique)


def _used_both_ways(order: list[Expr], asserted: Sequence[Expr]) -> set[int]:
    """The nodes below equivalences and counts, whose truth and falsity both matter."""
    both: set[int] = set()
    for node in (*asserted, *reversed(order)):
        if isinstance(node, Iff | Xor | Count) or id(node) in both:
            both.update([id(c) for c in node.children])
    return both


def _name(node: Expr, args: list[int], index: dict[Expr, int], clauses: Clauses, forward: bool, backward: bool) -> int:
    """A literal for the node, with the clauses literal -> definition (forward) and definition -> literal (backward)."""
    if node in index:
        return index[node]
    if isinstance(node, Not):
        return -args[0]
    if isinstance(node, Count):
        return _name_count(node, args, clauses, forward, backward)
    if isinstance(node, And):
        return _name_and(args, clauses, forward, backward)
    if isinstance(node, Or):
        return -_name_and([-x for x in args], clauses, backward, forward)
    g = clauses.fresh()
    a, b = args[0], args[1] if isinstance(node, Iff) else -args[1]
    if forward:
        clauses.lists += [[-g, -a, b], [-g, a, -b]]
    if backward:
        clauses.lists += [[g, a, b], [g, -a, -b]]
    return g


def _name_and(args: list[int], clauses: Clauses, forward: bool, backward: bool) -> int:
    g = clauses.fresh()
    if forward:
        clauses.lists += [[-g, x] for x in args]
    if backward:
        clauses.add(g, *[-x for x in args])
    return g


def _name_count(node: Count, args: list[int], clauses: Clauses, forward: bool, backward: bool) -> int:
    kind, k = node.kind, node.count
    if kind == "at least":
        return outputs(clauses, args, k, up=backward, down=forward)[k - 1]
    if kind == "at most":
        return -outputs(clauses, args, k + 1, up=forward, down=backward)[k]
    s = outputs(clauses, args, k + 1)
    return _name_and([s[k - 1], -s[k]], clauses, forward, backward)


def _assert(node: Expr, args: list[int], clauses: Clauses, unique: bool) -> None:
    match node:
        case Or():
            clauses.add(*args)
        case Count():
            assert_count(clauses, args, *node.bounds, unique=unique)
        case _:
            a, b = args[0], args[1] if isinstance(node, Iff) else -args[1]
            clauses.lists += [[-a, b], [a, -b]]


# --- plain --------------------------------------------------------------------------------------------------------


def _distribute(formula: Expr, index: dict[Expr, int], limit: int) -> list[Sequence[int]]:
    def too_many() -> KnowledgeError:
        return KnowledgeError(
            f"the plain clauses of this formula are too many: more than {limit} while distributing. "
            "Use to_cnf(formula, method='tseitin'), which adds variables instead, or raise limit"
        )

    def at_least_subsets(build: Builder, k: int, args: Sequence[Expr]) -> Expr:
        """Of every n - k + 1 arguments one is true."""
        if comb(len(args), max(k - 1, 0)) > limit:
            raise too_many()
        if k <= 0 or k > len(args):
            return build.truth(k <= 0)
        return build.join(And, [build.join(Or, chosen) for chosen in combinations(args, len(args) - k + 1)])

    root = normalise(formula, at_least_subsets)
    if isinstance(root, Truth):
        return [] if root.value else [()]
    written = 0
    clauses: dict[int, dict[frozenset[int], None]] = {}  # dicts, because they keep the order
    for node in formulas(root):
        if node in index:
            clauses[id(node)] = {frozenset((index[node],)): None}
        elif isinstance(node, Not):
            clauses[id(node)] = {frozenset((-index[node.children[0]],)): None}
        elif isinstance(node, And):
            clauses[id(node)] = {c: None for child in node.children for c in clauses[id(child)]}
        else:
            # All literals of the disjunction at once, then the conjunctions one by one.
            empty: frozenset[int] = frozenset()
            below = [clauses[id(child)] for child in node.children]
            base = empty.union(*[clause for b in below if len(b) == 1 for clause in b])
            product = {} if any(-x in base for x in base) else {base: None}
            for b in below:
                if len(b) == 1:
                    continue
                longer: dict[frozenset[int], None] = {}
                for left in product:
                    for right in b:
                        clause = left | right
                        written += len(clause)
                        if not any(-x in clause for x in clause):
                            longer[clause] = None
                        if len(longer) > limit or written > 20 * limit:
                            raise too_many()
                product = longer
            clauses[id(node)] = product
    return [sorted(c, key=abs) for c in clauses[id(root)]]
