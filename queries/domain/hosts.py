"""Hosts: which are silent or busy, who manages their applications, and how drivers are isolated."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from headgate_ground.tolerant import whole

#: Spark's memory units in MB; a bare number is MB in `spark.driver.memory`.
_UNITS_MB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}


def memory_mb(text: str) -> int:
    """Return a Spark memory size in MB: "1g", "512m", "2048" (MB); 0 if it is not one."""
    match = re.fullmatch(r"([0-9]+)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        return 0
    return int(int(match[1]) * _UNITS_MB[match[2] or "m"])


class Mode(StrEnum):
    """What separates the code of a driver's authors from the rest of the host."""

    BUBBLEWRAP = "bubblewrap"
    NEITHER = "neither"

    @property
    def sentence(self) -> str:
        """Describe what a Python author can do with this isolation."""
        return _SENTENCES[self]


AUTO = "auto"

_SENTENCES = {
    Mode.BUBBLEWRAP: (
        "Each driver sees its own folder, its checkpoints, the allowed paths and a read-only "
        "system: an author's code cannot reach any other file or process on this host."
    ),
    Mode.NEITHER: (
        "Drivers run as the worker's account: an author of Python can read that account's files, "
        "secrets and database, and end its processes. Spark's parser, which checks authors' SQL, "
        "runs as that account too. Such a worker serves one team: unless HEADGATE_ROOT_WORKER=1 is "
        "set, a second team and authors who are not admins are rejected."
    ),
}


#: What it means if the worker runs as root.
_AS_ROOT = {
    Mode.BUBBLEWRAP: (
        "The worker runs as root, so a driver's code has root's user ID without root's "
        "capabilities: it can read files in /usr and /etc that only root is allowed to read, "
        "services that check only the user ID treat it as root, and a kernel vulnerability leads "
        "to root. Run the worker under a separate account."
    ),
    Mode.NEITHER: "The worker runs as root, so a driver's code can do anything on this host.",
}


@dataclass(frozen=True, slots=True)
class IsolationChoice:
    """The isolation that a host's worker uses, and why it does not use another kind."""

    mode: Mode
    asked: str  # HEADGATE_ISOLATION
    lacks: str = ""  # what this host lacks for the desired isolation
    root: bool = False  # whether the worker runs as root
    late: bool = False  # the test did not finish: the host may well be able to isolate
    holds: str = ""  # system calls and limits that have been proven to apply to drivers here

    @property
    def refused(self) -> bool:
        """Return whether this host cannot isolate drivers as requested, and so starts none.

        With `auto`, a host that is too busy or too full for the test does not start drivers that
        are not isolated.
        """
        return bool(self.lacks) and (self.asked != AUTO or self.late)

    @property
    def told(self) -> str:
        """Return the choice and its reason as sentences, for the log and for pages."""
        wanted = Mode.BUBBLEWRAP if self.asked == AUTO else self.asked
        why = f" {wanted} cannot be used here: {self.lacks}" if self.lacks else ""
        if self.late:
            return (
                f"The isolation of drivers could not be tested: {self.lacks} No drivers are "
                "started until it has been; it is tested again before each start."
            )
        if self.refused:
            return (
                f"HEADGATE_ISOLATION is {self.asked}, so no drivers are started:{why} Fix this, "
                "or set HEADGATE_ISOLATION to auto or neither."
            )
        root = f" {_AS_ROOT[self.mode]}" if self.root else ""
        holds = f" {self.holds}" if self.holds else ""
        return f"Isolation of drivers: {self.mode}. {self.mode.sentence}{holds}{root}{why}"


def choose(setting: str, lacks: str = "", *, late: bool = False) -> IsolationChoice:
    """Return the isolation to use; `lacks` is why the wanted kind is impossible, "" if it is not.

    `auto` means bubblewrap if possible. `late`: `lacks` is why that is not known yet. Raises
    `ValueError` for a kind that does not exist, which is never replaced with another.
    """
    if late:
        return IsolationChoice(
            Mode.BUBBLEWRAP if setting == AUTO else Mode(setting), setting, lacks, late=True
        )
    if setting == AUTO:
        return IsolationChoice(Mode.NEITHER if lacks else Mode.BUBBLEWRAP, setting, lacks)
    mode = Mode(setting)
    return IsolationChoice(mode, setting, "" if mode is Mode.NEITHER else lacks)


#: Percent of a minute in which some program waited for a processor. A driver that starts on two
#: quiet cores reaches about 25.
HIGH_SHARE = 80.0
#: Load per processor, for kernels that do not measure the share: three programs for each.
HIGH_LOAD = 3.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a host's kernel measured during the last minute."""

    share: float | None  # percent of the time in which a program waited; None: not measured
    load: float  # programs that ran or waited, on average
    cores: int

    @property
    def is_high(self) -> bool:
        """Return whether nothing should be started that can wait."""
        if self.share is not None:
            return self.share >= HIGH_SHARE
        return self.load >= HIGH_LOAD * self.cores

    @property
    def figure(self) -> str:
        """Return the evidence: "load 90 on 2 cores, a program waited 99 % of the last minute"."""
        load = f"load {self.load:.0f} on {self.cores} core{'s' if self.cores != 1 else ''}"
        if self.share is None:
            return load
        return f"{load}, a program waited for a processor {self.share:.0f} % of the last minute"


def waiting_share(text: str) -> float | None:
    """Return the minute's share in `/proc/pressure/cpu`; None if it is missing."""
    for line in text.splitlines():
        kind, *fields = line.split()[:4] or [""]
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        units, _, hundredths = values.get("avg60", "").partition(".")
        share = whole(units + hundredths) if len(hundredths) == 2 else None
        if kind == "some" and share is not None:
            return share / 100
    return None


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
    """Return the actions that the worker on `host` may take for an application.

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
    """A worker process, with its unique identity."""

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
    """Return the action for a claim; `first` is the state at the worker's first check.

    A claim that has been renewed between checks has a live holder.
    """
    if not latest.claim or latest.dead or latest.seen_at is None:
        return ClaimVerdict.TAKE
    if latest.now - latest.seen_at > SILENT_AFTER:
        return ClaimVerdict.TAKE
    renewed = first.seen_at is not None and latest.seen_at > first.seen_at
    return ClaimVerdict.LEAVE if renewed else ClaimVerdict.WATCH
