"""Makes folders with a given mode, whatever the umask, and leaves existing folders as they are."""

from __future__ import annotations

import os


def make_folder(path: str, mode: int) -> None:
    """Make the folder and its missing parents. An existing folder may be in use: its mode is not touched."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_folder(parent, mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return  # another process was faster
    os.chmod(path, mode)
