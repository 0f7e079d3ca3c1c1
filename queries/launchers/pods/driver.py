"""The driver of a pod: its folder and processes, as the pod's first process changes them."""

import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headgate_ground import identities
from headgate_ground.files import read_bytes, read_file, replace_file
from queries.domain.protocol import (
    ASSIGNMENT,
    EXIT,
    HOST_SEEN,
    IDENT,
    POOLS,
    SPEC,
    Assignment,
    Current,
    DriverSpec,
    Ident,
    Want,
)
from queries.driver_folder import DriverFolder, current_file
from queries.launchers.pods.notes import Notes
from queries.launchers.process.spawning import SHIM


def drained(assignment: Assignment) -> Assignment:
    """Return an assignment whose runs end after the batch in flight, and then the driver."""
    queries = tuple(
        replace(entry, want=Want.DRAIN) if entry.want is Want.RUN else entry
        for entry in assignment.queries
    )
    return replace(assignment, queries=queries, end=True)


class DriverInPod:
    """The driver's folder and processes, as the agent changes and signals them."""

    def __init__(self, folder: DriverFolder, spec: DriverSpec, intent: Path) -> None:
        self.folder = folder
        self.spec = spec
        self._intent = intent
        self._changing = threading.Lock()
        self._is_leaving = False  # the pod is being deleted
        self._is_terminated = False
        self._notes = Notes("the mounted assignment")
        self.superseded = threading.Event()

    def write_intent(self) -> None:
        """Write what the shim and the driver read, the assignment that is mounted included."""
        replace_file(self.folder.control / SPEC, self.spec.dumps())
        replace_file(
            self.folder.control / POOLS, read_bytes_of_mount(self._intent / POOLS).decode()
        )
        self.look_at_mount()
        if not self.spec.standby:
            self._make_current()

    def look_at_mount(self) -> None:
        """Use the assignment that is mounted, if it is newer than the driver's."""
        try:
            mounted = Assignment.loads(read_bytes_of_mount(self._intent / ASSIGNMENT).decode())
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            self._notes.problem(str(error))
            return
        self._notes.fine()
        self.assign(mounted)

    def assign(self, assignment: Assignment) -> None:
        """Replace the driver's assignment if this one has a higher generation, and nudge it."""
        if assignment.epoch != self.spec.epoch:
            return
        with self._changing:
            former = self._assignment()
            if former is not None and assignment.generation <= former.generation:
                return
            self._write(drained(assignment) if self._is_leaving else assignment)
            if self.spec.standby and assignment.generation > 0:
                self._make_current()  # it takes over
        self.signal(signal.SIGUSR1)

    def leave(self) -> None:
        """Let batches in flight end, and the driver after them; from now on, that stays so."""
        with self._changing:
            self._is_leaving = True
            if (assignment := self._assignment()) is not None:
                self._write(drained(assignment))
        self.signal(signal.SIGUSR1)

    def terminate(self) -> None:
        """Ask the driver's Python to exit, once."""
        if not self._is_terminated:
            self._is_terminated = self.signal(signal.SIGTERM)

    def end_shim(self) -> bool:
        """Have the shim ask the driver's Python to exit, and limit the time for that.

        Returns False if there is no driver yet.
        """
        if (ident := self.ident()) is None:
            return False
        if not identities.send(ident.shim_pid, ident.shim_start_time, signal.SIGTERM):
            self.signal(signal.SIGTERM)
        return True

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the driver's Python; return False if that is not known to exist."""
        ident = self.ident()
        return ident is not None and identities.send(ident.pid, ident.start_time, number)

    def kill(self) -> None:
        """SIGKILL everything but the shim, which reports the exit."""
        if (ident := self.ident()) is not None:
            identities.send(ident.pid, ident.start_time, signal.SIGKILL)
            if ident.jvm_pid is not None:
                identities.send(ident.jvm_pid, ident.jvm_start_time, signal.SIGKILL)
        for pid in identities.descendants(os.getpid()):
            started = identities.start_time(pid)
            if f" {SHIM} " not in identities.command_line(pid):
                identities.send(pid, started, signal.SIGKILL)

    def ident(self) -> Ident | None:
        """Return the identities of the driver's processes; None if they are not known yet."""
        text = read_file(self.folder.control / IDENT)
        return None if text is None else Ident.loads(text)

    def has_reported(self) -> bool:
        """Return whether the shim has written the exit."""
        return (self.folder.control / EXIT).exists()

    def see_heartbeat(self) -> None:
        """Set the time of the file by which the driver sees that the control plane responds."""
        with suppress(OSError):  # no space: the driver's store may respond
            (self.folder.control / HOST_SEEN).touch(mode=0o600)

    def _assignment(self) -> Assignment | None:
        text = read_file(self.folder.control / ASSIGNMENT)
        return None if text is None else Assignment.loads(text)

    def _write(self, assignment: Assignment) -> None:
        replace_file(self.folder.control / ASSIGNMENT, assignment.dumps())

    def _make_current(self) -> None:
        path = current_file(self.folder.root.parent)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, Current(self.spec.epoch, str(self.folder.root)).dumps())


def read_bytes_of_mount(path: Path) -> bytes:
    """Return a mounted file's content: Kubernetes makes each of these a link."""
    return read_bytes(path.resolve(strict=True))
