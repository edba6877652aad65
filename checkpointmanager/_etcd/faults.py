"""What a failed call means: whether to try again, and whether the servers may have carried it out nevertheless."""

from __future__ import annotations

import errno
from enum import Enum, auto
from typing import NamedTuple

import grpc


class Verdict(Enum):
    """What a failed call means."""

    REFUSED = auto()  # it was not done, and asking again would not help
    LOGIN = auto()  # it was not done: the token has expired
    LATER = auto()  # it was not done, but another try or another member may do it
    UNKNOWN = auto()  # it may have been done, or may still be


class Fault(NamedTuple):
    """One failed call. The text is etcd's or gRPC's own, which never quotes data."""

    verdict: Verdict
    errno: int
    text: str


class Failed(OSError):
    """A call to the servers that failed for good."""


class Refused(Failed):
    """The servers said no. Nothing was done, except perhaps if the database is full (ENOSPC)."""


class Compacted(Refused):
    """The requested revision is compacted."""


class NoAnswer(Failed):
    """No member gave a final answer in time."""


class WentBack(Failed):
    """The servers no longer have what they acknowledged: their answers come from an older state, or another one."""


# By the text of etcd's messages, where the code alone is not specific enough.
_BY_TEXT = (
    ("database space exceeded", Verdict.REFUSED, errno.ENOSPC),
    ("too many requests", Verdict.LATER, errno.EAGAIN),
    ("request is too large", Verdict.REFUSED, errno.EMSGSIZE),
    ("too many operations in txn request", Verdict.REFUSED, errno.EMSGSIZE),
    ("larger than max", Verdict.REFUSED, errno.EMSGSIZE),
    ("invalid auth token", Verdict.LOGIN, errno.EACCES),
    ("revision of auth store is old", Verdict.LOGIN, errno.EACCES),
    ("authentication failed", Verdict.REFUSED, errno.EACCES),
    ("user name is empty", Verdict.LOGIN, errno.EACCES),
    ("failed to connect to all addresses", Verdict.LATER, errno.ECONNREFUSED),
    ("DNS resolution failed", Verdict.LATER, errno.EHOSTUNREACH),
)
_BY_CODE = {
    grpc.StatusCode.DEADLINE_EXCEEDED: (Verdict.UNKNOWN, errno.ETIMEDOUT),
    grpc.StatusCode.UNAVAILABLE: (Verdict.UNKNOWN, errno.ECONNRESET),
    grpc.StatusCode.PERMISSION_DENIED: (Verdict.REFUSED, errno.EACCES),
    grpc.StatusCode.UNAUTHENTICATED: (Verdict.LOGIN, errno.EACCES),
    grpc.StatusCode.INVALID_ARGUMENT: (Verdict.REFUSED, errno.EINVAL),
    grpc.StatusCode.FAILED_PRECONDITION: (Verdict.REFUSED, errno.EEXIST),
    grpc.StatusCode.NOT_FOUND: (Verdict.REFUSED, errno.ENOENT),
    grpc.StatusCode.OUT_OF_RANGE: (Verdict.REFUSED, errno.ERANGE),
    grpc.StatusCode.UNIMPLEMENTED: (Verdict.REFUSED, errno.ENOSYS),
}


def fault_of(error: grpc.RpcError) -> Fault:
    """The meaning of gRPC's error. Unless the request is known not to be carried out, it may have been."""
    code, text = error.code(), error.details() or ""
    for part, verdict, number in _BY_TEXT:
        if part in text:
            return Fault(verdict, number, text)
    verdict, number = _BY_CODE.get(code, (Verdict.UNKNOWN, errno.EIO))
    return Fault(verdict, number, text or code.name)
