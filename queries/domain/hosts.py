"""Hosts: when one counts as silent, and which worker may manage an application or a host."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SIGN_EVERY_S = 2.0  # seconds between a worker's heartbeats for its host
#: A host without a heartbeat for longer than this is silent, so up to seven heartbeats may be late
#: or lost. The same limit applies to processes and drivers, whose heartbeats are as frequent.
SILENT_AFTER = timedelta(seconds=15)
#: A heartbeat that comes later than this after the previous one begins a new steady period.
LATE_AFTER = timedelta(seconds=6)


class Responsibility(StrEnum):
    """What a worker may do about an application."""

    OURS = "OURS"  # everything: it is placed on this host, or on none yet
    THEIRS = "THEIRS"  # nothing: the worker on its own host does it
    SILENT = "SILENT"  # report that its host is silent: nothing else is known


def responsibility(placed_on: str, host: str, *, silent: bool, movable: bool) -> Responsibility:
    """Return what the worker on `host` may do about an application.

    `placed_on` is the application's host, "" for none; `silent` means that it is another host
    without a recent heartbeat. `movable`: none of its drivers is open and no checkpoint is a local
    file, so another host can start it without taking anything over.
    """
    if placed_on in ("", host):
        return Responsibility.OURS
    if not silent:
        return Responsibility.THEIRS
    return Responsibility.OURS if movable else Responsibility.SILENT


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process, with what distinguishes it from every other one."""

    claim: str  # chosen at random by the process
    boot_id: str
    pid_space: str  # a PID identifies a process only within its PID namespace
    pid: int
    start_time: int  # clock ticks since boot


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """The claim on a host's name, as found by a worker."""

    claim: str  # "": unclaimed
    seen_at: datetime | None  # its newest heartbeat, by the database's clock
    now: datetime  # by the same clock
    dead: bool  # its process is visible from here, and is gone


class ClaimVerdict(StrEnum):
    """What a worker does about the claim on its host's name."""

    TAKE = "TAKE"
    WATCH = "WATCH"  # its holder may have died: check again
    LEAVE = "LEAVE"  # its holder is alive


def judge_claim(first: ClaimSeen, latest: ClaimSeen) -> ClaimVerdict:
    """Return what to do about a claim; `first` is what the worker found at its first check.

    A claim that has been renewed between checks has a live holder.
    """
    if not latest.claim or latest.dead or latest.seen_at is None:
        return ClaimVerdict.TAKE
    if latest.now - latest.seen_at > SILENT_AFTER:
        return ClaimVerdict.TAKE
    renewed = first.seen_at is not None and latest.seen_at > first.seen_at
    return ClaimVerdict.LEAVE if renewed else ClaimVerdict.WATCH
