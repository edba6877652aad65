"""Files that real kubelets wrote and judged, some of them damaged on purpose, with kubelet's verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "data" / "kubelet"


@dataclass(frozen=True, slots=True)
class Vector:
    """One file, the kind it was made as, and what kubelet says of it."""

    file: str
    kind: str
    format: str
    valid: bool
    why: str
    accepted_by_v1_35: bool | None = None

    @property
    def blob(self) -> bytes:
        return (_FOLDER / self.file).read_bytes()


VECTORS = tuple(Vector(**row) for row in json.loads((_FOLDER / "manifest.json").read_text("utf-8")))


def blob_of(file: str) -> bytes:
    """The bytes of the vector with this path below the folder, without its ending."""
    return (_FOLDER / f"{file}.json").read_bytes()
