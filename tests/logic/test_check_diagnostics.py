"""Diagnostics: how they look, what is raised, and which names are near."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doxa.errors import KnowledgeError
from doxa.logic.syntax._diagnostics import SHOWN, WINDOW, Diagnostic, Span, did_you_mean, nearest, raise_all


def test_the_caret_stands_under_the_span() -> None:
    span = Span("a.doxa", 7, 8, 11, "smokes(bop) & rain")
    assert Diagnostic("error", "unknown name 'bop'", "did you mean 'bob'?", span).render() == (
        "a.doxa:7:8: error: unknown name 'bop'\n    smokes(bop) & rain\n           ^^^\n    did you mean 'bob'?"
    )


def test_without_a_place_or_a_remedy() -> None:
    assert str(Diagnostic("warning", "a doubt")) == "warning: a doubt"
    assert Diagnostic("error", "m", None, Span(None, 1, 1, 2, "x")).render() == "<text>:1:1: error: m\n    x\n    ^"


def test_tabs_and_wide_characters_keep_the_caret_in_place() -> None:
    assert Span(None, 1, 3, 4, "\tax").excerpt() == "\tax\n\t ^"
    assert Span(None, 1, 3, 5, "雨雨雪雪").excerpt() == "雨雨雪雪\n    ^^^^"
    assert Span(None, 1, 3, 4, "e\u0301x").excerpt() == "e\u0301x\n ^"


def test_control_characters_do_not_reach_the_terminal() -> None:
    excerpt = Span(None, 1, 2, 3, "a\x1b[31mb").excerpt()
    assert "\x1b" not in excerpt
    assert excerpt == "a\\x1b[31mb\n ^^^^"


@given(st.text(max_size=400), st.integers(-3, 500), st.integers(-3, 500))
def test_any_span_can_be_shown(text: str, column: int, end: int) -> None:
    line, carets = Span(None, 1, column, end, text).excerpt().split("\n")
    assert len(line) <= WINDOW + 6
    assert set(carets.strip()) == {"^"}


def test_a_long_line_is_shown_around_the_caret() -> None:
    text = "a & " * 10_000 + "HERE" + " & a" * 10_000
    line, carets = Span(None, 1, 40_001, 40_005, text).excerpt().split("\n")
    start = carets.index("^")
    assert line[start : start + 4] == "HERE"
    assert carets.count("^") == 4
    assert line.startswith("...")
    assert line.endswith("...")


def test_all_errors_are_raised_together_and_warnings_are_not() -> None:
    errors = [Diagnostic("error", f"mistake {i}") for i in range(3)]
    with pytest.raises(KnowledgeError) as caught:
        raise_all([Diagnostic("warning", "doubt"), *errors])
    assert str(caught.value) == "error: mistake 0\nerror: mistake 1\nerror: mistake 2"
    assert caught.value.diagnostics == tuple(errors)
    assert pickle.loads(pickle.dumps(caught.value)).diagnostics == tuple(errors)
    raise_all([Diagnostic("warning", "doubt")])


def test_very_many_errors_are_counted_in_the_message_and_kept() -> None:
    with pytest.raises(KnowledgeError, match=r"\.\.\. and 980 more errors") as caught:
        raise_all([Diagnostic("error", f"mistake {i}") for i in range(1000)])
    assert len(caught.value.diagnostics) == 1000
    assert str(caught.value).count("error: mistake") == SHOWN


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("frends", ["fiends", "friends", "smokes"], "friends"),
        ("smoke", ["smokes"], "smokes"),
        ("Alice", ["alice"], "alice"),
        ("ALICE", ["bob", "alice"], "alice"),
        ("alcie", ["alice", "alien"], "alice"),
        ("x", ["y", "z"], None),
        ("x1", ["x2", "y1"], None),
        ("cat", ["dog", "car"], None),
        ("digit", ["width"], None),
        ("", ["a"], None),
        ("a", [], None),
        ("a", [""], None),
    ],
)
def test_nearest_names(name: str, known: list[str], near: str | None) -> None:
    assert nearest(name, known) == near
    assert did_you_mean(name, known, "else") == ("else" if near is None else f"did you mean {near!r}?")


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=20))
def test_a_known_name_is_nearest_to_itself(name: str, known: list[str]) -> None:
    near = nearest(name, [*known, name])
    assert near is not None
    assert near.casefold() == name.casefold()
    assert nearest(name, known) in [*known, None]
