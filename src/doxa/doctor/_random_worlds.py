"""Random truth values: worlds in which a knowledge base can be tried before there are networks and data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from doxa.doctor._layout import Layout, has_objects, ranged_rows, symbols
from doxa.doctor._observed import Compared, compared_values
from doxa.errors import BudgetError, KnowledgeError
from doxa.fuzzy import Logic, nonvanishing_fraction
from doxa.logic import INT, REAL, Expr, Function, Interpretation, KnowledgeBase, Predicate, postorder, probs
from doxa.logic.syntax._binders import Binder, Let, Quantifier
from doxa.logic.syntax._tree import And, Call, Iff, Implies, Not, Or, Xor

ENTRIES = 1 << 22  # numbers in a tensor: with what is kept for derivatives, this fits 4 GB
LENGTH = 3  # of a field that is a sequence
_MOST = 50  # arguments, beyond which a fraction says no more
_SIGNS = {"neg": "¬", "conj": "∧", "disj": "∨", "implies": "→", "forall": "∀", "exists": "∃"}


class RandomWorlds:
    """Random truth values for every predicate, random distributions for every function, and data to match.

    Closed predicates are true of their facts; other predicates of guards are true of a random half of the objects. A
    BudgetError says that a tensor would have more than ``entries`` numbers. ``counts`` says how many objects of some
    sorts, or rows of some kinds, there are in place of ``objects``.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        objects: int,
        generator: torch.Generator,
        entries: int = ENTRIES,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self.kb, self.generator, counts = kb, generator, counts or {}
        signature = kb.signature
        constants = signature.constants.values()
        sorts = [sort for sort in signature.sorts.values() if has_objects(sort)]
        names = {sort.name: [c.name for c in constants if c.sort == sort] for sort in sorts}
        rows = sorted(ranged_rows(*[axiom.formula for axiom in kb.axioms]))
        every = {sort: max(counts.get(sort, objects), len(named)) for sort, named in names.items()}
        self.layout = Layout(signature, {row: counts.get(row, objects) for row in rows}, every, LENGTH)
        self.entries = self._check_size(objects, entries)
        self.atoms: dict[str, nn.Parameter] = {}
        self.data = self.layout.data(self._columns())
        facts = {fact.atom.name for fact in kb.facts}
        bound: dict[str, Any] = {n: i for group in names.values() for i, n in enumerate(group)}
        for symbol in symbols(kb):
            if any(sort in (INT, REAL) for sort in symbol.sorts):
                raise KnowledgeError(f"{symbol.name} is about numbers, so no truth values can be drawn; give a run")
            if isinstance(symbol, Predicate) and symbol.closed:
                continue
            endless = isinstance(symbol, Function) and symbol.result.values is None
            if endless or (symbol.name in _in_guards(kb) and symbol.name not in facts):
                bound[symbol.name] = self._certain(symbol)
            else:
                self.atoms[symbol.name] = nn.Parameter(torch.zeros(self.layout.shape(symbol)))
                bound[symbol.name] = probs(self.atoms[symbol.name])
        self.draw()
        self.bound = bound
        self.interpretation = Interpretation(kb, **bound)

    def draw(self) -> None:
        """Other truth values, uniform in (0, 1); other distributions, uniform among all."""
        functions = self.kb.signature.functions
        for name, atom in self.atoms.items():
            random = torch.rand(atom.shape, generator=self.generator).clamp(1e-4, 1 - 1e-4)
            if name in functions:
                random = -random.log()
                random = random / random.sum(-1, keepdim=True)
            atom.data.copy_(random)

    @contextmanager
    def rounded(self) -> Iterator[None]:
        """While this is open, every truth value is the nearest of 0 and 1, and functions have their likeliest value."""
        kept = {name: atom.detach().clone() for name, atom in self.atoms.items()}
        for name, atom in self.atoms.items():
            likeliest = atom.data == atom.data.amax(-1, keepdim=True) if name in self.kb.signature.functions else None
            atom.data.copy_(atom.data.round() if likeliest is None else likeliest)
        yield
        for name, atom in self.atoms.items():
            atom.data.copy_(kept[name])

    def _certain(self, symbol: Predicate | Function) -> Tensor:
        shape = self.layout.shape(symbol)[: len(symbol.sorts)]
        random = torch.rand(shape, generator=self.generator)
        if isinstance(symbol, Predicate):
            return random < 0.5
        if symbol.result == REAL:
            return random
        values = symbol.result.values
        high = self.layout.objects.get(symbol.result.name, 10) if values is None else len(values)
        place = (random * high).long()
        return place + values[0] if isinstance(values, range) else place

    def _columns(self) -> dict[tuple[str, str], Tensor]:
        """What is observed in the rows."""
        compared = compared_values([axiom.formula for axiom in self.kb.axioms], self.kb.signature)
        found = {}
        for place, sort in self.layout.observed.items():
            total = self.layout.total(*place)
            if sort == REAL:
                found[place] = torch.rand(total, generator=self.generator)
                continue
            values = sort.values or _likely(compared.get(place))
            places = torch.randint(len(values), (total,), generator=self.generator)
            found[place] = places if isinstance(values, tuple) else torch.tensor(list(values))[places]
        return found

    def _check_size(self, objects: int, limit: int) -> int:
        """The numbers in the largest tensor of all axioms; an error if they are too many."""
        sizes = {f"axiom {a.name!r} has {{:,}} instances": self.layout.instances(a.formula) for a in self.kb.axioms}
        sizes |= {f"{s.name} has {{:,}} values": math.prod(self.layout.shape(s)) for s in symbols(self.kb)}
        sizes |= {f"{r}.{f} has {{:,}} values": self.layout.total(r, f) for r, f in self.layout.sorts}
        for said, size in sizes.items():
            if size > limit:
                many = f"{said.format(size)} with {objects:,} objects or rows of each kind"
                remedy = "take fewer objects, or 'sample' in the axiom"
                raise BudgetError("entries", f"{many}, more than the limit of {limit:,}; {remedy}")
        return max(sizes.values())


def _likely(numbers: Compared | None) -> list[int]:
    """What a field may hold; a number that it is never compared with only where it is compared with no two others."""
    if numbers is None:
        return [0]
    named = [v for v in numbers.equal if v == int(v)]
    return sorted(named) if len(named) > 1 and not numbers.ordered else numbers.values(INT)


def _in_guards(kb: KnowledgeBase) -> set[str]:
    """The symbols of guards."""
    nodes = [node for axiom in kb.axioms for node in postorder(axiom.formula) if isinstance(node, Binder)]
    return {c.name for node in nodes if node.guard is not None for c in postorder(node.guard) if isinstance(c, Call)}


# Which operators a formula uses, with how many arguments, and on how much of the cube they pass a gradient on.


def used(formula: Expr, world: RandomWorlds) -> set[tuple[str, int]]:
    """The operators of a formula: which of a logic's six, and of how many arguments."""
    found: set[tuple[str, int]] = set()
    for node in postorder(formula):
        match node:
            case Not():
                found.add(("neg", 1))
            case And() | Or():
                found.add(("conj" if isinstance(node, And) else "disj", len(node.children)))
            case Implies():
                found.add(("implies", 2))
            case Iff() | Xor():
                found |= {("implies", 2), ("conj", 2)} | ({("neg", 1)} if isinstance(node, Xor) else set())
            case Quantifier() if node.kind in ("forall", "exists"):
                found.add((node.kind, math.prod([world.layout.size(g) ** len(g.names) for g in node.groups])))
            case Let():
                for value in node.values:
                    function = world.kb.signature.functions.get(getattr(value, "name", ""))
                    if function is not None and function.result.values is not None:
                        found |= {("exists", len(function.result.values)), ("conj", 2)}
    return found


def weakest(formula: Expr, logic: Logic, world: RandomWorlds, *, outermost: bool = True) -> str:
    """The operator whose gradient vanishes most often, in words; nothing if none does."""
    while not outermost and isinstance(formula, Quantifier) and formula.kind == "forall":
        formula, outermost = formula.body, True
    if logic.is_log:
        return ""
    found = []
    for slot, arity in sorted(used(formula, world)):
        if (n := min(arity, _MOST)) > 0:
            fraction = nonvanishing_fraction(getattr(logic, slot), n=n, generator=torch.Generator().manual_seed(0))
            found.append((fraction.value, slot, n))
    if not found or min(found)[0] >= 1:
        return ""
    value, slot, n = min(found)
    arguments = "" if slot == "neg" else f" of {n} truth values"
    return f"{_SIGNS[slot]}{arguments} ({getattr(logic, slot)}) passes a gradient on {value:.2g} of them"
