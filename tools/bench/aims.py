"""Our aims, and whether a run met them: a table that is computed from the run's figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypedDict

from .contenders import BARE, FLOOR, KUBELET, OURS, OURS_CLASSIC
from .report import Figures

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

    def outcome(self, figures: Figures) -> Outcome:
        aim = f"at {'least' if self.at_least else 'most'} {self.limit:g}"
        try:
            measured = self.measure(figures)
        except KeyError:  # a quick run, a contender that is not installed, or no root
            return {"what": self.what, "aim": aim, "measured": None, "met": None}
        met = measured >= self.limit if self.at_least else measured <= self.limit
        return {"what": self.what, "aim": aim, "measured": measured, "met": met}


def outcomes(figures: Figures) -> list[Outcome]:
    return [aim.outcome(figures) for aim in AIMS]


def aims_table(figures: Figures) -> str:
    """A table that shows for every aim whether it was met."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    lines = [f"aims ({figures['machine']['place']})"]
    for row in figures["aims"]:
        measured = "" if row["measured"] is None else f"{row['measured']:,.2f}"
        lines.append(f"  {row['what']:62}{row['aim']:>16}{measured:>10}  {words[row['met']]}")
    return "\n".join(lines)


def _time(title: str, of: str, name: str = OURS) -> Measure:
    """The mean time of one call, as a share of another contender's: a mean includes occasional costs."""
    return lambda figures: _rate(figures, title, of) / _rate(figures, title, name)


def _rates(title: str, of: str) -> Measure:
    return lambda figures: _rate(figures, title, OURS) / _rate(figures, title, of)


def _rate(figures: Figures, title: str, name: str) -> float:
    rate: float = figures["comparisons"][title][name]["per_second"]
    return rate


def _single(title: str, name: str) -> Measure:
    return lambda figures: float(figures["single"][title][name])


def _flat(figures: Figures) -> float:
    rows = figures["comparisons"]["flat"]
    return float(rows["10 present"]["per_second"] / rows["10000 present"]["per_second"])


def _batch(figures: Figures) -> float:
    return _rate(figures, "100 updates one by one", FLOOR) / _rate(figures, "batch of 100", OURS)


def _bytes(figures: Figures) -> float:
    written = figures["single"]["bytes written per update, 1,000 present"]
    return float(written[KUBELET] / written[OURS])


def _reads_beside_writers(figures: Figures) -> float:
    reads = figures["single"]["cache read"]
    return float(reads["with_4_writers_ns"] / reads["alone_ns"])


_ONE, _FOUR, _SIXTEEN = (f"update, 256 present, {threads}" for threads in ("1 thread", "4 threads", "16 threads"))
_SLOW = "slow disk, 256 present, 1 thread"

AIMS = (
    Aim("update, one thread: time, of the floor's", 0.60, _time(_ONE, FLOOR)),
    Aim("update, one thread, classic way: time, of the floor's", 1.10, _time(_ONE, FLOOR, OURS_CLASSIC)),
    Aim("slow disk, one thread: time, of the floor's", 0.55, _time(_SLOW, FLOOR)),
    Aim("slow disk, one thread: time, of sqlite3's", 1.15, _time(_SLOW, "sqlite3")),
    Aim("4 threads: rate, of the bare calls'", 0.8, _rates(_FOUR, BARE), at_least=True),
    Aim("4 threads: rate, of sqlite3's", 1.0, _rates(_FOUR, "sqlite3"), at_least=True),
    Aim("16 threads: rate, of the bare calls'", 0.8, _rates(_SIXTEEN, BARE), at_least=True),
    *(
        Aim(f"16 threads: rate, of {other}'s", 1.0, _rates(_SIXTEEN, other), at_least=True)
        for other in ("sqlite3", "LMDB", "RocksDB", "diskcache")
    ),
    Aim("10,000 claims present: time, of that with 10", 1.10, _flat),
    Aim("batch of 100: time, of the floor's 100 updates one by one", 0.20, _batch),
    Aim(
        "1,000 claims present: rate, of kubelet's way",
        5,
        _rates("update, 1000 present, 1 thread", KUBELET),
        at_least=True,
    ),
    Aim(
        "10,000 claims present: rate, of kubelet's way",
        50,
        _rates("update, 10000 present, 1 thread", KUBELET),
        at_least=True,
    ),
    Aim("bytes of kubelet's way for one of ours, 1,000 present", 100, _bytes, at_least=True),
    Aim("warm restart, 10,000 claims: time, of the bare loop's", 2.5, _time("restart, 10000 claims, warm", FLOOR)),
    Aim(
        "cold restart: times as fast as one file after another",
        2.5,
        _single("restart from a cold disk", "ratio"),
        at_least=True,
    ),
    Aim("read from the cache, ns", 300, _single("cache read", "alone_ns")),
    Aim("the same while 4 threads write: time, of that alone", 1.0, _reads_beside_writers),
    Aim("memory of a claim, of its JSON", 3, _single("memory", "ratio")),
    Aim("import, ms", 30, _single("import", "milliseconds")),
    Aim("import, MiB", 10, _single("import", "mebibytes")),
    Aim(
        "verify, large files: rate, of only hashing them",
        0.6,
        _single("verify", "large_share_of_bare_hashing"),
        at_least=True,
    ),
)
