"""Refinement on 3-SAT: what is measured, against loops over the clauses; resumption; SATLIB's files; the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from doxa.cli import main
from doxa.data import ksat_instances
from doxa.errors import ConfigError, DataError
from doxa.logic import CNF, write_dimacs
from doxa.refine import GradientRefine, Refine
from doxa.reproduce import SAT, collect
from doxa.reproduce._sat import CURVE, FORMULAS_SEED, SatConfig, draw_sat, measure
from doxa.train import Result, Run

RESULTS = Path(__file__).parents[2] / "results"


def formulas(count: int, clauses: int) -> list[CNF]:
    drawn = ksat_instances(count, 20, 91, generator=torch.Generator().manual_seed(FORMULAS_SEED))
    return [CNF.from_clauses(cnf.clauses[:clauses], 20) for cnf in drawn]


def truth_of(logic: str, cnf: CNF, row: list[float]) -> float:
    """The truth of a formula, clause by clause."""
    clauses = [[row[v - 1] if v > 0 else 1 - row[-v - 1] for v in clause] for clause in cnf.clauses]
    if logic == "godel":
        return min(max(clause) for clause in clauses)
    if logic == "lukasiewicz":
        return max(0.0, 1 - sum(1 - min(1.0, sum(clause)) for clause in clauses))
    total = 1.0
    for clause in clauses:
        total *= 1 - (1 - clause[0]) * (1 - clause[1]) * (1 - clause[2])
    return total


@pytest.mark.parametrize("logic", ["godel", "lukasiewicz", "product"])
@pytest.mark.parametrize("method", ["refine", "adam"])
def test_measures_against_loops(logic: str, method: str) -> None:
    config = SatConfig(logic, method, beta=0.01, target=0.8, clauses=20, vectors=3, passes=30)  # type: ignore[arg-type]
    (cnf,) = formulas(1, 20)
    found = measure(config, [cnf], 5)
    x = torch.rand(3, 20, generator=torch.Generator().manual_seed(5))
    layer = Refine(cnf, logic, 0.8, max_steps=30, patience=30)
    if method == "adam":
        run = GradientRefine(layer, beta=0.01, steps=30, joint=True, freeze=False).run(x, trajectory=True)
    else:
        run = layer.run(x, trajectory=True)
    assert run.trajectory is not None
    path = [[truth_of(logic, cnf, row) for row in iterate.tolist()] for iterate in run.trajectory]
    moved = [[sum(abs(a - b) for a, b in zip(*pair, strict=True)) for pair in zip(i.tolist(), x.tolist(), strict=True)]
             for i in run.trajectory]  # fmt: skip
    last = path[-1]
    assert found["truth"] == pytest.approx(sum(last) / 3, abs=1e-5)
    assert found["loss"] == pytest.approx(sum(abs(t - 0.8) for t in last) / 3, abs=1e-5)
    assert found["l1"] == pytest.approx(sum(moved[-1]) / 3, abs=1e-4)
    assert found["reached"] == pytest.approx(100 * sum(abs(t - 0.8) <= 0.01 for t in last) / 3)
    rounded = [[float(v > 0.5) for v in row] for row in run.last.tolist()]
    assert found["satisfied"] == pytest.approx(100 * sum(truth_of("godel", cnf, row) for row in rounded) / 3)
    settled = 0
    for row in range(3):
        settled += max([k + 1 for k, truths in enumerate(path) if abs(truths[row] - last[row]) > 0.01], default=0)
    assert found["settled"] == pytest.approx(settled / 3)
    for k in CURVE:
        if k <= 30:
            at = min(k, len(path) - 1)
            assert found[f"truth@{k}"] == pytest.approx(sum(path[at]) / 3, abs=1e-5)
            assert found[f"l1@{k}"] == pytest.approx(sum(moved[at]) / 3, abs=1e-4)
        else:
            assert f"truth@{k}" not in found


@pytest.mark.parametrize("method", ["restarts", "hybrid", "guarantee"])
def test_extra_methods_satisfy_more(method: str) -> None:
    (cnf,) = formulas(1, 91)
    config = SatConfig("product", method, times=20, passes=100)  # type: ignore[arg-type]
    plain, more = measure(SatConfig("product"), [cnf], 3), measure(config, [cnf], 3)
    assert more["satisfied"] >= plain["satisfied"] and 0 <= more["truth"] <= 1
    assert method != "guarantee" or more["satisfied"] == 100


@pytest.mark.parametrize("method", ["refine", "adam"])
def test_formulas_are_refined_together_as_alone(method: str) -> None:
    config = SatConfig("lukasiewicz", method, schedule=0.1, beta=0.1, clauses=30, vectors=4, passes=40)  # type: ignore[arg-type]
    three = formulas(3, 30)
    together = measure(config, three, 2)
    generator = torch.Generator().manual_seed(2)
    total = dict.fromkeys(together, 0.0)
    for cnf in three:
        x = torch.rand(4, 20, generator=generator)
        layer = Refine(cnf, "lukasiewicz", schedule=0.1, max_steps=40, patience=40)
        adam = GradientRefine(layer, beta=0.1, steps=40, joint=True, freeze=False)
        alone = adam.run(x) if method == "adam" else layer.run(x)
        total["truth"] += float(layer.truth(alone.last).mean()) / 3
        total["l1"] += float((alone.last - x).abs().sum(1).mean()) / 3
        total["satisfied"] += 100 * float(layer.satisfied(alone.last).float().mean()) / 3
    for name in ("truth", "l1", "satisfied"):
        assert together[name] == pytest.approx(total[name], abs=1e-3), name


def test_metrics_are_means_and_runs_go_on(tmp_path: Path) -> None:
    config = SatConfig(clauses=20, steps=3, formulas=2, vectors=2)
    whole = SAT.train(config, tmp_path / "whole", seed=1, data=None, progress=False)
    six = formulas(6, 20)
    single = [measure(config, six[2 * i : 2 * i + 2], 1000 + i) for i in range(3)]
    for name, value in whole.metrics.items():
        assert value == pytest.approx(sum(one[name] for one in single) / 3, abs=1e-9), name
    assert set(whole.prefix) == {name for name in whole.metrics if "@" not in name}
    # the same in two parts: the sums are part of the state
    SAT.train(replace(config, steps=2), tmp_path / "part", seed=1, data=None, progress=False)
    (tmp_path / "part" / "run.json").write_bytes((tmp_path / "whole" / "run.json").read_bytes())
    again = SAT.train(config, tmp_path / "part", seed=1, data=None, progress=False)
    assert again.metrics == whole.metrics
    assert Run.open(tmp_path / "part").metrics() == Run.open(tmp_path / "whole").metrics()


def test_satlib_files_are_taken_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "uf20-91"
    folder.mkdir()
    for number, cnf in zip((1, 10, 2), formulas(3, 91), strict=True):
        (folder / f"uf20-0{number}.cnf").write_text(write_dimacs(cnf) + "%\n0\n")
    config = SatConfig(clauses=20, steps=1, formulas=2, vectors=2)
    own = SAT.train(config, tmp_path / "own", seed=0, data=None, progress=False)
    given = SAT.train(replace(config, satlib=True), tmp_path / "given", seed=0, data=folder, progress=False)
    assert given.metrics == own.metrics
    with pytest.raises(DataError, match="name the folder with --data"):
        SAT.train(replace(config, satlib=True), tmp_path / "x", seed=0, data=None, progress=False)
    with pytest.raises(DataError, match="generates its formulas"):
        SAT.train(config, tmp_path / "y", seed=0, data=folder, progress=False)
    with pytest.raises(DataError, match=r"has 3 \.cnf files, expected 50"):
        SAT.train(SatConfig(satlib=True), tmp_path / "z", seed=0, data=folder, progress=False)


def test_configurations_are_checked() -> None:
    with pytest.raises(ConfigError, match="clauses is 92, expected 1 to 91"):
        SatConfig(clauses=92)
    with pytest.raises(ConfigError, match="vectors is 0"):
        SatConfig(vectors=0)


def test_entries_cover_the_chapter() -> None:
    for prefix in ("", "satlib-"):
        for clauses in (91, 20):
            for table, extra in ((f"{prefix}{clauses}-clauses", 3), (f"{prefix}{clauses}-clauses-to-0.3", 0)):
                rows = SAT.select([f"{table}/*"])
                assert len(rows) == 3 * (5 + extra)
                assert {row.config.clauses for row in rows} == {clauses}
                assert {row.config.target for row in rows} == {0.3 if "to" in table else 1.0}
    assert len(SAT.entries) == 2 * 2 * (3 * 8 + 3 * 3 * 5)


def test_command_runs_shows_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "uf20-91"
    folder.mkdir()
    for number, cnf in enumerate(formulas(2, 91), 1):
        (folder / f"uf20-0{number}.cnf").write_text(write_dimacs(cnf))
    common = ["reproduce", "sat", "--steps", "1", "--out", str(tmp_path / "runs"), "--quiet"]
    only = ["--only", "20-clauses/godel-refine-1", "20-clauses/product-refine-1"]
    assert main([*common, *only]) == 0
    assert "20-clauses/product-refine-1" in capsys.readouterr().out
    assert main([*common, *only, "--set", "formulas=2", "--data", str(folder)]) == 0
    found = {result.experiment for result in collect(SAT, tmp_path / "runs")}
    assert "sat/satlib-20-clauses/godel-refine-1+formulas=2" in found and len(found) == 4
    assert (tmp_path / "runs" / "sat" / "figures" / "20-clauses.png").stat().st_size > 10_000
    assert main(["reproduce", "sat", "--list", "--table", "91-clauses"]) == 0
    listed = capsys.readouterr().out
    assert "91-clauses/godel-refine-1 " in listed and "truth 0.016, l1 9.7" in listed


def test_table_of_the_figures(tmp_path: Path) -> None:
    metrics = {"truth": 0.5, "l1": 2.0, "satisfied": 10.0, "settled": 4.0, "reached": 0.0, "best_truth": 0.6}
    curve = {f"{m}@{k}": 0.1 for m in ("truth", "l1") for k in CURVE}
    made = [
        Result(f"sat/91-clauses/{row}", {}, seed, 50, {**metrics, **curve, "l1": 2.0 + seed}, {}, cpu_seconds=3.0)
        for row in ("godel-refine-1", "product-adam-0.1", "godel-refine-1+passes=3")
        for seed in (0, 1)
    ]
    table, picture = draw_sat(made, tmp_path / "figures")
    lines = table.read_text(encoding="utf-8").splitlines()
    assert lines[2:] == [
        "| Gödel | refinement, α = 1 | 0.500 | 2.50 | 4 | 0.0 | 10.0 | 0.600 | 3.0 |",
        "| product | Adam, β = 0.1 | 0.500 | 2.50 | 4 | 0.0 | 10.0 | 0.600 | 3.0 |",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_committed_results_meet_the_figures() -> None:
    """Truth within 0.03 and L₁ within 5 % of what the chapter's figures show, in the mean over seeds."""
    results = collect(SAT, RESULTS)
    compared = 0
    for entry in SAT.entries:
        if entry.published:
            own = [r.metrics for r in results if r.experiment == f"sat/{entry.name}" and r.steps == 5]
            truth, l1 = (sum(metrics[name] for metrics in own) / len(own) for name in ("truth", "l1"))
            assert truth == pytest.approx(entry.published["truth"], abs=0.03), entry.name
            assert l1 == pytest.approx(entry.published["l1"], rel=0.05), entry.name
            compared += 1
    assert compared == 36
