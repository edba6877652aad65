"""Makes folders with the mode that is asked for, whatever the umask, and leaves those that are there as they are."""

from __future__ import annotations

import os


def make_folder(path: str, mode: int) -> None:
    """With all parents that are missing. A folder that exists belongs to somebody: its mode is not touched."""
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
        return  # somebody was faster
    os.chmod(path, mode)
