"""Settings of the whole suite, and the CPU time that each room's tests take."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parent.parent
ROOM_SECONDS = 2 * 120.0  # two minutes on two cores
CPU = "cpu_seconds"

# Tests run in two processes side by side; more threads in each would only get in each other's way.
torch.set_num_threads(1)


STARTED = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    """CPU time of this process and of the children it has waited for: it does not grow when the machine is busy."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[STARTED] = _cpu_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note what a test has cost, in its last report; the reports travel from the worker processes to the first one."""
    if call.when == "teardown" and STARTED in item.stash:
        item.user_properties.append((CPU, _cpu_seconds() - item.stash[STARTED]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what each room's tests cost. It never fails a run: how fast a machine is says nothing of the code."""
    if seconds := _seconds_per_room(config):
        terminalreporter.section(f"CPU time per room; two minutes on two cores are {ROOM_SECONDS:.0f} s")
        for room, total in sorted(seconds.items(), key=lambda item: -item[1]):
            over = "  too much: make these faster, or slow" if total > ROOM_SECONDS else ""
            terminalreporter.line(f"{total:7.1f} s  {room}{over}")


def _seconds_per_room(config: pytest.Config) -> dict[str, float]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    seconds: dict[str, float] = defaultdict(float)
    if reporter is not None and config.getoption("markexpr", "") == "not slow":
        for report in [r for reports in reporter.stats.values() for r in reports]:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                seconds[_room(report.nodeid)] += dict(report.user_properties).get(CPU, 0.0)
    return seconds


def _room(nodeid: str) -> str:
    """``tests/logic/test_x.py::y`` and ``src/doxa/logic/_x.py::y`` both belong to ``logic``."""
    parts = nodeid.split("::")[0].split("/")
    inner = parts[2:] if parts[0] == "src" else parts[1:]
    return inner[0] if len(inner) > 1 else "top level"
