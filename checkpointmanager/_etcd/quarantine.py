"""Copies of damaged checkpoints, made below `.quarantine/` before anything replaces the damaged bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._errors import CheckpointNotFound
from ..format import KEPT_PER_KEY, QUARANTINE, copy_name, parse_copy
from . import wire
from .client import Client, StoreCall
from .layout import Layout, after_all, names
from .ownership import Ownership
from .wire import RANGE


class Copy(NamedTuple):
    """Ordered by the revision that made it, which is more reliable than a clock."""

    revision: int
    name: bytes
    key: str


class Quarantine:
    """The copies of one prefix."""

    def __init__(self, client: Client, layout: Layout, ownership: Ownership) -> None:
        self._client = client
        self._layout = layout
        self._ownership = ownership

    def keep(self, call: StoreCall, key: str, reason: str, path: str) -> str:
        """Copy the current value, unless there is an equal copy, and return the name of the copy."""
        while True:
            found = self._client.ask(call, RANGE, RANGE.request(key=self._layout.current(key))).kvs
            if not found:
                raise CheckpointNotFound(key, path)
            copies = self._copies(call, self._layout.copies(key), key)
            for copy in copies:
                if self._value(call, copy.name) == found[0].value:
                    return self._layout.below(copy.name)
            name = self._new_name(key, reason, copies)
            surplus = [wire.delete(copy.name) for copy in copies[: 1 - KEPT_PER_KEY]]
            seen = wire.changed_at(self._layout.current(key), found[0].mod_revision)
            if self._change(call, [seen], [wire.put(name, found[0].value), *surplus]):
                return self._layout.below(name)

    def delete(self, call: StoreCall, name: str, path: str) -> None:
        """Delete a copy for good."""
        if parse_copy(name) is None:
            raise CheckpointNotFound(name, path)
        copy = self._layout.quarantine + name.encode()
        while not self._change(call, [], [wire.delete(copy)]):
            pass  # `.lock` was written again meanwhile, by this owner

    def kept(self, call: StoreCall) -> dict[str, list[str]]:
        """The names of each key's copies, oldest first."""
        found: dict[str, list[str]] = {}
        for copy in self._copies(call, self._layout.quarantine):
            found.setdefault(copy.key, []).append(self._layout.below(copy.name))
        return found

    def _change(self, call: StoreCall, compare: Sequence[Any], steps: Sequence[Any]) -> bool:
        """False if something was changed meanwhile; DirectoryLocked if that is the owner."""
        hold = self._ownership.hold
        try:
            reply = self._ownership.ask(call, hold, compare, steps)
        finally:
            if call.unanswered:
                self._ownership.doubt(hold)
        if not reply.succeeded:
            self._ownership.learn(reply.responses[0].response_range.kvs, hold)
        return bool(reply.succeeded)

    def _copies(self, call: StoreCall, start: bytes, key: str | None = None) -> list[Copy]:
        copies = []
        found, _ = names(self._client, call, start, after_all(start))
        for kv in found:
            name = parse_copy(self._layout.below(kv.key).removeprefix(f"{QUARANTINE}/"))
            if name and key in (None, name.key):
                copies.append(Copy(kv.create_revision, kv.key, name.key))
        return sorted(copies)

    def _value(self, call: StoreCall, name: bytes) -> bytes | None:
        found = self._client.ask(call, RANGE, RANGE.request(key=name)).kvs
        return found[0].value if found else None

    def _new_name(self, key: str, reason: str, copies: Sequence[Copy]) -> bytes:
        taken = {copy.name.removeprefix(self._layout.quarantine).decode() for copy in copies}
        return self._layout.quarantine + copy_name(key, reason, taken).encode()
