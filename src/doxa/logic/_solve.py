"""Asking a SAT solver: is a propositional formula satisfiable?

Atoms are the leaves of the connectives (calls and comparisons); two atoms are the same when they are the same tree.
"""

from __future__ import annotations

from doxa.errors import KnowledgeError
from doxa.logic._tree import And, Call, Compare, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.logic._walk import intern

__all__ = ["satisfiable"]


def satisfiable(formula: Expr) -> dict[Expr, bool] | None:
    """A model of the formula (the truth of each atom), or None when there is none.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> satisfiable(a & ~b) == {a: True, b: False}
    True
    >>> satisfiable(a & ~a) is None
    True
    """
    from pysat.solvers import Solver

    root = intern(formula, {})
    clauses: list[list[int]] = []
    atoms: dict[Expr, int] = {}
    literal: dict[int, int] = {}
    last = 0
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in literal:
            continue
        if isinstance(node, Call | Compare | Truth) or ready:
            last += 1
            literal[id(node)] = last
            below = [literal[id(c)] for c in node.children] if ready else []
            match node:
                case Call() | Compare():
                    atoms[node] = last
                case Truth():
                    clauses.append([last if node.value else -last])
                case Not():
                    literal[id(node)] = -below[0]
                case And():
                    clauses += [[-last, b] for b in below] + [[last, *[-b for b in below]]]
                case Or() | Implies():
                    below = [-below[0], below[1]] if isinstance(node, Implies) else below
                    clauses += [[last, -b] for b in below] + [[-last, *below]]
                case Iff() | Xor():
                    g = last if isinstance(node, Iff) else -last
                    a, b = below
                    clauses += [[-g, -a, b], [-g, a, -b], [g, a, b], [g, -a, -b]]
        elif isinstance(node, Not | And | Or | Implies | Iff | Xor):
            stack.append((node, True))
            stack.extend([(c, False) for c in reversed(node.children)])
        else:
            raise KnowledgeError(f"a {type(node).__name__} is not propositional: {node!r}; ground the formula first")
    with Solver("cadical195", bootstrap_with=[*clauses, [literal[id(root)]]]) as solver:
        if not solver.solve():
            return None
        true = {v for v in solver.get_model() if v > 0}
    return {atom: v in true for atom, v in atoms.items()}
