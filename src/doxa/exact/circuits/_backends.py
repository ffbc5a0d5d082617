"""Who compiles clauses: doxa itself, or packages that are installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal

from doxa.errors import ConfigError
from doxa.exact.circuits._circuit import AND, FALSE, OR, TRUE, Circuit, CircuitBuilder
from doxa.exact.circuits._compiler import Compiler
from doxa.logic import CNF
from doxa.problem._budget import Budget, Meter

Backend = Literal["doxa", "pysdd", "dd"]


def compile_with(
    backend: Backend, cnf: CNF, budget: Budget, broken: Sequence[Sequence[int]] | None = None
) -> tuple[Circuit, int]:
    """A d-DNNF circuit of the clauses by one of the compilers, and its operations.

    Only doxa's own counts them, keeps to the budget, and knows clauses of which one must be ``broken``.
    """
    if backend == "doxa":
        meter = Meter(budget, f"compiling {len(cnf) + len(broken or ()):,} clauses over {cnf.variables:,} variables")
        return Compiler(cnf.variables, cnf.clauses, meter, broken).run(), meter.operations
    if backend == "pysdd":
        return _pysdd(cnf), 0
    if backend == "dd":
        return _dd(cnf), 0
    raise ConfigError(f"backend is {backend!r}, expected 'doxa', 'pysdd' or 'dd'")


def _import(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"backend needs the package {package}: pip install 'doxa[circuits]'") from None


def _pysdd(cnf: CNF) -> Circuit:
    """By sentential decision diagrams, with automatic minimisation."""
    sdd = _import("pysdd.sdd", "PySDD")
    builder = CircuitBuilder(cnf.variables)
    if cnf.variables == 0:
        return builder.finish(TRUE if len(cnf) == 0 else FALSE)
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


def _dd(cnf: CNF) -> Circuit:
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
    builder = CircuitBuilder(cnf.variables)
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
