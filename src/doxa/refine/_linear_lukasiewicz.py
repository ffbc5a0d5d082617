r"""Łukasiewicz formulas as linear constraints: where the truth is concave, "at least t" is a polyhedron."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import comb, prod

import torch

from doxa.errors import ConfigError
from doxa.logic import And, Call, Compare, Count, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.refine._linear_system import LinearSystem
from doxa.refine._refine import Formulas, _formulas

_ROWS = 10_000
_Key = tuple[Expr, bool]
"""A formula, and whether it is negated."""


@dataclass(frozen=True)
class _Affine:
    constant: Fraction
    terms: tuple[tuple[int, Fraction], ...] = ()

    @property
    def low(self) -> Fraction:
        """The smallest value for atoms in [0, 1]."""
        return self.constant + sum((min(c, Fraction(0)) for _, c in self.terms), Fraction(0))

    @property
    def high(self) -> Fraction:
        return self.constant + sum((max(c, Fraction(0)) for _, c in self.terms), Fraction(0))


def lukasiewicz_system(formula: Formulas, target: float = 1.0, *, atoms: Iterable[Expr] | None = None) -> LinearSystem:
    r"""The linear constraints that say: every formula has a Łukasiewicz truth of at least the target.

    A disjunction of literals is at least t where the sum of its literals is, an implication where
    :math:`1 - a + b ≥ t`, and a conjunction is 1 where all its parts are. In general a truth that is the smallest of
    affine functions, :math:`f(x) = \min_k (c_k·x + d_k)`, is at least t where all of them are. With
    :class:`LinearProjection` this gives the truth values nearest in L₂ that satisfy the formulas, with a certificate;
    :class:`Refine` takes any formula, and promises neither.

    Args:
        formula: as for :class:`Refine`; of several formulas each reaches the target.
        target: the least truth of every formula.
        atoms: the order of the values; by default that in which atoms appear.

    Raises:
        ConfigError: if the truth of a part is not concave, such as that of a conjunction inside a disjunction.

    >>> from doxa.logic import propositions
    >>> from doxa.refine import LinearProjection
    >>> rain, sprinkler, wet = propositions("rain sprinkler wet")
    >>> system = lukasiewicz_system((rain >> wet) & (sprinkler >> wet))
    >>> system.rows[:2], system.names
    (('rain -> wet', 'sprinkler -> wet'), ('rain', 'wet', 'sprinkler'))
    >>> LinearProjection(system)(torch.tensor([0.8, 0.2, 0.5]))
    tensor([0.5000, 0.5000, 0.5000])
    >>> lukasiewicz_system(wet | (rain & sprinkler))
    Traceback (most recent call last):
    doxa.errors.ConfigError: the Łukasiewicz truth of `rain & sprinkler` is not concave here, so ...
    """
    if not 0 <= target <= 1:
        raise ConfigError(f"the target is {target}, expected a truth value between 0 and 1")
    named, found = _formulas(formula)
    listed = tuple(dict.fromkeys(found if atoms is None else atoms))
    translation = _Translation({atom: i for i, atom in enumerate(listed)}, Fraction(str(float(target))))
    rows: dict[tuple[_Affine, str], None] = {}
    for name, root in named.items():
        header = "" if len(named) == 1 else f"[{name}] "
        for form, part in translation.rows(root):
            rows[form, header + part] = None
            if len(rows) > _ROWS:
                raise ConfigError(f"the formulas need more than {_ROWS:,} rows; give fewer, or target=1.0")
    matrix = torch.zeros(len(rows) + 2 * len(listed), len(listed), dtype=torch.float64)
    bounds = torch.zeros(len(matrix), dtype=torch.float64)
    said = []
    for r, (form, text) in enumerate(rows):
        for i, c in form.terms:
            matrix[r, i] = -float(c)
        bounds[r] = float(form.constant - translation.target)
        said.append(text if target == 1 else f"{text} is at least {target:g}")
    for i, atom in enumerate(listed):
        r = len(rows) + 2 * i
        matrix[r, i], matrix[r + 1, i], bounds[r + 1] = -1, 1, 1
        said += [f"0 <= {atom}", f"{atom} <= 1"]
    return LinearSystem(matrix, bounds, names=tuple(map(str, listed)), rows=tuple(said))


class _Translation:
    """From formulas over numbered atoms to affine functions."""

    def __init__(self, place: dict[Expr, int], target: Fraction) -> None:
        self.place, self.target = place, target
        self.known: dict[tuple[int, bool], list[_Affine]] = {}
        self.kept: list[Expr] = []
        self.written: dict[int, Expr] = {}

    def rows(self, root: Expr) -> Iterator[tuple[_Affine, str]]:
        """What must be at least the target, and the part of the formula that says so."""
        todo: list[_Key] = [(root, False)]
        while todo and self.target:
            key = todo.pop(0)
            parts = self._parts(key)
            if isinstance(key[0], Not) or (parts is not None and parts[0] and self.target == 1):
                todo[:0] = [(key[0].children[0], not key[1])] if parts is None else parts[1]
                continue
            said = str(Not(key[0]) if key[1] else key[0])
            if parts is not None and parts[0]:  # a conjunction: below 0 it is below the target, clipped or not
                forms = self._sums([self._forms(part) for part in parts[1]], key, len(parts[1]) - 1)
            else:
                forms = self._forms(key)
            for form in forms:
                if form.low < self.target:
                    yield form, said

    def _parts(self, key: _Key) -> tuple[bool, list[_Key]] | None:
        """The arguments of a conjunction (True) or disjunction (False), and None for anything else."""
        node, negated = key
        match node:
            case And() | Or():
                return isinstance(node, And) != negated, [(child, negated) for child in node.children]
            case Implies():
                left, right = node.children
                return negated, [(left, not negated), (right, negated)]
            case Iff() | Xor():
                both = isinstance(node, Iff) != negated
                return both, [(part, not both) for part in self._ways(node).children]
            case Count():
                return self._parts((self._clauses(node), negated)) or (True, [(self._clauses(node), negated)])
        return None

    def _ways(self, node: Expr) -> Expr:
        """An equivalence as two implications."""
        if id(node) not in self.written:
            left, right = node.children
            self.written[id(node)] = And(Implies(left, right), Implies(right, left))
            self.kept.append(node)  # so that no other object gets its identity
        return self.written[id(node)]

    def _clauses(self, node: Count) -> Expr:
        """A counting constraint as a conjunction: at least k of n, so that of any n - k + 1 one is true."""
        if id(node) not in self.written:
            n, (low, high), parts = len(node.children), node.bounds, list[Expr]()
            for wanted, size, negated in ((low > 0, n - low + 1, False), (high < n, high + 1, True)):
                if wanted and 0 < size <= n and comb(n, size) > _ROWS:
                    raise ConfigError(f"`{node}` needs {comb(n, size):,} rows, more than {_ROWS:,}; count fewer")
                if wanted:
                    literals = [Not(c) if negated else c for c in node.children]
                    parts += [Or(*chosen) for chosen in combinations(literals, size)] if size > 0 else [Truth(False)]
            self.written[id(node)] = And(*parts)
            self.kept.append(node)
        return self.written[id(node)]

    def _forms(self, root: _Key) -> list[_Affine]:
        """The affine functions whose smallest is the truth of a formula, for atoms in [0, 1]."""
        stack = [root]
        while stack:
            key = node, negated = stack[-1]
            place = id(node), negated
            if place in self.known:
                stack.pop()
                continue
            if isinstance(node, Not):
                below: list[_Key] = [(node.children[0], not negated)]
                join = None
            elif (parts := self._parts(key)) is not None:
                join, below = parts
            else:
                self.known[place] = [self._leaf(node, negated)]
                self.kept.append(node)
                continue
            if missing := [k for k in below if (id(k[0]), k[1]) not in self.known]:
                stack += missing
                continue
            lists = [self.known[id(child), sign] for child, sign in below]
            self.kept.append(node)
            if join is None:
                self.known[place] = lists[0]
            elif join:
                forms = self._sums(lists, key, len(lists) - 1)
                if any(form.low < 0 for form in forms):
                    said = str(Not(node) if negated else node)
                    raise ConfigError(
                        f"the Łukasiewicz truth of `{said}` is not concave here, so no linear constraints say that "
                        "the formula is true enough; use Refine, or write the formula as clauses"
                    )
                self.known[place] = forms
            else:
                forms = self._sums(lists, key, 0)
                over = any(form.high > 1 for form in forms)
                self.known[place] = [*[f for f in forms if f.low < 1], *([_Affine(Fraction(1))] if over else [])]
                self.known[place] = self.known[place] or [_Affine(Fraction(1))]
        return self.known[id(root[0]), root[1]]

    def _sums(self, lists: list[list[_Affine]], key: _Key, less: int) -> list[_Affine]:
        """Every sum of one function of each list, less a number."""
        if prod(map(len, lists)) > _ROWS:
            raise ConfigError(
                f"`{key[0]}` needs {prod(map(len, lists)):,} rows, more than {_ROWS:,}; with target=1.0 a conjunction "
                "needs only those of its parts"
            )
        found: dict[_Affine, None] = {}
        for chosen in product(*lists):
            terms: dict[int, Fraction] = {}
            for form in chosen:
                for i, c in form.terms:
                    terms[i] = terms.get(i, Fraction(0)) + c
            constant = sum((form.constant for form in chosen), Fraction(-less))
            found[_Affine(constant, tuple(sorted((i, c) for i, c in terms.items() if c)))] = None
        return list(found)

    def _leaf(self, node: Expr, negated: bool) -> _Affine:
        match node:
            case Truth():
                return _Affine(Fraction(node.value != negated))
            case Call() | Compare():
                if node not in self.place:
                    raise ConfigError(f"the atom {node} is in a formula but not in atoms; add it there")
                one = ((self.place[node], Fraction(-1 if negated else 1)),)
                return _Affine(Fraction(1 if negated else 0), one)
        raise ConfigError(
            f"{node} is not propositional; ground it over finite sorts first: ground(formula, kb).formula"
        )
