"""Names that are HTML: whatever a run folder holds, its report shows it as text and runs none of it."""

from __future__ import annotations

import base64
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from doxa.train import Run, write_task_report
from doxa.train.report._report import Section, write_page
from doxa.train.runs._config import config_values
from doxa.train.runs._files import to_json
from doxa.train.tasks._evaluate import Evaluation, Example, Picture
from doxa.train.tasks._measure import AxiomHeld, Reading
from doxa.train.tasks._train import TaskConfig

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAYLOAD = "\"'><img src=x onerror=window.hit=1><script>window.hit=1</script></pre></td></title>&lt;<!--$^$"
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "div", "table", "tr", "th", "td"),
    *("pre", "span", "section", "code", "img", "details", "summary", "figure", "figcaption"),
}
pytestmark = pytest.mark.filterwarnings("ignore:constrained_layout")  # such names leave no room in figures


class Seen(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = set[str](), set[str](), ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.text += " ".join(value or "" for name, value in attrs if name == "alt")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Reports of runs every text of which is a payload: task, file, sort, class, axiom, command, explanation."""

    def odd(word: str) -> str:
        return f"{word}{PAYLOAD}"

    folder = tmp_path_factory.mktemp("injection")
    knowledge = f"# {PAYLOAD}\n[{odd('told')}] forall x: Thing. {PAYLOAD}\n[plain] true"
    values = [odd("red"), odd("green")]
    reading = Reading.of(odd("shade"), values, torch.tensor([0, 1]), torch.tensor([1, 1]), torch.ones(2))
    pixels = base64.b64encode(bytes(4)).decode()
    example = Example(0, odd("a"), odd("b"), (Picture("x", 2, 2, pixels, reading.name, (0.5, 0.5), 1),), odd("because"))
    runs = []
    for seed, name in enumerate((odd("exact").replace("/", ""), "twice", "twice")):
        config = TaskConfig(odd("file.py"), odd(name), odd("Exact()"), knowledge, odd("data"))
        run = Run.create(folder / f"{seed}{PAYLOAD.replace('/', '')}", config, seed=0)
        run.log(1, {"loss": 1.0, "task_accuracy": 0.5})
        evaluation = Evaluation(
            odd("task"), odd("about"), odd(name), 2, 1.0, 1.0, (example,),
            target=reading, concepts=(reading,), axioms=(AxiomHeld(odd("told"), 2, 1), AxiomHeld("plain", 2, 2)),
        )  # fmt: skip
        (run.path / "evaluation.json").write_bytes(to_json(config_values(evaluation)))
        runs.append(run.path)
    write_page(folder / "page.html", odd("title"), [Section(odd("s"), odd("t"), {odd("k"): odd("v")}, b"png")], run)
    return [
        write_task_report(runs[:1]),
        write_task_report(runs, folder / PAYLOAD.replace("/", "")),
        folder / "page.html",
    ]


def test_names_are_text(pages: list[Path]) -> None:
    for page in pages:
        seen = Seen()
        seen.feed(page.read_text(encoding="utf-8"))
        assert seen.tags <= ALLOWED, seen.tags - ALLOWED
        assert seen.attributes <= {"lang", "charset", "name", "content", "class", "alt", "src"}
        assert seen.text.count(PAYLOAD) >= 5


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
def test_no_script_runs_in_a_browser(pages: list[Path]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for file in pages:
            page = browser.new_page()
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url[:5]))
            page.goto(file.as_uri())
            page.wait_for_load_state("networkidle")
            assert page.evaluate("window.hit === undefined && document.scripts.length === 0")
            assert set(asked) <= {"file:", "data:"} and asked.count("file:") == 1
        browser.close()
