"""Where things stand: source texts, their statements, and trees that know their places."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from pathlib import Path

from doxa.logic.check._lint import Located
from doxa.logic.syntax._define import Define
from doxa.logic.syntax._diagnostics import Diagnostic, Span
from doxa.logic.syntax._kb import Axiom
from doxa.logic.syntax._tree import Name
from doxa.logic.text._builder import FactItem, LocatedBuilder, Mistaken
from doxa.logic.text._grammar import Unexpected, expected, run, table
from doxa.logic.text._lexer import Token, located_tokens
from doxa.logic.text._remedies import explain


class Source:
    """A text, the file it came from if any, and the folder that relative paths in it start from."""

    def __init__(self, text: str, file: str | None = None) -> None:
        self.text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # the byte order mark of some editors
        self.file = file
        self.folder = Path(file).parent if file is not None else Path()

    @cached_property
    def path(self) -> Path | None:
        """The file, by the name that it has from wherever it is included."""
        try:
            return None if self.file is None else Path(self.file).resolve()
        except (OSError, RuntimeError, ValueError):  # no such file can exist
            return None

    @cached_property
    def statements(self) -> list[list[Token]]:
        """The tokens of every statement, the last of each being its end."""
        found: list[list[Token]] = [[]]
        for token in located_tokens(self.text):
            if token.kind == "END":
                end = found[-1][-1].end
                found[-1].append(Token("END", None, "", end, end))
                found.append([])
            else:
                found[-1].append(token)
        return found[:-1]

    @cached_property
    def _lines(self) -> list[int]:
        """Where each line begins."""
        starts = [0]
        while (at := self.text.find("\n", starts[-1])) >= 0:
            starts.append(at + 1)
        return starts

    def span(self, start: int, end: int) -> Span:
        """The place of a piece of the text; of several lines, the first."""
        line = bisect_right(self._lines, start) - 1
        first = self._lines[line]
        text = self.text[first : self._lines[line + 1] - 1 if line + 1 < len(self._lines) else len(self.text)]
        stop = max(min(end - first, len(text)), start - first + 1)
        return Span(self.file, line + 1, start - first + 1, stop + 1, text)

    def word(self, statement: int, name: str, last: bool = False) -> Span:
        """Where a name first (or last) stands in a statement; the whole statement when it does not."""
        found = [t for t in self.statements[statement] if isinstance(t.value, Name) and t.value.name == name]
        if not found:
            return self.statement(statement)
        token = found[-1 if last else 0]
        return self.span(token.start, token.end)

    def statement(self, number: int) -> Span:
        """Where a statement stands."""
        tokens = self.statements[number]
        return self.span(tokens[0].start, tokens[-1].end)

    def about(self, message: str, tokens: list[Token], start: int, end: int) -> Span:
        """Of a piece of a statement, the first name that a message quotes; the whole piece if it quotes none."""
        if "'" in message:
            at = bisect_left(tokens, start, key=lambda token: token.start)
            while at < len(tokens) and tokens[at].start < end:
                token = tokens[at]
                if isinstance(token.value, Name) and repr(token.value.name) in message:
                    return self.span(token.start, token.end)
                at += 1
        return self.span(start, end)

    def diagnose(self, statement: int) -> Diagnostic:
        """What is wrong in a statement that does not parse."""
        tokens = self.statements[statement]
        try:
            run(table(), tokens, LocatedBuilder(), placed=True)
        except Unexpected as wrong:
            token, message, remedy = explain(tokens, tokens.index(wrong.token), expected(table(), wrong.states))
            return Diagnostic("error", message, remedy, self.span(token.start, token.end))
        except Mistaken as wrong:
            message = str(wrong.error).partition("; ")[0]
            return Diagnostic.of(wrong.error, self.about(message, tokens, wrong.start, wrong.end))
        raise AssertionError("the statement parses")

    def locate(self, statement: int) -> Located:
        """The formula of a statement, built anew, each node an object of its own, and where each stands.

        Of a node's words, the first that ``about`` quotes is meant, if it quotes one.
        """
        tokens, builder = self.statements[statement], LocatedBuilder()
        run(table(), tokens, builder, placed=True)
        item = builder.items[0]
        assert isinstance(item, Axiom | FactItem | Define)  # nothing else has a formula
        whole = tokens[0].start, tokens[-1].end
        tree = item if isinstance(item, Define) else item.formula
        return tree, lambda node, about: self.about(about, tokens, *builder.spans.get(id(node), whole))
