"""An agent that keeps leases; release 2."""

__version__ = "2.0"
