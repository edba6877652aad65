"""Records calls on names: one method per call, which makes the call and then notes what it did."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import Any

from ._diskimage import Entry
from ._filecalls import FileCalls, exists
from ._oscalls import is_faked, path_of
from ._shadow import Shadow

# Where the kernel or the file system cannot exchange names, three renames do: no other process is looking.
EXCHANGE_UNKNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})
_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|\d+)|dev)/fd/(\d+)")


class NameCalls:
    """The real call comes first: a call that fails has not happened."""

    def __init__(self, shadow: Shadow, files: FileCalls) -> None:
        self._shadow = shadow
        self._files = files

    def link(self, real: Any, old: Any, new: Any, **options: Any) -> None:
        source, target = self._both(old, new, options)
        node = self._node_of(old, source, options) if target else None
        real(old, new, **options)
        if target:
            self._shadow.change(f"link {self._shadow.text(source)} to {self._shadow.text(target)}", {target: node})

    def symlink(self, real: Any, to: Any, new: Any, *_: Any, dir_fd: int | None = None) -> None:
        entry = self._files.find(new, dir_fd)
        real(to, new, dir_fd=dir_fd)
        if entry:
            node = self._shadow.new("symlink", 0o777, os.fsdecode(to))
            self._shadow.change(f"symlink {self._shadow.text(entry)} to {os.fsdecode(to)}", {entry: node})

    def rename(self, real: Any, old: Any, new: Any, **options: Any) -> None:
        source, target = self._both(old, new, options)
        node = self._node_of(old, source, options) if target else None
        real(old, new, **options)
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

    def exchange(self, real: Any, directory: int, old: str, new: str) -> None:
        one, other = self._files.find(old, directory), self._files.find(new, directory)
        assert one
        assert other
        names, operations = dict(self._shadow.names), list(self._shadow.operations)
        try:
            if is_faked():
                raise OSError(errno.ENOSYS, "a call through ctypes would go past pyfakefs")
            real(directory, old, new)
        except OSError as error:
            if error.errno not in EXCHANGE_UNKNOWN:
                raise
            for source, target in ((old, ".exchanged"), (new, old), (".exchanged", new)):
                os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)
            self._shadow.names, self._shadow.operations = names, operations  # as if it had been one step
        text = f"exchange {self._shadow.text(one)} and {self._shadow.text(other)}"
        self._shadow.change(text, {one: self._shadow.at(other), other: self._shadow.at(one)})

    def unlink(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        self._forget("unlink", real, path, dir_fd)

    remove = unlink

    def rmdir(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        self._forget("rmdir", real, path, dir_fd)

    def mkdir(self, real: Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        entry = self._files.find(path, dir_fd)
        assert entry
        real(path, mode, dir_fd=dir_fd)
        made = self._shadow.new("directory", stat.S_IMODE(os.stat(path, dir_fd=dir_fd).st_mode))
        self._shadow.change(f"mkdir {self._shadow.text(entry)}", {entry: made})

    def _both(self, old: Any, new: Any, options: dict[str, Any]) -> tuple[Entry | None, Entry | None]:
        return (
            self._files.find(old, options.get("src_dir_fd")),
            self._files.find(new, options.get("dst_dir_fd")),
        )

    def _node_of(self, path: Any, source: Entry | None, options: dict[str, Any]) -> int | None:
        """None if there is no such file; the call will fail then."""
        named = _DESCRIPTOR.fullmatch(os.fsdecode(path))
        handle = self._files.handle(int(named[1])) if named else None
        if handle:
            return handle.node  # linked through its descriptor, as a file of O_TMPFILE is
        directory = options.get("src_dir_fd")
        if not exists(path, directory):
            return None
        if source:
            return self._shadow.at(source)
        # The file comes from outside. Which of its bytes are synced is unknown, so none count as synced.
        node = self._shadow.bring_in(path if directory is None else os.path.join(path_of(directory), path))
        self._files.unsynced.add(node)
        return node

    def _forget(self, call: str, real: Any, path: Any, dir_fd: int | None) -> None:
        entry = self._files.find(path, dir_fd)
        assert entry
        real(path, dir_fd=dir_fd)
        self._shadow.at(entry)
        self._shadow.change(f"{call} {self._shadow.text(entry)}", {entry: None})
