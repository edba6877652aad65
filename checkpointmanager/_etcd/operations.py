"""The parts of an etcd transaction, in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .wire import CREATE_REVISION, MOD_REVISION, Compare, RequestOp, TxnRequest


def created_at(name: bytes, revision: int) -> Any:
    """True if the name was created at that revision; 0: if it does not exist."""
    return Compare(target=CREATE_REVISION, key=name, create_revision=revision)


def changed_at(name: bytes, revision: int) -> Any:
    """True if the name was last written at that revision; 0: if it does not exist."""
    return Compare(target=MOD_REVISION, key=name, mod_revision=revision)


def put(name: bytes, value: bytes, lease: int = 0) -> Any:
    return RequestOp(request_put={"key": name, "value": value, "lease": lease})


def delete(name: bytes) -> Any:
    return RequestOp(request_delete_range={"key": name})


def get(name: bytes) -> Any:
    return RequestOp(request_range={"key": name})


def nested(operations: Sequence[Any]) -> Any:
    """Several operations as one: etcd counts each level of nesting by itself."""
    return RequestOp(request_txn={"success": operations})


def txn(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    return TxnRequest(compare=compare, success=success, failure=failure)
