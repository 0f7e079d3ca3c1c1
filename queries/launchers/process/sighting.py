"""What can be proven of a driver from its directory and the kernel, without touching it."""

from pathlib import Path
from typing import TypeVar

from queries.domain.checkpoints.lock_files import lock_file
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOCK,
    EXIT,
    IDENT,
    SHIM_LOCK,
    STATUS,
    Assignment,
    ExitReport,
    Form,
    Ident,
    Status,
)
from queries.domain.supervision.observation import Liveness, Sighting
from queries.files import is_locked, lock_holder, read_file
from queries.launchers.process import identities

FormT = TypeVar("FormT", bound=Form)


def loaded(form: type[FormT], path: Path) -> FormT | None:
    """Return the form that a file holds; None where there is no file."""
    text = read_file(path)
    return None if text is None else form.loads(text)


def look(directory: Path, locations: tuple[str, ...]) -> Sighting:
    """Return everything that can be seen of a driver; reads files and /proc only."""
    status = _status(directory)
    ident = loaded(Ident, directory / IDENT)
    liveness = _prove(directory, ident, status, locations)
    # Read last: an exit that is there after the look is the truth about it.
    report = loaded(ExitReport, directory / EXIT)
    if report is not None:
        liveness = Liveness.EXITED
        status = _status(directory)  # the driver's last word
    assignment = loaded(Assignment, directory / ASSIGNMENT)
    generation = assignment.generation if assignment is not None else 0
    return Sighting(liveness, _process(ident), status, report, generation)


def _process(ident: Ident | None) -> dict[str, str | int]:
    """Return who the driver's processes are, for its row."""
    if ident is None:
        return {}
    known = {"pid": ident.pid, "start_time": ident.start_time, "jvm_pid": ident.jvm_pid}
    numbers = {name: number for name, number in known.items() if number is not None}
    return {"boot_id": ident.boot_id, **numbers}


def _status(directory: Path) -> Status | None:
    """Return what the driver says; None where a power cut has left nothing that can be read."""
    try:
        return loaded(Status, directory / STATUS)
    except (ValueError, TypeError, KeyError):
        return None


def processes_of(directory: Path) -> list[tuple[int, int]]:
    """Return (pid, start time) of the driver's own processes that /proc shows.

    Both Python and JVM carry the directory on their command line. Used only where ident.json
    does not say enough; the shim is not among them.
    """
    found = []
    for pid in identities.all_pids():
        line = identities.command_line(pid)
        if str(directory) in line and ("queries.runtime." in line or "org.apache.spark" in line):
            started = identities.start_time(pid)
            if started is not None:
                found.append((pid, started))
    return found


def _prove(
    directory: Path, ident: Ident | None, status: Status | None, locations: tuple[str, ...]
) -> Liveness:
    shim_holds = is_locked(directory / SHIM_LOCK)
    if ident is None:
        if shim_holds:
            return Liveness.SPAWNING
        # A shim that died between spawn and ident.json leaves a driver that nobody knows, and
        # that takes its lock only once its Python is up.
        left = is_locked(directory / DRIVER_LOCK) or processes_of(directory)
        return Liveness.ORPHANED if left else Liveness.ABSENT
    if ident.boot_id != identities.boot_id():
        return Liveness.GONE
    if identities.is_alive(ident.pid, ident.start_time):
        return Liveness.ALIVE
    # Python is gone. A shim that works will report within seconds; a stopped one never will.
    if shim_holds and identities.state(ident.shim_pid) not in ("T", "t"):
        return Liveness.ALIVE
    outlived = _outlived(directory, ident, status, locations)
    return Liveness.ORPHANED if outlived else Liveness.GONE


def _outlived(
    directory: Path, ident: Ident, status: Status | None, locations: tuple[str, ...]
) -> bool:
    """Tell whether anything has outlived the driver's Python."""
    if ident.jvm_pid is not None and identities.is_alive(ident.jvm_pid, ident.jvm_start_time):
        return True
    # Not recorded by the shim: believe the number only if that process is ours.
    said = status.jvm_pid if status is not None else None
    if ident.jvm_pid is None and said in [pid for pid, _ in processes_of(directory)]:
        return True
    for location in locations:
        path = lock_file(location)
        holder = lock_holder(Path(path)) if path is not None else None
        if holder and str(directory) in identities.command_line(holder):
            return True
    return is_locked(directory / DRIVER_LOCK)
