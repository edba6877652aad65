"""`python -m draState.plugin MODULE:DRIVER …` serves drivers; also for the rehearsal, which starts them so."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from checkpointmanager import CheckpointError

from . import Driver, Settings, SettingsError, add_options, log_to_stderr, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped. Returns 0 after SIGTERM, 2 for settings that cannot work, 1 for other errors."""
    parser = argparse.ArgumentParser("python -m draState.plugin", description="Serve DRA drivers as kubelet plugins.")
    parser.add_argument("drivers", nargs="+", metavar="MODULE:DRIVER", help="subclasses of draState.plugin.Driver")
    add_options(parser)
    options = parser.parse_args(argv)
    log_to_stderr(options.log_level, options.log_format)
    try:
        serve([named(driver)() for driver in options.drivers], Settings.of(options))
    except (SettingsError, CheckpointError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, SettingsError) else 1
    return 0


def named(driver: str) -> type[Driver]:
    """The class that is given as module:Driver. Raises SettingsError if there is none."""
    module, _, name = driver.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise SettingsError(f"{driver}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise SettingsError(f"{driver}: not a subclass of draState.plugin.Driver")
    return found


if __name__ == "__main__":
    sys.exit(main())
