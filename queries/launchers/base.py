"""What supervision may ask of the place where drivers run."""

from pathlib import Path
from typing import Protocol

from queries.domain.protocol import Assignment, DriverSpec
from queries.domain.supervision.observation import Sighting


class Launcher(Protocol):
    """A place where drivers run; every call is idempotent and bounded in time."""

    def directory(self, application: str, epoch: int) -> Path:
        """Return the directory of a driver, made or not."""
        ...

    def highest_epoch(self, application: str) -> int:
        """Return the highest epoch that this host has seen of an application, 0 for none."""
        ...

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Write the intent (directory, spec, assignment, pools, current), then spawn the shim.

        Called again for the same epoch it completes what is missing and never starts a
        second driver. Raises `LaunchRefused` with a sentence where it cannot.
        """
        ...

    def assign(self, application: str, assignment: Assignment) -> None:
        """Replace the assignment unless a higher generation is there, and nudge the driver."""
        ...

    def sight(self, application: str, epoch: int, *, locations: tuple[str, ...] = ()) -> Sighting:
        """Return what can be seen of a driver; `locations` are the checkpoints it may hold."""
        ...

    def terminate(self, application: str, epoch: int) -> None:
        """Ask the driver's Python, and only it, to leave (SIGTERM)."""
        ...

    def kill(self, application: str, epoch: int) -> None:
        """SIGKILL the driver's Python and JVM, an orphaned JVM included."""
        ...

    def holder(self, location: str) -> int | None:
        """Return the pid that holds a checkpoint's lock on this host, or None."""
        ...

    def freeze_code(self, roots: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the content-addressed copies of code roots and their common SHA-256."""
        ...

    def frozen_code(self, count: int, sha256: str) -> tuple[str, ...] | None:
        """Return the `count` copies that were made under this SHA-256; None: not there any more."""
        ...

    def probe_directory(self, application: str, epoch: int) -> Path:
        """Return the directory of a probe, made or not."""
        ...

    def launch_probe(self, spec: DriverSpec, task: str) -> None:
        """Write spec and task (`queries.domain.probes.questions`) to disk, then spawn the shim.

        As `launch`, but a probe replaces nobody: the application's driver goes on beside it.
        """
        ...

    def sight_probe(self, application: str, epoch: int) -> Sighting:
        """Return what can be seen of a probe's processes."""
        ...

    def probe_result(self, application: str, epoch: int) -> str:
        """Return the text of what a probe has found so far, "" for nothing yet."""
        ...

    def end_probe(self, application: str, epoch: int, *, grace_s: float = 0) -> None:
        """Wait at most `grace_s` for a probe to leave, then SIGKILL its Python and JVM."""
        ...

    def probe_log_tail(self, application: str, epoch: int, *, lines: int = 200) -> str:
        """Return the end of a probe's log, at most 256 KiB; "" where there is none."""
        ...

    def forget_result(self, application: str, epoch: int) -> None:
        """Remove what a probe has found: it may hold rows of people's data."""
        ...

    def log_tail(self, application: str, epoch: int, *, lines: int = 200) -> str:
        """Return the end of the driver's log, at most 256 KiB; "" where there is none."""
        ...

    def prune(self, application: str, *, keep: int) -> None:
        """Remove directories of ended drivers and probes beyond the newest `keep` of each."""
        ...


class LaunchRefused(Exception):
    """The driver cannot be launched here; the message is a sentence with the way out.

    `passing`: the same launch may well succeed a little later, and is tried again.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing
