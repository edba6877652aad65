"""The command as users run it: in a pipe or on a terminal, as this or another user."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from checkpoint_verify import cli
from checkpoint_verify.screens import screen

LIMIT = 60.0  # seconds that a run may take; only a hang takes that long
NOBODY = 65534
NAME = f"{sys.executable} -m checkpoint_verify"  # how the separate process is called, and so calls itself


_ROOT = Path(__file__).parents[2]
_CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_COLOURS = re.compile(rb"\x1b\[(?:\d+;)*[39]\dm")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `colours`: whether any were sent to the terminal."""

    code: int
    out: str
    err: str = ""
    colours: bool = False

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def environment(**changes: str) -> dict[str, str]:
    paths = [str(_ROOT), str(_ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


def arguments(*words: object) -> list[bytes]:
    return [os.fsencode(sys.executable), b"-m", b"checkpoint_verify", *(os.fsencode(str(word)) for word in words)]


def checkpoint_verify(*words: object, **env: str) -> Ended:
    """Run the command as a process, with its output in a pipe."""
    process = subprocess.run(
        arguments(*words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        env=environment(**env),
        check=False,
    )
    return Ended(process.returncode, process.stdout.decode(), process.stderr.decode())


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def called(*words: object, typed: str = "", user: int | None = None) -> Ended:
    """The same within this process, where another one would prove nothing more: it takes half a second to start.

    `typed` is entered on a terminal when it asks; `user` is whom root acts as.
    """
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    answers = mock.patch("sys.stdin", _Terminal(typed)) if typed else contextlib.nullcontext()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), answers, _acting_as(user):
        code = cli.main([str(word) for word in words])
        out.flush()
    return Ended(code, out.buffer.getvalue().decode(), err.getvalue())


@contextlib.contextmanager
def _acting_as(user: int | None) -> Iterator[None]:
    if user is None:
        yield
        return
    # Everything is loaded first, because that user may not be able to read the interpreter.
    import filelock  # noqa: F401

    time.strptime("2026", "%Y")
    cli.main(["--quiet", os.curdir])
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def rendered(*words: object, columns: int) -> str:
    """The output for a terminal of this width, without the terminal: for tests of many screens."""
    with (
        mock.patch.object(screen, "_can_do_more", lambda stream: stream is sys.stdout),
        mock.patch.dict(os.environ, {"COLUMNS": str(columns)}),
    ):
        return called(*words).out


def on_terminal(*words: object, typed: bytes = b"", columns: int = 100, **env: str) -> Ended:
    """Run the command on a terminal of its own; `typed` is entered when it asks."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = environment(**{"TERM": "xterm-256color", "NO_COLOR": "", **env})
    with subprocess.Popen(
        arguments(*words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=settings,
        start_new_session=True,
        preexec_fn=_receive_ctrl_c,  # noqa: PLW1509 - no thread runs here
    ) as process:
        os.close(theirs)
        shown = _watch(ours, process, typed)
    os.close(ours)
    plain = _CONTROLS.sub(b"", shown).replace(b"\r\n", b"\n")
    return Ended(process.returncode, plain.decode(), colours=_COLOURS.search(shown) is not None)


def _receive_ctrl_c() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _watch(terminal: int, process: subprocess.Popen[bytes], typed: bytes) -> bytes:
    shown = b""
    deadline = time.monotonic() + LIMIT
    while True:
        readable, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        if not readable:
            process.kill()
            raise AssertionError(f"the command hangs; its output so far is {shown!r}")
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # how Linux reports that the other side is closed
            return shown
        if not piece:
            return shown
        shown += piece
        if typed and b"[y/N]" in shown:
            os.write(terminal, typed)
            typed = b""
