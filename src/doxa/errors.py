"""The exceptions of doxa: one small hierarchy, each also a builtin.

Every message says what came, what was wanted and how to mend it.
"""

from __future__ import annotations

import sys

__all__ = [
    "BindingError",
    "BudgetError",
    "ConfigError",
    "DataError",
    "DoxaError",
    "DoxaWarning",
    "KnowledgeError",
    "KnowledgeWarning",
    "ProblemError",
    "RunError",
    "RunWarning",
    "visible",
]


def visible(text: str, keep: str = "") -> str:
    r"""A text that may be shown on a terminal: control and other invisible characters are written as escapes.

    Args:
        text: what came from a file, a name or a user.
        keep: characters that stay as they are, such as line breaks.

    >>> print(visible("owl\x1b[2J"), visible("a\u202eb"))
    owl\x1b[2J a\u202eb
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text])


def users_line() -> int:
    """The ``stacklevel`` of a warning, where it is given: the first line that is neither in doxa nor in torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("doxa", "torch"):
        frame, level = frame.f_back, level + 1
    return level


class DoxaError(Exception):
    """Everything doxa raises on purpose.

    >>> issubclass(KnowledgeError, DoxaError) and issubclass(KnowledgeError, ValueError)
    True
    """


class KnowledgeError(DoxaError, ValueError):
    """Something is wrong in knowledge text or in a formula.

    ``diagnostics`` holds one entry per independent mistake, with its place in the text.

    >>> str(KnowledgeError("unknown symbol 'frends'; did you mean 'friends'?"))
    "unknown symbol 'frends'; did you mean 'friends'?"
    """

    def __init__(self, message: str, diagnostics: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics


class BindingError(DoxaError, ValueError):
    """A symbol is bound to something that does not fit its declaration.

    >>> raise BindingError("friends: expected 2 axes, got 1")
    Traceback (most recent call last):
    doxa.errors.BindingError: friends: expected 2 axes, got 1
    """


class ProblemError(DoxaError, ValueError):
    """A belief, an output or a problem has the wrong shape, or its parts disagree.

    >>> raise ProblemError("belief has 3 variables, the problem has 4")
    Traceback (most recent call last):
    doxa.errors.ProblemError: belief has 3 variables, the problem has 4
    """


class BudgetError(ProblemError):
    """Something would cost more than the budget allows; ``field`` is the limit that was reached.

    >>> BudgetError("worlds", "there are 1,000 worlds, more than Budget(worlds=100)").field
    'worlds'
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field

    def __str__(self) -> str:
        return str(self.args[1])


class DataError(DoxaError, RuntimeError):
    """Data are missing, damaged or of the wrong kind.

    >>> raise DataError("train-images: not an idx file")
    Traceback (most recent call last):
    doxa.errors.DataError: train-images: not an idx file
    """


class ConfigError(DoxaError, ValueError):
    """A configuration has an unknown key or an impossible value.

    >>> raise ConfigError("unknown key 'lerning_rate'; did you mean 'learning_rate'?")
    Traceback (most recent call last):
    doxa.errors.ConfigError: unknown key 'lerning_rate'; did you mean 'learning_rate'?
    """


class RunError(DoxaError, RuntimeError):
    """A run cannot go on; its folder is left usable.

    >>> raise RunError("loss is nan at step 12; the last good checkpoint is step 10")
    Traceback (most recent call last):
    doxa.errors.RunError: loss is nan at step 12; the last good checkpoint is step 10
    """


class DoxaWarning(UserWarning):
    """Everything doxa warns of.

    >>> issubclass(KnowledgeWarning, DoxaWarning)
    True
    """


class KnowledgeWarning(DoxaWarning):
    """Knowledge that is legal but probably not what was meant.

    >>> issubclass(KnowledgeWarning, UserWarning)
    True
    """


class RunWarning(DoxaWarning):
    """A run mended something on its own, such as a damaged checkpoint passed over.

    >>> issubclass(RunWarning, UserWarning)
    True
    """
