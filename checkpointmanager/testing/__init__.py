"""Proves that an agent survives damage, faults and power losses, by trying all of them.

For tests of any program that keeps its state in files, on real directories and on pyfakefs. README.md in this folder
shows each part, and describes the model of a power loss.

    from checkpointmanager.testing import acknowledge, every_crash

    def prepare(directory):                       # what the agent does when the power fails
        with Agent(directory) as agent:
            agent.prepare("claim-1")
            acknowledge("claim-1")                # from here on kubelet relies on it

    for crash in every_crash(prepare):            # every disk that may be left
        with Agent(crash.directory) as agent:     # the restart
            assert set(crash.acknowledged) <= agent.claims()

In pytest use the fixture `checkpoint_chaos` instead of every_crash: it describes the crash when a test fails.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._schema.baseline import BaselineChanged, check_baseline
    from . import damage
    from ._conformance import StoreConformance
    from ._crashes import Crash, Crashes, every_crash
    from ._faults import Fault, Faults, every_fault
    from ._injector import Death, Error, Injector, Interruption, Killed, ShortWrite, dying, failing
    from ._recording import UnseenChange
    from ._scenario import acknowledge
    from ._watch import Call, watching
    from .damage import Damage, every_damage

__all__ = [
    "BaselineChanged",
    "Call",
    "Crash",
    "Crashes",
    "Damage",
    "Death",
    "Error",
    "Fault",
    "Faults",
    "Injector",
    "Interruption",
    "Killed",
    "ShortWrite",
    "StoreConformance",
    "UnseenChange",
    "acknowledge",
    "check_baseline",
    "damage",
    "dying",
    "every_crash",
    "every_damage",
    "every_fault",
    "failing",
    "watching",
]

# Imported on first use: pytest loads the plugin, and with it this package, in runs that do not need it.
_HOMES = {
    ".._schema.baseline": ("BaselineChanged", "check_baseline"),
    "._conformance": ("StoreConformance",),
    "._crashes": ("Crash", "Crashes", "every_crash"),
    ".damage": ("Damage", "every_damage"),
    "._faults": ("Fault", "Faults", "every_fault"),
    "._injector": ("Death", "Error", "Injector", "Interruption", "Killed", "ShortWrite", "dying", "failing"),
    "._recording": ("UnseenChange",),
    "._scenario": ("acknowledge",),
    "._watch": ("Call", "watching"),
}


def __getattr__(name: str) -> Any:
    if name == "damage":
        return importlib.import_module(".damage", __name__)
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
