"""The command `dra-agent`, also as `python -m dra_agent`; without its extra it prints what to install."""

from __future__ import annotations

import sys

from checkpointmanager import __version__

# Only these modules: a missing module of our own is a broken installation, and must look like one.
OF_THE_EXTRA = ("google", "grpc", "prometheus_client")


def main() -> int:
    """Run the agent, if its dependencies are installed."""
    try:
        from .cli import main as run  # noqa: PLC0415 - imports all of the extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_THE_EXTRA:
            raise
        print(
            f"dra-agent: {error}: it comes with the extra [agent]. Install it from a clone (pip install '.[agent]') or "
            f"from a wheel (pip install './checkpointmanager-{__version__}-py3-none-any.whl[agent]').",
            file=sys.stderr,
        )
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
