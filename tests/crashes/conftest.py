"""The fixtures come with the plugin where the package is installed; in a bare clone they are taken from here."""

from checkpointmanager.testing.plugin import checkpoint_chaos, checkpoint_faults

__all__ = ["checkpoint_chaos", "checkpoint_faults"]
