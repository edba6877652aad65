"""A clone may lie deep: tests and operators meet the limit on the path of a socket."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dra_agent.rehearsal import Node
from draState.plugin import Settings, SettingsError

LIMIT = 107  # bytes: the kernel's


def test_a_rehearsal_in_a_long_path_with_spaces_has_room_for_its_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a clone with spaces" / ("x" * 200)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with Node("http://127.0.0.1:1") as node:
        longest = Path(node.registry) / f"{node.driver}-22222222-reg.sock"
        assert len(os.fsencode(longest)) <= LIMIT


@pytest.mark.parametrize("option", ["--plugin-dir", "--registry-dir"])
def test_an_operator_learns_which_folder_is_too_deep_for_its_socket(option: str) -> None:
    deep = "/" + "x" * 100
    settings = {option.removeprefix("--").replace("-", "_"): deep}
    with pytest.raises(SettingsError, match=f"{deep}/.*at most {LIMIT} bytes: choose a shorter {option}"):
        Settings(node="n", **settings).places("gpu.example.com")  # type: ignore[arg-type]
