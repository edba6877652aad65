"""Records what a program does to a directory as a list of operations.

At the end the directory is compared with the record: a change that the recorder did not see (by another process,
through mmap, by a call it does not know) is an error, not a gap.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._diskimage import Entry
from ._recording import Acknowledgement, Recording, Shadow, Sync
from ._scenario import Collected, acknowledgements_to, close
from ._watch import Call, Make, Watch, path_of

RECORDED = (
    *("open", "write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range"),
    *("truncate", "ftruncate", "posix_fallocate", "fsync", "fdatasync"),
    *("link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
)
WRITTEN_THROUGH = os.O_SYNC | os.O_DSYNC  # O_SYNC is several bits, of which O_DSYNC is one
TMPFILE = getattr(os, "O_TMPFILE", 0)  # several bits as well
_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|\d+)|dev)/fd/(\d+)")


def record(
    setup: Callable[[Path], Any], scenario: Callable[[Any], object], directory: Path, root: Path
) -> tuple[Recording, tuple[Any, ...]]:
    """What the scenario does below `root`, and what its setup acknowledged. Raises UnseenChange."""
    collected = Collected()
    with acknowledgements_to(collected):
        given = setup(directory)
    try:
        recorder = Recorder(str(root))
        with recorder.recording():
            scenario(given)
        return recorder.result(), tuple(collected.values)
    finally:
        close(given)


class Recorder:
    """Has one method per call, which makes the call and then notes what it did: a call that fails has not happened.

    Puts the calls of all threads in one order: each is made and noted before the next. A descriptor without a node is
    that of a file outside, opened through a symbolic link.
    """

    def __init__(self, directory: str) -> None:
        self._guard = threading.RLock()  # guards the two attributes below
        self._shadow = Shadow(directory)
        self._unsynced: set[int] = set()  # nodes with bytes that no sync and no O_SYNC has made durable
        self._watch = Watch(directory, self._around, RECORDED)

    @contextmanager
    def recording(self) -> Iterator[None]:
        with self._watch.watching(), acknowledgements_to(self):
            yield

    def result(self) -> Recording:
        return self._shadow.recording()

    def acknowledge(self, value: Any) -> None:
        with self._guard:
            self._shadow.operations.append(Acknowledgement(f"acknowledge {value!r}", value))

    def sync_failed(self, descriptor: int) -> None:
        """Note a sync that failed, whether it was made or not."""
        with self._guard:
            node = self._shadow.node_of(descriptor)
            if node is not None:
                text = f"fsync {self._shadow.path(node)} (failed)"
                self._shadow.operations.append(Sync(text, node, failed=True))

    def _around(self, call: Call, make: Make, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        note = getattr(self, call.name)
        with self._guard:
            return note(make, *arguments, **options)

    # Calls on open files.

    def open(self, make: Make, path: Any, flags: int, _: int = 0o777, *, dir_fd: int | None = None) -> int:
        entry = self._find(path, dir_fd)
        if entry and entry not in self._shadow.names and _exists(path, dir_fd):
            self._shadow.refuse(self._shadow.text(entry))
        descriptor: int = make()
        status = os.fstat(descriptor)
        if TMPFILE and flags & TMPFILE == TMPFILE:
            self._shadow.new("file", status)  # no name yet: a link may give it one
        elif entry and entry not in self._shadow.names:
            self._shadow.change(f"create {self._shadow.text(entry)}", {entry: self._shadow.new("file", status)})
        elif flags & os.O_TRUNC:
            self._shadow.resize(self._shadow.node_of(descriptor), 0)
        return descriptor

    def write(self, make: Make, descriptor: int, data: Any) -> int:
        written: int = make()
        self._put(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR) - written, bytes(data)[:written])
        return written

    def writev(self, make: Make, descriptor: int, buffers: Iterable[Any]) -> int:
        pieces = [bytes(buffer) for buffer in buffers]
        return self.write(lambda: make(descriptor, pieces), descriptor, b"".join(pieces))

    def pwrite(self, make: Make, descriptor: int, data: Any, offset: int) -> int:
        written: int = make()
        node = self._shadow.node_of(descriptor)
        if node is not None and _flags(descriptor) & os.O_APPEND:
            offset = len(self._shadow.contents[node])  # as Linux does
        self._put(descriptor, offset, bytes(data)[:written])
        return written

    def pwritev(self, make: Make, descriptor: int, buffers: Iterable[Any], offset: int, flags: int = 0) -> int:
        node = self._shadow.node_of(descriptor)
        if flags and node is not None:
            self._shadow.refuse(self._shadow.path(node))  # such as RWF_DSYNC
        pieces = [bytes(buffer) for buffer in buffers]
        return self.pwrite(lambda: make(descriptor, pieces, offset, flags), descriptor, b"".join(pieces), offset)

    # Where the kernel moves the bytes itself, Python does it instead: the same bytes, through calls that are noted.

    def sendfile(self, _: Make, target: int, source: int, offset: int | None, count: int) -> int:
        data = os.read(source, count) if offset is None else os.pread(source, count, offset)
        return self.write(lambda: os.write(target, data), target, data)

    def copy_file_range(
        self, _: Make, source: int, target: int, count: int, offset: int | None = None, to: int | None = None
    ) -> int:
        if to is None:
            return self.sendfile(_, target, source, offset, count)
        data = os.read(source, count) if offset is None else os.pread(source, count, offset)
        return self.pwrite(lambda: os.pwrite(target, data, to), target, data, to)

    def truncate(self, make: Make, file: Any, *_: Any) -> None:
        """Also for posix_fallocate: what matters is the new size."""
        make()
        self._shadow.resize(self._shadow.node_of(file), os.stat(file).st_size)

    ftruncate = posix_fallocate = truncate

    def fsync(self, make: Make, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        try:
            make()
        except OSError:
            self.sync_failed(number)
            raise
        self._synced(self._shadow.node_of(number), "fsync")

    fdatasync = fsync

    # Calls on names.

    def link(self, make: Make, old: Any, new: Any, **options: Any) -> None:
        source, target = self._both(old, new, options)
        node = self._node_at(old, source, options) if target else None
        make()
        if target:
            self._shadow.change(f"link {self._shadow.text(source)} to {self._shadow.text(target)}", {target: node})

    def symlink(self, make: Make, to: Any, new: Any, *_: Any, dir_fd: int | None = None) -> None:
        entry = self._find(new, dir_fd)
        make()
        if entry:
            status = os.stat(new, dir_fd=dir_fd, follow_symlinks=False)
            node = self._shadow.new("symlink", status, os.fsdecode(to))
            self._shadow.change(f"symlink {self._shadow.text(entry)} to {os.fsdecode(to)}", {entry: node})

    def rename(self, make: Make, old: Any, new: Any, **options: Any) -> None:
        source, target = self._both(old, new, options)
        node = self._node_at(old, source, options) if target else None
        make()
        text = f"rename {self._shadow.text(source)} to {self._shadow.text(target)}"
        if source and target and node == self._shadow.names.get(target):
            return  # two names of one file: then rename does nothing
        if source and target and source.directory == target.directory:
            self._shadow.change(text, {source: None, target: node})
            return
        # Two directories are two changes, and a power loss may leave one without the other.
        if target:
            self._shadow.change(f"{text} (the new name)", {target: node})
        if source:
            self._shadow.at(source)
            self._shadow.change(f"{text} (the old name)", {source: None})

    replace = rename

    def unlink(self, make: Make, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove("unlink", make, path, dir_fd)

    remove = unlink

    def rmdir(self, make: Make, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove("rmdir", make, path, dir_fd)

    def mkdir(self, make: Make, path: Any, _: int = 0o777, *, dir_fd: int | None = None) -> None:
        entry = self._find(path, dir_fd)
        assert entry
        make()
        made = self._shadow.new("directory", os.stat(path, dir_fd=dir_fd))
        self._shadow.change(f"mkdir {self._shadow.text(entry)}", {entry: made})

    def _find(self, path: Any, dir_fd: int | None = None) -> Entry | None:
        if dir_fd is None or os.path.isabs(path):
            return self._shadow.find(path)
        base = self._shadow.node_of(dir_fd)
        return None if base is None else self._shadow.find(path, base)

    def _both(self, old: Any, new: Any, options: dict[str, Any]) -> tuple[Entry | None, Entry | None]:
        return self._find(old, options.get("src_dir_fd")), self._find(new, options.get("dst_dir_fd"))

    def _node_at(self, path: Any, source: Entry | None, options: dict[str, Any]) -> int | None:
        """None if there is no such file; the call will fail then."""
        named = _DESCRIPTOR.fullmatch(os.fsdecode(path))
        if named and (node := self._shadow.node_of(int(named[1]))) is not None:
            return node  # linked through its descriptor, as a file of O_TMPFILE is
        directory = options.get("src_dir_fd")
        if not _exists(path, directory):
            return None
        if source:
            return self._shadow.at(source)
        # The file comes from outside. Which of its bytes are synced is unknown, so none count as synced.
        node = self._shadow.import_file(path if directory is None else os.path.join(path_of(directory), path))
        self._unsynced.add(node)
        return node

    def _remove(self, call: str, make: Make, path: Any, dir_fd: int | None) -> None:
        entry = self._find(path, dir_fd)
        assert entry
        make()
        self._shadow.at(entry)
        self._shadow.change(f"{call} {self._shadow.text(entry)}", {entry: None})

    def _synced(self, node: int | None, how: str) -> None:
        if node is not None:
            self._unsynced.discard(node)
            self._shadow.operations.append(Sync(f"{how} {self._shadow.path(node)}", node))

    def _put(self, descriptor: int, offset: int, data: bytes) -> None:
        node = self._shadow.node_of(descriptor)
        if node is None:
            return
        self._shadow.put(node, offset, data)
        if not _flags(descriptor) & WRITTEN_THROUGH:
            self._unsynced.add(node)
        elif node not in self._unsynced:  # only these bytes are durable; others may still be unsynced
            self._synced(node, "O_SYNC")


def _flags(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL)


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True
