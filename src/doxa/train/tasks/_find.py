"""Finding a task: one that comes with doxa, by its name, or one of the user's own, in a Python file.

Those that come with doxa are about digits of MNIST, of which only what a formula makes of them is told, and about
pictures that are drawn.
"""

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

import torch
from torch import Tensor, nn

from doxa.data import MNIST, digits_task, normalize
from doxa.errors import ConfigError, DataError, DoxaError
from doxa.logic import logits
from doxa.train.runs._config import did_you_mean
from doxa.train.tasks._fit import Fitting
from doxa.train.tasks._shortcuts import DIGITS, DRAWN, digits_drawn
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
    if name not in TASKS:
        raise ConfigError(
            f"there is no task {name!r}; {did_you_mean(name, TASKS)}doxa tasks lists them; a task of your own is a "
            "file, such as my_task.py"
        )
    if name in DRAWN:
        if data is not None:
            raise ConfigError(f"a folder of data is for tasks about digits; the pictures of {name} are drawn")
        return DRAWN[name][1]().task
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
    spec = spec_from_file_location(name, file.absolute())
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
        own = str(file.absolute())  # as Python calls it
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
        what = str(error) if isinstance(error, DoxaError) else f"{type(error).__name__}: {error}"
        if isinstance(error, SyntaxError) and error.filename == own:
            lines, what = [error.lineno], error.msg
        if isinstance(error, TypeError) and "Task.__init__()" in str(error):
            what += f"; the fields of a task are {', '.join(f.name for f in fields(Task))}"
        raise ConfigError(f"{file}:{lines[-1]}: {what}" if lines else f"{file}: {what}") from error


def digit_network() -> nn.Sequential:
    """The network that A-NeSI perceives digits with, from images ``(n, 1, 28, 28)`` to logits ``(n, 10)``.

    >>> network = digit_network()
    >>> network(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    >>> sum(parameter.numel() for parameter in network.parameters())
    44426
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


KNOWLEDGE = Path(__file__).parent / "knowledge"
FITTING = Fitting(steps=2500, learning_rate=1e-3, schedule="cosine", evaluate_every=250)


class _DigitReader(nn.Module):
    """Grey values ``(n, 28, 28)`` to the logits of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.network = digit_network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.network(normalize(images).unsqueeze(1))
        return found


def addition_task(mnist: MNIST) -> Task:
    """Learn digits from the sums of two.

    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> addition_task(MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10))
    Task('addition': 30 rows to train, 30 to test)
    """
    return _told(mnist, "addition", "sum", lambda a, b: a + b, [*range(19)])


def multiplication_task(mnist: MNIST) -> Task:
    """Learn digits from the products of two.

    >>> grey = torch.zeros(60, 28, 28, dtype=torch.uint8)
    >>> len(multiplication_task(MNIST(grey, torch.arange(60) % 10, grey, torch.arange(60) % 10)).values)
    37
    """
    products = sorted({a * b for a in range(10) for b in range(10)})
    return _told(mnist, "multiplication", "product", lambda a, b: a * b, products)


def equation_task(mnist: MNIST) -> Task:
    """Three images x, y, z of which only x + y = z is known: reading all of them as 0 satisfies it.

    Each image is in one equation at most; there are as many as the digits allow when a total is drawn first, uniformly
    from 0..9, and then how it is split.

    >>> grey = torch.zeros(200, 28, 28, dtype=torch.uint8)
    >>> task = equation_task(MNIST(grey, torch.arange(200) % 10, grey, torch.arange(200) % 10))
    >>> digits = task.concepts["digit"]
    >>> bool((digits["equations.left"] + digits["equations.right"] == digits["equations.total"]).all())
    True
    """
    rows = (_equations(mnist.train_images, mnist.labels("train")), _equations(mnist.test_images, mnist.labels("test")))
    return _task("equation", "equations", ("left", "right", "total"), *rows)


def _of_digits(name: str) -> Callable[[MNIST], Task]:
    return lambda mnist: digits_drawn(name, mnist).task


BUILT_IN: dict[str, tuple[str, Callable[[MNIST], Task]]] = {
    "addition": ("Digits of MNIST, learnt from the sums of two.", addition_task),
    "multiplication": ("Digits of MNIST, learnt from the products of two.", multiplication_task),
    "equation": ("Images of digits of which only x + y = z is known; reading zeros is an optimum.", equation_task),
    **{name: (DIGITS[name].about, _of_digits(name)) for name in DIGITS if name != "equation"},
}
"""The tasks about digits by name: what they are about, and how they are made from the digits."""
TASKS = {name: about for name, (about, _) in (BUILT_IN | DRAWN).items()}
"""All tasks that come with doxa, and what they are about."""


Rows = tuple[dict[str, Tensor], Tensor]
"""Fields by name, and the true digits of their images ``(rows, images)``."""


def _told(mnist: MNIST, name: str, field: str, function: Callable[[int, int], int], values: list[int]) -> Task:
    def rows(split: str) -> Rows:
        made = digits_task(mnist, function, digits=2, split=split)  # type: ignore[arg-type]
        left, right = made.images.unbind(1)
        return {"left": left, "right": right, field: made.outputs[:, 0]}, made.digits

    told = _task(name, "pairs", ("left", "right"), rows("train"), rows("test"))
    return replace(told, target=f"pairs.{field}", values=values)


def _task(name: str, rows: str, images: tuple[str, ...], train: Rows, test: Rows) -> Task:
    places = [f"{rows}.{image}" for image in images]
    return Task(
        name,
        BUILT_IN[name][0],
        KNOWLEDGE / f"{name}.doxa",
        lambda: {"digit": logits(_DigitReader())},
        {rows: train[0]},
        {rows: test[0]},
        concepts={"digit": dict(zip(places, test[1].unbind(1), strict=True))},
        images=places,
        fitting=FITTING,
    )


def _equations(images: Tensor, labels: Tensor) -> Rows:
    """Rows of three images whose digits add up, and these digits ``(n, 3)``."""
    random = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(len(labels), generator=random)
    unused = [shuffled[labels[shuffled] == digit].tolist() for digit in range(10)]
    totals = torch.randint(10, (len(labels),), generator=random).tolist()
    shares = torch.rand(len(labels), generator=random).tolist()
    rows: list[list[int]] = []
    for total, share in zip(totals, shares, strict=True):
        left = int(share * (total + 1))
        wanted = (left, total - left, total)
        if all(len(unused[digit]) >= wanted.count(digit) for digit in wanted):
            rows.append([unused[digit].pop() for digit in wanted])
    if not rows:
        raise DataError(f"{len(labels)} digits make no equation; more of them are needed")
    chosen = torch.tensor(rows)
    fields = dict(zip(("left", "right", "total"), images[chosen].unbind(1), strict=True))
    return fields, labels[chosen]
