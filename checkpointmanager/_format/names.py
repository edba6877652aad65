"""The names in a checkpoint directory. What starts with a dot is never a checkpoint."""

SUFFIX = ".json"  # <key>.json
PREVIOUS = ".previous-"  # .previous-<key>: the generation before
TEMP = ".tmp-"  # .tmp-<token>-<number>: a write that has not happened yet, or never will
REMOVED = "-removed-"  # .tmp-<token>-<number>-removed-<key>: gone, as soon as that is durable
REPLACED = "-replaced-"  # .tmp-<token>-<number>-replaced-<key>: a folder that stood in a checkpoint's place
TRANSACTION = ".transaction"  # several checkpoints that change together, as soon as that is durable
SPARE = ".spare-"  # .spare-<token>-<number>: to be overwritten by the next update; may hold the newest generation
SPARES = ".spares"  # there while spares may be; locked by an owner whose names are right
LOCK = ".lock"
QUARANTINE = ".quarantine"  # .quarantine/<key>.<time>.<reason>.json
