"""A with block whose end no signal handler can prevent.

A handler that raises (Ctrl-C, or a SIGTERM that calls sys.exit) may do so wherever Python checks for signals: when
a Python function begins, when a C function has returned, when a loop repeats. It can therefore end a Python
`__exit__` before its first line, and what that should release is then held for ever. An `__exit__` in C is safe.
Locks have one, so `with lock:` is safe; Unbroken lends one to any generator.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Generator
from functools import partial
from operator import methodcaller


class Unbroken(io.IOBase):
    """Runs a generator to its yield, then the block, then the generator to its end, whatever the block does.

    Like contextlib.contextmanager, but the yield never raises what the block raised. A handler that raises meanwhile
    does so inside the generator, whose with and finally blocks see it.
    """

    closed = True  # nothing is left to do when this is collected

    def __init__(self, generator: Generator[None, None, None]) -> None:
        self._generator = generator
        # The inherited __exit__ is C code that calls close(), and this partial is C code that resumes the generator.
        self.close = partial(next, generator, None)  # type: ignore[method-assign]

    def __enter__(self) -> None:  # type: ignore[override]
        try:
            next(self._generator)
        except BaseException:
            self._generator.close()
            raise


is_mine: Callable[[threading.RLock], bool] = methodcaller("_is_owned")
"""True if this thread holds the lock."""
