"""An agent that keeps leases; release 1."""

__version__ = "1.0"
