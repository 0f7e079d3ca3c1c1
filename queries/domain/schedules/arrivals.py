"""Whether new files have arrived in a folder, from the totals of its listings.

Only totals are kept, whatever the number of files. New or larger files raise one of them. Files
that are only removed, as by `cleanSource`, raise none, so they start nothing. Not noticed: a file
with an old time of modification that arrives between two listings when others are removed, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from headgate_ground.tolerant.values import count, rate

#: Longest wait for a moment without new files, in multiples of `quiet_s`.
MOST_WAITS = 10


@dataclass(frozen=True, slots=True)
class Totals:
    """One listing of a folder and everything below it, hidden files left out."""

    files: int
    bytes: int
    newest: float  # Unix time of the last modification; 0.0 without files

    def body(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    def has_more_than(self, before: "Totals | None") -> bool:
        """Return whether files have arrived since an earlier listing; None: there was none."""
        if before is None:
            return self.files > 0
        return self.files > before.files or self.bytes > before.bytes or self.newest > before.newest


def totals_from(body: Mapping[str, Any]) -> Totals | None:
    """Return stored totals; None if there are none."""
    files, size = count(body.get("files")), count(body.get("bytes"))
    newest = rate(body.get("newest"))
    if files is None or size is None or newest is None:
        return None
    return Totals(files, size, newest)


def totals_of(files: Iterable[tuple[str, int, float]]) -> Totals:
    """Return the totals of files (name relative to the folder, bytes, Unix time)."""
    visible = [(size, at) for name, size, at in files if not is_hidden(name)]
    return Totals(
        len(visible), sum(size for size, _ in visible), max((at for _, at in visible), default=0)
    )


def is_hidden(name: str) -> bool:
    """Return whether Spark's file source leaves out a file, by any part of its name.

    As HadoopFSUtils.shouldFilterOutPathName: hidden, temporary, or being copied by Hadoop's shell;
    the folder of a partition ("_day=1") is read.
    """
    return any(
        part[:1] == "." or (part[:1] == "_" and "=" not in part) or part.endswith("._COPYING_")
        for part in name.split("/")
    )


def due_at(first: datetime, newest: datetime, quiet_s: int) -> datetime:
    """Return when arrivals start a run: quiet for a while, or at the latest after ten times that.

    `first` and `newest` are when the first and the newest of them were noticed.
    """
    quiet = timedelta(seconds=quiet_s)
    return min(newest + quiet, first + MOST_WAITS * quiet)
