"""Entry and exit: every outcome becomes one of the four exit codes.

An uncaught exception, even from a broken installation, prints one line and exits with 3: it must never look like
damage. So only the standard library is imported before main() can catch errors.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from . import exitcodes

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DEPTH = 6000  # calls; orjson reads data of up to 1,024 levels, and some printers need several calls per level


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    sys.setrecursionlimit(DEPTH)
    _fill_closed_descriptors()
    pipe = _watched_output() if argv is None else None
    try:
        from .commands import run  # noqa: PLC0415 - see above
        from .screens import phrases  # noqa: PLC0415 - see above

        if argv is None:
            phrases.call_it(_program())
        _escape_what_the_locale_cannot_show()
        code = run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _complain("interrupted; what was not checked yet is unknown")
    except OSError as error:
        _flush_or_forget()
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return _complain(f"{where}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like damage
        return _complain(f"internal error: {type(error).__name__}: {error}")
    return exitcodes.worst([code, exitcodes.COULD_NOT_LOOK]) if pipe and pipe.is_broken else code


class _Pipe(io.FileIO):
    """Standard output. When its reader has gone, the command goes on, because its exit code still counts."""

    is_broken = False

    def write(self, octets: ReadableBuffer, /) -> int:
        try:
            return super().write(octets)
        except BrokenPipeError:
            self.is_broken = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(octets).nbytes


def _watched_output() -> _Pipe | None:
    try:
        pipe = _Pipe(sys.stdout.fileno(), "w", closefd=False)
    except OSError:
        return None
    lines = sys.stdout.isatty()
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(pipe), encoding=sys.stdout.encoding, line_buffering=lines)
    return pipe


def _program() -> str:
    """How the user called this program, so that a printed command can be pasted."""
    module = __package__ or ""
    if "-m" in sys.orig_argv and module in sys.orig_argv:
        return shlex.join(sys.orig_argv[: sys.orig_argv.index(module) + 1])
    path = os.environ.get("STATICX_PROG_PATH", sys.argv[0])  # set by the single file, which unpacks itself elsewhere
    name = os.path.basename(path)
    found = shutil.which(name)
    with suppress(OSError):
        if found and os.path.samefile(found, path):
            return name
    return shlex.quote(path)


def _fill_closed_descriptors() -> None:
    """A shell may start us with >&-. The next file opened would get that number, and our output would go into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until exit


class _ClosedOutput(io.TextIOBase):
    """Fails on every write: without output the command cannot report what it found."""

    def write(self, _: str, /) -> int:
        raise OSError(errno.EBADF, "standard output is closed; use --quiet, which writes nothing")


def _escape_what_the_locale_cannot_show() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _flush_or_forget() -> None:
    """Python flushes again at exit, and a failure there changes the exit code: send that output to /dev/null."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(sentence: str) -> int:
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in sentence)
    print(f"checkpoint-verify: {shown}", file=sys.stderr)
    return exitcodes.COULD_NOT_LOOK
