r"""From formulas to clauses: by distribution (plain), or with a new variable for each subformula (Tseitin).

Counts have three encodings of  low ≤ Σ x_i ≤ high:

- *binomial*: every high+1 literals have a false one, every n-low+1 a true one. No new variables.
- *counter* (Sinz 2005): s(i, j), at least j of the first i are true, where s(i, j) ⟺ s(i-1, j) ∨ x_i ∧ s(i-1, j-1).
- *totalizer* (Bailleux and Boufkhad 2003): the same numbers in unary, added along a balanced tree,
  r(i + j) ⟸ a(i) ∧ b(j) and ¬r(i + j + 1) ⟸ ¬a(i + 1) ∧ ¬b(j + 1).

The last two have a direction *up* (many true literals force the outputs; what "at most" needs) and one *down* (an
output forces that many literals; what "at least" needs). With both, the new variables are functions of the literals, so
that a formula and its clauses have the same number of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, log2

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic.sat._cnf import CNF
from doxa.logic.sat._nnf import normalise
from doxa.logic.syntax._binders import Count
from doxa.logic.syntax._simplify import Builder, atoms_of, formulas
from doxa.logic.syntax._tree import And, Expr, Iff, Not, Or, Truth, Xor
from doxa.logic.unfold._domains import ENDLESS, ENTRIES, LITERALS, Clock, check_entries


class Clauses:
    """Clauses that grow, with new variables on demand, until the clock stops them."""

    def __init__(self, variables: int, clock: Clock = ENDLESS) -> None:
        self.variables = variables
        self.clock = clock
        self.lists: list[list[int]] = []

    def add(self, *literals: int) -> None:
        self.lists.append(list(literals))

    def fresh(self) -> int:
        """A new variable."""
        self.clock.check()
        self.variables += 1
        return self.variables


_METHODS = ("tseitin", "polarity", "plain")


def to_cnf(
    formula: Expr,
    *,
    method: str = "tseitin",
    atoms: Sequence[Expr] | None = None,
    limit: int = 100_000,
    entries: int = ENTRIES,
    clock: Clock = ENDLESS,
) -> CNF:
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
        entries: the most that may be built, of eight literals each; the others estimate it first.
        clock: stops it when it takes too long; by default nothing does.

    Raises:
        BudgetError: the clauses would take more entries, or it could not be done in time.

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
        return CNF.from_clauses(_distribute(formula, index, limit, clock), names)
    clauses = Clauses(len(names), clock)
    root = normalise(formula, None, keep_equivalences=True, clock=clock)
    literals = sum([_literals_of(node) for node in formulas(root) if node not in index])
    remedy = "count up to smaller numbers, ground over fewer objects, or raise entries"
    check_entries(literals // LITERALS, entries, "writing this formula as clauses", remedy)
    _tseitin(root, index, clauses, unique=method == "tseitin")
    return CNF.from_clauses(clauses.lists, (*names, *[None] * (clauses.variables - len(names))))


def _literals_of(node: Expr) -> int:
    """How many literals the clauses about a node have, at most, up to a small factor."""
    n = len(node.children)
    if not isinstance(node, Count):
        return 2 * n
    low, high = node.bounds
    top = min(min(high, n) + 1, n - low + 1, n)  # what is counted: the true ones or the false ones
    return 8 * n * max(top, 1)


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
        literal[id(node)] = _name(node, args, index, clauses, unique or id(node) in both)
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


def _name(node: Expr, args: list[int], index: dict[Expr, int], clauses: Clauses, backward: bool) -> int:
    """A literal for the node, with the clauses literal -> definition and, ``backward``, definition -> literal."""
    if node in index:
        return index[node]
    if isinstance(node, Not):
        return -args[0]
    if isinstance(node, Count):
        return _name_count(node, args, clauses, backward)
    if isinstance(node, And):
        return _name_and(args, clauses, True, backward)
    if isinstance(node, Or):
        return -_name_and([-x for x in args], clauses, backward, True)
    g = clauses.fresh()
    a, b = args[0], args[1] if isinstance(node, Iff) else -args[1]
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


def _name_count(node: Count, args: list[int], clauses: Clauses, backward: bool) -> int:
    kind, k = node.kind, node.count
    if kind == "at least":
        return outputs(clauses, args, k, up=backward)[k - 1]
    if kind == "at most":
        return -outputs(clauses, args, k + 1, down=backward)[k]
    s = outputs(clauses, args, k + 1)
    return _name_and([s[k - 1], -s[k]], clauses, True, backward)


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


def _distribute(formula: Expr, index: dict[Expr, int], limit: int, clock: Clock) -> list[Sequence[int]]:
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

    root = normalise(formula, at_least_subsets, clock=clock)
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
                    clock.check()
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


# --- counts -------------------------------------------------------------------------------------------------------

METHODS = ("auto", "binomial", "counter", "totalizer")

_MOST_PLAIN_CLAUSES = 64  # up to this number, no new variables: pairwise clauses up to 11 literals


def assert_count(
    clauses: Clauses, literals: Sequence[int], low: int, high: int, *, method: str = "auto", unique: bool = True
) -> None:
    """Add clauses that say: at least ``low`` and at most ``high`` of the literals are true. Repeated ones count again.

    ``"auto"`` is binomial for few clauses, then the smaller of the other two. With ``unique``, new variables have only
    one value in every model.
    """
    n = len(literals)
    if method not in METHODS:
        raise ConfigError(f"method={method!r} is unknown; choose one of {', '.join(METHODS)}")
    if low > min(n, high) or high < 0:
        clauses.add()
        return
    low, high = max(low, 0), min(high, n)
    if low == 0 and high == n:
        return
    plain = (comb(n, high + 1) if high < n else 0) + (comb(n, low - 1) if low else 0)
    if method == "auto" and plain <= _MOST_PLAIN_CLAUSES:
        method = "binomial"
    if method == "binomial":
        if high < n:
            clauses.lists += [[-x for x in chosen] for chosen in combinations(literals, high + 1)]
        if low:
            clauses.lists += [list(chosen) for chosen in combinations(literals, n - low + 1)]
        return
    # Counting the false literals is cheaper when the bounds are high.
    if _top(n - high, n - low, n) < _top(low, high, n):
        literals, low, high = [-x for x in literals], n - high, n - low
    top = _top(low, high, n)
    s = outputs(clauses, literals, top, method=method, up=unique or high < n, down=unique or low > 0)
    if low:
        clauses.add(s[low - 1])
    if high < n:
        clauses.add(-s[high])


def _top(low: int, high: int, n: int) -> int:
    """The last output that the bounds speak of."""
    return high + 1 if high < n else low


def outputs(
    clauses: Clauses, literals: Sequence[int], top: int, *, method: str = "auto", up: bool = True, down: bool = True
) -> list[int]:
    """Literals s_1, ..., s_top, where s_j says that at least j of the given literals are true."""
    if method == "auto":  # a counter has n·top variables, a totalizer about n·log n
        method = "counter" if top <= log2(len(literals)) else "totalizer"
    return (_counter if method == "counter" else _totalizer)(clauses, literals, top, up, down)


def _counter(clauses: Clauses, literals: Sequence[int], top: int, up: bool, down: bool) -> list[int]:
    before: list[int] = []
    for i, x in enumerate(literals):
        after = [clauses.fresh() for _ in range(min(i + 1, top))] if i else [x]
        for j, s in enumerate(after if i else []):
            # before[j] says "at least j + 1 before x"; past its end that is false, and "at least 0" is true
            same, less = before[j : j + 1], before[j - 1 : j] if j else []
            if up:
                clauses.lists += [[s, -b] for b in same]
                clauses.add(s, -x, *[-b for b in less])
            if down:
                clauses.add(-s, x, *same)
                clauses.lists += [[-s, b] for b in less]
        before = after
    return before


def _totalizer(clauses: Clauses, literals: Sequence[int], top: int, up: bool, down: bool) -> list[int]:
    level = [[x] for x in literals]
    while len(level) > 1:
        pairs = [_merge(clauses, a, b, top, up, down) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _merge(clauses: Clauses, a: list[int], b: list[int], top: int, up: bool, down: bool) -> list[int]:
    r = [clauses.fresh() for _ in range(min(len(a) + len(b), top))]
    for i in range(len(a) + 1):
        for j in range(min(len(b), len(r) - i) + 1):
            if up and i + j:
                clauses.add(r[i + j - 1], *[-x for x in a[i - 1 : i] if i], *[-x for x in b[j - 1 : j] if j])
            if down and i + j < len(r):
                clauses.add(-r[i + j], *a[i : i + 1], *b[j : j + 1])
    return r
