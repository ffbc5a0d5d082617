"""Proofs: which facts and which clauses make something true, the most probable ones first.

A proof is a set of literals about what is not defined, from which the clauses derive the goal without a circle; its
probability is that of all its literals together, those of different symbols and objects being independent. Proofs are
found best first: a proof in the making is as probable as what it uses already, and each step can only make it less so.
What is negated is complete, so it is taken from the least model: a proof then lists what must fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import NamedTuple

from doxa._html import Html, box, markup
from doxa.errors import BindingError, BudgetError, KnowledgeError
from doxa.logic.syntax._binders import Count
from doxa.logic.syntax._define import Define, strata
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._kb import Fact, KnowledgeBase
from doxa.logic.syntax._node import drive
from doxa.logic.syntax._simplify import Builder
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.logic.text._parser import parse_formula
from doxa.logic.unfold._definitions import Least, Spend, replaced
from doxa.logic.unfold._domains import ENTRIES, Clock, Domains
from doxa.logic.unfold._propositional import Propositions

LARGEST_COUNT = 10
"""Counts of more formulas than this are not taken apart."""


class Line(NamedTuple):
    """One line of a proof: a literal, or a derived atom and the clause that derives it; and the line it is under."""

    node: Expr
    above: int | None
    clause: Define | None = None
    probability: float | None = None


@dataclass(frozen=True)
class Proof:
    """Why a goal holds: the lines of the derivation, each after the one it stands under.

    ``str`` shows it as indented text, and :meth:`svg` as a picture.

    >>> from doxa.logic import parse
    >>> kb = parse("pred rain, cold; define snow := rain & cold", warn=False)
    >>> (proof,) = proofs(kb, "snow", {"rain": 0.5, "cold": 0.4})
    >>> print(proof)
    snow, probability 0.2
      snow  by define snow := rain & cold
        rain  0.5
        cold  0.4
    """

    goal: Expr
    probability: float
    lines: tuple[Line, ...]

    @property
    def facts(self) -> tuple[Expr, ...]:
        """The literals that it rests on, each once."""
        return tuple(dict.fromkeys([line.node for line in self.lines if line.clause is None]))

    def _depths(self) -> list[int]:
        depths: list[int] = []
        for line in self.lines:
            depths.append(1 if line.above is None else depths[line.above] + 1)
        return depths

    def _ordered(self) -> list[int]:
        """The lines in the order of the text: each with all that stands under it."""
        under: dict[int | None, list[int]] = {}
        for number, line in enumerate(self.lines):
            under.setdefault(line.above, []).append(number)
        found: list[int] = []
        stack = under.get(None, [])[::-1]
        while stack:
            found.append(stack.pop())
            stack += under.get(found[-1], [])[::-1]
        return found

    def __str__(self) -> str:
        depths = self._depths()
        said = [f"{self.goal}, probability {self.probability:.4g}"]
        for number in self._ordered():
            line = self.lines[number]
            note = f"by {line.clause}" if line.clause is not None else f"{line.probability:.4g}"
            said.append(f"{'  ' * depths[number]}{line.node}  {note}")
        return "\n".join(said)

    def svg(self) -> str:
        """The proof as a picture: what is derived above what it is derived from.

        >>> from doxa.logic import parse
        >>> kb = parse("pred rain, cold; define snow := rain & cold", warn=False)
        >>> (proof,) = proofs(kb, "snow", {"rain": 0.5, "cold": 0.4})
        >>> proof.svg().startswith("<svg"), proof.svg().count("<rect")
        (True, 4)
        """
        depths, order = [0, *self._depths()], [0, *[n + 1 for n in self._ordered()]]
        texts = [f"{self.goal}", *[str(line.node) for line in self.lines]]
        above = [None, *[0 if line.above is None else line.above + 1 for line in self.lines]]
        notes = [f"{self.probability:.4g}"]
        notes += ["" if line.probability is None else f"{line.probability:.4g}" for line in self.lines]
        widths = [max(7.2 * max(len(t), len(n)) + 16, 40) for t, n in zip(texts, notes, strict=True)]
        left: dict[int, float] = {}
        inside: dict[int, list[int]] = {}
        for n in order[1:]:
            inside.setdefault(int(above[n] or 0), []).append(n)
        cursor = 10.0
        for n in reversed(order):  # what stands under a line is placed before it
            if n in inside:
                first, last = inside[n][-1], inside[n][0]
                left[n] = (left[first] + left[last] + widths[last]) / 2 - widths[n] / 2
                left[n] = max(left[n], 10.0)
            else:
                left[n] = cursor
            cursor = max(cursor, left[n] + widths[n] + 14)
        width, height = cursor, 70 * (max(depths) + 1) + 10
        size = f'width="{width:.0f}" height="{height}"'
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace">']
        for n in order[1:]:
            up = int(above[n] or 0)
            x, y = left[n] + widths[n] / 2, 70 * depths[n] + 10
            start = f'x1="{left[up] + widths[up] / 2:.0f}" y1="{70 * depths[up] + 50}"'
            parts.append(f'<line {start} x2="{x:.0f}" y2="{y}" stroke="#888"/>')
        for n in order:
            fact = n > 0 and self.lines[n - 1].clause is None
            x, y = left[n], 70 * depths[n] + 10
            fill = "#e8f1e4" if fact else "#e6ecf5"
            middle = x + widths[n] / 2
            place = f'x="{x:.0f}" y="{y}" width="{widths[n]:.0f}" height="40" rx="5"'
            parts.append(f'<rect {place} fill="{fill}" stroke="#556"/>')
            for text, down, style in ((markup(texts[n]), 17, "12"), (notes[n], 33, '11" fill="#555')):
                place = f'x="{middle:.0f}" y="{y + down}" font-size="{style}" text-anchor="middle"'
                parts.append(f"<text {place}>{text}</text>")
        return "".join([*parts, "</svg>"])

    def _repr_html_(self) -> str:
        return box(Html(self.svg()))


class _Goal(NamedTuple):
    """What is to be shown, or refuted; under which line; and what is being derived there already."""

    node: Expr
    positive: bool
    above: int | None
    within: frozenset[Expr]


class _State(NamedTuple):
    goals: tuple[_Goal, ...]
    used: tuple[Expr, ...]
    lines: tuple[Line, ...]


def proofs(
    kb: KnowledgeBase,
    goal: str | Expr,
    probabilities: Mapping[str, float | bool],
    *,
    k: int = 3,
    otherwise: float = 0.0,
    domains: Domains | None = None,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> list[Proof]:
    """The ``k`` most probable proofs of a formula, best first; fewer if there are fewer.

    A proof that uses all that a better one uses, and more, is left out.

    Args:
        kb: the definitions and facts.
        goal: what is to be proved.
        probabilities: of each ground atom, by its text: ``{"edge(a, b)": 0.9}``. With 0 and 1 they are a world, and the
            proofs show why the goal holds in it. Facts are certain.
        k: how many.
        otherwise: the probability of atoms that are not listed.
        domains, entries, seconds: see :func:`~doxa.logic.ground`; entries also bound the steps of the search.

    >>> from doxa.logic import parse
    >>> kb = parse('''
    ...     sort Node = {a, b, c}
    ...     pred edge(Node, Node)
    ...     define path(x, y: Node) := edge(x, y)
    ...     define path(x, y: Node) := exists z: Node. edge(x, z) & path(z, y)
    ... ''')
    >>> for proof in proofs(kb, "path(a, c)", {"edge(a, b)": 0.9, "edge(b, c)": 0.8, "edge(a, c)": 0.3}):
    ...     print(proof)
    path(a, c), probability 0.72
      path(a, c)  by define path(x, y: Node) := exists z: Node. edge(x, z) & path(z, y)
        edge(a, b)  0.9
        path(b, c)  by define path(x, y: Node) := edge(x, y)
          edge(b, c)  0.8
    path(a, c), probability 0.3
      path(a, c)  by define path(x, y: Node) := edge(x, y)
        edge(a, c)  0.3
    """
    formula = parse_formula(goal, kb) if isinstance(goal, str) else goal
    search = _Search(kb, formula, probabilities, otherwise, domains, entries, Clock(seconds))
    return search.best(k)


class _Search:
    def __init__(
        self,
        kb: KnowledgeBase,
        goal: Expr,
        probabilities: Mapping[str, float | bool],
        otherwise: float,
        domains: Domains | None,
        entries: int,
        clock: Clock,
    ) -> None:
        self.kb, self.goal, self.entries, self.clock = kb, goal, entries, clock
        self.view = Propositions(kb.signature, kb, [goal], domains, entries, clock)
        self.definer = self.view.definer
        self.rules: dict[Expr, list[tuple[Define, Expr]]] = {}
        self.root = self._unfolded()
        self.solved: dict[Expr, Expr] = {}
        self.probability = self._probabilities(probabilities, otherwise)
        self.families = {atom: family for family in self.view.families for atom in family}

    def _unfolded(self) -> Expr:
        """The goal over atoms that stand for themselves; and the clauses of those that are defined."""
        if self.definer is None:
            return self.view.unfold(self.goal)
        known = self.definer.keep()
        root = self.view.unfold(self.goal)
        while len(self.rules) < len(known):
            for key, atom in list(known.items())[len(self.rules) :]:
                self.rules[atom] = drive(self.definer.rules(key))
        return root

    def _probabilities(self, given: Mapping[str, float | bool], otherwise: float) -> dict[Expr, float]:
        found: dict[Expr, float] = {}
        names = {str(atom): atom for atom in self.view.atoms}
        for name, value in given.items():
            if not 0 <= value <= 1:
                raise BindingError(f"probabilities: {name} has {value!r}; a probability lies between 0 and 1")
            symbol = name.partition("(")[0].partition(" ")[0]
            if name not in names and self.kb.signature.describe(symbol) is None:
                near = did_you_mean(name, names, "check its name")
                raise BindingError(f"probabilities: there is no atom {name!r}; {near}")
        for name, atom in names.items():
            said = self.kb.known(atom.name, Fact(atom).args) if isinstance(atom, Call) else None
            found[atom] = float(said) if said is not None else float(given.get(name, otherwise))
        return found

    def best(self, k: int) -> list[Proof]:
        heap: list[tuple[float, int, _State]] = []
        number = count()
        heapq.heappush(heap, (-1.0, next(number), _State((_Goal(self.root, True, None, frozenset()),), (), ())))
        found: list[tuple[frozenset[Expr], Proof]] = []
        steps = 0
        met: set[tuple[frozenset[Expr], frozenset[tuple[Expr, bool, frozenset[Expr]]]]] = set()
        while heap and len(found) < k:
            cost, _, state = heapq.heappop(heap)
            key = (frozenset(state.used), frozenset([(g.node, g.positive, g.within) for g in state.goals]))
            if key in met or any(better <= key[0] for better, _ in found):
                continue  # what is left to show was left before with as much used, or uses more than is needed
            met.add(key)
            steps += 1
            self.clock.check()
            if steps > self.entries:
                raise BudgetError("entries", f"the search took more than entries={self.entries:,} steps; raise entries")
            if not state.goals:
                found.append((key[0], Proof(self.goal, -cost, state.lines)))
                continue
            for weight, new in self._steps(state):
                if weight > 0:
                    heapq.heappush(heap, (cost * weight, next(number), new))
        return [proof for _, proof in found]

    def _steps(self, state: _State) -> Iterable[tuple[float, _State]]:
        """What the first goal may rest on: each way, and how probable it is beside what is used already."""
        goal, rest = state.goals[0], state.goals[1:]
        node, positive = goal.node, goal.positive

        def ways(options: Iterable[Sequence[tuple[Expr, bool]]]) -> Iterable[tuple[float, _State]]:
            for parts in options:
                new = tuple([goal._replace(node=part, positive=sign) for part, sign in parts])
                yield 1.0, state._replace(goals=(*new, *rest))

        match node:
            case Truth():
                return ways([[]] if node.value == positive else [])
            case Not():
                return ways([[(node.children[0], not positive)]])
            case And() | Or():
                if (type(node) is And) == positive:
                    return ways([[(c, positive) for c in node.children]])
                return ways([[(c, positive)] for c in node.children])
            case Implies():
                a, b = node.children
                return ways([[(a, False)], [(b, True)]] if positive else [[(a, True), (b, False)]])
            case Iff() | Xor():
                a, b = node.children
                same = (type(node) is Iff) == positive
                return ways([[(a, True), (b, same)], [(a, False), (b, not same)]])
            case Count():
                return ways(self._counted(node, positive))
            case Call() if node in self.rules:
                return self._derived(state, goal, rest) if positive else ways([[(self._least(node), False)]])
            case Call() | Compare():
                if not positive and node in self.families:
                    return ways([[(other, True)] for other in self.families[node] if other is not node])
                return self._literal(state, goal, rest)
        raise KnowledgeError(f"{node.label}. Leave such cases out with a guard: forall ... where ...")

    def _counted(self, node: Count, positive: bool) -> list[list[tuple[Expr, bool]]]:
        """The fewest formulas whose truth or falsity is enough for a count."""
        parts, (low, high) = node.children, node.bounds
        size = len(parts)
        if size > LARGEST_COUNT:
            what = f"'{node.kind} {node.count}' of {size} formulas"
            raise KnowledgeError(f"could not decide: proofs of {what} are not listed")
        # At least so many, at most so many; a count that fails has fewer or more than it wants.
        wanted = [(low, high)] if positive else [(0, low - 1), (high + 1, size)]
        found: list[list[tuple[Expr, bool]]] = []
        for least_, most in wanted:
            if not 0 <= least_ <= most <= size:
                continue
            for true in combinations(range(size), least_):
                others = [i for i in range(size) if i not in true]
                held = [(parts[i], True) for i in true]
                found += [[*held, *[(parts[i], False) for i in no]] for no in combinations(others, size - most)]
        return found

    def _derived(self, state: _State, goal: _Goal, rest: tuple[_Goal, ...]) -> Iterable[tuple[float, _State]]:
        if goal.node in goal.within:  # nothing is its own reason
            return
        for clause, body in self.rules[goal.node]:
            lines = (*state.lines, Line(goal.node, goal.above, clause))
            inner = _Goal(body, True, len(state.lines), goal.within | {goal.node})
            yield 1.0, state._replace(goals=(inner, *rest), lines=lines)

    def _literal(self, state: _State, goal: _Goal, rest: tuple[_Goal, ...]) -> Iterable[tuple[float, _State]]:
        node = goal.node
        literal, other = (node, Not(node)) if goal.positive else (Not(node), node)
        chance = self.probability[node] if goal.positive else 1 - self.probability[node]
        clash = other in state.used or any(o in state.used for o in self.families.get(node, ()) if o is not node)
        lines = (*state.lines, Line(literal, goal.above, None, chance))
        if literal in state.used:
            yield 1.0, state._replace(goals=rest, lines=lines)
        elif not clash:
            yield chance, _State(rest, (*state.used, literal), lines)

    def _least(self, atom: Expr) -> Expr:
        """A defined atom in terms of what is not defined."""
        if not self.solved:
            build = self.view._build
            bodies = {a: build.join(Or, [body for _, body in rules]) for a, rules in self.rules.items()}
            assert self.definer is not None  # there is a defined atom
            self.solved = _stratified(bodies, self.kb, build, self.definer.spend)
        return self.solved[atom]


def _stratified(bodies: Mapping[Expr, Expr], kb: KnowledgeBase, build: Builder, spend: Spend) -> dict[Expr, Expr]:
    """The least solution, one stratum after the other."""
    solved: dict[Expr, Expr] = {}
    for stratum in strata(kb.signature.definitions):
        own = {a: b for a, b in bodies.items() if isinstance(a, Call) and a.name in stratum.names}
        below = {id(a): s for a, s in solved.items()}
        found = Least({a: replaced(b, below, build, spend) for a, b in own.items()}, build, spend)
        solved |= {a: found[a] for a in own}
    return solved
