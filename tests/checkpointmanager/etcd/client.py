"""A client of etcd for the tests alone. It shares no code with the store, so that it finds what the store does wrong.

A message is a list of (field number, value), as in etcd's rpc.proto; only numbers and bytes are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc

SECONDS = 30.0  # for a call; a watch may take as long
MAX_REPLY_BYTES = 256 << 20  # a watch sends a long history at once
DELETED = 1  # type of an event

Value = int | str | bytes
Message = dict[int, list[Any]]  # the values of each field


class KeyValue(NamedTuple):
    """A name below a prefix, and what is there."""

    name: str
    create_revision: int
    mod_revision: int
    version: int
    value: bytes
    lease: int


class Event(NamedTuple):
    """One revision wrote or deleted a name."""

    deleted: bool
    kv: KeyValue


class Etcd:
    """One member, as an operator with etcdctl sees it. Connects for each call anew."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: str = "",
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._address = endpoint.partition("://")[2]
        self._seconds = seconds
        self._metadata = (("token", token),) if token else ()
        self._files = (ca, key, cert)

    def get(self, name: str) -> KeyValue | None:
        found = self._call("KV/Range", (1, name)).get(2, [])
        return _key_value(found[0]) if found else None

    def names(self, start: str) -> list[KeyValue]:
        """All names that begin with `start`, without their values."""
        found = self._call("KV/Range", (1, start), (2, _end(start)), (8, 1))
        return [_key_value(kv) for kv in found.get(2, [])]

    def put(self, name: str, value: bytes) -> int:
        """Returns the revision that it made, as the others do."""
        return _revision(self._call("KV/Put", (1, name), (2, value)))

    def delete(self, *names: str) -> int:
        """All of them at once."""
        return _revision(self._call("KV/Txn", *((2, _encode((3, _encode((1, name))))) for name in names)))

    def revoke(self, lease: int) -> None:
        """As etcd itself does when it expires."""
        self._call("Lease/LeaseRevoke", (1, lease))

    def compact(self, revision: int, *, physical: bool = False) -> None:
        """Forget everything before that revision."""
        self._call("KV/Compact", (1, revision), (2, int(physical)))

    def events(self, start: str, first: int, last: int) -> list[Event]:
        """Of all names that begin with `start`, from one revision to another. Revisions that are compacted are left
        out.
        """
        found: list[Event] = []
        tries = iter(range(3))  # a busy server may drop the connection
        while True:
            watch = _encode((1, start), (2, _end(start)), (3, first))
            try:
                for reply in self._stream("Watch/Watch", (1, watch)):
                    if reply.get(5):
                        first = reply[5][0]
                        break
                    found += map(_event, reply.get(11, []))
                    if found and found[-1].kv.mod_revision >= last:
                        return found
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or next(tries, None) is None:
                    raise
                found.clear()

    def _call(self, method: str, *fields: tuple[int, Value]) -> Message:
        with self._channel() as channel:
            stub = channel.unary_unary(f"/etcdserverpb.{method}", bytes, _decode)
            reply: Message = stub(_encode(*fields), timeout=self._seconds, metadata=self._metadata)
            return reply

    def _stream(self, method: str, *fields: tuple[int, Value]) -> Iterator[Message]:
        with self._channel() as channel:
            stub = channel.stream_stream(f"/etcdserverpb.{method}", bytes, _decode)
            yield from stub(iter([_encode(*fields)]), timeout=self._seconds, metadata=self._metadata)

    def _channel(self) -> Any:
        options = [("grpc.max_receive_message_length", MAX_REPLY_BYTES)]
        if not any(self._files):
            return grpc.insecure_channel(self._address, options)
        contents = [path.read_bytes() if path else None for path in self._files]
        return grpc.secure_channel(self._address, grpc.ssl_channel_credentials(*contents), options)


def _end(start: str) -> bytes:
    return start[:-1].encode() + bytes([ord(start[-1]) + 1])


def _revision(reply: Message) -> int:
    return int(_decode(reply[1][0])[3][0])


def _key_value(encoded: bytes) -> KeyValue:
    fields = _decode(encoded)
    name, *numbers = (fields.get(number, [0])[0] for number in (1, 2, 3, 4, 6))
    created, changed, version, lease = numbers
    return KeyValue(name.decode(), created, changed, version, fields.get(5, [b""])[0], lease)


def _event(encoded: bytes) -> Event:
    fields = _decode(encoded)
    return Event(fields.get(1, [0])[0] == DELETED, _key_value(fields[2][0]))


def _encode(*fields: tuple[int, Value]) -> bytes:
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += _varint(number << 3) + _varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            encoded += _varint(number << 3 | 2) + _varint(len(content)) + content
    return encoded


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _decode(encoded: bytes) -> Message:
    fields: Message = {}
    at = 0
    while at < len(encoded):
        tag, at = _number(encoded, at)
        value: Any
        value, at = _number(encoded, at)
        if tag & 7:  # bytes, and the number is their length
            value, at = encoded[at : at + value], at + value
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _number(encoded: bytes, at: int) -> tuple[int, int]:
    """A varint, and where the next one begins."""
    number = shift = 0
    while encoded[at] & 0x80:
        number |= (encoded[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | encoded[at] << shift, at + 1
