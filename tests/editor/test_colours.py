"""Knowledge files in colours: every character is accounted for, and valid files hold no errors."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.token import Error, Keyword, Name, Operator, is_token_subtype
from tests.logic.fuzzing import STATEMENTS, WORLD

import doxa
from doxa.editor import DoxaLexer
from doxa.editor._colours import TOKENS
from doxa.logic.syntax._marks import Mark, declarations_in, declared_names, marks
from doxa.logic.syntax._words import RESERVED, SOFT_KIND, SYMBOLS

EVERYTHING = WORLD + STATEMENTS
"""A text with every construct of the language."""
REPOSITORY = Path(__file__).parents[2]
FILES = sorted([*(REPOSITORY / "examples").rglob("*.doxa"), *(REPOSITORY / "src").rglob("*.doxa")])
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))
BLOCKS = [b for page in PAGES for b in re.findall(r"^```doxa[^\n]*\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)]
TEXTS = [EVERYTHING, *[f.read_text("utf-8") for f in FILES], *BLOCKS]


def kinds(text: str) -> dict[str, set[Mark]]:
    found: dict[str, set[Mark]] = {}
    for mark in marks(text):
        found.setdefault(mark.text, set()).add(mark.kind)
    return found


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_valid_files_are_read_whole_and_without_errors(text: str) -> None:
    pieces = list(DoxaLexer().get_tokens_unprocessed(text))
    assert "".join(piece for _, _, piece in pieces) == text
    assert all(text[start : start + len(piece)] == piece for start, _, piece in pieces)
    assert not [piece for _, token, piece in pieces if is_token_subtype(token, Error)]


@pytest.mark.parametrize("file", [None, *FILES], ids=lambda p: p.stem if p else "everything")
def test_names_are_what_the_knowledge_base_says_they_are(file: Path | None) -> None:
    """The reader is the judge: it knows every symbol of a file by its declaration."""
    text = file.read_text("utf-8") if file else EVERYTHING
    kb = doxa.load(file, warn=False) if file else doxa.parse(EVERYTHING, warn=False)
    signature, found = kb.signature, kinds(text)
    for kind, names in (
        ("sort", signature.sorts),
        ("predicate", signature.predicates),
        ("function", signature.functions),
        ("data", signature.rows),
    ):
        for name in names:
            if name in found:
                assert found[name] <= {kind, "field"}, (name, found[name])
    for name in (*signature.predicates, *signature.functions, *signature.rows):
        assert name in declarations_in(text) and name in declarations_in(text)[name]
    bound = {n for a in kb for q in nodes(a) for g in getattr(q, "groups", ()) for n in g.names}
    assert {name for name, kind in declared_names(text).items() if kind == "variable"} >= bound


def nodes(axiom: doxa.Axiom) -> list[object]:
    from doxa.logic import postorder

    return list(postorder(axiom.formula))


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_whole(text: str) -> None:
    assert "".join(piece for _, _, piece in DoxaLexer().get_tokens_unprocessed(text)) == text


@given(
    st.lists(
        st.sampled_from([*SOFT_KIND, *(s for group in SYMBOLS.values() for s in group), "x", "P", "3", "\n", '"']),
        max_size=60,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_words_are_read_whole(words: list[str]) -> None:
    text = " ".join(words)
    assert "".join(mark.text for mark in marks(text)) == text
    declarations_in(text)


def test_every_word_of_the_language_has_a_colour() -> None:
    for word in RESERVED - {"true", "false"}:
        ((_, token, _),) = DoxaLexer().get_tokens_unprocessed(word)
        assert token in (Keyword, Operator), word
    assert "sort" in SOFT_KIND and kinds("sort P")["sort"] == {"keyword"}
    assert set(TOKENS) == set(Mark.__args__)  # type: ignore[attr-defined]


def test_several_declarations_in_one_statement() -> None:
    text = "sort A = {u, v}, B\npred rain, wet(A), dry\nconst k, l: B\nrain -> sort"
    names = declared_names(text)
    assert [n for n, k in names.items() if k == "predicate"] == ["rain", "wet", "dry"]
    assert [n for n, k in names.items() if k == "constant"] == ["u", "v", "k", "l"]
    assert names["B"] == "sort" and declarations_in(text)["l"] == "const k, l: B"
    assert kinds(text)["sort"] == {"keyword", "name"}  # the second is a name, for no name follows it


def test_documents_find_the_lexer() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"]["pygments.lexers"]["doxa"].partition(":")
    assert getattr(import_module(module), name) is DoxaLexer
    assert DoxaLexer.aliases == ["doxa"] and DoxaLexer.filenames == ["*.doxa"]
    page = highlight("pred p(T) # <b>", DoxaLexer(), HtmlFormatter())
    assert "<b>" not in page and 'class="k"' in page
    assert list(DoxaLexer().get_tokens("sort T"))[2] == (Name.Class, "T")
