"""Checkpoints in etcd instead of on a disk, for state that must outlive its node (extra `[etcd]`).

The same CheckpointManager, CheckpointCache and draState work on it, and the bytes are the same, checksum and all.
A node's own state belongs on the node's disk. ETCD.md says when to use etcd, what is promised and what it costs.
"""

from ._etcd.errors import EtcdUnavailable, EtcdWentBack
from ._etcd.store import EtcdStore

__all__ = ["EtcdStore", "EtcdUnavailable", "EtcdWentBack"]
