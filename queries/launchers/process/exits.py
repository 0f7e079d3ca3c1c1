"""Name a driver's exit, add the kernel's out-of-memory counts, and announce it."""

import importlib
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headgate_ground.files import read_file
from headgate_ground.wire import FIELD, EventKind, WireEvent, sealed
from queries.domain.protocol import DriverSpec, ExitReport, Killer

NOTIFY_TIMEOUT_S = 2


def exit_name(code: int) -> str:
    """Return "0", "1"… for an exit code, "SIGKILL"… for a negative one (a signal)."""
    if code >= 0:
        return str(code)
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"SIG{-code}"


def never_started() -> ExitReport:
    """Return the exit of a driver that never had a process: UNKNOWN, without a report."""
    at = datetime.now(UTC).isoformat()
    return ExitReport("UNKNOWN", "UNKNOWN", core=False, oom=False, at=at, last_seq=0)


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """How many processes the kernel has killed because memory ran out."""

    group: int  # in our control group
    host: int | None  # on this host; None if the kernel does not count them

    @classmethod
    def now(cls) -> "OutOfMemory":
        """Return the kernel's current counts."""
        group = _cgroup("memory.events", "", "") or _cgroup(
            "memory.oom_control", "memory", "memory"
        )
        return cls(group.get("oom_kill", 0), _counts(Path("/proc/vmstat")).get("oom_kill"))


def _cgroup(file: str, controller: str, mounted: str) -> dict[str, int]:
    """Return the counters of our control group; for cgroup v2 the controller is ""."""
    for line in (read_file(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return _counts(Path("/sys/fs/cgroup") / mounted / group.lstrip("/") / file)
    return {}


def _counts(file: Path) -> dict[str, int]:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2}


def killer(
    python: str,
    jvm: str,
    *,
    by_us: Mapping[str, Killer],
    by_worker: bool,
    before: OutOfMemory,
    after: OutOfMemory,
) -> Killer:
    """Return the cause of a driver's end; `by_us` says why we ended "python" or "jvm", if we did.

    `by_worker` is whether a worker said that it was about to kill the driver. Python takes
    precedence, because the JVM ends with it.
    """
    for part, ended in (("python", python), ("jvm", jvm)):
        if part in by_us and (ended == "SIGKILL" or by_us[part] is Killer.WALLS_FAILED):
            return by_us[part]
        if ended == "SIGKILL" and by_worker:
            return Killer.WORKER
        if ended == "SIGKILL":
            if before.host is None or after.host is None:
                return Killer.NOBODY
            quiet = after.host == before.host
            return Killer.STRANGER if quiet else Killer.MEMORY_OR_STRANGER
    return Killer.NOBODY


def prepare_notice(spec: DriverSpec) -> None:
    """Import the client before it is needed: an exit must be announced within a second."""
    if spec.redis_url:
        importlib.import_module("redis")


def notify(spec: DriverSpec, report: ExitReport) -> None:
    """Post the exit to the event stream; this is only a hint: the sweep finds the exit anyway."""
    if not spec.redis_url:
        return
    import redis

    event = WireEvent(
        driver=spec.driver,
        epoch=spec.epoch,
        seq=0,
        at=report.at,
        kind=EventKind.DRIVER_EXIT,
        body=asdict(replace(report, log_tail="")),  # nobody reads a log there
    )
    try:
        client = redis.Redis.from_url(
            spec.redis_url,
            socket_connect_timeout=NOTIFY_TIMEOUT_S,
            socket_timeout=NOTIFY_TIMEOUT_S,
        )
        notice = sealed(event.encode(), bytes.fromhex(spec.event_key))
        client.xadd(spec.stream, {FIELD: notice})
    except redis.RedisError:
        return
