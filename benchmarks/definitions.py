"""Reachability, defined in two lines, on a graph of 1,000 nodes and 10,000 edges: all pairs.

The peers are a Boolean closure written by hand (matrix products until nothing changes) and scipy's breadth-first search
from every node. The graph is random, so that nearly all pairs are connected after six steps.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order
from torch import Tensor

from doxa.logic import Interpretation, parse, parse_formula
from doxa.logic.tensor._plan import TensorPlan
from harness import Row, compare

KNOWLEDGE = """
    sort Node
    pred edge(Node, Node)
    define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)
"""


def graph(nodes: int, edges: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    found = torch.zeros(nodes, nodes, dtype=torch.bool)
    found[tuple(torch.randint(nodes, (2, edges), generator=generator))] = True
    return found


def by_hand(edge: Tensor) -> Tensor:
    numbers, reached = edge.float(), edge
    while True:
        more = reached | ((numbers @ reached.float()) > 0)
        if torch.equal(more, reached):
            return reached
        reached = more


def by_scipy(edge: Tensor) -> np.ndarray:
    matrix = csr_matrix(edge.numpy())
    reached = np.zeros(edge.shape, bool)
    for node in range(len(edge)):
        found = breadth_first_order(matrix, node, return_predecessors=False)
        reached[node, found[1:]] = True
        reached[node, node] = bool(edge[found, node].any())  # a path to itself has at least one step
    return reached


def reachability(nodes: int, edges: int) -> list[Row]:
    edge = graph(nodes, edges)
    kb = parse(KNOWLEDGE)
    every = parse_formula("forall x, y: Node. path(x, y)", kb)
    plan = TensorPlan(every, Interpretation(kb, edge=edge), keep=("x", "y"))
    assert torch.equal(plan(Node=nodes), by_hand(edge))
    assert np.array_equal(plan(Node=nodes).numpy(), by_scipy(edge))
    title = f"definitions: paths between all {nodes:,} nodes of {edges:,} edges"
    return [
        compare(f"{title}, beside a closure by hand", lambda: plan(Node=nodes), lambda: by_hand(edge), goal=1.5,
                better="lower", repeats=12),
        compare(f"{title}, beside scipy's searches", lambda: plan(Node=nodes), lambda: by_scipy(edge), goal=3.0,
                better="lower", repeats=6),
    ]  # fmt: skip


def rows() -> list[Row]:
    return reachability(1_000, 10_000)


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
