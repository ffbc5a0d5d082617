"""Every object that notebooks show: what it shows is true, is text and not markup, and can be read, light and dark.

A class with a display joins ``SHOWN`` (a test says so) and inherits all checks.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import doxa
from doxa import doctor, exact, fuzzy
from doxa._html import Html, Said, Shown, bar, box, line, markup, number, pairs, pre, span, table
from doxa._html import page as html_page
from doxa.doctor._ask import Certificate, Question, Questions
from doxa.doctor._examine import AxiomGradient
from doxa.doctor._scenes import Concept
from doxa.doctor._shortcuts import Shortcut
from doxa.exact.circuits._circuit import Circuit, exactly_one
from doxa.exact.engines._plan import Option
from doxa.fuzzy import GradientMeasures
from doxa.fuzzy._logic import OperatorTable
from doxa.logic import Call, Name, Quantifier, Sort
from doxa.logic.sat._solve import Entailment
from doxa.logic.syntax._binders import Group
from doxa.logic.tensor._report import AxiomReport, SatisfactionReport
from doxa.logic.unfold._proofs import Line, Proof
from doxa.problem import addition
from doxa.semantics._combine import AxiomLosses
from doxa.semantics._predict import Prediction
from doxa.semantics._refine import RefinedBeliefs
from doxa.semantics._worlds import ConditionedBeliefs, Explanation, Explanations, World
from doxa.sklearn._explain import Change
from doxa.sklearn._explain import Explanation as LabelExplanation
from doxa.stochastic._check import Verdict
from doxa.stochastic._profile import Profile, ProfileRow
from doxa.train.runs._results import ResultsTable, Row
from doxa.train.tasks._evaluate import Comparison, Evaluation
from doxa.train.tasks._measure import AxiomHeld, Reading

SOURCE = Path(doxa.__file__).parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAYLOAD = "\"'><img src=x onerror=window.hit=1><script>window.hit=1</script></pre></td></svg></style>&lt;<!--"
ALLOWED = {
    *("div", "style", "p", "pre", "span", "table", "tr", "th", "td", "svg", "path", "line", "rect", "circle", "text"),
}
ATTRIBUTES = {
    *(
        "class",
        "style",
        "x",
        "y",
        "d",
        "x1",
        "x2",
        "y1",
        "y2",
        "rx",
        "xmlns",
        "cx",
        "cy",
        "r",
        "width",
        "height",
        "viewbox",
        "role",
    ),
    *("font-size", "font-family", "fill", "stroke", "opacity", "text-anchor"),
}


def knowledge(odd: str) -> doxa.KnowledgeBase:
    """Knowledge all names of which end oddly."""
    thing = Sort(f"Thing{odd}", (f"one{odd}", f"two{odd}"))
    red = doxa.Predicate(f"red{odd}", (thing,))
    size = doxa.Function(f"size{odd}", (thing,), Sort(f"Size{odd}", (f"big{odd}", f"small{odd}")))
    x, one = Name(f"x{odd}"), Name(f"one{odd}")
    group = Group([x.name], sort=thing.name)
    rule = Quantifier("forall", [group], red(x) >> size(x).eq(Name(f"big{odd}")) & red(one))
    fact = doxa.Fact(Call(f"red{odd}", (one,)))
    return doxa.KnowledgeBase(thing, red, size, doxa.Axiom(f"rule{odd}", rule), fact)


def model(odd: str) -> doxa.Model:
    bound = {f"red{odd}": doxa.probs(torch.tensor([0.9, 0.2])), f"size{odd}": doxa.probs(torch.full((2, 2), 0.5))}
    return doxa.Model(knowledge(odd), "exact", **bound)


def constraint(odd: str) -> exact.Constraint:
    a, b = Call(f"a{odd}"), Call(f"b{odd}")
    return exact.Constraint(a ^ b, cache=False)


def evaluation(odd: str) -> Evaluation:
    values = (f"red{odd}", f"green{odd}")
    reading = Reading.of(f"shade{odd}", values, torch.tensor([0, 1]), torch.tensor([1, 1]), torch.ones(2))
    held = (AxiomHeld(f"told{odd}", 4, 3),)
    return Evaluation(f"task{odd}", f"About{odd}.", f"exact{odd}", 2, 1.0, 1.0, concepts=(reading,), axioms=held)


def circuit(odd: str) -> Circuit:
    return exactly_one(3)


def shortcuts(odd: str) -> doctor.Shortcuts:
    concept = Concept(f"digit{odd}", (f"left{odd}",), (f"a{odd}", f"b{odd}"))
    variables = ((f"left{odd}", (f"a{odd}", f"b{odd}")),)
    mixture = ((0,), (1,), (0,))
    simplest = (Shortcut(({0: 1},)),)
    return doctor.Shortcuts(
        2, True, 2, (concept,), simplest, ((0, 1),), 1, 2, mixture, variables, f"as{odd}", f"u{odd}"
    )


def examination(odd: str) -> doctor.Examination:
    tried = AxiomGradient(
        0.5, 1, 30, GradientMeasures(*[torch.tensor(0.5)] * len(GradientMeasures.__dataclass_fields__))
    )
    found = doctor.Finding(f"kind{odd}", f"where{odd}", f"says{odd}", f"change{odd}")
    return doctor.Examination(f"logic{odd}", {f"rule{odd}": tried}, (found,), (f"note{odd}",))


def refined(odd: str) -> RefinedBeliefs:
    before, after = torch.tensor([0.2, 0.5]), torch.tensor([0.9, 0.5])
    truth = {f"rule{odd}": torch.tensor(1.0)}
    return RefinedBeliefs((f"rain{odd}", "wet"), before, after, truth, True, {"rain": {"": [0]}})


def proof(odd: str) -> Proof:
    snow, rain = Call(f"snow{odd}"), Call(f"rain{odd}")
    return Proof(snow, 0.5, (Line(snow, None), Line(rain, 0, None, 0.5)))


SHOWN: dict[str, Callable[[str], Any]] = {
    "Entailment": lambda odd: Entailment(False, {Call(f"rain{odd}"): True}),
    "Verdict": lambda odd: Verdict(f"score{odd}", "undecided", reason=f"why{odd}"),
    "Questions": lambda odd: Questions(
        (Question(3, f"pairs.left{odd}", f"bit{odd}", 1.0),), 1, True, 1.0, 1.0, f"as{odd}"
    ),
    "Certificate": lambda odd: Certificate(2, shortcuts(odd)),
    "Proof": proof,
    "Shown": lambda odd: Shown(box(odd or "text")),
    "Said": lambda odd: Said(f"uses {odd}"),
    "Expr": lambda odd: knowledge(odd).axioms[0].formula,
    "Axiom": lambda odd: knowledge(odd).axioms[0],
    "Fact": lambda odd: knowledge(odd).facts[0],
    "KnowledgeBase": knowledge,
    "SatisfactionReport": lambda odd: SatisfactionReport(
        (AxiomReport(f"rule{odd}", 3, 2, 2, ({f"x{odd}": f"bob{odd}"},)), AxiomReport(f"empty{odd}", 0, 0))
    ),
    "Model": model,
    "AxiomLosses": lambda odd: AxiomLosses((torch.tensor(0.5),), torch.ones(1), (f"rule{odd}",), torch.tensor(0.5)),
    "Prediction": lambda odd: Prediction(torch.tensor([1]), torch.tensor([[0.2, 0.8]]), torch.tensor([0, 1])),
    "World": lambda odd: World({f"digit{odd}": f"3{odd}"}, 0.25),
    "Explanation": lambda odd: Explanation(2, [World({f"d{odd}": 3}, 0.75)], f"how{odd}", {f"p{odd}": f"q{odd}"}),
    "Explanations": lambda odd: Explanations([Explanation(0, [World({f"d{odd}": 3}, 0.25)], f"how{odd}", {"p": 1})]),
    "ConditionedBeliefs": lambda odd: ConditionedBeliefs(
        {f"r{odd}": torch.tensor([0.3])}, {f"r{odd}": torch.tensor([0])}, torch.zeros(1)
    ),
    "RefinedBeliefs": refined,
    "ExactPlan": lambda odd: exact.ExactPlan(
        addition(1), exact.Enumeration(addition(1)), (Option("enumeration", 3.0, f"100 worlds{odd}"),)
    ),
    "Circuit": circuit,
    "Constraint": constraint,
    "Logic": lambda odd: fuzzy.symmetric(fuzzy.Yager(), name=f"mine{odd}"),
    "OperatorTable": lambda odd: OperatorTable({f"mine{odd}": fuzzy.Product()}),
    "Profile": lambda odd: Profile((ProfileRow(f"score{odd}", 0.5, 0.002, 0.4, False),), 10),
    "Finding": lambda odd: doctor.Finding(f"kind{odd}", f"where{odd}", f"says{odd}", f"change{odd}"),
    "Examination": examination,
    "Shortcuts": shortcuts,
    "Evaluation": evaluation,
    "Comparison": lambda odd: Comparison((evaluation(odd),), {f"fuzzy{odd}": f"why{odd}"}),
    "ResultsTable": lambda odd: ResultsTable((Row(f"same{odd}", f"accuracy{odd}", (0.9,), (1,)),), f"title{odd}"),
    "sklearn.Explanation": lambda odd: LabelExplanation(
        (f"cat{odd}",), (f"cat{odd} -> animal",), (Change(f"cat{odd}", True, 0.6, False),), False
    ),
}
"""Every class with a display: an object all texts of which end in what is given."""

WITHOUT_TEXT = {"Circuit", "Prediction"}
"""Objects that hold nothing a user names."""


class Seen(HTMLParser):
    """The elements, attributes and text of a display; the style is left out."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.open, self.text = set[str](), set[str](), list[str](), ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def test_every_class_with_a_display_is_in_the_list() -> None:
    found = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
                if methods & {"_repr_html_", "_repr_latex_", "_repr_svg_", "_repr_mimebundle_", "_repr_markdown_"}:
                    room = "sklearn." if file.parent.name == "sklearn" else ""
                    found.append(room + node.name)
    assert sorted(found) == sorted(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_text_of_a_user_is_text(name: str) -> None:
    seen = Seen(SHOWN[name](PAYLOAD)._repr_html_())
    assert seen.tags <= ALLOWED, seen.tags - ALLOWED
    assert seen.attributes <= ATTRIBUTES, seen.attributes - ATTRIBUTES
    assert not seen.open, f"never closed: {seen.open}"
    shown = seen.text.replace('\\"', '"')  # names of the language are quoted
    assert (PAYLOAD in shown) != (name in WITHOUT_TEXT)


@pytest.mark.parametrize("name", SHOWN)
def test_plain_names_are_shown(name: str) -> None:
    shown = SHOWN[name]("")
    text = Seen(shown._repr_html_()).text
    assert text.strip() and "None" not in text and "tensor(" not in text and "<" not in text.replace("<0.01", "")
    assert shown._repr_html_() == shown._repr_html_()


@pytest.mark.parametrize("odd", [PAYLOAD, "$$", "\\href{javascript:window.hit=1}{x}", "}{", "%", "^_&#~", "\\"])
def test_text_of_a_user_is_text_in_latex_too(odd: str) -> None:
    """What begins and ends formulas, groups, commands and comments is escaped: read as TeX does, letter by letter."""
    for shown in (knowledge(odd).axioms[0].formula, knowledge(odd).axioms[0], knowledge(odd)):
        plain = type(shown)._repr_latex_(shown)
        commands = set(re.findall(r"\\([a-zA-Z]+\*?)", plain))
        expected = set(re.findall(r"\\([a-zA-Z]+\*?)", knowledge("")._repr_latex_()))
        names = {"backslash", "sim", "hat", "textbackslash", "textasciitilde", "textasciicircum", "text"}
        assert commands <= expected | names, commands - expected
        bare = re.sub(r"\\.", "", plain)  # without what is escaped
        assert bare.count("{") == bare.count("}") and "%" not in bare and "#" not in bare
        assert bare.count("$") == (0 if isinstance(shown, doxa.KnowledgeBase) else 2)


def test_symbols_have_the_colour_of_their_kind() -> None:
    html = knowledge("")._repr_html_()
    kinds = {"red": "predicate", "size": "function", "Thing": "sort", "big": "constant", "x": "variable"}
    for name, kind in kinds.items():
        assert f'<span class="{kind}">{name}</span>' in html
        assert name == "Thing" or f'<span class="{kind}">{name}</span>' in knowledge("").axioms[0]._repr_html_()


def test_numbers_are_those_of_the_object() -> None:
    kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    bound = {"rain": doxa.probs(torch.tensor(0.9)), "wet": doxa.probs(torch.tensor(0.3))}
    wet = doxa.Model(kb, "exact", **bound)
    explained = wet.explain(k=3)
    # by hand: worlds with rain -> wet have 0.27, 0.03, 0.07; together 0.37
    text = Seen(explained._repr_html_()).text
    assert all(f"{p / 0.37:.2f}" in text for p in (0.27, 0.07, 0.03))
    assert f"{100 * 0.27 / 0.37:.1f}%" in explained._repr_html_()
    assert "0.30" in Seen(wet.refine()._repr_html_()).text and "1.00" in Seen(wet.refine()._repr_html_()).text
    loss = -torch.tensor(0.37).log().item()
    assert f"{loss:.4g}" in Seen(wet.losses()._repr_html_()).text


def test_marimo_shows_what_we_show() -> None:
    """It has a way of its own for modules, among others."""
    formatting = pytest.importorskip("marimo._output.formatting")
    for name, make in SHOWN.items():
        shown = make("")
        formatted = formatting.try_format(shown)
        assert (formatted.mimetype, formatted.data) == ("text/html", shown._repr_html_()), name


def test_a_circuit_is_drawn_as_it_is() -> None:
    drawn = exactly_one(3)
    html = drawn._repr_html_()
    assert html.count("<circle") == len(drawn) and html.count("<path") == drawn.edges
    assert html.count(">¬x2<") == 1 and "too large" in exactly_one(30)._repr_html_()
    assert ">¬sun</text>" in exact.Constraint(Call("rain") ^ Call("sun"), cache=False)._repr_html_()


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_small_and_huge_objects_are_shown(size: int) -> None:
    losses = AxiomLosses(tuple(torch.rand(size).unbind()), torch.ones(size), tuple(map(str, range(size))), None)
    atoms = tuple(f"a{i}" for i in range(size))
    beliefs = RefinedBeliefs(atoms, torch.zeros(size), torch.ones(size), {}, True, {})
    for shown in (SatisfactionReport(()), Explanations([]), beliefs, losses):
        assert len(shown._repr_html_()) < 200_000


def test_wide_numbers_and_gaps() -> None:
    assert [number(x) for x in (0.0, 0.004, -0.004, 0.996, 1.0, 12.345)] == [
        "0.00",
        "<0.01",
        ">-0.01",
        ">0.99",
        "1.00",
        "12.35",
    ]
    for value in (float("nan"), float("inf"), -1.0, 0.5, 3.0):
        assert Seen(bar(value, 2.0)).tags == {"span"}
    assert bar(3.0, 2.0).count("100.0%") == 1 and bar(-1.0).count(": 0.0%") == 1
    assert markup("\x1b[2J").isprintable() and isinstance(markup("x"), Html)


@pytest.mark.parametrize("make", [span, lambda kind, x: line(x, kind=kind), lambda kind, x: pre(x, kind)])
def test_no_kind_and_no_value_is_markup(make: Callable[[str, str], str]) -> None:
    assert Seen(make(PAYLOAD, PAYLOAD)).tags <= {"span", "p", "pre"}


def test_tables_and_boxes_escape_what_is_in_them() -> None:
    parts = (table([PAYLOAD], [[PAYLOAD]]), table([PAYLOAD], [[PAYLOAD]], numbers=True), pairs({PAYLOAD: PAYLOAD}))
    seen = Seen(box(*parts, PAYLOAD, title=PAYLOAD))
    assert seen.tags <= ALLOWED and seen.text.count(PAYLOAD) == 8


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All displays on one page, on light and on dark, as notebooks have them; once with plain names, once with odd."""
    folder, made = tmp_path_factory.mktemp("displays"), {}
    for theme, colours in (("true", "white; color: black"), ("false", "#111; color: #eee")):
        for odd in ("", PAYLOAD):
            shown = "".join(f"<h3>{name}</h3>{make(odd)._repr_html_()}" for name, make in SHOWN.items())
            file = folder / f"{theme}-{len(odd)}.html"
            style = f"background: {colours}; font: 14px sans-serif"
            file.write_text(f'<meta charset="utf-8"><body data-jp-theme-light={theme} style="{style}">{shown}', "utf-8")
            made[f"{theme}{'-odd' if odd else ''}"] = file
    return made


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
def test_displays_in_a_browser(pages: dict[str, Path]) -> None:
    """Nothing runs, nothing is fetched, nothing is wider than the page, and all text stands out from what is behind."""
    from playwright.sync_api import sync_playwright

    contrasts = """[...document.querySelectorAll('.doxa span')].filter(e => e.innerText.trim()).map(e => {
        const light = c => c.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255).map(
            x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4).reduce(
            (sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
        const [a, b] = [e, document.body].map((x, i) => light(getComputedStyle(x)[i ? 'backgroundColor' : 'color']));
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)})"""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, file in pages.items():
            page = browser.new_page(viewport={"width": 1000, "height": 800})
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(file.as_uri())
            assert page.evaluate("window.hit === undefined && document.scripts.length === 0"), name
            assert len(asked) == 1, asked
            assert page.locator(".doxa").count() == len(SHOWN)
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth") or "odd" in name
            if "odd" not in name:
                assert min(page.evaluate(contrasts)) > 4.5
        for theme in ("light", "dark"):  # a page of our own, as the reader has it
            page = browser.new_page(color_scheme=theme)
            page.set_content(html_page("all", "".join(make("")._repr_html_() for make in SHOWN.values())))
            page.add_style_tag(content=f"body {{ background: {'white' if theme == 'light' else '#121212'}; }}")
            assert min(page.evaluate(contrasts)) > 4.5, theme
        browser.close()
