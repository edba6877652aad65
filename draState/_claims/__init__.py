"""The claims of this node: what a file holds, a record in memory, and the cache of both."""
