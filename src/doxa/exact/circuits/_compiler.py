"""From clauses to a circuit: a top-down compiler (Huang and Darwiche 2007), or packages that are installed.

Constraints that the clauses spell out are found first (``_patterns``), then the search runs (``_search``), and last the
circuit is made smaller (``_shrinking``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from doxa.errors import ConfigError
from doxa.exact.circuits._circuit import Circuit
from doxa.exact.circuits._clauses import MOST, NativeSearch, native_compiler, native_shrink
from doxa.exact.circuits._packages import by_dd, by_pysdd
from doxa.exact.circuits._patterns import distinct, find_groups
from doxa.exact.circuits._search import Search
from doxa.exact.circuits._shrinking import shrink
from doxa.logic import CNF
from doxa.problem._budget import Budget, Meter


def compile_cnf(cnf: CNF, budget: Budget | None = None) -> Circuit:
    """The clauses as a d-DNNF circuit over the same variables (not smooth).

    Cardinalities, parities and other constraints that count are recognised where all their clauses are there. Which
    variable comes next is decided anew for each part: one in the most clauses that are left, short ones counting more,
    and close to those decided before. What conjunctions share becomes a node of its own. The search keeps its own
    stack, so deep problems are no problem for Python's.

    Args:
        cnf: the clauses.
        budget: when to give up with a ``BudgetError``.

    >>> compile_cnf(CNF.from_clauses([(1, 2), (-2, 3), (-1, -3)], 3)).count()
    2
    """
    if not isinstance(cnf, CNF):
        raise ConfigError(f"clauses are {cnf!r}, expected a doxa.logic.CNF: CNF.from_clauses([(1, -2), (2, 3)], 3)")
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigError(f"budget is {budget!r}, expected a doxa.problem.Budget, such as Budget(nodes=100_000)")
    return compile_with("doxa", cnf, budget or Budget())[0]


def compile_clauses(
    cnf: CNF, meter: Meter, broken: Sequence[Sequence[int]] | None = None, native: bool = True
) -> Circuit:
    """The circuit of clauses. With ``broken`` ones: the clauses hold, and at least one of the broken ones does not.

    Where there is a C compiler, the search and what follows it are ``native``; the circuit is the same.
    """
    second = CNF.from_clauses(broken or (), cnf.atoms)
    meter.spend(len(cnf.literals) + len(second.literals))
    kept, groups = find_groups(distinct(cnf.literals, cnf.offsets, meter), meter)
    more, others = find_groups(distinct(second.literals, second.offsets, meter), meter)
    every = [*groups, *others, *(group.negation for group in others)]
    library = native_compiler() if native else None
    small = library is not None and all(len(group.literals) <= MOST for group in every)
    search: Search | NativeSearch
    if library is not None and small:
        search = NativeSearch(library, cnf.variables, [*kept, *more], every, meter)
    else:
        search = Search(cnf.variables, [*kept, *more], every, meter)
    cases = [search.run([])] if broken is None else _broken(search, len(kept), more, len(groups), len(others))
    circuit = search.finish(cases)
    return shrink(circuit, meter) if library is None else native_shrink(library, circuit, meter)


def _broken(
    search: Search | NativeSearch, kept: int, more: Sequence[tuple[int, ...]], groups: int, others: int
) -> list[int]:
    """The cases in which one of the clauses ``more`` or of the ``others`` among the groups does not hold.

    They exclude each other: one constraint is the first of those that does not hold. Behind the others are their
    negations.
    """
    for c in range(kept, kept + len(more)):
        search.switch(c, False, 1)
    for g in range(groups, groups + 2 * others):
        search.switch(g, True, 1)
    cases = []
    for c, clause in enumerate(more, kept):
        cases.append(search.run([-literal for literal in clause]))
        search.switch(c, False, -1)
    for g in range(groups, groups + others):
        search.switch(g + others, True, -1)
        cases.append(search.run([]))
        search.switch(g + others, True, 1)
        search.switch(g, True, -1)
    return cases


Backend = Literal["doxa", "pysdd", "dd"]


def compile_with(
    backend: Backend,
    cnf: CNF,
    budget: Budget,
    broken: Sequence[Sequence[int]] | None = None,
    meter: Meter | None = None,
    native: bool = True,
) -> tuple[Circuit, Meter]:
    """A circuit by one of the compilers, and its meter; only doxa's own counts, and knows ``broken`` clauses."""
    meter = meter or Meter(budget, "")
    meter.task = f"compiling {len(cnf) + len(broken or ()):,} clauses over {cnf.variables:,} variables"
    if backend == "doxa":
        return compile_clauses(cnf, meter, broken, native), meter
    if backend == "pysdd":
        return by_pysdd(cnf), meter
    if backend == "dd":
        return by_dd(cnf), meter
    raise ConfigError(f"backend is {backend!r}, expected 'doxa', 'pysdd' or 'dd'")
