"""Put every result in ``benchmarks/results`` into one table: printed, and written to ``benchmarks/README.md``."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

from harness import RESULTS, packages_of, use_of

HEAD = """# Benchmarks

Ratios, not times: each row sets doxa beside a peer or beside what an expert would write by hand, measured interleaved
in one process with one thread (the harness, `harness.py`, says how). `make bench` runs all of them and writes this
page; one of them runs with `.bench-peers/bin/python benchmarks/NAME.py`. The spread is the first and third quartile of
the measured ratios. Other processes may share the machine: they disturb times, and ratios little.

A peer is used as its documentation shows (*recommended*), or as one would use it who knows how it works inside
(*expert*). *By hand* is code that uses no peer and is written for the one problem that is measured. A ratio against
recommended use says what a user gains who writes the textbook's lines; only one against an expert or against code by
hand says how good the implementation is. Rows without a peer set doxa beside itself or a limit.

Versions are pinned in `benchmarks/peers.txt`. {absent}

Table written on {date}, {machine}, Python {python}, torch {torch}. {undated}

| benchmark | what | against | ratio | spread | goal | met |
| --- | --- | --- | ---: | --- | --- | --- |
"""

ABSENT = """Two peers are not measured, since they could not be installed: DeepLog (`pydeeplog` 5.0.0) needs Python 3.12
and a KLay older than 0.1, where KLay 0.1.2 is measured here; Scallop (`scallopy`) has no wheel in the package index."""


def against(row: dict[str, Any]) -> str:
    """The peers of a row with their versions, and how they are used."""
    packages = packages_of(row["name"])
    versions = row.get("versions", {})
    peers = [f"{name} {versions[name]}" if name in versions else name for name in packages]
    use = row.get("use") or use_of(row["name"])
    return ", ".join(peers if use == "by hand" and peers else [*peers, *([use] if use else [])])


def main() -> None:
    lines, missed, undated = [], 0, []
    for file in sorted(RESULTS.glob("*.json")):
        stored = json.loads(file.read_text(encoding="utf-8"))
        if any("versions" not in row for row in stored):
            undated.append(f"`{file.stem}`")
        for row in stored:
            sign = "at least" if row["better"] == "higher" else "at most"
            spread = "{:.3g} to {:.3g}".format(*row["spread"]) if "spread" in row else ""
            note = f" ({row['note']})" if row.get("note") else ""
            missed += not row["met"]
            lines.append(
                f"| {file.stem} | {row['name']}{note} | {against(row)} | {row['ratio']:.3g} | {spread} "
                f"| {sign} {row['goal']:g} | {'yes' if row['met'] else '**no**'} |"
            )
    machine = f"{platform.system()} {platform.machine()}, one thread of {os.cpu_count()} cores"
    head = HEAD.format(
        absent=ABSENT,
        date=date.today(),
        machine=machine,
        python=platform.python_version(),
        torch=torch.__version__.split("+")[0],
        undated=f"Measured before versions were kept: {', '.join(undated)}." if undated else "",
    )
    tail = f"\n{len(lines) - missed} of {len(lines)} goals are met.\n"
    Path(__file__).with_name("README.md").write_text(head + "\n".join(lines) + "\n" + tail, encoding="utf-8")
    print("\n".join(lines))
    print(f"{len(lines) - missed} of {len(lines)} goals met")


if __name__ == "__main__":
    main()
