"""A lease that a background thread keeps alive. etcd deletes what is attached to it soon after the process dies."""

from __future__ import annotations

import logging
import secrets
import threading
import time

from .client import Client, StoreCall
from .errors import Failed, Refused, WentBack
from .wire import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE

RENEWALS = 3  # per time to live
RETRY_SECONDS = 0.2
JOIN_SECONDS = 0.5  # for a renewal that is under way; closing the connections ends it

logger = logging.getLogger("checkpointmanager")


class Lease:
    """Granted when it is made; renewed from start() until stop(), or until etcd says that it has expired."""

    def __init__(self, client: Client, path: str, lock: bytes, ttl: float, call: StoreCall) -> None:
        self._client = client
        self._path = path
        self._lock = lock  # the name that is attached to it
        self.id = secrets.randbits(62) + 1  # chosen by us, so that asking twice grants one lease
        self.expired = False
        self.renewed = time.monotonic()  # when the last successful renewal was sent
        try:
            self.ttl: float = client.ask(call, LEASE_GRANT, LEASE_GRANT.request(TTL=max(1, round(ttl)), ID=self.id)).TTL
        except Refused as refusal:
            if "already exists" not in str(refusal):
                raise
            self.ttl = ttl  # an earlier attempt succeeded
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name=f"lease of {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing it, so that it expires. May be called twice, and from a finalizer."""
        self._stopped.set()

    def revoke(self, call: StoreCall) -> None:
        """End it, and delete what is attached to it, at once if a server can be reached."""
        self.stop()
        try:
            self._client.ask(call, LEASE_REVOKE, LEASE_REVOKE.request(ID=self.id))
        except Failed as error:
            if "not found" not in str(error):
                logger.warning("%s: the lock could not be released; its lease will expire: %s", self._path, error)
        # Only now: a renewal that hangs must not delay it.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(min(call.left(), JOIN_SECONDS))

    @property
    def is_fresh(self) -> bool:
        """False if it may have expired by this machine's clock. A reason to ask etcd, never a proof."""
        return not self.expired and time.monotonic() - self.renewed < self.ttl

    def _keep_alive(self) -> None:
        pause = self.ttl / RENEWALS
        while not self._stopped.wait(pause) and not self.expired:
            pause = self.ttl / RENEWALS if self._renew() else min(RETRY_SECONDS, pause)

    def _renew(self) -> bool:
        sent = time.monotonic()
        try:
            reply = self._client.ask(
                StoreCall(self.ttl / RENEWALS), LEASE_KEEP_ALIVE, LEASE_KEEP_ALIVE.request(ID=self.id)
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, giving up would cost the lock
            if not self._stopped.is_set():  # else the connections were closed meanwhile
                logger.warning("%s: the lease of the lock could not be renewed: %s", self._path, error)
            return False
        if reply.TTL <= 0:
            self.expired = True
            if not self._stopped.is_set():
                logger.warning("%s: the lease of the lock has expired; another may own the checkpoints", self._path)
            return False
        self.renewed = sent
        if reply.header.revision < self._client.progress.revision:
            self._look_again()
        return True

    def _look_again(self) -> None:
        """The member is behind the others, or etcd lost state. A read shows which; an idle owner makes no other."""
        try:
            request = RANGE.request(key=self._lock, keys_only=True)
            self._client.ask(StoreCall(self.ttl / RENEWALS), RANGE, request)
        except WentBack as error:
            logger.warning("%s: %s; close and open again", self._path, error)
        except Failed:
            pass  # the next call or renewal asks again
