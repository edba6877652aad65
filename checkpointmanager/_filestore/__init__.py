"""Checkpoints as files in one directory: the only room that touches the disk.

store.py decides which way a change takes: through journal.py for an exclusive owner, through plain.py for any other.
names.py writes new files and gives them their names, owed.py knows which names are still to be given.
takeover.py finishes what a dead owner left, onlooker.py shows it to readers, ownership.py keeps other writers out,
quarantine.py keeps what was damaged, directory.py and system.py are the edge to the operating system.
"""

from .store import FileStore

__all__ = ["FileStore"]
