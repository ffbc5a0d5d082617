"""Facts in bulk: one row of a CSV file for each, one column for each argument, and optionally one for the label.

A last column that the header calls ``weight`` holds the weights of the facts.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from doxa.errors import KnowledgeError
from doxa.logic.syntax._diagnostics import Diagnostic, Span, did_you_mean
from doxa.logic.syntax._kb import Fact
from doxa.logic.syntax._node import make
from doxa.logic.syntax._symbols import INT, REAL, Constant, Predicate, Signature, Sort
from doxa.logic.syntax._tree import Call, Expr, Name, Number

_LABELS = {"true": True, "1": True, "false": False, "0": False}


@dataclass
class CsvFacts:
    """Reads the facts of one predicate; names of open sorts that are not known yet are declared as constants.

    What is wrong in the file is collected in ``diagnostics``.
    """

    predicate: Predicate
    signature: Signature
    file: str
    share: Callable[[Expr], Expr]
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def read(self, text: str, header: bool = False) -> list[Fact]:
        """The facts of the text of a file."""
        self._lines = text.split("\n")
        self._terms: list[dict[str, Expr]] = [{} for _ in self.predicate.sorts]
        facts: list[Fact] = []
        reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
        first, weighted = True, False
        try:
            for row in reader:
                cells = [cell.strip() for cell in row]
                if not any(cells):
                    continue
                if first and header:
                    weighted = len(cells) > len(self.predicate.sorts) and cells[-1].lower() == "weight"
                elif (fact := self._fact(cells, reader.line_num, weighted, first)) is not None:
                    facts.append(fact)
                first = False
        except csv.Error as error:
            self._complain(reader.line_num, None, f"not CSV: {error}; quote cells with double quotation marks")
        return facts

    def _fact(self, cells: list[str], line: int, weighted: bool, first: bool) -> Fact | None:
        """The fact of one row, or None when something is wrong in it."""
        label, weight = True, 1.0
        if weighted:
            cell = cells.pop()
            weight = _number(cell)
            if not (math.isfinite(weight) and weight >= 0):
                message = f"{cell!r} is not a weight; write a number that is finite and not negative, such as 0.5"
                self._complain(line, cell, message)
                return None
        arity = len(self.predicate.sorts)
        if len(cells) == arity + 1 and cells[-1].lower() in _LABELS:
            label = _LABELS[cells.pop().lower()]
        if len(cells) != arity:
            self._complain(line, None, self._miscounted(cells))
            return None
        arguments: list[Expr] = []
        for cell, sort, known in zip(cells, self.predicate.sorts, self._terms, strict=True):
            try:
                if cell not in known:
                    known[cell] = self.share(self._term(cell, sort))
                arguments.append(known[cell])
            except KnowledgeError as error:
                hint = "; or end the statement with 'header', if the first line names the columns" if first else ""
                self._complain(line, cell, f"{error}{hint}")
        if len(arguments) != arity:
            return None
        atom = self.share(make(Call, (self.predicate.name, False), tuple(arguments)))
        return Fact(cast(Call, atom), label, weight)

    def _term(self, cell: str, sort: Sort) -> Expr:
        """The constant, value or number that a cell names; a problem is an error 'what; remedy'."""
        if sort == REAL:
            if not math.isfinite(number := _number(cell)):
                raise KnowledgeError(f"{cell!r} is not a number; write one such as 0.5")
            return Number(number)
        if sort == INT or isinstance(sort.values, range):
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", cell):
                raise KnowledgeError(f"{cell!r} is not an integer; write one such as 3")
            if isinstance(sort.values, range) and int(cell) not in sort.values:
                limits = f"{sort.values[0]}..{sort.values[-1]}"
                raise KnowledgeError(f"{cell} is not in {sort.name}; its values are {limits}")
            return Number(int(cell))
        if sort.values is not None:
            if cell not in sort.values:
                remedy = did_you_mean(cell, sort.values, "its values are listed in its declaration")
                raise KnowledgeError(f"{cell!r} is not a value of sort {sort.name}; {remedy}")
            return Name(cell)
        if not cell:
            raise KnowledgeError("an empty cell; every argument needs a name")
        constant = self.signature.constants.get(cell)
        if constant is None:
            self.signature.add(Constant(cell, sort))  # refuses a name that means something else
        elif constant.sort != sort:
            raise KnowledgeError(
                f"{cell!r} is a constant of sort {constant.sort.name}, not {sort.name}; choose another name"
            )
        return Name(cell)

    def _miscounted(self, cells: list[str]) -> str:
        arity = len(self.predicate.sorts)
        shape = ", ".join([s.name for s in self.predicate.sorts])
        if len(cells) == arity + 1:
            remedy = "the column after the arguments holds true or false (or 1 or 0); weights need a header 'weight'"
            return f"{cells[-1]!r} is not a label; {remedy}"
        return f"{len(cells)} columns, but {self.predicate.name}({shape}) takes {arity} arguments; one column each"

    def _complain(self, line: int, cell: str | None, message: str) -> None:
        shown = self._lines[line - 1].rstrip("\r") if 0 < line <= len(self._lines) else ""
        at = max(shown.find(cell), 0) if cell else 0
        width = len(cell) if cell and shown.find(cell) >= 0 else len(shown)
        span = Span(self.file, line, at + 1, at + 1 + max(width, 1), shown)
        self.diagnostics.append(Diagnostic.of(KnowledgeError(message), span))


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
