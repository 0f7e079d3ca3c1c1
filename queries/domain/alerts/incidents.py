"""Decide which incidents to open, update, close or reopen, given the current problems."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.alerts.troubles import NAMED, Trouble

#: How long a problem must be gone before its incident closes, so a flapping problem is one
#: incident.
HOLD = timedelta(minutes=5)
#: A problem that returns within this time reopens its incident.
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
    closed_by: str = ""  # a user; "": automatically


class Act(StrEnum):
    """What to do with an incident."""

    OPEN = "open"
    REOPEN = "reopen"
    UPDATE = "update"  # its evidence has changed, or its problem came back before it closed
    SEEN = "seen"  # its problem persists
    QUIET = "quiet"  # its problem has just cleared
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Change:
    """One action: on which incident (None: a new one), and because of which problem."""

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
    """Return what to do; each incident and each problem appears in at most one change.

    `known` contains the open incidents and, for each fingerprint, the newest recently closed one.
    An incident closed by a user stays closed until its problem has been gone for `hold`.
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
    """Return the names of the queries that a problem affects, up to `NAMED`."""
    return [query.name for query in trouble.queries[:NAMED]]
