"""Tables that contradict themselves or have the wrong size are refused, however they are bound."""

from __future__ import annotations

import itertools
from typing import Any

import pandas
import pytest
import torch

from doxa import Model
from doxa.errors import BindingError
from doxa.logic import Interpretation, parse, probs, table, truth
from doxa.logic.bind._listings import contradiction

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # of torch's own


@pytest.mark.parametrize(
    ("declared", "entries", "said"),
    [
        ("f(P) -> D", table(torch.tensor([[0, 1], [0, 2]])), r"f\(0\) two values, 1 and 2, in its rows 0 and 1"),
        ("f(P) -> D", table(torch.tensor([[2, 1], [0, 2], [2, 1], [2, 3]])), r"f\(2\) two values, 1 and 3, .* 0 and 3"),
        ("f(P, D) -> Int", table(torch.tensor([[1, 5, 7], [1, 6, 7], [1, 6, 8]])), r"f\(1, 6\) two values, 7 and 8"),
        (
            "f(C) -> C",
            table(pandas.DataFrame({"a": ["red", "red"], "b": ["red", "blue"]})),
            r"f\(red\) .* red and blue",
        ),
        ("f(P) -> Int", table(pandas.DataFrame({"a": ["anna", "bob", "anna"], "b": [1, 1, 2]})), r"f\(anna\) two"),
        ("f(Real) -> Real", table(torch.tensor([[0.5, 1.0], [0.5, 1.5]])), r"f\(0.5\) two values, 1.0 and 1.5"),
        ("f(D) -> D", table({torch.tensor(1): 1, torch.tensor(1) + 0: 2}), r"f\(1\) two values, 1 and 2"),
    ],
)
def test_a_function_has_one_value(declared: str, entries: Any, said: str) -> None:
    kb = parse(f"sort P; sort D = 0..9; sort C = {{red, blue}}; const anna, bob: P; func {declared}")
    with pytest.raises(BindingError, match=said):
        Interpretation(kb, f=entries)


def test_rows_that_say_the_same_twice_are_fine() -> None:
    kb = parse("sort P; sort D = 0..9; func f(P) -> D; [a] forall x: P. f(x) = 1")
    same = table(torch.tensor([[0, 1], [1, 1], [0, 1]]))
    assert bool(truth(kb["a"], Interpretation(kb, f=same), P=2))


def test_a_name_and_an_index_may_mean_one_object() -> None:
    kb = parse("sort P; sort D = 0..9; const anna: P; func f(P) -> D; [a] forall x: P. f(x) = 1")
    named = Interpretation(kb, f=table({"anna": 1, 0: 1, 1: 1}), anna=0)
    assert bool(truth(kb["a"], named, P=2))
    with pytest.raises(BindingError, match=r"f\(1\) two values, 1 and 2"):
        truth(kb["a"], Interpretation(kb, f=table({"anna": 1, 0: 1, 1: 2}), anna=1), P=2)


@pytest.mark.parametrize("semantics", ["classical", "fuzzy", "exact"])
@pytest.mark.parametrize(
    "asked",
    ["forall x, y: P where e(x, y). s(x)", "forall x, y: P. e(x, y) -> s(x)", "forall x, y: P where way(x, y). s(x)"],
)
@pytest.mark.parametrize("shape", [(3, 3), (5, 4), (4, 5)])
def test_sparse_relations_have_the_size_of_their_sorts(shape: tuple[int, int], asked: str, semantics: str) -> None:
    way = "define way(x, y: P) := e(x, y) | exists z: P. e(x, z) & way(z, y)"
    kb = parse(f"sort P; pred e(P, P); pred s(P); {way}; [a] {asked}")
    s = torch.full((4,), 0.9)
    axis = next(i for i, size in enumerate(shape) if size != 4)
    relation = torch.zeros(shape, dtype=torch.bool)
    relation[0, 0] = True
    for bound in (relation, relation.to_sparse(), relation.to_sparse_csr(), table(relation.to_sparse())):
        with pytest.raises(BindingError, match=rf"e: axis {axis} of its tensor has size {shape[axis]}, but P has 4"):
            Model(kb, e=bound, s=probs(s)).truth(semantics=semantics, P=4)


def test_sparse_tables_have_the_size_of_finite_sorts() -> None:
    kb = parse("sort D = 1..4; pred e(D, D)")
    for bound in (torch.ones(4, 3).bool().to_sparse(), table(torch.ones(4, 3).bool().to_sparse())):
        with pytest.raises(BindingError, match="axis 1 ranges over the 4 values of D, but the tensor has size 3"):
            Interpretation(kb, e=bound)


def test_repeated_rows_by_brute_force() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        rows = torch.randint(0, 3, (int(torch.randint(0, 7, (), generator=generator)), 3), generator=generator)
        pairs = itertools.combinations(range(len(rows)), 2)
        wrong = [(i, j) for i, j in pairs if torch.equal(rows[i, :2], rows[j, :2]) and rows[i, 2] != rows[j, 2]]
        found = contradiction([rows[:, 0], rows[:, 1].double()], rows[:, 2])
        assert (found is None) == (not wrong) and (found is None or found in wrong)
