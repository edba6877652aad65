"""The command `dra-agent`: arguments in, exit code out.

Exit codes: 0 after SIGTERM or SIGINT, 2 for settings that cannot work, 1 for anything else that ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from checkpointmanager import CheckpointError

from . import grammar
from .agent import Agent
from .inventory import InventoryFile, SettingsError
from .operate import COMMANDS, EXAMPLES, operate
from .settings import Settings
from .sockets import MAX_PATH

INSTANCE = 8  # characters of the pod's UID in the names of sockets, whose length is limited
BOOT_ID_SWITCH = "DRA_AGENT_BOOT_ID"  # for tests: replaces the kernel's boot id, so that a restart is a reboot


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until it is stopped."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] and given[0] in COMMANDS:
        return operate(given)
    arguments = _parser().parse_args(given)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    os.umask(0o077)  # state, sockets and temp files are for this user alone
    try:
        asyncio.run(_run(_settings(arguments)))
    except SettingsError as error:
        return _complain(error, 2)
    except (CheckpointError, OSError) as error:
        return _complain(error, 1)
    return 0


async def _run(settings: Settings) -> None:
    agent = Agent(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stopping.set)
    await agent.run()


def _settings(arguments: argparse.Namespace) -> Settings:
    if not arguments.node:
        raise SettingsError("the name of the node is not known: give --node, or set NODE_NAME in the environment")
    try:
        grammar.subdomain(arguments.node)
    except ValueError as error:
        raise SettingsError(f"--node: {error}") from error
    devices = InventoryFile(arguments.devices, arguments.node)
    kubelet = os.path.abspath(arguments.kubelet_dir)
    plugin = os.path.abspath(arguments.plugin_dir or os.path.join(kubelet, "plugins", devices.current.driver))
    host, _, port = arguments.http.rpartition(":")
    if not port.isdecimal():
        raise SettingsError(f"--http {arguments.http}: give it as address:port")
    settings = Settings(
        node=arguments.node,
        devices=devices,
        state=_state(arguments.state_dir, plugin),
        plugin=plugin,
        registry=os.path.abspath(arguments.registry_dir or os.path.join(kubelet, "plugins_registry")),
        cdi=os.path.abspath(arguments.cdi_dir),
        host_root=os.path.abspath(arguments.host_root),
        proc=os.path.abspath(arguments.proc_dir),
        kubeconfig=arguments.kubeconfig,
        api_timeout=arguments.api_timeout,
        release_orphans_after=arguments.release_orphans_after,
        http=(host.strip("[]") or "0.0.0.0", int(port)),  # noqa: S104 - an empty address means all, as elsewhere
        grace=arguments.grace,
        boot_id=os.environ.get(BOOT_ID_SWITCH) or None,
        owner=os.environ.get("POD_NAME", ""),
        instance=os.environ.get("POD_UID", "")[:INSTANCE],
        allow_insecure=arguments.allow_insecure,
    )
    for option, path in (("--plugin-dir", settings.dra_socket), ("--registry-dir", settings.registration_socket)):
        if len(os.fsencode(path)) > MAX_PATH:
            raise SettingsError(f"{path}: the path of a socket has at most {MAX_PATH} bytes: choose a shorter {option}")
    return settings


def _state(given: str | None, plugin: str) -> str:
    """The folder for claims; "" for none."""
    if given == "":
        return ""
    return os.path.abspath(given or os.path.join(plugin, "claims"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "dra-agent",
        description="A DRA kubelet plugin with durable state. Without one of the commands "
        f"{' and '.join(COMMANDS)} (see their own --help) it runs the agent.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--devices", required=True, metavar="FILE", help="JSON file with driver and devices; reloaded on change")
    add("--node", default=os.environ.get("NODE_NAME", ""), help="name of this node (default: $NODE_NAME)")
    add("--kubelet-dir", default="/var/lib/kubelet", metavar="DIR", help="kubelet's --root-dir (default: %(default)s)")
    add("--plugin-dir", metavar="DIR", help="folder for dra.sock (default: KUBELET_DIR/plugins/DRIVER)")
    add("--state-dir", metavar="DIR", help='folder for claims (default: PLUGIN_DIR/claims; "" keeps nothing on disk)')
    add("--registry-dir", metavar="DIR", help="where kubelet looks for plugins (default: KUBELET_DIR/plugins_registry)")
    add("--cdi-dir", default="/var/run/cdi", metavar="DIR", help="the runtime's CDI folder (default: %(default)s)")
    add("--host-root", default="/", metavar="DIR", help="the host's root, for device nodes (default: %(default)s)")
    add("--proc-dir", default="/proc", metavar="DIR", help="the host's /proc, to see who uses a device")
    add("--kubeconfig", default="", metavar="FILE", help="credentials (default: the pod's service account)")
    add(
        "--api-timeout",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="limit for the API server (default: %(default)s)",
    )
    after = "release orphaned claims this long after finding them (default: never)"
    add("--release-orphans-after", type=float, metavar="SECONDS", help=after)
    add(
        "--http",
        default="127.0.0.1:8080",
        metavar="ADDRESS:PORT",
        help="/healthz, /readyz, /metrics (default: %(default)s)",
    )
    add(
        "--grace",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="limit for running calls at exit (default: %(default)s)",
    )
    add("--allow-insecure", action="store_true", help="accept a state directory that other users can write to")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _complain(error: Exception, code: int) -> int:
    print(f"dra-agent: {error}", file=sys.stderr)
    return code
