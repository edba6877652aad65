"""Real outages of node agents, replayed on this library.

Each test builds the state that an outage had, runs our code on it and shows that it is harmless: what is still
served, what is reported, what can still be removed, and that nothing was reset. Where a few lines can, the test
shows first that the state is fatal to the way it was done there. README.md lists all of them.
"""
