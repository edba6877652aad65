"""How the schema reports a whole file that this program cannot use, without quoting its data.

Foreign code takes part in reading: migrations, decode=, default factories, classes that validate. An error that it
raises is a fault of the program, not of the file. Its type and traceback say where to look; its text may quote data.
"""

from __future__ import annotations

from .jsonvalues import Mismatch


class Misfit(Exception):
    """Raised by a Schema if data with a good checksum does not fit; `__cause__` is what refused it, if known."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where} {why}")
        self.where = where
        self.why = why


def refusal(by: str, error: Exception) -> Mismatch:
    """The mismatch of a value that foreign code refused with an error."""
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
