"""Show the examples of docstrings as code: fences around every doctest, for the API pages."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)


class FenceDoctests(griffe.Extension):
    """An example reaches from its first prompt to the next blank line."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda m: f"{m['indent']}```pycon\n{m[0]}\n{m['indent']}```", obj.docstring.value
            )
