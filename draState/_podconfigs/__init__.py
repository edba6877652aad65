"""The device configs of pods, in memory and on disk."""
