"""A lexer for Pygments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from doxa.logic.syntax._marks import Mark, marks

TOKENS: dict[Mark, Any] = {
    "space": Whitespace,
    "comment": Comment.Single,
    "keyword": Keyword,
    "operator": Operator,
    "punctuation": Punctuation,
    "number": Number,
    "truth": Keyword.Constant,
    "string": String,
    "error": Error,
    "name": Name,
    "sort": Name.Class,
    "constant": Name.Constant,
    "predicate": Name.Function,
    "function": Name.Function.Magic,
    "data": Name.Namespace,
    "variable": Name.Variable,
    "field": Name.Attribute,
    "axiom": Name.Label,
}


class DoxaLexer(Lexer):
    """The knowledge language of doxa, for Pygments.

    >>> [value for token, value in DoxaLexer().get_tokens("sort Bird; pred owl(Bird)") if "Class" in str(token)]
    ['Bird', 'Bird']
    """

    name = "doxa"
    aliases: ClassVar[list[str]] = ["doxa"]
    filenames: ClassVar[list[str]] = ["*.doxa"]
    mimetypes: ClassVar[list[str]] = ["text/x-doxa"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Place, kind and text of every piece."""
        for kind, piece, start in marks(text):
            yield start, TOKENS[kind], piece
