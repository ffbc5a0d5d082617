"""The outermost ``forall``: other aggregators, kept instances, guards and logarithms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fuzzy.test_plan_algebra import soften
from tests.logic.generated import Maker, make_case
from tests.logic.naive import evaluate, instances
from torch import Tensor

import doxa
from doxa import fuzzy as fz
from doxa.errors import ConfigError, KnowledgeError
from doxa.logic import (
    And,
    Expr,
    Iff,
    Implies,
    Interpretation,
    KnowledgeBase,
    Let,
    Name,
    Or,
    Quantifier,
    Ragged,
    Xor,
    parse,
    probs,
)

MEAN, LOG_MEAN = fz.GeneralizedMeanError(1.0), fz.LogProduct("mean")
KB = parse("""
    sort P; sort D = 0..3; sort O
    pred p(P); pred r(P, P); pred has(P, D); pred big(O); pred near(P, P); pred flag
    [all] forall x, y: P. r(x, y)
    [guarded] forall x, y: P where near(x, y). p(x) -> r(x, y)
    [finite] forall x: P, d: D where d > 1. has(x, d)
    [levels] forall x: P where p(x). forall y: P where near(x, y). r(x, y)
    [ragged] forall s in scenes. forall o in s.objects. big(o)
    [both] forall s in scenes, o in s.objects where s.size > 0. big(o)
    [plain] flag & exists x: P. p(x)
    [constant] forall x: P where flag. p(x)
    [transitive] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)
    [nested] forall x: P. p(x) | (forall y: P. r(x, y)) & !(forall y: P. near(y, x) -> r(x, y))
""")
N, LENGTHS = 3, [2, 0, 3]
G = torch.Generator().manual_seed(0)
R, H, B = (0.05 + 0.9 * torch.rand(s, generator=G, dtype=torch.float64) for s in ((N, N), (N, 4), (5,)))
NEAR = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
T = torch.tensor([0.9, 0.2, 0.7], dtype=torch.float64)
SIZES = torch.tensor([1, 0, 0])
DATA: dict[str, Any] = {
    "P": N,
    "O": 5,
    "scenes": {"objects": Ragged(torch.arange(5), torch.tensor(LENGTHS)), "size": SIZES},
}


def given(name: str) -> dict[str, Any]:
    return {k: v for k, v in DATA.items() if k != "scenes" or name in ("ragged", "both")}


def world(kb: KnowledgeBase = KB, **changed: Any) -> Interpretation:
    bound = {"p": probs(T), "r": probs(R), "has": probs(H), "big": probs(B), "near": NEAR, "flag": True, **changed}
    return Interpretation(kb, **bound)


def value(name: str, logic: fz.Logic | str, **options: Any) -> Tensor:
    return fz.FuzzyPlan(KB[name], world(), logic, **options)(**given(name))


def instance_truths(name: str) -> Tensor:
    """The truths of the instances of the first ``forall`` in product logic, by hand."""
    implies = 1 - T[:, None] * (1 - R)
    scenes = torch.stack([B[:2].prod(), torch.ones((), dtype=B.dtype), B[2:].prod()])
    return {
        "all": R.flatten(),
        "guarded": implies[NEAR],
        "finite": H[:, 2:].flatten(),
        "levels": torch.stack([R[0, [0, 2]].prod(), R[2].prod()]),  # p holds of the first and the last
        "ragged": scenes,
        "both": B[:2],
        "plain": (1 - (1 - T).prod()).reshape(1),
        "constant": T,
        "transitive": torch.stack(
            [1 - R[x, z] * R[z, y] * (1 - R[x, y]) for x in range(N) for y in range(N) for z in range(N)]
        ),
        "nested": 1 - (1 - T) * (1 - R.prod(1) * (1 - (1 - NEAR.T.double() * (1 - R)).prod(1))),
    }[name]


@pytest.mark.parametrize("name", [a.name for a in KB.axioms])
@pytest.mark.parametrize("chunk", [1, 5, 2**22])
def test_the_mean_over_the_instances_of_the_first_forall(name: str, chunk: int) -> None:
    want = instance_truths(name)
    for logic in ("product", "log_product"):
        plan = fz.FuzzyPlan(KB[name], world(), logic, outermost=MEAN, chunk=chunk)
        assert not plan.is_log
        torch.testing.assert_close(plan(**given(name)), want.mean())
        plan = fz.FuzzyPlan(KB[name], world(), logic, outermost=LOG_MEAN, chunk=chunk)
        assert plan.is_log
        torch.testing.assert_close(plan(**given(name)), want.log().mean())


def test_repeating_rows_changes_nothing_and_no_rows_are_true() -> None:
    kb = parse("pred p; [rule] forall s in scenes. s.t -> p")
    seen = Interpretation(kb, p=probs(torch.tensor(0.3)))
    for logic, mean, empty in (("product", MEAN, 1.0), ("log_product", LOG_MEAN, 0.0), ("log_ltn", LOG_MEAN, 0.0)):
        plan = fz.FuzzyPlan(kb, seen, logic, outermost=mean)
        rows = torch.tensor([True, False, True])
        torch.testing.assert_close(plan(scenes={"t": rows}), plan(scenes={"t": rows.repeat(8)}))
        assert plan(scenes={"t": rows[:0]}).item() == empty


def test_stacked_rules_have_the_same_means() -> None:
    rules = "\n".join([f"forall x: P, y: P where near(x, y). has(x, {d}) -> has(y, {d})" for d in range(4)])
    kb = parse(f"sort P; sort D = 0..3; pred has(P, D); pred near(P, P)\n{rules}\nforall x: P. has(x, 0)")
    seen = Interpretation(kb, has=probs(H), near=NEAR)
    for logic, mean in (("product", MEAN), ("log_product", LOG_MEAN), ("log_ltn", MEAN), ("ltn", LOG_MEAN)):
        one, many = (fz.FuzzyPlan(kb, seen, logic, outermost=mean, stack=s)(P=N) for s in (100, 2))
        torch.testing.assert_close(one, many)
    want = [(1 - H[:, None, d] * (1 - H[None, :, d]))[NEAR].mean() for d in range(4)]
    torch.testing.assert_close(
        fz.FuzzyPlan(kb, seen, "product", outermost=MEAN, stack=2)(P=N), torch.stack([*want, H[:, 0].mean()])
    )


def test_the_mean_is_contracted() -> None:
    plan = fz.FuzzyPlan(KB["transitive"], world(), "product", outermost=MEAN)
    assert "contracted" in plan.explain(P=N)
    plain = fz.FuzzyPlan(KB["transitive"], world(), "product", outermost=MEAN, rewrite=False)
    assert "contracted" not in plain.explain(P=N)
    torch.testing.assert_close(plan(P=N), plain(P=N))


def test_only_the_first_forall_is_replaced() -> None:
    """The quantifier inside keeps the logic's ∀, here the minimum."""
    got = value("levels", "godel", outermost=MEAN)
    torch.testing.assert_close(got, torch.stack([R[0, [0, 2]].min(), R[2].min()]).mean())


# --- logarithms ---------------------------------------------------------------------------------------------------


def test_nests_of_forall_stay_logarithms() -> None:
    """More variables than one block holds, and a value far below the smallest number."""
    names = ", ".join([f"x{i}" for i in range(14)])
    nest = " ".join([f"forall y{i}: P." for i in range(6)])
    used = " & ".join([f"p({v}{i})" for v, n in (("x", 14), ("y", 6)) for i in range(n)])
    kb = parse(f"sort P; pred p(P); forall {names}: P. {nest} {used}")
    half = torch.tensor([0.5, 0.5])
    plan = fz.FuzzyPlan(kb["axiom1"], Interpretation(kb, p=probs(half)), "log_product")
    torch.testing.assert_close(plan(P=2), 2**20 * 20 * half[0].log())
    for outermost in (None, LOG_MEAN):
        kb = parse("sort P; pred p(P); forall x: P. forall y: P. p(x) & p(y)")
        truths = torch.full((30,), 1e-3, requires_grad=True)
        plan = fz.FuzzyPlan(kb["axiom1"], Interpretation(kb, p=probs(truths)), "log_product", outermost=outermost)
        found = plan(P=30)
        torch.testing.assert_close(found, 2 * truths.log()[0] * (30 if outermost else 900))
        (slope,) = torch.autograd.grad(found, truths)
        assert torch.isfinite(slope).all() and (slope > 0).all()


@pytest.mark.parametrize("name", fz.LOGICS)
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-30])
def test_nested_quantifiers_are_finite_at_the_edges(name: str, fill: float) -> None:
    kb = parse("""
        sort P; sort D = 0..2; pred p(P); pred r(P, P); func f(P) -> D
        [a] forall x: P. p(x) | !(forall y: P where p(y). r(x, y))
        [b] exists x: P. (forall y: P. r(x, y)) & (exactly 1 y: P. forall z: P. r(y, z))
        [c] forall x: P. d := f(x) (forall y: P. d > 0 | r(x, y))
        [d] (forall x: P. p(x)) <-> (forall x: P. !p(x))
    """)
    for n in (0, 1, 4):
        leaves = [torch.full(s, fill, requires_grad=True) for s in ((n,), (n, n))]
        chances = torch.full((n, 3), 1 / 3, requires_grad=True)
        seen = Interpretation(kb, p=probs(leaves[0]), r=probs(leaves[1]), f=probs(chances))
        for outermost in (None, MEAN, LOG_MEAN):
            plan = fz.FuzzyPlan(kb, seen, name, outermost=outermost)
            values = plan(P=n)
            truths = values.exp() if plan.is_log else values
            assert ((truths >= 0) & (truths <= 1)).all(), (outermost, values)
            slopes = torch.autograd.grad(values.sum() + 0 * sum([t.sum() for t in leaves]), leaves)
            assert all(torch.isfinite(s).all() for s in slopes)


def test_a_plan_says_whether_its_values_are_logarithms() -> None:
    certain = world(p=torch.zeros(N).bool(), r=torch.ones(N, N).bool())
    for name in fz.LOGICS:
        for outermost in (None, MEAN, LOG_MEAN):
            for keep in ((), ("x",), ("x", "y")):
                plan = fz.FuzzyPlan(KB["guarded"], world(), name, outermost=outermost, keep=keep)
                found = plan(P=N)
                assert ((found <= 0) if plan.is_log else (found >= 0)).all()
                full = fz.FuzzyPlan(KB["guarded"], certain, name, outermost=outermost, keep=keep)(P=N)
                torch.testing.assert_close(full, torch.full_like(full, 0.0 if plan.is_log else 1.0), atol=1e-3, rtol=0)


# --- kept instances -----------------------------------------------------------------------------------------------

LEFT_OUT = torch.where(NEAR, 1 - T[:, None] * (1 - R), 1.0)


@pytest.mark.parametrize("logic", ["product", "log_product", "godel", "recommended", "ltn"])
@pytest.mark.parametrize("outermost", [None, MEAN, LOG_MEAN])
def test_kept_instances_have_their_own_values(logic: str, outermost: fz.Aggregator | None) -> None:
    chosen = fz.logic(logic)
    implied = torch.where(NEAR, chosen.implies(T[:, None].expand(N, N), R), 1.0)
    plan = fz.FuzzyPlan(KB["guarded"], world(), logic, outermost=outermost, keep=("x", "y"))
    found = plan(P=N)
    torch.testing.assert_close(found.exp() if plan.is_log else found, implied)
    guard = plan.guard(P=N)
    assert guard is not None and torch.equal(guard, NEAR)
    plan = fz.FuzzyPlan(KB["finite"], world(), logic, outermost=outermost, keep=("x", "d"))
    found = plan(P=N)
    torch.testing.assert_close(
        found.exp() if plan.is_log else found, torch.cat([torch.ones(N, 2, dtype=H.dtype), H[:, 2:]], 1)
    )
    guard = plan.guard(P=N)
    assert guard is not None and torch.equal(guard, torch.tensor([[False, False, True, True]] * N))


def test_what_is_not_kept_is_folded() -> None:
    torch.testing.assert_close(value("guarded", "product", keep="x"), LEFT_OUT.prod(1))
    torch.testing.assert_close(value("guarded", "product", keep="y"), LEFT_OUT.prod(0))
    plan = fz.FuzzyPlan(KB["guarded"], world(), "product", keep="x", outermost=MEAN)
    rows = torch.stack(
        [LEFT_OUT[i][NEAR[i]].mean() if NEAR[i].any() else torch.ones((), dtype=T.dtype) for i in range(N)]
    )
    torch.testing.assert_close(plan(P=N), rows)
    assert plan.guard(P=N) is None  # what it excludes is inside of an instance


def test_rows_of_ragged_data_are_kept() -> None:
    truths = torch.stack([B[:2].prod(), torch.ones((), dtype=B.dtype), B[2:].prod()])
    for outermost in (None, MEAN, LOG_MEAN):
        for logic in ("product", "log_product"):
            plan = fz.FuzzyPlan(KB["ragged"], world(), logic, outermost=outermost, keep="s")
            found = plan(**DATA)
            torch.testing.assert_close(found.exp() if plan.is_log else found, truths)
            assert plan.guard(**DATA) is None
    plan = fz.FuzzyPlan(KB["both"], world(), "product", outermost=MEAN, keep="s")
    torch.testing.assert_close(plan(**DATA), torch.stack([B[:2].mean(), *torch.ones(2, dtype=B.dtype)]))
    guard = plan.guard(**DATA)
    assert guard is None or guard.tolist() == [True, False, False]


def test_a_guard_without_variables_is_all_or_nothing() -> None:
    for flag in (True, False):
        for keep in ("x", ()):
            plan = fz.FuzzyPlan(KB["constant"], world(flag=flag), "product", keep=keep)
            truths = T if flag else torch.ones_like(T)
            torch.testing.assert_close(plan(P=N), truths if keep else truths.prod())
            guard = plan.guard(P=N)
            assert (guard is None) if not keep else guard is not None and guard.tolist() == [flag] * N


def test_several_levels_are_kept() -> None:
    """Without ``outermost``, consecutive ``forall`` are one."""
    plan = fz.FuzzyPlan(KB["levels"], world(), "product", keep=("x", "y"))
    passes = (T > 0.5)[:, None] & NEAR
    torch.testing.assert_close(plan(P=N), torch.where(passes, R, 1.0))
    guard = plan.guard(P=N)
    assert guard is not None and torch.equal(guard, passes)
    with pytest.raises(KnowledgeError, match="does not bind that"):
        value("levels", "product", keep=("x", "y"), outermost=MEAN)


def test_generated_formulas_keep_their_instances() -> None:
    """Each value is that of the instance, and the guard says which instances there are."""
    checked = 0
    for seed in range(400):
        case = make_case(seed, 3, 2, False)
        formula = Maker(seed, people=True).quantifier(2, {})
        if not isinstance(formula, Quantifier) or formula.kind != "forall":
            continue
        if not all(isinstance(g.domain, Name | None) for g in formula.groups):
            continue
        names = formula.names
        bindings, soft, _ = soften(case, seed, draws=True)
        kb, _ = case.knowledge(formula)
        plan = fz.FuzzyPlan(kb["a0"], Interpretation(kb, **bindings), "product", outermost=MEAN, keep=names)
        found, guard = plan(**case.data), plan.guard(**case.data)
        passing = list(instances(formula, soft.crisp, {}))
        if formula.guard is not None:
            assert guard is not None and guard.sum() == len(passing) and guard.shape == found.shape
            assert (found[~guard] == 1).all()
        want = fz.FuzzyPlan(kb["a0"], Interpretation(kb, **bindings), "product", outermost=MEAN)(**case.data)
        left = found if guard is None else found[guard]
        torch.testing.assert_close(left.mean() if len(passing) else torch.ones_like(want), want)
        checked += 1
    assert checked > 50


def test_an_aggregator_for_exists_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected an aggregator for forall"):
        value("all", "product", outermost=fz.GeneralizedMean(1.0))


# --- crisp inputs -------------------------------------------------------------------------------------------------

NOT_BOOLEAN: dict[str, tuple[type | str, ...]] = {
    "recommended": ("exists",),
    "ltn": ("exists", "forall"),
    "log_ltn": ("exists", Or, Implies, Iff, Xor),
    # T(0, 1) is not quite 0 in these, and a residuum jumps there.
    **{
        f"{family}:r": (Implies, Iff, Xor)
        for family in ("schweizer_sklar", "frank", "hamacher", "aczel_alsina", "dombi")
    },
}
"""What is not true or false of crisp inputs: generalised means, and the ∨ of log space, which is a mean too. Statements
about neural functions are ∃ as well."""


def replaced(node: Expr, gone: tuple[type | str, ...]) -> Expr:
    """Other operators in place of those that are not Boolean."""
    if isinstance(node, Let):
        return Let(list(zip(node.names, node.values, strict=True)), replaced(node.body, gone))
    if isinstance(node, Quantifier):
        kind = node.kind if node.kind not in gone else "forall" if "forall" not in gone else "at least"
        count = 1 if kind == "at least" and node.count is None else node.count
        return Quantifier(kind, node.groups, replaced(node.body, gone), count=count, guard=node.guard)
    children = tuple([replaced(c, gone) for c in node.children])
    if isinstance(node, tuple(t for t in gone if isinstance(t, type))):
        return And(*children)
    return node.with_children(children) if children else node


@pytest.mark.parametrize("name", fz.LOGICS)
def test_crisp_inputs_have_classical_truth(name: str) -> None:
    """On generated formulas with statements, counts, guards and ragged rows; a plain interpreter is the judge."""
    gone = NOT_BOOLEAN.get(name, ())
    seen = set()
    for seed in range(60):
        case = make_case(seed, 1 + seed % 3, seed % 3, False)
        formula = Maker(seed, people=True).formula(2 + seed % 2)
        if gone:
            formula = replaced(formula, gone)
        kb, _ = case.knowledge(formula)
        soft: dict[str, Any] = {}
        for symbol, table in case.bindings.items():
            if isinstance(table, Tensor) and table.dtype == torch.bool:
                soft[symbol] = probs(table.double())
            elif symbol in ("f", "colour") and not gone:
                soft[symbol] = probs(
                    torch.nn.functional.one_hot(table - int(symbol == "f"), 3 if symbol == "f" else 2).double()
                )
        want = evaluate(formula, case.world, {})
        for bindings in (case.bindings, {**case.bindings, **soft}):
            plan = fz.FuzzyPlan(kb["a0"], Interpretation(kb, **bindings), name)
            found = plan(**case.data)
            truth = found.exp() if plan.is_log else found
            close = {"ltn": 0.02, "log_ltn": 1e-5}.get(name, 1e-6)
            assert abs(truth.item() - want) < close, (seed, str(formula), truth)
        seen.add(want)
    assert seen == {True, False}


@pytest.mark.parametrize("name", ["one", "two"])
def test_value_and_guard_are_of_one_draw(name: str) -> None:
    """b is never 1, so that an instance is 1 exactly where the guard leaves it out; separate draws would disagree."""
    kb = parse("""
        sort P; pred near(P, P); pred b(P)
        [one] forall x: P sample 7 where near(x, x). b(x)
        [two] forall x: P sample 6. forall y: P sample 5 where near(x, y). b(x) | b(y)
    """)
    generator = torch.Generator().manual_seed(3)
    near = torch.rand(40, 40, generator=generator) < 0.2
    seen = Interpretation(kb, near=near, b=probs(torch.full((40,), 0.3)))
    plan = fz.FuzzyPlan(kb[name], seen, "product", keep=["x", "y"][: 1 + (name == "two")])
    for _ in range(20):
        value, guard = plan.value_and_guard(generator=generator, P=40)
        assert guard is not None and torch.equal(value < 1, guard)


def test_a_guard_of_sampled_rows_counts_what_was_drawn() -> None:
    kb = parse("sort P; pred b(P); [rule] forall q in rows sample 6 where q.used. b(q.one)")
    model = doxa.Model(kb, b=probs(torch.full((30,), 0.3)))
    rows = {"used": torch.arange(30) % 3 == 0, "one": torch.arange(30)}
    semantics, generator = doxa.Fuzzy("product"), torch.Generator().manual_seed(0)
    losses = [model.loss(P=30, rows=rows, semantics=semantics, generator=generator).item() for _ in range(20)]
    assert all(loss == 0 or loss == pytest.approx(0.7) for loss in losses) and max(losses) > 0
