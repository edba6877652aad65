"""Reads and writes ResourceSlices at the API server, and decides whether a stored slice is as we want it.

The server never stores quite what it was sent: quantities come back in another form (1024Mi as 1Gi), and it drops
empty lists and the fields of features that are off. So stored slices are compared with the server's form of ours,
which is in its answer to a write or to a dry run. Comparing with ours alone would give the pool a new generation at
every check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from .._apiserver.client import ApiError, ApiServer

Item = Mapping[str, Any]


class NotServed(Exception):
    """This API server does not have the API that the agent needs. The text says what to do."""


class SliceWriter:
    """Remembers the server's form of our slices until `forget` is called."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._stored: dict[str, tuple[object, object]] = {}  # by name: the slice we want, and the server's form of it

    def forget(self) -> None:
        """Ask the server again: it may store more fields of a slice than before."""
        self._stored.clear()

    def found(self, driver: str, node: str) -> dict[str, Item]:
        """The slices of a driver on a node, by name; with "" as the node, those that belong to no single node."""
        selector = quote(f"spec.driver={driver},spec.nodeName={node}", "")
        try:
            answer = self._server.request("GET", f"/resourceslices?fieldSelector={selector}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and "v1" not in (served := self._server.served_versions()):
                has = f"only {', '.join(served)}" if served else "nothing of it"
                raise NotServed(
                    f"the API server does not serve resource.k8s.io/v1 (it has {has}): the agent needs Kubernetes 1.34 "
                    "or newer with this API on; it continues by itself once the API is there"
                ) from error
            raise
        return named(answer.get("items") or [])

    def agree(self, found: Mapping[str, Item], wanted: Mapping[str, Item]) -> bool:
        """True if the slices found are exactly those that we want."""
        return found.keys() == wanted.keys() and all(self._agree(found[name], wanted[name]) for name in wanted)

    def write(self, wanted: Iterable[Item], found: Mapping[str, Item]) -> None:
        for item in wanted:
            name = item["metadata"]["name"]
            self._stored[name] = (_content(item), _content(self._write(item, found.get(name))))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._server.request("DELETE", _path(name))
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise

    def _agree(self, found: Item, wanted: Item) -> bool:
        name, content = wanted["metadata"]["name"], _content(wanted)
        if _content(found) == _content(_with_times(wanted, found)):
            return True
        if pool_of(found)["name"] != pool_of(wanted)["name"]:
            return False
        if self._stored.get(name, (None, None))[0] != content:
            self._stored[name] = (content, _content(self._write(wanted, found, "?dryRun=All")))
        return self._stored[name][1] == _content(found)

    def _write(self, item: Item, found: Item | None, option: str = "") -> Item:
        if found is None:
            return self._server.request("POST", "/resourceslices", item)
        version = found["metadata"].get("resourceVersion", "")
        item = {**_with_times(item, found), "metadata": {**item["metadata"], "resourceVersion": version}}
        return self._server.request("PUT", f"{_path(item['metadata']['name'])}{option}", item)


def named(items: Iterable[Item]) -> dict[str, Item]:
    return {item["metadata"]["name"]: item for item in items}


def pool_of(item: Item) -> Item:
    pool: Item = item["spec"]["pool"]
    return pool


def _with_times(wanted: Item, found: Item) -> Item:
    """The server sets the time of a taint in every write that has none, so an existing taint must keep its time."""
    times = {
        (device["name"], *_taint(taint)): taint["timeAdded"]
        for device in found["spec"].get("devices") or []
        for taint in device.get("taints") or []
        if "timeAdded" in taint
    }
    if not times:
        return wanted

    def timed(device: str, taint: Item) -> Item:
        known = times.get((device, *_taint(taint)))
        return {**taint, "timeAdded": known} if known else taint

    devices = [
        {**device, "taints": [timed(device["name"], taint) for taint in device["taints"]]}
        if "taints" in device
        else device
        for device in wanted["spec"].get("devices") or []
    ]
    return {**wanted, "spec": {**wanted["spec"], "devices": devices}}


def _taint(taint: Item) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _content(item: Item) -> object:
    """What is ours in a slice; the rest of its metadata is the server's."""
    return item["metadata"].get("ownerReferences"), item["spec"]


def _path(name: str) -> str:
    return f"/resourceslices/{quote(name, '')}"
