"""Definitions under every semantics: against enumeration of worlds, and against published answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from tests.logic.programs import ATOMS, NODES, holds, model, program

import doxa

FREE = ["edge(a, b)", "edge(b, a)", "edge(b, c)", "edge(c, a)", "mark(a)", "mark(c)"]


def named(atom: tuple[str, tuple[str, ...]]) -> str:
    return f"{atom[0]}({', '.join(atom[1])})"


def beliefs(seed: int) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """The probability of each atom, and the tensors that say the same."""
    generator = torch.Generator().manual_seed(seed)
    chosen = dict(zip(FREE, (0.1 + 0.8 * torch.rand(len(FREE), generator=generator)).double().tolist(), strict=True))
    edge = torch.tensor([[chosen.get(f"edge({a}, {b})", 0.0) for b in NODES] for a in NODES], dtype=torch.float64)
    mark = torch.tensor([chosen.get(f"mark({a})", 0.0) for a in NODES], dtype=torch.float64)
    return chosen, {"edge": edge, "mark": mark}


def enumerated(kb: doxa.KnowledgeBase, chosen: Mapping[str, float]) -> dict[str, float]:
    """How probable each axiom is: the weights of all worlds whose least model makes it true."""
    found = dict.fromkeys([a.name for a in kb.axioms], 0.0)
    for bits in itertools.product((False, True), repeat=len(FREE)):
        on = dict(zip(FREE, bits, strict=True))
        true = model(kb, frozenset([a for a in ATOMS if on.get(named(a), False)]))
        weight = math.prod([chosen[n] if bit else 1 - chosen[n] for n, bit in on.items()])
        for axiom in kb.axioms:
            found[axiom.name] += weight * holds(axiom.formula, {}, true)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_exact_probabilities_are_those_of_the_worlds(seed: int) -> None:
    kb = program(seed)
    chosen, tensors = beliefs(seed)
    found = doxa.Model(kb, **{n: doxa.probs(t) for n, t in tensors.items()}).truth(semantics="exact")
    for name, right in enumerated(kb, chosen).items():
        assert float(found[name]) == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_samples_are_evaluated_world_by_world(seed: int) -> None:
    kb = program(seed)
    chosen, tensors = beliefs(seed)
    how = doxa.Sampled()
    model = doxa.Model(kb, **{n: doxa.probs(t) for n, t in tensors.items()})
    many = [model.truth(semantics=how, generator=torch.Generator().manual_seed(i)) for i in range(40)]
    for name, right in enumerated(kb, chosen).items():
        mean = float(torch.stack([m[name] for m in many]).mean())
        assert abs(mean - right) < 5 * math.sqrt(0.25 / 4000) + 1e-9


@pytest.mark.parametrize("semantics", ["exact", "classical", "sampled", doxa.Fuzzy("godel"), doxa.Fuzzy("product")])
@pytest.mark.parametrize("seed", range(3))
def test_all_agree_with_classical_truth_on_crisp_inputs(seed: int, semantics: str | doxa.Fuzzy) -> None:
    kb = program(seed)
    on = {name: (i * 7 + seed) % 3 != 0 for i, name in enumerate(FREE)}
    true = model(kb, frozenset([a for a in ATOMS if on.get(named(a), False)]))
    edge = torch.tensor([[float(on.get(f"edge({a}, {b})", False)) for b in NODES] for a in NODES])
    mark = torch.tensor([float(on.get(f"mark({a})", False)) for a in NODES])
    found = doxa.Model(kb, edge=doxa.probs(edge), mark=doxa.probs(mark)).truth(semantics=semantics)
    for axiom in kb.axioms:
        assert float(found[axiom.name]) == pytest.approx(float(holds(axiom.formula, {}, true)), abs=1e-5)


GRAPH = """
    sort Node = 1..6
    pred edge(Node, Node)
    define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)
    [five] path(1, 5)
    [six] path(1, 6)
"""
EDGES = {(1, 2): 0.6, (1, 3): 0.1, (2, 5): 0.4, (2, 6): 0.3, (3, 4): 0.3, (4, 5): 0.8, (5, 6): 0.2}


def graph() -> torch.Tensor:
    edge = torch.zeros(6, 6, dtype=torch.float64)
    for (a, b), p in EDGES.items():
        edge[a - 1, b - 1] = p
    return edge


def test_problog_probabilistic_graph() -> None:
    """The graph of ProbLog's tutorial, with the answers that it prints; and the sum over all 128 graphs."""
    found = doxa.Model(GRAPH, edge=doxa.probs(graph())).truth(semantics="exact")
    right = [0.0, 0.0]
    for bits in itertools.product((False, True), repeat=len(EDGES)):
        here = [edge for edge, bit in zip(EDGES, bits, strict=True) if bit]
        weight = math.prod([p if bit else 1 - p for p, bit in zip(EDGES.values(), bits, strict=True)])
        reached, todo = {1}, [1]
        while todo:
            at = todo.pop()
            new = [b for a, b in here if a == at and b not in reached]
            reached.update(new)
            todo += new
        right = [right[0] + weight * (5 in reached), right[1] + weight * (6 in reached)]
    assert right == pytest.approx([0.25824, 0.2167296])
    assert [float(found["five"]), float(found["six"])] == pytest.approx([0.25824, 0.2167296])


def test_problog_smokers() -> None:
    """Friends of ProbLog's tutorial: a cycle of influence, and evidence. P(smokes(1) | evidence) = 0.50877193."""
    kb = doxa.parse(
        """
        sort Person = 1..4
        closed pred friend(Person, Person)
        pred stress(Person)
        pred influences(Person, Person)
        fact friend(1, 2); fact friend(2, 1); fact friend(2, 4); fact friend(3, 2); fact friend(4, 2)
        define smokes(x: Person) := stress(x) | exists y: Person. friend(x, y) & influences(y, x) & smokes(y)
        define evidence := smokes(2) & !influences(4, 2)
        [evidence] evidence
        [one] smokes(1) & evidence
        [three] smokes(3) & evidence
        [four] smokes(4) & evidence
        """
    )
    stress = doxa.probs(torch.full((4,), 0.3, dtype=torch.float64))
    influences = doxa.probs(torch.full((4, 4), 0.2, dtype=torch.float64))
    found = doxa.Model(kb, stress=stress, influences=influences).truth(semantics="exact")
    given = [float(found[name] / found["evidence"]) for name in ("one", "three", "four")]
    assert given == pytest.approx([0.50877193, 0.44, 0.44], abs=1e-8)


def test_problog_alarm() -> None:
    """The alarm of ProbLog's tutorial: P(burglary | alarm) = 0.98965517, P(earthquake | alarm) = 0.22758621."""
    kb = doxa.parse(
        """
        pred burglary, earthquake, both, only, quake
        define alarm := burglary & earthquake & both
        define alarm := burglary & !earthquake & only
        define alarm := !burglary & earthquake & quake
        [alarm] alarm
        [b] alarm & burglary
        [e] alarm & earthquake
        """
    )
    prior = {"burglary": 0.7, "earthquake": 0.2, "both": 0.9, "only": 0.8, "quake": 0.1}
    bound = {n: doxa.probs(torch.tensor(p, dtype=torch.float64)) for n, p in prior.items()}
    found = doxa.Model(kb, **bound).truth(semantics="exact")
    assert float(found["b"] / found["alarm"]) == pytest.approx(0.98965517, abs=1e-8)
    assert float(found["e"] / found["alarm"]) == pytest.approx(0.22758621, abs=1e-8)


def test_gradients_of_exact_probabilities() -> None:
    def value(edge: torch.Tensor) -> torch.Tensor:
        return doxa.Model(GRAPH, edge=doxa.probs(edge)).loss(semantics="exact")

    edge = (graph() * 0.9 + 0.03).requires_grad_()
    assert torch.autograd.gradcheck(value, (edge,), eps=1e-6)


@pytest.mark.parametrize("semantics", ["exact", "sampled", "refined", "fuzzy"])
def test_losses_teach(semantics: str) -> None:
    logits = torch.nn.Parameter(torch.full((3, 3), -2.0))
    small = GRAPH.replace("1..6", "1..3").replace("path(1, 5)", "path(1, 2)").replace("path(1, 6)", "path(1, 3)")
    model = doxa.Model(small, edge=doxa.logits(logits))
    optimizer = torch.optim.Adam([logits], 0.3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = model.loss(semantics=semantics, generator=generator)
        loss.backward()
        assert torch.isfinite(loss) and logits.grad is not None and bool(torch.isfinite(logits.grad).all())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_functions_of_rows_are_exact() -> None:
    """Addition place by place, for rows of different digits: the carry is defined, the digits are seen."""
    kb = doxa.parse(
        """
        sort Image
        sort Place = 0..2
        sort Bit = 0..1
        data sums(x: Image*, y: Image*, low: Bit, high: Bit)
        func bit(Image) -> Bit
        define carry(r in sums, i: Place where i > 0) -> Bit :=
            (bit(r.x[i - 1]) + bit(r.y[i - 1]) + carry(r, i - 1)) // 2
        define carry(r in sums, i: Place) -> Bit := 0
        [low] forall r in sums. (bit(r.x[0]) + bit(r.y[0]) + carry(r, 0)) mod 2 = r.low
        [high] forall r in sums. carry(r, 2) = r.high
        """,
        warn=False,
    )
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(4, 2, 2, generator=generator).double(), torch.randn(4, 2, 2, generator=generator).double()
    low, high = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    model = doxa.Model(kb, bit=doxa.logits(lambda image: image))
    sums = {"x": x, "y": y, "low": low, "high": high}
    losses = model.losses(semantics="exact", reduction="none", sums=sums).by_name()
    p, q = x.softmax(-1), y.softmax(-1)
    for row in range(4):
        right = {"low": 0.0, "high": 0.0}
        for a in itertools.product((0, 1), repeat=4):
            weight = p[row, 0, a[0]] * p[row, 1, a[1]] * q[row, 0, a[2]] * q[row, 1, a[3]]
            total = a[0] + 2 * a[1] + a[2] + 2 * a[3]
            right["low"] += float(weight * (total % 2 == low[row]))
            right["high"] += float(weight * (total // 4 == high[row]))
        for name in right:
            assert float(losses[name][row]) == pytest.approx(-math.log(right[name]), abs=1e-6)


@pytest.mark.parametrize("semantics", ["exact", "sampled", "refined", "fuzzy", "classical"])
@pytest.mark.parametrize("sort", ["sort Place = {inn, mill, port}", "sort Place; const inn, mill, port: Place"])
def test_guards_may_use_what_is_defined(sort: str, semantics: str) -> None:
    """A crisp definition says which instances there are; networks say whether they hold."""
    kb = doxa.parse(
        f"""
        {sort}
        closed pred road(Place, Place)
        pred busy(Place)
        fact road(inn, mill); fact road(mill, port)
        define way(x, y: Place) := road(x, y) | exists z: Place. road(x, z) & way(z, y)
        [busy] forall x, y: Place where way(x, y). busy(x)
        [all] forall y: Place where way(inn, y) & y != mill. busy(y)
        """,
        warn=False,
    )
    busy = torch.tensor([1.0, 1.0, 0.0])
    found = doxa.Model(kb, busy=doxa.probs(busy)).truth(semantics=semantics, per_row=True)
    assert float(found["all"].min()) == pytest.approx(0.0, abs=1e-5)
    assert float(found["busy"].min()) == pytest.approx(1.0, abs=1e-5)


def test_constraints_know_definitions() -> None:
    """The probability of a constraint is that of the worlds in which it holds; a loop is no reason."""
    from doxa.exact import Constraint

    kb = doxa.parse("pred a, b; define p := q & b | a; define q := p; [x] p", warn=False)
    assert float(Constraint(kb).probability(doxa.Belief.uniform((2, 2)))) == pytest.approx(0.5)


@pytest.mark.parametrize("semantics", ["fuzzy", "fuzzy:godel", "classical"])
def test_tensors_without_values_have_the_right_shapes(semantics: str) -> None:
    model = doxa.Model(GRAPH, edge=doxa.probs(torch.nn.Parameter(graph()))).to("meta")
    assert all(t.shape == () and t.device.type == "meta" for t in model.truth(semantics=semantics).values())
