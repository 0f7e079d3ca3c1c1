"""Install connectors and versions of Spark on this host, by its worker.

The worker takes such an operation (`Verb.INSTALL`) under its lease. If the worker dies, it starts
the download again after its next start: a folder appears as a whole, and one that is up to date is
not touched.
"""

import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane.nudge import advance_soon, changed
from headgate_ground.masking import mask_text
from headgate_server import places
from headgate_server.downloads import (
    SPARK_JARS,
    DownloadFailed,
    Downloads,
    check_coordinates,
    differing,
    is_downloaded,
)
from queries.domain.access.acts import Act
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.reasons import NOTHING, Because, noted
from queries.domain.sparks import OURS, SPARKS, Spark, installable, spark_named
from queries.domain.states import OperationOutcome, StepState, Verb
from queries.launchers.base import Launcher
from queries.models.history import Operation
from queries.models.installation import Installation
from queries.selectors.definitions.connectors import (
    all_recipes,
    folder_for,
    ready_connectors,
    recipes,
)
from queries.selectors.definitions.spark_users import spark_users
from queries.selectors.definitions.sparks import folder_of, installed_sparks, sum_of
from queries.services.access.audit_trail import record_act
from queries.services.code.commands import environment

logger = logging.getLogger(__name__)

#: Time limit of an installation; Spark's download is 450 MB, and Maven's largest 690 MB.
LIMIT = timedelta(hours=1)
#: Most coordinates of one connector.
MOST_COORDINATES = 20
#: Seconds between two checks whether a program must end, and between two records of progress.
_LOOK_EVERY_S = 0.5
#: Lines of a program's output that are kept: its reason is at the end.
_KEPT = 200
#: Environment variables for pip and Maven, in addition to paths and proxies.
_PASSED = ("PIP_", "MAVEN_", "M2_", "JAVA_HOME", "TMPDIR", "XDG_")


def begin_install(
    *,
    spark: str,
    connector: str = "",
    coordinates: Sequence[str] = (),
    actor: str,
    now: datetime,
) -> Operation:
    """Insert the operation that installs a connector for a version of Spark on this host.

    If that version is missing, it is installed first; without a connector, only the version is
    installed. Without coordinates, the connector's recipe names them. Raises `Invalid` for a value
    that cannot be installed, and `Conflict` while another installation is in progress on this host,
    or if the connector was put there by hand or is used by a driver.
    """
    version = _checked(spark, connector, tuple(coordinates))
    what = installable(spark, connector)
    steps = [] if _is_whole(version) else [installable(spark)]
    steps += [what] if connector else []
    if not steps:
        raise NotAllowed(f"{what} is already installed.")
    with transaction.atomic():
        Installation.lock()
        if (other := open_install()) is not None:
            raise Conflict(
                f"Another installation is in progress on this host: {subject_of(other)}.",
                way_out=f"Wait for operation {other.uuid}.",
            )
        if connector:
            _refuse_replacing(connector, version)
        operation = Operation.objects.create(
            verb=Verb.INSTALL,
            host=settings.HEADGATE_HOST,
            generation=0,
            actor=actor,
            created_at=now,
            deadline=now + LIMIT,
            committed=True,  # there is nothing to undo, so it cannot be cancelled
            arguments=_arguments(spark, connector, coordinates),
            steps=[
                {"name": f"Install {step}", "state": StepState.TODO, "at": None, "detail": ""}
                for step in steps
            ],
        )
        about = {"did": "requested", "operation": operation.uuid, "coordinates": list(coordinates)}
        record_act(Act.INSTALLED, actor=actor, now=now, subject=what, **about)
        advance_soon(operation.pk)
    return operation


def _refuse_replacing(connector: str, spark: Spark) -> None:
    """Raise `Conflict` if an installation would replace what is not ours or what is in use."""
    what = installable(spark, connector)
    folder = folder_for(spark) / connector
    if connector in ready_connectors(spark) and not is_downloaded(folder):
        raise Conflict(
            f"The {what} was put there by hand.",
            way_out="Choose another name, or remove the folder first.",
        )
    for user in spark_users():
        if user.driver is not None and user.spark == spark and connector in user.connectors:
            raise Conflict(f"The {what} is used by {user}.", way_out="Stop its queries first.")


def _arguments(spark: str, connector: str, coordinates: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {"spark": spark}
    given |= {"connector": connector} if connector else {}
    return given | ({"coordinates": list(coordinates)} if coordinates else {})


def open_install() -> Operation | None:
    """Return the installation that is in progress on this host."""
    rows = Operation.objects.filter(verb=Verb.INSTALL, outcome=OperationOutcome.OPEN)
    return rows.filter(host=settings.HEADGATE_HOST).first()


def last_install() -> Operation | None:
    """Return this host's newest installation, in progress or ended."""
    rows = Operation.objects.filter(verb=Verb.INSTALL, host=settings.HEADGATE_HOST)
    return rows.order_by("-created_at", "-pk").first()


def subject_of(operation: Operation) -> str:
    """Return what an operation installs: "connector delta for Spark 4.2"."""
    given = operation.arguments
    return installable(str(given.get("spark")), str(given.get("connector") or ""))


def _is_whole(spark: Spark) -> bool:
    """Return whether this host has a version of Spark, with its jars as they were downloaded."""
    folder = folder_of(spark)
    if folder is None:
        return True
    return spark in installed_sparks() and not differing(folder / SPARK_JARS, sum_of)


def _checked(spark: str, connector: str, coordinates: tuple[str, ...]) -> Spark:
    """Return the version of Spark; raise `Invalid` if these values cannot be installed."""
    version = spark_named(spark)
    if version is None:
        raise _invalid("spark", spark, "is not a version of Spark.", f"Use {', '.join(SPARKS)}.")
    if not connector and spark == OURS:
        raise _invalid(
            "spark", spark, "is Headgate's own version.", "It does not need to be installed."
        )
    if not connector and coordinates:
        raise _invalid("connector", "", "is missing.", "Give the coordinates a name.")
    if len(coordinates) > MOST_COORDINATES:
        count = str(len(coordinates))
        raise _invalid(
            "coordinates", count, "are too many.", f"Use at most {MOST_COORDINATES} coordinates."
        )
    known = recipes(version)
    if connector and not coordinates and connector not in known:
        raise _invalid(
            "connector",
            connector,
            f"has no recipe for Spark {spark}.",
            f"Use {', '.join(sorted(known))}, or add Maven coordinates.",
        )
    if coordinates:
        try:
            check_coordinates(connector, coordinates, all_recipes())
        except DownloadFailed as error:
            raise _invalid("coordinates", "", error.problem, error.way_out) from error
    return version


def _invalid(field: str, value: str, message: str, way_out: str) -> Invalid:
    return Invalid([Problem(field, value, message, way_out=way_out)])


class _Stopping(Exception):
    """The worker is stopping; its next process continues the operation."""


@dataclass(frozen=True, slots=True)
class Install:
    """The work of `Verb.INSTALL`."""

    stopping: Callable[[], bool]  # whether this worker must end

    def take(self, operation: Operation, launcher: Launcher) -> bool:
        """Download what is missing, and end the operation."""
        if operation.outcome:
            return False
        outcome, detail = OperationOutcome.DONE, NOTHING
        try:
            for step in range(len(operation.steps)):
                with self._recorded(operation, step) as progress:
                    _download(progress, operation.arguments, step)
        except _Stopping:
            return False
        except DownloadFailed as error:
            said = places.with_local_commands(mask_text(str(error)))
            outcome, detail = OperationOutcome.FAILED, noted(said)
        except OSError as error:
            outcome, detail = OperationOutcome.FAILED, noted(f"Cannot write to disk: {error}.")
        except ValueError as error:  # a file that is not UTF-8: it would fail again
            outcome, detail = OperationOutcome.FAILED, noted(f"A file cannot be read: {error}.")
        _end(operation, outcome, detail)
        return False

    @contextmanager
    def _recorded(self, operation: Operation, step: int) -> "Iterator[_Progress]":
        """Record the start and the end of a step."""
        progress = _Progress(operation, step, self.stopping)
        progress.record(StepState.DOING, "")
        try:
            yield progress
        except (DownloadFailed, OSError, ValueError):
            progress.record(StepState.FAILED, "")
            raise
        progress.record(StepState.DONE, "")


def _end(operation: Operation, outcome: OperationOutcome, detail: Because) -> None:
    rows = Operation.objects.filter(pk=operation.pk, outcome=OperationOutcome.OPEN)
    rows.update(outcome=outcome, detail=detail, ended_at=timezone.now())
    changed(f"operation:{operation.uuid}")


def _download(progress: "_Progress", arguments: Mapping[str, Any], step: int) -> None:
    """Download what a step installs; if there are two steps, the first installs Spark."""
    spark, connector = str(arguments["spark"]), str(arguments.get("connector") or "")
    downloads = Downloads(
        recipes=Path(settings.BASE_DIR) / "connectors",
        connectors=Path(settings.CONNECTORS_DIR),
        sparks=Path(settings.SPARKS_DIR),
        say=progress.say,
        follow=progress.follow,
    )
    if not connector or progress.another_follows:
        downloads.spark(spark)
    else:
        version = "" if spark == OURS else spark
        downloads.connector(connector, version, tuple(arguments.get("coordinates") or ()))


@dataclass(slots=True)
class _Progress:
    """Runs the programs of a step, and records what they do."""

    operation: Operation
    step: int
    stopping: Callable[[], bool]

    @property
    def another_follows(self) -> bool:
        """Return whether this is not the last step."""
        return self.step + 1 < len(self.operation.steps)

    def record(self, state: StepState, detail: str) -> None:
        """Write the step's state and detail."""
        step = self.operation.steps[self.step]
        if step["state"] != state:
            step["at"] = timezone.now().isoformat()
        step["state"], step["detail"] = state, detail
        rows = Operation.objects.filter(pk=self.operation.pk, outcome=OperationOutcome.OPEN)
        rows.update(steps=self.operation.steps)
        changed(f"operation:{self.operation.uuid}")

    def say(self, line: str) -> None:
        """Record a line as the step's detail."""
        self.record(StepState.DOING, mask_text(line.strip()))

    def follow(
        self,
        command: list[str],
        pattern: str,
        text: Callable[[int, re.Match[str]], str],
        *,
        steps: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, list[str]]:
        """Run a command; return its exit code and the last lines of its output.

        Lines that match `pattern` are recorded as `text`, and those that start with a key of
        `steps` as that step. Raises `DownloadFailed` at the operation's deadline.
        """
        said: list[str] = []
        shown = _Shown(self)
        seen = 0
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment(*_PASSED),
            umask=0o022,  # drivers of other accounts read these files
            start_new_session=True,
        ) as process:
            ended = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(process, ended), daemon=True)
            watcher.start()
            try:
                for line in process.stdout or ():
                    said = [*said[1 - _KEPT :], line]
                    if found := re.search(pattern, line):
                        seen += 1
                        shown.line(text(seen, found))
                    for start, step in steps.items():
                        if line.startswith(start):
                            shown.line(step)
                code = process.wait()  # its output has ended; the watcher kills it at the deadline
            finally:
                ended.set()
                _kill(process)
                watcher.join()
        if code and self.stopping():
            raise _Stopping
        if code and self._late():
            minutes = LIMIT.total_seconds() / 60
            raise DownloadFailed(
                f"The installation took longer than {minutes:g} minutes and was stopped.",
                "Check the network, then try again; finished downloads are kept.",
            )
        return code, said

    def _late(self) -> bool:
        return timezone.now() >= self.operation.deadline

    def _watch(self, process: subprocess.Popen[str], ended: threading.Event) -> None:
        """End a program at the deadline, or when this worker stops."""
        while not ended.wait(_LOOK_EVERY_S):
            if self.stopping() or self._late():
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@dataclass(slots=True)
class _Shown:
    """Records a program's progress, at most once in `_LOOK_EVERY_S`."""

    progress: _Progress
    at: datetime | None = None

    def line(self, text: str) -> None:
        """Record a line, unless one has just been recorded."""
        now = timezone.now()
        if self.at is None or now - self.at >= timedelta(seconds=_LOOK_EVERY_S):
            self.at = now
            self.progress.say(text)
