"""What grounding costs: networks run once and on single objects, tensors stay within the chunk, nothing is padded."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from tests.logic.spies import Largest, Nonzeros, Pairwise, Spy, generator
from torch import Tensor

from doxa.errors import BindingError, KnowledgeError
from doxa.logic import Interpretation, function, logits, parse, probs, satisfaction, truth, values
from doxa.logic.tensor._plan import TensorPlan

SAME = """
    sort Image
    sort Digit = 0..9
    data pairs(left: Image, right: Image, sum: Int)
    pred is(Image, Digit)
    pred same(Image, Image)
    func digit(Image) -> Digit
    [if_equal] forall x, y: Image, d: Digit. is(x, d) & is(y, d) -> same(x, y)
    [symmetry] forall x, y: Image. same(x, y) -> same(y, x)
    [nine] forall x: Image. is(x, 9) | exists y: Image. same(x, y) & !is(y, 0)
    [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    [halves] forall p in pairs. is(p.left, digit(p.right)) -> same(p.left, p.right)
"""


def images(n: int, seed: int = 3) -> Tensor:
    return torch.randn(n, 2, 2, generator=generator(seed))


def test_a_network_runs_once_on_everything_it_is_asked_for() -> None:
    """One call for all axioms, occurrences, sorts and columns; also when two symbols share the network."""
    kb = parse(SAME, warn=False)
    cnn, same = Spy(4, 10), Pairwise(8, 1)
    world = Interpretation(kb, digit=logits(cnn), same=logits(same), **{"is": logits(cnn)})
    pairs = {"left": images(5, 1), "right": images(5, 2), "sum": torch.arange(5)}
    truth(kb, world, Image=images(7), pairs=pairs)
    assert cnn.shapes == [((17, 2, 2),)]
    cnn.shapes.clear()
    same.shapes.clear()
    satisfaction(kb, world, Image=images(7), pairs=pairs)
    assert cnn.shapes == [((17, 2, 2),)]


def test_a_relation_runs_on_all_pairs_or_on_those_that_occur() -> None:
    kb = parse("""
        sort P
        pred r(P, P)
        data rows(a: P, b: P)
        [all] forall x, y: P. r(x, y)
        [some] forall p in rows. r(p.a, p.b)
    """)
    for relation, whole in ((Pairwise(4, 1), [("pairwise", (6, 2), (6, 2))]), (Spy(4, 1), [((36, 2), (36, 2))])):
        world = Interpretation(kb, r=logits(relation))
        objects = torch.randn(6, 2, generator=generator())
        a, b = torch.tensor([0, 1, 1, 0, 0]), torch.tensor([2, 3, 3, 2, 5])
        plain = (torch.cat([objects[a], objects[b]], -1) @ relation.weight)[:, 0] > 0
        got = truth(kb["some"], world, keep="p", P=objects, rows={"a": a, "b": b})
        assert torch.equal(got, plain)
        assert relation.shapes == [((3, 2), (3, 2))], "each pair once, and only pairs of the rows"
        relation.shapes.clear()
        truth(kb, world, P=objects, rows={"a": a, "b": b})
        assert relation.shapes == whole, "with the whole table at hand, nothing runs twice"


def test_a_relation_is_fed_in_pieces() -> None:
    kb = parse("sort P\npred r(P, P)\n[all] forall x, y: P. r(x, y)")
    relation = Spy(6, 1)
    world = Interpretation(kb, r=logits(relation))
    objects = torch.randn(10, 3, generator=generator())
    with Largest() as largest:
        truth(kb, world, P=objects, chunk=120)
    assert largest.elements <= 6 * 40, "a piece of 40 pairs of features, both sides together"
    assert [s[0][0] for s in relation.shapes] == [40, 40, 20]


@pytest.mark.parametrize("chunk", [5000, 20_000])
def test_tensors_stay_within_the_chunk(chunk: int) -> None:
    kb = parse("""
        sort P
        pred r(P, P)
        func age(P) -> Int
        [transitive] forall x, y, z: P. r(x, y) & r(y, z) -> r(x, z)
        [guarded] forall x, y, z: P where r(x, y) & x != z. r(y, z) -> r(x, z)
        [deep] forall x: P. exists y: P. forall z: P where age(z) > age(y). r(x, z) | exactly 3 w: P. r(z, w)
        [sums] forall x, y, z: P. age(x) + age(y) >= age(z) - 10
        [counted] at most 100000 x, y, z: P where x != y. r(x, y) & r(y, z)
    """)
    n = 60
    r = torch.rand(n, n, generator=generator()) < 0.3
    age = torch.randint(0, 9, (n,), generator=generator(1))
    world = Interpretation(kb, r=r, age=age)
    whole = TensorPlan(kb, world)(P=n)
    with Largest() as largest:
        tiled = TensorPlan(kb, world, chunk=chunk)(P=n)
    assert torch.equal(whole, tiled)
    assert largest.elements <= chunk
    with Largest() as largest:
        TensorPlan(kb, world)(P=n)
    assert largest.elements >= n**3, "the measure measures"


def test_kept_axes_longer_than_the_chunk() -> None:
    kb = parse("sort P\npred r(P, P)\n[a] forall x, y: P. exists z: P. r(x, z) & r(z, y)")
    r = torch.rand(40, 40, generator=generator()) < 0.1
    world = Interpretation(kb, r=r)
    want = (r.float() @ r.float()) > 0
    with Largest() as largest:
        got = truth(kb["a"], world, keep=("x", "y"), P=40, chunk=100)
    assert torch.equal(got, want)
    assert largest.elements == 1600, "the result itself, and no more"


# --- guards -------------------------------------------------------------------------------------------------------


def test_a_guard_is_listed_once_per_batch() -> None:
    calls = []

    def near(x: Tensor, y: Tensor) -> Tensor:
        calls.append(len(x))
        return (x - y).abs() == 1

    kb = parse("""
        sort P
        pred near(P, P)
        pred r(P, P)
        pred q(P)
        [a] forall x, y: P where near(x, y). r(x, y)
        [b] forall x, y: P where near(x, y). q(x) -> q(y)
        [c] forall x: P. exists y: P where near(x, y). q(y)
    """)
    n = 9
    world = Interpretation(kb, near=near, r=torch.ones(n, n, dtype=torch.bool), q=torch.arange(n) < 5)
    assert TensorPlan(kb, world)(P=n).tolist() == [True, False, False]
    assert calls == [n * n]
    with Nonzeros() as counter:
        TensorPlan(kb, world)(P=n)
    assert counter.calls == 1, "all three share their list, though x stands outside in c"


def test_a_shared_guard_keeps_its_variables_apart() -> None:
    """The same guard under quantifiers that introduce its variables in another order is another list."""
    kb = parse("""
        sort P
        pred r(P, P)
        pred q(P, P)
        [a] forall x, y: P where r(x, y). q(x, y)
        [b] forall y, x: P where r(x, y). q(x, y)
        [c] exists y: P. forall x: P where r(x, y). q(y, x)
        [d] forall y, x: P where r(y, x). q(x, y)
    """)
    r = torch.zeros(5, 5, dtype=torch.bool)
    r[0, 3] = r[1, 2] = r[4, 4] = True
    for q in (r, r.T):
        got = TensorPlan(kb, Interpretation(kb, r=r, q=q))(P=5).tolist()
        assert got == [bool((~r | q).all()), bool((~r | q).all()), True, bool((~r | q.T).all())]


def test_a_plan_lets_go_of_the_data() -> None:
    kb = parse("sort P\npred q(P)\npred r(P, P)\n[a] forall x, y: P where q(x). q(y) -> r(x, y)")
    world = Interpretation(kb, q=lambda x: x[:, 0] > 0, r=logits(Spy(4, 1)))
    objects = torch.randn(6, 2, generator=generator())
    seen = weakref.ref(objects)
    truth(kb, world, P=objects)
    del objects
    gc.collect()
    assert seen() is None


def test_a_relation_on_guarded_pairs_runs_on_those_only() -> None:
    kb = parse(
        "sort P\npred edge(P, P)\npred near(P, P)\n[a] forall x, y: P where edge(x, y). near(x, y) -> near(y, x)"
    )
    near = Spy(4, 1)
    world = Interpretation(kb, edge={(0, 1), (1, 2), (3, 3)}, near=logits(near))
    truth(kb, world, P=torch.randn(5, 2, generator=generator()))
    assert near.shapes == [((3, 2), (3, 2)), ((2, 2), (2, 2))], "the pairs and then their mirrors, 3-3 not again"


# --- random batches -----------------------------------------------------------------------------------------------


def test_sample_draws_one_batch_for_all_variables_of_a_group() -> None:
    kb = parse(
        "sort P\npred r(P, P)\npred q(P)\n[a] forall x, y: P sample 4. r(x, y)\n[b] exactly 4 x: P sample 4. q(x)"
    )
    n = 30
    inside = torch.zeros(n, dtype=torch.bool)
    drawn = torch.randperm(n, generator=generator(5))[:4]
    inside[drawn] = True
    table = inside[:, None] & inside
    world = Interpretation(kb, r=table, q=torch.ones(n, dtype=torch.bool))
    assert truth(kb["a"], world, P=n, generator=generator(5)), "true of exactly the drawn ones"
    assert not truth(kb["a"], world, P=n, generator=generator(6))
    assert truth(kb["b"], world, P=n)
    assert not truth(kb["b"], world.__class__(kb, r=table, q=torch.ones(3, dtype=torch.bool)), P=3), "there are only 3"


def test_networks_run_on_the_sample_only() -> None:
    kb = parse("sort P\npred q(P)\npred r(P, P)\n[a] forall x, y: P sample 3. q(x) & q(y) -> r(x, y) | x = y")
    q, r = Spy(2, 1), Spy(4, 1)
    world = Interpretation(kb, q=logits(q), r=logits(r))
    objects = torch.randn(50, 2, generator=generator())
    got = truth(kb, world, P=objects, generator=generator(1))
    assert q.shapes == [((3, 2),)] and r.shapes == [((9, 2), (9, 2))]
    drawn = objects[torch.randperm(50, generator=generator(1))[:3]]
    yes = (drawn @ q.weight)[:, 0] > 0
    pairs = torch.cat([drawn[:, None].expand(-1, 3, -1), drawn[None].expand(3, -1, -1)], -1) @ r.weight
    assert got == (~(yes[:, None] & yes) | (pairs[..., 0] > 0) | torch.eye(3, dtype=torch.bool)).all()


def test_sampled_rows() -> None:
    kb = parse("sort P\ndata rows(a: P, k: Int)\npred q(P)\n[a] forall p in rows sample 2. q(p.a) & p.k > 0")
    q = Spy(3, 1)
    world = Interpretation(kb, q=logits(q))
    rows = {"a": torch.randn(9, 3, generator=generator()), "k": torch.arange(9)}
    got = truth(kb["a"], world, keep="p", rows=rows, generator=generator(2))
    drawn = torch.randperm(9, generator=generator(2))[:2]
    assert q.shapes == [((2, 3),)]
    assert torch.equal(got, ((rows["a"][drawn] @ q.weight)[:, 0] > 0) & (drawn > 0))


# --- functions that compute features, relations with the data, large tables ----------------------------------------


def test_functions_into_open_sorts_compute_features() -> None:
    kb = parse("""
        sort Image
        sort Code
        func encode(Image) -> Code
        func mix(Image, Image) -> Code
        pred good(Code)
        pred like(Code, Code)
        [a] forall x: Image. good(encode(x))
        [b] forall x, y: Image. like(encode(x), encode(y)) -> good(mix(x, y))
    """)
    encode, mix, good, like = Spy(4, 3), Spy(8, 3, 1), Spy(3, 1, 2), Spy(6, 1, 3)
    world = Interpretation(kb, encode=values(encode), mix=values(mix), good=logits(good), like=logits(like))
    x = images(5)
    code = x.flatten(1) @ encode.weight
    nice = (code @ good.weight)[:, 0] > 0
    assert torch.equal(truth(kb["a"], world, keep="x", Image=x), nice)
    both = torch.cat([x.flatten(1)[:, None].expand(-1, 5, -1), x.flatten(1)[None].expand(5, -1, -1)], -1) @ mix.weight
    alike = torch.cat([code[:, None].expand(-1, 5, -1), code[None].expand(5, -1, -1)], -1) @ like.weight
    want = ~(alike[..., 0] > 0) | ((both @ good.weight)[..., 0] > 0)
    encode.shapes.clear()
    assert torch.equal(truth(kb["b"], world, keep=("x", "y"), Image=x), want)
    assert encode.shapes == [((5, 2, 2),)]


def test_relations_may_come_with_the_data() -> None:
    kb = parse("sort Node\npred edge(Node, Node)\npred q(Node)\n[a] forall x, y: Node where edge(x, y). q(x) -> q(y)")
    world = Interpretation(kb, q=lambda x: x > 1)
    assert truth(kb, world, Node=4, edge={(2, 3), (0, 1)})
    assert not truth(kb, world, Node=4, edge={(2, 1)})
    assert truth(kb, world, Node=4, edge=torch.zeros(4, 4, dtype=torch.bool))
    for limit in (3, 1):  # the same schema, another function
        assert truth(kb, world, Node=4, edge=lambda a, b, limit=limit: b > limit).item()
        assert truth(kb, world, Node=4, edge=lambda a, b, limit=limit: b == limit).item() is (limit == 3)
    with pytest.raises(BindingError, match="q is already bound"):
        truth(kb, world, Node=4, edge={(2, 1)}, q=torch.zeros(4, dtype=torch.bool))
    with pytest.raises(BindingError, match=r"edge: axis 0 of its tensor has size 3, but Node has 4 objects"):
        truth(kb, world, Node=4, edge=torch.zeros(3, 3, dtype=torch.bool))


def test_large_tables_are_lists_of_tuples() -> None:
    """Over very many objects a relation is not a tensor; it means the same."""
    kb = parse(
        """
        sort P
        pred r(P, P)
        data rows(a: P, b: P)
        const c: P
        [views] exists x: P. r(x, c)
        [rows] forall p in rows. r(p.a, p.b)
        [mixed] forall p in rows. exists y: P. r(p.a, y) & y != p.b
        [diagonal] exists x: P. r(x, x)
        [dense] at least 3 x, y: P where x < y | true. r(x, y)
    """.replace(" where x < y | true", "")
    )
    tuples = {(0, 1), (1, 3), (3, 1), (5, 5), (0, 7)}
    batch = {"a": torch.tensor([0, 1, 5]), "b": torch.tensor([1, 3, 5])}
    small = Interpretation(kb, r=tuples, c=7)
    want = {a.name: truth(a, small, P=8, rows=batch).item() for a in kb}
    assert want == {"views": True, "rows": True, "mixed": False, "diagonal": True, "dense": True}
    large = Interpretation(kb, r=tuples, c=7)
    for axiom in kb:
        if axiom.name != "dense":
            assert truth(axiom, large, P=10_000, rows=batch).item() is want[axiom.name], axiom.name
    assert torch.equal(truth(kb["mixed"], large, keep="p", P=10_000, rows=batch), torch.tensor([True, False, False]))


@pytest.mark.parametrize("chunk", [1000, 2**22])
def test_a_guard_over_very_many_objects_is_its_tuples(chunk: int) -> None:
    """A hundred million pairs are not looked at one by one when the relation lists four."""
    kb = parse("""
        sort P
        pred parent(P, P)
        func age(P) -> Int
        [a] forall x, y: P where parent(x, y). age(x) > age(y)
        [b] exactly 2 y, x: P where parent(x, y). age(x) > age(y) + 1
        [c] forall x: P. at most 1 y: P where parent(y, x). age(y) >= 0
    """)
    n = 10_000
    age = torch.arange(n) % 100
    tuples = {(17, 3), (9_999, 5), (4, 3), (50, 9_950)}
    world = Interpretation(kb, parent=tuples, age=age)
    with Largest() as largest:
        got = TensorPlan(kb, world)(P=n)
    assert got.tolist() == [False, True, False]
    assert largest.elements <= n
    small = Interpretation(kb, parent={(a % 60, b % 60) for a, b in tuples}, age=age[:60])
    dense = torch.zeros(60, 60, dtype=torch.bool)
    for a, b in tuples:
        dense[a % 60, b % 60] = True
    same = Interpretation(kb, parent=dense, age=age[:60])
    assert TensorPlan(kb, small, chunk=chunk)(P=60).tolist() == TensorPlan(kb, same, chunk=chunk)(P=60).tolist()


def test_functions_of_numbers() -> None:
    kb = parse("""
        sort D = 1..4
        sort P
        pred near(P, Real)
        pred even(Int)
        func twice(Int) -> Int
        func bound(Int) -> D
        data rows(k: Int, who: P)
        [even] forall d: D. even(twice(d + 3))
        [near] forall p in rows. near(p.who, 0.5 * p.k)
        [bound] forall d: D where d < 3. bound(d + 1) = d + 1
        [wrong] forall d: D. bound(d + 1) = d + 1
    """)
    world = Interpretation(
        kb,
        near=probs(lambda x, k: torch.where((x[:, 0] - k).abs() < 1, 0.9, 0.1)),
        even=function(lambda k: k % 2 == 0, per_object=True),
        twice=lambda k: 2 * k,
        bound=lambda k: k,
    )
    assert truth(kb["even"], world)
    rows = {"k": torch.tensor([1, 4, 8]), "who": torch.tensor([[0.0], [2.5], [2.0]])}
    assert truth(kb["near"], world, keep="p", rows=rows).tolist() == [True, True, False]
    assert truth(kb["bound"], world)
    with pytest.raises(KnowledgeError, match=r"axiom 'wrong': bound\(5\) has no value"):
        truth(kb["wrong"], world)


def test_explain_names_axes_lists_tables_and_calls() -> None:
    kb = parse(SAME, warn=False)
    cnn = Spy(4, 10)
    world = Interpretation(kb, same=logits(Pairwise(8, 1)), digit=logits(cnn), **{"is": logits(cnn)})
    text = TensorPlan(kb["if_equal"], world, chunk=100).explain(Image=images(7))
    assert text.splitlines() == [
        "classical, chunks of 100 elements",
        "if_equal",
        "  forall x, y, d: x 7, y 7, d 10, 7 tiles",
        "tables: is(Image, Digit) 7x10, same(Image, Image) 7x7",
        "is runs on (7, 2, 2)",
        "same runs on (7, 2, 2), (7, 2, 2)",
    ]
    kb = parse("sort P\npred r(P, P)\n[a] forall x, y: P where x != y. exists z: P. r(x, z) & r(z, y)")
    text = TensorPlan(kb, Interpretation(kb, r=torch.ones(4, 4, dtype=torch.bool))).explain(P=4)
    assert "forall x, y: x 4, y 4, [x != y] 12, 1 tile" in text
    assert "exists z: z 4, 1 tile" in text


def test_plans_are_made_once_per_schema() -> None:
    kb = parse("sort P\npred q(P)\n[a] forall x: P. q(x)")
    world = Interpretation(kb, q=lambda x: x == x)
    made: list[Any] = []
    plan = TensorPlan(kb, world)
    for data in (3, 4, torch.zeros(5), torch.zeros(6), 2):
        plan(P=data)
        made.append(len(plan._programs))
    assert made == [1, 1, 2, 2, 2]


@pytest.mark.parametrize(("chunk", "stack"), [(0, 16), (10, 1)])
def test_nonsense_limits(chunk: int, stack: int) -> None:
    kb = parse("sort P\npred q(P)\n[a] forall x: P. q(x)")
    with pytest.raises(ValueError, match=f"got {chunk} and {stack}"):
        TensorPlan(kb, Interpretation(kb), chunk=chunk, stack=stack)
