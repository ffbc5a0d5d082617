"""The commands of the knowledge language, as a user types them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from doxa.cli import main
from doxa.logic import CNF, count, load, parse, read_dimacs

KNOWLEDGE = Path(__file__).parents[2] / "examples" / "knowledge"
MY_TASK = Path(__file__).parents[2] / "examples" / "my_task.py"
LIGHTS = str(KNOWLEDGE / "traffic_lights.doxa")
SMOKERS = str(KNOWLEDGE / "smokers.doxa")


def doxa(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "doxa", *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    file = tmp_path / "broken.doxa"
    file.write_text("sort A\npred p(A)\nforall x: A. q(x)\nforall x: B. p(x)\n", encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("file", sorted(KNOWLEDGE.glob("*.doxa")), ids=lambda p: p.stem)
def test_check_finds_the_examples_fine(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "fine"
    assert printed.err == ""


def test_check_reports_every_mistake_with_its_place(broken: str) -> None:
    done = doxa("check", broken)
    assert done.returncode == 1
    assert "broken.doxa:3:14: error: unknown predicate or function 'q'" in done.stderr
    assert "broken.doxa:4:11: error: unknown sort 'B'" in done.stderr
    assert done.stdout.strip() == "2 errors"
    assert "\x1b[" not in done.stdout + done.stderr, "no colours in a pipe"


def test_check_for_machines(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert [(d["severity"], d["line"], d["column"]) for d in document["diagnostics"]] == [
        ("error", 3, 14),
        ("error", 4, 11),
    ]
    assert main(["check", SMOKERS, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["predicates"]["friends"] == ["Person", "Person"]
    assert [a["weight"] for a in document["axioms"]] == [1.0, 1.0, 0.5, None, 1.0]
    assert document["facts"] == 4


def test_check_warns_and_is_still_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "idle.doxa"
    file.write_text("pred a\npred b\na -> a\n", encoding="utf-8")
    assert main(["check", str(file)]) == 0
    printed = capsys.readouterr()
    assert "warning" in printed.err and "'b' is declared but not used" in printed.err
    assert "fine, with" in printed.out


@pytest.mark.parametrize("form", ["text", "unicode"])
def test_show_prints_what_parses_back(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", SMOKERS, "--as", form]) == 0
    assert parse(capsys.readouterr().out, warn=False) == load(SMOKERS, warn=False)


def test_show_latex_nnf_cnf(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", LIGHTS, "--as", "latex"]) == 0
    assert r"\forall" in capsys.readouterr().out
    assert main(["show", LIGHTS, "--as", "nnf"]) == 0
    assert "->" not in capsys.readouterr().out
    assert main(["show", LIGHTS, "--as", "cnf"]) == 0
    clauses = capsys.readouterr().out.splitlines()
    assert "!shows(north, green) | !shows(west, green)" in clauses
    assert main(["show", LIGHTS, "--as", "cnf", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].splitlines() == clauses


def test_show_dimacs_has_the_same_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", LIGHTS, "--as", "dimacs"]) == 0
    cnf = read_dimacs(capsys.readouterr().out)
    assert isinstance(cnf, CNF)
    assert count(cnf) == count(load(LIGHTS))


def test_a_task_stands_for_its_knowledge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(MY_TASK)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "fine" and "[difference] forall p in pairs." in printed.out
    assert printed.err == ""
    assert main(["show", str(MY_TASK)]) == 0
    assert parse(capsys.readouterr().out).axioms[0].name == "difference"
    assert main(["doctor", str(MY_TASK), "--draws", "4"]) == 0
    assert capsys.readouterr().out.startswith("under product:")
    assert main(["check", str(MY_TASK), LIGHTS]) == 0 and capsys.readouterr().out.count("fine") == 2
    assert main(["check", str(MY_TASK), LIGHTS, "--together"]) == 1
    assert capsys.readouterr().err == f"{MY_TASK} has knowledge of its own; name it alone\n"

    file = tmp_path / "mine.py"
    text = MY_TASK.read_text(encoding="utf-8")
    file.write_text(text.replace("sort Image", "sort Image; pred idle"), encoding="utf-8")
    assert main(["check", str(file)]) == 0
    printed = capsys.readouterr()
    assert "'idle' is declared but not used" in printed.err and "fine, with 1 warning" in printed.out
    file.write_text(text.replace("a - b = p.diff", "a - c = p.diff"), encoding="utf-8")
    assert main(["check", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "1 error\n" and "error: unknown name 'c'" in printed.err
    assert main(["check", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["diagnostics"][0]["message"] == "unknown name 'c'"
    file.write_text("task = 3\n", encoding="utf-8")
    assert main(["check", str(file)]) == 1
    assert "is of type int" in capsys.readouterr().err


def test_solve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", LIGHTS, "--given", "shows(north, green)"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("satisfiable") and "  drive(north)" in printed and "shows(west, green)" not in printed
    assert main(["solve", LIGHTS, "--given", "shows(north, green)", "drive(west)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"satisfiable": False, "model": None}


def test_solve_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", str(KNOWLEDGE / "sudoku4.doxa"), "--count"]) == 0
    assert capsys.readouterr().out == "288 models\n"


def test_solve_entails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", LIGHTS, "--entails", "drive(north) -> !drive(west)"]) == 0
    assert capsys.readouterr().out == "follows\n"
    assert main(["solve", LIGHTS, "--entails", "drive(north)", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["entailed"] is False and answer["counter_model"]["drive(north)"] is False


def test_open_sorts_get_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    chair = str(KNOWLEDGE / "chair.doxa")
    assert main(["solve", chair, "--domain", "Object=2", "--entails", "forall x: Object. !partOf(x, x)"]) == 0
    assert capsys.readouterr().out == "follows\n"
    assert main(["show", chair, "--domain", "Object=2", "--as", "cnf"]) == 0
    assert "!partOf(Object0, Object0)" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "missing.doxa"], "missing.doxa"),
        (["check"], "no knowledge file is given"),
        (["solve", LIGHTS, "--given", "drive(nrth)"], "did you mean 'north'"),
        (["solve", LIGHTS, "--entails", "drive("], "never closed"),
        (["show", str(KNOWLEDGE / "chair.doxa"), "--as", "cnf"], "Object"),
        (["solve", str(KNOWLEDGE / "chair.doxa"), "--domain", "Objekt=2"], "open are Object"),
        (["check", str(KNOWLEDGE)], "is a folder"),
    ],
    ids=["missing", "none", "given", "entails", "open", "domain", "folder"],
)
def test_mistakes_end_with_one_message(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = doxa(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "p cnf 2 1\n1 -2 0\n", "hello"])
def test_clauses_are_no_knowledge(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", str(tmp_path / "x.cnf")]) == 1
    assert "there is no file" in capsys.readouterr().err
    (tmp_path / "x.cnf").write_text(text)
    assert main(["solve", str(tmp_path / "x.cnf")]) == 1
    assert "read_dimacs" in capsys.readouterr().err


def test_help_has_examples() -> None:
    for command in ("check", "show", "solve"):
        printed = doxa(command, "--help").stdout
        assert f"doxa {command} " in printed.split("examples:")[1]


def test_colours_on_a_terminal(broken: str) -> None:
    """A real pseudo-terminal, since colours depend on it."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "doxa", "check", broken]
    subprocess.run(command, stdout=follower, stderr=follower, env=environment, check=False)
    os.close(follower)
    printed = b""
    try:
        while chunk := os.read(leader, 65536):
            printed += chunk
    except OSError:  # the end, on Linux
        pass
    os.close(leader)
    assert b"\x1b[" in printed and b"unknown sort" in printed
