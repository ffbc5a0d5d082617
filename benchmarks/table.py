"""Put every result in ``benchmarks/results`` into one table: printed, and written to ``benchmarks/README.md``."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from pathlib import Path

import torch

from harness import RESULTS

HEAD = """# Benchmarks

Ratios, not times: each row sets doxa beside a peer or beside what an expert would write by hand, measured interleaved
in one process with one thread (the harness, `harness.py`, says how). `make bench` runs all of them and writes this
page; one of them runs with `python benchmarks/NAME.py`. The spread is the first and
third quartile of the measured ratios.

Measured on {date}, {machine}, Python {python}, torch {torch}.

| benchmark | what | ratio | spread | goal | met |
| --- | --- | ---: | --- | --- | --- |
"""


def main() -> None:
    lines, missed = [], 0
    for file in sorted(RESULTS.glob("*.json")):
        for row in json.loads(file.read_text(encoding="utf-8")):
            sign = "at least" if row["better"] == "higher" else "at most"
            spread = "{:.3g} to {:.3g}".format(*row["spread"]) if "spread" in row else ""
            note = f" ({row['note']})" if row.get("note") else ""
            missed += not row["met"]
            lines.append(
                f"| {file.stem} | {row['name']}{note} | {row['ratio']:.3g} | {spread} | {sign} {row['goal']:g} "
                f"| {'yes' if row['met'] else '**no**'} |"
            )
    machine = f"{platform.system()} {platform.machine()}, one thread of {os.cpu_count()} cores"
    head = HEAD.format(
        date=date.today(), machine=machine, python=platform.python_version(), torch=torch.__version__.split("+")[0]
    )
    Path(__file__).with_name("README.md").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    print(f"{len(lines) - missed} of {len(lines)} goals met")


if __name__ == "__main__":
    main()
