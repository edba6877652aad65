"""Records calls on names: one method per call, which makes the call and then notes what it did."""

from __future__ import annotations

import os
import re
from typing import Any

from ._diskimage import Entry
from ._filecalls import FileCalls, exists
from ._oscalls import path_of
from ._shadow import Shadow
from ._watch import Make

_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|\d+)|dev)/fd/(\d+)")


class NameCalls:
    """The real call comes first: a call that fails has not happened."""

    def __init__(self, shadow: Shadow, files: FileCalls) -> None:
        self._shadow = shadow
        self._files = files

    def link(self, make: Make, old: Any, new: Any, **options: Any) -> None:
        source, target = self._both(old, new, options)
        node = self._node_of(old, source, options) if target else None
        make()
        if target:
            self._shadow.change(f"link {self._shadow.text(source)} to {self._shadow.text(target)}", {target: node})

    def symlink(self, make: Make, to: Any, new: Any, *_: Any, dir_fd: int | None = None) -> None:
        entry = self._files.find(new, dir_fd)
        make()
        if entry:
            status = os.stat(new, dir_fd=dir_fd, follow_symlinks=False)
            node = self._shadow.new("symlink", status, os.fsdecode(to))
            self._shadow.change(f"symlink {self._shadow.text(entry)} to {os.fsdecode(to)}", {entry: node})

    def rename(self, make: Make, old: Any, new: Any, **options: Any) -> None:
        source, target = self._both(old, new, options)
        node = self._node_of(old, source, options) if target else None
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
        self._forget("unlink", make, path, dir_fd)

    remove = unlink

    def rmdir(self, make: Make, path: Any, *, dir_fd: int | None = None) -> None:
        self._forget("rmdir", make, path, dir_fd)

    def mkdir(self, make: Make, path: Any, _: int = 0o777, *, dir_fd: int | None = None) -> None:
        entry = self._files.find(path, dir_fd)
        assert entry
        make()
        made = self._shadow.new("directory", os.stat(path, dir_fd=dir_fd))
        self._shadow.change(f"mkdir {self._shadow.text(entry)}", {entry: made})

    def _both(self, old: Any, new: Any, options: dict[str, Any]) -> tuple[Entry | None, Entry | None]:
        return (
            self._files.find(old, options.get("src_dir_fd")),
            self._files.find(new, options.get("dst_dir_fd")),
        )

    def _node_of(self, path: Any, source: Entry | None, options: dict[str, Any]) -> int | None:
        """None if there is no such file; the call will fail then."""
        named = _DESCRIPTOR.fullmatch(os.fsdecode(path))
        if named and (node := self._shadow.node_of(int(named[1]))) is not None:
            return node  # linked through its descriptor, as a file of O_TMPFILE is
        directory = options.get("src_dir_fd")
        if not exists(path, directory):
            return None
        if source:
            return self._shadow.at(source)
        # The file comes from outside. Which of its bytes are synced is unknown, so none count as synced.
        node = self._shadow.bring_in(path if directory is None else os.path.join(path_of(directory), path))
        self._files.unsynced.add(node)
        return node

    def _forget(self, call: str, make: Make, path: Any, dir_fd: int | None) -> None:
        entry = self._files.find(path, dir_fd)
        assert entry
        make()
        self._shadow.at(entry)
        self._shadow.change(f"{call} {self._shadow.text(entry)}", {entry: None})
