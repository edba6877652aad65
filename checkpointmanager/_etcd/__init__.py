"""Checkpoints in etcd: the same bytes under the same names, kept by a majority instead of by a disk.

store.py is the Store. ownership.py keeps other writers out and fences those that come too late, commit.py replaces
checkpoints, attempts.py sends the changes, readahead.py reads many keys at once, client.py talks to the servers and
notices that they lost state, and wire.py has their messages.
"""
