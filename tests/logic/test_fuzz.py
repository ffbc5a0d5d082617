"""A short run of the fuzzer (``make fuzz`` runs a long one), and the fuzzer itself."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHUNKS = 12
SIZE = 250


@pytest.fixture(scope="module")
def fuzzing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzzing", Path(__file__).with_name("fuzzing.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_only_knowledge_errors_come_out(fuzzing: ModuleType, chunk: int) -> None:
    outcomes, findings = fuzzing.try_chunk((2024, chunk * SIZE, (chunk + 1) * SIZE))
    assert not findings, findings[0][1] + "\n" + findings[0][2]
    assert outcomes.total() == SIZE
    assert outcomes["accepted"] > SIZE // 20  # the run reaches beyond the parser
    assert outcomes["refused"] > SIZE // 4


def test_the_corpus_is_right(fuzzing: ModuleType) -> None:
    """Whole texts of the corpus have no mistakes, so that mutations start from the inside of the language."""
    for text in fuzzing.corpus():
        if text.startswith(fuzzing.WORLD):
            assert fuzzing.attempt(text, thorough=True) == "accepted", text


def test_a_text_depends_on_seed_and_number_alone(fuzzing: ModuleType) -> None:
    texts = [fuzzing.text_of(7, n) for n in range(200)]
    assert texts == [fuzzing.text_of(7, n) for n in range(200)]
    assert texts != [fuzzing.text_of(8, n) for n in range(200)]
    assert len(set(texts)) > 150


def test_a_finding_is_shrunk_and_told(fuzzing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(text: str, thorough: bool, file: str | None = None) -> str:
        if "friends" in text:
            raise RecursionError("too deep")
        return "accepted"

    monkeypatch.setattr(fuzzing, "attempt", attempt)
    outcomes, findings = fuzzing.try_chunk((0, 0, 40))
    assert outcomes["found"] == len(findings) > 0
    assert outcomes.total() == 40
    assert {text for _, text, _ in findings} == {"friends"}
    assert all("RecursionError: too deep" in trace for _, _, trace in findings)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no timers to interrupt with")
def test_what_takes_too_long_is_a_finding(fuzzing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(text: str, thorough: bool, file: str | None = None) -> str:
        while True:
            pass

    monkeypatch.setattr(fuzzing, "attempt", attempt)
    monkeypatch.setattr(fuzzing, "SECONDS", 0.05)
    outcomes, findings = fuzzing.try_chunk((0, 0, 2))
    assert outcomes["found"] == 2
    assert all("TimeoutError" in trace for _, _, trace in findings)


def test_the_command_reports(
    fuzzing: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "findings"
    assert fuzzing.main(["--count", "60", "--processes", "1", "--folder", str(folder)]) == 0
    assert "60 texts in" in capsys.readouterr().out
    assert not folder.exists()
    monkeypatch.setattr(fuzzing, "attempt", lambda text, thorough, file=None: 1 / 0)
    assert fuzzing.main(["--count", "3", "--processes", "1", "--folder", str(folder)]) == 1
    assert "3 findings in" in capsys.readouterr().out
    assert len(list(folder.glob("seed0-*.doxa"))) == 3
    assert "ZeroDivisionError" in (folder / "seed0-0.txt").read_text()
