"""The small task as a fixture, for tests that train it in this process."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="session")
def small_task() -> ModuleType:
    spec = importlib.util.spec_from_file_location("small_task", Path(__file__).with_name("small_task.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_task"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as Python handles it, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
