"""Tells objects that their process was forked: in a child, locks may be held by threads that do not exist there."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class KnowsForks(Protocol):
    def forked(self) -> None:
        """Called in a child, before anything else runs there."""


_all: weakref.WeakSet[KnowsForks] = weakref.WeakSet()


def tell_of_forks(thing: KnowsForks) -> None:
    """Call thing.forked() in every child, as long as somebody else refers to it."""
    _all.add(thing)


def _tell_all() -> None:
    for thing in list(_all):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)
