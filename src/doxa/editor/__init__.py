"""Knowledge files in editors, notebooks and pages: colours for Pygments, and a language server.

``pygmentize``, documents and notebooks find :class:`DoxaLexer` by themselves, for files that end in ``.doxa`` and for
code blocks called ``doxa``. ``doxa lsp`` speaks the Language Server Protocol (extra ``editor``): mistakes as one types,
names to complete, declarations where the mouse rests. Both take the words from the language itself.

>>> from pygments import highlight
>>> from pygments.formatters import NullFormatter
>>> highlight("pred rain", DoxaLexer(), NullFormatter())
'pred rain\\n'
"""

from doxa.editor._colours import DoxaLexer
from doxa.editor._server import serve

__all__ = ["DoxaLexer", "serve"]
