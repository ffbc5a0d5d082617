"""What the site has besides its pages: the course, the help of every command, and KaTeX, served by the site itself."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

COURSE = Path(__file__).parents[2] / "course"


def on_files(files: Files, config: Any) -> Files:
    """Add pages that are made from other files."""
    for notebook in sorted(COURSE.glob("*.ipynb")):
        files.append(File.generated(config, f"learn/{notebook.stem}.md", content=lesson(notebook)))
    files.append(File.generated(config, "cli.md", content=commands()))
    return files


def on_post_build(config: Any) -> None:
    """Copy KaTeX, so that no formula needs another server."""
    package = find_spec("sphinxcontrib.katex")
    assert package is not None and package.origin is not None
    code = Path(package.origin).with_name("katex.min.js").read_bytes()
    target = Path(config["site_dir"]) / "javascripts" / "katex.min.js"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(code)


def lesson(notebook: Path) -> str:
    """A notebook as a page: its text and its code; solutions fold out."""
    parts = []
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"(?<!\$)\$([^$\n]+)\$(?!\$)", r"\\(\1\\)", source))
        elif source.startswith("mo.accordion"):
            parts.append('??? note "Solutions"\n' + "\n".join(f"    - {text}" for text in _solutions(source)))
        else:
            parts.append(f"```python\n{source}\n```")
    name = notebook.stem
    title, *rest = parts[1:2] + parts[:1] + parts[2:]  # the question first, then what it imports
    how = f"*Open it with sliders: `marimo edit course/{name}.py`, or `course/{name}.ipynb` in Jupyter.*"
    return "\n\n".join([title, how, *rest])


def _solutions(source: str) -> list[str]:
    """The texts in a cell of solutions."""
    (call,) = ast.parse(source).body
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call) and isinstance(call.value.args[0], ast.Dict)
    told = call.value.args[0]
    texts = [ast.literal_eval(value.args[0]) for value in told.values if isinstance(value, ast.Call)]
    return [f"**{ast.literal_eval(name)}.** {text}" for name, text in zip(told.keys, texts, strict=True) if name]


def commands() -> str:
    """The help of every command."""
    os.environ |= {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    from doxa.cli._main import COMMANDS, run

    parts = ["# The command line", "Every command says the same with `--help`."]
    for command in COMMANDS:
        name, said = command.__name__.lower(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            run([name, "--help"])
        parts += [f"## doxa {name}", f"```text\n{said.getvalue().strip()}\n```"]
    return "\n\n".join(parts)
