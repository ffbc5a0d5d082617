"""Exact inference, forward and backward: addition by factors against a carry recursion written by hand; a product of
2-digit numbers against four lines of torch; a formula planned against ``Constraint``; circuits against KLay, on one and
the same circuit, log space against log space and plain numbers against plain numbers; compiling and evaluating against
PySDD."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from itertools import combinations, product

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.exact import Compilation, Constraint, Elimination, plan
from doxa.exact.circuits import Circuit, compile_cnf, native_kernel
from doxa.exact.circuits._compiler import compile_with
from doxa.exact.circuits._encoding import encode
from doxa.exact.circuits._kernel import Kernel
from doxa.exact.circuits._layers import Layers, evaluate, make_layers
from doxa.logic import CNF, And, Or, propositions
from doxa.problem import Belief, Budget, Factor, Problem, Variable, addition
from harness import Row, compare, cpu_seconds, exponent

BATCH = 16
NEVER = -1e30  # -inf would make gradients NaN where no carry fits


def carry_recursion(log_probs: Tensor, label: Tensor) -> Tensor:
    """log p(sum) of two N-digit numbers: log_probs ``(B, 2N, 10)``, label ``(B, N + 1)``, in log space."""
    a, b = log_probs.chunk(2, 1)
    into, out, digit = torch.arange(2)[:, None, None], torch.arange(2)[:, None], torch.arange(10)
    partner = label[:, 1:, None, None, None] + 10 * out - into - digit  # (B, N, into, out, digit)
    partner = torch.where((partner < 0) | (partner > 9), 10, partner)
    other = pad(b, (0, 1), value=NEVER)[:, :, None, None, :].expand(-1, -1, 2, 2, -1).gather(-1, partner)
    links = (a[:, :, None, None, :] + other).logsumexp(-1)
    carry = links[:, -1, 0]
    for i in range(label.shape[1] - 3, -1, -1):
        carry = (carry.unsqueeze(-1) + links[:, i]).logsumexp(1)
    return carry.gather(1, label[:, :1]).squeeze(1) if label.shape[1] > 1 else carry


def addition_rows() -> list[Row]:
    rows, sizes, times = [], [1, 4, 15, 100, 1000], []
    for digits in sizes:
        problem = addition(digits)
        reasoner = Elimination(problem)
        logits = torch.randn(BATCH, 2 * digits, 10, requires_grad=True)
        label = problem(problem.random_worlds(BATCH))

        def ours(logits: Tensor = logits, label: Tensor = label, reasoner: Elimination = reasoner) -> None:
            logits.grad = None
            reasoner.loss(Belief.from_logits(logits), label).mean().backward()

        def by_hand(logits: Tensor = logits, label: Tensor = label) -> None:
            logits.grad = None
            carry_recursion(logits.log_softmax(-1), label).mean().neg().backward()

        gradients = []
        for function in (ours, by_hand):
            function()
            assert logits.grad is not None
            gradients.append(logits.grad.clone())
        torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-3)  # float32 at a log-probability of -2000
        name = f"addition by factors, N={digits}, batch {BATCH}: time against a carry recursion by hand"
        rows.append(compare(name, ours, by_hand, goal=1.5, better="lower"))
        times.append(min(cpu_seconds(ours, 3) for _ in range(5)))
    rows.append(Row("addition by factors: exponent of time in N, 1 to 1000", exponent(sizes, times), 1.05, "lower"))
    return rows


def two_digit_product() -> tuple[Problem, Tensor]:
    """Whether the product of two 2-digit numbers is the given one; and the number of each product."""
    w, aux = Variable.world, Variable.auxiliary
    number = torch.arange(100).reshape(10, 10)
    values, codes = torch.unique(torch.arange(100)[:, None] * torch.arange(100), return_inverse=True)
    factors = [
        Factor.lookup([w(0), w(1)], aux(0), number),
        Factor.lookup([w(2), w(3)], aux(1), number),
        Factor.lookup([aux(0), aux(1)], aux(2), codes),
        Factor.compare(aux(2), Variable.given(0), Variable.output(0), "="),
    ]
    auxiliary, given = (100, 100, len(values)), (len(values),)
    return Problem.from_factors(factors, (10,) * 4, (2,), auxiliary=auxiliary, given=given), codes.reshape(-1)


def product_rows() -> list[Row]:
    problem, codes = two_digit_product()
    reasoner, rows, holds = plan(problem).reasoner, [], torch.tensor([1])
    for batch in (64, 512):
        logits = torch.randn(batch, 4, 10, requires_grad=True)
        label = codes[torch.randint(10_000, (batch, 1))]

        def ours(logits: Tensor = logits, label: Tensor = label) -> Tensor:
            loss = reasoner.loss(Belief.from_logits(logits), holds, given=label).mean()
            return torch.autograd.grad(loss, logits)[0]

        def by_hand(logits: Tensor = logits, label: Tensor = label) -> Tensor:
            p = logits.log_softmax(-1)
            left, right = [(x[:, 0, :, None] + x[:, 1, None]).flatten(1) for x in p.split(2, 1)]
            joint = (left[:, :, None] + right[:, None]).flatten(1).masked_fill(codes != label, NEVER)
            return torch.autograd.grad(-joint.logsumexp(-1).mean(), logits)[0]

        torch.testing.assert_close(ours(), by_hand(), rtol=1e-3, atol=1e-6)
        name = f"product of two 2-digit numbers, batch {batch}: time against four lines of torch"
        rows.append(compare(name, ours, by_hand, goal=2.0, better="lower"))
    return rows


def formula_rows() -> list[Row]:
    """30 labels and 46 clauses: the planner's engine for the formula against ``Constraint``."""
    generator = torch.Generator().manual_seed(0)
    atoms = propositions(" ".join(f"label{i}" for i in range(30)))

    def clause() -> Or:
        chosen = torch.randperm(30, generator=generator)[: 2 + int(torch.randint(2, (1,), generator=generator))]
        signs = torch.rand(len(chosen), generator=generator) < 0.4
        return Or(*[atoms[i] if sign else ~atoms[i] for i, sign in zip(chosen.tolist(), signs.tolist(), strict=True)])

    formula = And(*[clause() for _ in range(46)])
    constraint = Constraint(formula)
    made = plan(Problem.from_formula(formula, constraint.variables)).reasoner
    assert isinstance(made, Compilation)
    logits, holds = torch.randn(64, len(constraint.variables), requires_grad=True), torch.tensor([1])

    def ours() -> Tensor:
        loss = made.loss(Belief.from_bernoulli(logits=logits), holds).mean()
        return torch.autograd.grad(loss, logits)[0]

    def theirs() -> Tensor:
        loss = constraint.semantic_loss(Belief.from_bernoulli(logits=logits)).mean()
        return torch.autograd.grad(loss, logits)[0]

    torch.testing.assert_close(ours(), theirs())
    name = "formula of 30 labels and 46 clauses, batch 64: time against Constraint"
    return [compare(name, ours, theirs, goal=1.3, better="lower")]


def sudoku() -> CNF:
    """Every filling of a 4×4 Sudoku: cell (r, c) has value v as variable 16 r + 4 c + v + 1."""
    cells = list(product(range(4), range(4)))
    units = [lambda r, c: r, lambda r, c: c, lambda r, c: 2 * (r // 2) + c // 2]
    groups = [[cell for cell in cells if unit(*cell) == i] for unit in units for i in range(4)]

    def x(cell: tuple[int, int], value: int) -> int:
        return 16 * cell[0] + 4 * cell[1] + value + 1

    clauses = [[x(cell, v) for v in range(4)] for cell in cells]
    clauses += [[-x(cell, v), -x(cell, w)] for cell in cells for v, w in combinations(range(4), 2)]
    clauses += [[-x(a, v), -x(b, v)] for group in groups for v in range(4) for a, b in combinations(group, 2)]
    return CNF.from_clauses(clauses, 64)


def klay_module(circuit: Circuit, semiring: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The same circuit, node by node, evaluated by KLay over a batch ``(R, variables)`` of literal weights."""
    import klay

    peer = klay.Circuit()
    nodes = [peer.literal_node((i // 2 + 1) * (-1 if i % 2 else 1)) for i in range(circuit.literals)]
    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        parts = [nodes[c] for c in children]
        nodes.append(peer.or_node(parts) if kind else peer.and_node(parts))
    peer.set_root(nodes[-1])
    peer.remove_unused_nodes()
    module = peer.to_torch_module(semiring=semiring, compile=False)
    return lambda positive, negative: module(positive, negative)


def by_logs(layers: Layers, weights: Tensor) -> Tensor:
    return evaluate(layers, weights.log()).exp()


def circuit_rows() -> list[Row]:
    if importlib.util.find_spec("klay") is None:
        print("no rows against KLay: the package klaycircuits is not installed")
        return []
    rows = []
    kernel = native_kernel()
    if kernel is None:
        print("no rows for the native kernel: there is no C compiler")
    for name, circuit in (
        ("sudoku 4×4", compile_cnf(sudoku())),
        ("addition N=3", compile_cnf(encode(addition(3)).cnf)),
    ):
        smooth = circuit.smooth()
        layers, real_layers = make_layers(smooth), make_layers(smooth, real=True)
        for semiring, batch in product(("log", "real"), (64, 1024)):
            peer = klay_module(smooth, semiring)
            weights = torch.randn(2, smooth.variables, batch).log_softmax(0)
            weights = (weights if semiring == "log" else weights.exp()).requires_grad_()

            def theirs(weights: Tensor = weights, peer: Callable[[Tensor, Tensor], Tensor] = peer) -> Tensor:
                (slopes,) = torch.autograd.grad(peer(weights[0].T, weights[1].T).sum(), weights)
                return slopes

            engines: list[tuple[str, Kernel | None, float]] = [("pure torch", None, 1.3 if batch == 64 else 3.0)]
            engines += [("native kernel", kernel, 4.0)] if kernel is not None else []
            for engine, used, goal in engines:
                if semiring == "real" and used is None:  # these weights are positive
                    run = partial(by_logs, layers)
                else:
                    run = partial(evaluate, layers if semiring == "log" else real_layers, kernel=used)

                def ours(weights: Tensor = weights, run: Callable[[Tensor], Tensor] = run) -> Tensor:
                    flat = weights.transpose(0, 1).reshape(-1, weights.shape[2])
                    (slopes,) = torch.autograd.grad(run(flat).sum(), weights)
                    return slopes

                torch.testing.assert_close(ours(), theirs(), rtol=1e-2, atol=1e-3)
                space = "in log space" if semiring == "log" else "with plain numbers"
                title = f"circuit of {name} {space}, batch {batch}, {engine}: times faster than KLay"
                rows.append(compare(title, ours, theirs, goal=goal, better="higher", repeats=12))
    return rows


def compile_rows() -> list[Row]:
    if importlib.util.find_spec("pysdd") is None:
        print("no row against PySDD: the package PySDD is not installed")
        return []
    formula = sudoku()

    def ours() -> Circuit:
        return compile_cnf(formula)

    def theirs() -> Circuit:
        return compile_with("pysdd", formula, Budget())[0]

    assert ours().count() == theirs().count() == 288
    title = "compile sudoku 4×4: time against PySDD with automatic minimisation"
    return [compare(title, ours, theirs, goal=1.0, better="lower", repeats=6)]


def counter_rows() -> list[Row]:
    """PySDD's own weighted model counter on its own diagram: value and derivatives of one row after the other."""
    if importlib.util.find_spec("pysdd") is None:
        return []
    formula, batch = sudoku(), 64
    circuit, counter = compile_cnf(formula).smooth(), pysdd_counter(formula)
    layers, kernel = make_layers(circuit), native_kernel()
    weights = torch.randn(2, circuit.variables, batch, dtype=torch.float64).log_softmax(0).requires_grad_()

    def ours() -> Tensor:
        flat = weights.transpose(0, 1).reshape(-1, batch)
        (slopes,) = torch.autograd.grad(evaluate(layers, flat, kernel=kernel).sum(), weights)
        return slopes

    def theirs() -> Tensor:
        return torch.stack([counter(row) for row in weights.detach().unbind(-1)], -1)

    torch.testing.assert_close(ours(), theirs())
    engine = "pure torch" if kernel is None else "native kernel"
    title = f"circuit of sudoku 4×4 in log space, batch {batch}, {engine}: times faster than PySDD's counter"
    return [compare(title, ours, theirs, goal=1.0, better="higher", repeats=6)]


def pysdd_counter(formula: CNF) -> Callable[[Tensor], Tensor]:
    """From log-weights ``(2, variables)`` to the derivatives of the log of the count, by PySDD."""
    from pysdd.sdd import SddManager

    manager = SddManager(var_count=formula.variables, auto_gc_and_minimize=True)
    root = manager.true()
    root.ref()
    for clause in formula.clauses:
        part = manager.false()
        for literal in clause:
            part = part | manager.literal(literal)
        joined = root & part
        joined.ref()
        root.deref()
        root = joined
    wmc = root.wmc(log_mode=True)

    def count(weights: Tensor) -> Tensor:
        positive, negative = weights.tolist()
        for v in range(formula.variables):
            wmc.set_literal_weight(manager.literal(v + 1), positive[v])
            wmc.set_literal_weight(manager.literal(-v - 1), negative[v])
        total = wmc.propagate()
        found = [
            [wmc.literal_derivative(manager.literal(sign * (v + 1))) for v in range(formula.variables)]
            for sign in (1, -1)
        ]
        # d log Z / d log w = (dZ/dw) w / Z, all of them logarithms here
        return (torch.tensor(found, dtype=torch.float64) + weights - total).exp()

    return count


def rows() -> list[Row]:
    return counter_rows() + addition_rows() + product_rows() + formula_rows() + circuit_rows() + compile_rows()


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
