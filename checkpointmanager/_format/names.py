"""The names in a checkpoint directory. A name with a leading dot is never a checkpoint."""

SUFFIX = ".json"  # <key>.json
PREVIOUS = ".previous-"  # .previous-<key>: the previous generation
TEMP = ".tmp-"  # .tmp-<token>-<number>: a write that is not complete, and may never be
JOURNAL = ".journal"  # the changes since the files were last synced
LOCK = ".lock"
QUARANTINE = ".quarantine"  # .quarantine/<key>.<time>.<reason>.json
