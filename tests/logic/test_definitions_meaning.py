"""What definitions mean, against naive bottom-up evaluation of made-up programs, world by world."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.logic.programs import ATOMS, NODES, SPACE, World, holds, model, program, random_worlds

from doxa.errors import BudgetError, KnowledgeError
from doxa.logic import (
    Call,
    Interpretation,
    Name,
    all_models,
    count,
    entails,
    ground,
    parse,
    parse_formula,
    probs,
    satisfaction,
    satisfiable,
    truth,
)
from doxa.logic.syntax._simplify import evaluate
from doxa.logic.tensor._defined import Completion
from doxa.logic.tensor._plan import TensorPlan

SEEDS = range(40)


def tensors(world: World) -> dict[str, torch.Tensor]:
    edge = torch.tensor([[("edge", (a, b)) in world for b in NODES] for a in NODES])
    return {"edge": edge, "mark": torch.tensor([("mark", (a,)) in world for a in NODES])}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ground_formula_holds_in_the_least_model(seed: int) -> None:
    kb = program(seed)
    found = ground(kb)
    for world in random_worlds(seed, 12):
        true = model(kb, world)
        assignment = {Call(name, tuple(map(Name, args))): (name, args) in world for name, args in ATOMS}
        for axiom in kb.axioms:
            assert evaluate(found.axioms[axiom.name], assignment) == holds(axiom.formula, {}, true)


@pytest.mark.parametrize("seed", SEEDS)
def test_tensors_are_the_least_model(seed: int) -> None:
    kb = program(seed)
    for world in random_worlds(seed + 1000, 3):
        true = model(kb, world)
        seen = Interpretation(kb, **tensors(world))
        for name, predicate in kb.signature.predicates.items():
            variables = ("x", "y")[: len(predicate.sorts)]
            formula = parse_formula(f"forall {', '.join(variables)}: Node. {name}({', '.join(variables)})", kb)
            table = truth(formula, seen, keep=variables)
            for places in itertools.product(range(3), repeat=len(variables)):
                assert bool(table[places]) == (tuple([NODES[i] for i in places]) in true[name])
        for axiom in kb.axioms:
            assert bool(truth(axiom, seen)) == holds(axiom.formula, {}, true)


@pytest.mark.parametrize("seed", range(20))
def test_joins_and_tables_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kb = program(seed)
    (world,) = random_worlds(seed + 2000, 1)
    seen = Interpretation(kb, **tensors(world))
    joined = truth(kb["all"], seen), truth(kb["query"], seen)
    monkeypatch.setattr("doxa.logic.tensor._defined.closure", lambda *args: None)
    other = Interpretation(kb, **tensors(world))
    assert joined == (truth(kb["all"], other), truth(kb["query"], other))


@pytest.mark.parametrize("seed", range(20))
def test_godel_logic_is_classical_at_every_level(seed: int) -> None:
    """Without negation, e(φ) ≥ α in Gödel logic if and only if φ holds of the atoms that are at least α true."""
    from doxa.fuzzy import FuzzyPlan

    kb = program(seed, negation=False)
    generator = torch.Generator().manual_seed(seed)
    edge, mark = torch.rand(3, 3, generator=generator), torch.rand(3, generator=generator)
    plan = FuzzyPlan(kb, Interpretation(kb, edge=probs(edge), mark=probs(mark)), "godel")
    if any("at least" in str(c) for c in (*kb.definitions, *[a.formula for a in kb.axioms])):
        return  # counts are probabilities in every logic
    values = plan()
    for level in (*edge.flatten().tolist(), *mark.tolist()):
        cut = Interpretation(kb, edge=edge >= level, mark=mark >= level)
        assert [bool(v >= level) for v in values] == [bool(truth(a, cut)) for a in kb.axioms]


@pytest.mark.parametrize("logic", ["godel", "product", "log_product", "lukasiewicz"])
def test_gradients_of_a_fixed_point_are_those_of_its_rounds(logic: str) -> None:
    from doxa.fuzzy import FuzzyPlan

    text = "define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)\n[q] path(a, c)"
    kb = parse(SPACE + text, warn=False)
    edge = torch.tensor([[0.1, 0.8, 0.2], [0.15, 0.3, 0.7], [0.6, 0.05, 0.4]], dtype=torch.float64, requires_grad=True)
    mark = torch.zeros(3, dtype=torch.float64)

    def value(edge: torch.Tensor) -> torch.Tensor:
        plan = FuzzyPlan(kb["q"], Interpretation(kb, edge=probs(edge), mark=probs(mark)), logic, depth=6)
        return plan()

    assert torch.autograd.gradcheck(value, (edge,), eps=1e-7)


def test_the_residual_is_reported() -> None:
    from doxa.fuzzy import FuzzyPlan

    kb = parse(SPACE + "define on(x: Node) := mark(x) | exists y: Node. edge(x, y) & on(y)\n[q] on(a)", warn=False)
    seen = Interpretation(kb, edge=probs(torch.full((3, 3), 0.3)), mark=probs(torch.full((3,), 0.1)))
    shallow, deep = [FuzzyPlan(kb, seen, "product", depth=d).explain() for d in (3, 500)]
    assert "defined on: 3 rounds, residual 0." in shallow and "residual" not in deep
    exact = FuzzyPlan(kb, seen, "godel", depth=500).explain()
    assert "defined on: 2 rounds\n" in exact + "\n"


@pytest.mark.parametrize("seed", range(12))
def test_solving_finds_least_models_only(seed: int) -> None:
    kb = program(seed)
    kept = {"edge(a, b)", "edge(b, a)", "edge(b, c)", "mark(a)", "mark(c)"}
    off = [f"fact !{name}({', '.join(args)})" for name, args in ATOMS if f"{name}({', '.join(args)})" not in kept]
    kb = parse("\n".join(off), base=kb, warn=False)
    right = 0
    for bits in itertools.product((False, True), repeat=5):
        on = dict(zip(sorted(kept), bits, strict=True))
        world = frozenset([a for a in ATOMS if on.get(f"{a[0]}({', '.join(a[1])})", False)])
        true = model(kb, world)
        right += all(holds(axiom.formula, {}, true) for axiom in kb.axioms)
    unused = 2 ** sum(
        [Call(n, tuple(map(Name, a))) not in ground(kb).atoms for n, a in ATOMS if f"{n}({', '.join(a)})" in kept]
    )
    assert count(kb) * unused == right


def test_a_loop_is_no_reason() -> None:
    """Completion alone would let p and q hold each other up."""
    kb = parse("pred a; define p := q | a; define q := p; [x] p", warn=False)
    assert [dict(m) for m in all_models(kb)] == [{Call("a"): True}]
    assert satisfiable(parse("pred a; define p := q; define q := p; [x] p", warn=False)) is None
    assert str(entails(kb, parse_formula("a", kb))) == "follows"


def test_functions_count_with_carries() -> None:
    kb = parse(
        """
        sort Place = 0..3
        sort Bit = 0..1
        func x(Place) -> Bit
        func y(Place) -> Bit
        define carry(i: Place where i > 0) -> Bit := (x(i - 1) + y(i - 1) + carry(i - 1)) // 2
        define carry(i: Place) -> Bit := 0
        define out(i: Place) -> Bit := (x(i) + y(i) + carry(i)) mod 2
        [sum] out(3) = 1 & out(2) = 0 & out(1) = 1 & out(0) = 1
        """,
        warn=False,
    )
    sums = sum([(a + b) % 16 == 0b1011 for a in range(16) for b in range(16)])
    assert count(kb) == sums


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define f(i: P) -> P := f(i)\n f(1) = 2", "f(1) needs f(1)"),
        ("define f(i: P) -> P := g(i)\ndefine g(i: P) -> P := f(i)\n f(1) = 2", "f(1) needs g(1) needs f(1)"),
        ("define f(i: P) -> P := i + 1\n f(3) = 2", "its value 4 is no P"),
        ("define f(i: P where i > 0) -> P := 1\n f(0) = 1", "no clause of it holds"),
        ("define p(i: P) := p(i + 1)\n p(0)", "4 is no P"),
    ],
)
def test_values_that_are_not_there(text: str, message: str) -> None:
    kb = parse(f"sort P = 0..3\n{text}", warn=False)
    with pytest.raises(KnowledgeError, match=message.replace("(", r"\(").replace(")", r"\)")):
        ground(kb)


def test_structures_stay_apart() -> None:
    kb = parse(
        """
        sort Object
        data scenes(objects: Object*)
        pred near(Object, Object)
        define linked(s in scenes, x, y in s.objects) :=
            near(x, y) | exists z in s.objects. near(x, z) & linked(s, z, y)
        [all] forall s in scenes. forall x, y in s.objects where x != y. linked(s, x, y)
        """
    )
    scenes = [{"objects": ["p", "q", "r"]}, {"objects": ["u", "v"]}]
    domains = {"scenes": scenes, "Object": ["p", "q", "r", "u", "v"]}
    found = ground(kb, domains=domains)
    names = {str(a) for a in found.atoms}
    assert "near(p, r)" in names and "near(p, u)" not in names
    strongly = 0  # digraphs on three and on two nodes that are strongly connected, loops left free
    for bits in itertools.product((0, 1), repeat=6):
        pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
        reach = torch.eye(3) + torch.zeros(3, 3).index_put_(tuple(torch.tensor(pairs).T), torch.tensor(bits).float())
        strongly += bool(((reach @ reach @ reach) > 0).all())
    loops = sum([f"near({n}, {n})" in names for n in "pqruv"])
    assert count(kb, domains=domains) == strongly * 2**loops


def test_deep_recursion_needs_no_deep_stack() -> None:
    n = 3000
    on = "define on(i: P where i > 0) := on(i - 1) & go(i)\ndefine on(i: P where i = 0) := true"
    kb = parse(f"sort P = 0..{n}\npred go(P)\n{on}\n[q] on({n})", warn=False)
    assert len(ground(kb).formula.children) == n
    text = (
        f"sort P = 0..{n}\ndefine f(i: P where i > 0) -> P := f(i - 1) + 1\ndefine f(i: P) -> P := 0\n[q] f({n}) = {n}"
    )
    assert str(ground(parse(text, warn=False)).formula) == "true"


def test_limits_hold() -> None:
    text = "sort P = 0..40\npred e(P, P)\ndefine p(x, y: P) := e(x, y) | exists z: P. p(x, z) & p(z, y)\n[q] p(0, 1)"
    with pytest.raises(BudgetError):
        ground(parse(text, warn=False), entries=20_000)
    text = "sort P = 0..29\npred e(P, P)\ndefine p(x, y: P) := e(x, y) | exists z: P. e(x, z) & p(z, y)\n[q] p(0, 29)"
    with pytest.raises(BudgetError, match=r"unfolding definitions takes .* say with a known relation what can hold"):
        ground(parse(text, warn=False), entries=100_000)
    kb = parse("sort N; pred e(N, N); define p(x, y: N) := e(x, y)\n[q] forall x, y: N. p(x, y)", warn=False)
    with pytest.raises(BudgetError, match="a table of 5000 x 5000"):
        truth(kb, Interpretation(kb, e={(0, 1)}), N=5000)


def test_definitions_are_not_bound_and_guards_may_use_them() -> None:
    kb = parse(SPACE + "define on(x: Node) := mark(x)\n[q] forall x: Node where on(x). edge(x, x)", warn=False)
    from doxa.errors import BindingError

    with pytest.raises(BindingError, match="is defined by the knowledge"):
        Interpretation(kb, on=torch.zeros(3))
    seen = Interpretation(kb, edge=torch.eye(3).bool(), mark=torch.tensor([True, True, False]))
    assert "q" in str(satisfaction(kb, seen))
    assert bool(truth(kb, seen))


def test_plans_say_what_was_joined() -> None:
    kb = parse(
        SPACE + "define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)\n[q] path(a, c)",
        warn=False,
    )
    edge = torch.tensor([[False, True, False], [False, False, True], [False, False, False]])
    plan = TensorPlan(kb, Interpretation(kb, edge=edge, mark=torch.zeros(3).bool()))
    assert "defined path: 3 rounds of joins" in plan.explain()
    assert isinstance(plan.completion, Completion)


def test_empty_sorts_and_no_arguments() -> None:
    said = "define p(x, y: N) := e(x, y) | p(y, x); define d := r & !s; define s := false"
    kb = parse(f"sort N; pred e(N, N); pred r; {said}\n[q] d -> exists x, y: N. p(x, y)", warn=False)
    seen = Interpretation(kb, e=torch.zeros(0, 0, dtype=torch.bool), r=torch.tensor(True))
    assert not bool(truth(kb, seen, N=0))


ADDER = """
sort Place = 0..3
sort Bit = 0..1
func x(Place) -> Bit
func y(Place) -> Bit
pred go(Place)
define carry(i: Place where i > 0) -> Bit := (x(i - 1) + y(i - 1) + carry(i - 1)) // 2
define carry(i: Place) -> Bit := 0
define on(i: Place where i > 0) := on(i - 1) & go(i)
define on(i: Place where i = 0) := true
[carry] carry(3) = 1
[on] on(3)
"""


@pytest.mark.parametrize("semantics", ["classical", "godel", "product", "log_product", "lukasiewicz"])
def test_functions_and_guards_as_tables(semantics: str) -> None:
    """Carries of all sums of three bits; and clauses whose recursion would leave the sort without their guard."""
    from doxa.fuzzy import FuzzyPlan

    kb = parse(ADDER, warn=False)
    for a, b, c in itertools.product((0, 3, 5, 6, 7), (0, 1, 5, 7), (0b111, 0b101, 0b110)):
        bits = [torch.tensor([n >> i & 1 for i in range(4)]) for n in (a, b)]
        go = torch.tensor([False, *[bool(c >> i & 1) for i in range(3)]])
        if semantics == "classical":
            seen = Interpretation(kb, x=bits[0], y=bits[1], go=go)
            found = [float(truth(kb[name], seen)) for name in ("carry", "on")]
        else:
            sure = [probs(torch.nn.functional.one_hot(n, 2).double()) for n in bits]
            plan = FuzzyPlan(kb, Interpretation(kb, x=sure[0], y=sure[1], go=probs(go.double())), semantics)
            found = (plan().exp() if plan.is_log else plan()).tolist()
        assert found == pytest.approx([float(a + b >= 8), float(c == 0b111)], abs=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define f(i: P) -> P := f(i)", "needs itself"),
        ("define f(i: P) -> P := f((i + 1) mod 4)", "needs itself"),
        ("define f(i: P where i > 0) -> P := 1", "no value for some arguments"),
    ],
)
def test_tables_refuse_what_has_no_value(text: str, message: str) -> None:
    kb = parse(f"sort P = 0..3\n{text}\n[q] f(1) = 1", warn=False)
    with pytest.raises(KnowledgeError, match=message):
        truth(kb, Interpretation(kb))
