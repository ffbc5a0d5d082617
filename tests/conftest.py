"""Settings of the whole suite, and the time each room's tests take."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parent.parent
ROOM_SECONDS = 120.0
CORES = 2

# Tests run in two processes side by side; more threads in each would only get in each other's way.
torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what each room's tests cost on two cores."""
    if seconds := _seconds_per_room(config):
        terminalreporter.section("time per room, on two cores")
        for room, total in sorted(seconds.items(), key=lambda item: -item[1]):
            over = "  over two minutes: make these faster" if total > ROOM_SECONDS else ""
            terminalreporter.line(f"{total:7.1f} s  {room}{over}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a full session in which a room's tests take more than their share."""
    if exitstatus == 0 and any(total > ROOM_SECONDS for total in _seconds_per_room(session.config).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _seconds_per_room(config: pytest.Config) -> dict[str, float]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    seconds: dict[str, float] = defaultdict(float)
    if reporter is not None and config.getoption("markexpr", "") == "not slow":
        for report in [r for reports in reporter.stats.values() for r in reports]:
            if isinstance(report, pytest.TestReport):
                seconds[_room(report.nodeid)] += report.duration / CORES
    return seconds


def _room(nodeid: str) -> str:
    """``tests/logic/test_x.py::y`` and ``src/doxa/logic/_x.py::y`` both belong to ``logic``."""
    parts = nodeid.split("::")[0].split("/")
    inner = parts[2:] if parts[0] == "src" else parts[1:]
    return inner[0] if len(inner) > 1 else "top level"
