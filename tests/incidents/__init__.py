"""Real outages of node agents, replayed on this library. README.md lists all of them, and where each is proved."""
