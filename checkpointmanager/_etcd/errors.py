"""The errors of a store in etcd as a whole."""

from __future__ import annotations

from .._errors import DirectoryUnusable


class EtcdUnavailable(DirectoryUnusable):
    """No member of the cluster answered in time, or the request is not allowed. No checkpoint was changed.

    Check the endpoints, the health of the cluster and the credentials, then try again. Only a copy in quarantine may
    have been made, put back or deleted nevertheless: the same call again finds out.
    """

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(path, error)
        self.args = (f"{path}: {error.strerror}; check the endpoints, the cluster's health and the credentials",)


class EtcdWentBack(DirectoryUnusable):
    """etcd no longer has changes that it acknowledged: it was restored from a backup, started with an empty disk, or
    the endpoints lead to another cluster.

    Every call of this store raises it from then on, because what its owner or reader knows may be wrong. Compare the
    state with the hardware first, then close the store and open another, which takes etcd as it is now.
    """

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(path, error)
        self.args = (f"{path}: {error.strerror}; compare it with the hardware, then close the store and open another",)
