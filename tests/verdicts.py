"""How many verdicts the audits of the judges go through, and how many are false: ``python tests/verdicts.py``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

AUDITS = ["stochastic/test_judge.py", "doctor/test_judges.py", "doctor/test_ragged_shortcuts.py"]
JUDGES = {
    "check_unbiased": "estimators and costs",
    "check_tape": "estimators and costs",
    "shortcuts": "problems and knowledge bases",
    "knowledge_shortcuts": "problems and knowledge bases",
    "examine": "axioms under logics",
}


class Verdicts:
    """Counts what the judges return in tests that pass; a test that fails has a false verdict."""

    def __init__(self) -> None:
        self.right: Counter[str] = Counter()
        self.here: Counter[str] = Counter()
        self.false: list[str] = []

    def counted(self, judge: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @wraps(judge)
        def judged(*args: Any, **kwargs: Any) -> Any:
            verdict = judge(*args, **kwargs)
            self.here[kind] += 1
            return verdict

        return judged

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for module in {item.module for item in items if isinstance(item, pytest.Function)}:
            for name, kind in JUDGES.items():
                if hasattr(module, name):
                    setattr(module, name, self.counted(getattr(module, name), kind))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            if report.passed:
                self.right += self.here
            else:
                self.false.append(report.nodeid)
            self.here.clear()


def main() -> int:
    verdicts = Verdicts()
    files = [str(Path(__file__).parent / name) for name in AUDITS]
    code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *files], plugins=[verdicts])
    parts = ", ".join(f"{count} of {kind}" for kind, count in sorted(verdicts.right.items()))
    print(f"{verdicts.right.total()} verdicts audited ({parts}); {len(verdicts.false)} tests with a false one")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
