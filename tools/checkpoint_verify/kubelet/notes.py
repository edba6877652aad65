"""Warnings about content that kubelet accepts without a check: unknown members and repeated members."""

from __future__ import annotations

from draState._kubelet.decoded import Decoded, JsonPath, spelled

from . import versions

_SHOWN = 5  # names in one sentence


def about(minor: int, *decodes: Decoded) -> tuple[str, ...]:
    """Warnings about the members that kubelet ignored or read more than once."""
    unknown = [path for decoded in decodes for path in decoded.unknown]
    repeated = [path for decoded in decodes for path in decoded.repeated]
    sentences = []
    if unknown:
        sentences.append(
            f"Kubelet {versions.name(minor)} ignores members that it does not know, "
            f"and drops them at its next write: {_list(unknown)}."
        )
    if repeated:
        sentences.append(f"Members that appear more than once, of which the last one counts: {_list(repeated)}.")
    return tuple(sentences)


def _list(paths: list[JsonPath]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(map(spelled, paths[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
