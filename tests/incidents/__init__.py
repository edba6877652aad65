"""Real outages of node agents, replayed on this library.

Each test builds the state of an outage, runs our code on it and shows that it is harmless: what is still served, what
is reported, what can still be removed, and that nothing was reset. Where a few lines suffice, the test first shows
that the state is fatal to the original approach. README.md lists all of them.
"""
