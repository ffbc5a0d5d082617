"""A naive fuzzy interpreter: plain loops over instances, written only for the tests.

It knows nothing of axes, lists, chunks or tables: every quantifier stacks the values of its instances and calls the
aggregator once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from tests.logic import naive
from torch import Tensor

from doxa import fuzzy as fz
from doxa.logic import And, Call, Compare, Expr, Iff, Implies, Let, Name, Not, Or, Quantifier, Truth, Xor

EPS = torch.finfo(torch.float64).eps


@dataclass
class SoftWorld:
    """``crisp`` decides guards and terms; ``soft`` gives truth values, ``draws`` distributions over values."""

    crisp: naive.World
    soft: dict[str, Any]
    draws: dict[str, Any]


class _Choose(Exception):
    def __init__(self, call: Expr, options: list[tuple[Tensor, Any]]) -> None:
        super().__init__(str(call))
        self.call, self.options = call, options


class Loops:
    """The value of formulas in a world, by a logic."""

    def __init__(self, logic: fz.Logic, world: SoftWorld) -> None:
        self.logic, self.world = logic, world

    def constant(self, value: bool) -> Tensor:
        x = torch.tensor(float(value), dtype=torch.float64)
        return x.clamp_min(EPS).log() if self.logic.is_log else x

    def chance(self, p: Tensor) -> Tensor:
        """A probability as a truth value."""
        return (p + (EPS - p.detach()).clamp_min(0)).log() if self.logic.is_log else p

    def value(self, node: Expr, env: dict[str, Any] | None = None) -> Tensor:
        env = env or {}
        logic = self.logic
        below = (
            [self.value(c, env) for c in node.children]
            if isinstance(node, Not | And | Or | Implies | Iff | Xor)
            else []
        )
        match node:
            case Truth():
                return self.constant(node.value)
            case Compare() | Call():
                return self.drawn(node, env)
            case Not():
                return logic.neg(below[0])
            case And():
                return logic.conj.reduce(torch.stack(below)) if len(below) > 2 else logic.conj(*below)
            case Or():
                return logic.disj.reduce(torch.stack(below)) if len(below) > 2 else logic.disj(*below)
            case Implies():
                return logic.implies(*below)
            case Iff():
                return logic.iff(*below)
            case Xor():
                return logic.xor(*below)
            case Let():
                return self.statement(node, env)
            case Quantifier():
                return self.quantifier(node, env)
        raise AssertionError(f"unexpected {node!r}")

    def whole(self, formula: Expr, outermost: fz.Aggregator | None = None) -> Tensor:
        """The value of a whole formula: a logarithm, if the quantifiers of the logic or ``outermost`` give them."""
        if outermost is None:
            value, is_log = self.outside(formula, {})
            wanted = self.logic.is_log or self.logic.forall.is_log or self.logic.exists.is_log
        else:
            wanted = outermost.is_log
            envs: list[dict[str, Any]] = [{}]
            if isinstance(formula, Quantifier) and formula.kind == "forall":
                envs, formula = list(naive.instances(formula, self.world.crisp, {})), formula.body
            found = [self.outside(formula, e) for e in envs]
            logs = [self.chance_log(v) if wanted and not is_log else v for v, is_log in found]
            plain = [v.exp() if is_log and not wanted else v for v, (_, is_log) in zip(logs, found, strict=True)]
            x = torch.stack(plain) if plain else torch.zeros(0, dtype=torch.float64)
            mean = x.mean() if len(x) else torch.tensor(0.0 if wanted else 1.0, dtype=torch.float64)
            assert outermost in (fz.GeneralizedMeanError(1.0), fz.LogProduct("mean"))
            return mean
        if wanted == is_log:
            return value
        return self.chance_log(value) if wanted else value.exp()

    def outside(self, node: Expr, env: dict[str, Any]) -> tuple[Tensor, bool]:
        """A value that nothing but quantifiers stands before, and whether it is a logarithm."""
        if isinstance(node, Quantifier) and node.count is None and not self.logic.is_log:
            aggregator = self.logic.forall if node.kind == "forall" else self.logic.exists
            if aggregator.is_log:
                return aggregator(self.instances(node, env)), True
        return self.value(node, env), self.logic.is_log

    @staticmethod
    def chance_log(p: Tensor) -> Tensor:
        return (p + (EPS - p.detach()).clamp_min(0)).log()

    def instances(self, node: Quantifier, env: dict[str, Any]) -> Tensor:
        envs, body = list(naive.instances(node, self.world.crisp, env)), node.body
        while node.count is None and isinstance(body, Quantifier) and body.kind == node.kind:
            envs = [inner for e in envs for inner in naive.instances(body, self.world.crisp, e)]
            body = body.body
        found = [self.value(body, e) for e in envs]
        return torch.stack(found) if found else torch.zeros(0, dtype=torch.float64)

    def quantifier(self, node: Quantifier, env: dict[str, Any]) -> Tensor:
        x = self.instances(node, env)
        if node.count is None:
            aggregator = self.logic.forall if node.kind == "forall" else self.logic.exists
            return aggregator(x).exp() if aggregator.is_log and not self.logic.is_log else aggregator(x)
        p = x.exp() if self.logic.is_log else x
        return self.chance(self.count(node.kind, node.count, p))

    def count(self, kind: str, number: int, p: Tensor) -> Tensor:
        """The probability that so many of independent events happen."""
        fits = {"exactly": lambda n: n == number, "at most": lambda n: n <= number, "at least": lambda n: n >= number}
        total = torch.zeros((), dtype=torch.float64)
        if len(p) <= 6:  # set by set
            for size in filter(fits[kind], range(len(p) + 1)):
                for chosen in combinations(range(len(p)), size):
                    terms = [p[i] if i in chosen else 1 - p[i] for i in range(len(p))]
                    total = total + (torch.stack(terms).prod() if terms else 1.0)
            return total
        chances = torch.zeros(len(p) + 1, dtype=torch.float64)
        chances[0] = 1.0
        for x in p:  # one event after the other
            chances = chances * (1 - x) + chances.roll(1) * x
        return torch.stack([total, *[c for n, c in enumerate(chances) if fits[kind](n)]]).sum()

    def statement(self, node: Let, env: dict[str, Any]) -> Tensor:
        options: list[tuple[list[Tensor], dict[str, Any]]] = [([], dict(env))]
        for name, call in zip(node.names, node.values, strict=True):
            options = [([*ps, *qs], {**e, name: v}) for ps, e in options for qs, v in self.outcomes(call, e, {})]
        return self.exists([(ps, self.value(node.body, e)) for ps, e in options])

    def drawn(self, node: Expr, env: dict[str, Any]) -> Tensor:
        return self.exists(self.atoms(node, env, {}))

    def exists(self, options: list[tuple[list[Tensor], Tensor]]) -> Tensor:
        """∃ over the values that were drawn of T(p, ..., q, φ)."""
        if len(options) == 1 and not options[0][0]:
            return options[0][1]
        joint = [self.join([*map(self.chance, ps), value]) for ps, value in options]
        found = self.logic.exists(torch.stack(joint))
        return found.exp() if self.logic.exists.is_log and not self.logic.is_log else found

    def join(self, xs: list[Tensor]) -> Tensor:
        conj = self.logic.conj
        return conj(*xs) if len(xs) == 2 else conj.reduce(torch.stack(xs))

    def atoms(self, node: Expr, env: dict[str, Any], known: dict[Expr, Any]) -> list[tuple[list[Tensor], Tensor]]:
        try:
            args = [self.term(c, env, known) for c in node.children]
        except _Choose as choice:
            return [
                ([p, *ps], value)
                for p, v in choice.options
                for ps, value in self.atoms(node, env, {**known, choice.call: v})
            ]
        if isinstance(node, Compare):
            return [([], self.constant(naive.compare(node.op, *args)))]
        assert isinstance(node, Call)
        return [([], self.chance(self.world.soft[node.name](*args)))]

    def outcomes(self, term: Expr, env: dict[str, Any], known: dict[Expr, Any]) -> list[tuple[list[Tensor], Any]]:
        """The values that a term may take, each with the probabilities that led there."""
        try:
            return [([], self.term(term, env, known))]
        except _Choose as choice:
            return [
                ([p, *ps], w)
                for p, v in choice.options
                for ps, w in self.outcomes(term, env, {**known, choice.call: v})
            ]

    def term(self, term: Expr, env: dict[str, Any], known: dict[Expr, Any]) -> Any:
        if isinstance(term, Call) and term.name in self.world.draws:
            if term in known:
                return known[term]
            args = [self.term(a, env, known) for a in term.children]
            raise _Choose(term, self.world.draws[term.name](*args))
        if isinstance(term, Name) or not term.children:
            return naive.evaluate(term, self.world.crisp, env)
        inner = dict(env)
        children = []
        for number, child in enumerate(term.children):
            inner[f"_{number}"] = self.term(child, env, known)
            children.append(Name(f"_{number}"))
        return naive.evaluate(term.with_children(tuple(children)), self.world.crisp, inner)
