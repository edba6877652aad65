"""Reading many files from a cold disk: several at once, because the disk can and one reader cannot ask for more.

From the page cache threads only cost, so they start when the first files turn out to be slow.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from .damage import Damaged
from .errors import CheckpointNotFound
from .store import Store

PROBED = 8  # files
SLOW_SECONDS = 150e-6  # a file: four times what reading and decoding takes from the page cache
THREADS = 8


def read_ahead(store: Store, keys: Sequence[str]) -> Generator[str, None, None]:
    """Yield the keys, to be read one by one; if that is slow, threads bring the others into the page cache."""
    pool: ThreadPoolExecutor | None = None
    started = time.perf_counter()
    try:
        for number, key in enumerate(keys):
            if number == PROBED and time.perf_counter() - started > PROBED * SLOW_SECONDS:
                pool = ThreadPoolExecutor(THREADS)
                for later in keys[number:]:
                    pool.submit(_touch, store, later)
            yield key
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)


def _touch(store: Store, key: str) -> None:
    with suppress(CheckpointNotFound, Damaged):  # told to whoever reads it for its content
        store.read(key)
