"""The playground as people meet it: a real server and a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TEXT = """pred rain
pred wet
[soaked] rain -> wet
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("play") / "weather.doxa"
    file.write_text(TEXT, encoding="utf-8")
    command = [sys.executable, "-m", "doxa", "play", str(file), "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert server.stdout is not None
    said = server.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/\?access_token=\S+", said)
    try:
        assert found, said + server.stdout.read()
        yield found.group(0)
    finally:
        server.send_signal(signal.SIGINT)
        with server:  # closes its pipe
            try:
                assert server.wait(60) == 0, "Ctrl-C ends it"
            finally:
                server.kill()


def fetch(url: str) -> int:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            signal.sigtimedwait([], 0.1)  # it has not begun to listen
    raise AssertionError("nobody listens")


def test_only_who_knows_the_token_gets_in(address: str) -> None:
    assert fetch(address) == 200
    bare = address.split("?")[0]
    assert fetch(bare + "api/usage") in (401, 403)
    with urllib.request.urlopen(bare, timeout=10) as answer:
        page = answer.read().decode()
    assert "soaked" not in page and ("login" in answer.url or "assword" in page or "oken" in page)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
def test_type_move_switch(address: str, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    elsewhere: list[str] = []

    def note(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:", "ws://127.0.0.1")):
            elsewhere.append(request.url)

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1300, "height": 1200}, color_scheme="dark")
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("request", note)
        page.goto(address)
        page.get_by_text("together").wait_for()
        assert page.get_by_text("fine: 1 axiom, 2 atoms").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

        # a belief is moved, and truth changes
        before = page.locator(".doxa td").all_inner_texts()
        slider = page.get_by_role("slider").first
        slider.focus()
        page.keyboard.press("End")
        page.wait_for_function(
            "old => [...document.querySelectorAll('.doxa td')].map(e => e.innerText).join() != old",
            arg=",".join(before),
        )

        # another semantics
        page.locator("select").nth(1).select_option("fuzzy:godel")
        page.get_by_text("truth, fuzzy:godel").wait_for()

        # a mistake has a caret and a remedy
        page.locator(".cm-content").first.click()
        page.keyboard.press("Control+End")
        page.keyboard.type("[wrong] rian -> wet")
        page.get_by_text("did you mean 'rain'?").wait_for()
        assert "^^^^" in page.locator(".doxa pre.bad").first.inner_text()
        assert page.get_by_text("Traceback").count() == 0
        for _ in range(len("[wrong] rian -> wet")):
            page.keyboard.press("Backspace")
        page.get_by_text("fine: 1 axiom, 2 atoms").wait_for()

        # what is seen, as Python and as a link that brings it back
        page.get_by_role("tab", name="Python").click()
        page.get_by_text("doxa.Model(").wait_for()
        page.get_by_role("tab", name="operators").click()
        page.get_by_role("img", name="reichenbach").wait_for()
        page.get_by_role("tab", name="link").click()
        link = page.get_by_role("link", name="this state").get_attribute("href")
        again = context.new_page()
        again.goto(address.split("?")[0] + str(link))
        again.get_by_text("truth, fuzzy:godel").wait_for()
        page.screenshot(path=str(tmp_path / "page.png"), full_page=True)

        narrow = context.new_page()
        narrow.set_viewport_size({"width": 420, "height": 900})
        narrow.goto(address)
        narrow.get_by_text("together").wait_for()
        assert narrow.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        browser.close()
    assert elsewhere == []
