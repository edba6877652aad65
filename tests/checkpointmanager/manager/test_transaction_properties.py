"""Single changes and transactions in any order, also failing and interrupted ones, compared with a dict."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpointmanager import (
    CheckpointManager,
    CheckpointWriteFailed,
    DirectoryUnusable,
    Event,
    EventKind,
    TransactionFailed,
)
from checkpointmanager.testing import failing

from ...long import times

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

Model = dict[str, Any]
KEYS = st.sampled_from("abcd")
VERBS = st.sampled_from(["create", "update", "remove"])
CHANGES = st.dictionaries(KEYS, st.tuples(VERBS, st.integers(0, 9)), min_size=1, max_size=4)
NEVER = 0
STEPS = st.lists(
    st.tuples(st.sampled_from(["single", "together", "restart"]), CHANGES, st.just(NEVER) | st.integers(1, 40)),
    max_size=8,
)


def after(model: Model, changes: dict[str, tuple[str, int]]) -> Model:
    changed = dict(model)
    for key, (verb, number) in changes.items():
        if verb == "remove":
            changed.pop(key, None)
        else:
            changed[key] = number if verb == "create" else changed.get(key, 0) + number
    return changed


def add(number: int) -> Callable[[int], int]:
    return lambda value: value + number


def carry_out(target: Any, changes: dict[str, tuple[str, int]]) -> None:
    """On a manager or a transaction: their verbs are the same."""
    for key, (verb, number) in changes.items():
        if verb == "create":
            target.create_checkpoint(key, number)
        elif verb == "update":
            target.update_checkpoint(key, add(number), 0)
        else:
            target.remove_checkpoint(key)


def together(manager: CheckpointManager[Any], changes: dict[str, tuple[str, int]]) -> None:
    with manager.transaction() as transaction:
        carry_out(transaction, changes)


def values(manager: CheckpointManager[Any]) -> Model:
    loaded = manager.load()
    assert not loaded.problems
    return {key: found.data for key, found in loaded.checkpoints.items()}


@settings(max_examples=times(40, 2000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, sharing=st.booleans())
def test_a_transaction_is_one_step_of_a_dict(steps: Any, sharing: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "leases")
        events: list[Event] = []
        manager: CheckpointManager[Any] = CheckpointManager(directory, sharing=sharing, on_event=events.append)
        model: Model = {}
        for kind, changes, nth in steps:
            if kind == "restart":
                manager.close()
                events.clear()
                manager = CheckpointManager(directory, sharing=sharing, on_event=events.append)
            elif kind == "single":
                for key, change in changes.items():
                    carry_out(manager, {key: change})
                model = after(model, changes)
            else:
                model = attempted(manager, directory, changes, nth, model)
            assert values(manager) == model
            if any(event.kind is EventKind.UNSETTLED for event in events):
                continue  # only the owner sees what is not in place yet
            with CheckpointManager[Any](directory, read_only=True) as reader:
                assert values(reader) == model
        manager.close()


def attempted(
    manager: CheckpointManager[Any], directory: Path, changes: dict[str, tuple[str, int]], nth: int, model: Model
) -> Model:
    """With an error at the n-th call, if there are that many; the stored values are those that the error claims."""
    if nth == NEVER:
        together(manager, changes)
        return after(model, changes)
    try:
        with failing(directory, failure=OSError(errno.EIO, "made up"), nth=nth):
            together(manager, changes)
    except TransactionFailed as failed:
        if failed.in_doubt:
            now = values(manager)
            assert now in (model, after(model, changes))
            return now
        return model
    except (CheckpointWriteFailed, DirectoryUnusable):  # before it began
        return model
    return after(model, changes)
