"""The one writer of a prefix: the holder of `.lock`, which is attached to a lease and deleted when that expires.

Nothing here trusts a clock. Every write compares the revision at which `.lock` was created, so etcd itself refuses a
write that arrives after another owner has taken over, however long its sender was stopped or cut off. It compares the
lease as well, whose id is random: an etcd that starts with an empty disk counts revisions anew. And it compares the
revision at which `.lock` was last written: after a call that missed an answer the owner writes `.lock` again, and etcd
refuses whatever of that call is still on its way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc

from .._errors import DirectoryLocked
from ..format import LockOwner
from . import wire
from .client import Client, Progress, StoreCall
from .errors import NoAnswer, Refused
from .layout import Layout
from .lease import Lease
from .wire import DELETED, RANGE, TXN, WATCH

LONGEST_WATCH = 86_400.0  # seconds, then it begins again: no timer takes a lock_timeout of math.inf


class Hold(NamedTuple):
    """The revisions at which this owner created and last wrote `.lock`. Every write compares them, and the lease."""

    created: int
    written: int


class Ownership:
    """Held from take() to close(), unless the lease expires."""

    def __init__(self, client: Client, layout: Layout, path: str, *, owner: str, ttl: float, timeout: float) -> None:
        self._client = client
        self._layout = layout
        self._path = path
        self._owner = owner
        self._ttl = ttl
        self._timeout = timeout
        self._lost = False
        self._doubted = 0  # the highest `written` of a call that missed an answer
        self._renewing = threading.RLock()  # while `.lock` is written again
        self.hold = Hold(0, 0)
        self.lease: Lease | None = None

    def take(self, lock_timeout: float) -> None:
        """Become the owner, or raise DirectoryLocked. Watches a lock that is held instead of polling it."""
        end = time.monotonic() + lock_timeout
        waiting = False
        while True:
            self._client.progress = Progress()  # nothing was read yet that could be lost
            call = StoreCall(self._timeout)
            try:
                found = self._client.ask(call, RANGE, RANGE.request(key=self._layout.lock))
                if not found.kvs and self._try(call):
                    return
            except NoAnswer:
                if not waiting or time.monotonic() >= end:
                    raise
                continue  # a store that waits for the lock outlasts an outage
            left = end - time.monotonic()
            if left <= 0:
                waited = f" after waiting {lock_timeout:g} s" if lock_timeout else ""
                raise DirectoryLocked(self._path, f"locked{waited} by another owner", _owner_in(found.kvs))
            waiting = True
            if found.kvs:
                self._wait(found.header.revision, min(left, LONGEST_WATCH))

    def ask(self, call: StoreCall, hold: Hold, compare: Sequence[Any], steps: Sequence[Any]) -> Any:
        """The answer to a change that etcd makes only if this is the owner and the comparisons hold.

        If they do not, the answer has the value of `.lock`, for learn().
        """
        lock = self._layout.lock
        ours = [
            wire.created_at(lock, hold.created),
            wire.changed_at(lock, hold.written),
            wire.attached_to(lock, self.lease.id if self.lease else 0),
        ]
        return self._client.ask(call, TXN, wire.txn([*ours, *compare], steps, [wire.get(lock)]), changing=True)

    def check(self, call: StoreCall) -> None:
        """Raise unless this is the owner as far as it can know, and no earlier request can be carried out any more."""
        self._client.progress.before()
        if self._lost or not self.lease or not self.lease.is_fresh:
            hold = self.hold
            found = self._client.ask(call, RANGE, RANGE.request(key=self._layout.lock))
            self.learn(found.kvs, hold)
        if self._doubted >= self.hold.written:
            self._write_again(call)

    def doubt(self, hold: Hold) -> None:
        """A write that compared this may still be carried out."""
        self._doubted = max(self._doubted, hold.written)

    def learn(self, found: Any, hold: Hold) -> None:
        """From the value of `.lock` in the answer to a request that was sent with this hold.

        Raises DirectoryLocked, from then on always, if the lock is not ours.
        """
        ours = self.lease and found and found[0].create_revision == hold.created and found[0].lease == self.lease.id
        if self._lost or not ours:
            self._lost = True  # another may have changed anything since
            why = "the lease of the lock has expired, or the lock was changed, so another may own the checkpoints"
            raise DirectoryLocked(self._path, f"{why}; close and open again", _owner_in(found))
        if found[0].mod_revision < hold.written:
            self._client.progress.lost("etcd has an older lock of this owner")
        if found[0].mod_revision > self.hold.written:
            self.hold = Hold(hold.created, found[0].mod_revision)

    def close(self) -> None:
        if self.lease:
            self.lease.revoke(StoreCall(self._timeout))

    def _try(self, call: StoreCall) -> bool:
        lock = self._layout.lock
        lease = Lease(self._client, self._path, lock, self._ttl, call)
        text = LockOwner.of_this_process(self._owner).to_json()
        request = wire.txn([wire.created_at(lock, 0)], [wire.put(lock, text, lease.id)], [wire.get(lock)])
        try:
            reply = self._client.ask(call, TXN, request)
        except Refused:
            lease.revoke(call)  # a full database may have taken the lock nevertheless
            raise
        if reply.succeeded:
            self.hold = Hold(reply.header.revision, reply.header.revision)
        else:
            found = reply.responses[0].response_range.kvs[0]
            if found.lease != lease.id:
                lease.revoke(call)
                return False
            self.hold = Hold(found.create_revision, found.mod_revision)  # an earlier attempt succeeded
        lease.start()
        self.lease = lease
        return True

    def _wait(self, seen: int, seconds: float) -> None:
        """Until the lock is or may be gone, or the time is up."""
        request = WATCH.request(create_request={"key": self._layout.lock, "start_revision": seen + 1})
        try:
            with self._client.watching(request, seconds) as replies:
                for reply in replies:
                    if reply.canceled or any(event.type == DELETED for event in reply.events):
                        return
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                time.sleep(min(seconds, 0.1))  # the member is gone: ask another one, but not at once

    def _write_again(self, call: StoreCall) -> None:
        """The same text on the same lease: only the revision that writes compare changes."""
        assert self.lease
        with call.holding(self._renewing):
            if self._doubted < self.hold.written:
                return  # another thread has just done it
            hold = self.hold
            text = LockOwner.of_this_process(self._owner).to_json()
            # For itself: a missing answer to this says nothing about the change that follows.
            reply = self.ask(call.part(), hold, [], [wire.put(self._layout.lock, text, self.lease.id)])
            if reply.succeeded:
                self.hold = Hold(hold.created, reply.header.revision)
            else:
                self.learn(reply.responses[0].response_range.kvs, hold)


def _owner_in(found: Any) -> LockOwner | None:
    return LockOwner.parse(found[0].value) if found else None
