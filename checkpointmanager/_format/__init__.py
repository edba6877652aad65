"""The bytes of a checkpoint directory: names, keys, envelope, lock text; and what can be wrong with them.

This is the only private room that checkpoint-verify may enter. FORMAT.md describes the same in prose.
"""
