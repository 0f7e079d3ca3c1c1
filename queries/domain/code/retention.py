"""Which kept contents may go: nothing names them, and nothing has used them for long."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: Between the use of a folder for a launch and the row of its driver, at most.
LAUNCH = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Content:
    """A folder that is named by what it holds, or by what was wished for."""

    name: str
    used_at: datetime  # put into place, or last taken by a start


def forgotten(
    contents: Iterable[Content],
    *,
    named: Collection[str],
    before: datetime,
    oldest_driver: datetime | None = None,
) -> list[str]:
    """Return the contents that may be deleted, those that were used longest ago first.

    named: what definitions, runs and unfinished work name. oldest_driver: when the oldest driver
    that lives was launched; it may use what it found then although nothing names that any more
    (packages after an upgrade). None where what drivers use is among the named.
    """
    found = [
        one
        for one in contents
        if one.name not in named
        and one.used_at < before
        and (oldest_driver is None or one.used_at < oldest_driver - LAUNCH)
    ]
    return [one.name for one in sorted(found, key=lambda one: (one.used_at, one.name))]
