"""Definitions for rows and for the objects in them: every row by itself, against the same program over a sort."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from tests.logic.programs import NODES, World, model, program, random_worlds

import doxa
from doxa.errors import BudgetError, KnowledgeError
from doxa.fuzzy import FuzzyPlan
from doxa.logic import Define, Interpretation, KnowledgeBase, Ragged, parse, probs, satisfaction, truth

LENGTHS = (3, 0, 1, 3, 2, 0)
LOGICS = ("godel", "product", "log_product", "lukasiewicz")


def texts(seed: int, *, negation: bool = True) -> tuple[str, str]:
    """A made-up program over a sort of any size, and over the nodes of each row; both say all that is defined."""
    plain = ["sort Node", "pred edge(Node, Node)", "pred mark(Node)"]
    rows = [*plain, "data graphs(nodes: Node*)"]
    kb = program(seed, negation=negation)
    for clause in kb.definitions:
        assert isinstance(clause, Define)
        line = re.sub(r"\b[abc]\b", clause.names[0], str(clause))  # the nodes of rows have no names
        plain.append(line)
        rows.append(_in_rows(line).replace("(g, ", "(g in graphs, ", 1))
    for name, clauses in kb.signature.definitions.items():
        assert isinstance(clauses[0], Define)
        some = ["x", "y"][: len(clauses[0].names)]
        for kind in ("forall", "exists"):
            line = f"{kind} {', '.join(some)}: Node. {name}({', '.join(some)})"
            plain.append(f"[{kind}_{name}] {line}")
            rows.append(f"[{kind}_{name}] forall g in graphs. {_in_rows(line)}")
    return "\n".join(plain), "\n".join(rows)


def _in_rows(line: str) -> str:
    return re.sub(r"\b(p\d\d)\(", r"\1(g, ", line).replace(": Node", " in g.nodes")


def graphs(lengths: tuple[int, ...] = LENGTHS) -> dict[str, Ragged]:
    """Nodes that are seen, each by its number among those of all rows."""
    return {"nodes": Ragged(torch.arange(sum(lengths), dtype=torch.float64).unsqueeze(-1), list(lengths))}


def bound(kb: KnowledgeBase, edge: torch.Tensor, mark: torch.Tensor) -> Interpretation:
    """Networks that look up the truth of what they see."""

    def at(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(-1).long()

    return Interpretation(kb, edge=probs(lambda x, y: edge[at(x), at(y)]), mark=probs(lambda x: mark[at(x)]))


def pieces(lengths: tuple[int, ...] = LENGTHS) -> list[slice]:
    ends = list(itertools.accumulate(lengths))
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize("logic", ["classical", *LOGICS])
@pytest.mark.parametrize("seed", range(8))
def test_a_row_means_what_its_objects_mean_by_themselves(seed: int, logic: str) -> None:
    """Values, and gradients of them, under classical truth and in every logic."""
    plain, rows = (parse(text, warn=False) for text in texts(seed))
    generator = torch.Generator().manual_seed(seed)
    total = sum(LENGTHS)
    edge = torch.rand(total, total, generator=generator, dtype=torch.float64)
    mark = torch.rand(total, generator=generator, dtype=torch.float64)
    if logic == "classical":
        edge, mark = (edge > 0.6).double(), (mark > 0.5).double()
    edge.requires_grad_()
    mark.requires_grad_()
    together = bound(rows, edge, mark)
    for axiom in rows.axioms:
        if logic == "classical":
            found = truth(axiom, together, keep="g", graphs=graphs())
        else:
            found = FuzzyPlan(axiom, together, logic, keep="g", depth=5)(graphs=graphs())
        values = []
        for part in pieces():
            seen = Interpretation(plain, edge=probs(edge[part, part]), mark=probs(mark[part]))
            size = part.stop - part.start
            if logic == "classical":
                values.append(truth(plain[axiom.name], seen, Node=size))
            else:
                values.append(FuzzyPlan(plain[axiom.name], seen, logic, depth=5)(Node=size))
        right = torch.stack(values)
        if logic == "log_product":  # of what is all but false, only rounding errors would be compared
            found, right = found.exp(), right.exp()
        torch.testing.assert_close(found, right, atol=1e-9, rtol=1e-9)
        if logic != "classical" and right.requires_grad:
            weights = torch.randn(len(LENGTHS), generator=generator, dtype=torch.float64)
            slopes = [
                torch.autograd.grad(
                    v @ weights, (edge, mark), allow_unused=True, materialize_grads=True, retain_graph=True
                )
                for v in (found, right)
            ]
            for one, other in zip(*slopes, strict=True):
                torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def as_tensors(worlds: list[World]) -> tuple[torch.Tensor, torch.Tensor]:
    edges = [torch.tensor([[float(("edge", (a, b)) in w) for b in NODES] for a in NODES]) for w in worlds]
    marks = [torch.tensor([float(("mark", (a,)) in w) for a in NODES]) for w in worlds]
    return torch.block_diag(*edges).double(), torch.cat(marks).double()


@pytest.mark.parametrize("semantics", ["classical", "fuzzy:godel", "fuzzy:product", "exact"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_the_least_models_of_their_worlds(seed: int, semantics: str) -> None:
    """Naive bottom-up evaluation, world by world; all semantics agree with it on certain inputs."""
    plain, rows = (parse(text, warn=False) for text in texts(seed))
    worlds = random_worlds(seed + 3000, 4)
    lengths = (3,) * len(worlds)
    edge, mark = as_tensors(worlds)
    at = {
        "edge": probs(lambda x, y: edge[x[:, 0].long(), y[:, 0].long()]),
        "mark": probs(lambda x: mark[x[:, 0].long()]),
    }
    found = doxa.Model(rows, **at).truth(semantics=semantics, per_row=True, graphs=graphs(lengths))
    for number, world in enumerate(worlds):
        true = model(plain, world)
        for name, predicate in plain.signature.predicates.items():
            if name in ("edge", "mark"):
                continue
            size = 3 ** len(predicate.sorts)
            right = {f"forall_{name}": len(true[name]) == size, f"exists_{name}": len(true[name]) > 0}
            for axiom, holds in right.items():
                assert float(found[axiom][number]) == pytest.approx(float(holds), abs=1e-6)


def test_fields_of_indices_and_of_values() -> None:
    """Objects that have numbers: of an open sort, also twice in a row or in several rows, and of a finite one."""
    kb = parse(
        """
        sort Node; const start: Node
        sort Digit = 0..4
        data graphs(nodes: Node*, digits: Digit*, most: Digit)
        pred edge(Node, Node)
        define linked(g in graphs, x, y in g.nodes) :=
            edge(x, y) | exists z in g.nodes. edge(x, z) & linked(g, z, y)
        define small(g in graphs, d in g.digits) := d = 0 | exists e in g.digits where e + 1 = d. small(g, e)
        define fits(g in graphs) := forall d in g.digits. d <= g.most
        [linked] forall g in graphs. forall x, y in g.nodes where x != y. linked(g, x, y)
        [start] forall g in graphs. exists x in g.nodes. linked(g, start, x)
        [small] forall g in graphs. forall d in g.digits. small(g, d)
        [fits] forall g in graphs. fits(g)
        """,
        warn=False,
    )
    edge = torch.zeros(5, 5)
    for a, b in ((0, 1), (1, 0), (1, 2), (2, 3), (3, 1)):
        edge[a, b] = 1
    data = {
        "Node": 5,
        "graphs": {
            "nodes": Ragged(torch.tensor([0, 1, 1, 1, 2, 3, 0, 2, 4]), [3, 3, 2, 1, 0]),
            "digits": Ragged(torch.tensor([0, 1, 2, 1, 2, 4, 1, 0]), [3, 1, 2, 2, 0]),
            "most": torch.tensor([2, 0, 4, 1, 0]),
        },
    }
    right = {
        "linked": [True, True, False, True, True],
        "start": [True, True, False, False, False],
        "small": [True, False, False, True, True],
        "fits": [True, False, True, True, True],
    }
    for semantics in ("classical", "fuzzy:godel", "exact"):
        found = doxa.Model(kb, edge=probs(edge), start=0).truth(semantics=semantics, per_row=True, **data)
        for name, holds in right.items():
            assert found[name].tolist() == pytest.approx([float(h) for h in holds], abs=1e-6), (semantics, name)


ADDER = """
sort Image
sort Place = 0..3
sort Bit = 0..1
data sums(x: Image*, y: Image*, high: Bit)
func bit(Image) -> Bit
define carry(r in sums, i: Place where i > 0) -> Bit := (bit(r.x[i - 1]) + bit(r.y[i - 1]) + carry(r, i - 1)) // 2
define carry(r in sums, i: Place) -> Bit := 0
[high] forall r in sums. carry(r, 3) = r.high
"""


@pytest.mark.parametrize("semantics", ["classical", "fuzzy:godel", "fuzzy:product", "fuzzy:log_product", "exact"])
def test_functions_of_rows(semantics: str) -> None:
    """All sums of two numbers of three bits, one per row."""
    numbers = torch.tensor(list(itertools.product(range(8), repeat=2)))
    bits = torch.stack([numbers >> i & 1 for i in range(3)], -1)  # (rows, two, places)
    images = torch.nn.functional.one_hot(bits, 2).double()
    high = (numbers.sum(-1) >= 8).long()
    high[::5] = 1 - high[::5]
    found = doxa.Model(parse(ADDER, warn=False), bit=probs(lambda image: image)).truth(
        semantics=semantics, per_row=True, sums={"x": images[:, 0], "y": images[:, 1], "high": high}
    )
    torch.testing.assert_close(found["high"].double(), (high == (numbers.sum(-1) >= 8)).double(), atol=1e-6, rtol=0)


FUNCTION = """
sort Object
sort Size = 0..2
data scenes(objects: Object*)
func seen(Object) -> Size
define size(s in scenes, x in s.objects where exists y in s.objects. y != x) -> Size := seen(x)
define size(s in scenes, x in s.objects) -> Size := 2
[sizes] forall s in scenes. forall x in s.objects. size(s, x) >= 1
"""


@pytest.mark.parametrize("semantics", ["classical", "fuzzy:godel", "fuzzy:product", "exact"])
def test_functions_of_objects(semantics: str) -> None:
    """An object alone has a size of its own; places that a row does not have need none."""
    seen = torch.nn.functional.one_hot(torch.tensor([1, 2, 0, 0, 1]), 3).double()
    scenes = {"objects": Ragged(seen, [2, 0, 1, 2])}
    found = doxa.Model(parse(FUNCTION, warn=False), seen=probs(lambda x: x)).truth(
        semantics=semantics, per_row=True, scenes=scenes
    )
    assert found["sizes"].tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0], abs=1e-6)


SCENES = """
sort Object
data scenes(objects: Object*)
pred near(Object, Object)
define linked(s in scenes, x, y in s.objects) := near(x, y) | exists z in s.objects. near(x, z) & linked(s, z, y)
"""


def near(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, 0] * y[:, 1]).clamp(0, 1)


@pytest.mark.parametrize("field", ["sequences", "ragged"])
@pytest.mark.parametrize("chunk", [1, 7, 2**22])
def test_small_chunks_and_sequences_of_one_length(field: str, chunk: int) -> None:
    """Values and gradients do not depend on how much is computed at once, nor on how rows of one length are given."""
    kb = parse(SCENES + "[all] forall s in scenes. forall x, y in s.objects. linked(s, x, y)", warn=False)
    objects = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    given = objects if field == "sequences" else Ragged(objects.flatten(0, 1), [2, 2, 2])
    plan = FuzzyPlan(kb["all"], Interpretation(kb, near=probs(near)), "product", keep="s", chunk=chunk, depth=4)
    found = plan(scenes={"objects": given})
    rows = []
    for row in objects:
        edge = near(row.repeat_interleave(2, 0), row.repeat(2, 1)).view(2, 2)
        table = torch.zeros(2, 2, dtype=torch.float64)
        for _ in range(4):
            through = 1 - (1 - edge.unsqueeze(-1) * table.unsqueeze(0)).prod(1)
            table = 1 - (1 - edge) * (1 - through)
        rows.append(table.prod())
    right = torch.stack(rows)
    torch.testing.assert_close(found, right)
    slopes = [torch.autograd.grad(v.sum(), objects, retain_graph=True)[0] for v in (found, right)]
    torch.testing.assert_close(*slopes)


def test_guards_reports_and_random_rows() -> None:
    kb = parse(
        SCENES
        + """define lone(s in scenes) := !exists x, y in s.objects where x != y. linked(s, x, y)
        [near] forall s in scenes where !lone(s). forall x, y in s.objects where linked(s, x, y). near(x, y)
        [lone] forall s in scenes. lone(s)
        [some] forall s in scenes sample 2. lone(s)""",
        warn=False,
    )
    edge = torch.zeros(6, 6)
    edge[0, 1] = edge[1, 2] = edge[3, 4] = 1
    seen = Interpretation(kb, near=probs(lambda x, y: edge[x[:, 0].long(), y[:, 0].long()]))
    scenes = {"objects": Ragged(torch.arange(6.0).unsqueeze(-1), [3, 2, 0, 1])}
    assert truth(kb["near"], seen, keep="s", scenes=scenes).tolist() == [False, True, True, True]
    report = str(satisfaction(parse("", base=kb, warn=False), seen, scenes=scenes))
    assert re.search(r"near +3 of 4", report) and re.search(r"lone +2 of 4", report)
    drawn = {
        bool(truth(kb["some"], seen, generator=torch.Generator().manual_seed(i), scenes=scenes)) for i in range(30)
    }
    assert drawn == {False, True}


def test_no_rows_and_rows_of_nothing() -> None:
    kb = parse(SCENES + "[all] forall s in scenes. forall x, y in s.objects. linked(s, x, y)", warn=False)
    for lengths in ([], [0], [0, 0, 0]):
        scenes = {"objects": Ragged(torch.zeros(0, 2), lengths)}
        for semantics in ("classical", "fuzzy:godel", "fuzzy"):
            found = doxa.Model(kb, near=probs(near)).truth(semantics=semantics, per_row=True, scenes=scenes)
            assert found["all"].tolist() == [1.0] * len(lengths)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[q] forall s, t in scenes. forall x in t.objects. linked(s, x, x)", "is an object of another row"),
        (
            "define p(s in scenes, x in s.objects) := near(x, x)\n[q] forall s in scenes. p(s, s.first)",
            "should be one of",
        ),
        (
            "define p(s in scenes, x in s.objects) := near(x, x)\ndefine p(s in scenes, x in s.others) := near(x, x)\n"
            "[q] forall s in scenes. forall x in s.objects. p(s, x)",
            "range over different fields",
        ),
    ],
)
def test_objects_of_other_places_are_refused_plainly(text: str, message: str) -> None:
    fields = SCENES.replace("objects: Object*)", "objects: Object*, others: Object*, first: Object)")
    kb = parse(fields + text, warn=False)
    objects = torch.rand(2, 2, 2)
    scenes = {"objects": objects, "others": objects, "first": objects[:, 0]}
    with pytest.raises(KnowledgeError, match=message):
        truth(kb, Interpretation(kb, near=probs(near)), scenes=scenes)


def test_limits_hold_for_rows() -> None:
    kb = parse(SCENES + "[all] forall s in scenes. forall x, y in s.objects. linked(s, x, y)", warn=False)
    scenes = {"objects": Ragged(torch.rand(5000, 2), [5000])}
    with pytest.raises(BudgetError, match="a table of 1 x 5000 x 5000"):
        truth(kb, Interpretation(kb, near=probs(near)), scenes=scenes)
