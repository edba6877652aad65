"""CPython's own tests of a mapping, on a cache; those that write by item assignment do not apply."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointmanager import CheckpointCache

from .test_mapping import filled

mapping_tests = pytest.importorskip("test.mapping_tests", reason="this Python comes without its own tests")


class TestWithTheTestsOfPython(mapping_tests.BasicTestMappingProtocol):  # type: ignore[misc, name-defined]
    def _reference(self) -> dict[str, Any]:
        return {"1": "2", "key1": "value1", "key2": 3}  # values that JSON gives back, and that a set can hold

    def _empty_mapping(self) -> CheckpointCache[Any]:
        return filled({})

    def _full_mapping(self, data: dict[str, Any]) -> CheckpointCache[Any]:
        return filled(data)

    test_write = test_update = test_setdefault = test_pop = test_popitem = None
