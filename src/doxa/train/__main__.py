"""``python -m doxa.train``, the demo: digits are learnt from sums alone, under five ways of reasoning."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from doxa.train.report._report import write_task_report
from doxa.train.runs._steps import clean_exit
from doxa.train.tasks._evaluate import compare_task

SEMANTICS = ("exact", "amortized", "sampled", "refined", "fuzzy")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the table, and say where the report is: ``doxa compare addition``, with nothing to choose."""
    parser = argparse.ArgumentParser(
        prog="python -m doxa.train",
        description="Learn MNIST digits from sums alone: exact, amortised, sampled, refined and fuzzy.",
    )
    parser.add_argument("--out", default="runs/demo", help="the folder for runs and report; unfinished runs go on")
    parser.add_argument("--data", help="a folder with four idx files, to use in place of the published MNIST")
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time; by default one for each core")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="change how all are trained: steps=1000")
    options = parser.parse_args(arguments)
    with clean_exit():
        table, paths = compare_task(
            "addition", SEMANTICS, out=options.out, settings=options.settings, data=options.data, jobs=options.jobs
        )
        table.show()
        print(f"report: {write_task_report(paths, Path(options.out))}")
    if table.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
