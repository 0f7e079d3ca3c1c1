"""A driver's exit: its report with the log's end, its name, and its announcement on the host.

After writing `exit.json`, a shim sends the ID of its driver's row to an abstract Unix socket
(unix(7)) named after the folder of all drivers, on which the host's worker listens. This is only a
hint: if it is missed, the next sweep finds the exit (docs/decisions/0012).
"""

import contextlib
import importlib
import json
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headgate_ground.files import NotPlain, read_file, read_tail, replace_file
from headgate_ground.tolerant import whole
from headgate_ground.wire import FIELD, EventKind, WireEvent, sealed
from queries.domain.probes.questions import TASK
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOG,
    EXIT,
    KILL_REASON,
    LAST_SEQ,
    SPEC,
    DriverSpec,
    ExitReport,
    Killer,
)
from queries.driver_folder import DriverFolder
from queries.launchers.process.epoch_claims import family
from queries.secret_references import References

_LONGEST = 32  # bytes of a decimal number


@contextlib.contextmanager
def listen(drivers: Path) -> Iterator[Callable[[float], int | None]]:
    """Listen while the block runs; yield a function that waits for the next exit.

    It waits for at most the given number of seconds and returns the ID received, or None if there
    was none. Raises `OSError` if another process is listening.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        ear.bind(_name(drivers))
        ear.setblocking(False)

        def heard(limit_s: float) -> int | None:
            if not select.select([ear], [], [], limit_s)[0]:
                return None
            return whole(ear.recv(_LONGEST))

        yield heard


def call(drivers: Path, driver: int) -> bool:
    """Announce that a driver has ended; return whether a worker is listening."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as mouth:
        mouth.setblocking(False)
        try:
            mouth.sendto(str(driver).encode(), _name(drivers))
        except OSError:  # nobody is listening, or too many exits are unread
            return False
    return True


def _name(drivers: Path) -> str:
    return f"\0{family(drivers)}exits"


LOG_TAIL_BYTES = 16_384
REPORT_WITHIN_S = 60  # for exit.json to become writable: a full disk, a missing folder
REPORT_AGAIN_S = 1
_LONGEST_NUMBER = 18  # digits of last_seq: no database accepts a larger number
_LONGEST_REASON = 100  # characters
_JVM_OOM_EXIT = "3"  # of -XX:+ExitOnOutOfMemoryError


def build(
    folder: DriverFolder,
    spec: DriverSpec,
    *,
    python: str,
    jvm: str,
    core: bool,
    oom_killed: bool,
    killed: Killer,
    kill_reason: str,
    at: str,
) -> ExitReport:
    """Return the report; `oom_killed`: the kernel killed the driver because memory ran out."""
    # Twice as much is masked, because the cut may be in the middle of a secret.
    log = read_tail(folder.own / DRIVER_LOG, 2 * LOG_TAIL_BYTES, within=folder.root)
    return ExitReport(
        python=python,
        jvm=jvm,
        core=core,
        oom=oom_killed or (jvm == _JVM_OOM_EXIT and "OutOfMemoryError" in log),
        at=at,
        last_seq=_last_seq(folder),
        log_tail=_masked(folder, spec, log)[-LOG_TAIL_BYTES:],
        killed=killed,
        kill_reason=kill_reason,
    )


def kill_reason(folder: DriverFolder) -> str:
    """Return why a worker was about to kill the driver; "" if none recorded a reason."""
    with contextlib.suppress(OSError, NotPlain):
        return (read_file(folder.control / KILL_REASON, most=_LONGEST_REASON) or "").strip()
    return ""


def warm_up(folder: DriverFolder, spec: DriverSpec) -> None:
    """Prepare the masking of a log (imports, patterns), usually while the JVM is still ending."""
    _masked(folder, spec, read_tail(folder.own / DRIVER_LOG, LOG_TAIL_BYTES, within=folder.root))


def write(folder: DriverFolder, report: ExitReport) -> None:
    """Write exit.json, without the log if there is not enough space; give up after a while.

    Until then the shim's lock prevents the exit from being treated as unknown.
    """
    deadline = time.monotonic() + REPORT_WITHIN_S
    while True:
        try:
            replace_file(folder.control / EXIT, report.dumps())
            return
        except OSError as error:
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    sys.stderr.write(f"exit.json cannot be written: {error}\n")
                return
            report = replace(report, log_tail="")
        time.sleep(REPORT_AGAIN_S)  # no event reports free space


def _last_seq(folder: DriverFolder) -> int | None:
    """Return the last event number that the driver reported as sent; None if there is none."""
    try:
        path = folder.own / LAST_SEQ
        number_text = (read_file(path, most=_LONGEST_NUMBER + 2, within=folder.root) or "").strip()
    except (OSError, ValueError):  # a link, a folder, or not text: the driver's code wrote it
        return None
    return whole(number_text)


def _masked(folder: DriverFolder, spec: DriverSpec, log: str) -> str:
    """Return a log without the secrets given to the driver, which are read from its files."""
    secrets = References(env_allowlist=spec.env_allowlist, secrets_dir=spec.secrets_dir)
    try:
        for name in (SPEC, ASSIGNMENT, TASK):
            if text := read_file(folder.control / name):
                secrets.learn(json.loads(text))
        return secrets.mask(log)
    except (OSError, ValueError) as error:  # every driver gets an exit, with a log or without
        return f"The log is not shown because its secrets are unknown: {type(error).__name__}"


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
        if part in by_us and (ended == "SIGKILL" or by_us[part] is Killer.ISOLATION_FAILED):
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
