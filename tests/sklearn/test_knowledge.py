"""Every form of label knowledge means what it says: checked against all combinations of labels, one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from doxa.errors import DataError, KnowledgeError
from doxa.logic import CNF, And, Call, Count, Iff, Implies, Not, Or, parse, propositions
from doxa.logic.syntax._simplify import evaluate
from doxa.sklearn import Allowed, LabelKnowledge
from doxa.sklearn._read import renamed

NAMES = ["animal", "cat", "dog", "free"]
animal, cat, dog = propositions("animal cat dog")
World = dict[str, bool]


def hierarchy(w: World) -> bool:
    return (not w["cat"] or w["animal"]) and (not w["dog"] or w["animal"])


def apart(w: World) -> bool:
    return not (w["cat"] and w["dog"])


GRAPH = nx.DiGraph([("cat", "animal"), ("dog", "animal")])
FORMS: list[tuple[Any, Callable[[World], bool], int]] = [
    (None, lambda w: True, 0),
    ({"cat": ["animal"], "dog": "animal"}, hierarchy, 2),
    (GRAPH, hierarchy, 2),
    ("cat -> animal\ndog -> animal", hierarchy, 2),
    ("pred animal, cat, dog\n[c] cat -> animal; [d] dog -> animal", hierarchy, 2),
    (["cat -> animal", "dog -> animal"], hierarchy, 2),
    (parse("pred animal, cat, dog; cat -> animal; dog -> animal", warn=False), hierarchy, 2),
    ((cat >> animal) & (dog >> animal), hierarchy, 2),
    ([cat >> animal, dog >> animal], hierarchy, 2),
    ("p cnf 3 2\n-2 1 0\n-3 1 0\n", hierarchy, 2),
    ("c 1 = cat\nc 2 = animal\np cnf 2 1\n-1 2 0\n", lambda w: not w["cat"] or w["animal"], 1),
    (CNF.from_clauses([(-2, 1), (-3, 1)], 3), hierarchy, 2),
    ([{"cat", "dog"}], apart, 1),
    ([("cat", "dog"), {"cat": True, "animal": False}], lambda w: apart(w) and (not w["cat"] or w["animal"]), 2),
    ("animal & !cat -> dog", lambda w: not (w["animal"] and not w["cat"]) or w["dog"], 1),
    (({"cat": ["animal"], "dog": ["animal"]}, [{"cat", "dog"}]), lambda w: hierarchy(w) and apart(w), 3),
    (Count("exactly", 1, [animal, cat, dog]), lambda w: w["animal"] + w["cat"] + w["dog"] == 1, 1),
    (
        Allowed([{"animal"}, {"animal", "cat"}, {"dog": True, "cat": False}]),
        lambda w: (w["animal"] and not w["dog"]) or (w["dog"] and not w["cat"]),
        1,
    ),
]


@pytest.mark.parametrize(("form", "means", "requirements"), FORMS, ids=lambda x: x[:40] if isinstance(x, str) else None)
def test_every_form_means_what_it_says(form: Any, means: Callable[[World], bool], requirements: int) -> None:
    knowledge = LabelKnowledge(form, NAMES)
    worlds = np.array(list(product([False, True], repeat=4)))
    expected = [means(dict(zip(NAMES, world.tolist(), strict=True))) for world in worlds]
    found = knowledge.violations(worlds)
    assert found.shape == (16, requirements) and len(knowledge.requirements) == requirements
    assert (~found.any(1)).tolist() == expected
    if requirements:
        assert knowledge.constraint.models == sum(expected)
        assert [str(atoms[0]) for atoms in knowledge.constraint.variables] == NAMES
        assert "free" in knowledge.free


def test_class_paths_and_names_that_are_no_words(tmp_path: Path) -> None:
    names = ["01", "01/01", "01/01/03", "02"]
    paths = LabelKnowledge(names, names)
    assert [r.text for r in paths.requirements] == ['"01/01" -> "01"', '"01/01/03" -> "01/01"']
    same = LabelKnowledge('"01/01" -> "01"\n"01/01/03" -> "01/01"', names)
    worlds = np.array(list(product([False, True], repeat=4)))
    assert (paths.violations(worlds) == same.violations(worlds)).all()
    file = tmp_path / "rules.doxa"
    file.write_text('pred "01", "02"\n"01" -> "02"', encoding="utf-8")
    declared = LabelKnowledge(str(file), names)
    file.write_text('"01" -> "02"', encoding="utf-8")  # labels need no declaration
    assert declared.requirements == LabelKnowledge(str(file), names).requirements and len(declared.requirements) == 1
    file.write_text('"01" -> "03"', encoding="utf-8")
    with pytest.raises(KnowledgeError, match="mentions '03', which is neither a label"):
        LabelKnowledge(file, names)
    clauses = tmp_path / "rules.cnf"
    clauses.write_text("p cnf 2 1\n-1 2 0\n", encoding="utf-8")
    for source in (clauses, str(clauses)):
        assert (
            LabelKnowledge(source, names).requirements[0].formula
            == LabelKnowledge("p cnf 2 1\n-1 2 0\n", names).formula
        )
    with pytest.raises(DataError, match="cannot read"):
        LabelKnowledge(str(tmp_path / "none.cnf"), names)


def test_given_features() -> None:
    knowledge = LabelKnowledge("rain -> !beach", ["beach", "cinema"], features=["rain", "cold"])
    assert knowledge.given == ("rain",) and knowledge.free == ("cinema",)
    labels = np.array([[True, False], [True, False]])
    assert knowledge.violations(labels, np.array([[True], [False]])).tolist() == [[True], [False]]
    with pytest.raises(KnowledgeError, match="one column for each of rain"):
        knowledge.violations(labels)
    with pytest.raises(KnowledgeError, match="'rain' is a label and a feature"):
        LabelKnowledge("rain", ["rain"], features=["rain"])


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"cat", "dog"}, r"is the set \{'cat', 'dog'\}, which says nothing by itself; say \[\{'cat', 'dog'\}\] for"),
        ("cat -> animl", "mentions 'animl', which is neither a label .*; did you mean 'animal'"),
        ({"poodle": ["dog"]}, "mentions 'poodle', which is neither a label"),
        ({"catt": ["animal"]}, "did you mean 'cat'"),
        ([{"cat", "zebra"}], "zebra"),
        ({"cat": True}, "put a forbidden combination in a list"),
        ([set()], "forbids everything"),
        (Allowed([]), "nothing is allowed"),
        ("p cnf 9 1\n9 0\n", "9 variables, but y has 4 labels"),
        (nx.Graph([("cat", "animal")]), "no directions"),
        (3.5, "knowledge is a float, expected text"),
        ("cat & !cat", "contradicts itself: these cannot all hold: cat & !cat"),
        ("cat -> animal\ndog | animal\ncat\n!animal", "cannot all hold: cat -> animal; cat; !animal$"),
        ("cat -> ", "error"),
        (propositions("zebra")[0], "zebra"),
    ],
)
def test_bad_knowledge_is_refused(form: Any, message: str) -> None:
    with pytest.raises(KnowledgeError, match=message):
        LabelKnowledge(form, NAMES)


def test_two_labels_of_one_name() -> None:
    with pytest.raises(KnowledgeError, match="two labels are named 'a'"):
        LabelKnowledge(None, ["a", "b", "a"])


def test_variables_of_clauses_are_labels_by_number_whatever_these_are_called() -> None:
    found = LabelKnowledge("p cnf 3 2\n1 0\n-3 0\n", ["x0", "x1", "x2"])
    assert [r.text for r in found.requirements] == ["x0", "!x2"]
    assert [r.text for r in LabelKnowledge("p cnf 2 1\n1 0\n", ["x2", "x1"]).requirements] == ["x2"]


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("big dog -> any animal", '"big dog" -> "any animal"'),
        ("'big dog' -> 'any animal'", '"big dog" -> "any animal"'),
        ('"big dog" -> any animal', '"big dog" -> "any animal"'),
        ("cat\ncat & big dog-s -> 01/02", 'cat & "big dog-s" -> "01/02"'),
        ("0 -> not", '"0" -> "not"'),
    ],
)
def test_names_that_are_no_words_get_quotation_marks(text: str, mended: str) -> None:
    names = ["cat", "big", "big dog", "big dog-s", "any animal", "01/02", "01", "0", "not"]
    with pytest.raises(KnowledgeError) as found:
        LabelKnowledge(text, names)
    assert str(found.value).endswith(f"double quotation marks: {mended}")
    assert LabelKnowledge(mended, names).requirements  # what it says can be read


def test_quotation_marks_are_not_proposed_where_they_do_not_help() -> None:
    for text in ("big dog -> ", "cat dog", "big dog cat"):
        with pytest.raises(KnowledgeError) as found:
            LabelKnowledge(text, ["big dog", "cat"])
        assert "double quotation marks" not in str(found.value)


@pytest.mark.parametrize("seed", range(10))
def test_other_names_mean_the_same(seed: int) -> None:
    formula = random_formula(np.random.default_rng(seed), [Call("x"), Call("y"), Call("z")], 4)
    swapped = renamed(formula, {"x": "y", "y": "x"})
    for values in product([False, True], repeat=3):
        x, y, z = values
        world = {Call("x"): x, Call("y"): y, Call("z"): z}
        other = {Call("x"): y, Call("y"): x, Call("z"): z}
        assert evaluate(swapped, world) == evaluate(formula, other)


def random_formula(rng: np.random.Generator, atoms: list[Any], depth: int) -> Any:
    if not depth or rng.random() < 0.15:
        return atoms[rng.integers(len(atoms))]
    parts = [random_formula(rng, atoms, depth - 1) for _ in range(2)]
    kinds = [
        lambda: And(*parts),
        lambda: Or(*parts),
        lambda: Implies(*parts),
        lambda: Iff(*parts),
        lambda: Not(parts[0]),
        lambda: Count("exactly", 1, [*parts, atoms[0]]),
    ]
    return kinds[rng.integers(len(kinds))]()
