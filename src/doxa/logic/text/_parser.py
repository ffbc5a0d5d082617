"""From text and files to knowledge bases.

A text is parsed in one go, without positions. Only when something is wrong is it read again, statement by statement,
with positions, so that every message says where. Declarations may come after their use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from doxa.errors import KnowledgeError
from doxa.logic.check._lint import warn_all
from doxa.logic.syntax._diagnostics import Diagnostic
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._tree import Expr

if TYPE_CHECKING:
    from doxa.logic.text._reader import Reader


def parse(text: str, *, base: KnowledgeBase | None = None, file: str | None = None, warn: bool = True) -> KnowledgeBase:
    """The knowledge base that a text describes.

    Args:
        text: statements, one a line or separated by semicolons.
        base: knowledge that the text adds to, and whose declarations it may use.
        file: where the text came from, for messages and as the place that ``include`` and ``facts`` start from.
        warn: warn of what is legal but probably not meant.

    Raises:
        KnowledgeError: with one diagnostic for every independent mistake.

    >>> kb = parse('''
    ...     sort Person
    ...     pred friends(Person, Person)
    ...     [symmetry] forall x, y: Person. friends(x, y) -> friends(y, x)
    ... ''')
    >>> kb.axioms[0].name
    'symmetry'
    >>> len(parse("[everyone] forall x, y: Person. friends(x, y)", base=kb))
    2
    >>> parse("pred rain; rain -> wett; pred wet")
    Traceback (most recent call last):
    doxa.errors.KnowledgeError: <text>:1:20: error: unknown proposition 'wett'
        pred rain; rain -> wett; pred wet
                           ^^^^
        did you mean 'wet'?
    """
    reader = _reader(base)
    kb = reader.read_text(text, file)
    if warn:  # only of what the text says
        warn_all([w for w in reader.warnings(kb) if base is None or w.span is not None])
    return kb


def load(*paths: str | os.PathLike[str], warn: bool = True) -> KnowledgeBase:
    """The knowledge base that one or more files describe together.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "weather.doxa").write_text("pred rain, wet\\n[wet] rain -> wet")
    ...     kb = load(Path(folder, "weather.doxa"))
    >>> print(kb["wet"])
    [wet] rain -> wet
    """
    reader = _reader()
    kb = reader.read_files(paths)
    if warn:
        warn_all(reader.warnings(kb))
    return kb


Diagnosed = tuple[KnowledgeBase | None, tuple[Diagnostic, ...]]


def diagnose(*paths: str | os.PathLike[str], seconds: float = 0.0) -> Diagnosed:
    """Everything there is to say about knowledge files: errors, or the knowledge base and its warnings.

    Args:
        paths: the files.
        seconds: for so long a solver may look for a contradiction, which is told as an error.
    """
    reader = _reader()
    return _diagnosed(reader, lambda: reader.read_files(paths), seconds)


def diagnose_text(text: str, file: str | None = None, *, seconds: float = 0.0) -> Diagnosed:
    """The same about a text, such as that of a file which is being edited."""
    reader = _reader()
    return _diagnosed(reader, lambda: reader.read_text(text, file), seconds)


def _diagnosed(reader: Reader, read: Callable[[], KnowledgeBase], seconds: float) -> Diagnosed:
    try:
        kb = read()
    except KnowledgeError as error:
        return None, tuple([d for d in error.diagnostics if isinstance(d, Diagnostic)])
    found = reader.warnings(kb)
    if seconds > 0:
        from doxa.logic.sat._contradiction import contradiction

        wrong = contradiction(kb, reader, seconds=seconds)
        found = (*found, *([] if wrong is None else [wrong]))
    return kb, found


def _reader(kb: KnowledgeBase | None = None) -> Reader:
    # Loaded when first needed: the lexer and the grammar take a while, and not every program reads text.
    from doxa.logic.text._reader import Reader

    return Reader(kb)


def parse_formula(text: str, kb: KnowledgeBase) -> Expr:
    """A formula in the language of a knowledge base.

    >>> kb = parse("pred rain, wet; rain -> wet")
    >>> parse_formula("!wet -> !rain", kb).unicode()
    '¬wet → ¬rain'
    """
    return _reader(KnowledgeBase._trusted(kb.signature, (), ())).formula(text)
