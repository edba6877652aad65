"""The parts of an etcd transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .wire import CREATE_REVISION, LEASE, MOD_REVISION, Compare, RequestOp, TxnRequest


def created_at(name: bytes, revision: int) -> Any:
    """Holds if the name was created at that revision; 0 means that it does not exist."""
    return Compare(target=CREATE_REVISION, key=name, create_revision=revision)


def changed_at(name: bytes, revision: int) -> Any:
    """Holds if the name was last written at that revision; 0 means that it does not exist."""
    return Compare(target=MOD_REVISION, key=name, mod_revision=revision)


def attached_to(name: bytes, lease: int) -> Any:
    """Holds if the name exists and is attached to that lease; 0 means to none."""
    return Compare(target=LEASE, key=name, lease=lease)


def put(name: bytes, value: bytes, lease: int = 0) -> Any:
    return RequestOp(request_put={"key": name, "value": value, "lease": lease})


def delete(name: bytes) -> Any:
    return RequestOp(request_delete_range={"key": name})


def get(name: bytes, revision: int = 0) -> Any:
    """Its value at that revision; 0 means now."""
    return RequestOp(request_range={"key": name, "revision": revision})


def nested(operations: Sequence[Any], size: int) -> list[Any]:
    """The same operations in groups of `size`, because etcd counts each group as one."""
    groups = [operations[start : start + size] for start in range(0, len(operations), size)]
    return [RequestOp(request_txn={"success": group}) for group in groups]


def txn(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    return TxnRequest(compare=compare, success=success, failure=failure)
