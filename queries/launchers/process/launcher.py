"""Run drivers as processes on this host, one directory each: the production launcher.

`DRIVERS_DIR/<application>/<epoch>/` contains a driver's files. This module gets all its information
from there and from the kernel, so if a worker dies, any other worker can continue its work.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from django.conf import settings

from controlplane import fail_points
from headgate_ground import identities, spool
from headgate_ground.files import (
    NotPlain,
    exclusive,
    is_locked,
    open_plain,
    read_bytes,
    read_file,
    read_tail,
    replace_file,
    take_lock,
)
from headgate_ground.masking import mask_text
from headgate_ground.tolerant import whole
from headgate_ground.untrusted import names_in, remove_file, remove_tree, status_of
from headgate_server import places
from queries.domain.hosts import IsolationChoice, Mode, choose
from queries.domain.probes.questions import MOST_CHARACTERS, RESULT, TASK
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOCK,
    DRIVER_LOG,
    EXIT,
    HOST_SEEN,
    IDENT,
    KILL_REASON,
    POOLS,
    SHIM_LOCK,
    SPEC,
    Assignment,
    Current,
    DriverSpec,
    Ident,
)
from queries.domain.sparks import spark_named, unsupported
from queries.domain.states import Reason
from queries.domain.supervision.observation import LIVING, Sighting
from queries.driver_folder import DriverFolder, current_file, read_current
from queries.launchers.base import LaunchRefused
from queries.launchers.process import (
    class_archives,
    environment,
    epoch_claims,
    exits,
    pipes,
    sighting,
    spawning,
)
from queries.launchers.process import code_copies as code
from queries.launchers.process.isolation import apply, self_test
from queries.launchers.process.isolation.apply import DriverIsolation

KILL_WAIT_S = 5
#: How long a process may take to execute another program, in seconds: the disk may be busy.
EXEC_S = 2.0
LOG_TAIL_BYTES = 256 * 1024
#: What a probe has found if its findings are no file: no result can be read from it.
NOT_A_RESULT = "not a plain file"
PROBES = "probes"  # folder of an application's probes, next to its drivers' directories


def configured() -> "LocalProcessLauncher":
    """Return the launcher for this installation's folders and isolation settings."""
    return LocalProcessLauncher(
        drivers_dir=settings.DRIVERS_DIR,
        code_dir=settings.CODE_DIR,
        secrets_dir=settings.SECRETS_DIR,
        isolation=self_test.isolation,
    )


def _no_isolation() -> IsolationChoice:
    return choose(Mode.NEITHER)


class LocalProcessLauncher:
    """Launch, observe and signal drivers on this host (`Launcher`)."""

    def __init__(
        self,
        drivers_dir: Path,
        code_dir: Path,
        secrets_dir: Path | None = None,
        isolation: Callable[[], IsolationChoice] = _no_isolation,
    ) -> None:
        self._drivers = drivers_dir
        self._code = code_dir
        self._driver_isolation = DriverIsolation(
            isolation,
            secrets=secrets_dir or drivers_dir.parent / "secrets",
        )

    def isolation(self) -> IsolationChoice:
        """Return the isolation that new drivers get; tested at the first call."""
        return self._driver_isolation.choice()

    def directory(self, application: str, epoch: int, *, probe: bool = False) -> Path:
        """Return the directory of a driver or probe, which may not exist yet."""
        if application in ("", ".", "..") or "/" in application:
            raise ValueError(f"application: {application!r} cannot name a folder")
        folder = self._drivers / application
        return (folder / PROBES if probe else folder) / str(epoch)

    def files_location(self, application: str, epoch: int, *, probe: bool = False) -> str:
        """Return the directory of a driver or probe as a string."""
        return str(self.directory(application, epoch, probe=probe))

    def highest_epoch(self, application: str) -> int:
        """Return the highest epoch in the application's folders and its `current.json`."""
        folder = self.directory(application, 0).parent
        text = read_current(folder)
        current = [Current.loads(text).epoch if text is not None else 0]
        claimed = epoch_claims.claimed_epochs(folder) | epoch_claims.claimed_epochs(folder / PROBES)
        return max([*current, *claimed, *_epochs(folder), *_epochs(folder / PROBES)])

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Write the intent, spawn the shim, and return once the shim has locked its directory.

        1. The directory, its spec, pools and assignment are on disk (the intent).
        2. `current.json` contains this epoch, unless it contains a later one; a standby is named
           there only when it takes over, by its first assignment (`assign`).
        3. The shim is spawned; a second shim for the same directory exits immediately.
        """

        def write_intent(directory: Path) -> None:
            replace_file(DriverFolder.of(directory).control / POOLS, pools_xml)
            self._write_assignment(directory, assignment)
            if spec.standby:  # when isolated, it sees only folders that exist when it starts
                current_file(directory.parent).parent.mkdir(mode=0o700, exist_ok=True)
            else:
                self._make_current(directory, spec.epoch)

        self._launch(spec, write_intent)

    def assign(self, application: str, assignment: Assignment) -> None:
        """Replace the assignment unless a higher generation exists, and nudge the driver.

        The application's `current.json` contains its epoch before that, unless it contains a later
        one: a standby that takes over executes nothing before it is named there.
        """
        directory = self.directory(application, assignment.epoch)
        if not directory.is_dir():
            return
        fail_points.reach(fail_points.TAKEN_OVER)
        self._make_current(directory, assignment.epoch)
        fail_points.reach(fail_points.BEFORE_ASSIGNMENT)
        self._driver_isolation.assign(DriverFolder.of(directory), assignment)
        if self._write_assignment(directory, assignment):
            self._signal(directory, signal.SIGUSR1)

    def seal(self, application: str, epoch: int) -> bool:
        """Write the exit of a driver that has not been started, under its shim's lock.

        A worker that was suspended after writing the intent finds this exit, and so does a shim
        that the worker has spawned.
        """
        directory = self.directory(application, epoch)
        try:
            control = DriverFolder.make(directory).control
            lock = take_lock(control / SHIM_LOCK)
            if lock is None:  # a shim that has reported may still be cleaning up
                return (control / EXIT).exists()
            try:
                return self._seal(directory)
            finally:
                os.close(lock)
        except OSError as error:
            raise LaunchRefused(_unusable("driver", directory, error)) from error

    def _seal(self, directory: Path) -> bool:
        folder = DriverFolder.of(directory)
        if (folder.control / EXIT).exists():
            return True
        is_claimed = is_locked(
            folder.own / DRIVER_LOCK, within=directory
        ) or epoch_claims.is_claimed(directory)
        if (folder.control / IDENT).exists() or is_claimed or sighting.processes_of(directory):
            return False
        replace_file(folder.control / EXIT, exits.never_started().dumps())
        return True

    def sight(
        self,
        application: str,
        epoch: int,
        *,
        probe: bool = False,
        locations: tuple[str, ...] = (),
        identity: Mapping[str, str | int] | None = None,
    ) -> Sighting:
        """Return a driver's state as seen here; `locations` are checkpoints that it may hold."""
        return sighting.look(self.directory(application, epoch, probe=probe), locations, identity)

    def living(self) -> list[tuple[str, int]]:
        """Return the application and epoch of every driver with live processes."""
        drivers = {(path.parent.name, int(path.name)) for path in self._folders("*")}
        return [driver for driver in sorted(drivers) if self.sight(*driver).liveness in LIVING]

    def show_heartbeat(self, drivers: Iterable[tuple[str, int]]) -> None:
        """Set the time of a file in each of these drivers' folders that exist to now."""
        for application, epoch in drivers:
            control = DriverFolder.of(self.directory(application, epoch)).control
            with suppress(OSError):  # no folder, no space: the driver's store may respond
                (control / HOST_SEEN).touch(mode=0o600)

    def exits(self) -> AbstractContextManager[Callable[[float], int | None]]:
        """Listen for shims that announce an exit; raises `OSError` if another process does."""
        return exits.listen(self._drivers)

    def terminate(self, application: str, epoch: int) -> None:
        """Ask the driver's Python, and only it, to exit (SIGTERM)."""
        self._signal(self.directory(application, epoch), signal.SIGTERM)

    def kill(self, application: str, epoch: int, reason: Reason) -> None:
        """SIGKILL the driver's Python and JVM, also an orphaned JVM, and wait for their end."""
        self._kill(self.directory(application, epoch), reason)

    def _kill(self, directory: Path, reason: Reason) -> None:
        with suppress(OSError):  # no folder, no space: the shim will not know who it was
            replace_file(DriverFolder.of(directory).control / KILL_REASON, reason)
        ident = self._ident(directory)
        if ident is not None:
            identities.kill_and_wait(ident.pid, ident.start_time, KILL_WAIT_S)
            if ident.jvm_pid is not None:
                identities.kill_and_wait(ident.jvm_pid, ident.jvm_start_time, KILL_WAIT_S)
            self._end_isolation(ident)
        # Processes missing from ident.json (not written yet, or gone with the folder).
        if ident is None or self._holds(directory):
            self._end_unlisted(directory, appearing=ident is None)

    def _holds(self, directory: Path) -> bool:
        lock = DriverFolder.of(directory).own / DRIVER_LOCK
        return is_locked(lock, within=directory) or epoch_claims.is_claimed(directory)

    def _end_unlisted(self, directory: Path, *, appearing: bool) -> None:
        """SIGKILL a driver's processes in /proc until none of them holds its folder or its claim.

        One look is not enough: a process that is executing another program is not shown, and a
        JVM's Python workers end a moment after it.
        """
        end = time.monotonic() + KILL_WAIT_S
        while True:
            processes = sighting.processes_of(directory)
            if appearing:
                processes = processes or self._appearing(directory)
            for pid, started in processes:
                identities.kill_and_wait(pid, started, KILL_WAIT_S)
            if not self._holds(directory) or time.monotonic() >= end:
                return
            time.sleep(0.05)

    def _appearing(self, directory: Path) -> list[tuple[int, int]]:
        """Return a claimed driver's processes, waiting a moment until /proc shows them.

        While a process is executing another program (execve), its command line and environment are
        empty.
        """
        end = time.monotonic() + EXEC_S
        while epoch_claims.is_claimed(directory) and time.monotonic() < end:
            if processes := sighting.processes_of(directory):
                return processes
            time.sleep(0.05)
        return []

    def _end_isolation(self, ident: Ident) -> None:
        """Give the sandbox's first process time to report how the driver ended."""
        init = (ident.init_pid, ident.init_start_time)
        if init[0] is not None and not identities.wait_end(init[0], init[1], KILL_WAIT_S):
            identities.kill_and_wait(init[0], init[1], KILL_WAIT_S)

    # --- probes -----------------------------------------------------------------------

    def launch_probe(self, spec: DriverSpec, task: str) -> None:
        """Write the intent (spec, task), spawn the shim, and return once it locks its directory."""
        self._launch(
            spec, lambda directory: replace_file(DriverFolder.of(directory).control / TASK, task)
        )

    def probe_result(self, application: str, epoch: int) -> str:
        """Return a probe's findings so far as a string; "" if there are none yet."""
        own = self._own(application, epoch, probe=True)
        try:
            return read_file(own / RESULT, most=MOST_CHARACTERS + 1, within=own) or ""
        except (NotPlain, UnicodeDecodeError):
            return NOT_A_RESULT

    def end_probe(self, application: str, epoch: int, *, grace_s: float = 0) -> None:
        """Wait at most `grace_s` for a probe to exit, then SIGKILL its Python and JVM.

        Returns once its shim has reported, or a few seconds after the kill.
        """
        directory = self.directory(application, epoch, probe=True)
        ident = self._ident(directory)
        if ident is not None and grace_s > 0:
            identities.wait_end(ident.shim_pid, ident.shim_start_time, grace_s)
        if not (DriverFolder.of(directory).control / EXIT).exists():
            self._kill(directory, Reason.PROBED)
            if ident is not None:
                identities.wait_end(ident.shim_pid, ident.shim_start_time, KILL_WAIT_S)

    def end_probes(self) -> None:
        """SIGKILL every probe's Python and JVM."""
        for directory in self._folders(f"*/{PROBES}"):
            self.end_probe(directory.parent.parent.name, int(directory.name))

    def storage_listens(self, application: str, epoch: int) -> bool:
        """Return whether there is a storage JVM's socket, and the shim has recorded the JVM."""
        directory = self.directory(application, epoch, probe=True)
        return pipes.listens(directory, self._ident(directory))

    def connect_storage(self, application: str, epoch: int, limit_s: float) -> socket.socket:
        """Return a connection to a storage JVM; raise `OSError` if another process listens."""
        directory = self.directory(application, epoch, probe=True)
        return pipes.connect(directory, self._ident(directory), limit_s)

    def note_storage_use(self, application: str, epoch: int) -> None:
        """Set the time of a file in the storage JVM's control folder to now."""
        pipes.note_use(self.directory(application, epoch, probe=True))

    def storage_unused_s(self, application: str, epoch: int) -> float:
        """Return the age of that file in seconds; 0 if there is none."""
        return pipes.unused_s(self.directory(application, epoch, probe=True))

    def forget_result(self, application: str, epoch: int) -> None:
        """Remove a probe's findings."""
        with suppress(OSError):  # its folder is a link, or its file a folder: nothing of ours
            remove_file(self._own(application, epoch, probe=True) / RESULT)

    # --- files ------------------------------------------------------------------------

    def freeze_code(self, roots: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the content-addressed copies of code roots and their common SHA-256."""
        return code.freeze(roots, self._code)

    def frozen_code(self, count: int, sha256: str) -> tuple[str, ...] | None:
        """Return the `count` copies made under this SHA-256; None if they no longer exist."""
        return code.frozen(count, sha256, self._code)

    def log_tail(
        self, application: str, epoch: int, *, probe: bool = False, lines: int = 200
    ) -> str:
        """Return the end of a driver's log, at most 256 KiB; "" if there is none."""
        own = self._own(application, epoch, probe=probe)
        text = read_tail(own / DRIVER_LOG, LOG_TAIL_BYTES, within=own)
        return "\n".join(text.splitlines()[-lines:])

    def log_size(self, application: str, epoch: int) -> int:
        """Return the size of a driver's log in bytes; 0 if there is none."""
        try:
            return status_of(self._own(application, epoch) / DRIVER_LOG).st_size
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            return 0

    def log_part(self, application: str, epoch: int, *, start: int, size: int) -> bytes:
        """Return at most `size` bytes of a driver's log from `start` on; b"" if there are none."""
        own = self._own(application, epoch)
        try:
            with os.fdopen(open_plain(own / DRIVER_LOG, within=own), "rb") as file:
                file.seek(start)
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            return b""

    def spooled(self, epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        """Yield (seq, entry) from the spool of the epoch's driver; nothing if the spool is gone."""
        for directory in self._drivers.glob(f"*/{epoch}"):
            own = DriverFolder.of(directory).own
            yield from spool.read_from(
                own / spool.FOLDER, first, names=_names, read=partial(_segment, own)
            )

    def prune(self, application: str, *, keep: int) -> None:
        """Remove directories of ended drivers and probes, except for the newest `keep` of each."""
        folder = self.directory(application, 0).parent
        for parent in (folder, folder / PROBES):
            for epoch in sorted(_epochs(parent), reverse=True)[max(1, keep) :]:
                if not _is_in_use(parent / str(epoch)):
                    remove_tree(parent / str(epoch))

    def start_tool(
        self, argv: Sequence[str], *, reads: Sequence[Path] = (), hidden: Iterable[Path] = ()
    ) -> subprocess.Popen[bytes]:
        """Start one of our programs that read authors' input, isolated as drivers are."""
        return apply.start(argv, reads=reads, hidden=hidden)

    def class_archives(self) -> class_archives.HostArchives:
        """Return the archives of Spark's classes next to the drivers' folder."""
        return class_archives.HostArchives(class_archives.beside(self._drivers))

    # --- helpers ----------------------------------------------------------------------

    def _own(self, application: str, epoch: int, *, probe: bool = False) -> Path:
        """Return the folder to which a driver or probe writes."""
        return DriverFolder.of(self.directory(application, epoch, probe=probe)).own

    def _folders(self, below: str) -> Iterator[Path]:
        """Yield the existing directories, and those that live processes use."""
        folders = set(self._drivers.glob(f"{below}/*"))
        depth = len((self._drivers / below).parts) + 1
        in_use = sighting.directories_in_use(self._drivers)
        folders |= {path for path in in_use if len(path.parts) == depth}
        return (path for path in folders if whole(path.name) is not None)

    def _launch(self, spec: DriverSpec, write_intent: Callable[[Path], None]) -> None:
        directory = self.directory(spec.application, spec.epoch, probe=spec.probe)
        try:
            if epoch_claims.is_claimed(directory):  # it is alive, with or without its folder
                return
            folder = DriverFolder.make(directory)
            control = folder.control
            begun = (control / IDENT).exists() or (control / EXIT).exists()
            if begun or _is_in_use(directory) or sighting.processes_of(directory):
                return
            spec = self._driver_isolation.spec(spec, folder)
            replace_file(control / SPEC, spec.dumps())
            write_intent(directory)
            self._driver_isolation.prepare(spec, folder)
            fail_points.reach(fail_points.AFTER_INTENT)
            self._spawn(directory, spec)
            fail_points.reach(fail_points.AFTER_SPAWN)
        except OSError as error:
            what = "probe" if spec.probe else "driver"
            raise LaunchRefused(_unusable(what, directory, error)) from error

    def _spawn(self, directory: Path, spec: DriverSpec) -> None:
        env = environment.passed(os.environ, spec.env_allowlist)
        if environment.java(env) is None:
            raise LaunchRefused(
                "No Java was found in JAVA_HOME (bin/java) or PATH. Install Java 17 or later, "
                "or set JAVA_HOME."
            )
        spark = spark_named(Path(spec.spark).name)
        if spark is not None:
            release = class_archives.java_release(env)
            if refused := unsupported(spark, sys.version_info[:2], release):
                raise LaunchRefused(refused)
        folder = class_archives.beside(self._drivers)
        archive = class_archives.existing(folder, env, spec.spark)
        env |= {
            "PYTHONPATH": ":".join(places.import_path()),
            environment.CLASS_ARCHIVE: str(archive or ""),
        }
        try:
            spawning.start_shim(directory, env)
        except spawning.ShimFailed as error:
            if error.code is None:
                raise LaunchRefused(
                    f"The driver in {directory} was not started: {error}; the host may be "
                    "overloaded. The launch will be retried.",
                    passing=True,
                ) from None
            raise LaunchRefused(
                f"The driver in {directory} was not started: {mask_text(f'{error}')}",
                # The next look sees the driver that holds it.
                passing=error.code == epoch_claims.CLAIMED,
            ) from None

    def _write_assignment(self, directory: Path, assignment: Assignment) -> bool:
        """Write the assignment unless a higher generation exists; return whether it was written."""
        control = DriverFolder.of(directory).control
        with exclusive(control / ".assign.lock"):
            written_assignment = sighting.loaded(Assignment, control / ASSIGNMENT)
            if (
                written_assignment is not None
                and written_assignment.generation > assignment.generation
            ):
                return False
            replace_file(control / ASSIGNMENT, assignment.dumps())
            return True

    def _make_current(self, directory: Path, epoch: int) -> None:
        path = current_file(directory.parent)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with exclusive(directory.parent / ".current.lock"):
            text = read_current(directory.parent)
            if text is None or Current.loads(text).epoch <= epoch:
                replace_file(path, Current(epoch, str(directory)).dumps())

    def _signal(self, directory: Path, number: signal.Signals) -> None:
        ident = self._ident(directory)
        process = (ident.pid, ident.start_time) if ident else sighting.python_of(directory)
        if process is not None:
            identities.send(*process, number)

    def _ident(self, directory: Path) -> Ident | None:
        ident = sighting.loaded(Ident, DriverFolder.of(directory).control / IDENT)
        return ident if ident is not None and ident.boot_id == identities.boot_id() else None


def _names(folder: Path) -> list[str]:
    try:
        return names_in(folder)
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        return []


def _segment(own: Path, path: Path) -> bytes:
    """Return a spool segment's contents; nothing if a driver has replaced it."""
    try:
        return read_bytes(path, within=own, most=spool.MOST_OF_SEGMENT)
    except NotPlain:
        return b""


def _unusable(what: str, directory: Path, error: OSError) -> str:
    return (
        f"The {what}'s directory {directory} cannot be used: {error}. "
        "Free disk space or fix the permissions of the drivers' folder."
    )


def _epochs(folder: Path) -> list[int]:
    """Return the epochs that have a directory in a folder."""
    numbers = (whole(path.name) for path in folder.glob("*"))
    return [number for number in numbers if number is not None]


def _is_in_use(directory: Path) -> bool:
    """Return whether a shim or a driver has locked the directory."""
    folder = DriverFolder.of(directory)
    return (
        is_locked(folder.control / SHIM_LOCK)
        or is_locked(folder.own / DRIVER_LOCK, within=directory)
        or epoch_claims.is_claimed(directory)
    )
