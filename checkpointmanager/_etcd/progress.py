"""Notices that etcd lost state: it was restored from a backup, or started with an empty disk, or is another cluster.

A revision never goes down while a cluster keeps what it acknowledged, and every answer states one. Only answers to
reads and transactions are judged: they come from a majority, while those about leases may come from a member that is
behind.
"""

from __future__ import annotations

import errno
import threading
from typing import Any

from .faults import WentBack


class Progress:
    """The cluster that answers and the highest revision that it showed. What was lost once stays lost."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may run while its thread holds it
        self._cluster = 0
        self._why = ""  # state was lost
        self.revision = 0

    def before(self) -> int:
        """What the answer to a request that is sent now shows at least. Raises WentBack if state was lost earlier."""
        if self._why:
            raise WentBack(errno.ESTALE, self._why)
        return self.revision

    def after(self, least: int, header: Any) -> None:
        """Judge an answer. Raises WentBack if it does not follow from the answers before."""
        with self._lock:
            self._cluster = self._cluster or header.cluster_id
            self.revision = max(self.revision, header.revision)
        if header.cluster_id != self._cluster:
            self.lost(f"cluster {header.cluster_id:x} answers instead of {self._cluster:x}")
        if header.revision < least:
            self.lost(f"etcd went back from revision {least} to {header.revision}")

    def lost(self, why: str) -> None:
        self._why = self._why or f"{why}, so it lost acknowledged changes"
        raise WentBack(errno.ESTALE, self._why)
