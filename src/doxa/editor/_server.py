"""A language server: what is wrong in a knowledge file, what its names are, and what may be written next."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from doxa._version import __version__
from doxa.errors import ConfigError
from doxa.logic.syntax._diagnostics import Diagnostic
from doxa.logic.syntax._kb import KnowledgeBase, declaration_text
from doxa.logic.syntax._marks import Mark, declarations_in, declared_names, marks
from doxa.logic.syntax._words import RESERVED, SOFT_KIND
from doxa.logic.text._parser import diagnose_text

SOLVER = 2.0
"""So many seconds a solver looks for a contradiction in a file that was opened or saved."""
_KINDS: dict[Mark, str] = {
    "sort": "Class", "constant": "EnumMember", "predicate": "Function", "function": "Function", "data": "Struct",
    "variable": "Variable", "field": "Field",
}  # fmt: skip


class Document:
    """What is known about a file that is open: its text, and what it says.

    >>> document = Document("pred rain\\nrain -> wet")
    >>> document.diagnose()[0].message
    "unknown proposition 'wet'"
    >>> document.hover(len("pred rain\\nra"))
    'pred rain'
    >>> [name for name, kind, detail in document.completions() if kind == "predicate"]
    ['rain']
    """

    def __init__(self, text: str, file: str | None = None) -> None:
        self.text, self.file = text, file
        self.kb: KnowledgeBase | None = None
        """What it said when it was last right."""

    def diagnose(self, seconds: float = 0.0) -> tuple[Diagnostic, ...]:
        """All mistakes and doubts; with seconds, a solver is asked for a contradiction too."""
        kb, found = diagnose_text(self.text, self.file, seconds=seconds)
        self.kb = kb if kb is not None else self.kb
        return found

    def hover(self, place: int) -> str | None:
        """The declaration of the name at a place."""
        for kind, word, start in marks(self.text):
            if start <= place <= start + len(word) and kind in _KINDS and kind != "field":
                found = self._declarations().get(word)
                if found is not None:
                    return found
                return f"{word}: a variable" if kind == "variable" else None
        return None

    def completions(self) -> list[tuple[str, str, str]]:
        """Names and keywords: what may be written, what kind it is, and its declaration."""
        details, kinds = self._declarations(), dict(declared_names(self.text))
        if self.kb is not None:  # what other files declare
            for kind, names in _names(self.kb).items():
                kinds |= {name: kind for name in names if name not in kinds}
        named = [(name, str(kind), details.get(name, "")) for name, kind in kinds.items()]
        words = sorted({*RESERVED, *SOFT_KIND})
        return [*named, *[(word, "keyword", "") for word in words]]

    def _declarations(self) -> Mapping[str, str]:
        known = {} if self.kb is None else {d.name: declaration_text(d) for d in self.kb.signature}
        return {**known, **declarations_in(self.text)}


def _names(kb: KnowledgeBase) -> dict[Mark, list[str]]:
    signature = kb.signature
    return {
        "sort": list(signature.sorts),
        "constant": list(signature.constants),
        "predicate": list(signature.predicates),
        "function": list(signature.functions),
        "data": list(signature.rows),
    }


def serve() -> None:
    """Serve an editor on standard input and output until it hangs up: what ``doxa lsp`` does.

    >>> serve.__name__
    'serve'
    """
    make_server().start_io()


def make_server() -> Any:
    """The server, before it is started."""
    try:
        types, lsp = import_module("lsprotocol.types"), import_module("pygls.lsp.server")
    except ImportError as error:
        raise ConfigError("the language server needs pygls: pip install 'doxa[editor]', then start again") from error
    server = lsp.LanguageServer("doxa", __version__)
    documents: dict[str, Document] = {}

    def publish(uri: str, seconds: float = 0.0) -> None:
        source = server.workspace.get_text_document(uri)
        document = documents.setdefault(uri, Document(source.source, _path(uri)))
        document.text = source.source
        found = [_diagnostic(types, source, document, d) for d in document.diagnose(seconds)]
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=found))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)  # type: ignore[untyped-decorator]
    def opened(params: Any) -> None:
        publish(params.text_document.uri, SOLVER)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)  # type: ignore[untyped-decorator]
    def changed(params: Any) -> None:
        publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)  # type: ignore[untyped-decorator]
    def saved(params: Any) -> None:
        publish(params.text_document.uri, SOLVER)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)  # type: ignore[untyped-decorator]
    def closed(params: Any) -> None:
        documents.pop(params.text_document.uri, None)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION)  # type: ignore[untyped-decorator]
    def complete(params: Any) -> Any:
        document = documents.get(params.text_document.uri) or Document("")
        items = []
        for name, kind, detail in document.completions():
            shown = getattr(types.CompletionItemKind, _KINDS.get(kind, "Keyword"))  # type: ignore[call-overload]
            items.append(types.CompletionItem(label=name, kind=shown, detail=detail or None))
        return types.CompletionList(is_incomplete=False, items=items)

    @server.feature(types.TEXT_DOCUMENT_HOVER)  # type: ignore[untyped-decorator]
    def hover(params: Any) -> Any:
        source = server.workspace.get_text_document(params.text_document.uri)
        document = documents.get(params.text_document.uri)
        told = None if document is None else document.hover(source.offset_at_position(params.position))
        if told is None:
            return None
        value = f"```doxa\n{told}\n```"
        return types.Hover(contents=types.MarkupContent(kind=types.MarkupKind.Markdown, value=value))

    return server


def _diagnostic(types: Any, source: Any, document: Document, found: Diagnostic) -> Any:
    span, message = found.span, found.message
    if span is not None and span.file != document.file:  # it is in a file that this one includes
        message = f"{span.location}: {message}"
        span = None
    line, first, last = (0, 0, 1) if span is None else (span.line - 1, span.column - 1, span.end_column - 1)
    place = types.Range(types.Position(line, first), types.Position(line, last))
    severity = types.DiagnosticSeverity.Error if found.severity == "error" else types.DiagnosticSeverity.Warning
    return types.Diagnostic(
        range=source.position_codec.range_to_client_units(source.lines, place),
        message=message if found.remedy is None else f"{message}\n{found.remedy}",
        severity=severity,
        source="doxa",
    )


def _path(uri: str) -> str | None:
    parts = urlsplit(uri)
    return str(Path(unquote(parts.path))) if parts.scheme == "file" else None
