"""Knowledge from the command line: ``doxa check``, ``show``, ``solve``, ``doctor`` and ``shortcuts``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from doxa._html import page
from doxa.cli._output import Command, Limited, complain, plural, say, say_json
from doxa.errors import BudgetError, ConfigError, DataError

if TYPE_CHECKING:
    from doxa.doctor import Shortcuts as Found
    from doxa.logic import Expr, KnowledgeBase
    from doxa.logic.syntax._diagnostics import Diagnostic


Form = Literal["text", "unicode", "latex", "html", "nnf", "cnf", "dimacs"]
SOLVER = 5.0
"""So many seconds a solver looks for a contradiction in each file."""
MOST_OBJECTS = 1_000_000


@dataclass(frozen=True)
class AboutFiles(Command):
    """A command about knowledge."""

    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")]
    """Knowledge files, which are read as one knowledge base; or a task, by its name or Python file, or a run folder."""


@dataclass(frozen=True)
class Check(Limited):
    """Check knowledge files, each by itself: every mistake with its place and a remedy, or a summary of what it says.

    That no world satisfies a file is a mistake too, where a solver proves it in time.
    """

    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...]")]
    """Knowledge files, Python files of tasks, or run folders."""
    together: bool = False
    """Read all files as one knowledge base."""

    def run(self) -> int:
        each = [self.files] if self.together or len(self.files) < 2 else [(file,) for file in self.files]
        seconds = SOLVER if self.limit is None else min(SOLVER, self.limit)
        checked = [(files, *_diagnosed(files, seconds)) for files in each]
        wrong = any(d.severity == "error" for _, _, diagnostics in checked for d in diagnostics)
        if self.json:
            documents = [self._document(kb, diagnostics) for _, kb, diagnostics in checked]
            named = [
                {"file": str(files[0]), **document} for (files, *_), document in zip(checked, documents, strict=True)
            ]
            say_json(documents[0] if len(documents) == 1 else {"ok": not wrong, "files": named})
            return int(wrong)
        for files, kb, diagnostics in checked:
            if len(checked) > 1:
                say(str(files[0]), "bold")
            self._tell(kb, diagnostics)
        return int(wrong)

    @staticmethod
    def _document(kb: KnowledgeBase | None, diagnostics: tuple[Diagnostic, ...]) -> dict[str, Any]:
        ok = all(d.severity != "error" for d in diagnostics)
        return {"ok": ok, "diagnostics": [_diagnostic_json(d) for d in diagnostics]} | (
            {} if kb is None else _summary(kb)
        )

    @staticmethod
    def _tell(kb: KnowledgeBase | None, diagnostics: tuple[Diagnostic, ...]) -> None:
        errors = [d for d in diagnostics if d.severity == "error"]
        for diagnostic in diagnostics:
            complain(diagnostic)
        if kb is None or errors:
            say(plural(len(errors), "error"), "bold red")
            return
        _describe(kb)
        say(f"fine, with {plural(len(diagnostics), 'warning')}" if diagnostics else "fine", "bold green")


@dataclass(frozen=True)
class Grounding(AboutFiles, Limited):
    """A command that puts objects in the place of variables."""

    domain: Annotated[tuple[str, ...], arg(metavar="SORT=N [SORT=N ...]")] = ()
    """How many objects an open sort has, such as Image=3."""
    entries: int = 2_000_000
    """Give up before more than so many entries are made; the default fits into 4 GB of memory."""


@dataclass(frozen=True)
class Show(Grounding):
    """Print knowledge in another form."""

    form: Annotated[Form, arg(name="as")] = "text"
    """text, unicode and latex print it as written, html as a page in colours; nnf, cnf and dimacs ground it over its
    finite sorts first."""

    def run(self) -> int:
        kb = load_files(self.files)
        if self.form == "html":
            text = page(", ".join(file.name for file in self.files), kb._repr_html_())
        else:
            text = _shown(kb, self.form, _domains(self.domain, kb), self.entries)
        return self.answer({"form": self.form, "text": text}, text)


@dataclass(frozen=True)
class Solve(Grounding):
    """Find a world in which all axioms and facts hold, count such worlds, or ask whether something follows."""

    given: Annotated[tuple[str, ...], arg(metavar="FORMULA [FORMULA ...]")] = ()
    """Formulas that are taken to hold as well, each in quotes."""
    count: bool = False
    """Count the models."""
    models: int = 1_000_000
    """With --count, where they are counted one by one: at most this many."""
    entails: Annotated[str | None, arg(metavar="FORMULA")] = None
    """A formula: does it hold in every model?"""

    def run(self) -> int:
        from doxa.logic import count, entails, parse_formula, satisfiable

        kb = load_files(self.files)
        given = [parse_formula(text, kb) for text in self.given]
        over: Any = {"given": given, "domains": _domains(self.domain, kb), "entries": self.entries}
        over["seconds"] = self.limit
        if self.count:
            if self.models < 1:
                raise ConfigError(f"--models is {self.models}, expected at least 1")
            found = count(kb, limit=self.models, **over)
            return self.answer({"models": found}, plural(found, "model"))
        if self.entails is not None:
            answer = entails(kb, parse_formula(self.entails, kb), **over)
            document = {
                "entailed": answer.holds,
                "vacuous": answer.vacuous,
                "counter_model": _by_name(answer.counter_model),
            }
            if answer.counter_model is None:
                return self.answer(document, str(answer), "bold green")
            return self._answer(document, "does not follow; a counter-model:", "bold red", answer.counter_model)
        model = satisfiable(kb, **over)
        document = {"satisfiable": model is not None, "model": _by_name(model)}
        if model is None:
            weighted = [a.name for a in kb.axioms if a.weight != 1.0 or a.learnable]
            told = f"\nthat takes axioms with a weight as if they must hold: {', '.join(weighted)}" if weighted else ""
            return self.answer(document, f"unsatisfiable: no world makes all of this true{told}", "bold red")
        return self._answer(document, "satisfiable", "bold green", model)

    def _answer(self, document: Any, text: str, style: str, model: dict[Expr, bool]) -> int:
        """An answer with a model below it."""
        self.answer(document, text, style)
        if not self.json:
            true = [str(atom) for atom, truth in model.items() if truth]
            say("\n  ".join([f"true ({len(true):,} of {len(model):,} atoms):", *true]))
        return 0


def load_files(files: tuple[Path, ...]) -> KnowledgeBase:
    """The knowledge base; its warnings go to standard error, its errors are raised together."""
    from doxa.logic.syntax._diagnostics import raise_all

    kb, diagnostics = _diagnosed(files)
    raise_all([d for d in diagnostics if d.severity == "error"])
    for diagnostic in diagnostics:
        complain(diagnostic)
    assert kb is not None  # there were no errors
    return kb


def _diagnosed(files: tuple[Path, ...], seconds: float = 0.0) -> tuple[KnowledgeBase | None, tuple[Diagnostic, ...]]:
    """What files say, and all there is to say about that; a task or a run stands for the knowledge in it.

    For so many seconds a solver may look for a contradiction.
    """
    from doxa.logic.text._parser import diagnose

    if not files:
        raise ConfigError("no knowledge file is given; name at least one, such as rules.doxa")
    for file in files:
        if file.suffix in (".cnf", ".dimacs") and file.is_file():
            remedy = f"in Python, doxa.logic.satisfiable(doxa.logic.read_dimacs({str(file)!r})) solves them"
            raise ConfigError(f"{file} is named as a file of clauses (DIMACS) is, not of knowledge; {remedy}")
    whole = [file for file in files if _is_task(file) or (file / "run.json").is_file()]
    if whole and len(files) > 1:
        raise ConfigError(f"{whole[0]} has knowledge of its own; name it alone")
    if not whole:
        return diagnose(*files, seconds=seconds)
    return _of_task(files[0], seconds) if _is_task(files[0]) else _of_run(files[0], seconds)


def _is_task(file: Path) -> bool:
    """Is it the Python file of a task, or the name of one that comes with doxa?"""
    if file.suffix == ".py":
        return True
    if file.suffix or file.exists():
        return False
    from doxa.train.tasks._find import TASKS

    return str(file) in TASKS


def _worlds(source: Path) -> Mapping[str, Any] | None:
    """The worlds that occur in a task, where it says which."""
    from doxa.train import find_task

    return find_task(source).worlds if _is_task(source) else None


def _of_task(file: Path, seconds: float) -> tuple[KnowledgeBase | None, tuple[Diagnostic, ...]]:
    import warnings

    from doxa.errors import KnowledgeError, KnowledgeWarning
    from doxa.logic.check._lint import lint
    from doxa.logic.syntax._diagnostics import Diagnostic
    from doxa.logic.text._parser import diagnose
    from doxa.train import find_task

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KnowledgeWarning)  # they are told below
            task = find_task(file)
    except ConfigError as error:
        if not isinstance(mistakes := error.__cause__, KnowledgeError):
            raise
        found = tuple([d for d in mistakes.diagnostics if isinstance(d, Diagnostic)])
        return None, found or (Diagnostic("error", str(error)),)
    if isinstance(task.knowledge, Path):
        return diagnose(task.knowledge, seconds=seconds)
    return task.kb, (*lint(task.kb), *_contradiction(task.kb, seconds))


def _contradiction(kb: KnowledgeBase, seconds: float) -> list[Diagnostic]:
    from doxa.logic.sat._contradiction import contradiction

    found = contradiction(kb, seconds=seconds) if seconds > 0 else None
    return [] if found is None else [found]


def _of_run(folder: Path, seconds: float) -> tuple[KnowledgeBase | None, tuple[Diagnostic, ...]]:
    from doxa.logic import parse
    from doxa.logic.check._lint import lint
    from doxa.train import Run

    text = Run.open(folder).config.get("knowledge")
    if not isinstance(text, str):
        raise ConfigError(f"{folder} is a run without knowledge; name a run of doxa train, or a knowledge file")
    kb = parse(text, warn=False)
    return kb, (*lint(kb), *_contradiction(kb, seconds))


def _domains(options: tuple[str, ...], kb: KnowledgeBase) -> dict[str, int]:
    """``Image=3`` as the number of objects of an open sort."""
    sizes = {}
    for option in options:
        name, _, size = option.partition("=")
        sort = kb.signature.sorts.get(name)
        if sort is None or not sort.is_open or not (size.isascii() and size.isdigit()):
            known = [s.name for s in kb.signature.sorts.values() if s.is_open and s.name not in ("Int", "Real")]
            raise ConfigError(
                f"--domain {option}: wanted an open sort and a number; open are {', '.join(known) or 'none'}"
            )
        if len(size) > 9 or int(size) > MOST_OBJECTS:
            raise BudgetError("domain", f"--domain {option}: wanted at most {MOST_OBJECTS:,} objects")
        sizes[name] = int(size)
    return sizes


def _shown(kb: KnowledgeBase, form: Form, domains: dict[str, int], entries: int) -> str:
    from doxa.logic import ground, to_cnf, write_dimacs
    from doxa.logic.sat._nnf import to_nnf

    written = {"text": kb.__str__, "unicode": kb.unicode, "latex": kb.latex}
    if form in written:
        return written[form]()
    propositional = ground(kb, domains=domains, entries=entries)
    if form == "nnf":
        return str(to_nnf(propositional.theory, entries=entries))
    cnf = to_cnf(propositional.theory, atoms=propositional.atoms, entries=entries)
    if form == "dimacs":
        return write_dimacs(cnf).rstrip("\n")
    return "\n".join(_clause(clause, cnf.atoms) for clause in cnf.clauses)


def _clause(clause: list[int], atoms: tuple[Expr | None, ...]) -> str:
    def literal(number: int) -> str:
        atom = atoms[abs(number) - 1]
        name = f"#{abs(number)}" if atom is None else str(atom)  # a variable that the encoding added
        return name if number > 0 else f"!{name}"

    return " | ".join(literal(number) for number in clause) or "false"


def _diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    found = {key: getattr(diagnostic, key) for key in ("severity", "message", "remedy")}
    span = diagnostic.span
    return found | ({} if span is None else {"file": span.file, "line": span.line, "column": span.column})


def _summary(kb: KnowledgeBase) -> dict[str, Any]:
    signature = kb.signature
    return {
        "sorts": [name for name in signature.sorts if name not in ("Int", "Real")],
        "constants": list(signature.constants),
        "predicates": {p.name: [s.name for s in p.sorts] for p in signature.predicates.values()},
        "functions": {f.name: [*[s.name for s in f.sorts], f.result.name] for f in signature.functions.values()},
        "data": {r.name: list(r.field_names) for r in signature.rows.values()},
        "axioms": [
            {"name": a.name, "weight": None if a.learnable else a.weight, "formula": str(a.formula)} for a in kb.axioms
        ],
        "facts": len(kb.facts),
    }


def _describe(kb: KnowledgeBase) -> None:
    summary = _summary(kb)
    for thing in ("sorts", "constants", "predicates", "functions", "data"):
        if names := list(summary[thing]):
            shown = ", ".join(names[:12]) + (f", ... ({len(names):,} in all)" if len(names) > 12 else "")
            say(f"{thing:<11} {shown}")
    say(f"{'axioms':<11} {len(kb.axioms):,}")
    for axiom in kb.axioms[:12]:
        say(f"  {axiom}"[:160])
    if len(kb.axioms) > 12:
        say("  ...")
    if kb.facts:
        say(f"{'facts':<11} {len(kb.facts):,}")


def _by_name(model: dict[Expr, bool] | None) -> dict[str, bool] | None:
    return None if model is None else {str(atom): truth for atom, truth in model.items()}


@dataclass(frozen=True)
class Doctor(Limited):
    """Examine knowledge files, or a run: gradients that vanish or go one way, vacuous axioms, saturated networks."""

    sources: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...] | RUN")]
    """Knowledge files, which are read as one knowledge base; or a task, by its name or Python file, or a run folder."""
    logic: str | None = None
    """The fuzzy logic to examine it under, such as product or godel:r; by default the run's own, or product."""
    quantifier: Literal["mean", "logic"] = "mean"
    """What the loss of an axiom is: the mean of the losses of its instances, or the logic's own ∀."""
    draws: int = 64
    """On so many random worlds gradients are tried."""
    objects: int | None = None
    """So many objects of each open sort, and rows of each kind; by default a batch of the task, or 64 if they fit."""

    def run(self) -> int:
        from doxa.doctor import examine, examine_run

        folders = [source for source in self.sources if source.is_dir()]
        if folders and len(self.sources) > 1:
            raise ConfigError("one run is examined at a time; name one run folder, or knowledge files")
        if folders:
            found = examine_run(folders[0], self.logic, seconds=self.limit)
        else:
            found = examine(
                load_files(self.sources),
                self.logic or "product",
                quantifier=self.quantifier,
                draws=self.draws,
                objects=self.objects if self.objects is not None else self._batch_size(),
                seconds=self.limit,
            )
        document = {"logic": found.logic, "findings": [asdict(f) for f in found.findings], "notes": found.notes}
        return self.answer(document, str(found))

    def _batch_size(self) -> int | None:
        """Rows in a batch of the task; None for knowledge files."""
        if self.sources[0].suffix != ".py":
            return None
        from doxa.train import find_task

        return find_task(self.sources[0]).batch_size


@dataclass(frozen=True)
class Shortcuts(AboutFiles, Limited):
    """Count the maps of concepts under which all that the knowledge says stays true: wrong concepts, right answers."""

    data: Annotated[Path | None, arg(metavar="CSV")] = None
    """A table with the true concepts of rows that occur, under a header such as left,right; by default those that a
    task names, or all that can."""
    show: int = 5
    """How many of the simplest shortcuts to list."""
    maps: int = 10_000
    """List no more maps than this to count them."""
    joint: int = 64
    """Concepts of one object with more joint values than this are mapped one by one."""
    worlds: int = 1 << 20
    """Go through no more worlds than this."""

    def run(self) -> int:
        from doxa.doctor import LIMITS, knowledge_shortcuts
        from doxa.doctor._knowledge import known_symbols

        if self.worlds < 1:
            raise ConfigError(f"--worlds is {self.worlds}, expected at least 1")
        kb = load_files(self.files)
        found = knowledge_shortcuts(
            kb,
            data=_worlds(self.files[0]) if self.data is None else _columns(self.data),
            symbols=known_symbols(kb, _bound(self.files[0])),
            show=self.show,
            limit=self.maps,
            joint=self.joint,
            budget=replace(LIMITS, worlds=self.worlds),
            seconds=self.limit,
        )
        return self.answer(shortcuts_json(found), str(found))


def _bound(source: Path) -> Mapping[str, Any]:
    """What a task, or that of a run, binds; nothing for a knowledge file."""
    from doxa.train import find_task, open_run

    if _is_task(source):
        return find_task(source).symbols()
    try:
        return open_run(source)[1].symbols() if source.is_dir() else {}
    except ConfigError as error:
        say(f"all symbols are taken to be learned, for the task is not known: {error}", "yellow", stream=sys.stderr)
        return {}


def _columns(file: Path) -> dict[str, list[Any]]:
    """The columns of a table by their names; whole numbers are numbers."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = [line for line in csv.reader(stream, skipinitialspace=True) if any(cell.strip() for cell in line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: this is no table of text in UTF-8 ({error}); save it as one") from None
    if len(lines) < 2:
        raise DataError(f"{file}: wanted a header and at least one row below it, got {len(lines)} lines")
    header = [name.strip() for name in lines[0]]
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise DataError(f"{file}:{number}: wanted {len(header)} cells, as the header has, got {len(line)}")
    cells = zip(*lines[1:], strict=True)
    return {name: [_value(cell.strip()) for cell in column] for name, column in zip(header, cells, strict=True)}


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell


def shortcuts_json(found: Found) -> dict[str, Any]:
    """What was found, for machines."""
    return {
        "maps": found.count,
        "complete": found.complete,
        "assumption": found.assumption,
        "undecided": found.undecided,
        "worlds": found.worlds,
        "concepts": {c.name: list(c.variables) for c in found.concepts},
        "simplest": [
            {
                c.name: {c.values[v]: c.values[u] for v, u in moves.items()}
                for c, moves in zip(found.concepts, shortcut.moves, strict=True)
                if moves
            }
            for shortcut in found.simplest
        ],
        "labels": [{"concept": c.name, "value": c.values[v]} for c, v in found.labelled],
        "outputs": found.outputs,
        "unmixable": found.unmixable,
    }
