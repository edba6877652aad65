"""The command `dra-agent`: arguments in, exit code out.

Exit codes: 0 after SIGTERM or SIGINT, 2 for settings that cannot work, 1 for anything else that ends it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from checkpointmanager import CheckpointError
from draState.plugin import Settings, SettingsError, add_options, log_to_stderr, serve

from .driver import FileDriver
from .operate import COMMANDS, EXAMPLES, operate


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until it is stopped."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] and given[0] in COMMANDS:
        return operate(given)
    arguments = _parser().parse_args(given)
    log_to_stderr(arguments.log_level, arguments.log_format)
    try:
        settings = Settings.of(arguments)
        serve(FileDriver(arguments.devices, settings.node, arguments.driver_name), settings)
    except (SettingsError, CheckpointError, OSError) as error:
        print(f"dra-agent: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "dra-agent",
        description="A DRA kubelet plugin with durable state. Without one of the commands "
        f"{' and '.join(COMMANDS)} (see their own --help) it runs the agent.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--devices", required=True, metavar="FILE", help="JSON file with driver and devices; reloaded on change"
    )
    parser.add_argument("--driver-name", default="", metavar="NAME", help="in place of the driver in that file")
    add_options(parser)
    return parser
