"""Every public name exists, is explained, and is shown in an example that runs (the doctests run with the suite)."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import doxa

ROOMS = ["doxa", "doxa.errors"] + [
    f"doxa.{m.name}" for m in pkgutil.iter_modules(doxa.__path__) if m.ispkg and not m.name.startswith("_")
]


def public() -> list[tuple[str, str]]:
    return [(room, name) for room in ROOMS for name in importlib.import_module(room).__all__]


@pytest.mark.parametrize("room", ROOMS)
def test_all_is_sorted_and_complete(room: str) -> None:
    module = importlib.import_module(room)
    assert len(set(module.__all__)) == len(module.__all__)
    assert (module.__doc__ or "").strip(), f"{room} does not say what it is"


@pytest.mark.parametrize(("room", "name"), public())
def test_public_name_has_a_docstring_with_an_example(room: str, name: str) -> None:
    thing = getattr(importlib.import_module(room), name)
    if isinstance(thing, ModuleType) or name == "__version__":
        return
    explained = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    if explained.__module__.split(".")[0] != "doxa":  # a plain value or an alias of types: its room explains it
        return
    docstring = inspect.getdoc(explained) or ""
    assert docstring, f"{room}.{name} has no docstring"
    assert doctest.DocTestParser().get_examples(docstring), f"{room}.{name} has no example"
