"""The messages of etcd's v3 API that a store needs, and the parts of a transaction.

The classes are made when this module is imported, from lines in the syntax of proto3. Numbers and types are the
contract with etcd; fields that are not listed are ignored. There is no generated code: it would be tied to one version
of protobuf, and changing it would need a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "checkpointmanager.etcd"  # any name will do: it is not sent
_TYPES = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _TYPES.TYPE_BOOL,
    "bytes": _TYPES.TYPE_BYTES,
    "int32": _TYPES.TYPE_INT32,  # also for enumerations, which are the same on the wire
    "int64": _TYPES.TYPE_INT64,
    "string": _TYPES.TYPE_STRING,
    "uint64": _TYPES.TYPE_UINT64,
}
# The members of a oneof are declared as ordinary fields; this package sets exactly one of them.
_FIELDS = {
    "ResponseHeader": "uint64 cluster_id = 1; int64 revision = 3",
    "KeyValue": "bytes key = 1; int64 create_revision = 2; int64 mod_revision = 3; bytes value = 5; int64 lease = 6",
    "RangeRequest": "bytes key = 1; bytes range_end = 2; int64 limit = 3; int64 revision = 4; bool keys_only = 8",
    "RangeResponse": "ResponseHeader header = 1; repeated KeyValue kvs = 2; bool more = 3",
    "PutRequest": "bytes key = 1; bytes value = 2; int64 lease = 3",
    "DeleteRangeRequest": "bytes key = 1",
    "Compare": "int32 result = 1; int32 target = 2; bytes key = 3; int64 create_revision = 5; int64 mod_revision = 6; "
    "int64 lease = 8",
    "RequestOp": "RangeRequest request_range = 1; PutRequest request_put = 2; "
    "DeleteRangeRequest request_delete_range = 3; TxnRequest request_txn = 4",
    "ResponseOp": "RangeResponse response_range = 1",
    "TxnRequest": "repeated Compare compare = 1; repeated RequestOp success = 2; repeated RequestOp failure = 3",
    "TxnResponse": "ResponseHeader header = 1; bool succeeded = 2; repeated ResponseOp responses = 3",
    "LeaseGrantRequest": "int64 TTL = 1; int64 ID = 2",
    "LeaseGrantResponse": "int64 TTL = 3",
    "LeaseRevokeRequest": "int64 ID = 1",
    "LeaseRevokeResponse": "",
    "LeaseKeepAliveRequest": "int64 ID = 1",
    "LeaseKeepAliveResponse": "ResponseHeader header = 1; int64 TTL = 3",
    "WatchRequest": "WatchCreateRequest create_request = 1",
    "WatchCreateRequest": "bytes key = 1; int64 start_revision = 3",
    "WatchResponse": "bool canceled = 4; repeated Event events = 11",
    "Event": "int32 type = 1",
    "AuthenticateRequest": "string name = 1; string password = 2",
    "AuthenticateResponse": "string token = 2",
}

DELETED = 1  # Event.type
_CREATE_REVISION, _MOD_REVISION, _LEASE = 1, 2, 4  # Compare.target; its result 0 means equal


class Method(NamedTuple):
    """One call of a service: its path, and the classes of its messages."""

    path: str
    request: Any
    reply: Any


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="checkpointmanager/etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, lines in _FIELDS.items():
        message = file.message_type.add(name=name)
        for line in filter(None, lines.split("; ")):
            *repeated, kind, field_name, _, number = line.split()
            label = _TYPES.LABEL_REPEATED if repeated else _TYPES.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = _TYPES.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()  # the default one may have messages of these names from another package
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}


def _method(service: str, name: str) -> Method:
    return Method(f"/etcdserverpb.{service}/{name}", _made[f"{name}Request"], _made[f"{name}Response"])


_made = _messages()
_Compare = _made["Compare"]
_RequestOp = _made["RequestOp"]

RANGE = _method("KV", "Range")
TXN = _method("KV", "Txn")
LEASE_GRANT = _method("Lease", "LeaseGrant")
LEASE_REVOKE = _method("Lease", "LeaseRevoke")
LEASE_KEEP_ALIVE = _method("Lease", "LeaseKeepAlive")
WATCH = _method("Watch", "Watch")
AUTHENTICATE = _method("Auth", "Authenticate")


def created_at(name: bytes, revision: int) -> Any:
    """Holds if the name was created at that revision; 0 means that it does not exist."""
    return _Compare(target=_CREATE_REVISION, key=name, create_revision=revision)


def changed_at(name: bytes, revision: int) -> Any:
    """Holds if the name was last written at that revision; 0 means that it does not exist."""
    return _Compare(target=_MOD_REVISION, key=name, mod_revision=revision)


def attached_to(name: bytes, lease: int) -> Any:
    """Holds if the name exists and is attached to that lease; 0 means to none."""
    return _Compare(target=_LEASE, key=name, lease=lease)


def put(name: bytes, value: bytes, lease: int = 0) -> Any:
    return _RequestOp(request_put={"key": name, "value": value, "lease": lease})


def delete(name: bytes) -> Any:
    return _RequestOp(request_delete_range={"key": name})


def get(name: bytes, revision: int = 0) -> Any:
    """Its value at that revision; 0 means now."""
    return _RequestOp(request_range={"key": name, "revision": revision})


def nested(operations: Sequence[Any], size: int) -> list[Any]:
    """The same operations in groups of `size`, because etcd counts each group as one."""
    groups = [operations[start : start + size] for start in range(0, len(operations), size)]
    return [_RequestOp(request_txn={"success": group}) for group in groups]


def txn(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    return TXN.request(compare=compare, success=success, failure=failure)
