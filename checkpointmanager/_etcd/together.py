"""Several checkpoints changed by one etcd transaction: every reader sees all of it or nothing.

    compare  .lock                     as in every write
    compare  .last-transaction         last written by the transaction before this one, so this is made once at most
    compare  key.json                  of each key, last written at the revision last seen, if etcd takes so many
    put      .last-transaction         the token of this transaction, which identifies it
    put, delete                        all changes, in nested transactions: etcd counts the operations of each level

The size of the request is the limit. It contains each checkpoint and its previous generation. A transaction of more
keys than can be compared reads them first. The owner is the only writer, so that differs only for changes by hand.
"""

from __future__ import annotations

import errno
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import TransactionFailed
from .._store import Put
from . import operations
from .attempts import Attempts, Trace, Unmade
from .client import Call, Client
from .commit import MAX_OPERATIONS, Change, Commits, bytes_of, key_of
from .faults import NoAnswer
from .layout import Layout
from .ownership import Hold
from .remembered import Seen
from .wire import RANGE

NESTED = MAX_OPERATIONS // 2  # operations in each nested transaction, and about as many of these
MAX_STEPS = NESTED * (NESTED - 2)
MAX_COMPARED = 120  # keys; with the three names of every transaction, fewer than etcd takes at one level


class Together:
    """The transactions of one store, one at a time."""

    def __init__(
        self, client: Client, layout: Layout, attempts: Attempts, commits: Commits, *, path: str, timeout: float
    ) -> None:
        self._client = client
        self._layout = layout
        self._attempts = attempts
        self._commits = commits
        self._path = path
        self._timeout = timeout
        self._turn = threading.RLock()  # a signal handler may run while its thread holds it

    def make(self, puts: Sequence[Put], removals: Mapping[str, int], max_request_bytes: int) -> None:
        """All or nothing. Raises TransactionFailed, or DirectoryLocked if another owner has taken over."""
        changes: list[Change] = [*puts, *removals]
        call = Call(self._timeout)
        try:
            with call.holding(self._turn):
                self._make(call, changes, max_request_bytes)
        except NoAnswer as error:
            raise TransactionFailed("", self._path, error) from error
        except Unmade as unmade:
            raise TransactionFailed("", self._path, unmade.error, in_doubt=unmade.in_doubt) from unmade

    def _make(self, call: Call, changes: Sequence[Change], max_request_bytes: int) -> None:
        token = secrets.token_hex(16).encode()
        try:
            self._attempts.repeat(call, lambda hold: self._attempt(call, changes, token, hold, max_request_bytes))
        except BaseException:
            self._commits.forget(changes)
            raise

    def _attempt(self, call: Call, changes: Sequence[Change], token: bytes, hold: Hold, max_request_bytes: int) -> bool:
        """True if the transaction is made, False if it has to be built again from the current values."""
        before = self._before(call, [key_of(change) for change in changes])
        steps = [step for change in changes for step in self._commits.steps(change, before[key_of(change)])]
        name = self._layout.transaction
        found = self._client.ask(call, RANGE, RANGE.request(key=name)).kvs
        last = found[0].mod_revision if found else 0
        compared = [operations.changed_at(name, last)]
        if len(before) <= MAX_COMPARED:
            compared += [
                operations.changed_at(self._layout.current(key), seen.revision) for key, seen in before.items()
            ]
        _check_size(changes, compared, steps, max_request_bytes)
        nested = [operations.nested(steps[start : start + NESTED]) for start in range(0, len(steps), NESTED)]
        revision = self._attempts.send(
            call, hold, compared, [operations.put(name, token), *nested], Trace(name, last, token)
        )
        if revision:
            self._commits.remember(changes, revision)
        else:
            self._commits.forget(changes)
        return revision is not None

    def _before(self, call: Call, keys: Sequence[str]) -> dict[str, Seen]:
        """The values that become previous generations: from memory only if the transaction compares them."""
        return self._commits.seen(call, keys) if len(keys) <= MAX_COMPARED else self._commits.read(call, keys)


def _check_size(changes: Sequence[Change], compared: Sequence[Any], steps: Sequence[Any], max_bytes: int) -> None:
    """Raise Unmade before anything is sent if etcd would not take it."""
    size = bytes_of([*compared, *steps])
    if len(steps) > MAX_STEPS or size > max_bytes:
        what = (
            f"the transaction has {len(changes)} changes that take {size} bytes with their previous generations; "
            f"etcd takes {MAX_STEPS // 2} changes and {max_bytes} bytes at once: make a smaller one"
        )
        raise Unmade(OSError(errno.EMSGSIZE, what), in_doubt=False)
