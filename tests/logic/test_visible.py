"""Nothing that comes from a file reaches a terminal unseen, and nothing looks like what it is not without a word."""

from __future__ import annotations

import unicodedata
import warnings
from pathlib import Path

import pytest

from doxa.errors import KnowledgeError, KnowledgeWarning, visible
from doxa.logic import load, parse
from doxa.logic.check._lint import lint
from doxa.logic.syntax._diagnostics import _CYRILLIC, _GREEK, lookalikes, mixed, skeleton

HOSTILE = ["\x1b[2J", "\x07", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u200f", "\u2028", "\r"]


def said(text: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse(text)
    return [str(w.message) for w in caught if issubclass(w.category, KnowledgeWarning)]


def harmless(text: str) -> bool:
    """No control, format, surrogate or separator characters beside line breaks, tabs and spaces."""
    return all(c in "\n\t " or unicodedata.category(c)[0] not in "CZ" for c in text)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_diagnostics_show_what_is_invisible(hostile: str, tmp_path: Path) -> None:
    texts = [
        f'pred "a{hostile}b"; "a{hostile}c"',
        f"pred a; b # {hostile}",
        f'include "{hostile}"',
        f"pred a; a @{hostile}",
    ]
    for number, text in enumerate(texts):
        file = tmp_path / f"k{number}{hostile}.doxa"
        file.write_text(text, encoding="utf-8", newline="")
        with pytest.raises(KnowledgeError) as caught:
            load(file)
        assert harmless(str(caught.value)), str(caught.value)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_printed_knowledge_is_harmless_and_reads_back(hostile: str) -> None:
    name = f"a{hostile}b"
    quoted = '"' + "".join([f"\\u{ord(c):04x}" for c in name]) + '"'
    kb = parse(f"pred {quoted}; [{quoted}] {quoted}", warn=False)
    for printed in (str(kb), kb.unicode(), kb.latex()):
        assert harmless(printed), printed
    assert name in kb.signature.predicates
    assert parse(str(kb), warn=False) == parse(kb.unicode(), warn=False) == kb


def test_the_caret_stands_below_what_it_points_at() -> None:
    with pytest.raises(KnowledgeError) as caught:
        parse('"\x1b" & bat')
    lines = str(caught.value).split("\n")
    carets = [i for i, line in enumerate(lines) if line.strip(" ^") == "" and "^" in line]
    pointed = [lines[i - 1][lines[i].index("^") : lines[i].rindex("^") + 1] for i in carets]
    assert pointed == ['"\\x1b"', "bat"]


def test_visible_keeps_what_can_be_seen() -> None:
    assert visible("∀x: Größe 雨 e\u0301") == "∀x: Größe 雨 e\u0301"
    assert visible("a\nb\tc") == "a\\nb\\tc"
    assert visible("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert visible("\ud800") == "\\ud800"


@pytest.mark.parametrize("control", ["\u202e", "\u2066", "\u200f", "\u061c"])
@pytest.mark.parametrize("text", ["pred a; a # {}", 'pred "a{}b"; "a{}b"'])
def test_controls_of_direction_are_warned_of(text: str, control: str) -> None:
    found = [m for m in said(text.format(*[control] * 2)) if "order" in m]
    assert len(found) == text.count("{}")
    assert all(f"U+{ord(control):04X} {unicodedata.name(control)}" in m and ":1:" in m for m in found)
    assert not said(text.format("", ""))


@pytest.mark.parametrize(
    "text",
    [
        "pred cat, c\u0430t; cat & c\u0430t",  # both declared
        "sort S; const a: S; pred p(S); forall \u0430: S. p(\u0430) & p(a)",  # a variable
        "sort S = {a, \u0430}; pred p(S); p(a) & p(\u0430)",
        "pred \uff41, a; a & \uff41",  # full width
        "[rule] p; [r\u03c5le] p; [rul\u0435] !p; pred p",
    ],
)
def test_names_that_look_alike_are_warned_of(text: str) -> None:
    found = [m for m in said(text) if "look alike" in m]
    assert len(found) == 1
    assert "U+" in found[0]


def test_a_name_that_looks_like_a_declared_one_is_told_apart() -> None:
    with pytest.raises(KnowledgeError, match="They only look alike: 'c\u0430t' has U\\+0430 CYRILLIC SMALL LETTER A"):
        parse("pred cat; c\u0430t")


def test_words_of_one_script_are_no_matter() -> None:
    for text in (
        "pred σ, Δx, α1; σ & Δx & α1",
        "pred кот; кот",
        "pred 雨, 風; 雨 & 風",
        "pred straße, café; straße & café",
    ):
        assert said(text) == []
    assert [m for m in said("pred p\u0430y; p\u0430y") if "written in Latin letters, except" in m and "U+0430" in m]


def test_twins_look_alike_by_their_names() -> None:
    """Every letter of the table is a letter of its script, and its twin is the Latin one that looks like it."""
    for script, (letters, twins) in {"CYRILLIC": _CYRILLIC, "GREEK": _GREEK}.items():
        assert len(set(letters)) == len(letters) == len(twins)
        assert all(unicodedata.name(c).startswith(script) for c in letters)
        assert all(t.isascii() and c.isupper() == t.isupper() for c, t in zip(letters, twins, strict=True))
    assert list(lookalikes(["a", "b", "\u0430"])) == [("\u0430", "a")]
    assert skeleton("plain") == "plain" and mixed("plain") == "" and mixed("\u0430\u0431") == ""


def test_lint_without_a_text_warns_too() -> None:
    kb = parse("pred cat, c\u0430t; cat & c\u0430t", warn=False)
    assert [d for d in lint(kb) if "look alike" in d.message and d.span is None]
