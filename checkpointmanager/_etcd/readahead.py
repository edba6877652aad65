"""What one thread will read soon, fetched in pages instead of one by one.

During a load everything is read as of the moment at which the keys were listed, so a transaction is in it as a whole or
not at all. During a change of several keys the first read of one fetches them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from .commit import Seen

PAGE = 128  # keys

Fetch = Callable[[Sequence[str]], dict[str, Seen]]


class Pages:
    """Keys that will be read soon."""

    def __init__(self, keys: Iterable[str] = (), revision: int = 0, *, kept: bool = False) -> None:
        self._coming = dict.fromkeys(keys)
        self._fetched: dict[str, Seen] = {}
        self._kept = kept  # else each value is used once, and a second read asks the server
        self.revision = revision  # at which they are read; 0: now

    def add(self, keys: Iterable[str]) -> None:
        self._coming |= dict.fromkeys(keys)

    def drop(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._coming.pop(key, None)
            self._fetched.pop(key, None)

    def get(self, key: str, fetch: Fetch) -> Seen | None:
        """Its value, None if it was not expected. Fetches the next page if need be."""
        if key in self._coming:
            page = list(islice(dict.fromkeys([key, *islice(self._coming, PAGE)]), PAGE))
            self._fetched |= fetch(page)
            for fetched in page:
                self._coming.pop(fetched, None)
        return self._fetched.get(key) if self._kept else self._fetched.pop(key, None)


class ChangeReads:
    """One change that a thread makes: its keys, and the seconds that its requests took so far."""

    def __init__(self) -> None:
        self.current = Pages(kept=True)
        self.previous = Pages(kept=True)  # of the keys that are absent: a manager asks for no other
        self.spent = 0.0

    def note_absent(self, found: dict[str, Seen]) -> dict[str, Seen]:
        self.previous.add(key for key, seen in found.items() if not seen.revision)
        return found


class ReadAhead(threading.local):
    """What this thread will read soon."""

    change: ChangeReads | None = None
    load: Pages | None = None
    listed: tuple[Sequence[str], int] = ((), 0)  # the last list of keys, and the revision at which it was made

    def forget(self, keys: Sequence[str]) -> None:
        """This thread changes these keys: from now on it reads them as they are."""
        if self.change:
            self.change.current.drop(keys)
            self.change.previous.drop(keys)
        if self.load:
            self.load.drop(keys)
        else:
            self.listed = ((), 0)
