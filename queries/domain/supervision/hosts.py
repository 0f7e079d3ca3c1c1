"""Hosts: when one counts as silent, who may act for an application, who may act for a host."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SIGN_EVERY_S = 2.0  # a worker's sign of life for its host
#: A host without a sign of life for longer is silent: seven may be late or lost. The same holds
#: for the heartbeats of processes and drivers, which come as often.
SILENT_AFTER = timedelta(seconds=15)
#: A sign that comes later than this after the one before begins a new steady stretch.
LATE_AFTER = timedelta(seconds=6)


class Responsibility(StrEnum):
    """What a worker may do about an application."""

    OURS = "OURS"  # everything: it is placed on this host, or on none yet
    THEIRS = "THEIRS"  # nothing: the worker of its own host does it
    SILENT = "SILENT"  # say that its host is silent: nothing else is known of it


def responsibility(placed_on: str, here: str, *, silent: bool, movable: bool) -> Responsibility:
    """Return what the worker of host `here` may do about an application.

    `placed_on` is the application's host, "" for none; `silent`: that one is another host and
    known to give no sign of life. `movable`: no driver of it is open and no checkpoint is a local
    file, so that another host may start it without taking anything over.
    """
    if placed_on in ("", here):
        return Responsibility.OURS
    if not silent:
        return Responsibility.THEIRS
    return Responsibility.OURS if movable else Responsibility.SILENT


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's process, as told from every other one."""

    claim: str  # drawn at random by the process
    boot_id: str
    pid_space: str  # a pid means one process only within its pid namespace
    pid: int
    start_time: int  # clock ticks since boot


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """The claim on a host's name as a worker finds it."""

    claim: str  # "": nobody's
    seen_at: datetime | None  # its newest sign of life, by the database's clock
    now: datetime  # by the same clock
    dead: bool  # its process could be looked at from here, and is gone


class ClaimVerdict(StrEnum):
    """What a worker does about the claim on its host's name."""

    TAKE = "TAKE"
    WATCH = "WATCH"  # its holder may have died: look again
    LEAVE = "LEAVE"  # its holder lives


def judge_claim(first: ClaimSeen, seen: ClaimSeen) -> ClaimVerdict:
    """Return what to do about a claim; `first` is what the worker found when it began to look.

    A claim that is renewed while one looks on has a living holder.
    """
    if not seen.claim or seen.dead or seen.seen_at is None:
        return ClaimVerdict.TAKE
    if seen.now - seen.seen_at > SILENT_AFTER:
        return ClaimVerdict.TAKE
    renewed = first.seen_at is not None and seen.seen_at > first.seen_at
    return ClaimVerdict.LEAVE if renewed else ClaimVerdict.WATCH
