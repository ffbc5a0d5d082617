"""Doors open downwards only: no room imports a room above it, and no module imports itself in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "doxa"

# What each room may know, as ARCHITECTURE.md says.
BASE = {"errors", "_cache", "_files", "_html", "_native", "_numerics", "_version"}
ENGINES = {"fuzzy", "refine", "stochastic", "exact", "amortized"}
MAY_KNOW: dict[str, set[str]] = {
    "logic": set(),
    "problem": {"logic"},
    "fuzzy": {"logic", "problem"},
    "exact": {"logic", "problem"},
    "stochastic": {"logic", "problem"},
    "refine": {"logic", "problem", "fuzzy"},
    "amortized": {"logic", "problem", "stochastic", "exact"},
    "pose": {"logic", "problem"},
    "semantics": {"logic", "problem", "pose"} | ENGINES,
    "data": {"logic", "problem"},
}
UPPER = ("nn", "lightning", "train", "sklearn", "doctor", "reproduce", "play", "editor", "cli")
for upper in UPPER:  # each knows what is above it in the table
    MAY_KNOW[upper] = set(MAY_KNOW)


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(f): f for f in SOURCE.rglob("*.py")}


def imports(file: Path, *, at_import_time: bool) -> set[str]:
    """The doxa modules a file imports: everywhere in it, or only when it is itself imported."""
    found: set[str] = set()
    stack: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while stack:
        node = stack.pop()
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if lazy and at_import_time:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}: write imports in full, not relative"
            base = node.module or ""
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names}
        stack.extend(ast.iter_child_nodes(node))
    return {name for name in found if name == "doxa" or name.startswith("doxa.")}


def room(module: str) -> str:
    return [*module.split("."), ""][1]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_room_imports_a_room_above_it(name: str) -> None:
    own = room(name)
    if own in ("", "__main__"):  # the package's own face opens every room, lazily
        return
    for imported in imports(MODULES[name], at_import_time=False):
        other = room(imported)
        assert other == own or other in BASE | MAY_KNOW.get(own, set()), f"{name} may not import {imported}"


def test_every_room_is_in_the_table() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    assert rooms <= set(MAY_KNOW), rooms - set(MAY_KNOW)


def test_no_import_cycles() -> None:
    """Repeatedly take away modules that import nobody; what is left goes in circles. Lazy imports count as well."""
    graph = {
        name: {i for i in imports(file, at_import_time=False) if i in MODULES and i != name}
        for name, file in MODULES.items()
    }
    while leaves := {name for name, below in graph.items() if not below}:
        graph = {name: below - leaves for name, below in graph.items() if name not in leaves}
    assert not graph, f"these import each other in a circle: {sorted(graph)}"


@pytest.mark.parametrize(
    ("name", "unneeded"),
    [
        ("Fuzzy", {"exact", "pose", "stochastic", "amortized", "refine", "train", "doctor"}),
        ("Exact", {"fuzzy", "stochastic", "amortized", "refine", "train", "doctor"}),
        ("Sampled", {"fuzzy", "exact", "amortized", "refine", "train", "doctor"}),
    ],
)
def test_a_semantics_loads_what_it_needs(name: str, unneeded: set[str]) -> None:
    code = f"import doxa, sys; doxa.{name}(); print(*[m.split('.')[1] for m in sys.modules if m.startswith('doxa.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not unneeded & set(done.stdout.split())


def test_the_checks_can_fail(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("import doxa.cli\ndef f():\n    from doxa import logic\n", encoding="utf-8")
    assert imports(file, at_import_time=True) == {"doxa.cli"}
    assert imports(file, at_import_time=False) == {"doxa.cli", "doxa.logic"}
