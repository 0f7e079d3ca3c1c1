"""Find out a driver's state from its directory and the kernel, without touching the driver."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from headgate_ground import identities
from headgate_ground.files import is_locked, lock_holder, read_bytes, read_file
from queries.domain.checkpoints.ownership import lock_file
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOCK,
    EXIT,
    IDENT,
    SHIM_LOCK,
    STATUS,
    Assignment,
    DriverStatus,
    ExitReport,
    Ident,
    WireForm,
)
from queries.domain.supervision.observation import Liveness, Sighting
from queries.driver_folder import DriverFolder
from queries.launchers.process import environment, epoch_claims

FormT = TypeVar("FormT", bound=WireForm)

#: Bytes of a status: 200 runs with the longest error texts have less than half of that.
MOST_OF_STATUS = 8 * 1024 * 1024


def loaded(form: type[FormT], path: Path) -> FormT | None:
    """Return the content of a control file as a form; None if there is no file."""
    text = read_file(path)
    return None if text is None else form.loads(text)


def look(
    directory: Path, locations: tuple[str, ...], identity: Mapping[str, str | int] | None = None
) -> Sighting:
    """Return everything visible about a driver, reading only files and /proc.

    `identity` is the identity seen earlier, if any: the files may have disappeared since then.
    """
    folder = DriverFolder.of(directory)
    ident = loaded(Ident, folder.control / IDENT)
    status = _status(folder, ident)
    process = _process(ident)
    liveness = _prove(folder, ident, status, locations, identified=bool(identity))
    # Read last: an exit that exists after the look is authoritative.
    report = loaded(ExitReport, folder.control / EXIT)
    if report is not None:
        liveness = Liveness.EXITED
        status = _status(folder, ident)  # the driver's last report
    without_files = False
    if liveness in (Liveness.ABSENT, Liveness.GONE):
        liveness, process = _prove_without_files(
            directory, process or dict(identity or {}), liveness
        )
        without_files = ident is None and liveness in (Liveness.ALIVE, Liveness.ORPHANED)
    assignment = loaded(Assignment, folder.control / ASSIGNMENT)
    generation = assignment.generation if assignment is not None else 0
    cpu_s = _cpu_s(ident, status, generation) if liveness is Liveness.ALIVE else None
    return Sighting(liveness, process, status, report, generation, without_files, cpu_s)


def _cpu_s(ident: Ident | None, status: DriverStatus | None, assigned: int) -> float | None:
    """Return the processor time that a starting driver has used, in seconds; None if it is up.

    It is read from the kernel, which a driver cannot forge, and only while something depends on it:
    this reads the whole process table. A driver that has not read its newest assignment is about to
    start its contents.
    """
    up = status is not None and status.ready and status.applied_generation >= assigned
    if ident is None or up:
        return None
    root = ident.shim_pid
    if not identities.is_alive(root, ident.shim_start_time):
        root = ident.pid
    return sum(map(identities.tree_cpu_s, (root, *identities.descendants(root))))


def _process(ident: Ident | None) -> dict[str, str | int]:
    """Return the identities of the driver's processes, for its row."""
    if ident is None:
        return {}
    fields = {"pid": ident.pid, "start_time": ident.start_time, "jvm_pid": ident.jvm_pid}
    numbers = {name: number for name, number in fields.items() if number is not None}
    return {"boot_id": ident.boot_id, **numbers}


def status_in(directory: Path) -> DriverStatus | None:
    """Return the status in a driver's folder, with PIDs as the driver sees them."""
    return _status(DriverFolder.of(directory), None)


def _status(folder: DriverFolder, ident: Ident | None) -> DriverStatus | None:
    """Return the driver's status; None if there is no readable status file.

    A power failure may have left an incomplete file, and a driver's code may have written anything.
    """
    try:
        text = read_bytes(folder.own / STATUS, within=folder.root, most=MOST_OF_STATUS).decode()
        return _with_outer_pid(DriverStatus.loads(text), ident)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError):
        return None


def _with_outer_pid(status: DriverStatus, ident: Ident | None) -> DriverStatus:
    """Return a status with the JVM's PID as seen here: a sandboxed driver sees a different PID."""
    if ident is None or ident.jvm_pid is None or status.jvm_pid in (None, ident.jvm_pid):
        return status
    jvm_pid_within = status.jvm_pid
    runs = tuple(
        replace(run, error=replace(run.error, holder_pid=ident.jvm_pid))
        if run.error is not None and run.error.holder_pid == jvm_pid_within
        else run
        for run in status.runs
    )
    return replace(status, jvm_pid=ident.jvm_pid, runs=runs)


def processes_of(directory: Path) -> list[tuple[int, int]]:
    """Return (PID, start time) for the driver's own processes in /proc, oldest first.

    These processes have the directory in their environment; Python and the JVM also have it on
    their command line. The function is used only if ident.json is incomplete; it does not return
    the shim.
    """
    processes = []
    for pid in identities.all_pids():
        line = identities.command_line(pid)
        ours = identities.environment(pid).get(environment.DIRECTORY) == str(directory)
        named = _names(line, directory) and (_is_python(line) or "org.apache.spark" in line)
        if ours or named:
            started = identities.start_time(pid)
            if started is not None and identities.is_alive(pid, started):
                processes.append((pid, started))
    return sorted(processes, key=lambda process: process[1])


def python_of(directory: Path) -> tuple[int, int] | None:
    """Return (PID, start time) for the driver's Python from /proc; None if there is none."""
    processes = processes_of(directory)
    return next(
        (process for process in processes if _is_python(identities.command_line(process[0]))), None
    )


def directories_in_use(drivers: Path) -> set[Path]:
    """Return the directories below `drivers`, existing or not, whose drivers are alive."""
    marked = (
        identities.environment(pid).get(environment.DIRECTORY) for pid in identities.all_pids()
    )
    return {Path(text) for text in marked if text and text.startswith(f"{drivers}/")}


def _is_python(line: str) -> bool:
    return "queries.runtime." in line


def _names(line: str, directory: Path) -> bool:
    """Return whether a command line contains the directory itself, not one with the same prefix."""
    return f"{directory}/" in line or f"{directory} " in f"{line} "


def _prove_without_files(
    directory: Path, identity: dict[str, str | int], liveness: Liveness
) -> tuple[Liveness, dict[str, str | int]]:
    """Check a driver without its files: they show no process, or have disappeared with a mount.

    The result is based on the identity that was seen earlier and on the epoch's claim, both of
    which are checked with the kernel.
    """
    boot = identities.boot_id()
    pid, started = identity.get("pid"), identity.get("start_time")
    of_this_boot = identity.get("boot_id") == boot and isinstance(pid, int)
    if of_this_boot and isinstance(started, int) and identities.is_alive(int(pid or 0), started):
        return Liveness.ALIVE, identity
    if not epoch_claims.is_claimed(directory):
        return (Liveness.GONE if identity else liveness), identity
    if (python := python_of(directory)) is not None:
        return Liveness.ALIVE, {"boot_id": boot, "pid": python[0], "start_time": python[1]}
    # Claimed by no visible process: a shim between its claim and its spawn.
    return (Liveness.ORPHANED if processes_of(directory) else Liveness.SPAWNING), identity


def _prove(
    folder: DriverFolder,
    ident: Ident | None,
    status: DriverStatus | None,
    locations: tuple[str, ...],
    *,
    identified: bool,
) -> Liveness:
    directory = folder.root
    shim_holds = is_locked(folder.control / SHIM_LOCK)
    if ident is None:
        if shim_holds:
            return Liveness.SPAWNING
        # A shim that died between the spawn and ident.json leaves an unknown driver, which takes
        # its lock only once its Python is up. A driver that was known before has lost its files:
        # see `_prove_without_files`.
        unknown = not identified and directory.is_dir() and processes_of(directory)
        left = unknown or is_locked(folder.own / DRIVER_LOCK, within=folder.root)
        return Liveness.ORPHANED if left else Liveness.ABSENT
    if ident.boot_id != identities.boot_id():
        return Liveness.GONE
    if identities.is_alive(ident.pid, ident.start_time):
        return Liveness.ALIVE
    # Python is gone. A running shim will report within seconds; a stopped shim never will.
    if shim_holds and identities.state(ident.shim_pid) not in ("T", "t"):
        return Liveness.ALIVE
    outlived = _outlived(folder, ident, status, locations)
    return Liveness.ORPHANED if outlived else Liveness.GONE


def _outlived(
    folder: DriverFolder, ident: Ident, status: DriverStatus | None, locations: tuple[str, ...]
) -> bool:
    """Return whether any process of the driver has outlived the driver's Python."""
    directory = folder.root
    left = ((ident.jvm_pid, ident.jvm_start_time), (ident.init_pid, ident.init_start_time))
    if any(pid is not None and identities.is_alive(pid, started) for pid, started in left):
        return True
    # Not recorded by the shim: trust the number only if that process is ours.
    jvm_pid_within = status.jvm_pid if status is not None else None
    if ident.jvm_pid is None and jvm_pid_within in [pid for pid, _ in processes_of(directory)]:
        return True
    for location in locations:
        path = lock_file(location)
        lock = Path(path) if path is not None else None
        holder = lock_holder(lock, within=lock.parent) if lock is not None else None
        if holder and _names(identities.command_line(holder), directory):
            return True
    return is_locked(folder.own / DRIVER_LOCK, within=folder.root)
