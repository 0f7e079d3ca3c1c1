"""Identify processes by (boot_id, pid, start_time), never only by a PID.

PIDs are reused; a pidfd that is opened first and compared afterwards cannot refer to another
process.
"""

import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate_ground.tolerant import whole

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this data folder."""

    name: str
    pid: int
    start_time: int

    def alive(self) -> bool:
        """Return whether exactly this process is still running."""
        return is_alive(self.pid, self.start_time)

    def wait_for_end(self, limit_s: float) -> bool:
        """Wait for the process to exit; False if it outlives the limit."""
        return wait_end(self.pid, self.start_time, limit_s)


def read_identity(file: Path) -> Process | None:
    """Return the process whose identity is in a file; None if there is none from this boot."""
    try:
        raw = json.loads(file.read_text())
        if raw["boot_id"] != boot_id():
            return None
        return Process(file.stem, int(raw["pid"]), int(raw["start_time"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def boot_id() -> str:
    """Return the ID of the host's current boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def pid_space() -> str:
    """Return the ID of the PID namespace: a PID identifies a process only within its namespace."""
    return os.readlink(_PROC / "self/ns/pid")


def start_time(pid: int) -> int | None:
    """Return when the process began, in clock ticks since boot; None if it does not exist."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None  # field 22 of proc(5), counted after the name


def state(pid: int) -> str:
    """Return the kernel's state letter for the process (R, S, T, Z…); "" if it does not exist."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def is_alive(pid: int, started: int | None) -> bool:
    """Return whether exactly that process is still running; a zombie does not count."""
    return started is not None and start_time(pid) == started and state(pid) not in ("Z", "X", "")


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time used by the process; 0 if it does not exist."""
    fields = _stat(pid)
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def tree_cpu_s(pid: int) -> float:
    """Return `cpu_s` with that of the children that the process has reaped."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def namespace_pids(pid: int) -> list[int]:
    """Return a process's PIDs from this PID namespace inwards; [] if it does not exist."""
    try:
        text = (_PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return []
    lines = (line.partition("NSpid:")[2] for line in text.splitlines())
    return next(([int(number) for number in line.split()] for line in lines if line), [])


def command_line(pid: int) -> str:
    """Return a process's arguments; "" if they cannot be read."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (OSError, UnicodeDecodeError):
        return ""


def environment(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started; {} if it cannot be read."""
    try:
        text = os.fsdecode((_PROC / str(pid) / "environ").read_bytes())
    except OSError:
        return {}
    return {name: value for name, _, value in (line.partition("=") for line in text.split("\0"))}


def is_spark(pid: int) -> bool:
    """Return whether the process is a JVM that runs Spark (or is about to)."""
    return "org.apache.spark." in command_line(pid)


def all_pids() -> Iterator[int]:
    """Yield all visible PIDs."""
    for entry in os.scandir(_PROC):
        if (pid := whole(entry.name)) is not None:
            yield pid


def descendants(pid: int) -> list[int]:
    """Return the PIDs below `pid`, parents before children."""
    children: dict[int, list[int]] = {}
    for other in all_pids():
        fields = _stat(other)
        if fields:
            children.setdefault(int(fields[1]), []).append(other)
    pids = list(children.get(pid, ()))
    for child in pids:  # grows while it is being walked
        pids += children.get(child, ())
    return pids


@contextmanager
def handle(pid: int, started: int | None) -> Iterator[int | None]:
    """Open a pidfd for exactly that process; None if it is gone (or `started` is unknown)."""
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        yield None
        return
    try:
        # Checked again: if the PID had been reused, the start time would differ.
        yield descriptor if started is not None and start_time(pid) == started else None
    finally:
        os.close(descriptor)


def send(pid: int, started: int | None, number: signal.Signals) -> bool:
    """Send a signal to exactly that process; return False if it is gone."""
    with handle(pid, started) as descriptor:
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True


def wait_end(pid: int, started: int | None, timeout_s: float) -> bool:
    """Wait for exactly that process to end; return False if it outlives the time limit."""
    with handle(pid, started) as descriptor:
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))


def kill_and_wait(pid: int, started: int | None, timeout_s: float) -> bool:
    """SIGKILL exactly that process and wait for its end; return False if it outlives the limit."""
    return not send(pid, started, signal.SIGKILL) or wait_end(pid, started, timeout_s)


def _stat(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    # The name is in parentheses and may contain spaces and parentheses itself.
    return text.rpartition(")")[2].split()
