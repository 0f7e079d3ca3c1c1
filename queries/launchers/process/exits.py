"""How an end is named, what the kernel adds to it, and how the shim makes it known."""

import importlib
import signal
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from listeners.wire import FIELD, Event, Kind, sealed
from queries.domain.protocol import DriverSpec, ExitReport

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
    """Return the exit of a driver that no process ever was: UNKNOWN, and it has said nothing."""
    at = datetime.now(UTC).isoformat()
    return ExitReport("UNKNOWN", "UNKNOWN", core=False, oom=False, at=at, last_seq=0)


def cgroup_oom_kills() -> int:
    """Return how often the kernel killed in our control group because memory ran out."""
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
        events = (Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events").read_text()
    except OSError:
        return 0
    counts = dict(line.split() for line in events.splitlines())
    return int(counts.get("oom_kill", 0))


def prepare_notice(spec: DriverSpec) -> None:
    """Import the client before it is needed: an exit is to be known within a second."""
    if spec.redis_url:
        importlib.import_module("redis")


def notify(spec: DriverSpec, report: ExitReport) -> None:
    """Post the exit to the event stream; a hint only, so a failure is left to the sweep."""
    if not spec.redis_url:
        return
    import redis

    event = Event(
        driver=spec.driver,
        epoch=spec.epoch,
        seq=0,
        at=report.at,
        kind=Kind.DRIVER_EXIT,
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
