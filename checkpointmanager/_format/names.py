"""The names in a checkpoint directory. A name with a leading dot is never a checkpoint."""

SUFFIX = ".json"  # <key>.json
PREVIOUS = ".previous-"  # .previous-<key>: the previous generation
TEMP = ".tmp-"  # .tmp-<token>-<number>: a write that is not complete, and may never be
REMOVED = "-removed-"  # .tmp-<token>-<number>-removed-<key>: a removal that is not durable yet
REPLACED = "-replaced-"  # .tmp-<token>-<number>-replaced-<key>: a folder that was in a checkpoint's place
TRANSACTION = ".transaction"  # the record of a transaction
SPARE = ".spare-"  # .spare-<token>-<number>: overwritten by a later update; may hold the newest generation
SPARES = ".spares"  # exists while spares may exist; locked by a live owner, whose names are right
LOCK = ".lock"
QUARANTINE = ".quarantine"  # .quarantine/<key>.<time>.<reason>.json
