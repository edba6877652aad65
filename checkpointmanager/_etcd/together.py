"""Several checkpoints changed by one etcd transaction, so that every reader sees all of it or nothing.

    compare  .lock                     as every write does
    compare  .last-transaction         last written by the transaction before this one: so it is made once at most
    put      .last-transaction         the token of this one, by which it is known again
    put, delete                        all changes, in nested transactions: etcd counts the operations of each level

The limit is the size of the request, in which each checkpoint stands with its previous generation.
"""

from __future__ import annotations

import errno
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import CheckpointWriteFailed, DirectoryLocked, TransactionFailed
from .._store import Put
from . import operations
from .client import Call, Client
from .commit import MAX_OPERATIONS, OVERHEAD_BYTES, Change, Commits, key_of
from .faults import Compacted, NoAnswer, Refused
from .layout import Layout
from .ownership import Hold, Ownership
from .wire import RANGE, TXN

NESTED = MAX_OPERATIONS // 2  # operations of each nested transaction; as many of those fit beside the token
MAX_STEPS = NESTED * (NESTED - 2)


class Together:
    """The transactions of one store, one at a time."""

    def __init__(
        self, client: Client, layout: Layout, ownership: Ownership, commits: Commits, *, path: str, timeout: float
    ) -> None:
        self._client = client
        self._layout = layout
        self._ownership = ownership
        self._commits = commits
        self._path = path
        self._timeout = timeout
        self._turn = threading.RLock()  # a signal handler may come while its thread has it

    def make(self, puts: Sequence[Put], removals: Mapping[str, int], max_request_bytes: int) -> None:
        """All or none, or TransactionFailed; DirectoryLocked if another owner has come."""
        changes: list[Change] = [*puts, *removals]
        call = Call(self._timeout)
        token = secrets.token_hex(16).encode()
        hold = self._ownership.hold
        with self._turn:
            try:
                self._ownership.check(call)
                hold = self._ownership.hold
                steps = self._steps(call, changes, max_request_bytes)
                while not self._attempt(call, changes, steps, token, hold):
                    hold = self._ownership.hold
            except BaseException as error:
                self._commits.forget(changes)
                if call.unsure or not isinstance(error, Exception):
                    self._ownership.doubt(hold)
                if isinstance(error, Refused | NoAnswer | CheckpointWriteFailed) and not isinstance(
                    error, TransactionFailed
                ):
                    raise TransactionFailed("", self._path, error, in_doubt=call.unsure) from error
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
            raise TransactionFailed("", self._path, OSError(errno.EMSGSIZE, what))
        return steps

    def _attempt(self, call: Call, changes: Sequence[Change], steps: Sequence[Any], token: bytes, hold: Hold) -> bool:
        """True if the transaction is made, False if it has to be tried again."""
        name = self._layout.transaction
        last = self._client.ask(call, RANGE, RANGE.request(key=name)).kvs
        nested = [operations.nested(steps[start : start + NESTED]) for start in range(0, len(steps), NESTED)]
        request = operations.txn(
            [*self._ownership.comparisons(hold), operations.changed_at(name, last[0].mod_revision if last else 0)],
            [operations.put(name, token), *nested],
            [operations.get(self._layout.lock)],
        )
        try:
            reply = self._client.ask(call, TXN, request, changing=True)
        except Refused:
            if call.unsure and self._was_made(call, token):
                return True
            raise
        if reply.succeeded:
            self._commits.remember(changes, reply.header.revision)
            return True
        unsure, call.unsure = call.unsure, False
        lock = reply.responses[0].response_range.kvs
        try:
            self._ownership.learn(lock)
        except DirectoryLocked as lost:
            if not unsure:
                raise
            return self._was_made_before(call, token, lock[0].create_revision if lock else 0, lost)
        return unsure and self._was_made(call, token)

    def _was_made(self, call: Call, token: bytes, revision: int = 0) -> bool:
        found = self._client.ask(call, RANGE, RANGE.request(key=self._layout.transaction, revision=revision)).kvs
        return bool(found) and found[0].value == token

    def _was_made_before(self, call: Call, token: bytes, taken_over: int, lost: DirectoryLocked) -> bool:
        """Another owner may have made a transaction of its own since: look at the moment before it came."""
        try:
            made = self._was_made(call, token, taken_over - 1 if taken_over else 0)
        except Compacted as compacted:
            raise TransactionFailed("", self._path, lost, in_doubt=True) from compacted
        if not made:
            raise lost
        return True
