"""The names in a checkpoint directory. What starts with a dot is never a checkpoint."""

SUFFIX = ".json"  # <key>.json
PREVIOUS = ".previous-"  # .previous-<key>: the generation before
TEMP = ".tmp-"  # .tmp-<token>-<number>: a write that has not happened yet, or never will
LOCK = ".lock"
QUARANTINE = ".quarantine"  # .quarantine/<key>.<time>.<reason>.json
