"""The language server, as an editor speaks to it: a real client, over the server's standard input and output."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

types = pytest.importorskip("lsprotocol.types")
from pygls.lsp.client import LanguageClient  # noqa: E402

TEXT = """sort Bird = {owl, hen}
pred flies(Bird)
include "more.doxa"

[rule] forall x: Bird. fliess(x) -> "größe"(x)
"""
FINE = TEXT.replace("fliess", "flies")


class Editor:
    """An editor with one file open."""

    def __init__(self, client: Any, file: Path) -> None:
        self.client, self.uri, self.version = client, file.as_uri(), 1
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    async def open(self, text: str) -> list[Any]:
        item = types.TextDocumentItem(uri=self.uri, language_id="doxa", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        return await self.diagnostics()

    async def change(self, text: str) -> list[Any]:
        self.version += 1
        document = types.VersionedTextDocumentIdentifier(uri=self.uri, version=self.version)
        whole = types.TextDocumentContentChangeWholeDocument(text=text)
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(text_document=document, content_changes=[whole])
        )
        return await self.diagnostics()

    async def save(self) -> list[Any]:
        document = types.TextDocumentIdentifier(uri=self.uri)
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(text_document=document))
        return await self.diagnostics()

    async def diagnostics(self) -> list[Any]:
        return list((await asyncio.wait_for(self.heard.get(), 60)).diagnostics)

    async def hover(self, line: int, character: int) -> str | None:
        document = types.TextDocumentIdentifier(uri=self.uri)
        place = types.Position(line, character)
        found = await self.client.text_document_hover_async(types.HoverParams(text_document=document, position=place))
        return None if found is None else str(found.contents.value)

    async def completions(self) -> dict[str, Any]:
        document = types.TextDocumentIdentifier(uri=self.uri)
        asked = types.CompletionParams(text_document=document, position=types.Position(3, 0))
        found = await self.client.text_document_completion_async(asked)
        return {item.label: item for item in found.items}


def with_editor(file: Path, story: Any) -> None:
    async def play() -> None:
        client = LanguageClient("test", "1")
        await client.start_io(sys.executable, "-m", "doxa", "lsp")
        editor = Editor(client, file)

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def heard(params: Any) -> None:
            editor.heard.put_nowait(params)

        asked = types.InitializeParams(capabilities=types.ClientCapabilities())
        answer = await client.initialize_async(asked)
        assert answer.server_info.name == "doxa" and answer.capabilities.hover_provider
        client.initialized(types.InitializedParams())
        await story(editor)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    asyncio.run(play())


def test_an_editor_hears_of_mistakes_names_and_declarations(tmp_path: Path) -> None:
    (tmp_path / "more.doxa").write_text('pred "größe"(Bird)\n', encoding="utf-8")
    file = tmp_path / "birds.doxa"
    file.write_text(TEXT, encoding="utf-8")

    async def story(editor: Editor) -> None:
        (wrong,) = await editor.open(TEXT)
        assert "unknown predicate or function 'fliess'" in wrong.message and "did you mean 'flies'?" in wrong.message
        assert wrong.severity == types.DiagnosticSeverity.Error
        start, end = wrong.range.start, wrong.range.end
        assert TEXT.splitlines()[start.line][start.character : end.character] == "fliess"
        assert await editor.hover(4, 25) is None  # it is not declared
        assert await editor.change(FINE) == []
        assert await editor.hover(4, 25) == "```doxa\npred flies(Bird)\n```"
        assert await editor.hover(4, 18) == "```doxa\nsort Bird = {owl, hen}\n```"
        assert await editor.hover(0, 14) == "```doxa\nsort Bird = {owl, hen}\n```"
        assert "variable" in str(await editor.hover(4, 14))
        assert await editor.hover(3, 0) is None
        found = await editor.completions()
        assert found["flies"].detail == "pred flies(Bird)" and found["größe"].detail == "pred größe(Bird)"
        assert found["flies"].kind == types.CompletionItemKind.Function and "forall" in found and "closed pred" in found
        await editor.change(FINE + "fact !flies(owl)\n[all] forall x: Bird. flies(x)\n")
        (contradiction,) = await editor.save()
        assert "no world makes all of this true" in contradiction.message and contradiction.range.start.line == 5

    with_editor(file, story)


UNFINISHED = ["", "\n\n", "sort", 'pred "', "😀 pred p\np ->", "[", "forall x: ", 'include "none.doxa"', "}{", "p :="]


def test_text_that_is_not_finished_is_answered(tmp_path: Path) -> None:
    async def story(editor: Editor) -> None:
        await editor.open(UNFINISHED[0])
        for text in UNFINISHED:
            await editor.change(text)
            assert "forall" in await editor.completions()
            told = await editor.hover(0, 0)
            assert told is None or "variable" in told
        assert await editor.change("pred p\np") == []

    with_editor(tmp_path / "unfinished.doxa", story)


def test_places_count_as_editors_do(tmp_path: Path) -> None:
    """Columns are in UTF-16, where some letters are two."""

    async def story(editor: Editor) -> None:
        text = 'pred "😀😀"; "😀😀" -> wett'
        (wrong,) = await editor.open(text)
        units = text.encode("utf-16-le")
        piece = units[2 * wrong.range.start.character : 2 * wrong.range.end.character]
        assert piece.decode("utf-16-le") == "wett"

    with_editor(tmp_path / "wide.doxa", story)
