"""Decide which stored contents may be deleted: those unreferenced and unused for a long time."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: Maximum time between a launch's use of a folder and the creation of its driver's row.
LAUNCH = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """A folder named by the digest of its contents or of its request."""

    name: str
    used_at: datetime  # stored, or last used by a start


def forgotten(
    contents: Iterable[StoredFolder],
    *,
    named: Collection[str],
    before: datetime,
    oldest_driver: datetime | None = None,
) -> list[str]:
    """Return the contents that may be deleted, least recently used first.

    named: the contents that definitions, runs and unfinished work refer to. oldest_driver: when the
    oldest live driver was launched; it may still use contents from that time that nothing refers to
    any more (such as packages after an upgrade). None if everything that drivers use is in `named`.
    """
    expired = [
        content
        for content in contents
        if content.name not in named
        and content.used_at < before
        and (oldest_driver is None or content.used_at < oldest_driver - LAUNCH)
    ]
    return [
        content.name
        for content in sorted(expired, key=lambda content: (content.used_at, content.name))
    ]
