"""The entry point: choose the command, run it, and turn expected errors into one message and an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Union

import tyro
from tyro.conf import OmitSubcommandPrefixes, subcommand

from doxa.cli._knowledge import Check, Doctor, Shortcuts, Show, Solve
from doxa.cli._new import Lsp, New
from doxa.cli._operators import Estimators, Operators
from doxa.cli._output import say
from doxa.cli._play import Play
from doxa.cli._reproduce import (
    Addition,
    Aggregates,
    All,
    Counting,
    Everything,
    Figures,
    Graphs,
    Grid,
    Hmc,
    Kinship,
    Paths,
    Preferences,
    Road,
    Same,
    Sat,
    Scale,
    Sudoku,
    Sum9,
    Times,
    Vae,
)
from doxa.cli._reproduce import (
    Shortcuts as ShortcutTasks,
)
from doxa.cli._tasks import Compare, Evaluate, Report, Tasks, Train
from doxa.cli._worlds import Ask, Certify
from doxa.errors import BudgetError, ConfigError, DoxaError, visible


@dataclass(frozen=True)
class Version:
    """Print the version of doxa."""

    def run(self) -> int:
        from doxa._version import __version__

        say(__version__)
        return 0


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment again, or a part of it, and set the results beside what was published."""

    experiment: OmitSubcommandPrefixes[
        Annotated[Same, subcommand("same")]
        | Annotated[Sum9, subcommand("sum9")]
        | Annotated[Sat, subcommand("sat")]
        | Annotated[Addition, subcommand("addition")]
        | Annotated[Vae, subcommand("vae")]
        | Annotated[Paths, subcommand("paths")]
        | Annotated[Sudoku, subcommand("sudoku")]
        | Annotated[Hmc, subcommand("hmc")]
        | Annotated[Preferences, subcommand("preferences")]
        | Annotated[Grid, subcommand("grid")]
        | Annotated[Counting, subcommand("counting")]
        | Annotated[Road, subcommand("road")]
        | Annotated[ShortcutTasks, subcommand("shortcuts")]
        | Annotated[Aggregates, subcommand("aggregates")]
        | Annotated[Graphs, subcommand("graphs")]
        | Annotated[Kinship, subcommand("kinship")]
        | Annotated[Scale, subcommand("scale")]
        | Annotated[Times, subcommand("times")]
        | Annotated[All, subcommand("all")]
        | Annotated[Everything, subcommand("list")]
    ] = field(default_factory=Everything)
    list: bool = False
    """List every experiment with its configurations, and run nothing."""

    def run(self) -> int:
        if self.list and isinstance(self.experiment, All):
            return Everything(json=self.experiment.json).run()
        if isinstance(self.experiment, All | Everything):
            return self.experiment.run()
        return replace(self.experiment, list=self.list or self.experiment.list).run()


COMMANDS = (
    *(Check, Show, Solve, New, Tasks, Train, Evaluate, Compare, Report, Reproduce),
    *(Operators, Figures, Estimators, Shortcuts, Ask, Certify, Doctor, Play, Lsp, Version),
)
EXAMPLES = """
doxa check rules.doxa
doxa check *.doxa
doxa check declarations.doxa rules.doxa --together
doxa show rules.doxa --as unicode
doxa show rules.doxa --as html > rules.html
doxa show sudoku.doxa --as dimacs > sudoku.cnf
doxa solve lights.doxa --given "shows(north, green)"
doxa solve sudoku4.doxa --count
doxa solve lights.doxa --entails "drive(north) -> !drive(west)"
doxa new my_task
doxa tasks
doxa train addition --semantics exact
doxa train evenodd --semantics exact --concepts ask.csv
doxa train my_task.py --semantics fuzzy:godel --steps 500 --set learning_rate=0.01
doxa evaluate runs/addition/exact/2000-steps/seed-0
doxa evaluate --together runs/xor/exact/600-steps/seed-0 runs/xor/exact/600-steps/seed-1
doxa compare addition --semantics exact,fuzzy,refined,sampled,amortized
doxa report runs/addition/exact/2000-steps/seed-0
doxa report runs/addition/*/2000-steps/seed-0
doxa reproduce --list
doxa reproduce all --jobs 2 --budget 5h
doxa reproduce same --table implications --steps 14000 --seeds 0 1
doxa reproduce vae --estimator loo@5 --steps 4690
doxa reproduce sat --table 91-clauses --data uf20-91
doxa reproduce addition --reasoner refine --seeds 0 1 2
doxa reproduce paths --only terrain-12/rloo terrain-12/imle --seeds 0 1
doxa reproduce addition --reasoner amortized --variant predict --model scan -N 15 --seeds 0 1
doxa reproduce sudoku --reasoner exact amortized --seeds 0 1 2
doxa reproduce hmc --only "cellcycle/*" --data hmc
doxa operators --kind implications
doxa operators goguen --plot goguen.png
doxa figures fuzzy --only success_rates reichenbach_path
doxa figures explanations --run runs/addition/amortized/scan-prune-n-1/5000-steps/seed-0
doxa estimators
doxa estimators LeaveOneOut
doxa shortcuts addition.doxa
doxa shortcuts addition.doxa --data digits.csv --show 20
doxa shortcuts my_task.py
doxa shortcuts evenodd
doxa ask evenodd --budget 10 --out ask.csv
doxa ask runs/evenodd/exact/600-steps/seed-0
doxa certify evenodd --concepts ask.csv
doxa doctor rules.doxa --logic godel
doxa doctor runs/addition/fuzzy/2000-steps/seed-0
doxa play rules.doxa
doxa lsp
doxa version
"""
"""Of each command; each is named as its class is, in lower case."""


def _subcommand(command: type) -> Any:
    name = command.__name__.lower()
    examples = "\n".join(f"  {line}" for line in EXAMPLES.splitlines() if line.split()[1:2] == [name])
    return Annotated[command, subcommand(name, description=f"{command.__doc__}\n\nexamples:\n{examples}")]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; errors that are expected become one line and an exit code."""
    try:
        commands: Any = Union[tuple(map(_subcommand, COMMANDS))]  # noqa: UP007
        about = "Background knowledge for neural networks."
        parse = partial(
            _parsed, tyro.cli, commands, prog="doxa", description=about, config=(tyro.conf.FlagCreatePairsOff,)
        )
        given = list(sys.argv[1:] if arguments is None else arguments)
        if (shown := [*map(visible, given)]) != given:
            parse(args=shown)  # first, for what is wrong is repeated on the terminal
        command: Any = parse(args=given)
        with warnings.catch_warnings(), time_limit(getattr(command, "limit", None)):
            warnings.showwarning = lambda message, *_: say(f"warning: {message}", "yellow", stream=sys.stderr)
            return _run(command)
    except DoxaError as error:
        message = str(error).replace("raise seconds", "raise --limit")
    except BrokenPipeError:  # the reader of a pipe went away: not our mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except MemoryError:
        message = "there is not enough memory for this; make the problem smaller"
    say(message, "red", stream=sys.stderr)
    return 1


def _parsed(parse: Any, commands: Any, *, args: Sequence[str], **how: Any) -> Any:
    """The command that the arguments name; below the report of what is wrong, the name that may have been meant."""
    try:
        return parse(commands, args=args, **how)
    except SystemExit as error:
        if error.code and (meant := _meant(*args[:2])):
            say(meant, "red", stream=sys.stderr)
        raise


def _meant(command: str = "", experiment: str = "") -> str:
    """Which command or experiment may have been meant by a name that is none; empty if both are known."""
    from doxa.logic.syntax._diagnostics import did_you_mean
    from doxa.reproduce._queue import EXPERIMENTS

    kinds = {"command": (command, [c.__name__.lower() for c in COMMANDS])}
    if command == "reproduce":
        kinds["experiment"] = (experiment, [*(e.name for e in EXPERIMENTS), "all", "list"])
    for kind, (name, known) in kinds.items():
        if name and not name.startswith("-") and name not in known:
            remedy = did_you_mean(name, known, f"there are {', '.join(known)}")
            return f"there is no {kind} {visible(name)!r}; {remedy}"
    return ""


def _run(command: Any) -> int:
    try:
        return int(command.run())
    except SystemExit as error:
        if error.__cause__ is not None:  # it has said why
            raise
        raise ConfigError(f"the program of a task ended this command: sys.exit({error.code!r})") from error
    except (DoxaError, OSError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and "allocate memory" in str(error):
            raise MemoryError from error
        where, notes = _users_lines(error), getattr(error, "__notes__", [])
        if not where and not notes:  # the mistake is ours, and its place is worth a traceback
            raise
        raise ConfigError("\n".join([*where, f"{type(error).__name__}: {error}", *notes])) from error


def _users_lines(error: Exception) -> list[str]:
    """Where an error came from, in files that are neither of doxa nor of a library; the last few."""
    libraries = (str(Path(__file__).parents[1]), *sysconfig.get_paths().values(), "<")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(libraries)]
    here = f"{Path.cwd()}{os.sep}"
    return [f"{frame.filename.removeprefix(here)}:{frame.lineno}: in {frame.name}" for frame in frames[-5:]]


def _collecting(frame: FrameType | None) -> bool:
    """Whether a frame is, or was called by, one of the callbacks of the garbage collector."""
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None and frame.f_code not in callbacks:
        frame = frame.f_back
    return frame is not None


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise an error in the main thread a second after the limit, and again each second if it was caught.

    In that second a command may stop by itself, and say what it knows by then.
    """
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return
    if not 0 < seconds < 1e9:
        raise ConfigError(f"--limit is {seconds}, expected a number of seconds above 0")

    def stop(number: int, frame: FrameType | None) -> None:
        if _collecting(frame):  # where an error is printed and lost; the next second comes
            return
        raise BudgetError("limit", f"could not decide within {seconds:g} seconds; allow more with --limit")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1.0, 1.0)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is stop:  # and not that of Ctrl-C
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
