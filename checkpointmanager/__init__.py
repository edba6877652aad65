"""Crash-safe, self-verifying state files for node agents.

A CheckpointManager keeps each checkpoint as its own JSON file with a checksum, replaces it by an atomic rename,
and guards the directory with a lock that dies with its holder:

    from checkpointmanager import CheckpointManager, Schema

    LEASES = Schema("Lease", version=1, type=Lease)            # any dataclass

    with CheckpointManager("/var/lib/agent/leases", LEASES) as manager:
        manager.create_checkpoint("pod-7", Lease(holder="a"))  # durable when it returns
        manager.get_checkpoint("pod-7").data                   # verified before a byte is decoded
        loaded = manager.load()                                # after a restart: all good ones, and a list of the rest

A damaged file raises CorruptCheckpoint for its own key and for no other. It stays in place until it is recovered,
overwritten or removed, and a copy of its bytes goes to quarantine first. An intact file that the program cannot use
raises SchemaMismatch: fix the schema or a migration, not the file. FORMAT.md describes the file.
"""

from ._cache import CheckpointCache
from ._cacheentry import REMOVED, CacheEntry, InDoubt, Removal
from ._changeset import Batch, ChangeSet, Transaction
from ._checkpoint import Checkpoint, Loaded, Outcome, Recovery, Verified
from ._errors import (
    BatchFailed,
    CheckpointError,
    CheckpointExists,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointUnreadable,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    DirectoryUnusable,
    InsecureDirectory,
    InvalidKey,
    ManagerClosed,
    PlanOutdated,
    RetainRefused,
    SchemaMismatch,
    TransactionFailed,
    UnstorableValue,
    WrongKind,
)
from ._events import Event, EventKind
from ._filestore import FileStore
from ._gcpause import gc_paused
from ._locks import KeyLocks
from ._manager import CheckpointManager
from ._memorystore import MemoryStore
from ._metricssink import MetricsSink
from ._options import FileOptions, check_key
from ._recovery import RecoveryPlan
from ._schema import ANY_KIND, Schema, SharedText, UnknownFields, unknown_fields
from ._statedirectory import state_directory
from ._store import Put, Remove, Replaces, Store
from .format import Damaged, LockOwner, Reason

__version__ = "0.1.0"

__all__ = [
    "ANY_KIND",
    "REMOVED",
    "Batch",
    "BatchFailed",
    "CacheEntry",
    "ChangeSet",
    "Checkpoint",
    "CheckpointCache",
    "CheckpointError",
    "CheckpointExists",
    "CheckpointManager",
    "CheckpointNotFound",
    "CheckpointTooNew",
    "CheckpointUnreadable",
    "CheckpointWriteFailed",
    "CorruptCheckpoint",
    "Damaged",
    "DirectoryLocked",
    "DirectoryUnusable",
    "Event",
    "EventKind",
    "FileOptions",
    "FileStore",
    "InDoubt",
    "InsecureDirectory",
    "InvalidKey",
    "KeyLocks",
    "Loaded",
    "LockOwner",
    "ManagerClosed",
    "MemoryStore",
    "MetricsSink",
    "Outcome",
    "PlanOutdated",
    "Put",
    "Reason",
    "Recovery",
    "RecoveryPlan",
    "Removal",
    "Remove",
    "Replaces",
    "RetainRefused",
    "Schema",
    "SchemaMismatch",
    "SharedText",
    "Store",
    "Transaction",
    "TransactionFailed",
    "UnknownFields",
    "UnstorableValue",
    "Verified",
    "WrongKind",
    "check_key",
    "gc_paused",
    "state_directory",
    "unknown_fields",
]
