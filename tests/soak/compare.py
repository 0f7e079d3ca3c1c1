"""What was written against what a batch computation says: pure values, no files.

`rows` is for sinks that write each row once, `replays` for sinks that may write a batch again,
`last_values` for sinks in update mode.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Place = tuple[int, int]  # partition and offset of a source record


@dataclass(slots=True)
class Result:
    """One comparison: how much was compared, what is wrong, and what is counted."""

    compared: int
    wrong: dict[str, list[Any]]
    counted: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.wrong.values())

    def told(self, *, examples: int = 3) -> dict[str, Any]:
        """Return what is printed: counts, and of each kind of wrong row a few examples."""
        return {
            "holds": self.holds,
            "compared": self.compared,
            **{f"{kind}": len(found) for kind, found in self.wrong.items()},
            **self.counted,
            **{
                f"{kind}, for example": [str(one) for one in found[:examples]]
                for kind, found in self.wrong.items()
                if found
            },
        }


def rows(expected: Iterable[Hashable], found: Iterable[Hashable]) -> Result:
    """Compare rows of any order: each as often as it is expected."""
    wanted, there = Counter(expected), Counter(found)
    less, more = wanted - there, there - wanted
    return Result(
        compared=wanted.total(),
        wrong={
            "missing": list(less.elements()),
            "doubled": [row for row in more.elements() if row in wanted],
            "unexpected": [row for row in more.elements() if row not in wanted],
        },
    )


def replays(
    expected: Mapping[Place, str],
    found: Iterable[tuple[Place, str]],
    *,
    batches: Mapping[Place, int],
    replayed: Collection[int],
) -> Result:
    """Compare a sink that may write a batch again: nothing missing, no duplicate elsewhere.

    `batches` gives the batch that read each record, `replayed` those that were begun again.
    """
    times: Counter[Place] = Counter()
    wrong: dict[str, list[Any]] = {
        "missing": [],
        "changed": [],
        "unexpected": [],
        "doubled outside of replayed batches": [],
    }
    for place, value in found:
        if place not in expected:
            wrong["unexpected"].append(place)
        elif value != expected[place]:
            wrong["changed"].append((place, value))
        else:
            times[place] += 1
    wrong["missing"] = [place for place in expected if not times[place]]
    doubled = {place: count - 1 for place, count in times.items() if count > 1}
    wrong["doubled outside of replayed batches"] = [
        place for place in doubled if batches.get(place) not in replayed
    ]
    return Result(
        compared=len(expected),
        wrong=wrong,
        counted={
            "duplicates": sum(doubled.values()),
            "batches with duplicates": sorted({batches[place] for place in doubled}),
        },
    )


def last_values(expected: Mapping[str, str], found: Iterable[tuple[str, str]]) -> Result:
    """Compare the last value of each key; `found` are all values, oldest first within a key."""
    last: dict[str, str] = {}
    written = 0
    for key, value in found:
        last[key] = value
        written += 1
    return Result(
        compared=len(expected),
        wrong={
            "missing": [key for key in expected if key not in last],
            "changed": [
                (key, value, last[key])
                for key, value in expected.items()
                if key in last and last[key] != value
            ],
            "unexpected": [key for key in last if key not in expected],
        },
        counted={"values written": written},
    )


def met(faults: int, absent: Sequence[str]) -> Result:
    """Judge whether the faults met processes: a process that dies by itself is seldom away.

    More than a tenth without a process means that the soak no longer finds some kind.
    """
    return Result(
        compared=faults,
        wrong={"without a process": list(absent) if 10 * len(absent) > faults else []},
    )


def late(
    dropped: Mapping[int, int],
    *,
    told: Collection[int],
    ledger: int,
    missing_batches: int,
    not_executed: Collection[int] = (),
) -> Result:
    """Compare dropped groups by batch with the ledger.

    The ledger counts what Spark reported. Of a batch whose report died with its driver (not in
    `told`) it can hold nothing; Headgate must then count that batch as missing. Of a batch that
    Spark did not execute again, because its sink had committed it before the driver died, Spark
    reports that it dropped nothing (docs/lag-and-loss.md says so).
    """
    wrong: dict[str, list[Any]] = {"ledger": [], "not counted as missing": []}
    in_reports = {*told} - {*not_executed}
    reported = sum(count for batch, count in dropped.items() if batch in in_reports)
    if ledger != reported:
        wrong["ledger"].append(f"the ledger says {ledger}, the reported batches {reported}")
    silent = sorted(batch for batch in dropped if batch not in told)
    if len(silent) > missing_batches:
        wrong["not counted as missing"] = silent
    return Result(
        compared=sum(dropped.values()),
        wrong=wrong,
        counted={
            "in the ledger": ledger,
            "in batches without a report": sum(dropped[batch] for batch in silent),
            "in batches not executed again": sum(dropped.get(one, 0) for one in not_executed),
        },
    )
