"""Stratified rules: one pass makes all of them hold, with the least that it takes."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.errors import ConfigError
from doxa.logic import And, Call, Expr, Not
from doxa.logic.syntax._simplify import evaluate
from doxa.refine import Hierarchy, Rules

ATOMS = [Call(f"p{i}") for i in range(6)]


@st.composite
def stratified(draw: st.DrawFn) -> list[Expr]:
    """Rules whose bodies come before their heads in the order of the atoms."""
    rules = []
    for _ in range(draw(st.integers(0, 6))):
        head = draw(st.integers(1, 5))
        places = draw(st.lists(st.integers(0, head - 1), min_size=1, max_size=3, unique=True))
        body = [Not(ATOMS[p]) if draw(st.booleans()) else ATOMS[p] for p in places]
        rules.append((And(*body) if len(body) > 1 else body[0]) >> ATOMS[head])
    return rules


def by_hand(rules: list[Expr], row: list[float]) -> list[float]:
    """One atom after the other, one rule after the other."""
    values = list(row)
    for head, atom in enumerate(ATOMS):
        for rule in rules:
            body, target = rule.children
            if target == atom:
                parts = body.children if isinstance(body, And) else (body,)
                atoms = [p.children[0] if isinstance(p, Not) else p for p in parts]
                found = [values[ATOMS.index(a)] for a in atoms]
                truth = [1 - v if isinstance(p, Not) else v for p, v in zip(parts, found, strict=True)]
                values[head] = max(values[head], *[min(truth)])
    return values


@settings(deadline=None, max_examples=60)
@given(stratified(), st.integers(0, 1000))
def test_agrees_with_a_walk_through_the_rules(rules: list[Expr], seed: int) -> None:
    x = torch.rand(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    layer = Rules(rules, ATOMS)
    refined = layer(x)
    expected = torch.tensor([by_hand(rules, row) for row in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(refined, expected)
    worlds = refined > 0.5
    for rule in rules:  # rounded, every rule holds; and nothing more happens in a second pass
        assert bool(torch.as_tensor(evaluate(rule, dict(zip(ATOMS, worlds.unbind(-1), strict=True)))).all())
    torch.testing.assert_close(layer(refined), refined)


@settings(deadline=None, max_examples=30)
@given(stratified(), st.integers(0, 1000))
def test_a_head_learns_from_right_bodies_only(rules: list[Expr], seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    layer = Rules(rules, ATOMS)
    x = torch.rand(5, 6, dtype=torch.float64, generator=source)
    label = layer((torch.rand(5, 6, generator=source) > 0.5).double())  # labels that obey the rules
    found = layer.toward(x, label)
    full = layer(x)
    torch.testing.assert_close(torch.where(label > 0, full, found), full)  # false labels: as in forward
    assert bool((found >= x).all()) and bool((found <= full + 1e-12).all())


def test_the_layer_is_the_hierarchy_and_its_loss() -> None:
    pairs = [("poodle", "dog"), ("dog", "animal"), ("cat", "animal"), ("dog", "pet"), ("pet", "thing")]
    layer = Hierarchy(pairs)
    x = torch.rand(50, len(layer.classes), dtype=torch.float64, requires_grad=True)
    dense = torch.where(layer.below, x.unsqueeze(-2), 0.0).max(-1).values
    torch.testing.assert_close(layer(x), dense)
    y = layer((torch.rand(50, len(layer.classes)) > 0.7).double())
    coherent = (1 - y) * dense + y * torch.where(layer.below, (x * y).unsqueeze(-2), 0.0).max(-1).values
    expected = torch.nn.functional.binary_cross_entropy(coherent, y)
    torch.testing.assert_close(layer.loss(x, y), expected)
    (ours,), (theirs,) = torch.autograd.grad(layer.loss(x, y), x), torch.autograd.grad(expected, x)
    torch.testing.assert_close(ours, theirs)


def test_shapes_copies_and_half_precision() -> None:
    layer = Rules([ATOMS[0] >> ATOMS[1]], ATOMS[:2])
    assert layer(torch.rand(2, 3, 2)).shape == (2, 3, 2) and layer(torch.rand(2)).shape == (2,)
    assert layer(torch.rand(0, 2)).shape == (0, 2)
    assert layer(torch.rand(3, 2).bfloat16()).dtype == torch.float32
    x = torch.rand(4, 2)
    torch.testing.assert_close(copy.deepcopy(layer)(x), layer(x))
    torch.testing.assert_close(Rules([], ATOMS[:2])(x), x)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([ATOMS[0] | ATOMS[1]], "is no rule"),
        ([ATOMS[0] >> ATOMS[1], ATOMS[1] >> ATOMS[0]], "go in a circle"),
        ([~ATOMS[0] >> ATOMS[0]], "go in a circle"),
        ([ATOMS[0] >> ATOMS[2]], "not constant"),
    ],
)
def test_what_is_no_set_of_rules_is_refused(rules: list[Expr], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rules(rules, ATOMS[:3], constants=[ATOMS[2]])


def test_wrong_shapes_are_refused() -> None:
    layer = Rules([ATOMS[0] >> ATOMS[1]], ATOMS[:2])
    with pytest.raises(ConfigError, match=r"expected \(\*batch, 2\)"):
        layer(torch.rand(3))
    with pytest.raises(ConfigError, match="the label has shape"):
        layer.toward(torch.rand(2, 2), torch.rand(2, 1))
