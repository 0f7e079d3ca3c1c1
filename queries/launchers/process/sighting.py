"""What can be proven of a driver from its directory and the kernel, without touching it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from queries.domain.checkpoints.lock_files import lock_files
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
from queries.driver_folder import DriverFolder
from queries.files import NotPlain, is_locked, lock_holder, read_file
from queries.launchers.process import environment, epoch_claims, identities

FormT = TypeVar("FormT", bound=Form)


def loaded(form: type[FormT], path: Path) -> FormT | None:
    """Return the form that a file holds; None where there is no file."""
    text = read_file(path)
    return None if text is None else form.loads(text)


def look(
    directory: Path, locations: tuple[str, ...], known: Mapping[str, str | int] | None = None
) -> Sighting:
    """Return everything that can be seen of a driver; reads files and /proc only.

    `known` is the identity that was seen earlier, if any: the files may be gone meanwhile.
    """
    folder = DriverFolder.of(directory)
    ident = loaded(Ident, folder.control / IDENT)
    status = _status(folder, ident)
    process = _process(ident)
    liveness = _prove(folder, ident, status, locations, known=bool(known))
    # Read last: an exit that is there after the look is the truth about it.
    report = loaded(ExitReport, folder.control / EXIT)
    if report is not None:
        liveness = Liveness.EXITED
        status = _status(folder, ident)  # the driver's last word
    without_files = False
    if liveness in (Liveness.ABSENT, Liveness.GONE):
        liveness, process = _prove_without_files(directory, process or dict(known or {}), liveness)
        without_files = ident is None and liveness in (Liveness.ALIVE, Liveness.ORPHANED)
    assignment = loaded(Assignment, folder.control / ASSIGNMENT)
    generation = assignment.generation if assignment is not None else 0
    return Sighting(liveness, process, status, report, generation, without_files)


def _process(ident: Ident | None) -> dict[str, str | int]:
    """Return who the driver's processes are, for its row."""
    if ident is None:
        return {}
    known = {"pid": ident.pid, "start_time": ident.start_time, "jvm_pid": ident.jvm_pid}
    numbers = {name: number for name, number in known.items() if number is not None}
    return {"boot_id": ident.boot_id, **numbers}


def _status(folder: DriverFolder, ident: Ident | None) -> Status | None:
    """Return what the driver says; None where nothing is there that can be read.

    A power cut may have left half a file, and a driver's code what it likes.
    """
    try:
        status = loaded(Status, folder.own / STATUS)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, NotPlain):
        return None
    return status if status is None else _seen_from_here(status, ident)


def _seen_from_here(status: Status, ident: Ident | None) -> Status:
    """Return a status with the JVM's pid as it is here: within walls a driver has its own."""
    if ident is None or ident.jvm_pid is None or status.jvm_pid in (None, ident.jvm_pid):
        return status
    said = status.jvm_pid
    runs = tuple(
        replace(run, error=replace(run.error, holder_pid=ident.jvm_pid))
        if run.error is not None and run.error.holder_pid == said
        else run
        for run in status.runs
    )
    return replace(status, jvm_pid=ident.jvm_pid, runs=runs)


def processes_of(directory: Path) -> list[tuple[int, int]]:
    """Return (pid, start time) of the driver's own processes that /proc shows, oldest first.

    They carry the directory in their environment, Python and JVM on their command line, too.
    Used only where ident.json does not say enough; the shim is not among them.
    """
    found = []
    for pid in identities.all_pids():
        line = identities.command_line(pid)
        ours = identities.environment(pid).get(environment.DIRECTORY) == str(directory)
        named = _names(line, directory) and (_is_python(line) or "org.apache.spark" in line)
        if ours or named:
            started = identities.start_time(pid)
            if started is not None and identities.is_alive(pid, started):
                found.append((pid, started))
    return sorted(found, key=lambda each: each[1])


def python_of(directory: Path) -> tuple[int, int] | None:
    """Return (pid, start time) of the driver's Python as /proc shows it; None: there is none."""
    found = processes_of(directory)
    return next((each for each in found if _is_python(identities.command_line(each[0]))), None)


def directories_in_use(drivers: Path) -> set[Path]:
    """Return the directories below `drivers`, there or not, whose drivers' processes live."""
    marked = (
        identities.environment(pid).get(environment.DIRECTORY) for pid in identities.all_pids()
    )
    return {Path(text) for text in marked if text and text.startswith(f"{drivers}/")}


def _is_python(line: str) -> bool:
    return "queries.runtime." in line


def _names(line: str, directory: Path) -> bool:
    """Tell whether a command line names the directory, and not one that begins like it."""
    return f"{directory}/" in line or f"{directory} " in f"{line} "


def _prove_without_files(
    directory: Path, known: dict[str, str | int], liveness: Liveness
) -> tuple[Liveness, dict[str, str | int]]:
    """Look again at a driver whose files show nothing that lives; they may be gone with a mount.

    Returns what the kernel shows of the identity that was seen earlier and of the epoch's claim.
    """
    boot = identities.boot_id()
    pid, started = known.get("pid"), known.get("start_time")
    of_this_boot = known.get("boot_id") == boot and isinstance(pid, int)
    if of_this_boot and isinstance(started, int) and identities.is_alive(int(pid or 0), started):
        return Liveness.ALIVE, known
    if not epoch_claims.is_taken(directory):
        return (Liveness.GONE if known else liveness), known
    if (python := python_of(directory)) is not None:
        return Liveness.ALIVE, {"boot_id": boot, "pid": python[0], "start_time": python[1]}
    # Claimed by nobody who can be seen: a shim between its claim and its spawn.
    return (Liveness.ORPHANED if processes_of(directory) else Liveness.SPAWNING), known


def _prove(
    folder: DriverFolder,
    ident: Ident | None,
    status: Status | None,
    locations: tuple[str, ...],
    *,
    known: bool,
) -> Liveness:
    directory = folder.root
    shim_holds = is_locked(folder.control / SHIM_LOCK)
    if ident is None:
        if shim_holds:
            return Liveness.SPAWNING
        # A shim that died between spawn and ident.json leaves a driver that nobody knows, and
        # that takes its lock only once its Python is up. One that was known before has lost its
        # files: `_prove_without_files`.
        unknown = not known and directory.is_dir() and processes_of(directory)
        left = unknown or is_locked(folder.own / DRIVER_LOCK)
        return Liveness.ORPHANED if left else Liveness.ABSENT
    if ident.boot_id != identities.boot_id():
        return Liveness.GONE
    if identities.is_alive(ident.pid, ident.start_time):
        return Liveness.ALIVE
    # Python is gone. A shim that works will report within seconds; a stopped one never will.
    if shim_holds and identities.state(ident.shim_pid) not in ("T", "t"):
        return Liveness.ALIVE
    outlived = _outlived(folder, ident, status, locations)
    return Liveness.ORPHANED if outlived else Liveness.GONE


def _outlived(
    folder: DriverFolder, ident: Ident, status: Status | None, locations: tuple[str, ...]
) -> bool:
    """Tell whether anything has outlived the driver's Python."""
    directory = folder.root
    left = ((ident.jvm_pid, ident.jvm_start_time), (ident.init_pid, ident.init_start_time))
    if any(pid is not None and identities.is_alive(pid, started) for pid, started in left):
        return True
    # Not recorded by the shim: believe the number only if that process is ours.
    said = status.jvm_pid if status is not None else None
    if ident.jvm_pid is None and said in [pid for pid, _ in processes_of(directory)]:
        return True
    for location in locations:
        for path in lock_files(location):
            holder = lock_holder(Path(path))
            if holder and _names(identities.command_line(holder), directory):
                return True
    return is_locked(folder.own / DRIVER_LOCK)
