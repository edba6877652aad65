"""What a failed call means: the errors of a store, and those that its parts raise to each other.

etcd and gRPC report a failure as a code and a text. Two things have to be known about it: whether another try may
succeed, and whether the servers may have carried the request out.
"""

from __future__ import annotations

import errno

import grpc

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


class Failed(OSError):
    """A call to the servers that failed. The text is etcd's or gRPC's own, which never quotes data."""


class Refused(Failed):
    """The servers said no, and asking again would not help. Nothing was done, except perhaps if the database is full
    (ENOSPC).
    """


class Compacted(Refused):
    """The requested revision is compacted."""


class LoginNeeded(Refused):
    """The token has expired, or there is none."""


class NotDone(Failed):
    """One member did not carry it out, but another try or another member may."""


class Unanswered(Failed):
    """One member may have carried it out, or may still do so."""


class NoAnswer(Failed):
    """No member gave a final answer in time."""


class WentBack(Failed):
    """The servers no longer have what they acknowledged: their answers come from an older state, or another one."""


# By the text of etcd's messages, where the code alone is not specific enough.
_BY_TEXT: tuple[tuple[str, type[Failed], int], ...] = (
    ("database space exceeded", Refused, errno.ENOSPC),
    ("too many requests", NotDone, errno.EAGAIN),
    ("request is too large", Refused, errno.EMSGSIZE),
    ("too many operations in txn request", Refused, errno.EMSGSIZE),
    ("larger than max", Refused, errno.EMSGSIZE),
    ("has been compacted", Compacted, errno.ERANGE),
    ("invalid auth token", LoginNeeded, errno.EACCES),
    ("revision of auth store is old", LoginNeeded, errno.EACCES),
    ("authentication failed", Refused, errno.EACCES),
    ("user name is empty", LoginNeeded, errno.EACCES),
    ("failed to connect to all addresses", NotDone, errno.ECONNREFUSED),
    ("DNS resolution failed", NotDone, errno.EHOSTUNREACH),
)
_BY_CODE: dict[grpc.StatusCode, tuple[type[Failed], int]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: (Unanswered, errno.ETIMEDOUT),
    grpc.StatusCode.UNAVAILABLE: (Unanswered, errno.ECONNRESET),
    grpc.StatusCode.PERMISSION_DENIED: (Refused, errno.EACCES),
    grpc.StatusCode.UNAUTHENTICATED: (LoginNeeded, errno.EACCES),
    grpc.StatusCode.INVALID_ARGUMENT: (Refused, errno.EINVAL),
    grpc.StatusCode.FAILED_PRECONDITION: (Refused, errno.EEXIST),
    grpc.StatusCode.NOT_FOUND: (Refused, errno.ENOENT),
    grpc.StatusCode.OUT_OF_RANGE: (Refused, errno.ERANGE),
    grpc.StatusCode.UNIMPLEMENTED: (Refused, errno.ENOSYS),
}


def failure_of(error: grpc.RpcError) -> Failed:
    """The meaning of gRPC's error. Unless the request is known not to be carried out, it may have been."""
    code, text = error.code(), error.details() or ""
    for part, kind, number in _BY_TEXT:
        if part in text:
            return kind(number, text)
    kind, number = _BY_CODE.get(code, (Unanswered, errno.EIO))
    return kind(number, text or code.name)
