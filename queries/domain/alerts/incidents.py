"""What becomes of incidents when troubles are looked at: opened, updated, closed, opened again."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.alerts.troubles import NAMED, Trouble

#: A trouble must be gone for so long before its incident is closed: what flaps is one incident.
HOLD = timedelta(minutes=5)
#: A trouble that comes back within so long opens its incident again.
REOPENED_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Known:
    """An incident that is open, or that was closed within `REOPENED_WITHIN`."""

    id: int
    fingerprint: str
    open: bool
    title: str
    detail: str
    affected: int
    seen_at: datetime
    quiet_since: datetime | None = None
    closed_by: str = ""  # a person; "": by itself


class Act(StrEnum):
    """What is to be done with an incident."""

    OPEN = "open"
    REOPEN = "reopen"
    UPDATE = "update"  # its evidence has changed, or its trouble is back before it was closed
    SEEN = "seen"  # its trouble lasts
    QUIET = "quiet"  # its trouble is gone since now
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do: with which incident (none: a new one), because of which trouble."""

    act: Act
    known: Known | None = None
    trouble: Trouble | None = None


def changes(
    known: Iterable[Known],
    troubles: Iterable[Trouble],
    *,
    now: datetime,
    hold: timedelta = HOLD,
) -> list[Change]:
    """Return what is to be done; each incident and each trouble in one change at most.

    `known` are the open incidents, and of each fingerprint the newest one closed lately. An
    incident that a person closed stays closed while its trouble lasts without a pause of `hold`.
    """
    found: dict[str, Known] = {}
    for one in known:
        if one.open or one.fingerprint not in found:
            found[one.fingerprint] = one
    done: list[Change] = []
    for trouble in troubles:
        done.append(_seen(found.pop(trouble.fingerprint, None), trouble, now, hold))
    for one in found.values():
        if not one.open:
            continue
        if one.quiet_since is None:
            done.append(Change(Act.QUIET, one))
        elif now - one.quiet_since >= hold:
            done.append(Change(Act.CLOSE, one))
    return done


def _seen(known: Known | None, trouble: Trouble, now: datetime, hold: timedelta) -> Change:
    if known is None:
        return Change(Act.OPEN, None, trouble)
    if not known.open:
        lasts = known.closed_by and now - known.seen_at < hold
        return Change(Act.SEEN if lasts else Act.REOPEN, known, trouble)
    told = (known.title, known.detail, known.affected)
    now_so = (trouble.title, trouble.detail, len(trouble.queries))
    if known.quiet_since is not None or told != now_so:
        return Change(Act.UPDATE, known, trouble)
    return Change(Act.SEEN, known, trouble)


def names_of(trouble: Trouble) -> list[str]:
    """Return the names of the queries that a trouble affects, at most `NAMED`."""
    return [query.name for query in trouble.queries[:NAMED]]
