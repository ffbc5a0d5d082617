"""The judges judged: knowledge whose truth is known, by hand or by going through every map. No verdict may be false."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import doxa
from doxa.cli import main
from doxa.doctor import LIMITS, examine, knowledge_shortcuts, shortcuts
from doxa.errors import BudgetError
from doxa.logic import parse
from doxa.problem import Budget, Problem

IMAGES = "sort Image\nsort Bit = 0..1\nsort Digit = 0..4\nfunc digit(Image) -> Digit\npred a(Image)\npred b(Image)\n"
ROWS = "data rows(x: Image, y: Image, u: Bit, v: Bit, n: Int)\n"


def of_one_object(text: str) -> str:
    return IMAGES + ROWS + f"[it] forall r in rows. {text}"


# knowledge, and how many maps explain everything, by hand
KNOWN: dict[str, tuple[str, int]] = {
    "addition": ("digit(r.x) + digit(r.y) = r.n", 1),
    "multiplication": ("digit(r.x) * digit(r.y) = r.n", 1),
    "maximum": ("(digit(r.x) >= digit(r.y) -> digit(r.x) = r.n) & (digit(r.x) < digit(r.y) -> digit(r.y) = r.n)", 1),
    "comparison": ("digit(r.x) < digit(r.y) <-> r.u = 1", 1),
    "parity": ("(digit(r.x) + digit(r.y)) mod 2 = r.n", 3**3 * 2**2 + 2**3 * 3**2),  # even stays even, or all change
    "xor of two objects": ("(a(r.x) xor a(r.y)) <-> r.u = 1", 2),
    "and of two objects": ("(a(r.x) & a(r.y)) <-> r.u = 1", 1),
    "xor and and of one object": ("((a(r.x) xor b(r.x)) <-> r.u = 1) & ((a(r.x) & b(r.x)) <-> r.v = 1)", 4),
    "both of one object": ("(a(r.x) <-> r.u = 1) & (b(r.x) <-> r.v = 1)", 1),
    "or of one object": ("(a(r.x) | b(r.x)) <-> r.u = 1", 3**3),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_shortcuts_of_known_knowledge(name: str) -> None:
    text, count = KNOWN[name]
    found = knowledge_shortcuts(parse(of_one_object(text), warn=False))
    assert found.complete and found.count == count and not found.assumption
    assert str(found).startswith("no shortcut: ") == (count == 1)


@pytest.mark.parametrize("name", KNOWN)
def test_one_by_one_is_said(name: str) -> None:
    """What is not mapped together may hide a shortcut: the verdict says under which assumption it stands."""
    text, count = KNOWN[name]
    found = knowledge_shortcuts(parse(of_one_object(text), warn=False), joint=1)
    together = "one object" in name
    assert bool(found.assumption) == together
    assert found.count <= count and str(found).startswith("under the assumption that ") == together


def test_a_relation_is_said_to_be_mapped_apart() -> None:
    """Turning every arrow round keeps a strict order strict, and is no map of single arrows."""
    text = "sort O\npred left(O, O)\n[strict] forall x, y: O. left(x, y) -> !left(y, x)"
    found = knowledge_shortcuts(parse(text, warn=False))
    assert "what is said of several objects (left) is mapped apart from the rest" in found.assumption


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, list[int], list[int]]:
    """Two objects; outputs 0 and 1 may be read from each; the conclusion is a random table."""
    sizes = draw(st.sampled_from([(2, 2), (2, 2, 2), (2, 2, 2, 2), (3, 2)]))
    concepts, objects = {2: ([0, 1], [0, 0]), 3: ([0, 1, 0], [0, 0, 1]), 4: ([0, 1, 0, 1], [0, 0, 1, 1])}[len(sizes)]
    outputs = draw(st.integers(1, 4))
    count = int(torch.tensor(sizes).prod())
    table = torch.tensor(draw(st.lists(st.integers(0, outputs - 1), min_size=count, max_size=count))).reshape(sizes)
    return Problem(sizes, (outputs,), lambda w: table[tuple(w.unbind(-1))].unsqueeze(-1)), concepts, objects


def joint_maps(problem: Problem, concepts: Sequence[int], objects: Sequence[int]) -> int:
    """Every map of the pairs of values of one object; an output that nobody asks for has any value."""
    sizes = [problem.world[list(concepts).index(k)] for k in range(2)]
    values = list(product(*map(range, sizes)))
    worlds = list(product(values, repeat=max(objects) + 1))
    conclude = {w: int(problem(torch.tensor([w]))[0, 0]) for w in product(*map(range, problem.world))}
    read = [tuple(world[o][k] for k, o in zip(concepts, objects, strict=True)) for world in worlds]
    found = 0
    for images in product(values, repeat=len(values)):
        taken = dict(zip(values, images, strict=True))
        mapped = [
            tuple(taken[world[o]][k] for k, o in zip(concepts, objects, strict=True)) for world in worlds
        ]  # fmt: skip
        found += all(conclude[w] == conclude[m] for w, m in zip(read, mapped, strict=True))
    return found


@settings(deadline=None, max_examples=25)
@given(problems())
def test_joint_maps_against_all_of_them(drawn: tuple[Problem, list[int], list[int]]) -> None:
    problem, concepts, objects = drawn
    assume(problem.world != (3, 2) or problem.output[0] > 2)  # otherwise nearly all of 6^6 maps explain everything
    found = shortcuts(problem, concepts, objects=objects, show=0, limit=100_000)
    assert found.complete and found.count == joint_maps(problem, concepts, objects)
    apart = shortcuts(problem, concepts, objects=objects, joint=1, show=0)
    assert apart.count <= found.count and apart.assumption
    assert shortcuts(problem, concepts, show=0).assumption == "no two concepts are read from the same object"


def test_a_problem_whose_only_shortcut_is_joint() -> None:
    """Whether a = b, and a on its own where they are equal: (0, 1) and (1, 0) can be swapped, no output alone can."""

    def concluded(w: torch.Tensor) -> torch.Tensor:
        same = w[..., 0] == w[..., 1]
        return torch.where(same, w[..., 0], 2).unsqueeze(-1)

    problem = Problem((2, 2), (3,), concluded)
    assert shortcuts(problem, [0, 1], objects=[0, 0], joint=1).count == 1
    assert shortcuts(problem, [0, 1], objects=[0, 0]).count == 4


def test_facts_are_labels() -> None:
    """A raven that is known: ravens stay ravens. Known by hand: 3 worlds of an object, 27 maps; 9 keep the raven."""
    birds = "sort Bird\npred raven(Bird)\npred black(Bird)\nconst t: Bird\n"
    rule = "[rule] forall x: Bird. raven(x) -> black(x)"
    assert knowledge_shortcuts(parse(birds + rule, warn=False)).count == 27
    assert knowledge_shortcuts(parse(birds + "fact raven(t)\n" + rule, warn=False)).count == 9
    named = "sort Bird = {t, u}\npred raven(Bird)\n[some] raven(t) | raven(u)\n"
    assert knowledge_shortcuts(parse(named, warn=False)).count == 3**3
    assert knowledge_shortcuts(parse(named + "fact raven(t)\n", warn=False)).count == 2**2
    closed = "sort Bird = {t, u}\nclosed pred old(Bird)\npred raven(Bird)\nfact old(t)\n"
    assert knowledge_shortcuts(parse(closed + "[r] forall x: Bird. raven(x) <-> old(x)", warn=False)).free


def test_a_product_of_two_numbers_is_decided() -> None:
    text = (
        "sort Image\nsort Digit = 0..9\nfunc digit(Image) -> Digit\n"
        "data rows(a: Image, b: Image, c: Image, d: Image, n: Int)\n"
        "[it] forall r in rows. (10 * digit(r.a) + digit(r.b)) * (10 * digit(r.c) + digit(r.d)) = r.n"
    )
    found = knowledge_shortcuts(parse(text))
    assert found.free and found.worlds == 10_000


def test_limits_are_kept_and_said() -> None:
    everything = Problem((4, 4, 4), (1,), lambda w: 0 * w[..., :1])
    found = shortcuts(everything, limit=50)
    assert (found.count, found.complete) == (50, False) and str(found).startswith("more than 50 maps of the concepts")
    found = shortcuts(everything)
    assert (found.count, found.complete) == (4**4, True)
    hard = Problem((8,) * 5, (2,), lambda w: w.sum(-1, keepdim=True) % 2)
    found = shortcuts(hard, budget=Budget(worlds=1 << 20, operations=10))
    assert not found.complete and not found.free
    assert str(found).startswith("could not decide whether there are shortcuts\ncould not decide whether there are")
    found = shortcuts(hard, budget=Budget(worlds=LIMITS.worlds, operations=1 << 20))
    assert found.count > 1 and "could not decide" in str(found)


def test_a_concept_of_too_many_values() -> None:
    with pytest.raises(BudgetError, match="could not decide: maps of a concept with 1,000 values"):
        shortcuts(Problem((1000,), (1000,), lambda w: w))


RULE = "sort O\npred p(O)\npred q(O)\n"
# axiom, logic, quantifier, objects: does its gradient vanish, by hand?
GRADIENTS: list[tuple[str, str, str, int, bool]] = [
    ("forall x: O. p(x) -> q(x)", "product", "mean", 32, False),
    ("forall x: O. p(x) -> q(x)", "product", "mean", 1000, False),
    ("forall x: O. p(x) -> q(x)", "product", "logic", 4, False),
    ("forall x: O. p(x) -> q(x)", "product", "logic", 32, True),  # a product of 32
    ("forall x: O. p(x) -> q(x)", "log_product", "logic", 1000, False),  # its logarithm
    ("forall x: O. p(x) -> q(x)", "lukasiewicz", "mean", 32, False),
    ("forall x: O. p(x) -> q(x)", "lukasiewicz", "logic", 32, True),  # more than 1 is missing
    ("forall x: O. p(x) -> q(x)", "drastic", "mean", 8, True),  # content with everything but 1 → 0
    ("forall x: O. p(x) -> q(x)", "godel", "logic", 32, False),  # one atom, with derivative 1
    ("forall x: O. p(x) -> q(x)", "ltn", "logic", 1000, False),
    ("exists x: O. p(x)", "product", "mean", 32, False),  # nearly true: small, as its loss is
    ("exists x: O. p(x)", "lukasiewicz", "mean", 32, False),  # true
    ("forall x, y: O. p(x) & q(y) -> p(y)", "product", "mean", 16, False),
    ("forall x, y: O. p(x) & q(y) -> p(y)", "product", "logic", 16, True),
]


@pytest.mark.parametrize(("axiom", "chosen", "quantifier", "objects", "vanishes"), GRADIENTS)
def test_vanishing_gradients(axiom: str, chosen: str, quantifier: Any, objects: int, vanishes: bool) -> None:
    found = examine(parse(f"{RULE}[it] {axiom}", warn=False), chosen, quantifier=quantifier, objects=objects, draws=16)
    assert found.of("vanishing") == (["it"] if vanishes else [])


FEW: list[tuple[str, str, str, bool]] = [
    ("forall x: O. p(x) -> q(x)", "godel", "logic", True),  # 1 of 64
    ("forall x: O. p(x) -> q(x)", "godel", "mean", False),  # one of the two of every instance
    ("forall x: O. p(x) -> q(x)", "log_product", "mean", False),
    ("forall x: O. p(x) -> q(x)", "log_product", "logic", False),
    ("exists x: O. p(x)", "godel", "mean", True),
    ("exists x: O. p(x)", "product", "mean", False),
]


@pytest.mark.parametrize(("axiom", "chosen", "quantifier", "few"), FEW)
def test_few_atoms(axiom: str, chosen: str, quantifier: Any, few: bool) -> None:
    found = examine(parse(f"{RULE}[it] {axiom}", warn=False), chosen, quantifier=quantifier, objects=32, draws=16)
    assert found.of("single-passing") == (["it"] if few else [])


def test_what_training_minimises_is_what_is_judged() -> None:
    """The derivative of the loss of a model, by hand, beside the verdict: the same 7e-15 or the same 1/n."""
    kb = parse(f"{RULE}[it] forall x: O. p(x) -> q(x)")
    random = torch.rand(2, 64, generator=torch.Generator().manual_seed(3))
    for quantifier, gone in (("mean", False), ("logic", True)):
        leaf = [row.clone().requires_grad_() for row in random]
        model = doxa.Model(kb, p=doxa.probs(leaf[0]), q=doxa.probs(leaf[1]))
        loss = model.loss(O=64, semantics=doxa.Fuzzy("product", quantifier=quantifier))  # type: ignore[arg-type]
        slope = sum(g.abs().sum() for g in torch.autograd.grad(loss, leaf))
        assert bool(slope < 0.01 * loss) == gone
        found = examine(kb, "product", quantifier=quantifier, draws=8)  # type: ignore[arg-type]
        assert found.of("vanishing") == (["it"] if gone else [])


@pytest.mark.parametrize("command", ["shortcuts", "doctor"])
def test_too_large_knowledge_is_one_line(command: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "six.doxa"
    text = "sort N = 0..99\npred p(N)\n[six] forall a, b, c, d, e, f: N. p(a) & p(b) & p(c) & p(d) & p(e) -> p(f)\n"
    file.write_text(text, encoding="utf-8")
    assert main([command, str(file)]) == 1
    said = capsys.readouterr().err.strip()
    assert "limit" in said and len(said.splitlines()) == 1
