"""The queue of all tables and figures: what is in it, real runs that end, fail, are stopped and go on, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.reproduce.drawn import write_digits

from doxa.cli import main
from doxa.errors import ConfigError
from doxa.reproduce._queue import EXPERIMENTS, Job, Standing, plan, work, write_results_page
from doxa.train import Result, Run

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


def test_the_queue_holds_every_configuration_that_needs_no_data_of_the_user(tmp_path: Path) -> None:
    jobs = plan(out=tmp_path, save=RESULTS)
    names = [job.name.split(",")[0] for job in jobs]
    every = {f"{e.name}/{entry.name}" for e in EXPERIMENTS for entry in e.entries}
    needing = {
        n
        for n in every
        if n.startswith(
            (
                "sat/satlib",
                "paths/warcraft",
                "addition/amortized/mlp",
                "hmc/",
                "preferences/",
                "grid/",
                "road/",
                "graphs/",
            )
        )
    }
    assert every - set(names) <= needing
    assert len({job.file for job in jobs}) == len(jobs)
    assert names[0] == "addition/refine/3000" and names[-1] == "figures/refine"
    assert jobs[0].done and jobs[0].file.parent == RESULTS / "addition"
    labelled = {job.name.rpartition(" ")[2] for job in jobs if job.name.startswith("shortcuts/labels-")}
    assert labelled == {"5", "6", "7", "8", "9"}  # those before were used to choose settings
    with pytest.raises(ConfigError, match=r"no job is called sudoku/16x16; --dry-run shows all"):
        plan(out=tmp_path, save=tmp_path, only=["sudoku/16x16"])


def test_a_folder_of_digits_is_handed_to_those_who_read_digits(tmp_path: Path) -> None:
    jobs = plan(out=tmp_path, save=tmp_path, data=tmp_path)
    handed = {job.name.split("/")[0] for job in jobs if "--data" in job.arguments}
    others = {job.name.split("/")[0] for job in jobs if "--data" not in job.arguments}
    assert {"addition", "vae", "sum9", "times"} <= handed
    assert others == {"sat", "paths", "figures"}


def test_cpu_time_is_that_of_the_steps_of_committed_results(tmp_path: Path) -> None:
    Result("vae/bernoulli/arm@1", {}, 0, 200, {"test": 1.0}, {}, cpu_seconds=50.0).write(tmp_path / "vae" / "a.json")
    Result("vae/bernoulli/arm@1", {}, 1, 100, {"test": 1.0}, {}, cpu_seconds=40.0).write(tmp_path / "vae" / "b.json")
    known, unknown = plan(out=tmp_path, save=tmp_path, only=["vae/bernoulli/*arm@1"], steps=1000)
    assert known.seconds == pytest.approx(1000 * 90 / 300) and unknown.seconds is None


def test_jobs_are_done_once_and_the_page_shows_them(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save, only = tmp_path / "results", ["addition/neural/n-1", "addition/neural/n-2", "figures/refine"]
    folders = ["--out", str(tmp_path / "runs"), "--save", str(save), "--data", str(data)]
    command = ["reproduce", "all", "--jobs", "2", "--steps", "4", *folders, "--only", *only]
    assert main([*command, "--dry-run"]) == 0
    assert "3 jobs, 3 not done" in capsys.readouterr().out
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "done 3, running 0, waiting 0" in shown and "running  addition/neural/n-1" in shown
    files = sorted((save / "addition").glob("*.json"))
    assert [file.name for file in files] == ["neural.n-1.4-steps.seed-0.json", "neural.n-2.4-steps.seed-0.json"]
    assert Result.read(files[0]).machine["threads"] == 1
    assert (tmp_path / "runs" / "figures" / "refine" / "index.html").exists()
    assert "| neural/n-2 | 4 | 0 |" in (save / "README.md").read_text(encoding="utf-8")
    before = [file.stat().st_mtime_ns for file in (*files, *(tmp_path / "runs" / "logs").iterdir())]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 3
    assert [file.stat().st_mtime_ns for file in (*files, *(tmp_path / "runs" / "logs").iterdir())] == before


class Seen(Exception):
    """Enough has been seen."""


def stopped_beyond(step: int, jobs: list[Job], folder: Path, kind: type[BaseException]) -> None:
    def look(standing: Standing) -> None:
        if standing.running and standing.running[0].step() > step:
            raise kind

    with pytest.raises(kind):
        work(jobs, logs=folder / "logs", show=look, every=0.05)


def test_stopped_jobs_save_what_they_have_done_and_go_on(data: Path, tmp_path: Path) -> None:
    jobs = plan(out=tmp_path, save=tmp_path / "results", only=["addition/neural/n-1"], steps=100_000, data=data)
    stopped_beyond(0, jobs, tmp_path, KeyboardInterrupt)
    assert jobs[0].folder is not None and not jobs[0].done
    saved = Run.open(jobs[0].folder).load().step
    assert saved > 0
    stopped_beyond(saved, jobs, tmp_path, Seen)
    assert Run.open(jobs[0].folder).load().step > saved
    (waiting,) = work(jobs, logs=tmp_path / "logs", budget=1e-9).waiting
    assert waiting == jobs[0]


def test_a_job_that_fails_says_why_and_the_next_one_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--out", str(tmp_path / "runs"), "--save", str(tmp_path / "results"), "--data", str(tmp_path / "none")]
    names = ["addition/neural/n-1", "figures/refine"]
    assert main(["reproduce", "all", "--steps", "2", *folders, "--only", *names, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (why,) = found["failed"].values()
    assert "exit code 1" in why and "does not exist" in why
    assert found["done"] == 1
    assert main(["reproduce", "all", "--budget", "soon", "--dry-run"]) == 1
    assert "budget is 'soon', expected a number and s, m, h or d" in capsys.readouterr().err


def test_the_committed_page_is_made_from_the_committed_results(tmp_path: Path) -> None:
    for file in RESULTS.glob("*/*.json"):
        (tmp_path / file.parent.name).mkdir(exist_ok=True)
        (tmp_path / file.parent.name / file.name).write_bytes(file.read_bytes())
    write_results_page(tmp_path)
    for page in ("README.md", "COMPARED.md"):
        assert (tmp_path / page).read_text("utf-8") == (RESULTS / page).read_text("utf-8"), page
