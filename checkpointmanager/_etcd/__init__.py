"""Checkpoints in etcd: the same bytes under the same names, kept by a majority instead of by a disk.

store.py is the Store; ownership.py keeps other writers out and fences the ones that are too late, commit.py is
how checkpoints are replaced, client.py the way to the servers and wire.py their language.
"""
