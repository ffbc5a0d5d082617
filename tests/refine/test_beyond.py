"""The gradient-descent baseline, restarts, the hybrid, the guarantee, and the ready-made layers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from doxa.data import ksat_instances
from doxa.errors import ConfigError
from doxa.logic import CNF, And, Call, Count, Expr, propositions
from doxa.logic.syntax._simplify import evaluate
from doxa.refine import (
    ClauseWeights,
    GradientRefine,
    Hierarchy,
    Refine,
    _search,
    exactly_one,
    hybrid,
    mutual_exclusion,
    restarts,
)

A, B, C, D = propositions("a b c d")


def random_sat(seed: int, n: int, count: int) -> CNF:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(n, generator=generator)[:3] + 1 for _ in range(count)]
    signs = torch.randint(2, (count, 3), generator=generator) * 2 - 1
    return CNF.from_clauses([(r * s).tolist() for r, s in zip(rows, signs, strict=True)], n)


def models(formula: Expr, atoms: tuple[Expr, ...]) -> torch.Tensor:
    """Every satisfying assignment, by trying all."""
    worlds = torch.cartesian_prod(*[torch.tensor([False, True])] * len(atoms))
    return worlds[evaluate(formula, {a: worlds[:, i] for i, a in enumerate(atoms)})].double()


# --- descent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logic", ["godel", "lukasiewicz", "product"])
@pytest.mark.parametrize("optimiser", ["adam", "coordinate"])
def test_descent_reaches_easy_targets(logic: str, optimiser: str) -> None:
    layer = Refine((A | B) & (~A | C), logic, 0.8)
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = GradientRefine(layer, optimiser=optimiser, rate=0.05).run(x)
    assert ((found.truth - 0.8).abs() < 0.03).all()
    torch.testing.assert_close(found.distance, (found.values - x).abs().sum(-1))


def test_losses_are_those_of_the_chapter() -> None:
    """Errata 3.6, on two clauses, computed by hand."""
    formula = (A | B) & (~A | C)
    x, t = torch.tensor([0.3, 0.6, 0.2], dtype=torch.float64), torch.tensor([0.4, 0.5, 0.1], dtype=torch.float64)
    columns, start = x.unsqueeze(1), t.unsqueeze(1)
    goal = torch.full((1, 1), 0.9, dtype=torch.float64)

    def loss(logic: str, **options: object) -> float:
        descent = GradientRefine(Refine(formula, logic, 0.9), beta=0.1, **options)  # type: ignore[arg-type]
        return descent._losses(descent._truths(columns)[0], columns, start, goal).sum().item()

    first, second = 1 - 0.7 * 0.4, 1 - 0.3 * 0.8
    far1, far2 = 0.3, 0.03**0.5
    product = abs(torch.tensor(first * second).log().item() - torch.tensor(0.9).log().item())
    assert loss("product") == pytest.approx(product + 0.1 * far1, abs=1e-6)
    assert loss("lukasiewicz") == pytest.approx(abs(0.9 + 0.9 - 1 - 0.9) + 0.1 * far2)
    assert loss("godel") == pytest.approx(abs(0.6 - 0.9) + 0.1 * far2)
    assert loss("godel", p=1.0) == pytest.approx(0.3 + 0.1 * far1)
    assert loss("product", loss="plain") == pytest.approx(abs(first * second - 0.9) + 0.1 * far1)


def test_joint_norms_run_over_the_batch() -> None:
    layer = Refine(A & B, "godel")
    descent = GradientRefine(layer, beta=0.5, joint=True)
    x, start = torch.rand(2, 7, dtype=torch.float64), torch.rand(2, 7, dtype=torch.float64)
    goal = torch.ones(1, 7, dtype=torch.float64)
    wanted = torch.linalg.vector_norm(x.amin(0) - 1) + 0.5 * torch.linalg.vector_norm(x - start)
    torch.testing.assert_close(descent._losses(descent._truths(x)[0], x, start, goal).sum(), wanted)


def test_joint_norms_are_those_of_each_formula() -> None:
    """Formulas that share no atoms go as they would alone, whatever their sizes."""
    formulas = [(A | B) & ~C, D & ~Call("e")]
    sizes = [3, 2]
    x = torch.rand(6, 5, generator=torch.Generator().manual_seed(12), dtype=torch.float64)
    options = {"beta": 0.2, "steps": 30, "joint": True, "freeze": False}
    both = GradientRefine(Refine(formulas, "product"), **options).run(x).last  # type: ignore[arg-type]
    for formula, own, part in zip(formulas, x.split(sizes, 1), both.split(sizes, 1), strict=True):
        alone = GradientRefine(Refine(formula, "product"), **options).run(own).last  # type: ignore[arg-type]
        torch.testing.assert_close(part, alone)


def test_descent_keeps_constants_and_regularises() -> None:
    layer = Refine(A & B & C, "product", 0.9, constants=[C])
    x = torch.tensor([[0.3, 0.6, 0.8]], dtype=torch.float64)
    free, held = (GradientRefine(layer, beta=b, steps=200).run(x) for b in (0.0, 0.5))
    assert torch.equal(free.values[:, 2], x[:, 2])
    assert held.last.sub(x).abs().sum() < free.last.sub(x).abs().sum()
    with pytest.raises(ConfigError, match="expected 'adam' or 'coordinate'"):
        GradientRefine(layer, optimiser="sgd")  # type: ignore[arg-type]


@pytest.mark.parametrize("logic", ["godel", "lukasiewicz", "product"])
def test_descent_takes_the_steps_of_adam(logic: str) -> None:
    """Against a loop with torch's own optimiser; the truth beside the compared values is the formula's."""
    layer = Refine(random_sat(2, 10, 30), logic, target=0.7)
    x = torch.rand(5, 10, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    descent = GradientRefine(layer, beta=0.05, steps=25, joint=True, freeze=False)
    found = descent.run(x, trajectory=True)
    z = torch.logit(x.T).requires_grad_()
    adam = torch.optim.Adam([z], lr=0.1)
    assert found.trajectory is not None
    for k in range(25):
        values = torch.sigmoid(z)
        compared, truth = descent._truths(values)
        torch.testing.assert_close(truth[0], layer.truth(values.T).detach())
        adam.zero_grad()
        descent._losses(compared, values, x.T, torch.full((1, 5), 0.7, dtype=torch.float64)).sum().backward()
        adam.step()
        torch.testing.assert_close(found.trajectory[k + 1], torch.sigmoid(z).T.detach())


def test_without_freezing_rows_take_all_steps() -> None:
    layer = Refine((A | B) & (~A | C), "lukasiewicz")
    x = torch.rand(6, 3, generator=torch.Generator().manual_seed(3))
    kept, free = (GradientRefine(layer, steps=60, freeze=freeze).run(x, trajectory=True) for freeze in (True, False))
    assert (free.iterations == 60).all() and (kept.iterations < 60).all()
    assert kept.trajectory is not None and free.trajectory is not None and len(free.trajectory) == 61
    for row in range(6):  # the same path until a row arrives; then the one stays and the other wanders on
        until = int(kept.iterations[row]) + 1
        torch.testing.assert_close(kept.trajectory[:until, row], free.trajectory[:until, row])
    assert not torch.equal(free.last, kept.last)


# --- restarts, hybrid, guarantee ---------------------------------------------------------------------------------


def test_restarts_and_hybrid_never_do_worse() -> None:
    cnf = random_sat(1, 12, 48)
    x = torch.rand(20, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    layer = Refine(cnf, "product")
    plain = layer.run(x)
    more = restarts(layer, x, times=12, generator=torch.Generator().manual_seed(3))
    both = hybrid(layer, x, descent=GradientRefine(layer, steps=100))
    for better in (more, both):
        assert (better.satisfied | ~plain.satisfied).all()
        torch.testing.assert_close(better.distance, (better.values - x).abs().sum(-1))
        torch.testing.assert_close(layer.satisfied(better.values), better.satisfied)
        torch.testing.assert_close(layer.truth(better.values), better.truth)
    assert more.satisfied.sum() > plain.satisfied.sum()


@pytest.mark.parametrize("room", [2**20, 1])
def test_restarts_keep_the_best_copy_of_each_row(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop over rows and copies; ``room`` for one copy at a time draws the same numbers in the same order."""
    monkeypatch.setattr(_search, "_ROOM", room)
    cnf = random_sat(9, 16, 48)
    x = torch.rand(8, 16, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    layer = Refine(cnf, "godel")
    found = restarts(layer, x, times=4, spread=0.8, generator=torch.Generator().manual_seed(8))
    generator = torch.Generator().manual_seed(8)
    tried = []
    for part in 0.8 * torch.arange(5, dtype=torch.float64) / 4:  # the paths are chaotic: to the last bit
        chance = torch.rand(x.shape, generator=generator, dtype=torch.float64)
        tried.append(layer.run(x + part * (chance - x)))
    assert any(t.satisfied.any() for t in tried) and not all(t.satisfied.all() for t in tried)
    for row in range(8):
        pool = [t for t in tried if t.satisfied[row]]
        if not pool:
            gap = min(float(1 - t.truth[row]) for t in tried)
            pool = [t for t in tried if 1 - t.truth[row] <= gap + layer.tolerance]
        best = min(pool, key=lambda t: float((t.values[row] - x[row]).abs().sum()))
        torch.testing.assert_close(found.values[row], best.values[row])
        assert found.status[row] == best.status[row] and found.satisfied[row] == best.satisfied[row]
        assert found.iterations[row] == sum(int(t.iterations[row]) for t in tried)


def test_restarts_with_targets_of_their_own() -> None:
    layer = Refine([A | B, ~A | C], "product", target=None)
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(9))
    target = torch.rand(5, 2, generator=torch.Generator().manual_seed(10))
    found = restarts(layer, x, target, times=6, generator=torch.Generator().manual_seed(11))
    gap, plain = ((r.truth - target).abs().amax(1) for r in (found, layer.run(x, target)))
    assert found.truth.shape == (5, 2) and (gap <= plain + layer.tolerance).all() and gap.mean() < plain.mean()


@pytest.mark.parametrize("logic", ["godel", "lukasiewicz", "product"])
def test_guarantee_gives_the_nearest_model(logic: str) -> None:
    cnf = random_sat(4, 9, 36)
    formula, atoms = cnf.formula(), cnf.atoms
    every = models(formula, atoms)  # type: ignore[arg-type]
    assert len(every)
    x = torch.rand(12, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    layer = Refine(cnf, logic, guarantee="sat")
    found = layer.run(x)
    assert found.satisfied.all() and layer.satisfied(found.values).all()
    ways = [found.why(r) for r in range(12)]
    assert "satisfied by the solver" in ways
    for row, way in enumerate(ways):
        if way == "satisfied by the solver":
            nearest = (every - x[row]).abs().sum(1).min()
            assert (found.values[row] - x[row]).abs().sum() == pytest.approx(nearest.item(), abs=1e-4)
    torch.testing.assert_close(layer(x), found.values)


def test_guarantee_copes_with_weights_that_all_differ() -> None:
    """An instance on which core-guided search without stratification did not end; the answer is by enumeration."""
    cnf = ksat_instances(2, 20, 91, generator=torch.Generator().manual_seed(0))[1]
    x = torch.rand(10, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float32)[7:8]
    found = Refine(cnf, "godel", guarantee="sat").run(x)
    assert found.why(0) == "satisfied by the solver"
    numbers = torch.arange(2**20)
    values = [numbers >> i & 1 for i in range(20)]
    fits = torch.ones_like(numbers, dtype=torch.bool)
    for clause in cnf.clauses:
        fits &= torch.stack([values[abs(v) - 1] == int(v > 0) for v in clause]).any(0)
    every = torch.stack([v[fits] for v in values], 1)
    assert len(every) == 94
    nearest = (every - x.double()).abs().sum(1).min()
    assert found.distance.item() == pytest.approx(nearest.item(), abs=1e-4)


def test_guarantee_says_when_nothing_can_satisfy() -> None:
    found = Refine(A & ~A & B, "godel", guarantee="sat").run(torch.tensor([[0.3, 0.2]]))
    assert not found.satisfied.any() and found.why(0) == "cannot be satisfied"


def test_guarantee_is_right_where_no_atom_leans_to_a_side() -> None:
    """Without a weight the solver would answer without looking at the clauses."""
    undecided = torch.tensor([[0.5, 0.5], [0.5 + 1e-7, 0.5]], dtype=torch.float64)
    for impossible in (A & ~A & B, (A | B) & ~A & ~B):
        found = Refine(impossible, "godel", guarantee="sat").run(undecided)
        assert not found.satisfied.any() and [found.why(r) for r in (0, 1)] == ["cannot be satisfied"] * 2
    found = Refine((A | B) & (~A | ~B), "godel", guarantee="sat", steps=1).run(undecided)
    assert found.satisfied.all() and (found.values.round().sum(1) == 1).all()


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("logic", ["godel", "product", "lukasiewicz", "product:r"])
def test_an_empty_batch_stays_empty(logic: str, steps: int | None) -> None:
    for formula in (A & B, A | B, A >> B, (A | B) & ~A):
        x = torch.zeros(0, 2, requires_grad=True)
        out = Refine(formula, logic, steps=steps)(x)
        out.sum().backward()
        assert out.shape == (0, 2) and x.grad is not None and x.grad.shape == (0, 2)


@pytest.mark.parametrize("wrong", ["a & b", ["a"], [A, 3]])
def test_what_is_no_formula_is_named(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected formulas, as `doxa.logic.propositions`"):
        Refine(wrong)


def test_guarantee_holds_constants_and_passes_gradients() -> None:
    layer = Refine((A | B) & (~A | ~B) & (B | C) & (~B | ~C), "product", constants=[C], guarantee="sat", steps=1)
    x = torch.tensor([[0.6, 0.55, 0.7], [0.6, 0.7, 0.3]], requires_grad=True)
    out = layer(x)
    assert torch.equal(out[:, 2], x[:, 2]) and layer.satisfied(out).all()
    out.sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all() and (x.grad != 0).any()


# --- ready-made --------------------------------------------------------------------------------------------------

DAG = [("b", "a"), ("c", "a"), ("d", "b"), ("d", "c"), ("e", "d"), ("f", "c")]


def test_hierarchy_against_direct_computation() -> None:
    layer = Hierarchy(DAG, classes="abcdef")
    x = torch.rand(7, 6, dtype=torch.float64)
    below = {"a": "abcdef", "b": "bde", "c": "cdef", "d": "de", "e": "e", "f": "f"}
    wanted = torch.stack([x[:, ["abcdef".index(d) for d in below[k]]].amax(1) for k in "abcdef"], 1)
    torch.testing.assert_close(layer(x), wanted)
    # the same by refinement of the formula, with Gödel implications
    refine = Refine(layer.formula(), "godel:r", atoms=[Call(k) for k in "abcdef"])
    torch.testing.assert_close(refine(x), wanted)


def test_hierarchy_loss_against_direct_computation() -> None:
    layer = Hierarchy(DAG, classes="abcdef")
    x = torch.rand(5, 6, dtype=torch.float64)
    y = layer((torch.rand(5, 6, dtype=torch.float64) > 0.7).double())
    below = layer.below
    total = 0.0
    for row, k in itertools.product(range(5), range(6)):
        down = [d for d in range(6) if below[k, d]]
        if y[row, k] == 1:
            total -= max(x[row, d] * y[row, d] for d in down).log().item()
        else:
            total -= (1 - max(x[row, d] for d in down)).log().item()
    assert layer.loss(x, y).item() == pytest.approx(total / 30)


def test_hierarchy_errors() -> None:
    with pytest.raises(ConfigError, match="cycle"):
        Hierarchy([("a", "b"), ("b", "a")])
    with pytest.raises(ConfigError, match="not among the classes"):
        Hierarchy([("a", "b")], classes=["a"])
    with pytest.raises(ConfigError, match=r"expected \(\*batch, 2\)"):
        Hierarchy([("a", "b")])(torch.rand(3))


@pytest.mark.parametrize("logic", ["godel", "product", "lukasiewicz"])
def test_counting_layers(logic: str) -> None:
    atoms = propositions("p q r s t")
    x = torch.rand(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at_most, exactly = mutual_exclusion(atoms, logic), exactly_one(atoms, logic)
    out = at_most.run(x)
    assert (out.truth > 0.99).all()
    if logic != "lukasiewicz":  # whose truth of 1 may be fractional
        assert ((out.values > 0.5).sum(1) <= 1).all()
        found = exactly.run(x)
        assert ((found.values > 0.5).sum(1) == 1).all()
        assert torch.equal(found.values.argmax(1), x.argmax(1))
    formula = Count("exactly", 1, atoms)
    assert torch.equal(exactly.satisfied(x), evaluate(formula, {a: x[:, i] > 0.5 for i, a in enumerate(atoms)}))


def test_clause_weights_against_a_loop() -> None:
    cnf = CNF.from_clauses([(1, -2, 3), (2, -4), (-1,)], [A, B, C, D])
    layer = ClauseWeights(cnf)
    with torch.no_grad():
        layer.raw.copy_(torch.tensor([0.7, -0.3, 1.5]))
    z = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    wanted = z.clone()
    for weight, clause in zip([0.7, 0.0, 1.5], cnf.clauses, strict=True):
        literals = torch.stack([z[:, abs(v) - 1] * (1 if v > 0 else -1) for v in clause], 1)
        for j, v in enumerate(clause):
            boost = torch.zeros_like(z)
            boost[:, abs(v) - 1] = weight * (1 if v > 0 else -1) * torch.softmax(literals, 1)[:, j]
            wanted = wanted + boost
    torch.testing.assert_close(layer(z), wanted)
    assert torch.autograd.gradcheck(layer, (z,))


def test_clause_weights_learn_which_clause_holds() -> None:
    torch.manual_seed(0)
    layer = ClauseWeights(And(~A | B, ~A | ~B))
    a = (torch.rand(256) > 0.5).float()
    z = torch.stack([4 * (2 * a - 1), torch.zeros(256)], 1)  # b is not seen, but follows from a
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(50):
        optimiser.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(layer(z)[:, 1], a).backward()
        optimiser.step()
    holds, fails = layer.weights.tolist()
    assert holds > 1 and fails == 0
