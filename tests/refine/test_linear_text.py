"""Linear knowledge as text and as matrices: what it means, and what is said about mistakes."""

from __future__ import annotations

import pytest
import torch

from doxa.errors import ConfigError, KnowledgeError
from doxa.refine import LinearSystem


@pytest.mark.parametrize(
    ("text", "names", "inequalities", "equalities"),
    [
        ("total = a + b", "total a b", [], [[1, -1, -1, 0]]),
        ("min <= max", "min max", [[1, -1, 0]], []),
        ("0 <= share <= 1", "share", [[-1, 0], [1, 1]], []),
        ("1 >= share >= 0", "share", [[1, 1], [-1, 0]], []),
        ("a + 2*b - 3 <= c / 2", "a b c", [[1, 2, -0.5, 3]], []),
        ("2*(a - (b - 1)) >= -a", "a b", [[-3, 2, 2]], []),
        ("a / 3 <= 1", "a", [[1, 3]], []),
        ("0.1*a + 0.2*b = 0.3", "a b", [], [[1, 2, 3]]),
        ("a = b = c", "a b c", [], [[1, -1, 0, 0], [0, 1, -1, 0]]),
        ("a <= 1; a >= 0  # a comment\n\n  b <=\n 2", "a b", [[1, 0, 1], [-1, 0, 0], [0, 1, 2]], []),
        ('[sum] "net worth" <= 1e3', "net worth", [[1, 1000]], []),
        ("a <= 0.12345678901", "a", [[1e11, 12345678901]], []),
        ("a <= a + 1", "", [[1]], []),
        ("a - a + b <= 1", "b", [[1, 1]], []),
    ],
)
def test_what_a_text_means(
    text: str, names: str, inequalities: list[list[float]], equalities: list[list[float]]
) -> None:
    listed = (names,) if names == "net worth" else tuple(names.split())
    system = LinearSystem.parse(text, names=listed or ("a",))
    found = [torch.cat([m, v.unsqueeze(1)], 1).tolist() for m, v in ((system.A, system.b), (system.E, system.f))]
    if not listed:
        inequalities = [[0, *row] for row in inequalities]
    assert found == [inequalities, equalities]
    if listed:
        assert LinearSystem.parse(text).names == listed


def test_rows_keep_their_text_and_guards() -> None:
    system = LinearSystem.parse("p & !q -> 0 <= share <= 1 & (r -> a / 2 = 1)\n[cap] a <= 9")
    assert system.rows == (
        "p & !q -> 0 <= share",
        "p & !q -> share <= 1",
        "[cap] a <= 9",
        "p & !q & r -> a / 2 = 1",
    )
    assert system.labels == ("p", "q", "r") and system.names == ("share", "a")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a <= 1\nb * c <= 2", "2:1", r"`b \* c` is not linear"),
        ("a <= 1 / b", "1:6", "`1 / b` is not linear"),
        ("a // 2 <= 1", "1:1", "`a // 2` is not linear"),
        ("abs(a) <= 1", "1:1", r"`abs\(a\)` is not linear"),
        ("a <= 1 / 0", "1:6", "divides by 0"),
        ("a < 1", "1:1", "no nearest point with <"),
        ("a != 1", "1:1", "no nearest point with !="),
        ("p | a <= 1", "1:1", "does not say which comparisons hold"),
        ("!(a <= 1)", "1:1", "does not say which comparisons hold"),
        ("p -> q", "1:6", "`q` is not a comparison"),
        ("a <= 1 -> b <= 1", "1:1", "`a <= 1` is not a label"),
        ("[weight 2] a <= 1", "1:1", "weighted"),
        ("sort A", "1:1", "not a comparison"),
        ("(a <= b <= c", "1:1", "never closed"),
        ("a + <= 3", "1:5", "something is missing"),
    ],
)
def test_mistakes_have_a_place(text: str, place: str, message: str) -> None:
    with pytest.raises(KnowledgeError, match=message) as caught:
        LinearSystem.parse(text)
    assert f"<text>:{place}: error" in str(caught.value) and caught.value.diagnostics


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(KnowledgeError) as caught:
        LinearSystem.parse("a * b <= 1; a <= 1; c < d")
    assert len(caught.value.diagnostics) == 2


def test_names_and_labels_must_fit() -> None:
    with pytest.raises(KnowledgeError, match="'totl', which is not among names; did you mean 'total'"):
        LinearSystem.parse("totl <= 1", names=("total",))
    with pytest.raises(ConfigError, match="labels lacks 'p'"):
        LinearSystem.parse("p -> a <= 1", labels=("q",))
    with pytest.raises(ConfigError, match="'a' is a label and a value"):
        LinearSystem.parse("a -> a <= 1")
    with pytest.raises(ConfigError, match="no value to constrain"):
        LinearSystem.parse("")
    assert LinearSystem.parse("q & p -> a <= 1", labels=("p", "q", "r")).labels == ("p", "q", "r")


def test_matrices_must_fit() -> None:
    system = LinearSystem(torch.tensor([[1, 2]]), torch.tensor([3]))
    assert system.rows == ("1*x0 + 2*x1 <= 3",) and system.E.shape == (0, 2)
    with pytest.raises(ConfigError, match=r"A has shape \(1, 2\) and b \(2,\)"):
        LinearSystem(torch.ones(1, 2), torch.ones(2))
    with pytest.raises(ConfigError, match="expected 2 different names"):
        LinearSystem(torch.ones(1, 2), torch.ones(1), names=("a", "a"))
    with pytest.raises(ConfigError, match="out of range"):
        LinearSystem(torch.tensor([[1.0, torch.nan]]), torch.ones(1))
    with pytest.raises(ConfigError, match="out of range"):
        LinearSystem(torch.ones(1, 2), torch.tensor([1e60], dtype=torch.float64))
    with pytest.raises(ConfigError, match="rows has 2 entries"):
        LinearSystem(torch.ones(1, 2), torch.ones(1), rows=("a", "b"))


def test_a_sign_that_begins_a_line_is_not_taken_for_either() -> None:
    for text in ("a <= 1\n-a <= 2", "total = a\n  + b"):
        with pytest.raises(KnowledgeError, match=r"a line that begins with [-+] goes on .*, or is a new one"):
            LinearSystem.parse(text)
    assert LinearSystem.parse("a <= 1;\n-a <= 2").rows == ("a <= 1", "-a <= 2")
    assert LinearSystem.parse("total = (a\n  + b)").count == LinearSystem.parse("a\n+ b <= 3").count == 1
