"""Several checkpoints changed by one etcd transaction: every reader sees all of it or nothing.

    compare  .lock                     as in every write
    compare  .last-transaction         last written by the transaction before this one, so this is made once at most
    put      .last-transaction         the token of this transaction, which identifies it
    put, delete                        all changes, in nested transactions: etcd counts the operations of each level

The size of the request is the limit. It contains each checkpoint and its previous generation.
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
from .commit import MAX_OPERATIONS, OVERHEAD_BYTES, Change, Commits, key_of
from .faults import NoAnswer
from .layout import Layout
from .ownership import Hold
from .wire import RANGE

NESTED = MAX_OPERATIONS // 2  # operations in each nested transaction, and about as many of these
MAX_STEPS = NESTED * (NESTED - 2)


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
        steps: list[Any] = []

        def attempt(hold: Hold) -> bool:
            if not steps:
                steps.extend(self._steps(call, changes, max_request_bytes))
            return self._attempt(call, changes, steps, token, hold)

        try:
            self._attempts.repeat(call, attempt)
        except BaseException:
            self._commits.forget(changes)
            raise

    def _steps(self, call: Call, changes: Sequence[Change], max_request_bytes: int) -> list[Any]:
        before = self._commits.seen(call, [key_of(change) for change in changes])
        steps = [step for change in changes for step in self._commits.steps(change, before[key_of(change)])]
        size = sum(step.ByteSize() + OVERHEAD_BYTES for step in steps)
        if len(steps) > MAX_STEPS or size > max_request_bytes:
            what = (
                f"the transaction has {len(changes)} changes that take {size} bytes with their previous generations; "
                f"etcd takes {MAX_STEPS // 2} changes and {max_request_bytes} bytes at once: make a smaller one"
            )
            raise Unmade(OSError(errno.EMSGSIZE, what), in_doubt=False)
        return steps

    def _attempt(self, call: Call, changes: Sequence[Change], steps: Sequence[Any], token: bytes, hold: Hold) -> bool:
        """True if the transaction is made, False if it has to be sent again."""
        name = self._layout.transaction
        found = self._client.ask(call, RANGE, RANGE.request(key=name)).kvs
        last = found[0].mod_revision if found else 0
        nested = [operations.nested(steps[start : start + NESTED]) for start in range(0, len(steps), NESTED)]
        revision = self._attempts.send(
            call,
            hold,
            [operations.changed_at(name, last)],
            [operations.put(name, token), *nested],
            Trace(name, last, token),
        )
        if revision:
            self._commits.remember(changes, revision)
        else:
            self._commits.forget(changes)
        return revision is not None
