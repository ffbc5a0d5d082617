"""Recursive definitions that the data decide: evaluated once as tables, so that problems are given their truth.

Unfolded, a known atom of objects stands for itself, since it may differ from one instance to the next; the least
solution of a recursive definition over many such atoms is a formula of exponential size. As a table it is a few joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from doxa.errors import BudgetError, KnowledgeError
from doxa.logic import INT, REAL, Call, Expr, Predicate, Sort, postorder
from doxa.logic.bind._bindings import has_values
from doxa.logic.bind._interpretation import Batch
from doxa.logic.syntax._binders import Binder
from doxa.logic.syntax._define import Stratum, strata
from doxa.logic.syntax._symbols import RowSort
from doxa.logic.tensor._plan import TensorPlan
from doxa.logic.unfold._definitions import reachable


def with_known_definitions(batch: Batch, formulas: Iterable[Expr]) -> Batch:
    """The data, with the recursive predicates that the formulas use and that known relations decide as tables.

    >>> from doxa.logic import Interpretation, parse, table
    >>> kb = parse('''
    ...     sort P; pred e(P, P); pred likes(P)
    ...     define way(x, y: P) := e(x, y) | exists z: P. e(x, z) & way(z, y)
    ...     [back] forall x: P. way(x, x) -> likes(x)
    ... ''')
    >>> batch = Interpretation(kb, e=table({(0, 1), (1, 0), (2, 0)})).read({"P": 3})
    >>> with_known_definitions(batch, [kb["back"].formula]).symbols["way"].tensor.long()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [1, 1, 0]])
    """
    definitions = batch.signature.definitions
    if not definitions:
        return batch
    used = {node.name for node in postorder(*reachable(formulas, definitions)) if isinstance(node, Call)}
    for stratum in strata(definitions):
        if stratum.recursive and used.issuperset(stratum.names) and _is_known(batch, stratum):
            batch = _completed(batch, stratum)
    return batch


def _completed(batch: Batch, stratum: Stratum) -> Batch:
    """The data with a stratum as tables, if it can be evaluated for all arguments."""
    clauses = [(name, clause) for name in stratum.names for clause in batch.signature.definitions[name]]
    plan = batch.interpretation.plans.find(("known", stratum.names), lambda: TensorPlan(clauses, batch.interpretation))
    assert isinstance(plan, TensorPlan)
    try:
        found = plan.completed(batch).symbols
    except (BudgetError, KnowledgeError):
        return batch  # too many, or a term has no value somewhere: unfolding looks only at what is asked about
    return batch.extended({name: found[name] for name in stratum.names})


def _is_known(batch: Batch, stratum: Stratum) -> bool:
    """Do known relations of objects that have an index decide a stratum of predicates?"""
    known, names = batch.signature, stratum.names
    if not all(name in known.predicates for name in names):
        return False
    nodes = list(postorder(*reachable([c for name in names for c in known.definitions[name]], known.definitions)))
    groups = [group for node in nodes if isinstance(node, Binder) for group in node.groups]
    if any(group.sort is None or group.sample is not None for group in groups):
        return False
    calls = {node.name: node.fresh for node in nodes if isinstance(node, Call)}
    symbols = [known.predicates.get(name) or known.functions[name] for name in calls]
    sorts = [sort for symbol in symbols for sort in symbol.sorts]
    sorts += [symbol.result for symbol in symbols if not isinstance(symbol, Predicate)]
    bound = [name for name in calls if name not in known.definitions]
    meanings = [batch.symbols.get(name) or batch.interpretation.meaning(name) for name in bound]
    if any(calls.values()) or any(m is None or m.returns not in ("bool", "value") for m in meanings):
        return False
    if not all(has_values(t) for t in (*batch.interpretation.tensors(), *[t for _, t in batch.tensors()])):
        return False
    return _have_indices(batch, [*sorts, *[known.sorts[str(g.sort)] for g in groups]])


def _have_indices(batch: Batch, sorts: Sequence[Sort]) -> bool:
    """Is there an open sort (else atoms are plain truth values already), and do all its objects have an index?"""
    opened = {sort.name for sort in sorts if sort.values is None and sort not in (INT, REAL)}
    if not opened or any(isinstance(sort, RowSort) for sort in sorts):
        return False
    if any(not batch.has_objects(sort) or (sort in batch.given and batch.own_constants(sort)) for sort in opened):
        return False
    columns = [column for rows in batch.rows.values() for column in rows.columns.values()]
    own = [column.values for column in columns if column.sort is not None and column.sort.name in opened]
    return not any(values.is_floating_point() for values in own)
