"""Finds every disk that a power loss during a recording may leave, in a model that promises as little as disks do.

- Bytes that were written and not synced may or may not have arrived (_tornwrites.py).
- Changes of names that no fsync of their directory has made durable may or may not have arrived, each on its own;
  those that have arrived did so in the order in which they were made.
- An fsync of a file says nothing about its name. After a failed fsync nothing is certain, for ever.

With `in_order` names are lost as a file system with a journal loses them: all changes after some moment are missing.
For the changes that a failed fsync should have made durable, that moment is chosen separately.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._diskimage import DiskImage, Entry
from ._recording import Acknowledgement, Change, NameChange, Operation, Recording, Sync
from ._tornwrites import Content, applied, possible_contents

MAX_CHOICES = 4096  # of name changes at one moment; beyond that, only the informative ones
MAX_CONTENTS = 64  # of file contents for one choice of names; beyond that, only the informative ones


@dataclass(frozen=True, slots=True)
class State:
    """One disk that a power loss may leave, and how it came about."""

    image: DiskImage
    acknowledged: tuple[Any, ...]
    done: tuple[Operation, ...]  # before the power failed
    lost: tuple[str, ...]
    kept: tuple[str, ...]  # not synced, but present by luck

    def __str__(self) -> str:
        parts = [
            ("the power failed after", [f"{number}. {step.text}" for number, step in enumerate(self.done, 1)]),
            ("lost", self.lost),
            ("survived without a sync", self.kept),
            ("so the disk holds", str(self.image).splitlines()),
        ]
        return "\n".join(f"{title}:\n" + "\n".join(f"    {line}" for line in lines) for title, lines in parts if lines)


class PowerLoss:
    """Iterate over it once. `left_out` is then the number of states that were skipped because there were too many."""

    def __init__(self, recording: Recording, *, ignore: Sequence[str] = (), in_order: bool = False) -> None:
        self._recording = recording
        self._in_order = in_order
        self._failures = 0
        self._ignored = re.compile("|".join(map(fnmatch.translate, ignore)) or r"(?!)").fullmatch
        self._names = dict(recording.before.names)  # certainly on the disk
        self._undecided: list[_Undecided] = []
        self._data = {node: _Data((content,)) for node, content in recording.before.contents.items()}
        self._stale = [content for content in recording.before.contents.values() if content]
        self.left_out = 0

    def __iter__(self) -> Iterator[State]:
        seen: set[tuple[object, ...]] = set()
        acknowledged: tuple[Any, ...] = ()
        operations = self._recording.operations
        for count in range(len(operations) + 1):
            if count:
                acknowledged += self._step(operations[count - 1])
            for image, lost, kept in self._images():
                identity = (len(acknowledged), image.identity(self._is_ignored))
                if identity not in seen:
                    seen.add(identity)
                    yield State(image, acknowledged, operations[:count], lost, kept)

    def _is_ignored(self, entry: Entry) -> bool:
        return self._ignored(entry.name) is not None

    def _step(self, operation: Operation) -> tuple[Any, ...]:
        match operation:
            case Acknowledgement():
                return (operation.value,)
            case NameChange():
                # Whether a name that does not matter is there does not matter either.
                self._undecided.append(_Undecided(operation, durable=all(map(self._is_ignored, operation.names))))
            case Sync():
                self._sync(operation)
            case _:
                self._data.setdefault(operation.node, _Data()).change(operation)
        return ()

    def _sync(self, sync: Sync) -> None:
        if data := self._data.get(sync.node):
            data.sync(self._stale, failed=sync.failed)
        self._failures += sync.failed
        for undecided in self._undecided:
            if undecided.change.directory == sync.node:
                undecided.failed_sync = undecided.failed_sync or (self._failures if sync.failed else 0)
                undecided.durable = not undecided.failed_sync
        self._apply_decided()

    def _apply_decided(self) -> None:
        """Move decided changes with nothing undecided before them to the disk. Overwritten changes do not matter."""
        overwritten: set[Entry] = set()
        waiting: list[_Undecided] = []
        for undecided in reversed(self._undecided):
            places = set(undecided.change.names)
            if undecided.durable or not places <= overwritten:
                waiting.insert(0, undecided)
            if undecided.durable:
                overwritten |= places
        while waiting and waiting[0].durable:
            _apply(waiting.pop(0).change, self._names)
        self._undecided = waiting

    def _images(self) -> Iterator[tuple[DiskImage, tuple[str, ...], tuple[str, ...]]]:
        seen: set[frozenset[tuple[Entry, int]]] = set()
        for survivors in self._choices():
            names = dict(self._names)
            for undecided in self._undecided:
                if undecided.durable or undecided in survivors:
                    _apply(undecided.change, names)
            key = frozenset(names.items())
            if key in seen:
                continue
            seen.add(key)
            open_changes = [undecided for undecided in self._undecided if not undecided.durable]
            lost = tuple(u.change.text for u in open_changes if u not in survivors)
            kept = tuple(u.change.text for u in open_changes if u in survivors)
            for contents, arrived in self._contents(names):
                yield DiskImage(self._recording.nodes, names, contents), lost, kept + arrived

    def _choices(self) -> Iterator[tuple[_Undecided, ...]]:
        """All subsets of the undecided changes; if too many, only prefixes, suffixes, and nearly all or nearly none."""
        undecided = [change for change in self._undecided if not change.durable]
        if self._in_order:
            yield from _beginnings(undecided)
            return
        if 2 ** len(undecided) <= MAX_CHOICES:
            for count in range(len(undecided), -1, -1):
                yield from itertools.combinations(undecided, count)
            return
        chosen: dict[tuple[_Undecided, ...], None] = {}
        for count in range(len(undecided) + 1):
            chosen[tuple(undecided[:count])] = None
            chosen[tuple(undecided[count:])] = None
        for few in itertools.chain(*(itertools.combinations(undecided, count) for count in (1, 2, 3))):
            chosen[few] = None
            chosen[tuple(change for change in undecided if change not in few)] = None
        self.left_out += 2 ** len(undecided) - len(chosen)
        yield from chosen

    def _contents(self, names: Mapping[Entry, int]) -> Iterator[tuple[dict[int, bytes], tuple[str, ...]]]:
        certain: dict[int, bytes] = {}
        open_files: dict[int, tuple[str, tuple[Content, ...]]] = {}
        for entry, node in sorted(names.items(), key=lambda item: self._is_ignored(item[0])):
            if node in certain or node in open_files or self._recording.nodes[node].kind != "file":
                continue
            possible, left_out = self._data.setdefault(node, _Data()).possible(self._stale)
            if len(possible) == 1 or self._is_ignored(entry):
                certain[node] = possible[0].data
            else:
                open_files[node] = (entry.name, possible)
                self.left_out += left_out
        for chosen in self._combinations([possible for _, possible in open_files.values()]):
            arrived = tuple(
                f"{name}: {content.text}" for (name, _), content in zip(open_files.values(), chosen, strict=True)
            )
            bytes_now = {node: content.data for node, content in zip(open_files, chosen, strict=True)}
            yield certain | bytes_now, arrived

    def _combinations(self, files: list[tuple[Content, ...]]) -> Iterator[tuple[Content, ...]]:
        """All combinations; if too many, each file has arrived or not, and one at a time varies beside all or none."""
        total = math.prod(map(len, files))
        if total <= MAX_CONTENTS:
            yield from itertools.product(*files)
            return
        arrived_or_not = [possible[:2] for possible in files]
        chosen = dict.fromkeys(itertools.islice(itertools.product(*arrived_or_not), MAX_CONTENTS))
        for background in zip(*arrived_or_not, strict=True):
            for index, possible in enumerate(files):
                for content in possible:
                    chosen[(*background[:index], content, *background[index + 1 :])] = None
        self.left_out += total - len(chosen)
        yield from chosen


@dataclass(eq=False, slots=True)
class _Undecided:
    """A change of names. A durable one is synced, and still listed only because an earlier one is undecided."""

    change: NameChange
    durable: bool = False
    failed_sync: int = 0  # the number of the first failed sync that should have made it durable


@dataclass(slots=True)
class _Data:
    """A file's bytes: what may be on the disk as last synced, and what was done since."""

    durable: tuple[bytes, ...] = (b"",)
    pending: list[Change] = field(default_factory=list)
    _possible: tuple[tuple[Content, ...], int] | None = None  # cached until something changes

    def change(self, change: Change) -> None:
        self.pending.append(change)
        self._possible = None

    def possible(self, stale: Sequence[bytes]) -> tuple[tuple[Content, ...], int]:
        """The possible contents, and how many were left out."""
        if self._possible is None:
            self._possible = self._find_possible(stale)
        return self._possible

    def _find_possible(self, stale: Sequence[bytes]) -> tuple[tuple[Content, ...], int]:
        found: dict[bytes, Content] = {}
        left_out = 0
        for durable in self.durable:
            contents = possible_contents(durable, self.pending, (other for other in stale if other != durable))
            left_out += contents.left_out
            for content in contents.possible:
                found.setdefault(content.data, content)
        return tuple(found.values()), left_out

    def sync(self, stale: Sequence[bytes], *, failed: bool) -> None:
        """After a failure the kernel considers the bytes written: any of them may be missing, and no sync helps."""
        if failed:
            self.durable = tuple(content.data for content in self.possible(stale)[0])
        else:
            self.durable = tuple(dict.fromkeys(applied(durable, self.pending) for durable in self.durable))
        self.pending = []
        self._possible = None


def _beginnings(undecided: Sequence[_Undecided]) -> Iterator[tuple[_Undecided, ...]]:
    """Each prefix of the changes that no sync has decided, and of those that each failed sync has lost."""
    groups: dict[int, list[_Undecided]] = {}
    for change in undecided:
        groups.setdefault(change.failed_sync, []).append(change)
    for lengths in itertools.product(*(range(len(group), -1, -1) for group in groups.values())):
        yield tuple(change for group, length in zip(groups.values(), lengths, strict=True) for change in group[:length])


def _apply(change: NameChange, names: dict[Entry, int]) -> None:
    for entry, node in change.names.items():
        if node is None:
            names.pop(entry, None)
        else:
            names[entry] = node
