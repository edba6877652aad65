"""The verdict of tools/soak, on made-up figures: it must fail for what grows, and pass for what only fluctuates."""

from __future__ import annotations

import pytest

from soak_run import verdict

KEYS = 320
ROUNDS = 40


def _rounds(**slopes: float) -> list[dict[str, int]]:
    """Figures that rise by a given amount per round, and fluctuate a little."""
    flat = {"rss": 45_000, "descriptors": 6, "threads": 2, "files": 1_800, "temps": 0}
    return [
        {
            name: int(value + slopes.get(name, 0) * number + (number % 3 if name == "rss" else 0))
            for name, value in flat.items()
        }
        for number in range(ROUNDS)
    ]


def test_flat_figures_pass() -> None:
    assert verdict(_rounds(), [], KEYS) == []


@pytest.mark.parametrize(
    ("slopes", "word"),
    [
        ({"rss": 1000}, "memory"),
        ({"descriptors": 0.2}, "descriptors"),
        ({"threads": 0.2}, "threads"),
        ({"files": 50}, "files"),
    ],
    ids=["memory", "descriptors", "threads", "files"],
)
def test_what_grows_is_named(slopes: dict[str, float], word: str) -> None:
    (wrong,) = verdict(_rounds(**slopes), [], KEYS)

    assert word in wrong


def test_a_temp_file_a_loss_and_an_early_end_are_named() -> None:
    one_temp = [{**one, "temps": int(number == 7)} for number, one in enumerate(_rounds())]

    assert verdict(one_temp, ["key-1: found 3"], KEYS) == [
        "key-1: found 3",
        "temp files were left when no thread was writing",
    ]
    assert "too few rounds" in verdict(_rounds()[:3], [], KEYS)[0]
