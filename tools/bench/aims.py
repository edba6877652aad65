"""Our aims, and whether a run met them, computed from the run's figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from .contenders import FLOOR, KUBELET, OURS, SQLITE

Figures = dict[str, Any]
Measure = Callable[[Figures], float]


class Outcome(TypedDict):
    """One line of the table; `measured` and `met` are None if the run did not measure the aim."""

    what: str
    aim: str
    measured: float | None
    met: bool | None


class Aim(NamedTuple):
    """`measured` must not be above (below) `limit`."""

    what: str
    limit: float
    measure: Measure
    at_least: bool = False

    def __str__(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.limit:g}"

    def outcome(self, figures: Figures) -> Outcome:
        try:
            measured = self.measure(figures)
        except KeyError:  # a quick run, or no C compiler
            return {"what": self.what, "aim": str(self), "measured": None, "met": None}
        met = measured >= self.limit if self.at_least else measured <= self.limit
        return {"what": self.what, "aim": str(self), "measured": measured, "met": met}


def outcomes(figures: Figures) -> list[Outcome]:
    return [aim.outcome(figures) for aim in AIMS]


def _time(title: str, of: str) -> Measure:
    """Our mean time of one call, as a share of another contender's: a mean includes occasional costs."""
    return lambda figures: _rate(figures, title, of) / _rate(figures, title, OURS)


def _rates(title: str, of: str) -> Measure:
    return lambda figures: _rate(figures, title, OURS) / _rate(figures, title, of)


def _rate(figures: Figures, title: str, name: str) -> float:
    return float(figures["comparisons"][title][name]["per_second"])


def _own(title: str, name: str) -> Measure:
    return lambda figures: float(figures["own"][title][name])


def _syncs(story: str) -> Measure:
    return lambda figures: float(figures["syncs per change"][OURS][story])


def _longest(figures: Figures) -> float:
    return float(figures["comparisons"]["hot update, 1 thread"][OURS]["longest_us"] / 1000)


def _flat(figures: Figures) -> float:
    many, few = (_time(f"update, {present} present", FLOOR)(figures) for present in (10_000, 10))
    return many / few


_CALLS = {"create": (60, 13), "get": (15, 7), "transaction of 3": (90, 15)}  # and files

AIMS = (
    Aim("syncs per change, life of a claim", 1.1, _syncs("life of a claim")),
    Aim("syncs per change, hot update", 1.15, _syncs("hot update")),
    # One for the record, one for the file; and three for each settle, which comes with every 256th key.
    Aim("syncs per change, create of a key that stays", 2.02, _syncs("create")),
    Aim("syncs per transaction of 4", 1.2, _syncs("transaction of 4")),
    Aim("life of a claim, 1 thread: time, of the floor's", 0.48, _time("life of a claim, 1 thread", FLOOR)),
    *(
        Aim(f"life of a claim, {who}: rate, of sqlite3's", limit, _rates(f"life of a claim, {who}", SQLITE), True)
        for who, limit in (("1 thread", 0.65), ("4 threads", 1.3), ("16 threads", 1.5))
    ),
    Aim("transaction of 4, 1 thread: time, of the floor's", 0.28, _time("transaction of 4, 1 thread", FLOOR)),
    Aim("hot update, 1 thread: time, of the floor's", 0.52, _time("hot update, 1 thread", FLOOR)),
    *(
        Aim(f"hot update, {who}: rate, of sqlite3's", limit, _rates(f"hot update, {who}", SQLITE), True)
        for who, limit in (("4 threads", 1.2), ("16 threads", 1.35))
    ),
    Aim("wide update, 1 thread: time, of the floor's", 0.6, _time("wide update, 1 thread", FLOOR)),
    Aim("batch of 100: time, of the floor's one by one", 0.15, _time("batch of 100", FLOOR)),
    Aim("slow disk, life of a claim: time, of sqlite3's", 1.05, _time("slow disk, life of a claim", SQLITE)),
    Aim("longest call of 10,000 hot updates, ms", 100, _longest),
    Aim("open after kill -9, 10,000 keys: ms more than after a close", 20, _own("start after kill -9", "more_ms")),
    *(
        Aim(f"{act}: Python {what}", limit, _own("Python calls", f"{act}, {what}"))
        for act, limits in _CALLS.items()
        for what, limit in zip(("calls", "files"), limits, strict=True)
    ),
    Aim("update, 1,000 present: rate, of kubelet's way", 5, _rates("update, 1000 present", KUBELET), at_least=True),
    Aim("update, 10,000 present: rate, of kubelet's way", 50, _rates("update, 10000 present", KUBELET), at_least=True),
    Aim("update, 10,000 present: time, of that with 10", 1.1, _flat),
    Aim("restart, 10,000 claims: time, of the bare loop's", 2.5, _time("restart, 10000 claims", FLOOR)),
    Aim("read from the cache, ns", 300, _own("cache read", "ns")),
    Aim("import, ms", 30, _own("import", "ms")),
)
