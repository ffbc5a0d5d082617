"""Every question gets an answer or a message: what fails is said in words, and the page goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from doxa.errors import BudgetError, DoxaError

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What was found, or why nothing was.

    >>> Answer(3).message, Answer(None, "too large").value
    ('', None)
    """

    value: T | None
    message: str = ""


def ask(question: Callable[[], T]) -> Answer[T]:
    """Ask a question that may fail.

    >>> ask(lambda: 1 // 0).message
    'this is a fault of doxa, please report it: ZeroDivisionError: integer division or modulo by zero'
    """
    try:
        return Answer(question())
    except BudgetError as error:
        return Answer(
            None, f"could not decide: {error}".replace("could not decide: could not decide", "could not decide")
        )
    except DoxaError as error:
        return Answer(None, str(error))
    except Exception as error:
        return Answer(None, f"this is a fault of doxa, please report it: {type(error).__name__}: {error}")
