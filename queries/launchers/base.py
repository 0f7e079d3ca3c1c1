"""Define the interface through which supervision runs drivers.

A driver is identified by its application and its epoch, a probe by the same values and
`probe=True`. Files and processes are internal to the launcher, which returns strings and the forms
of `queries.domain`. `tests/launchers/test_contract.py` verifies this contract for every kind of
launcher.
"""

import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from queries.domain.hosts import IsolationChoice
from queries.domain.protocol import Assignment, DriverSpec
from queries.domain.states import Reason

if TYPE_CHECKING:  # shims import this module, and pydantic would double the time of their start
    from queries.domain.supervision.observation import Sighting


class Launcher(Protocol):
    """A place where drivers run; every call is idempotent and bounded in time."""

    def isolation(self) -> IsolationChoice:
        """Return how drivers are isolated from the rest of their host; tested at the first call."""

    def files_location(self, application: str, epoch: int, *, probe: bool = False) -> str:
        """Return the location of a driver's files for operators, even if they do not exist yet."""

    def highest_epoch(self, application: str) -> int:
        """Return the highest known epoch of the application's drivers and probes here, or 0."""

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Record the intent, then start the driver.

        If called again for the same epoch, complete the missing steps, but never start a second
        driver. A driver with an epoch lower than an existing one is FENCED and never runs. Raises
        `LaunchRefused` with a sentence if the driver cannot be started.
        """

    def assign(self, application: str, assignment: Assignment) -> None:
        """Replace the assignment unless a higher generation exists, and nudge the driver."""

    def seal(self, application: str, epoch: int) -> bool:
        """Make sure that a driver that has not been started can no longer be started.

        Returns True if an exit of the driver is recorded: the one written now (UNKNOWN), or an
        earlier one. Returns False if any process of the driver exists or existed: the next sighting
        shows the details. Raises `LaunchRefused` if the exit cannot be written.
        """

    def sight(
        self,
        application: str,
        epoch: int,
        *,
        probe: bool = False,
        locations: tuple[str, ...] = (),
        identity: Mapping[str, str | int] | None = None,
    ) -> "Sighting":
        """Return a driver's state as seen here; `locations` are checkpoints that it may hold.

        `identity` is the one from an earlier sighting: a live process with that identity
        is found even if every file of the driver is gone.
        """

    def living(self) -> list[tuple[str, int]]:
        """Return the application and epoch of every live driver on this host, without probes."""

    def show_heartbeat(self, drivers: Iterable[tuple[str, int]]) -> None:
        """Show these drivers that the host's heartbeat has just been renewed.

        A driver whose store does not respond ends if it has not seen that for long.
        """

    def exits(self) -> AbstractContextManager[Callable[[float], int | None]]:
        """Receive notifications about exits of drivers and probes while the block runs.

        Yields a function that waits for the next exit, for at most the given number of seconds, and
        returns the ID of the driver's row, or None if nothing exited. A notification is only a
        hint: it is lost if nothing is waiting for it, and only the sighting shows how the driver
        ended. Raises `OSError` if notifications cannot be received.
        """

    def terminate(self, application: str, epoch: int) -> None:
        """Ask the driver to exit."""

    def kill(self, application: str, epoch: int, reason: Reason) -> None:
        """Kill the driver and any processes it has left behind; its exit names the reason."""

    def freeze_code(self, roots: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the content-addressed copies of code roots and their common SHA-256."""

    def frozen_code(self, count: int, sha256: str) -> tuple[str, ...] | None:
        """Return the `count` copies made under this SHA-256; None if they no longer exist."""

    def launch_probe(self, spec: DriverSpec, task: str) -> None:
        """Record the intent (`task`: `queries.domain.probes.questions`), then start the probe.

        Like `launch`, but a probe does not replace anything: the application's driver continues.
        """

    def probe_result(self, application: str, epoch: int) -> str:
        """Return a probe's findings so far as a string; "" if there are none yet."""

    def end_probe(self, application: str, epoch: int, *, grace_s: float = 0) -> None:
        """Wait at most `grace_s` for a probe to exit, then kill it."""

    def end_probes(self) -> None:
        """Kill every probe: nothing that a probe uses can be harmed by this."""

    def storage_listens(self, application: str, epoch: int) -> bool:
        """Return whether a storage JVM listens by now: it is launched like a probe."""

    def connect_storage(self, application: str, epoch: int, limit_s: float) -> socket.socket:
        """Return a connection to a storage JVM, and to no other process.

        Raises `OSError` if it does not listen, or if what listens in its place is something else.
        """

    def note_storage_use(self, application: str, epoch: int) -> None:
        """Note that a storage JVM is being used now."""

    def storage_unused_s(self, application: str, epoch: int) -> float:
        """Return the seconds since the last use of a storage JVM; 0 if it has not been used yet."""

    def forget_result(self, application: str, epoch: int) -> None:
        """Remove a probe's findings, because they may contain rows of personal data."""

    def log_tail(
        self, application: str, epoch: int, *, probe: bool = False, lines: int = 200
    ) -> str:
        """Return the end of a driver's log, at most 256 KiB; "" if there is none."""

    def log_size(self, application: str, epoch: int) -> int:
        """Return the size of a driver's log in bytes; 0 if there is none."""

    def log_part(self, application: str, epoch: int, *, start: int, size: int) -> bytes:
        """Return at most `size` bytes of a driver's log from `start` on; b"" if there are none."""

    def spooled(self, epoch: int, first: int) -> Iterable[tuple[int, bytes]]:
        """Yield (seq, JSON) for the events in a driver's spool, in order, starting at `first`."""

    def prune(self, application: str, *, keep: int) -> None:
        """Remove the files of ended drivers and probes, except the newest `keep` of each."""

    def start_tool(
        self, argv: Sequence[str], *, reads: Sequence[Path] = (), hidden: Iterable[Path] = ()
    ) -> subprocess.Popen[bytes]:
        """Start one of our programs that read authors' input, isolated as drivers are.

        Its input, output and errors are pipes. `reads` are folders that it may read in addition to
        Python and Java; `hidden` are folders that it may not. Raises `LaunchRefused` and `OSError`.
        """

    def class_archives(self) -> "ClassArchives | None":
        """Return the archives of Spark's classes; None if drivers here bring their own."""


class ClassArchives(Protocol):
    """Archives with which JVMs start faster; `spark` is a PySpark folder, or "" for our own."""

    folder: Path

    def path(self, spark: str) -> Path:
        """Return the archive for a Spark, which may not exist. Raises `NotMade`."""

    def is_whole(self, path: Path) -> bool:
        """Return whether an archive exists with its original size."""

    def make(self, target: Path, spark: str, leaving: Callable[[float], bool]) -> None:
        """Make an archive; return once it exists.

        `leaving` waits for the given seconds, and returns whether to give up. Raises `NotMade`.
        """

    def prune(self, wanted: Iterable[Path], *, before: float) -> None:
        """Remove archives that are not wanted and were last used before a time."""


class NotMade(Exception):
    """There is no class archive; the message is a sentence that says why."""


class LaunchRefused(Exception):
    """The driver cannot be launched here; the message is a sentence with the remedy.

    `passing`: the problem is temporary; the same launch is retried a little later.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing
