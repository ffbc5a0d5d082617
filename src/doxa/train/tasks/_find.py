"""Finding a task: one that comes with doxa, by its name, or one of the user's own, in a Python file."""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import wraps
from importlib import invalidate_caches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from doxa.data import MNIST
from doxa.errors import ConfigError, DoxaError
from doxa.train.runs._config import did_you_mean
from doxa.train.tasks._builtin import BUILT_IN
from doxa.train.tasks._task import Task

HOW = "define `task = doxa.Task(...)` in it, or a function `task` that returns one"


def find_task(source: str | Path, *, data: str | Path | None = None, progress: bool = True) -> Task:
    """A task by its name, or from a Python file that defines ``task``: a `Task`, or a function that returns one.

    Args:
        source: the name of a task that comes with doxa, or a path that ends in ``.py``.
        data: a folder with MNIST digits of the user's own, for a task that comes with doxa.
        progress: show what is fetched.

    Raises:
        ConfigError: there is no such task, or the file does not define one; the message says what is wrong in it.

    >>> find_task("adition")
    Traceback (most recent call last):
    doxa.errors.ConfigError: there is no task 'adition'; did you mean 'addition'? doxa tasks lists them; a task of...
    """
    name = str(source)
    if name.endswith(".py"):
        if data is not None:
            raise ConfigError(f"a folder of data is for tasks that come with doxa; {name} has data of its own")
        return _from_file(Path(source))
    if name not in BUILT_IN:
        raise ConfigError(
            f"there is no task {name!r}; {did_you_mean(name, BUILT_IN)}doxa tasks lists them; a task of your own is a "
            "file, such as my_task.py"
        )
    return BUILT_IN[name][1](MNIST.load(data, verify=data is None, progress=progress))


def _from_file(file: Path) -> Task:
    if not file.is_file():
        raise ConfigError(f"there is no file {file}")
    siblings = _Siblings(file.resolve().parent)
    with siblings:
        found = _defined(file)
    supervised = None if found.supervised is None else siblings.within(found.supervised)
    return replace(found, symbols=siblings.within(found.symbols), supervised=supervised)


def _defined(file: Path) -> Task:
    module = _run(file)
    if not hasattr(module, "task"):
        names = [name for name, thing in vars(module).items() if isinstance(thing, Task)]
        hint = f"; it calls one {names[0]!r}" if names else ""
        raise ConfigError(f"{file} has no `task`{hint}: {HOW}")
    found = module.task
    if callable(found):
        with _explained(file):
            found = found()
    if not isinstance(found, Task):
        raise ConfigError(f"`task` in {file} is of type {type(found).__name__}: {HOW}")
    return found


def _run(file: Path) -> ModuleType:
    """The file as a module, under a name of its own, so that two files with one name do not meet."""
    name = f"_doxa_task_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles in it look it up
    try:
        with _explained(file):
            spec.loader.exec_module(module)
    except ConfigError:
        del sys.modules[name]
        raise
    return module


class _Siblings:
    """Lets a task file import the modules beside it.

    Within the context the folder is on the path, and its modules hide those of the same name from elsewhere; afterwards
    all is as before. So two task files whose siblings have equal names do not meet.
    """

    SHARED = frozenset({"doxa", "torch", "numpy"}) | sys.stdlib_module_names

    def __init__(self, folder: Path) -> None:
        self.folder, self.depth = folder, 0
        self.own: dict[str, ModuleType] = {}
        files = (path.stem if path.suffix == ".py" else path.name for path in folder.iterdir())
        self.names = {name for name in files if name.isidentifier()} - self.SHARED

    def _pop(self) -> dict[str, ModuleType]:
        """Take the modules that are called like siblings out of the imported ones."""
        found = [name for name in sys.modules if name.partition(".")[0] in self.names]
        return {name: sys.modules.pop(name) for name in found}

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.path, self.hidden = sys.path[:], self._pop()
            sys.path.insert(0, str(self.folder))
            sys.modules.update(self.own)
            invalidate_caches()

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            sys.path[:] = self.path
            self.own = self._pop()
            sys.modules.update(self.hidden)

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which may import siblings when it is called."""

        @wraps(function)
        def call(*arguments: Any) -> Any:
            with self:
                return function(*arguments)

        return call


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Say what went wrong in a file, and in which line; to end the program is wrong too."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        what = str(error) if isinstance(error, DoxaError) else f"{type(error).__name__}: {error}"
        if isinstance(error, SyntaxError) and error.filename == str(file):
            lines, what = [error.lineno], error.msg
        if isinstance(error, TypeError) and "Task.__init__()" in str(error):
            what += f"; the fields of a task are {', '.join(f.name for f in fields(Task))}"
        raise ConfigError(f"{file}:{lines[-1]}: {what}" if lines else f"{file}: {what}") from error
