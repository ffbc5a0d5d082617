"""Guards of known relations are joined: against plain loops, dense guards, and in pieces of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from tests.logic.naive import World, evaluate
from tests.logic.spies import Largest, generator
from torch import Tensor, nn

from doxa.errors import BindingError, DataError
from doxa.fuzzy import FuzzyPlan
from doxa.logic import Interpretation, logits, parse, satisfaction, table
from doxa.logic.tensor import _joined
from doxa.logic.tensor._plan import TensorPlan

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # of torch's own
N = 6
KB = parse("""
    sort P; sort D = 1..4; const first: P
    data pairs(left: P, right: P)
    pred f(P, P); pred g(P, P); pred s(P); pred n(P); pred has(P, D); pred t(P, P, P); func age(P) -> Int
    [hops]     forall x, y, z: P where f(x, y) & f(y, z). s(x) -> s(z)
    [triangle] forall x, y, z: P where f(x, y) & g(y, z) & f(z, x). s(x) | s(y) & s(z)
    [negated]  forall x, y: P where f(x, y) & !g(x, y) & x != y. s(x) -> s(y)
    [outer]    forall x: P. exists y: P where f(x, y) & x != y. s(y)
    [listed]   forall x, y: P where f(x, y). exists z: P where f(y, z) & g(x, z). s(z)
    [constant] forall x, y: P where f(x, first) & g(first, y). s(x) -> s(y)
    [itself]   forall x: P where f(x, x). s(x)
    [free]     forall x, y, w: P where f(x, y). s(w) | s(y) & x != w
    [levels]   forall x, y: P where f(x, y). forall z: P where g(y, z) & x != z. s(x) -> s(z)
    [finite]   forall x: P, d: D where has(x, d) & d > 1 & d + 1 < 5. s(x)
    [both]     forall x, y: P, d: D where has(x, d) & has(y, d) & f(x, y). s(x) -> s(y)
    [rows]     forall p in pairs where f(p.left, p.right). s(p.left)
    [mixed]    forall x, y, z: P where f(x, y) & n(x) & g(y, z). s(z)
    [counted]  forall x: P. at most 2 y: P where f(x, y) & g(y, x). s(y)
    [partial]  forall x, y: P where age(y) != 0 & f(x, y) & 6 // age(y) > 2. s(x)
    [ternary]  forall x, y, z: P where t(x, y, z) & f(x, y) & !f(y, z). s(x) -> s(z)
    [nested]   forall x, y: P where (f(x, y) | g(x, y)) & g(y, x). s(x)
    [some]     exists x, y, z: P where f(x, y) & g(y, z). s(x) & s(z)
""")
FORMS = ["set", "dense", "coo", "csr", "rows", "frame"]
NAMES = [axiom.name for axiom in KB.axioms]


class Situation:
    """Random relations, in plain Python and bound in some form."""

    def __init__(self, seed: int, density: float = 0.3) -> None:
        g = generator(seed)
        self.relations = {
            name: torch.rand(shape, generator=g) < density
            for name, shape in {"f": (N, N), "g": (N, N), "has": (N, 4), "t": (N, N, N)}.items()
        }
        self.s, self.n = (torch.rand(N, generator=g) < 0.5 for _ in range(2))
        self.age = torch.randint(0, 4, (N,), generator=g)
        self.pairs = torch.randint(0, N, (2, 7), generator=g)

    def bound(self, form: str) -> dict[str, Any]:
        return {name: bound(relation, form, name) for name, relation in self.relations.items()}

    def interpretation(self, form: str, **others: Any) -> Interpretation:
        net = logits(lambda x: torch.where(self.n[x.long()], 5.0, -5.0))
        return Interpretation(KB, **{"s": self.s, "n": net, "age": self.age, "first": 0} | self.bound(form) | others)

    @property
    def data(self) -> dict[str, Any]:
        return {"P": torch.arange(N), "pairs": {"left": self.pairs[0], "right": self.pairs[1]}}

    def world(self) -> World:
        symbols = {
            name: lambda *at, r=relation: bool(r[at]) for name, relation in self.relations.items() if name != "has"
        }
        symbols |= {"has": lambda x, d: bool(self.relations["has"][x, d - 1]), "s": lambda x: bool(self.s[x])}
        symbols |= {"n": lambda x: bool(self.n[x]), "age": lambda x: int(self.age[x])}
        rows = [{"left": int(a), "right": int(b)} for a, b in self.pairs.t()]
        return World({"P": list(range(N)), "D": [1, 2, 3, 4]}, symbols, {"first": 0}, {"pairs": rows})


def bound(relation: Tensor, form: str, name: str) -> Any:
    """One relation, as a user may have it."""
    places = relation.nonzero()
    if name == "has" and form in ("set", "rows", "frame"):
        places = places + torch.tensor([0, 1])  # a table has the values of a range
    match form:
        case "set":
            return {tuple(t) for t in places.tolist()}
        case "coo":
            return relation.to_sparse()
        case "csr":
            return relation.to_sparse_csr() if relation.ndim == 2 else relation.to_sparse()
        case "rows":
            return table(torch.cat([places, places]))  # each twice
        case "frame":
            return table(pandas.DataFrame({f"c{i}": column.numpy() for i, column in enumerate(places.unbind(1))}))
    return relation


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
def test_truth_is_that_of_loops(name: str, form: str) -> None:
    for seed in range(4):
        case = Situation(seed, density=(0.0, 0.15, 0.4, 1.0)[seed])
        wanted = evaluate(KB[name].formula, case.world())
        interpretation = case.interpretation(form)
        for chunk in (1, 7, 2**22):
            plan = TensorPlan(KB[name], interpretation, chunk=chunk)
            assert bool(plan(**case.data)) == bool(plan(**case.data)) == wanted, (seed, chunk)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece", [1, 5, 10**7])
def test_fuzzy_values_and_gradients_are_those_of_guards_without_joins(
    name: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relations that networks decide are no join: their guards look at all choices of their variables."""
    monkeypatch.setattr(_joined, "PIECE", piece)
    for seed in (1, 2):
        case = Situation(seed, density=0.35)
        learnt = nn.Parameter(torch.randn(N, dtype=torch.float64, generator=generator(seed)))
        decided = {n: logits(torch.where(r, 9.0, -9.0).double()) for n, r in case.relations.items()}
        found = []
        for relations in ({}, decided):
            interpretation = case.interpretation("coo", s=logits(learnt), **relations)
            for chunk in (5, 2**22):
                value = FuzzyPlan(KB[name], interpretation, "ltn", chunk=chunk)(**case.data)
                grad = torch.autograd.grad(value, learnt, allow_unused=True)[0] if value.requires_grad else None
                found.append((value.detach(), torch.zeros(N).double() if grad is None else grad))
        for value, grad in found[1:]:
            torch.testing.assert_close(value, found[0][0])
            torch.testing.assert_close(grad, found[0][1])


def test_satisfaction_counts_the_same_instances() -> None:
    case = Situation(3, density=0.3)
    reports = [satisfaction(KB, case.interpretation(form), examples=1000, **case.data) for form in FORMS]
    for name in NAMES:
        found = [(r.instances, r.holds, {tuple(v.items()) for v in r.violations}) for r in [r[name] for r in reports]]
        assert all(f == found[0] for f in found)
        assert len(found[0][2]) == found[0][0] - found[0][1]
    x, y, z = torch.einsum("xy,yz->xyz", *[case.relations["f"].int()] * 2).nonzero(as_tuple=True)
    assert reports[0]["hops"].instances == len(x) == len(y) == len(z)
    assert reports[0]["hops"].holds == int((~case.s[x] | case.s[z]).sum())


def test_nothing_has_the_size_of_the_product() -> None:
    n, m = 2000, 4000
    pairs = torch.randint(0, n, (m, 2), generator=generator())
    learnt = nn.Parameter(torch.randn(n, generator=generator(1)))
    for f in (table(pairs), torch.sparse_coo_tensor(pairs.t(), torch.ones(m), (n, n)).bool()):
        world = Interpretation(KB, f=f, g=table(pairs.flip(1)), s=logits(learnt))
        for name in ("hops", "negated", "outer", "levels"):
            with Largest() as largest:
                FuzzyPlan(KB[name], world, "ltn")(P=n).backward()
            assert largest.elements <= 10 * m, name


def test_the_plan_says_what_is_joined_in_which_order() -> None:
    case = Situation(0)
    text = TensorPlan(KB["constant"], case.interpretation("set")).explain(P=N)
    assert "joined: g(0, y)" in text or "joined: f(x, 0)" in text
    large = torch.cartesian_prod(torch.arange(100), torch.arange(100))
    kb = parse("sort P; pred f(P, P); pred g(P); pred s(P); [a] forall x, y: P where f(x, y) & g(y). s(x)")
    world = Interpretation(kb, f=table(large), g={7}, s=torch.ones(100, dtype=torch.bool))
    assert "joined: g(y) 1, f(x, y) 100" in TensorPlan(kb["a"], world).explain(P=100)


def test_a_network_on_pairs_runs_on_the_joined_pairs_only() -> None:
    kb = parse("sort P; pred f(P, P); pred near(P, P); [a] forall x, y, z: P where f(x, y) & f(y, z). near(x, z)")
    seen = []

    def near(x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(x))
        return (x * y).sum(-1)

    pairs = {(0, 1), (1, 2), (1, 3), (5, 1)}
    FuzzyPlan(kb["a"], Interpretation(kb, f=pairs, near=logits(near)), "ltn")(P=torch.randn(6, 3))
    assert seen == [4]


def test_tables_from_files(tmp_path: Path) -> None:
    kb = parse("""
        sort P; sort D = 1..4; const anna, bob: P
        pred f(P, P); func size(P, D) -> Int
        [a] forall x, y: P where f(x, y). x = anna
        [b] size(anna, 2) = 7
    """)
    file = tmp_path / "f.csv"
    file.write_text("from,to\nanna,bob\nanna, anna\n", encoding="utf-8")
    sizes = tmp_path / "size.csv"
    sizes.write_text("who,which,size\nanna,2,7\nbob,1,3\n", encoding="utf-8")
    world = Interpretation(kb, f=table(file), size=table(str(sizes)))
    assert satisfaction(kb, world).satisfied
    assert satisfaction(kb, world)["a"].instances == 2


def test_tables_from_parquet(tmp_path: Path) -> None:
    file = tmp_path / "f.parquet"
    pandas.DataFrame({"a": [0, 1], "b": [1, 2]}).to_parquet(file)
    kb = parse("sort P; pred f(P, P); [a] forall x, y: P where f(x, y). x != y")
    assert satisfaction(kb, Interpretation(kb, f=table(file)), P=3)["a"].instances == 2


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda folder: table(folder / "none.csv"), DataError, "no such file"),
        (lambda folder: table(folder / "f.txt"), BindingError, ".csv and .parquet"),
        (lambda folder: table(torch.zeros(2, 2).to_sparse()), BindingError, "wanted dtype bool"),
        (lambda folder: table(torch.zeros(2, 2, 2)), BindingError, "one tuple of indices per row"),
        (lambda folder: table(torch.zeros(4, 3, dtype=torch.int64)), BindingError, "needs 2 columns"),
        (lambda folder: table(torch.tensor([[0, -1]])), BindingError, "-1 stands for nothing of sort P"),
        (lambda folder: table(torch.tensor([[0.5, 1.0]])), BindingError, "whole numbers are wanted"),
        (lambda folder: table(pandas.DataFrame({"a": ["ann"], "b": ["bob"]})), BindingError, "no constant 'ann'"),
        (lambda folder: table(pandas.DataFrame({"a": [True], "b": [1]})), BindingError, "true and false"),
        (lambda folder: table(pandas.DataFrame({"a": [None], "b": [1]})), BindingError, "empty cells"),
    ],
)
def test_bad_tables_are_refused(make: Any, error: type[Exception], said: str, tmp_path: Path) -> None:
    kb = parse("sort P; const anna, bob: P; pred f(P, P); [a] forall x, y: P where f(x, y). x = y")
    with pytest.raises(error, match=said):
        Interpretation(kb, f=make(tmp_path))


def test_an_index_outside_the_data_is_refused() -> None:
    case = Situation(0)
    world = case.interpretation("set", f=table(torch.tensor([[0, N]])))
    with pytest.raises(BindingError, match=f"names object {N}, but P has {N} objects"):
        TensorPlan(KB["hops"], world)(**case.data)
