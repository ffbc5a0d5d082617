"""Shortcuts of knowledge about sequences, against every map; and limits that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.doctor import Shortcuts, _maps, examine, knowledge_shortcuts, shortcuts
from doxa.errors import BudgetError, ConfigError, DataError, KnowledgeError
from doxa.logic import parse
from doxa.problem import Problem, parity

Scene = tuple[int, ...]
Holds = Callable[[Scene, int], bool]
DECLARED = (
    "sort Image\nsort Bit = 0..1\nsort Digit = 0..{top}\nfunc d(Image) -> Digit\ndata scenes(images: Image*, u: Bit)\n"
)
TESTS: dict[str, Callable[[int, int], bool]] = {
    "d(x) = d(y)": lambda x, y: x == y,
    "d(x) < d(y)": lambda x, y: x < y,
    "d(x) + d(y) = 2": lambda x, y: x + y == 2,
    "d(x) = 1": lambda x, y: x == 1,
    "d(x) mod 2 = 0": lambda x, y: x % 2 == 0,
    "d(x) > 0 & d(y) != 1": lambda x, y: x > 0 and y != 1,
}
KINDS: dict[tuple[str, str], Callable[[Iterable[Iterable[bool]]], bool]] = {
    ("forall", "forall"): lambda rows: all(all(row) for row in rows),
    ("forall", "exists"): lambda rows: all(any(row) for row in rows),
    ("exists", "forall"): lambda rows: any(all(row) for row in rows),
    ("exists", "exists"): lambda rows: any(any(row) for row in rows),
}


def every_map(holds: Holds, size: int, scenes: Iterable[Scene]) -> int:
    """How many maps of the values keep everything true that is true, whatever is observed."""
    listed = list(scenes)
    right = [(scene, u) for scene in listed for u in (0, 1) if holds(scene, u)]
    return sum(
        all(holds(tuple(images[v] for v in scene), u) for scene, u in right)
        for images in product(range(size), repeat=size)
        if all(images[v] == v for v in set(range(size)) - {v for scene, _ in right for v in scene})
    )


@st.composite
def ragged(draw: st.DrawFn) -> tuple[str, Holds, int]:
    """Knowledge about scenes of any number of images, what it says, and how many values an image may have."""
    size = draw(st.sampled_from([2, 3]))
    kinds, test = draw(st.sampled_from(list(KINDS))), draw(st.sampled_from(list(TESTS)))
    both = draw(st.sampled_from(["<->", "->"]))
    text = f"{kinds[0]} x in s.images. {kinds[1]} y in s.images. {test}"
    told = KINDS[kinds]

    def holds(scene: Scene, u: int) -> bool:
        fine = told([[TESTS[test](x, y) for y in scene] for x in scene])
        return (u == 1) == fine if both == "<->" else u != 1 or fine

    return f"{DECLARED.format(top=size - 1)}[it] forall s in scenes. s.u = 1 {both} ({text})", holds, size


def judged(text: str, holds: Holds, size: int, scenes: list[Scene], **arguments: Any) -> Shortcuts | None:
    """The verdict, which is that of going through every map; None where the knowledge says nothing about such rows."""
    count = every_map(holds, size, scenes)
    try:
        found = knowledge_shortcuts(parse(text, warn=False), show=0, **arguments)
    except KnowledgeError as error:
        assert "nothing here is learned" in str(error)
        assert count == size ** len(
            {value for scene in scenes if holds(scene, 0) or holds(scene, 1) for value in scene}
        )
        return None
    assert found.complete and found.count == count
    return found


@settings(deadline=None, max_examples=20)
@given(ragged(), st.integers(2, 3))
def test_every_length_against_every_map(drawn: tuple[str, Holds, int], length: int) -> None:
    text, holds, size = drawn
    scenes = [scene for n in range(length + 1) for scene in product(range(size), repeat=n)]
    found = judged(text, holds, size, scenes, length=length)
    if found is None:
        return
    assert found.assumption == f"rows of every length from 0 to {length} occur in scenes.images, and none longer"
    assert str(found).startswith(f"under the assumption that {found.assumption}: ")


@settings(deadline=None, max_examples=20)
@given(ragged(), st.data())
def test_data_against_every_map(drawn: tuple[str, Holds, int], data: st.DataObject) -> None:
    text, holds, size = drawn
    some = st.lists(st.lists(st.integers(0, size - 1), max_size=3).map(tuple), min_size=1, max_size=4)
    scenes = data.draw(some)
    found = judged(text, holds, size, scenes, data={"images": [list(scene) for scene in scenes]})
    assert found is None or not found.assumption


def test_several_concepts_of_an_element_are_mapped_together() -> None:
    text = "sort Image\nsort Bit = 0..1\npred a(Image)\npred b(Image)\ndata scenes(images: Image*, u: Bit)\n"
    kb = parse(text + "[it] forall s in scenes. s.u = 1 <-> (exists x in s.images. a(x) & b(x))", warn=False)
    assert knowledge_shortcuts(kb, length=2).count == 27  # by hand: what is not both stays so, in any way
    apart = knowledge_shortcuts(kb, length=2, joint=1)
    assert "a and b are mapped one by one" in apart.assumption and apart.count <= 27


def test_worlds_of_every_length_are_counted() -> None:
    head = "sort O\nsort Bit = 0..1\ndata s(o: O*, u: Bit)\npred b(O)\n[it] forall r in s. "
    every = parse(head + "(exists x in r.o. b(x)) <-> r.u = 1", warn=False)
    pairs = parse(head + "forall x, y in r.o where x != y. b(x) | b(y)", warn=False)
    assert [knowledge_shortcuts(every, length=n).worlds for n in (1, 2, 3)] == [2, 2 + 4, 2 + 4 + 8]
    assert [knowledge_shortcuts(pairs, length=n).worlds for n in (1, 2, 3)] == [2, 2 + 3, 2 + 3 + 4]
    with pytest.raises(KnowledgeError, match="all rows are empty"):
        knowledge_shortcuts(every, length=0)
    with pytest.raises(DataError, match="row 2 contradicts the knowledge"):  # nothing is read there, and it is wrong
        knowledge_shortcuts(every, data={"o": [["true"], []], "u": [1, 1]})


def test_mistakes_in_ragged_data() -> None:
    axiom = "[it] forall s in scenes. s.u = 1 <-> (exists x in s.images. d(x) = 1)"
    kb = parse(DECLARED.format(top=2) + axiom, warn=False)
    with pytest.raises(DataError, match=r"scenes\.images is a sequence; the data need a column for it"):
        knowledge_shortcuts(kb, data={"u": [1]})
    with pytest.raises(DataError, match="with a list in each row"):
        knowledge_shortcuts(kb, data={"images": [1, 2]})
    with pytest.raises(DataError, match="row 3 contradicts the knowledge"):
        knowledge_shortcuts(kb, data={"images": [[1], [0, 2], [0]], "u": [1, 0, 1]})
    with pytest.raises(DataError, match="row 2, column images: 7 is no value of d"):
        knowledge_shortcuts(kb, data={"images": [[1], [0, 7]]})
    with pytest.raises(ConfigError, match="length is -1"):
        knowledge_shortcuts(kb, length=-1)


BIRDS = "sort Bird\npred raven(Bird)\npred black(Bird)\n[rule] forall x: Bird. raven(x) -> black(x)"
SAMPLED = "sort I\npred p(I)\ndata rows(a: I*, n: Int)\n[r] forall s in rows sample 3. forall x in s.a. p(x)"


@pytest.mark.parametrize("field", ["draws", "objects"])
@pytest.mark.parametrize("text", [BIRDS, SAMPLED])
def test_a_billion_is_refused_before_anything_is_made(text: str, field: str) -> None:
    arguments: dict[str, Any] = {field: 1_000_000_000}
    with pytest.raises(BudgetError, match="1,000,000,000") as error:
        examine(parse(text, warn=False), **arguments)
    assert error.value.field == field


def test_objects_that_nothing_is_about_cost_nothing() -> None:
    kb = parse("sort B = 0..1\npred p(B)\n[r] forall x: B. p(x)", warn=False)
    assert not examine(kb, objects=1_000_000_000, draws=2).findings


def undecided(found: Shortcuts) -> bool:
    return not found.free and not found.complete and "no shortcut" not in str(found)


def test_no_time_is_no_verdict() -> None:
    found = shortcuts(parity(3), seconds=1e-9)
    assert undecided(found) and "could not decide whether there are shortcuts within 1e-09 seconds" in str(found)
    none = Problem((10, 10), (100,), lambda w: 10 * w[..., :1] + w[..., 1:])
    assert shortcuts(none).free and undecided(shortcuts(none, seconds=1e-9))
    assert shortcuts(none, seconds=3600.0) == shortcuts(none)
    with pytest.raises(BudgetError, match="could not decide within 1e-09 seconds") as error:
        knowledge_shortcuts(parse(BIRDS), seconds=1e-9)
    assert error.value.field == "seconds"
    with pytest.raises(BudgetError, match="could not decide within 1e-09 seconds") as error:
        examine(parse(BIRDS), seconds=1e-9)
    assert error.value.field == "seconds"


@pytest.mark.parametrize("step", range(1, 60, 7))
def test_a_clock_that_stops_anywhere_says_less_and_nothing_else(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is over at some look at the clock: what is said then is true, and what is not known is said to be."""
    problem = parity(4)
    whole = shortcuts(problem)
    looks = iter(range(1_000_000))
    monkeypatch.setattr("time.monotonic", lambda: 100.0 if next(looks) > step else 0.0)
    found = shortcuts(problem, seconds=10.0)
    assert found.count <= whole.count and not found.free
    assert found == whole or (found.undecided.endswith("within 10 seconds") and "could not decide" in str(found))


def test_an_interrupted_solver_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Glucose catches Ctrl-C and raises an error of its own."""

    def interrupted(*args: object, **kwargs: object) -> bool:
        raise RuntimeError("Caught keyboard interrupt")

    monkeypatch.setattr(_maps.Glucose4, "solve_limited", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shortcuts(parity(2))


def test_blocks_see_every_world(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem((3, 3, 3), (7,), lambda w: w.sum(-1, keepdim=True))
    whole = shortcuts(problem, data=torch.tensor([[0, 1, 2], [2, 2, 0], [1, 0, 0]]))
    monkeypatch.setattr(_maps, "BLOCK", 2)
    assert shortcuts(problem, data=torch.tensor([[0, 1, 2], [2, 2, 0], [1, 0, 0]])) == whole
