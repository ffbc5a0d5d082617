"""Iterative Local Refinement: golden values, an independent recursive version, convergence, targets, constants."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.logic import CNF, And, Call, Count, Expr, Iff, Implies, Not, Or, Truth, Xor, parse, propositions
from doxa.logic.syntax._simplify import evaluate as classical
from doxa.refine import Hierarchy, Refine, exactly_one, refinement
from doxa.refine._engine import COMBINATIONS

A, B, C, D, E = propositions("a b c d e")
LOGICS = ["godel", "lukasiewicz", "product"]


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


FIGURE = ~A & (B | C)


@pytest.mark.parametrize(
    ("logic", "target", "schedule", "wanted"),
    [
        ("godel", 1.0, 1.0, (0, 0.3, 1)),
        ("godel", 1.0, 0.5, (0.225, 0.3, 0.775)),
        ("lukasiewicz", 0.8, 1.0, (0.2, 0.375, 0.625)),
        ("product", 0.8, 1.0, (0.105573, 0.3, 0.849182)),
    ],
)
def test_golden_step(logic: str, target: float, schedule: float, wanted: tuple[float, ...]) -> None:
    """Errata 3.6."""
    found = Refine(FIGURE, logic, target, schedule, steps=1)(vector(0.4, 0.3, 0.55))
    torch.testing.assert_close(found, vector(*wanted), atol=1e-5, rtol=0)


def test_golden_repeated_atom() -> None:
    """Errata 3.6: a repeated atom takes two steps."""
    layer = Refine(~A & (B | A), "godel")
    found = layer.run(vector(0.8, 0.2), trajectory=True)
    torch.testing.assert_close(found.trajectory, torch.stack([vector(0.8, 0.2), vector(0, 0.2), vector(0, 1)]))
    torch.testing.assert_close(layer.truth(found.trajectory), vector(0.2, 0.2, 1))


# --- against a recursive version that knows nothing of groups ------------------------------------------------------


def recursive_pass(root: Expr, x: dict[Expr, float], logic: fz.Logic, target: float, combine: str) -> dict[Expr, float]:
    """One pass written as the dissertation's pseudocode, with changes instead of values."""
    rho = {And: refinement(logic.conj), Or: refinement(logic.disj), Implies: refinement(logic.implies)}

    def value(node: Expr) -> float:
        if isinstance(node, Call):
            return x[node]
        if isinstance(node, Not):
            return 1 - value(node.children[0])
        if isinstance(node, Implies):
            return logic.implies(*[vector(value(c)) for c in node.children]).item()
        junction = logic.conj if isinstance(node, And) else logic.disj
        return junction.reduce(vector(*map(value, node.children))).item()

    def join(wishes: list[float]) -> float:
        if combine == "sum":
            return sum(wishes)
        moved = [w for w in wishes if w != 0] or [0.0]
        if combine == "mean":
            return sum(moved) / len(moved)
        chosen = (max if combine == "max" else min)(moved, key=abs)
        assume(all(abs(abs(w) - abs(chosen)) > 1e-9 or w * chosen >= 0 for w in moved))  # opposite wishes that tie
        return chosen

    def down(node: Expr, goal: float, wishes: dict[Expr, list[float]]) -> None:
        if isinstance(node, Call):
            wishes.setdefault(node, []).append(goal - x[node])
        elif isinstance(node, Not):
            inner: dict[Expr, list[float]] = {}
            down(node.children[0], 1 - goal, inner)
            for atom, given_ in inner.items():
                wishes.setdefault(atom, []).extend(given_)
        else:
            goals = rho[type(node)](vector(*map(value, node.children)), goal).tolist()
            for child, g in zip(node.children, goals, strict=True):
                down(child, g, wishes)

    wishes: dict[Expr, list[float]] = {}
    down(root, target, wishes)
    cleaned = {a: [0.0 if abs(w) < 1e-12 else w for w in given_] for a, given_ in wishes.items()}
    return {a: min(max(x[a] + join(cleaned.get(a, [0.0])), 0.0), 1.0) for a in x}


def formulas(depth: int) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([A, B, C, D, E])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda args: And(*args)),
            st.lists(inner, min_size=2, max_size=3).map(lambda args: Or(*args)),
            st.tuples(inner, inner).map(lambda pair: Implies(*pair)),
        ),
        max_leaves=depth,
    )


@given(
    formula=formulas(9),
    name=st.sampled_from([*LOGICS, "product:r", "yager(2.0)"]),
    target=st.sampled_from([0.0, 0.3, 0.75, 1.0]),
    combine=st.sampled_from(list(COMBINATIONS)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_one_pass_equals_the_recursive_version(
    formula: Expr, name: str, target: float, combine: str, seed: int
) -> None:
    atoms = (A, B, C, D, E)
    x = 0.05 + 0.9 * torch.rand(5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    layer = Refine(formula, name, target, steps=1, combine=combine, atoms=atoms)
    if combine != "max" and any(len(list(g)) > 1 for _, g in itertools.groupby(sorted(_inner_uses(formula)))):
        return  # shared subformulas combine their wishes once in the graph, and atom by atom in the tree
    slow = recursive_pass(formula, dict(zip(atoms, x.tolist(), strict=True)), layer.logic, target, combine)
    torch.testing.assert_close(layer(x), vector(*slow.values()), atol=1e-6, rtol=0)


def _inner_uses(root: Expr) -> list[str]:
    """Every use of a subformula that is no literal."""
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        stack.extend(node.children if not isinstance(node, Call) else ())
        if not isinstance(node, Call | Not):
            found.append(str(node))
    return found


@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["godel", "lukasiewicz", "product", "yager(2.0)", "dombi(2.0)", "frank(3.0)"]),
    target=st.floats(0, 1),
)
@settings(max_examples=80, deadline=None)
def test_read_once_formulas_reach_their_target_in_one_pass(seed: int, name: str, target: float) -> None:
    """∧, ∨, ¬ and S-implications over atoms that each stand once, no constants, α = 1."""
    generator = torch.Generator().manual_seed(seed)
    pool: list[Expr] = [Call(f"x{i}") for i in range(7)]
    atoms = tuple(pool)
    while len(pool) > 1:
        kind = int(torch.randint(4, (), generator=generator))
        if kind == 0:
            pool.append(~pool.pop(0))
        elif kind == 1:
            pool.append(pool.pop(0) >> pool.pop(0))
        else:
            take = min(len(pool), int(torch.randint(2, 4, (), generator=generator)))
            args = [pool.pop(0) for _ in range(take)]
            pool.append(And(*args) if kind == 2 else Or(*args))
    x = torch.rand(3, 7, generator=generator, dtype=torch.float64)
    layer = Refine(pool[0], name, target, steps=1, atoms=atoms)
    torch.testing.assert_close(layer.truth(layer(x)), torch.full((3,), target, dtype=torch.float64), atol=1e-5, rtol=0)


# --- grouping ----------------------------------------------------------------------------------------------------


def test_sat_is_two_groups_whatever_its_size() -> None:
    clauses = [tuple((v + k) % 20 + 1 for k in (0, 3, 7)) for v in range(200)]
    layer = Refine(CNF.from_clauses(clauses, 20), "product")
    assert len(layer.engine.plan.groups) == 2


def test_lopsided_occurrences_stay_linear() -> None:
    """One atom in every clause, all others in one: the table of wishes must not be a full rectangle."""
    n = 3000
    clauses = [(1, i) for i in range(2, n)]
    layer = Refine(CNF.from_clauses(clauses, n), "godel", steps=1)
    cells = sum(b.numel() for b in layer.engine.buffers())
    assert cells < 40 * n
    x = torch.rand(n, dtype=torch.float64)
    slow = torch.maximum(x[0], (x[1:-1].max() if x[0] < 1 else x[0]))
    assert slow <= 1
    assert layer.truth(Refine(CNF.from_clauses(clauses, n), "godel")(x)) == pytest.approx(1.0)


def test_deep_formulas_do_not_recurse() -> None:
    formula: Expr = A
    for k in range(600):
        formula = (formula & Call(f"p{k}")) if k % 2 else (formula | Call(f"p{k}"))
    layer = Refine(formula, "lukasiewicz", 0.5, steps=1)
    assert layer.truth(layer(torch.rand(601, dtype=torch.float64))).item() == pytest.approx(0.5, abs=1e-6)


# --- convergence -------------------------------------------------------------------------------------------------


def random_sat(seed: int, n: int, count: int) -> CNF:
    generator = torch.Generator().manual_seed(seed)
    clauses = []
    for _ in range(count):
        atoms = torch.randperm(n, generator=generator)[:3] + 1
        signs = torch.randint(2, (3,), generator=generator) * 2 - 1
        clauses.append((atoms * signs).tolist())
    return CNF.from_clauses(clauses, n)


@pytest.mark.parametrize("logic", LOGICS)
@pytest.mark.parametrize("schedule", [0.1, 1.0])
def test_result_object(logic: str, schedule: float) -> None:
    cnf = random_sat(0, 10, 25)
    layer = Refine(cnf, logic, schedule=schedule)
    x = torch.rand(6, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = layer.run(x, trajectory=True)
    path = found.trajectory
    assert path is not None and torch.equal(path[0], x) and torch.equal(path[-1], found.last)
    gaps = (layer.truth(path) - 1).abs()
    torch.testing.assert_close((found.truth - 1).abs(), gaps.amin(0))  # the best iterate
    torch.testing.assert_close(found.distance, (found.values - x).abs().sum(-1))
    assert int(found.iterations.max()) == len(path) - 1
    for row in range(6):  # a row stands still once it is frozen
        k = int(found.iterations[row])
        assert torch.equal(path[k:, row], path[k, row].expand(len(path) - k, -1))
    rounded = {a: found.values[:, i] > 0.5 for i, a in enumerate(layer.atoms)}
    assert torch.equal(found.satisfied, classical(cnf.formula(), rounded))
    torch.testing.assert_close(layer(x), found.values)
    torch.testing.assert_close(layer.run(x[2]).values, found.values[2])  # rows do not disturb each other


def test_two_cycles_and_standing_still_are_seen() -> None:
    cycle = Refine(A & ~A, "godel").run(vector(0.2))
    assert cycle.why(()) == "goes in a two-cycle" and int(cycle.iterations) < 6
    constant = Refine(A & B, "godel", constants=[A]).run(vector(0.2, 0.1))
    assert constant.why(()) == "stands still"
    torch.testing.assert_close(constant.values, vector(0.2, 0.2))


def test_patience_stops_what_comes_no_nearer() -> None:
    cnf = random_sat(3, 12, 80)
    found = Refine(cnf, "product", schedule=0.1, patience=5).run(torch.rand(4, 12, dtype=torch.float64))
    assert int(found.iterations.max()) < 500


def test_ties_may_be_broken_at_random() -> None:
    x = torch.full((300, 3), 0.5)
    layer = Refine(A | B | C, "godel", steps=1, ties=torch.Generator().manual_seed(0))
    places = layer(x).argmax(-1)
    assert set(places.tolist()) == {0, 1, 2}
    assert set(Refine(A | B | C, "godel", steps=1)(x).argmax(-1).tolist()) == {0}


# --- formulas ----------------------------------------------------------------------------------------------------


def test_all_connectives_on_corners() -> None:
    """On 0 and 1 the fuzzy truth is the classical one, through every rewriting of the plan."""
    many = propositions(" ".join(f"q{i}" for i in range(16)))
    cases = [
        A.iff(B) ^ C,
        Count("exactly", 2, [A, B, C, D]),
        Count("at most", 0, [A, B]) | Count("at least", 5, [A, B, C, D, E]),
        Count("at least", 0, [A]) & (B | Truth(False)) & Truth(True),
        Count("at least", 9, [A, B]) | C,
        Xor(A & B, Iff(C, D >> E)),
    ]
    for formula in cases:
        atoms = (A, B, C, D, E)
        worlds = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5)
        wanted = classical(formula, {a: worlds[:, i] > 0.5 for i, a in enumerate(atoms)})
        for name in (*LOGICS, "godel:r", "product:r", "nilpotent"):
            layer = Refine(formula, name, atoms=atoms)
            assert torch.equal(
                layer.truth(worlds) > 0.5, wanted if isinstance(wanted, Tensor) else torch.full((32,), wanted)
            )
    wide = Count("exactly", 8, many)  # too many clauses: a graph instead
    worlds = (torch.rand(200, 16, generator=torch.Generator().manual_seed(0)) > 0.5).double()
    assert torch.equal(Refine(wide, "godel").truth(worlds) > 0.5, worlds.sum(1) == 8)


def test_grounded_knowledge() -> None:
    kb = parse(
        """
        sort Person = {ann, bob}
        pred smokes(Person)
        pred friends(Person, Person)
        [spread] forall x, y: Person. friends(x, y) & smokes(x) -> smokes(y)
        """
    )
    layer = Refine(kb, "lukasiewicz")
    found = layer.run(torch.rand(8, len(layer.atoms), generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert list(layer.formulas) == ["spread"] and (found.truth > 1 - 1e-3).all()


def test_addition_layer_is_a_maximum_of_minima() -> None:
    """Errata 3.6: digits are constants, sums start at 0."""
    x, y, s = ([Call(f"{k}{i}") for i in range(n)] for k, n in (("x", 10), ("y", 10), ("s", 19)))
    rules = And(*[(x[i] & y[j]) >> s[i + j] for i in range(10) for j in range(10)])
    layer = Refine(rules, "godel:r", steps=1, atoms=[*x, *y, *s], constants=[*x, *y])
    digits = torch.rand(4, 20, dtype=torch.float64, requires_grad=True)
    found = layer(torch.cat([digits, torch.zeros(4, 19, dtype=torch.float64)], 1))
    pairs = torch.minimum(digits[:, :10, None], digits[:, None, 10:20])
    sums = torch.stack(
        [torch.stack([pairs[:, i, k - i] for i in range(10) if 0 <= k - i < 10]).amax(0) for k in range(19)], 1
    )
    torch.testing.assert_close(found[:, 20:], sums)
    assert torch.equal(found[:, :20], digits)
    ours, theirs = (torch.autograd.grad(v.square().sum(), digits, retain_graph=True)[0] for v in (found[:, 20:], sums))
    torch.testing.assert_close(ours, theirs)
    assert (layer.truth(found) == 1).all()


# --- targets -----------------------------------------------------------------------------------------------------


def test_targets_per_example_and_per_formula() -> None:
    layer = Refine({"one": A & B, "two": C | D}, "product", target=None, steps=1)
    x = torch.rand(3, 4, dtype=torch.float64)
    target = torch.rand(3, 2, dtype=torch.float64)
    torch.testing.assert_close(layer.truth(layer(x, target)), target)
    torch.testing.assert_close(layer.truth(layer(x, target[:, 0])), target[:, :1].expand(3, 2))
    fixed = Refine([A & B, C | D], "product", target=[0.2, 0.9], steps=1)
    torch.testing.assert_close(fixed.truth(fixed(x)), vector(0.2, 0.9).expand(3, 2))


def test_learnable_target_learns() -> None:
    layer = Refine(A & B, "product", target=fz.Learnable(0.5, low=0.0, high=1.0), steps=1)
    assert [n for n, _ in layer.named_parameters()] == ["learnable.0.raw"]
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        (layer(torch.tensor([0.3, 0.4])) - 0.9).square().sum().backward()
        optimiser.step()
    assert layer.truth(layer(torch.tensor([0.3, 0.4]))).item() == pytest.approx(0.81, abs=0.02)


def test_learnable_operators_are_parameters() -> None:
    layer = Refine(A & B, fz.symmetric(fz.Yager(fz.Learnable(2.0, low=1.0))), 0.6, steps=1)
    assert len(list(layer.parameters())) == 1


# --- derivatives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logic", [*LOGICS, "product:r", "frank(3.0)"])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(logic: str, steps: int) -> None:
    formula = (A | ~B | C) & (~A | D) & (B >> ~D)
    x = vector(0.31, 0.62, 0.17, 0.48).requires_grad_()
    assert torch.autograd.gradcheck(Refine(formula, logic, 0.7, 0.5, steps=steps), (x,))


def test_gradient_through_the_last_pass_only() -> None:
    formula = (A | ~B | C) & (~A | D)
    x = vector(0.31, 0.62, 0.17, 0.48)
    for steps in (3, None):
        layer = Refine(formula, "product", 0.9, 0.5, steps=steps, gradient="last")
        whole = Refine(formula, "product", 0.9, 0.5, steps=steps)
        torch.testing.assert_close(layer(x), whole(x))
    path = Refine(formula, "product", 0.9, 0.5, steps=3).run(x, trajectory=True).trajectory
    assert path is not None
    one = Refine(formula, "product", 0.9, 0.5, steps=1)
    layer = Refine(formula, "product", 0.9, 0.5, steps=3, gradient="last")
    wanted = torch.autograd.functional.jacobian(one, path[-2])
    torch.testing.assert_close(torch.autograd.functional.jacobian(layer, x), wanted)


@pytest.mark.parametrize("logic", LOGICS)
def test_finite_on_corners(logic: str) -> None:
    cnf = random_sat(2, 6, 20)
    for x in (torch.zeros(6), torch.ones(6), torch.full((6,), 0.5), torch.full((6,), 1e-30)):
        x = x.clone().requires_grad_()
        for steps in (3, None):
            (grad,) = torch.autograd.grad(Refine(cnf, logic, steps=steps)(x).sum(), x)
            assert torch.isfinite(grad).all()


def test_trains_inside_a_sequential() -> None:
    """A net that only ever sees the refined output learns what the knowledge leaves open."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2), nn.Sigmoid(), Refine(A.iff(~B), "lukasiewicz"))
    x = torch.randn(64, 2)
    label = (x[:, 0] > 0).float()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        out = net(x).clamp(1e-4, 1 - 1e-4)
        nn.functional.binary_cross_entropy(out[:, 0], label).backward()
        optimiser.step()
    out = net(x)
    assert ((out[:, 0] > 0.5) == (label > 0.5)).float().mean() > 0.95
    assert ((out[:, 0] > 0.5) != (out[:, 1] > 0.5)).float().mean() > 0.95


# --- talking -----------------------------------------------------------------------------------------------------


def test_explain_names_constants_and_negations() -> None:
    text = Refine(A >> (B & Truth(True)), "godel", constants=[A]).explain(torch.tensor([0.75, 0.25]))
    lines = dict(line.rsplit("  ", 1)[0].split("  ", 1) for line in text.splitlines()[1:])
    assert "a -> b & true" in lines and "true" in lines
    assert "0.2500  ->  1.0000" in text


@pytest.mark.parametrize(
    "layer",
    [
        lambda f: Refine(f),
        lambda f: Refine(f, steps=1),
        lambda f: Refine(f, guarantee="sat"),
        lambda f: exactly_one([A, B]),
        lambda f: Hierarchy({"a": ["b"]}),
    ],
    ids=["converged", "steps", "sat", "exactly one", "hierarchy"],
)
def test_what_is_no_number_is_refused(layer: Callable[[Expr], torch.nn.Module]) -> None:
    x = torch.tensor([[[0.5, 0.2], [0.5, torch.nan]], [[torch.nan, torch.nan], [1.0, 0.0]]])
    with pytest.raises(ConfigError, match="the truth values are NaN in 2 of 4 rows"):
        layer(A >> B)(x)
    assert layer(A >> B)(x.nan_to_num(0.5)).isfinite().all()


def test_errors_say_what_is_wanted() -> None:
    layer = Refine(A & B)
    with pytest.raises(ConfigError, match=r"shape \(3, 5\), expected \(\*batch, 2\): the atoms are a, b"):
        layer(torch.rand(3, 5))
    with pytest.raises(ConfigError, match="did you forget a sigmoid"):
        layer.run(torch.tensor([3.0, -1.0]))
    with pytest.raises(ConfigError, match="made with target=None"):
        Refine(A & B, target=None)(torch.rand(2))
    with pytest.raises(ConfigError, match="has a target of its own"):
        layer(torch.rand(2), 0.5)
    with pytest.raises(ConfigError, match="one of 'max', 'mean'"):
        Refine(A & B, combine="median")
    with pytest.raises(ConfigError, match="schedule is 0"):
        Refine(A & B, schedule=0)
    with pytest.raises(ConfigError, match="not among the atoms"):
        Refine(A & B, constants=[C])
    with pytest.raises(ConfigError, match="standard negation"):
        Refine(A & B, "product:tnorm")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Refine(A & B, target=2.0)
    with pytest.raises(ConfigError, match="in a formula but not in atoms"):
        Refine(A & B, atoms=[A])
    with pytest.raises(ConfigError, match="auxiliary variables"):
        Refine(CNF.from_clauses([(1, 2)], [A, None]))
    with pytest.raises(TypeError, match="unexpected keyword"):
        Refine(A & B, shedule=0.1)  # type: ignore[call-arg]
