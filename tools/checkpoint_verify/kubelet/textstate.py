"""Files that carry their state as JSON text in one member, with a checksum over that text.

The text is judged in two steps: its checksum first, then whether kubelet can decode it into its own types.
"""

from __future__ import annotations

from .gojson import Decoded, decode
from .gotypes import Struct, Value
from .syntax import NotJSONError, parse


def decode_text(text: str, gotype: Struct, preset: Value) -> Decoded:
    """The text decoded over the preset; text that is no JSON is a problem like any other."""
    try:
        node = parse(text.encode("utf-8"))
    except NotJSONError as error:
        return Decoded(preset, problems=[f"its text is not JSON ({error})"])
    return decode(gotype, node, preset)
