"""What supervision may ask of the place where drivers run.

A driver is named by its application and its epoch, a probe by the same and `probe=True`.
Where files are and which processes there are is the launcher's own business: it answers in
texts and in the forms of `queries.domain`. `tests/launchers/test_contract.py` holds every
kind of launcher to what is said here.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from queries.domain.protocol import Assignment, DriverSpec
from queries.domain.supervision.observation import Sighting
from queries.domain.walls import Choice


class Launcher(Protocol):
    """A place where drivers run; every call is idempotent and bounded in time."""

    def walls(self) -> Choice:
        """Return what keeps drivers from the rest of their host; tried out at the first call."""

    def place(self, application: str, epoch: int, *, probe: bool = False) -> str:
        """Return where an operator finds a driver's files, even where they do not exist yet."""

    def highest_epoch(self, application: str) -> int:
        """Return the highest epoch of the application's drivers and probes known here, or 0."""

    def launch(self, spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        """Record the intent, then start the driver.

        Called again for the same epoch it completes what is missing and never starts a
        second driver; an epoch below a later one's is FENCED and never lives. Raises
        `LaunchRefused` with a sentence where it cannot.
        """

    def assign(self, application: str, assignment: Assignment) -> None:
        """Replace the assignment unless a higher generation is there, and nudge the driver."""

    def seal(self, application: str, epoch: int) -> bool:
        """Make sure that a driver which nobody has started never will be, whoever still tries.

        Returns True where its exit stands: the one written now, UNKNOWN, or an earlier one.
        False where something of the driver is or was there: the next sighting shows what.
        Raises `LaunchRefused` where nothing can be written.
        """

    def sight(
        self,
        application: str,
        epoch: int,
        *,
        probe: bool = False,
        locations: tuple[str, ...] = (),
        known: Mapping[str, str | int] | None = None,
    ) -> Sighting:
        """Return what can be seen of a driver; `locations` are the checkpoints it may hold.

        `known` is its identity as a sighting gave it earlier: whoever has it and lives is seen,
        even where every file of the driver is gone.
        """

    def living(self) -> list[tuple[str, int]]:
        """Return application and epoch of every driver that really lives here; no probes."""

    def exits(self) -> AbstractContextManager[Callable[[float], int | None]]:
        """Hear of the ends of drivers and probes while the block runs.

        Yields what waits for the next end, so many seconds at most, and returns the number of the
        driver's row, None for no end. A hint: an end that nobody waited for may be lost; how it
        came is in the sighting. Raises `OSError` where it cannot be heard.
        """

    def terminate(self, application: str, epoch: int) -> None:
        """Ask the driver to leave."""

    def kill(self, application: str, epoch: int) -> None:
        """End the driver by force, whatever is left of it included."""

    def freeze_code(self, roots: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """Return the content-addressed copies of code roots and their common SHA-256."""

    def frozen_code(self, count: int, sha256: str) -> tuple[str, ...] | None:
        """Return the `count` copies that were made under this SHA-256; None: not there any more."""

    def launch_probe(self, spec: DriverSpec, task: str) -> None:
        """Record the intent (`task`: `queries.domain.probes.questions`), then start the probe.

        As `launch`, but a probe replaces nobody: the application's driver goes on.
        """

    def probe_result(self, application: str, epoch: int) -> str:
        """Return the text of what a probe has found so far, "" for nothing yet."""

    def end_probe(self, application: str, epoch: int, *, grace_s: float = 0) -> None:
        """Wait at most `grace_s` for a probe to leave, then end it by force."""

    def end_probes(self) -> None:
        """End every probe by force: it holds nothing that this could harm."""

    def forget_result(self, application: str, epoch: int) -> None:
        """Remove what a probe has found: it may hold rows of people's data."""

    def log_tail(
        self, application: str, epoch: int, *, probe: bool = False, lines: int = 200
    ) -> str:
        """Return the end of a driver's log, at most 256 KiB; "" where there is none."""

    def log_size(self, application: str, epoch: int) -> int:
        """Return how many bytes a driver's log has, 0 where there is none."""

    def log_part(self, application: str, epoch: int, *, start: int, size: int) -> bytes:
        """Return at most `size` bytes of a driver's log from `start` on; b"" for none."""

    def spooled(self, epoch: int, first: int) -> Iterable[tuple[int, bytes]]:
        """Give (seq, JSON) of the events that a driver keeps, from number `first` on, in order."""

    def prune(self, application: str, *, keep: int) -> None:
        """Remove what ended drivers and probes have left, beyond the newest `keep` of each."""


class LaunchRefused(Exception):
    """The driver cannot be launched here; the message is a sentence with the way out.

    `passing`: the same launch may well succeed a little later, and is tried again.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing
