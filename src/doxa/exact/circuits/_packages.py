"""Circuits by other compilers, where their packages are installed."""

from __future__ import annotations

import importlib
from typing import Any

from doxa.errors import ConfigError
from doxa.exact.circuits._circuit import AND, FALSE, OR, TRUE, Circuit, CircuitBuilder
from doxa.logic import CNF


def _import(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"backend needs the package {package}: pip install 'doxa[circuits]'") from None


def by_pysdd(cnf: CNF) -> Circuit:
    """By sentential decision diagrams, with automatic minimisation."""
    sdd = _import("pysdd.sdd", "PySDD")
    if cnf.variables == 0:
        return CircuitBuilder(0).finish(TRUE if len(cnf) == 0 else FALSE)
    manager = sdd.SddManager(var_count=cnf.variables, auto_gc_and_minimize=True)
    root = manager.true()
    root.ref()
    for clause in sorted(cnf.clauses, key=lambda c: max(map(abs, c), default=0)):
        part = manager.false()
        for literal in clause:
            part = part | manager.literal(literal)
        joined = root & part
        joined.ref()
        root.deref()
        root = joined
    return circuit_of_sdd(root, cnf.variables)


def circuit_of_sdd(root: Any, variables: int) -> Circuit:
    """A sentential decision diagram as a circuit: an element is a conjunction of its prime and its sub."""
    builder = CircuitBuilder(variables)
    done: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node.id in done:
            stack.pop()
        elif node.is_true():
            done[node.id] = TRUE
        elif node.is_false():
            done[node.id] = FALSE
        elif node.is_literal():
            done[node.id] = 2 * abs(node.literal) - 2 + (node.literal < 0)
        else:
            elements = node.elements()
            missing = [part for pair in elements for part in pair if part.id not in done]
            if missing:
                stack += missing
            else:
                pairs = [builder.add(AND, [done[prime.id], done[sub.id]]) for prime, sub in elements]
                done[node.id] = builder.add(OR, pairs)
    return builder.finish(done[root.id])


def by_dd(cnf: CNF) -> Circuit:
    """By binary decision diagrams: CUDD where `dd` was built with it, else pure Python."""
    try:
        module = importlib.import_module("dd.cudd")
    except ImportError:
        module = _import("dd.autoref", "dd")
    bdd = module.BDD()
    names = [f"x{v}" for v in range(1, cnf.variables + 1)]
    bdd.declare(*names)
    bdd.configure(reordering=True)
    root = bdd.true
    for clause in sorted(cnf.clauses, key=lambda c: max(map(abs, c), default=0)):
        part = bdd.false
        for literal in clause:
            variable = bdd.var(names[abs(literal) - 1])
            part |= variable if literal > 0 else ~variable
        root &= part
    return circuit_of_bdd(bdd, root, cnf.variables)


def circuit_of_bdd(bdd: Any, root: Any, variables: int) -> Circuit:
    """A binary decision diagram over x1, x2, ... as a circuit: a node is a disjunction of its two branches."""
    builder = CircuitBuilder(variables)
    done: dict[int, int] = {int(bdd.true): TRUE, int(bdd.false): FALSE}
    stack = [root]
    while stack:
        node = stack[-1]
        if int(node) in done:
            stack.pop()
            continue
        # A complemented edge negates both branches.
        low, high = (~node.low, ~node.high) if node.negated else (node.low, node.high)
        missing = [part for part in (low, high) if int(part) not in done]
        if missing:
            stack += missing
        else:
            v = int(node.var[1:]) - 1
            branches = [builder.add(AND, [2 * v, done[int(high)]]), builder.add(AND, [2 * v + 1, done[int(low)]])]
            done[int(node)] = builder.add(OR, branches)
    return builder.finish(done[int(root)])
