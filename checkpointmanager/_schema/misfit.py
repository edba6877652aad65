"""How the schema reports a whole file that this program cannot use, without quoting its data.

Foreign code takes part in reading: migrations, decode=, default factories, classes that validate. An error that it
raises is a fault of the program, not of the file. Its type and traceback say where to look; its text may quote data.
What a signal handler raises meanwhile says nothing about the data, and reaches the caller as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._interruption import pass_on_interruption

ANY_KEY = "[*]"  # the step to a dict's member: its key is data, and data has no place in an error


class Mismatch(Exception):
    """A value does not fit. Each container on the way up adds its step, so that `where` is the value's place.

    A step is an index, the name of a dataclass field, or ANY_KEY. `cause` is the error that foreign code raised,
    without its text.
    """

    def __init__(self, why: str, where: str = "$", cause: Exception | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.cause = cause
        self._below = where[1:]
        self._steps: list[str | int] = []

    def inside(self, step: str | int) -> Mismatch:
        self._steps.append(step)
        return self

    @property
    def where(self) -> str:
        path = "$"
        for step in reversed(self._steps):
            path += f"[{step}]" if isinstance(step, int) else step if step is ANY_KEY else f".{step}"
        return path + self._below


class Misfit(Exception):
    """Raised by a Schema if data with a good checksum does not fit; `__cause__` is what refused it, if known."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where} {why}")
        self.where = where
        self.why = why


def guarded(by: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """The result of foreign code, which may raise anything."""
    try:
        return function(*arguments, **named)
    except Mismatch:
        raise
    except Exception as error:  # noqa: BLE001  (its text may quote data)
        raise refusal(by, error) from None


def refusal(by: str, error: Exception) -> Mismatch:
    """The mismatch of a value that foreign code refused with an error; what a signal handler raised is raised again."""
    pass_on_interruption(error)
    return Mismatch(f"is refused by {by} with {type(error).__name__}", cause=without_text(error))


def without_text(error: Exception) -> Exception:
    """An error with the same type and traceback, without the arguments, the notes and the chained errors.

    Only built-in types are reused. Any other class may show what it holds, so a new class of the same name replaces it.
    """
    cls = type(error)
    if cls.__module__ != "builtins" or isinstance(error, BaseExceptionGroup):  # a group is made of errors
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        cls = type(cls.__name__, (Exception,), names)
    return cls.__new__(cls).with_traceback(error.__traceback__)
