"""The parts of an etcd transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .wire import CREATE_REVISION, MOD_REVISION, Compare, RequestOp, TxnRequest


def created_at(name: bytes, revision: int) -> Any:
    """Holds if the name was created at that revision; 0 means that it does not exist."""
    return Compare(target=CREATE_REVISION, key=name, create_revision=revision)


def changed_at(name: bytes, revision: int) -> Any:
    """Holds if the name was last written at that revision; 0 means that it does not exist."""
    return Compare(target=MOD_REVISION, key=name, mod_revision=revision)


def put(name: bytes, value: bytes, lease: int = 0) -> Any:
    return RequestOp(request_put={"key": name, "value": value, "lease": lease})


def delete(name: bytes) -> Any:
    return RequestOp(request_delete_range={"key": name})


def get(name: bytes) -> Any:
    return RequestOp(request_range={"key": name})


def nested(operations: Sequence[Any]) -> Any:
    """Several operations as one, because etcd limits the operations of each level of nesting separately."""
    return RequestOp(request_txn={"success": operations})


def txn(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    return TxnRequest(compare=compare, success=success, failure=failure)
