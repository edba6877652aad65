"""Accepts etcd://HOST:PORT[,HOST:PORT…]/PREFIX for a directory, and .../PREFIX/KEY.json for a file.

The names and bytes in etcd are the same as in a directory. So they are copied, as of one moment, into a private folder
in which the URL of the command line is a path, and every command reads them there. Commands that change something open
the store itself. Certificates and user come from the environment, under the names that etcdctl uses: ETCDCTL_CACERT,
ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from checkpointmanager.format import LOCK, PREVIOUS, QUARANTINE, SUFFIX, decode_key, key_in

from .exitcodes import UsageError

SCHEME = "etcd://"
_FILE = re.compile(rf"/(?:[^/]+{re.escape(SUFFIX)}|{re.escape(PREVIOUS)}[^/]+|{re.escape(QUARANTINE)}(?:/[^/]*)?)/?$")
_COPY = re.compile(rf"{re.escape(QUARANTINE)}/[A-Za-z0-9%_][A-Za-z0-9%._-]*{re.escape(SUFFIX)}")


class Place(NamedTuple):
    """Where checkpoints are kept in etcd."""

    addresses: tuple[str, ...]
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(self.addresses)}{self.prefix}"

    def open(self, **options: Any) -> Any:
        """Open the store itself, an EtcdStore, without waiting for a lock that is held."""
        try:
            from checkpointmanager.etcd import EtcdStore  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise UsageError(f"{self} needs the Python package {missing.name}: install the extra [etcd]") from None
        credentials = _credentials()
        scheme = "https" if "ca" in credentials or "cert" in credentials else "http"
        endpoints = [f"{scheme}://{address}" for address in self.addresses]
        try:
            return EtcdStore(endpoints, self.prefix, lock_timeout=0, **credentials, **options)
        except ValueError as error:
            raise UsageError(f"{self}: {error}") from None


def place_in(word: str) -> Place:
    """The place of a directory or a file."""
    addresses, slash, rest = word.removeprefix(SCHEME).partition("/")
    if "@" in addresses:  # not shown, because it may contain a password
        raise UsageError(f"{SCHEME}…{slash}{rest}: a URL has no user; set ETCDCTL_USER=name:password instead")
    prefix = _FILE.sub("", slash + rest).rstrip("/")
    if not addresses or not prefix:
        raise UsageError(f"{word}: write {SCHEME}HOST:PORT/PREFIX, or {SCHEME}HOST:PORT/PREFIX/KEY{SUFFIX}")
    return Place(tuple(addresses.split(",")), prefix)


def refresh(path: str) -> None:
    """Update the copy of one checkpoint from etcd. Does nothing for a file."""
    if not path.startswith(SCHEME):
        return
    store = place_in(path).open(read_only=True)
    try:
        blob = store.read(key_in(os.path.basename(path)) or "")
    finally:
        store.close()
    with open(path, "wb") as file:
        file.write(blob)


def copy(word: str) -> None:
    """Copy what a URL names, as of one moment, into the current directory, below the URL as a path.

    Names that are not ours are left out: nothing in etcd may choose a path here.
    """
    place = place_in(word)
    store = place.open(read_only=True)
    os.makedirs(os.path.join(str(place), QUARANTINE), mode=0o700)
    try:
        for name, blob in store.snapshot():
            key = name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else name.removeprefix(PREVIOUS)
            if name == LOCK or (key != name and decode_key(key) is not None) or _COPY.fullmatch(name):
                path = os.path.join(str(place), name)
                with open(path, "xb", opener=_private) as file:
                    file.write(blob)
                os.utime(path, (0, 0))  # no time at all: that of the copy would be taken for that of the writing
    finally:
        store.close()


def _credentials() -> dict[str, Any]:
    names = {"ca": "ETCDCTL_CACERT", "cert": "ETCDCTL_CERT", "key": "ETCDCTL_KEY"}
    found: dict[str, Any] = {name: os.environ[variable] for name, variable in names.items() if os.environ.get(variable)}
    user, _, password = os.environ.get("ETCDCTL_USER", "").partition(":")
    if user:
        found |= {"user": user, "password": password or os.environ.get("ETCDCTL_PASSWORD", "")}
    return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
